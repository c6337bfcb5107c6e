"""Cases of all functions over a table: how each is called, and its oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.oracle import Fixed, Grid
from tests.analysis.tables import (
    asked,
    cells_of,
    dtypes_of,
    fixed_grids,
    groupings,
    moderate,
    records,
    signed,
    spans_of,
)
from tests.columns import BALANCE_DTYPE

MOMENT, AMOUNT = "datetime64[us, {zone}]", str(BALANCE_DTYPE)
DTYPES = {
    MOMENT: ("timestamp", "start", "end"),
    MOMENT.format(zone="UTC"): (
        *("since", "peak_at", "first_seen", "last_seen", "minimum_at", "maximum_at"),
        "drawdown_at",
    ),
    "int64": ("accounts", "active", "changes", "known", "rows", "unknown"),
    "float64": ("change_percent", "cumulative_share", "known_share", "share", "zero_share"),
    "category": (*ba.ACCOUNT_KEY, "desk", "state", "reason"),
}
SUMMARY = (
    *("first_seen", "last_seen", "rows", "changes", "opening", "closing", "minimum", "maximum"),
    *("minimum_at", "maximum_at", "inflow", "outflow", "net"),
)
FALL = ("average", "drawdown", "drawdown_at", "zero_share")


@dataclass(frozen=True)
class Case:
    """A function, the loop that it must agree with, and the columns that it adds to ids.

    Attributes
    ----------
    function, expected
        The function of a table, and its loop over a world, a grid and columns to group by.
    columns
        The result's columns after the ids; in a wide layout, their number.
    bounds
        The parts of a grid that it takes: its "points"; its "periods", so that the frequency is
        optional; the "interval" alone; two "moments"; "nothing".
    by
        The columns to group by: drawn ones, or these.
    amounts
        The balances that it is tested with.
    """

    function: Callable[..., Any]
    expected: Callable[..., Any]
    columns: tuple[str, ...] = ()
    bounds: str = "points"
    by: Any = groupings
    amounts: Any = moderate

    def of(self, table, grid, by=ba.ACCOUNT_KEY):
        how = {} if self.bounds == "nothing" else asked(grid)
        if self.bounds in {"interval", "moments"}:
            del how["freq"]
        if self.by is groupings:
            how["by"] = by
        return self.function(table, **how)

    def result(self, table, grid, by, given=None):
        frame = self.of(table, grid, by if given is None else given)
        if not self.columns:
            return cells_of(frame)
        assert dtypes_of(frame, table) == self.dtypes(by, grid.zone)
        return records(frame)

    def loop(self, world, grid, by):
        return oracle.fit(self.expected(world, grid, by))

    def dtypes(self, by=ba.ACCOUNT_KEY, zone="UTC"):
        kinds = {name: kind for kind, names in DTYPES.items() for name in names}
        names = [*by, *self.columns]
        return {name: kinds.get(name, AMOUNT).format(zone=zone) for name in names}

    def grids(self, scale=1):
        """Draw grids for rows that lie some microseconds apart."""
        return _grids(self.bounds, scale)


@cache
def _grids(bounds, scale):
    if bounds in {"nothing", "moments"}:
        return spans_of(scale).map(lambda span: Grid(None, *span))
    fixed = st.integers(1, 30).map(lambda steps: Fixed(steps * scale))
    free = {"interval": st.none(), "periods": st.none() | fixed}
    return fixed_grids(scale, free.get(bounds, fixed))


def keyed(*args, **options):
    """Return a case of a function that takes no columns to group by."""
    return Case(*args, by=ba.ACCOUNT_KEY, amounts=signed, **options)


long = partial(ba.balance_series, layout="long")
averages, states = ba.time_weighted_average, oracle.series_with_states
own_summaries = partial(oracle.summaries, without=("accounts", "unknown", "internal"))
LEVEL = ("timestamp", "balance")
FLOWS = ("start", "end", "inflow", "outflow", "net", "changes", "active", "unknown")
MOVED = (*FLOWS[:5], "internal", *FLOWS[5:])
AVERAGE = ("start", "end", "average")
CANDLE = ("start", "end", "open", "high", "low", "close")
TOTALS = ("timestamp", "total", "known", "unknown")
HELD = ("balance", "share", "cumulative_share", "accounts", "unknown")
COMPARED = ("before", "after", "change", "change_percent", "state", "accounts", "unknown")
PARTY = ("accounts", "unknown", *SUMMARY, "internal", *FALL)


def balances(table, start, end):
    return ba.balance_at(table, [end, start])


def holder_series(table, **how):
    return long(table, **how).drop(columns="state")


def holders(table, start, end, by, n=None):
    return ba.holders(table, start, by=by, n=n)


def comparison(table, start, end, by):
    return ba.compare(table, (start, end), by=by)


def wide_flows(world, grid, by, place):
    flows = oracle.flows(world, grid, by, full=True)
    return [(*row[: len(by) + 1], row[len(by) + 2 + place]) for row in flows]


def with_option(function, expected, columns, bounds, **option):
    """Return a case of an option that the loop has as well."""
    return Case(partial(function, **option), partial(expected, **option), columns, bounds)


def wide(value):
    place = partial(wide_flows, place=FLOWS.index(value) - 2)
    return Case(partial(ba.flows, layout="wide", value=value), place, bounds="periods")


def at_moments(function, expected, columns):
    """Return a case of balances of any size at two moments."""
    return Case(function, expected, columns, "moments", amounts=signed)


CASES = {
    "balances": keyed(balances, oracle.balances_at, (*LEVEL, "since"), bounds="moments"),
    "series": Case(holder_series, oracle.series, LEVEL),
    "series of accounts": keyed(long, states, (*LEVEL, "state")),
    "wide series": Case(ba.balance_series, oracle.series),
    "wide series of accounts": keyed(ba.balance_series, oracle.series),
    "changes": keyed(long, states, (*LEVEL, "state"), bounds="interval"),
    "wide changes": keyed(ba.balance_series, oracle.series, bounds="interval"),
    "deltas": keyed(ba.deltas, oracle.deltas, (*LEVEL, "delta"), bounds="nothing"),
    "flows": Case(ba.flows, oracle.flows, FLOWS, "periods"),
    "flows of accounts": keyed(ba.flows, oracle.flows, FLOWS, bounds="periods"),
    "internal flows": with_option(ba.flows, oracle.flows, MOVED, "periods", internal=True),
    "wide net": wide("net"),
    "wide active": wide("active"),
    "averages": Case(averages, oracle.averages, AVERAGE, "periods"),
    "averages of accounts": keyed(averages, oracle.averages, AVERAGE, bounds="periods"),
    "averages of parts": with_option(
        averages, oracle.averages, (*AVERAGE, "known_share"), "periods", partial=True
    ),
    "candles": Case(ba.ohlc, oracle.ohlc, CANDLE),
    "candles of accounts": keyed(ba.ohlc, oracle.ohlc, CANDLE),
    "drawdowns": keyed(
        ba.drawdown, oracle.drawdowns, (*LEVEL, "peak", "peak_at", "depth"), bounds="nothing"
    ),
    "totals": Case(ba.totals, oracle.totals, TOTALS, "periods"),
    "totals of any size": Case(ba.totals, oracle.totals, TOTALS, "periods", amounts=signed),
    "shares": Case(partial(ba.totals, share=True), oracle.shares, (*TOTALS, "share"), "periods"),
    "summaries": keyed(ba.summarize_accounts, own_summaries, (*SUMMARY, *FALL), bounds="interval"),
    "parties": Case(ba.summarize_parties, oracle.summaries, PARTY, "interval"),
    "holders": at_moments(holders, oracle.ranked_holders, HELD),
    "first holders": at_moments(partial(holders, n=2), partial(oracle.ranked_holders, n=2), HELD),
    "comparison": at_moments(comparison, oracle.comparison, COMPARED),
}
