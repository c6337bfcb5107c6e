from __future__ import annotations

from collections import defaultdict
from itertools import permutations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.errors import CheckError
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY, EXTERNAL
from tests.analysis import oracle
from tests.analysis.oracle import Fixed, Grid
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    amount,
    asked,
    books,
    calendar_cases,
    disorder,
    dtypes_of,
    edge_rows,
    expected_dtypes,
    fixed_grids,
    instant,
    instants,
    many_rows,
    opening_frame,
    outcome,
    recorded_table,
    records,
    rows,
    signed,
    split,
    table_of,
)

FLOW_COLUMNS = {
    "times": ["start", "end"],
    "amounts": ["inflow", "outflow", "net"],
    "counts": ["changes", "unknown"],
}

groupings = st.sets(st.sampled_from(ACCOUNT_KEY[1:])).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)


def delta_records(*args, **options):
    return records(ba.deltas(*args, **options))


def flow_records(*args, **options):
    return records(ba.flows(*args, **options))


@settings(max_examples=40)
@given(books(signed))
def test_a_delta_is_the_difference_to_the_balance_before(book):
    rows, opening = book
    found = outcome(lambda: delta_records(table_of(rows), opening=opening_frame(opening)))
    assert found == outcome(oracle.deltas, rows, opening)


@settings(max_examples=40)
@given(rows)
def test_deltas_add_up_to_last_minus_first(rows):
    found = ba.deltas(table_of(rows))
    for _, own in found.groupby(list(ACCOUNT_KEY), observed=True):
        total = sum(int(delta) for delta in own["delta"].iloc[1:])
        assert total == int(own["balance"].iloc[-1]) - int(own["balance"].iloc[0])
        assert pd.isna(own["delta"].iloc[0])


@settings(max_examples=15)
@given(books(), st.randoms(use_true_random=False))
def test_deltas_do_not_depend_on_the_order_of_rows_or_on_identical_duplicates(book, random):
    table, opening = table_of(book[0]), opening_frame(book[1])
    pd.testing.assert_frame_equal(
        ba.deltas(disorder(table, random), opening=opening.iloc[::-1]),
        ba.deltas(table, opening=opening),
    )


@settings(max_examples=40)
@given(rows, instants)
def test_the_balances_at_a_split_open_the_deltas_after_it(rows, when):
    table = table_of(rows)
    early, late = split(table, when)
    resumed = ba.deltas(late, opening=ba.balance_at(early, instant(when)))
    assert sorted(delta_records(early) + records(resumed)) == delta_records(table)


@settings(max_examples=40)
@given(rows)
def test_deltas_have_the_columns_of_the_table_and_one_more(rows):
    table = table_of(rows)
    found = ba.deltas(table)
    pd.testing.assert_frame_equal(found[list(table.columns)], table)
    assert dtypes_of(found) == expected_dtypes(
        ACCOUNT_KEY, times=["timestamp"], amounts=["balance", "delta"]
    )


def test_a_delta_of_38_odd_digits_stays_exact():
    table = table_of([(*GENERAL, START, 2), (*GENERAL, START + 1, LARGEST)])
    assert amount(ba.deltas(table)["delta"].iloc[1]) == LARGEST - 2


def test_a_delta_beyond_38_digits_raises_and_names_the_account():
    table = table_of([(*MARGIN, START, 1), (*GENERAL, START, -1), (*GENERAL, START + 1, LARGEST)])
    with pytest.raises(OverflowError, match=r"ACCOUNT_TYPE_GENERAL.* 38 digits"):
        ba.deltas(table)


def test_an_opening_as_old_as_the_first_row_says_nothing_about_what_was_before():
    found = ba.deltas(
        table_of([(*GENERAL, START, 5)]), opening=opening_frame({GENERAL: (5, START)})
    )
    assert found["delta"].isna().tolist() == [True]


def test_deltas_of_the_recording_are_the_ledger(recorded_rows, recorded_ledger):
    nets = defaultdict(int)
    for entry in recorded_ledger:
        account = (entry.asset_id, entry.account_type, entry.party_id, entry.market_id)
        nets[*account, entry.timestamp_ns // 1000] += entry.net
    none_yet = {row.account: (0, None) for row in recorded_rows}
    found = ba.deltas(recorded_table(recorded_rows), opening=opening_frame(none_yet))
    compared = {row[:5]: row[6] for row in records(found) if row[1] != EXTERNAL}
    assert {key: delta for key, delta in compared.items() if delta} == {
        key: net for key, net in nets.items() if net and key[1] != EXTERNAL
    }
    assert len(compared) > 100


@settings(max_examples=40)
@given(st.data(), books(signed), groupings)
def test_flows_add_the_deltas_of_each_period(data, book, by):
    rows, opening = book
    grid = data.draw(st.booleans().flatmap(lambda whole: _grids(rows, whole)))
    found = outcome(
        lambda: flow_records(table_of(rows), **asked(grid), by=by, opening=opening_frame(opening))
    )
    assert found == outcome(oracle.flows, rows, opening, grid, by)


def _grids(rows, whole):
    return fixed_grids(rows, freqs=st.none()) if whole else fixed_grids(rows)


@settings(max_examples=40)
@given(calendar_cases())
def test_flows_of_days_weeks_and_months_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    found = flow_records(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert found == oracle.flows(rows, opening, grid, ACCOUNT_KEY)


@settings(max_examples=40)
@given(books(), st.integers(1, 9))
def test_a_known_balance_and_the_net_make_the_next_one(book, length):
    rows, opening = book
    table, opening = table_of(rows), opening_frame(opening)
    for *key, start, end, _, _, net, _, unknown in flow_records(
        table, freq=f"{length}us", opening=opening
    ):
        before, after = (
            ba.balance_at(table, instant(when - 1), opening=opening) for when in (start, end)
        )
        own = (before[list(ACCOUNT_KEY)] == key).all(axis=1)
        left, right = amount(before["balance"][own].iloc[0]), amount(after["balance"][own].iloc[0])
        assert left is None or (left + net == right and unknown == 0)


@settings(max_examples=15)
@given(st.data(), books(), groupings, st.randoms(use_true_random=False))
def test_flows_do_not_depend_on_the_order_of_rows_or_on_identical_duplicates(
    data, book, by, random
):
    table, opening = table_of(book[0]), opening_frame(book[1])
    arguments = asked(data.draw(fixed_grids(book[0]))) | {"by": by}
    pd.testing.assert_frame_equal(
        ba.flows(disorder(table, random), **arguments, opening=opening.iloc[::-1]),
        ba.flows(table, **arguments, opening=opening),
    )


@settings(max_examples=15)
@given(rows, instants, st.integers(1, 9))
def test_the_balances_at_a_split_open_the_flows_after_it(rows, when, length):
    table = table_of(rows)
    early, late = split(table, when)
    arguments = asked(Grid(Fixed(length), when + 1, START + 20))
    resumed = ba.flows(late, **arguments, opening=ba.balance_at(early, instant(when)))
    pd.testing.assert_frame_equal(resumed, ba.flows(table, **arguments))


@settings(max_examples=15)
@given(st.data(), books())
def test_flows_of_parts_add_up_to_those_of_the_asset(data, book):
    rows, opening = book
    arguments = asked(data.draw(fixed_grids(rows))) | {"opening": opening_frame(opening)}
    sums = defaultdict(lambda: [0] * 5)
    for asset, _, _, _, *rest in flow_records(table_of(rows), **arguments):
        period, parts = tuple(rest[:2]), rest[2:]
        sums[asset, *period] = [a + b for a, b in zip(sums[asset, *period], parts, strict=True)]
    found = flow_records(table_of(rows), **arguments, by=["asset_id"])
    assert found == [(*key, *parts) for key, parts in sorted(sums.items())]


@pytest.mark.parametrize("by", [ACCOUNT_KEY, ("asset_id",), ("party_id", "asset_id")])
@given(rows=rows)
@settings(max_examples=10)
def test_flows_have_the_same_columns_and_dtypes_for_any_rows(by, rows):
    found = ba.flows(table_of(rows), freq="5us", by=by)
    assert dtypes_of(found) == expected_dtypes(by, **FLOW_COLUMNS)
    assert list(dtypes_of(found)) == [
        *by, "start", "end", "inflow", "outflow", "net", "changes", "unknown"
    ]  # fmt: skip


@pytest.mark.parametrize("freq", [None, "1D", "MS"])
def test_no_rows_have_no_flows(freq):
    found = ba.flows(empty_table(), freq=freq, tz="Europe/Berlin")
    assert found.empty
    assert dtypes_of(found) == expected_dtypes(ACCOUNT_KEY, zone="Europe/Berlin", **FLOW_COLUMNS)


def test_flows_are_of_days_unless_told():
    table = table_of(
        [(*GENERAL, START, 1), (*GENERAL, START + HOUR, 3), (*GENERAL, START + DAY, 2)]
    )
    midnight = START - START % DAY
    assert flow_records(table) == [
        (*GENERAL, midnight, midnight + DAY, 2, 0, 2, 1, 1),
        (*GENERAL, midnight + DAY, midnight + 2 * DAY, 0, 1, -1, 1, 0),
    ]


@pytest.mark.parametrize(("change", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_a_day_in_berlin_takes_the_flows_of_its_23_or_25_hours(change, hours):
    midnight = pd.Timestamp(change, tz="Europe/Berlin").value // 1000
    next_midnight = midnight + hours * HOUR
    table = table_of(
        [
            (*GENERAL, midnight - 1, 1),
            (*GENERAL, midnight, 3),
            (*GENERAL, next_midnight - 1, 8),
            (*GENERAL, next_midnight, 20),
        ]
    )
    found = flow_records(table, tz="Europe/Berlin")
    assert [row[4:7] for row in found] == [
        (midnight - DAY, midnight, 0),
        (midnight, next_midnight, 7),
        (next_midnight, next_midnight + DAY, 12),
    ]


def test_flows_of_38_odd_digits_are_exact():
    levels = [1, LARGEST // 2, 0, LARGEST // 2 + 1]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    inflow = LARGEST // 2 - 1 + LARGEST // 2 + 1
    assert flow_records(table, freq=None)[0][6:9] == (inflow, LARGEST // 2, LARGEST // 2)


def test_flows_of_many_rows_are_exact():
    rows = many_rows()
    grid = Grid(Fixed(301), START - 5)
    assert flow_records(table_of(rows), **asked(grid), by=["asset_id"]) == oracle.flows(
        rows, {}, grid, ["asset_id"]
    )
    assert delta_records(table_of(rows)) == oracle.deltas(rows, {})


def test_flows_between_the_edges_of_words_are_exact():
    rows = edge_rows()
    assert delta_records(table_of(rows)) == oracle.deltas(rows, {})
    for grid in (Grid(), Grid(Fixed(2), START), Grid(Fixed(3), START)):
        found = flow_records(table_of(rows), **asked(grid))
        assert found == oracle.flows(rows, {}, grid, ACCOUNT_KEY)


@pytest.mark.parametrize("level", [2**114 - 1, 1 - 2**114, 2**64 - 1, 2**32])
def test_thousands_of_large_flows_add_up_exactly(level):
    rows = [(*GENERAL, START + at, level * (at % 2)) for at in range(4001)]
    total = 2000 * abs(level)
    assert flow_records(table_of(rows), freq=None)[0][6:] == (total, total, 0, 4000, 1)


def test_a_flow_beyond_38_digits_raises_and_names_the_account():
    levels = [0, LARGEST, 0, LARGEST]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    with pytest.raises(OverflowError, match=r"flow of .*'a1'.* 38 digits"):
        ba.flows(table)


def test_a_flow_of_a_group_beyond_38_digits_raises_and_names_the_group():
    table = table_of(
        [(*account, START + at, at * LARGEST) for account in (GENERAL, MARGIN) for at in (0, 1)]
    )
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.flows(table, by=["asset_id"])


def test_balances_up_to_38_digits_have_no_flow_before_they_change():
    table = table_of([(*GENERAL, START, LARGEST), (*MARGIN, START, LARGEST)])
    assert flow_records(table, by=["asset_id"])[0][3:] == (0, 0, 0, 0, 2)


@pytest.mark.parametrize("by", [(), ("party_id",), ("account_type", "party_id", "market_id")])
def test_flows_of_different_assets_are_never_added(by):
    with pytest.raises(ValueError, match="asset_id"):
        ba.flows(empty_table(), by=by)


def test_flows_by_what_is_no_part_of_an_account_are_refused():
    with pytest.raises(ValueError, match="balance"):
        ba.flows(empty_table(), by=["asset_id", "balance"])


@pytest.mark.parametrize("by", list(permutations(["party_id", "asset_id", "market_id"])))
def test_groups_stand_in_the_order_asked_for(by):
    table = table_of([(*account, START, 1) for account in (OTHER, MARGIN, GENERAL)])
    found = [row[:3] for row in flow_records(table, by=by)]
    assert found == sorted(found)
    assert len(found) == 3


def test_a_period_without_rows_is_not_listed():
    table = table_of([(*GENERAL, START, 1), (*GENERAL, START + 5 * DAY, 1)])
    assert len(ba.flows(table)) == 2


def test_flows_of_a_start_not_before_the_end_are_refused():
    with pytest.raises(ValueError, match="start must be before end"):
        ba.flows(empty_table(), start="2023-04-02", end="2023-04-01")


@pytest.mark.parametrize("function", [ba.deltas, ba.flows])
def test_an_opening_that_contradicts_a_row_is_refused(function):
    table = table_of([(*GENERAL, START, 5)])
    with pytest.raises(CheckError, match=r"\b6\b"):
        function(table, opening=opening_frame({GENERAL: (6, START)}))


@pytest.mark.parametrize("function", [ba.deltas, ba.flows])
def test_an_opening_later_than_the_first_row_is_refused(function):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError):
        function(table, opening=opening_frame({GENERAL: (5, START + 2)}))


@pytest.mark.parametrize("function", [ba.deltas, ba.flows])
def test_rows_that_contradict_each_other_are_refused(function):
    table = pd.concat([table_of([(*GENERAL, START, 5)]), table_of([(*GENERAL, START, 6)])])
    with pytest.raises(CheckError, match="conflicting"):
        function(table)


def test_recorded_flows_of_each_ten_seconds_are_the_ledger(recorded_rows, recorded_ledger):
    table = recorded_table(recorded_rows)
    none_yet = {row.account: (0, None) for row in recorded_rows}
    start, length = 1_678_443_430_000_000, 10_000_000
    nets = defaultdict(lambda: [0, 0])
    for entry in recorded_ledger:
        period = (entry.timestamp_ns // 1000 - start) // length
        if entry.account_type != EXTERNAL:
            nets[entry.asset_id, entry.account_type, period][entry.net < 0] += abs(entry.net)
    found = ba.flows(
        table,
        freq="10s",
        by=["asset_id", "account_type"],
        start=instant(start),
        opening=opening_frame(none_yet),
    )
    assert {
        (asset, kind, (begin - start) // length): [inflow, outflow]
        for asset, kind, begin, _, inflow, outflow, *_ in records(found)
        if kind != EXTERNAL and (inflow or outflow)
    } == {key: both for key, both in nets.items() if any(both)}
