"""What comes out slice by slice is what comes out of the whole, whatever the slices and files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import cluster
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
    moderate,
    opening_frame,
    outcome,
    states_before,
    table_of,
)
from tests.cluster.archives import archive_of, assert_same

PACE = 5 * HOUR
FREQS = st.none() | st.integers(HOUR, 30 * PACE).map(Fixed)
TIMES = st.integers(0, 14).map(lambda step: START + step * PACE)

partitions = st.sampled_from(["hour", "day", "month"])
sizes = st.integers(1, 12)
gaps = st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted) | st.just((0, 0))
large = st.integers(0, 9) | st.integers(10**37, LARGEST)
groups = st.lists(st.sampled_from(ba.ACCOUNT_KEY[1:]), unique=True).flatmap(
    lambda names: st.permutations(["asset_id", *names])
)


def works(by):
    """Return for each function here, and its like for tables: what it is called with besides."""
    return [
        (cluster.series, ba.balance_series, {"layout": "long"}, {}),
        (cluster.time_weighted_average, ba.time_weighted_average, {}, {}),
        (cluster.flows, ba.flows, {}, {}),
        (cluster.flows, ba.flows, {}, {"by": by}),
        (cluster.totals, ba.totals, {}, {"by": by}),
    ]


@st.composite
def cases(draw):
    """Draw a table, what was held before it, and arguments that ask for something of it."""
    if draw(st.booleans()):
        rows, opening, grid = draw(calendar_cases())
    else:
        rows, opening = draw(books(times=TIMES, most=15))
        grid = draw(fixed_grids(rows, scale=PACE, freqs=FREQS))
    how = asked(grid)
    if opening:
        how["opening"] = opening_frame(opening)
    return table_of(rows), how


@st.composite
def busy_cases(draw):
    """Draw what `cases` does, of accounts that have more rows than a task has."""
    own = [GENERAL, MARGIN, OTHER][: draw(st.integers(1, 3))]
    times = st.sets(st.integers(0, 40).map(lambda k: START + k * 2 * HOUR), min_size=4, max_size=14)
    rows = [(*key, time, draw(moderate)) for key in own for time in sorted(draw(times))]
    held = draw(st.dictionaries(st.sampled_from(own) | accounts, st.none() | moderate, max_size=3))
    how = asked(draw(fixed_grids(rows, scale=PACE, freqs=FREQS)))
    if held:
        states = {key: draw(states_before(rows, key, balance)) for key, balance in held.items()}
        how["opening"] = opening_frame(states)
    return table_of(rows), how


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@given(cases() | busy_cases(), partitions, sizes, groups, gaps, st.integers(0, 4))
@settings(max_examples=20)
def test_each_function_gives_what_it_gives_of_the_whole_table(  # noqa: PLR0917 - drawn
    pool, case, partition, size, by, unproven, work
):
    table, how = case
    with archive_of(table, partition, unproven) as archive:
        table = archive.read(partial=True)
        sliced, whole, layout, more = works(by)[work]
        options = {"rows_per_task": size, "client": pool, "partial": True}
        found = sliced(archive, **how, **more, **options)
        assert_same(found, whole(table, **how, **more, **layout))


@pytest.mark.parametrize("work", range(5))
@pytest.mark.parametrize("freq", ["5h", "1D", None])
def test_an_account_with_more_rows_than_a_task_is_read_whole(pool, work, freq):
    rows = [(*GENERAL, START + hour * HOUR, hour**19) for hour in range(60) if hour not in {7, 40}]
    rows += [(*MARGIN, START + hour * HOUR, hour % 3) for hour in range(50)]
    opening = {GENERAL: (31**19, START + 31 * HOUR), MARGIN: (4, START - 9), OTHER: (9, START + 99)}
    seen = []
    how = {"freq": freq, "opening": opening_frame(opening)}
    options = {"rows_per_task": 10, "client": pool, "partial": True}
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        sliced, whole, layout, more = works(["asset_id"])[work]
        found = sliced(archive, **how, **more, **options, progress=lambda *told: seen.append(told))
        assert_same(found, whole(archive.read(partial=True), **how, **more, **layout))
    assert len(seen) >= 3
    assert seen[-1] == (1.0, len(rows))


@given(cases(), partitions, sizes, gaps)
@settings(max_examples=8)
def test_a_summary_is_that_of_the_whole_table(pool, case, partition, size, unproven):
    table, how = case
    how = {name: value for name, value in how.items() if name not in {"freq", "tz"}}
    options = {"rows_per_task": size, "client": pool, "partial": True}
    with archive_of(table, partition, unproven) as archive:
        found = cluster.summarize_accounts(archive, **how, **options)
        assert_same(found, ba.summarize_accounts(archive.read(partial=True), **how))


@given(books(amounts=large, times=TIMES, most=15), groups, sizes, st.sampled_from([None, "2D"]))
@settings(max_examples=5)
def test_a_total_fails_only_where_that_of_the_whole_does(pool, book, by, size, freq):
    rows, opening = book
    how = {"by": by, "freq": freq, "opening": opening_frame(opening) if opening else None}
    with archive_of(table_of(rows)) as archive:
        table = archive.read()
        for sliced, whole in ((cluster.totals, ba.totals), (cluster.flows, ba.flows)):
            expected = outcome(lambda: whole(table, **how))  # noqa: B023 - called at once
            found = outcome(lambda: sliced(archive, **how, rows_per_task=size, client=pool))  # noqa: B023
            if isinstance(expected, str) or isinstance(found, str):
                assert found == expected
            else:
                assert_same(found, expected)


@given(cases(), sizes, st.lists(accounts, min_size=1, max_size=3))
@settings(max_examples=5)
def test_filters_choose_the_rows_before_anything_is_asked_of_them(pool, case, size, wanted):
    table, how = case
    scan = {
        "asset_id": f"id:{wanted[0][0]}",
        "account_types": sorted({account[1] for account in wanted}),
    }
    with archive_of(table) as archive:
        own = archive.read(**scan)
        found = cluster.flows(archive, **how, **scan, rows_per_task=size, client=pool)
    assert_same(found, ba.flows(own, **how))


@pytest.mark.parametrize("how", [{}, {"start": instant(START + 50)}, {"end": instant(START + 100)}])
@pytest.mark.parametrize("by", ["asset_id", ["party_id", "asset_id"], ba.ACCOUNT_KEY])
def test_totals_at_changes_count_what_is_known_in_other_slices_and_openings(pool, how, by):
    rows = [row for row in many_rows(300) if row[4] > START + 30]
    accounts = sorted({row[:4] for row in rows})
    firsts = {account: min(row[4] for row in rows if row[:4] == account) for account in accounts}
    opening = {
        **dict.fromkeys(accounts[::4], (7, None)),
        **{account: (10**37, firsts[account] - 1) for account in accounts[1::4]},
        **dict.fromkeys(accounts[2::4], (None, None)),
        ("VOTE", "T", "quiet", ""): (3, START + 60),
        ("VOTE", "T", "unknown", ""): (None, None),
    }
    how = {**how, "by": by, "opening": opening_frame(opening)}
    with archive_of(table_of(rows)) as archive:
        table = archive.read()
        found = cluster.totals(archive, rows_per_task=30, client=pool, **how)
    assert_same(found, ba.totals(table, **how))
