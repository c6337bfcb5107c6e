from __future__ import annotations

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
    DAY,
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
    expected_dtypes,
    fixed_grids,
    instant,
    instants,
    opening_frame,
    records,
    rows,
    split,
    table_of,
)

COLUMNS = {"times": ["start", "end"], "nullable": ["touched", "active"]}

groupings = st.sets(st.sampled_from(ACCOUNT_KEY)).flatmap(
    lambda names: st.permutations(sorted(names))
)


def active_records(*args, **options):
    return records(ba.active_accounts(*args, **options))


@settings(max_examples=40)
@given(st.data(), books(), groupings.filter(bool))
def test_each_group_has_its_touched_and_active_accounts_of_each_period(data, book, by):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = active_records(table_of(rows), **asked(grid), by=by, opening=opening_frame(opening))
    assert found == oracle.active_accounts(rows, opening, grid, by)


@settings(max_examples=40)
@given(st.data(), books().filter(lambda book: book[0]))
def test_all_accounts_together_are_one_group(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = active_records(table_of(rows), **asked(grid), by=(), opening=opening_frame(opening))
    assert found == oracle.active_accounts(rows, opening, grid, ())


@settings(max_examples=15)
@given(calendar_cases())
def test_days_weeks_and_months_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    found = active_records(table_of(rows), **asked(grid))
    assert found == oracle.active_accounts(rows, opening, grid, ["asset_id"])


@settings(max_examples=15)
@given(st.data(), books(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(data, book, random):
    table, opening = table_of(book[0]), opening_frame(book[1])
    arguments = asked(data.draw(fixed_grids(book[0])))
    pd.testing.assert_frame_equal(
        ba.active_accounts(disorder(table, random), **arguments, opening=opening.iloc[::-1]),
        ba.active_accounts(table, **arguments, opening=opening),
    )


@settings(max_examples=15)
@given(rows, instants, st.integers(1, 9))
def test_the_balances_at_a_split_open_the_activity_after_it(rows, when, length):
    table = table_of(rows)
    early, late = split(table, when)
    arguments = asked(Grid(Fixed(length), when + 1, START + 20))
    resumed = ba.active_accounts(late, **arguments, opening=ba.balance_at(early, instant(when)))
    pd.testing.assert_frame_equal(resumed, ba.active_accounts(table, **arguments))


@settings(max_examples=15)
@given(rows, st.integers(1, 9))
def test_by_account_activity_is_that_of_its_flows(rows, length):
    table, freq = table_of(rows), f"{length}us"
    flows = {row[:6]: row[9] > 0 for row in records(ba.flows(table, freq=freq))}
    found = {row[:6]: row[6:] for row in active_records(table, freq, by=ACCOUNT_KEY)}
    assert flows == {key: active == 1 for key, (touched, active) in found.items() if touched}


def test_an_account_that_was_only_touched_is_not_active():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 5)])
    assert active_records(table, "1us")[1][3:] == (1, 0)


def test_the_first_row_of_an_account_is_no_known_change():
    table = table_of([(*GENERAL, START, 5)])
    assert active_records(table, "1us") == [("VOTE", START, START + 1, 1, 0)]
    opened = active_records(table, "1us", opening=opening_frame({GENERAL: (4, None)}))
    assert opened == [("VOTE", START, START + 1, 1, 1)]


def test_an_account_counts_once_in_a_period():
    table = table_of([(*GENERAL, START + at, at) for at in range(4)])
    assert active_records(table, "9us", start=instant(START))[0][3:] == (1, 1)


def test_a_change_and_its_return_make_an_account_active():
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate((5, 9, 5))])
    assert active_records(table, "9us", start=instant(START))[0][3:] == (1, 1)


def test_a_change_of_the_38th_digit_is_a_change():
    table = table_of([(*GENERAL, START, LARGEST - 1), (*GENERAL, START + 1, LARGEST)])
    assert active_records(table, "9us", start=instant(START))[0][3:] == (1, 1)


def test_a_group_at_rest_has_0():
    table = table_of([(*GENERAL, START, 5), (*OTHER, START + 1, 5)])
    assert active_records(table, "1us") == [
        ("VOTE", START, START + 1, 1, 0),
        ("VOTE", START + 1, START + 2, 0, 0),
        ("ea43", START, START + 1, 0, 0),
        ("ea43", START + 1, START + 2, 1, 0),
    ]


@pytest.mark.parametrize(("day", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_a_day_in_berlin_has_23_or_25_hours_when_the_clock_changes(day, hours):
    midnight = pd.Timestamp(day, tz="Europe/Berlin").value // 1000
    table = table_of([(*GENERAL, midnight, 5), (*MARGIN, midnight + hours * HOUR - 1, 5)])
    found = ba.active_accounts(table, "1D", tz="Europe/Berlin")
    assert records(found) == [("VOTE", midnight, midnight + hours * HOUR, 2, 0)]
    assert str(found["end"].dtype) == "datetime64[us, Europe/Berlin]"


@settings(max_examples=10)
@given(rows, groupings)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows, by):
    found = ba.active_accounts(table_of(rows), "5us", by=by)
    assert list(dtypes_of(found).items()) == list(expected_dtypes(by, **COLUMNS).items())


@pytest.mark.parametrize("by", [(), ("party_id",)])
def test_no_rows_have_no_activity(by):
    found = ba.active_accounts(empty_table(), "1D", by=by)
    assert found.empty
    assert dtypes_of(found) == expected_dtypes(by, **COLUMNS)


def test_activity_by_what_is_no_part_of_an_account_is_refused():
    with pytest.raises(ValueError, match="balance"):
        ba.active_accounts(empty_table(), "1D", by=["balance"])


def test_days_without_rows_are_listed():
    table = table_of([(*GENERAL, START, 1), (*GENERAL, START + 5 * DAY, 2)])
    assert [row[3:] for row in active_records(table, "1D")] == [(1, 0), *[(0, 0)] * 4, (1, 1)]


def test_a_start_that_is_not_before_the_end_is_refused():
    with pytest.raises(ValueError, match="start must be before end"):
        ba.active_accounts(empty_table(), "1D", start="2023-04-02", end="2023-04-02")


def test_what_contradicts_itself_is_refused():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError, match="conflicting"):
        ba.active_accounts(pd.concat([table, table_of([(*GENERAL, START, 6)])]), "1D")
    with pytest.raises(CheckError):
        ba.active_accounts(table, "1D", opening=opening_frame({GENERAL: (5, START + 2)}))
