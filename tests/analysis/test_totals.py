from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.errors import CheckError
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY
from tests.analysis import oracle
from tests.analysis.oracle import Fixed, Grid
from tests.analysis.tables import (
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
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
    records,
    rows,
    signed,
    split,
    table_of,
)

COLUMNS = {"times": ["timestamp"], "amounts": ["total"], "counts": ["known", "unknown"]}

groupings = st.sets(st.sampled_from(ACCOUNT_KEY[1:])).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)


def total_records(*args, **options):
    return records(ba.totals(*args, **options))


@settings(max_examples=40)
@given(st.data(), books(signed), groupings)
def test_a_total_is_the_sum_of_what_is_known_at_each_point(data, book, by):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = outcome(
        lambda: total_records(table_of(rows), **asked(grid), by=by, opening=opening_frame(opening))
    )
    assert found == outcome(oracle.totals, rows, opening, grid, by)


@settings(max_examples=15)
@given(calendar_cases(), groupings)
def test_totals_of_days_weeks_and_months_follow_the_clock_on_the_wall(case, by):
    rows, opening, grid = case
    found = total_records(table_of(rows), **asked(grid), by=by)
    assert found == oracle.totals(rows, opening, grid, by)


@settings(max_examples=40)
@given(st.data(), books(signed), groupings)
def test_without_a_frequency_a_group_has_its_own_changes_and_the_start(data, book, by):
    rows, opening = book
    grid = data.draw(fixed_grids(rows, freqs=st.none()))
    found = outcome(
        lambda: total_records(table_of(rows), **asked(grid), by=by, opening=opening_frame(opening))
    )
    assert found == outcome(oracle.totals, rows, opening, grid, by)


@settings(max_examples=40)
@given(st.data(), books(), groupings)
def test_totals_over_parts_add_up_to_the_total(data, book, by):
    rows, opening = book
    arguments = asked(data.draw(fixed_grids(rows))) | {"opening": opening_frame(opening)}
    sums = defaultdict(lambda: (0, 0, 0))
    for *group, point, total, known, unknown in total_records(table_of(rows), **arguments, by=by):
        part = (total or 0, known, unknown)
        key = (group[by.index("asset_id")], point)
        sums[key] = tuple(a + b for a, b in zip(sums[key], part, strict=True))
    found = total_records(table_of(rows), **arguments, by=["asset_id"])
    assert [(*row[:2], row[2] or 0, *row[3:]) for row in found] == [
        (*key, *parts) for key, parts in sorted(sums.items())
    ]


@settings(max_examples=40)
@given(st.data(), books())
def test_the_total_by_account_is_its_series(data, book):
    rows, opening = book
    arguments = asked(data.draw(fixed_grids(rows))) | {"opening": opening_frame(opening)}
    series = ba.balance_series(table_of(rows), **arguments, layout="long")
    found = total_records(table_of(rows), **arguments, by=ACCOUNT_KEY)
    assert [row[:6] for row in found] == [row[:6] for row in records(series)]


@settings(max_examples=15)
@given(st.data(), books(), groupings, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(
    data, book, by, on_grid, random
):
    table, opening = table_of(book[0]), opening_frame(book[1])
    arguments = asked(data.draw(fixed_grids(book[0]))) | {"by": by}
    arguments |= {} if on_grid else {"freq": None}
    pd.testing.assert_frame_equal(
        ba.totals(disorder(table, random), **arguments, opening=opening.iloc[::-1]),
        ba.totals(table, **arguments, opening=opening),
    )


@settings(max_examples=15)
@given(rows, instants, st.integers(1, 9))
def test_the_balances_at_a_split_open_the_totals_after_it(rows, when, length):
    table = table_of(rows)
    early, late = split(table, when)
    arguments = asked(Grid(Fixed(length), when, START + 20))
    opening = ba.balance_at(early, instant(when))
    resumed = ba.totals(late, **arguments, opening=opening)
    pd.testing.assert_frame_equal(resumed, ba.totals(table, **arguments))


@pytest.mark.parametrize("freq", [None, "1us"])
def test_a_total_of_38_odd_digits_is_exact(freq):
    table = table_of([(*GENERAL, START, LARGEST - 4), (*MARGIN, START, 3)])
    assert total_records(table, by=["asset_id"], freq=freq)[0][2:] == (LARGEST - 1, 2, 0)


@pytest.mark.parametrize("freq", [None, Fixed(101)])
def test_totals_of_many_rows_are_exact(freq):
    rows = many_rows()
    grid = Grid(freq, START + 400, START + 2500)
    found = total_records(table_of(rows), **asked(grid), by=["asset_id"])
    assert found == oracle.totals(rows, {}, grid, ["asset_id"])


def test_totals_at_the_edges_of_words_are_exact():
    rows = edge_rows()
    rows += [(*MARGIN, time, level) for *_, time, level in [*rows[1:], rows[0]]]
    for grid in (Grid(), Grid(Fixed(3), START)):
        found = total_records(table_of(rows), **asked(grid), by=["asset_id"])
        assert found == oracle.totals(rows, {}, grid, ["asset_id"])


@pytest.mark.parametrize("level", [2**114 - 1, 1 - 2**114, 2**64 + 1, 2**64 - 1, 2**32])
def test_thousands_of_large_balances_add_up_exactly(level):
    rows = [("VOTE", "T", f"p{place}", "", START, level) for place in range(4000)]
    assert total_records(table_of(rows)) == [("VOTE", "T", START, 4000 * level, 4000, 0)]


@pytest.mark.parametrize("freq", [None, "1us"])
def test_a_total_beyond_38_digits_raises_and_names_the_group(freq):
    table = table_of([(*OTHER, START, 1), (*GENERAL, START, LARGEST), (*MARGIN, START, 1)])
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.totals(table, by=["asset_id"], freq=freq)


@pytest.mark.parametrize("freq", [None, "1us"])
def test_a_total_fits_where_its_first_parts_alone_would_not(freq):
    third = ("VOTE", "ACCOUNT_TYPE_MARGIN", "b2", "m1")
    table = table_of(
        [(*GENERAL, START, LARGEST), (*MARGIN, START, LARGEST), (*third, START, -LARGEST)]
    )
    assert total_records(table, by=["asset_id"], freq=freq) == [("VOTE", START, LARGEST, 3, 0)]


def test_totals_are_by_asset_and_type_unless_told():
    table = table_of([(*account, START, 1) for account in (GENERAL, MARGIN, OTHER)])
    assert [row[:2] for row in total_records(table)] == [GENERAL[:2], MARGIN[:2], OTHER[:2]]


def test_a_total_says_how_many_accounts_are_unknown():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START + 1, 7)])
    assert total_records(table, by=["asset_id"]) == [
        ("VOTE", START, 5, 1, 1),
        ("VOTE", START + 1, 12, 2, 0),
    ]


def test_a_total_of_which_nothing_is_known_is_na_and_not_0():
    table = table_of([(*GENERAL, START, 0)])
    found = total_records(table, by=["asset_id"], start=instant(START - 1))
    assert found == [("VOTE", START - 1, None, 0, 1), ("VOTE", START, 0, 1, 0)]


@pytest.mark.parametrize(("day", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_the_midnights_of_berlin_are_23_or_25_hours_apart_when_the_clock_changes(day, hours):
    midnight = pd.Timestamp(day, tz="Europe/Berlin").value // 1000
    next_midnight = midnight + hours * HOUR
    rows = [(*GENERAL, midnight + 1, 1), (*GENERAL, next_midnight, 2)]
    found = ba.totals(table_of(rows), freq="1D", tz="Europe/Berlin")
    assert [row[2:4] for row in records(found)] == [(midnight, None), (next_midnight, 2)]
    assert str(found["timestamp"].dtype) == "datetime64[us, Europe/Berlin]"


@pytest.mark.parametrize("by", [(), ("account_type",), ("party_id", "market_id")])
def test_different_assets_are_never_added(by):
    with pytest.raises(ValueError, match="asset_id"):
        ba.totals(empty_table(), by=by)


def test_totals_by_what_is_no_part_of_an_account_are_refused():
    with pytest.raises(ValueError, match="timestamp"):
        ba.totals(empty_table(), by=["asset_id", "timestamp"])


@settings(max_examples=10)
@given(rows, groupings, st.sampled_from([None, "5us"]))
def test_columns_and_dtypes_are_the_same_for_any_rows(rows, by, freq):
    found = ba.totals(table_of(rows), by=by, freq=freq)
    assert list(dtypes_of(found).items()) == list(expected_dtypes(by, **COLUMNS).items())


@pytest.mark.parametrize("freq", [None, "1D"])
def test_no_rows_have_no_totals(freq):
    assert total_records(empty_table(), freq=freq) == []


def test_a_start_that_is_not_before_the_end_is_refused():
    with pytest.raises(ValueError, match="start must be before end"):
        ba.totals(empty_table(), start="2023-04-02", end="2023-04-02")


def test_what_contradicts_itself_is_refused():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError, match="conflicting"):
        ba.totals(pd.concat([table, table_of([(*GENERAL, START, 6)])]))
    with pytest.raises(CheckError):
        ba.totals(table, opening=opening_frame({GENERAL: (5, START + 2)}))
