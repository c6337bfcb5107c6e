"""A function gives of an archive what it gives of its table, whatever the slices and files."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.oracle import Fixed
from tests.analysis.tables import (
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    accounts,
    asked,
    books,
    calendar_cases,
    fixed_grids,
    instant,
    many_rows,
    outcome,
    table_of,
)
from tests.columns import ATTRS_KEY
from tests.scale.archives import archive_of, assert_same

PACE = 5 * HOUR
FREQS = st.none() | st.integers(HOUR, 30 * PACE).map(Fixed)
TIMES = st.integers(0, 14).map(lambda step: START + step * PACE)

partitions = st.sampled_from(["hour", "day", "month"])
sizes = st.integers(1, 12)
gaps = st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted) | st.just((0, 0))
large = st.integers(0, 9) | st.integers(10**37, LARGEST)
bad_rows = st.builds(
    lambda account, time, span: ((time, time + span), account),
    st.none() | accounts,
    TIMES,
    st.integers(1, PACE),
)
groups = st.lists(st.sampled_from(ba.ACCOUNT_KEY[1:]), unique=True).flatmap(
    lambda names: st.permutations(["asset_id", *names])
)


MOVES = [(*key, START + step * PACE, 3) for key in (GENERAL, OTHER) for step in range(14)]
LEDGER = table_of([*MOVES, ("none", *OTHER[1:], START, 1)]).rename(columns={"balance": "net"})
"""Flows of two accounts that a table may have, and of one that none has."""


def bounds(grid):
    return {name: grid[name] for name in ("start", "end")}


ON_GRIDS = {
    "series": lambda grid, by, at: (ba.balance_series, grid),
    "long series": lambda grid, by, at: (ba.balance_series, {**grid, "layout": "long"}),
    "series of holders": lambda grid, by, at: (
        ba.balance_series,
        {**grid, "layout": "long", "by": by},
    ),
    "averages": lambda grid, by, at: (ba.time_weighted_average, grid),
    "averages of holders": lambda grid, by, at: (ba.time_weighted_average, {**grid, "by": by}),
    "flows": lambda grid, by, at: (ba.flows, {**grid, "by": by}),
    "flows of accounts": lambda grid, by, at: (ba.flows, grid),
    "wide flows": lambda grid, by, at: (ba.flows, {**grid, "by": by, "layout": "wide"}),
    "internal flows": lambda grid, by, at: (ba.flows, {**grid, "by": by, "internal": True}),
    "totals": lambda grid, by, at: (ba.totals, {**grid, "by": by}),
    "shares": lambda grid, by, at: (ba.totals, {**grid, "by": by, "share": True}),
}
CALLS = {
    **ON_GRIDS,
    "bars": lambda grid, by, at: (ba.ohlc, {**grid, "by": by, "freq": grid["freq"] or "1D"}),
    "deltas": lambda grid, by, at: (ba.deltas, {}),
    "drawdowns": lambda grid, by, at: (ba.drawdown, {}),
    "drawdowns of holders": lambda grid, by, at: (ba.drawdown, {"by": by}),
    "summaries": lambda grid, by, at: (ba.summarize_accounts, bounds(grid)),
    "parties": lambda grid, by, at: (ba.summarize_parties, {**bounds(grid), "by": by}),
    "balances at moments": lambda grid, by, at: (ba.balance_at, {"at": at}),
    "balances at a moment": lambda grid, by, at: (ba.balance_at, {"at": at[0]}),
    "holders at a moment": lambda grid, by, at: (ba.holders, {"at": at[0], "by": by}),
    "holders at the end": lambda grid, by, at: (ba.holders, {"by": by}),
    "comparison": lambda grid, by, at: (ba.compare, {"at": at}),
    "reconciliation": lambda grid, by, at: (ba.reconcile, {"flows": LEDGER}),
}
"""What is called, of a drawn grid, columns of groups, and two moments."""


@st.composite
def cases(draw):
    """Draw a table, and a grid of it as arguments."""
    if draw(st.booleans()):
        rows, grid = draw(calendar_cases())
    else:
        rows, _ = draw(books(times=TIMES, most=15, openings=False))
        grid = draw(fixed_grids(PACE, FREQS))
    return table_of(rows), asked(grid)


@st.composite
def archives(draw):
    """Draw what an archive is besides its rows."""
    bad = draw(st.lists(bad_rows, max_size=2))
    return [draw(partitions), draw(gaps), tuple(bad)], {"from_first_block": draw(st.booleans())}


def check(function, archive, size, **how):
    """Check that slices give what the whole table gives, or refuse what it refuses."""
    table = archive.read(partial=True)
    expected = outcome(lambda: function(table, **how))
    actual = outcome(lambda: ba.over_accounts(function, archive, rows_per_slice=size, **how))
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
    elif expected.columns.nlevels > 1 or expected.columns.name:
        assert actual.columns.equals(expected.columns)
        assert actual.equals(expected)
        assert actual.index.equals(expected.index)
    else:
        assert_same(actual, expected)
        notes = ({**frame.attrs.get(ATTRS_KEY, {})} for frame in (actual, expected))
        assert operator.eq(*(each.get("not_compared") for each in notes))


moments = st.lists(
    TIMES | st.integers(START, START + 80 * HOUR), min_size=2, max_size=2, unique=True
)
several = st.lists(st.sampled_from([*CALLS]), min_size=6, max_size=6, unique=True)


@settings(max_examples=20)
@given(cases(), archives(), sizes, st.tuples(groups, moments), several)
def test_a_function_gives_of_an_archive_what_it_gives_of_its_table(case, kind, size, how, names):
    (table, grid), (by, times) = case, how
    at = [*map(instant, sorted(times))]
    with archive_of(table, *kind[0], **kind[1]) as archive:
        for name in names:
            if name != "wide flows" or len(table):
                function, how = CALLS[name](grid, by, at)
                check(function, archive, size, **how)


@given(books(amounts=large, times=TIMES, most=15), groups, sizes, st.sampled_from([None, "2D"]))
@settings(max_examples=5)
def test_a_total_fails_only_where_that_of_the_whole_does(book, by, size, freq):
    with archive_of(table_of(book[0])) as archive:
        for function in (ba.totals, ba.flows):
            check(function, archive, size, by=by, freq=freq)


def test_totals_at_changes_count_what_is_known_in_other_slices():
    rows = [row for row in many_rows(300) if row[4] > START + 30]
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        for by in ("asset_id", ["party_id", "asset_id"], ba.ACCOUNT_KEY):
            for how in ({}, {"start": instant(START + 50)}, {"end": instant(START + 100)}):
                check(ba.totals, archive, 60, by=by, **how)


@pytest.mark.parametrize("freq", ["5h", None])
def test_an_account_with_more_rows_than_a_slice_is_read_whole(freq):
    rows = [(*GENERAL, START + hour * HOUR, hour**19) for hour in range(60) if hour not in {7, 40}]
    rows += [(*MARGIN, START + hour * HOUR, hour % 3) for hour in range(50)]
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        for call in ON_GRIDS.values():
            function, how = call({"freq": freq}, "asset_id", None)
            check(function, archive, 10, **how)


@given(cases(), sizes, st.lists(accounts, min_size=1, max_size=3))
@settings(max_examples=5)
def test_a_selection_chooses_the_rows_before_anything_is_asked_of_them(case, size, wanted):
    table, how = case
    there = set(map(tuple, table[ba.ACCOUNT_KEY].astype("str").to_numpy()))
    with archive_of(table) as archive:
        for account in {*wanted} & there:
            chosen = archive.select(asset_id=f"id:{account[0]}", account_types=account[1])
            check(ba.flows, chosen, size, **how)
