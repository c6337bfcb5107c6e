"""What the explorer shows, view by view, as JSON has it; every number is one of `analysis`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.concentration import concentration, share, top_movers
from balance_analysis.analysis.flows import deltas, flows
from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.int128 import to_decimals, words_of
from balance_analysis.analysis.statistics import drawdown, time_weighted_average
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.thinning import sort_keys, thin
from balance_analysis.analysis.totals import events, totals
from balance_analysis.assets import Asset
from balance_analysis.explorer.query import write_key
from balance_analysis.explorer.sheets import amounts, to_sheet
from balance_analysis.explorer.source import DAY, Kept, go_on, keys_of
from balance_analysis.filters import Filters
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.spans import between
from balance_analysis.text import type_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.explorer.query import Query
    from balance_analysis.explorer.sheets import Sheet
    from balance_analysis.explorer.source import History, Key, Source, State

MOST_LISTED: Final = 5000
"""Rows of a table that an answer has at most; the page says where there are more."""

PAGE: Final = 200
"""Rows of an account on one page."""

ROW_COLUMNS: Final = ("timestamp", "balance", "delta", "depth")

_KEPT_ROWS: Final = 2_000_000
_BYTES_A_ROW: Final = 50

MOST_MOVERS: Final = 100

_SECOND: Final = 1_000_000
_PERIODS: Final = {
    "minute": 60,
    "5 minutes": 300,
    "10 minutes": 600,
    "30 minutes": 1800,
    "hour": 3600,
    "4 hours": 14_400,
    "day": 86_400,
    "week": 604_800,
    "4 weeks": 2_419_200,
}
_MONDAY: Final = -3 * DAY
"""From where periods count, so that weeks begin with Monday."""

_POINTS, _BARS = 300, 100


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a source: what it held then, and what ends the look if nobody waits for it."""

    source: Source
    state: State
    check: Callable[[], None] = go_on

    def rows(self, filters: Filters, start: int, end: int, *, step: int | None = None) -> History:
        """Return rows: see `Source`."""
        return self.source.rows(filters, start, end, step=step, check=self.check)


class Explorer:
    """The views of a source, for any number of threads.

    Parameters
    ----------
    source
        What to look at.
    most
        Rows of a table of accounts that an answer has at most.
    """

    def __init__(self, source: Source, *, most: int = MOST_LISTED) -> None:
        self._source, self._most, self._kept = source, most, Kept(_KEPT_ROWS)

    def encode(self, view: str, query: Query, *, check: Callable[[], None] = go_on) -> bytes:
        """Return one view as JSON; see `answer`. What was asked for last is kept."""

        def make() -> tuple[bytes, int]:
            content = msgspec.json.encode(self.answer(view, query, check=check))
            return content, len(content) // _BYTES_A_ROW

        content: bytes = self._kept.get((self._source.state().version, view, query), make)
        return content

    def answer(
        self, view: str, query: Query, *, check: Callable[[], None] = go_on
    ) -> dict[str, Any]:
        """Return one view.

        Parameters
        ----------
        view, query
            Which one, and what it is asked for.
        check
            Called between files and parts; what it raises ends the work, and nothing is kept.

        Raises
        ------
        TooLargeError
            If it needs too many rows.
        """
        state = self._source.state()
        if not query.asset:
            query = replace(query, asset=next(iter(self._asset_ids(state)), ""))
        start = max(state.start, min(query.start, state.end - 1))
        end = max(start + 1, min(query.end, state.end))
        answer: dict[str, Any] = getattr(self, f"_{view}")(
            Look(self._source, state, check), replace(query, start=start, end=end)
        )
        return answer

    def _asset_ids(self, state: State) -> list[str]:
        """Return the assets: those that have a name first, then those of most accounts."""
        return sorted(self._source.asset_ids(), key=lambda asset: asset not in state.assets)

    def _about(self, look: Look, _: Query) -> dict[str, Any]:
        state = look.state
        ids, is_told = self._asset_ids(state), state.known is not None
        labels = state.assets.labels(ids)
        told = {one: state.assets.get(one) or Asset(one, 0) for one in ids}
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
                    "decimals": told[one].decimals if one in state.assets else None,
                }
                for one in ids
            ],
        }

    def _version(self, look: Look, _: Query) -> dict[str, Any]:
        return {"version": look.state.version}

    def _accounts(self, look: Look, query: Query) -> dict[str, Any]:
        held = self.held(query.asset, max(look.state.end - 1, 0), check=look.check)
        rows = held[has_text(held, query.text)]
        largest = rows.iloc[by_size(rows["balance"])].head(self._most)
        return {"count": len(rows), "accounts": _with_keys(largest, ("balance",))}

    def held(self, asset: str, at: int, *, check: Callable[[], None] = go_on) -> pd.DataFrame:
        """Return what every account of an asset held at a moment, as `balance_at` does."""
        table, opening = self._source.rows(Filters(asset), at, at + 1, step=DAY, check=check)
        return held_at(table, from_microseconds(at), opening=opening)

    def _holders(self, look: Look, query: Query) -> dict[str, Any]:
        at = max(look.state.end - 1, 0) if query.at is None else query.at
        moment = from_microseconds(at)
        table, opening = look.rows(Filters(query.asset), at, at + 1, step=DAY)
        shares = share(table, moment, opening=opening)
        shares["since"] = held_at(table, moment, opening=opening)["since"]
        listed = shares.iloc[by_size(shares["balance"])].head(self._most)
        found = concentration(table, moment, opening=opening)
        return {
            "accounts": len(shares),
            "holders": _with_keys(listed, ("balance", "share", "since")),
            "concentration": to_sheet(
                found[["total", "holders", "unknown", "largest", "herfindahl", "gini"]]
            ),
        }

    def _series(self, look: Look, query: Query) -> dict[str, Any]:
        steps = self._steps(look, query)
        lines = {one: draw_line(steps[one], look.state, query) for one in query.accounts}
        return {"series": [{"key": write_key(one), **lines[one]} for one in query.accounts]}

    def _steps(self, look: Look, query: Query) -> dict[Key, Steps]:
        """Return accounts as steps in the range; files are read once for those of an asset."""
        found: dict[Key, Steps] = {}
        for account in query.accounts:
            kept = self._kept.peek((look.state.version, account))
            if kept is not None and kept[0] <= query.start and query.end <= kept[1]:
                found[account] = kept[2]
        missing = [account for account in query.accounts if account not in found]
        for asset in {account[0] for account in missing}:
            own = [account for account in missing if account[0] == asset]
            history = look.rows(filters_of(own), query.start, query.end)
            steps = make_history(*history, None).steps
            numbers = {key: number for number, key in enumerate(keys_of(steps.accounts))}
            for account in own:
                number = numbers.get(account, len(steps))
                found[account] = steps.part(number, min(number + 1, len(steps)))
                kept = query.start, query.end, found[account]
                self._kept.put((look.state.version, account), kept, len(found[account].times))
        return found

    def _totals(self, look: Look, query: Query) -> dict[str, Any]:
        name, edges = _periods(query, _POINTS)
        how = Filters(query.asset), query.start, query.end
        table, opening = look.rows(*how, step=_PERIODS[name] * _SECOND)
        found = totals(table, freq=_grid(edges), opening=opening)
        names = ("account_type", "timestamp", "total", "known", "unknown")
        return {"totals": to_sheet(found, names)}

    def _flows(self, look: Look, query: Query) -> dict[str, Any]:
        name, edges = _periods(query, _BARS)
        sheets = []
        for part in self._source.parts(edges):
            asked = Filters(query.asset), int(part[0]), int(part[-1])
            table, opening = look.rows(*asked)
            found = flows(table, freq=_grid(part), by="asset_id", opening=opening)
            sheets.append(to_sheet(found.drop(columns="asset_id")))
        rows = [row for sheet in sheets for row in sheet["rows"]]
        return {"freq": name, "flows": {**sheets[0], "rows": rows}}

    def _movers(self, look: Look, query: Query) -> dict[str, Any]:
        how = Filters(query.asset), query.start, query.end
        table, opening = look.rows(*how, step=DAY)
        found = top_movers(table, **query.bounds, n=MOST_MOVERS, opening=opening)
        return {"movers": _with_keys(found, ("opening", "closing", "net"))}

    def _account(self, look: Look, query: Query) -> dict[str, Any]:
        if not query.accounts:
            return {}
        history = look.rows(filters_of(query.accounts[:1]), query.start, query.end)
        told = tell_accounts(*history, query)
        return {name: to_sheet(frame, own_columns(frame)) for name, frame in told.items()}

    def _rows(self, look: Look, query: Query) -> dict[str, Any]:
        if not query.accounts:
            return {}
        # How deep it fell is told from its beginning on.
        history = look.rows(filters_of(query.accounts[:1]), look.state.start, query.end)
        rows = find_rows(*history, query)
        shown = to_sheet(rows.iloc[::-1].iloc[query.page * PAGE :].head(PAGE), ROW_COLUMNS)
        return {"count": len(rows), "pages": -(-len(rows) // PAGE), "rows": shown}

    def _notes(self, look: Look, __: Query) -> dict[str, Any]:
        return {name: to_sheet(frame) for name, frame in self._source.notes().items()}


def filters_of(accounts: Sequence[Key]) -> Filters:
    """Return filters that all of some accounts of one asset pass, and of one no other."""
    assets, kinds, parties, markets = zip(*accounts, strict=True)
    return Filters(assets[0], *(tuple(set(ids)) for ids in (parties, markets, kinds)))


def draw_line(steps: Steps, state: State, query: Query) -> dict[str, Any]:
    """Return the steps of one account that a chart needs, and the last one before them."""
    _, times, words, is_known = events(steps)
    known = np.ones(len(times), bool) if is_known is None else is_known.astype(bool)
    low = max(int(np.searchsorted(times, query.start, side="right")) - 1, 0)
    high = int(np.searchsorted(times, query.end))
    times, words, known = np.maximum(times[low:high], state.start), words[low:high], known[low:high]
    kept = ~known
    if len(times):
        kept[thin(times, sort_keys(words), columns=query.width)] = True
    return {
        "times": times[kept].tolist(),
        "balances": amounts(to_decimals(words[kept], known[kept])),
        "opening": low == 0 and len(times) > 0 and not steps.is_row[0],
        "rows": len(times),
    }


def tell_accounts(
    table: pd.DataFrame, opening: pd.DataFrame | None, query: Query
) -> dict[str, pd.DataFrame]:
    """Return what accounts did in a range, and in each period of it, by account."""
    _, edges = _periods(query, _BARS)
    average = time_weighted_average(table, freq=_grid(edges), opening=opening)
    flowed = flows(table, freq=_grid(edges), opening=opening)
    keys = [*ACCOUNT_KEY, "start", "end"]
    counts = dict.fromkeys(("changes", "unknown"), "Int64")  # which a period may lack
    periods = average.merge(flowed.astype({**average[keys].dtypes, **counts}), on=keys, how="left")
    summary = summarize_accounts(table, opening=opening, **query.bounds)
    return {"summary": summary, "periods": periods}


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


def by_size(balances: pd.Series[Any]) -> NDArray[np.intp]:
    """Return the places of balances, the largest first, unknown ones last."""
    unknown = balances.isna().to_numpy()
    words = np.where(unknown[:, None], 0, words_of(pa.array(balances.array)))
    return np.lexsort((~words[:, 0].view(np.uint64), ~words[:, 1], unknown))


def _with_keys(frame: pd.DataFrame, names: Iterable[str]) -> Sheet:
    """Return columns of a frame behind the account of each row: its key, and what it is."""
    keys = [write_key(account) for account in keys_of(frame)]
    own = frame.assign(account=pd.Series(keys, index=frame.index, dtype="str"))
    return to_sheet(own, ["account", *names])


def _periods(query: Query, most: int) -> tuple[str, NDArray[np.int64]]:
    """Return periods of the calendar of which not too many fill the range.

    Returns
    -------
    tuple
        What a period is called, and where periods begin and the last one ends, microseconds; the
        first and the last are cut where the range is.
    """
    length = query.end - query.start
    fitting = (name for name, each in _PERIODS.items() if length <= each * _SECOND * most)
    name = next(fitting, "4 weeks")
    step = _PERIODS[name] * _SECOND
    first = query.start - (query.start - _MONDAY) % step
    return name, np.array([query.start, *range(first + step, query.end, step), query.end])


def _grid(edges: NDArray[np.int64]) -> Grid:
    return Grid(edges, edges[:-1], dt.UTC)
