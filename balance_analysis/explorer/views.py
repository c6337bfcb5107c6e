"""What the explorer shows, view by view, as JSON has it; every number is one of `analysis`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.concentration import concentration, share, top_movers
from balance_analysis.analysis.flows import deltas, flows
from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.int128 import integers_of, words_of
from balance_analysis.analysis.statistics import drawdown, time_weighted_average
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.thinning import sort_keys, thin
from balance_analysis.analysis.totals import events, totals
from balance_analysis.assets import Asset
from balance_analysis.explorer.query import write_key
from balance_analysis.explorer.sheets import amounts, to_sheet
from balance_analysis.explorer.source import Kept, keys_of, nothing
from balance_analysis.filters import Filters
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.text import type_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.explorer.query import Query
    from balance_analysis.explorer.sheets import Sheet
    from balance_analysis.explorer.source import Key, Source, State

History = tuple[pd.DataFrame, pd.DataFrame | None]

MOST_LISTED: Final = 5000
"""Rows of a table that an answer has at most; the page says where there are more."""

PAGE: Final = 200
"""Rows of an account on one page."""

ROW_COLUMNS: Final = ("timestamp", "balance", "delta", "depth")

_KEPT_ROWS: Final = 3_000_000
_BYTES_A_ROW: Final = 50

MOST_MOVERS: Final = 100

_SECOND: Final = 1_000_000
_PERIODS: Final = {
    "1min": 60,
    "5min": 300,
    "10min": 600,
    "30min": 1800,
    "1h": 3600,
    "4h": 14_400,
    "1D": 86_400,
    "7D": 604_800,
}
_POINTS, _BARS = 300, 100


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

    def encode(self, view: str, query: Query) -> bytes:
        """Return one view as JSON; see `answer`. What was asked for last is kept."""

        def make() -> tuple[bytes, int]:
            content = msgspec.json.encode(self.answer(view, query))
            return content, len(content) // _BYTES_A_ROW

        content: bytes = self._kept.get((self._source.state().version, view, query), make)
        return content

    def answer(self, view: str, query: Query) -> dict[str, Any]:
        """Return one view.

        Raises
        ------
        TooLargeError
            If it needs too many rows.
        """
        state = self._source.state()
        if not query.asset:
            query = replace(query, asset=next(iter(self._source.asset_ids()), ""))
        start = max(state.start, min(query.start, state.end - 1))
        end = max(start + 1, min(query.end, state.end))
        answer: dict[str, Any] = getattr(self, f"_{view}")(
            state, replace(query, start=start, end=end)
        )
        return answer

    def _about(self, state: State, _: Query) -> dict[str, Any]:
        ids = self._source.asset_ids()
        labels = state.assets.labels(ids)
        told = {one: state.assets.get(one) or Asset(one, 0) for one in ids}
        return {
            "name": self._source.name,
            "version": state.version,
            "start": state.start,
            "end": state.end,
            "gaps": state.gaps,
            "proven": state.known is not None,
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

    def _version(self, state: State, _: Query) -> dict[str, Any]:
        return {"version": state.version}

    def _accounts(self, state: State, query: Query) -> dict[str, Any]:
        held = self._source.held(query.asset, max(state.end - 1, 0))
        wanted = query.text.casefold()
        found = [
            (account, row)
            for row, account in enumerate(keys_of(held))
            if wanted in " ".join((*account[1:], type_label(account[1]))).casefold()
        ]
        rows = held.iloc[[row for _, row in found]]
        largest = rows.iloc[by_size(rows["balance"])].head(self._most)
        return {"count": len(found), "accounts": _with_keys(largest, ("balance",))}

    def _holders(self, state: State, query: Query) -> dict[str, Any]:
        at, asset = max(state.end - 1, 0) if query.at is None else query.at, query.asset
        moment, held = from_microseconds(at), self._source.held(asset, at)
        shares = share(nothing(asset), moment, opening=held)
        order = by_size(shares["balance"])
        listed = shares.iloc[order].head(self._most)
        listed = listed.assign(since=held["since"].iloc[order].head(self._most))
        found = concentration(nothing(asset), moment, opening=held)
        return {
            "accounts": len(shares),
            "holders": _with_keys(listed, ("balance", "share", "since")),
            "concentration": to_sheet(
                found[["total", "holders", "unknown", "largest", "herfindahl", "gini"]]
            ),
        }

    def _series(self, state: State, query: Query) -> dict[str, Any]:
        found = self._histories(state, query.accounts)
        lines = (
            {
                "key": write_key(account),
                **draw_line(make_history(*found[account], None).steps, state, query),
            }
            for account in query.accounts
        )
        return {"series": list(lines)}

    def _history(self, state: State, account: Key) -> History:
        """Return all rows of an account, and what it held before, where that is told."""
        return self._histories(state, [account])[account]

    def _histories(self, state: State, accounts: Sequence[Key]) -> dict[Key, History]:
        """Return the same of accounts of an asset; files are read once for all of them."""
        found = {one: self._kept.peek((state.version, one)) for one in accounts}
        missing = [account for account, history in found.items() if history is None]
        for asset in {account[0] for account in missing}:
            own = [account for account in missing if account[0] == asset]
            table = self._source.rows(_filters(own), state.start, state.end)
            for account in own:
                rows = _filters([account]).select(table).reset_index(drop=True)
                found[account] = rows, self._source.opening(_filters([account]))
                self._kept.put((state.version, account), found[account], len(rows))
        return found

    def _table(self, state: State, query: Query) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of an asset in the range, and what was held before."""

        def read() -> tuple[Any, int]:
            table = self._source.rows(Filters(query.asset), query.start, query.end)
            opening = self._source.held(query.asset, query.start - 1)
            return (table, opening), len(table) + len(opening)

        found: tuple[pd.DataFrame, pd.DataFrame]
        found = self._kept.get((state.version, query.asset, query.start, query.end), read)
        return found

    def _totals(self, state: State, query: Query) -> dict[str, Any]:
        table, opening = self._table(state, query)
        freq = _freq(query, _POINTS)
        found = totals(table, freq=freq, opening=opening, **query.bounds)
        names = ("account_type", "timestamp", "total", "known", "unknown")
        return {"totals": to_sheet(found, names)}

    def _flows(self, state: State, query: Query) -> dict[str, Any]:
        table, opening = self._table(state, query)
        freq = _freq(query, _BARS)
        found = flows(table, freq=freq, by="asset_id", opening=opening, **query.bounds)
        return {"freq": freq, "flows": to_sheet(found.drop(columns="asset_id"))}

    def _movers(self, state: State, query: Query) -> dict[str, Any]:
        table, opening = self._table(state, query)
        found = top_movers(table, **query.bounds, n=MOST_MOVERS, opening=opening)
        return {"movers": _with_keys(found, found.columns[len(ACCOUNT_KEY) :])}

    def _account(self, state: State, query: Query) -> dict[str, Any]:
        if not query.accounts:
            return {}
        told = tell_accounts(*self._history(state, query.accounts[0]), query)
        return {name: to_sheet(frame, own_columns(frame)) for name, frame in told.items()}

    def _rows(self, state: State, query: Query) -> dict[str, Any]:
        if not query.accounts:
            return {}
        rows = find_rows(*self._history(state, query.accounts[0]), query)
        shown = to_sheet(rows.iloc[::-1].iloc[query.page * PAGE :].head(PAGE), ROW_COLUMNS)
        return {"count": len(rows), "pages": -(-len(rows) // PAGE), "rows": shown}

    def _notes(self, _: State, __: Query) -> dict[str, Any]:
        return {name: to_sheet(frame) for name, frame in self._source.notes().items()}


def _filters(accounts: Sequence[Key]) -> Filters:
    """Return filters that all of some accounts of one asset pass, and of one no other."""
    assets, kinds, parties, markets = zip(*accounts, strict=True)
    return Filters(assets[0], parties, markets, kinds)


def draw_line(steps: Steps, state: State, query: Query) -> dict[str, Any]:
    """Return the steps of one account that a chart needs, and the last one before them."""
    _, times, words, is_known = events(steps)
    known = np.ones(len(times), bool) if is_known is None else is_known.astype(bool)
    low = max(int(np.searchsorted(times, query.start, side="right")) - 1, 0)
    high = int(np.searchsorted(times, query.end))
    times, words, known = times[low:high], words[low:high], known[low:high]
    kept = ~known
    if len(times):
        kept[thin(times, sort_keys(words), columns=query.width)] = True
    return {
        "times": np.maximum(times[kept], state.start).tolist(),
        "balances": amounts(words[kept], known[kept].tolist()),
        "opening": low == 0 and len(times) > 0 and not steps.is_row[0],
        "rows": len(times),
    }


def tell_accounts(
    table: pd.DataFrame, opening: pd.DataFrame | None, query: Query
) -> dict[str, pd.DataFrame]:
    """Return what accounts did in a range, and in each period of it, by account."""
    freq = _freq(query, _BARS)
    how: dict[str, Any] = {"opening": opening, **query.bounds}
    average = time_weighted_average(table, freq=freq, **how)
    flowed = flows(table, freq=freq, **how)
    keys = [*ACCOUNT_KEY, "start", "end"]
    counts = dict.fromkeys(("changes", "unknown"), "Int64")  # which a period may lack
    periods = average.merge(flowed.astype({**average[keys].dtypes, **counts}), on=keys, how="left")
    return {"summary": summarize_accounts(table, **how), "periods": periods}


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


def by_size(balances: pd.Series[Any]) -> NDArray[np.intp]:
    """Return the places of balances, the largest first, unknown ones last."""
    values = pa.array(balances.array)
    numbers = integers_of(words_of(values))
    known = values.is_valid().to_pylist()
    order = sorted(range(len(numbers)), key=lambda row: (not known[row], -numbers[row]))
    return np.array(order, np.intp)


def _with_keys(frame: pd.DataFrame, names: Iterable[str]) -> Sheet:
    """Return columns of a frame behind the account of each row: its key, and what it is."""
    keys = [write_key(account) for account in keys_of(frame)]
    own = frame.assign(account=pd.Series(keys, index=frame.index, dtype="str"))
    return to_sheet(own, ["account", *names])


def _freq(query: Query, most: int) -> str:
    """Return a period of which not too many fill the range."""
    seconds = (query.end - query.start) / _SECOND
    return next((freq for freq, each in _PERIODS.items() if seconds <= each * most), "28D")
