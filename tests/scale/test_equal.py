"""A function gives of an archive what it gives of its table, whatever the slices and files."""

from __future__ import annotations

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

ON_GRIDS = {
    "series": (ba.balance_series, {}),
    "long series": (ba.balance_series, {"layout": "long"}),
    "series of holders": (ba.balance_series, {"layout": "long", "by": ...}),
    "averages": (ba.time_weighted_average, {}),
    "averages of holders": (ba.time_weighted_average, {"by": ...}),
    "flows": (ba.flows, {"by": ...}),
    "flows of accounts": (ba.flows, {}),
    "wide flows": (ba.flows, {"by": ..., "layout": "wide"}),
    "internal flows": (ba.flows, {"by": ..., "internal": True}),
    "totals": (ba.totals, {"by": ...}),
    "shares": (ba.totals, {"by": ..., "share": True}),
}
"""Functions, and their options; `...` stands for columns that are drawn."""


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
    found = outcome(lambda: ba.over_accounts(function, archive, rows_per_slice=size, **how))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    elif expected.columns.nlevels > 1 or expected.columns.name:
        assert found.columns.equals(expected.columns)
        assert found.equals(expected)
        assert found.index.equals(expected.index)
    else:
        assert_same(found, expected)


@pytest.mark.parametrize("work", ON_GRIDS)
@settings(max_examples=6)
@given(cases(), archives(), sizes, groups)
def test_a_function_on_a_grid_gives_what_it_gives_of_the_table(work, case, kind, size, by):
    (table, how), (function, options) = case, ON_GRIDS[work]
    options = {name: by if value is ... else value for name, value in options.items()}
    if function is ba.flows and options.get("layout") == "wide" and not len(table):
        return
    with archive_of(table, *kind[0], **kind[1]) as archive:
        check(function, archive, size, **how, **options)


@settings(max_examples=8)
@given(cases(), archives(), sizes, groups)
def test_what_takes_no_grid_gives_what_it_gives_of_the_table(case, kind, size, by):
    table, how = case
    bounds = {name: how[name] for name in ("start", "end")}
    with archive_of(table, *kind[0], **kind[1]) as archive:
        check(ba.deltas, archive, size)
        check(ba.drawdown, archive, size)
        check(ba.drawdown, archive, size, by=by)
        check(ba.summarize_accounts, archive, size, **bounds)
        check(ba.summarize_parties, archive, size, by=by, **bounds)
        if how["freq"]:
            check(ba.ohlc, archive, size, by=by, **how)


@settings(max_examples=10)
@given(
    cases(), archives(), st.lists(TIMES | st.integers(START, START + 80 * HOUR), max_size=3), groups
)
def test_balances_at_moments_are_those_of_the_table(case, kind, times, by):
    when = [instant(time) for time in times]
    with archive_of(case[0], *kind[0], **kind[1]) as archive:
        check(ba.balance_at, archive, 1, at=when)
        for one in when[:1]:
            check(ba.balance_at, archive, 1, at=one)
            check(ba.holders, archive, 1, at=one, by=by)
        check(ba.holders, archive, 1, by=by)
        if len({*when}) > 1:
            check(ba.compare, archive, 1, at=sorted({*when})[:2])


@given(books(amounts=large, times=TIMES, most=15), groups, sizes, st.sampled_from([None, "2D"]))
@settings(max_examples=5)
def test_a_total_fails_only_where_that_of_the_whole_does(book, by, size, freq):
    with archive_of(table_of(book[0])) as archive:
        for function in (ba.totals, ba.flows):
            check(function, archive, size, by=by, freq=freq)


@pytest.mark.parametrize("how", [{}, {"start": instant(START + 50)}, {"end": instant(START + 100)}])
@pytest.mark.parametrize("by", ["asset_id", ["party_id", "asset_id"], ba.ACCOUNT_KEY])
def test_totals_at_changes_count_what_is_known_in_other_slices(how, by):
    rows = [row for row in many_rows(300) if row[4] > START + 30]
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        check(ba.totals, archive, 30, by=by, **how)


@pytest.mark.parametrize("work", ON_GRIDS)
@pytest.mark.parametrize("freq", ["5h", None])
def test_an_account_with_more_rows_than_a_slice_is_read_whole(work, freq):
    function, options = ON_GRIDS[work]
    options = {name: "asset_id" if value is ... else value for name, value in options.items()}
    rows = [(*GENERAL, START + hour * HOUR, hour**19) for hour in range(60) if hour not in {7, 40}]
    rows += [(*MARGIN, START + hour * HOUR, hour % 3) for hour in range(50)]
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        check(function, archive, 10, freq=freq, **options)


@given(cases(), sizes, st.lists(accounts, min_size=1, max_size=3))
@settings(max_examples=5)
def test_a_selection_chooses_the_rows_before_anything_is_asked_of_them(case, size, wanted):
    table, how = case
    there = set(map(tuple, table[ba.ACCOUNT_KEY].astype("str").to_numpy()))
    with archive_of(table) as archive:
        for account in {*wanted} & there:
            chosen = archive.select(asset_id=f"id:{account[0]}", account_types=account[1])
            check(ba.flows, chosen, size, **how)
