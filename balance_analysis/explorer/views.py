"""What the explorer shows, view by view, as JSON has it; every number is one of `analysis`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.concentration import concentration, share, top_movers
from balance_analysis.analysis.downsampling import downsample_steps
from balance_analysis.analysis.flows import deltas, sum_flows
from balance_analysis.analysis.grid import Grid, fitting_grid
from balance_analysis.analysis.history import open_history
from balance_analysis.analysis.int128 import words_of
from balance_analysis.analysis.statistics import drawdown, time_weighted_average
from balance_analysis.analysis.steps import Steps
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.totals import totals
from balance_analysis.archive.scan import LruCache
from balance_analysis.assets import Asset
from balance_analysis.explorer.query import Query, write_key
from balance_analysis.explorer.sheets import Sheets, amounts, to_sheet
from balance_analysis.explorer.source import (
    KEPT_BYTES,
    Check,
    Edges,
    History,
    Key,
    Source,
    State,
    go_on,
    keys_of,
)
from balance_analysis.filters import Filters
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.spans import between
from balance_analysis.text import type_label

MOST_LISTED: Final = 5000
"""Rows of a table that an answer has at most; the page says where there are more."""

PAGE: Final = 200
"""Rows of an account on one page."""

ROW_COLUMNS: Final = ("timestamp", "balance", "delta", "depth")

MOST_MOVERS: Final = 100

_POINTS, _BARS = 300, 100

OF_ASSETS: Final = ("accounts", "holders", "totals", "flows", "movers")
"""The views of an asset: their frames have a column `asset_id`, and their series are by it."""

_STEP_BYTES: Final = 40
_STEPS_BYTES: Final = 4000


@dataclass(frozen=True, slots=True)
class Look:
    """One question to one state, and what ends the answer where nobody waits for it any more."""

    state: State
    query: Query
    check: Check = go_on

    @property
    def filters(self) -> Filters:
        """What the accounts of the asset pass, or of all of them."""
        return Filters(self.query.asset or None)

    def rows(self, filters: Filters, start: int, end: int, *, edges: Edges = None) -> History:
        """Return rows: see `State`."""
        return self.state.rows(filters, start, end, edges=edges, check=self.check)

    def held(self, at: int) -> History:
        """Return rows that tell what every account of the asset, or of all, held at a moment."""
        return self.rows(self.filters, at, at + 1, edges=np.array([at + 1]))


class Explorer:
    """The views of a source, for any number of threads.

    Parameters
    ----------
    source
        What to look at.
    most
        Rows of a table of accounts that an answer has at most.
    cache
        Where to keep what was answered last, in bytes; by default one of its own.
    """

    def __init__(
        self, source: Source, *, most: int = MOST_LISTED, cache: LruCache | None = None
    ) -> None:
        self._source, self._most = source, most
        self._kept = LruCache(KEPT_BYTES) if cache is None else cache

    def encode(self, view: str, query: Query, *, check: Check = go_on) -> bytes:
        """Return one view as JSON; see `answer`. What was asked for last is kept."""

        def read(state: State) -> bytes:
            def make() -> tuple[bytes, int]:
                content = msgspec.json.encode(self._answer(view, Look(state, query, check)))
                return content, len(content)

            key = state.version, view, replace(query, version="")
            content: bytes = self._kept.get(key, make)
            return content

        return self._source.look(query.version, read)

    def answer(self, view: str, query: Query, *, check: Check = go_on) -> dict[str, Any]:
        """Return one view, all of it of one state.

        Parameters
        ----------
        view, query
            Which one, and what it is asked for.
        check
            Called between files and parts; what it raises ends the work, and nothing is kept.

        Raises
        ------
        ViewTooLargeError
            If it needs too many rows.
        SnapshotGoneError
            If the state that it is asked of is gone.
        """
        return self._source.look(
            query.version, lambda state: self._answer(view, Look(state, query, check))
        )

    def _answer(self, view: str, look: Look) -> dict[str, Any]:
        state, query = look.state, look.query
        if not query.asset:
            query = replace(query, asset=next(iter(_asset_ids(state)), ""))
        if view in OF_ASSETS:
            return self._answers(view, replace(look, query=query), [query.asset])[query.asset]
        answer: dict[str, Any] = getattr(self, f"_{view}")(_cut(look, query))
        return answer

    def answers(self, view: str, query: Query) -> dict[str, dict[str, Any]]:
        """Return one of the views of an asset of the one asked for, or of all at once."""

        def read(state: State) -> dict[str, dict[str, Any]]:
            ids = [query.asset] if query.asset else state.asset_ids()
            return self._answers(view, Look(state, query), ids) if ids else {}

        return self._source.look(query.version, read)

    def _answers(self, view: str, look: Look, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, Any] = getattr(self, f"_{view}")(_cut(look, look.query))
        sheets = {
            name: Sheets(part, ["asset_id"])
            for name, part in found.items()
            if isinstance(part, pd.DataFrame)
        }

        def part_of(asset: str, name: str) -> object:
            part = found[name]
            if name in sheets:
                return sheets[name].of((asset,))
            return int(part.get(asset, 0)) if isinstance(part, pd.Series) else part

        return {asset: {name: part_of(asset, name) for name in found} for asset in ids}

    def held(self, asset: str, at: int) -> pd.DataFrame:
        """Return what every account of an asset held at a moment, as `balance_at` does."""

        def read(state: State) -> pd.DataFrame:
            table, opening = Look(state, Query(asset)).held(at)
            return held_at(table, from_microseconds(at), opening=opening)

        return self._source.look("", read)

    def _about(self, look: Look) -> dict[str, Any]:
        state = look.state
        ids, is_told, assets = _asset_ids(state), state.known is not None, state.assets
        labels = assets.labels(ids)
        told = {one: assets.get(one) or Asset(one, 0) for one in ids}
        return {
            "name": self._source.name,
            "version": state.version,
            "start": state.start,
            "end": state.end,
            "gaps": between(state.known or (), state.start, state.end) if is_told else [],
            "proven": is_told,
            "assets": [
                {
                    "id": one,
                    "label": labels[one],
                    "name": told[one].name,
                    "decimals": told[one].decimals if one in assets else None,
                }
                for one in ids
            ],
        }

    def _version(self, look: Look) -> dict[str, Any]:
        return {"version": look.state.version}

    def _accounts(self, look: Look) -> dict[str, Any]:
        at = max(look.state.end - 1, 0)
        table, opening = look.held(at)
        held = held_at(table, from_microseconds(at), opening=opening)
        rows = held[has_text(held, look.query.text)]
        listed = self._largest(rows, ("balance",))
        return {"count": rows["asset_id"].value_counts(), "accounts": listed}

    def _largest(self, held: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
        """Return columns of the accounts of each asset that hold most."""
        ranked = held.iloc[by_size(held)].groupby("asset_id", observed=True).head(self._most)
        return _with_keys(ranked, names)

    def _holders(self, look: Look) -> dict[str, Any]:
        at = max(look.state.end - 1, 0) if look.query.at is None else look.query.at
        moment = from_microseconds(at)
        table, opening = look.held(at)
        shares = share(table, moment, opening=opening)
        shares["since"] = held_at(table, moment, opening=opening)["since"]
        found = concentration(table, moment, opening=opening)
        names = ["asset_id", "total", "holders", "unknown", "largest", "herfindahl", "gini"]
        return {
            "accounts": shares["asset_id"].value_counts(),
            "holders": self._largest(shares, ("balance", "share", "since")),
            "concentration": found[names],
        }

    def _series(self, look: Look) -> dict[str, Any]:
        query, steps = look.query, self._steps(look)
        lines = {one: draw_line(steps[one], look.state, query) for one in query.accounts}
        return {"series": [{"key": write_key(one), **lines[one]} for one in query.accounts]}

    def _steps(self, look: Look) -> dict[Key, Steps]:
        """Return accounts as steps in the range; files are read once for those of an asset."""
        query, version = look.query, look.state.version
        found: dict[Key, Steps] = {}
        for account in query.accounts:
            kept = self._kept.peek((version, account))
            if kept is not None and kept[0] <= query.start and query.end <= kept[1]:
                found[account] = kept[2]
        missing = [account for account in query.accounts if account not in found]
        for asset in {account[0] for account in missing}:
            own = [account for account in missing if account[0] == asset]
            steps = steps_of(look.rows(filters_of(own), query.start, query.end), query)
            numbers = {key: number for number, key in enumerate(keys_of(steps.accounts))}
            for account in own:
                number = numbers.get(account, len(steps))
                found[account] = steps.part(number, min(number + 1, len(steps)))
                kept = query.start, query.end, found[account]
                size = len(found[account].times) * _STEP_BYTES + _STEPS_BYTES
                self._kept.put((version, account), kept, size)
        return found

    def _totals(self, look: Look) -> dict[str, Any]:
        query = look.query
        _, grid = fitting_grid(query.start, query.end, _POINTS)
        table, opening = look.rows(look.filters, query.start, query.end, edges=grid.edges)
        found = totals(table, freq=grid, opening=opening)
        names = ["asset_id", "account_type", "timestamp", "total", "known", "unknown"]
        return {"totals": found[names]}

    def _flows(self, look: Look) -> dict[str, Any]:
        query, found = look.query, []
        name, grid = fitting_grid(query.start, query.end, _BARS)
        accounts: pd.DataFrame | None = None
        # The last part has every account, so that the asset is there in all of them.
        for edges in reversed(look.state.parts(grid.edges)):
            table, opening = look.rows(look.filters, int(edges[0]), int(edges[-1]))
            part = Grid(edges, edges[:-1], grid.zone)
            history = open_history(table, accounts if opening is None else opening)
            accounts = history.accounts.iloc[:1].assign(balance=None)
            found.append(sum_flows(history, part, "asset_id", full=True))
        return {"freq": name, "flows": pd.concat(found[::-1]) if found[1:] else found[0]}

    def _movers(self, look: Look) -> dict[str, Any]:
        query = look.query
        bounds = query.start, query.end
        table, opening = look.rows(look.filters, *bounds, edges=np.array(bounds))
        found = top_movers(table, **query.bounds, n=MOST_MOVERS, opening=opening)
        return {"movers": _with_keys(found, ("opening", "closing", "net"))}

    def _account(self, look: Look) -> dict[str, Any]:
        query = look.query
        if not query.accounts:
            return {}
        history = look.rows(filters_of(query.accounts[:1]), query.start, query.end)
        told = tell_accounts(*history, query)
        return {name: to_sheet(frame, own_columns(frame)) for name, frame in told.items()}

    def _rows(self, look: Look) -> dict[str, Any]:
        query = look.query
        if not query.accounts:
            return {}
        # How deep it fell is told from its beginning on.
        history = look.rows(filters_of(query.accounts[:1]), look.state.start, query.end)
        rows = find_rows(*history, query)
        shown = to_sheet(rows.iloc[::-1].iloc[query.page * PAGE :].head(PAGE), ROW_COLUMNS)
        return {"count": len(rows), "pages": -(-len(rows) // PAGE), "rows": shown}

    def _notes(self, look: Look) -> dict[str, Any]:
        return {name: to_sheet(frame) for name, frame in look.state.notes().items()}


def _cut(look: Look, query: Query) -> Look:
    """Return a question whose range is within what there is."""
    start, end = max(look.state.start, query.start), min(look.state.end, query.end)
    if start >= end:  # nothing of it is there, which is told of the range as it is
        start, end = query.start, max(query.end, query.start + 1)
    return replace(look, query=replace(query, start=start, end=end))


def _asset_ids(state: State) -> list[str]:
    """Return the assets: those that have a name first, then those of most rows."""
    assets = state.assets
    return sorted(state.asset_ids(), key=lambda asset: asset not in assets)


def filters_of(accounts: Sequence[Key]) -> Filters:
    """Return filters that all of some accounts of one asset pass, and of one no other."""
    assets, kinds, parties, markets = zip(*accounts, strict=True)
    return Filters(assets[0], *(tuple(set(ids)) for ids in (parties, markets, kinds)))


def steps_of(history: History, query: Query) -> Steps:
    """Return accounts as steps, known as far as every change is in the range."""
    return open_history(*history).over(**query.bounds)[0]


def draw_line(steps: Steps, state: State, query: Query) -> dict[str, Any]:
    """Return the steps of one account that a chart needs, and the last one before them."""
    line = downsample_steps(steps, query.start, query.end, since=state.start, columns=query.width)
    return {
        "times": line.times.tolist(),
        "balances": amounts(line.balances),
        "opening": line.is_opening,
        "rows": line.count,
    }


def tell_accounts(
    table: pd.DataFrame, opening: pd.DataFrame | None, query: Query
) -> dict[str, pd.DataFrame]:
    """Return what accounts did in a range, and in each period of it, by account."""
    _, grid = fitting_grid(query.start, query.end, _BARS)
    average = time_weighted_average(table, freq=grid, opening=opening)
    flowed = sum_flows(open_history(table, opening), grid, ACCOUNT_KEY, full=True).drop(
        columns=average.columns, errors="ignore"
    )
    summary = summarize_accounts(table, opening=opening, **query.bounds)
    return {"summary": summary, "periods": pd.concat([average, flowed], axis=1)}


def find_rows(table: pd.DataFrame, opening: pd.DataFrame | None, query: Query) -> pd.DataFrame:
    """Return the rows of accounts in a range, each with its delta and how deep it fell."""
    changed = deltas(table, opening=opening)
    changed["depth"] = drawdown(table, opening=opening)["depth"]
    times, bounds = changed["timestamp"], query.bounds
    rows: pd.DataFrame = changed[(times >= bounds["start"]) & (times < bounds["end"])]
    return rows


def own_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a frame that don't tell of which account it is."""
    return [str(name) for name in frame if name not in ACCOUNT_KEY]


def has_text(accounts: pd.DataFrame, text: str) -> NDArray[np.bool_]:
    """Return which accounts have a text in the id of party or market, or in their type."""
    wanted, is_found = text.casefold(), np.zeros(len(accounts), bool)
    for name in ACCOUNT_KEY[1:]:
        ids = accounts[name].cat
        texts = ids.categories.tolist()
        if name == "account_type":
            texts = [f"{one} {type_label(one)}" for one in texts]
        is_found |= np.array([wanted in one.casefold() for one in texts], bool)[ids.codes]
    return is_found


def by_size(held: pd.DataFrame) -> NDArray[np.intp]:
    """Return the places of accounts: of each asset those that hold most first, unknown last."""
    unknown = held["balance"].isna().to_numpy()
    words = np.where(unknown[:, None], 0, words_of(pa.array(held["balance"].array)))
    assets = held["asset_id"].cat.codes.to_numpy()
    return np.lexsort((~words[:, 0].view(np.uint64), ~words[:, 1], unknown, assets))


def _with_keys(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return columns of a frame behind the asset and the account of each row."""
    keys = [write_key(account) for account in keys_of(frame)]
    own = frame.assign(account=pd.Series(keys, index=frame.index, dtype="str"))
    return own[["asset_id", "account", *names]]
