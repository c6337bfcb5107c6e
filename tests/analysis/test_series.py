from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.errors import CheckError
from balance_analysis.frame import BALANCE_DTYPE, empty_table
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
    by_account,
    calendar_cases,
    disorder,
    dtypes_of,
    expected_dtypes,
    fixed_grids,
    instant,
    instants,
    many_rows,
    moment,
    opening_frame,
    records,
    rows,
    signed,
    split,
    table_of,
)

LONG_DTYPES = expected_dtypes(ACCOUNT_KEY, times=["timestamp"], amounts=["balance"]) | {
    "state": "category"
}


def cells(wide):
    """Return a wide series as {(account, time): balance}."""
    assert wide.index.name == "timestamp"
    assert list(wide.columns.names) == list(ACCOUNT_KEY)
    return {
        (*account, moment(time)): None if pd.isna(value) else int(value)
        for account, column in wide.items()
        for time, value in column.items()
    }


@settings(max_examples=40)
@given(st.data(), books(signed))
def test_each_account_stands_at_each_point_with_its_state(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = ba.balance_series(
        table_of(rows), **asked(grid), opening=opening_frame(opening), layout="long"
    )
    assert records(found) == oracle.series(rows, opening, grid)


@settings(max_examples=40)
@given(calendar_cases())
def test_days_weeks_and_months_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    found = ba.balance_series(
        table_of(rows), **asked(grid), opening=opening_frame(opening), layout="long"
    )
    assert records(found) == oracle.series(rows, opening, grid)


@settings(max_examples=15)
@given(st.data(), books())
def test_wide_has_the_balances_of_long(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    wide = ba.balance_series(table_of(rows), **asked(grid), opening=opening_frame(opening))
    expected = {row[:5]: row[5] for row in oracle.series(rows, opening, grid)}
    assert cells(wide) == expected
    assert list(wide.columns) == list(oracle.book(rows, opening))
    assert [moment(time) for time in wide.index] == grid.points(rows)


bounds = st.tuples(st.none() | instants, st.none() | instants).map(
    lambda ends: ends if None in ends or ends[0] < ends[1] else (ends[1], ends[0] + 1)
)


@settings(max_examples=40)
@given(books(signed), bounds)
def test_without_a_frequency_long_has_the_rows_and_the_start(book, ends):
    rows, opening = book
    grid = Grid(None, *ends)
    found = ba.balance_series(
        table_of(rows), **asked(grid), opening=opening_frame(opening), layout="long"
    )
    assert records(found) == oracle.sparse_series(rows, opening, grid)


@settings(max_examples=15)
@given(books(), bounds)
def test_without_a_frequency_wide_has_every_change_of_any_account(book, ends):
    rows, opening = book
    grid = Grid(None, *ends)
    wide = ba.balance_series(table_of(rows), **asked(grid), opening=opening_frame(opening))
    points = grid.own(row[4] for row in rows)
    assert [moment(time) for time in wide.index] == points
    assert cells(wide) == {
        (*key, point): account.level(point)
        for key, account in oracle.book(rows, opening).items()
        for point in points
    }


@settings(max_examples=40)
@given(rows)
def test_a_series_at_the_time_of_a_row_is_that_row(rows):
    found = cells(ba.balance_series(table_of(rows)))
    for account, changes in by_account(rows).items():
        for time, balance in changes:
            assert found[(*account, time)] == balance


@settings(max_examples=40)
@given(rows)
def test_on_a_grid_of_microseconds_what_was_observed_are_the_rows(rows):
    found = records(ba.balance_series(table_of(rows), freq="1us", layout="long"))
    assert [row[:6] for row in found if row[6] == "observed"] == sorted(rows)


@settings(max_examples=15)
@given(st.data(), books(), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(data, book, random, on_grid):
    rows, opening = book
    table, opening = table_of(rows), opening_frame(opening)
    arguments = asked(data.draw(fixed_grids(rows)))
    arguments |= {} if on_grid else {"freq": None}
    pd.testing.assert_frame_equal(
        ba.balance_series(disorder(table, random), **arguments, opening=opening.iloc[::-1]),
        ba.balance_series(table, **arguments, opening=opening),
    )


@settings(max_examples=15)
@given(rows, instants, st.integers(1, 9), st.booleans())
def test_the_balances_at_a_split_open_the_series_after_it(rows, when, length, on_grid):
    table = table_of(rows)
    early, late = split(table, when)
    freq = Fixed(length) if on_grid else None
    arguments = asked(Grid(freq, when, START + 20))
    opening = ba.balance_at(early, instant(when))
    for layout in ("long", "wide"):
        resumed = ba.balance_series(late, **arguments, opening=opening, layout=layout)
        whole = ba.balance_series(table, **arguments, layout=layout)
        columns = [name for name in whole if name != "state"]
        pd.testing.assert_frame_equal(resumed[columns], whole[columns])


@settings(max_examples=40)
@given(rows, st.sampled_from([None, "5us"]))
def test_columns_and_dtypes_are_the_same_for_any_rows(rows, freq):
    found = ba.balance_series(table_of(rows), freq=freq, layout="long")
    assert dtypes_of(found) == LONG_DTYPES
    assert list(found["state"].cat.categories) == ["observed", "carried", "opening", "unknown"]


def test_an_opening_alone_makes_no_grid():
    opening = opening_frame({GENERAL: (5, None)})
    for layout in ("long", "wide"):
        assert len(ba.balance_series(empty_table(), freq="1D", opening=opening, layout=layout)) == 0


@pytest.mark.parametrize("freq", [None, "1D"])
def test_no_rows_give_no_points(freq):
    found = ba.balance_series(empty_table(), freq=freq, layout="long")
    assert found.empty
    assert dtypes_of(found) == LONG_DTYPES


@pytest.mark.parametrize("freq", [None, "1D"])
def test_no_rows_give_a_wide_series_with_names_and_without_cells(freq):
    wide = ba.balance_series(empty_table(), freq=freq)
    assert wide.shape == (0, 0)
    assert cells(wide) == {}
    assert str(wide.index.dtype) == "datetime64[us, UTC]"


def test_cells_of_a_wide_series_are_decimals():
    wide = ba.balance_series(table_of([(*GENERAL, START, 1), (*OTHER, START + 1, 2)]))
    assert set(wide.dtypes) == {BALANCE_DTYPE}


@pytest.mark.parametrize("freq", [None, "1us", "1h"])
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_balances_of_38_odd_digits_stay_exact(freq, layout):
    table = table_of([(*GENERAL, START, LARGEST - 10), (*GENERAL, START + 1, LARGEST)])
    found = ba.balance_series(
        table, freq=freq, start=instant(START), end=instant(START + 2), layout=layout
    )
    values = (found["balance"] if layout == "long" else found.stack(list(ACCOUNT_KEY))).tolist()
    expected = [LARGEST - 10, LARGEST] if freq != "1h" else [LARGEST - 10]
    assert [int(value) for value in values] == expected


@pytest.mark.parametrize(
    ("day", "hours"), [("2023-03-25", [24, 23, 24]), ("2023-10-28", [24, 25, 24])]
)
def test_days_in_berlin_have_23_or_25_hours_when_the_clock_changes(day, hours):
    zone = ZoneInfo("Europe/Berlin")
    first = pd.Timestamp(day, tz=zone)
    table = table_of([(*GENERAL, first.value // 1000, 5)])
    found = ba.balance_series(
        table, freq="1D", end=first + pd.DateOffset(days=4), tz=zone, layout="long"
    )
    assert (
        np.diff(found["timestamp"].to_numpy(dtype="M8[us]")) / np.timedelta64(1, "h")
    ).tolist() == hours
    assert {point.strftime("%H:%M") for point in found["timestamp"]} == {"00:00"}
    assert str(found["timestamp"].dtype) == "datetime64[us, Europe/Berlin]"


def test_a_day_that_skips_midnight_begins_at_one():
    table = table_of([(*GENERAL, pd.Timestamp("2018-11-03T20:00Z").value // 1000, 5)])
    found = ba.balance_series(
        table, freq="1D", end="2018-11-06", tz="America/Sao_Paulo", layout="long"
    )
    assert [str(point) for point in found["timestamp"]] == [
        "2018-11-03 00:00:00-03:00",
        "2018-11-04 01:00:00-02:00",
        "2018-11-05 00:00:00-02:00",
    ]


def test_a_day_that_shows_midnight_twice_begins_at_the_first():
    first = pd.Timestamp("2023-11-05T04:00Z").value // 1000
    for time in (first, first + HOUR - 1, first + HOUR, first + 2 * HOUR):
        found = ba.ohlc(table_of([(*GENERAL, time, 5)]), "1D", tz="America/Havana")
        assert records(found)[0][4:6] == (first, first + 25 * HOUR)


def test_hours_begin_as_the_clock_on_the_wall_shows_them():
    table = table_of([(*GENERAL, START, 5)])
    found = ba.balance_series(table, freq="1h", tz="Asia/Kolkata")
    assert [str(point)[11:] for point in found.index] == ["16:00:00+05:30", "17:00:00+05:30"]


@pytest.mark.parametrize(("minute", "offset"), [("00:10", "+02:00"), ("01:10", "+01:00")])
def test_an_hour_that_the_clock_shows_twice_is_two(minute, offset):
    table = table_of([(*GENERAL, pd.Timestamp(f"2023-10-29T{minute}Z").value // 1000, 5)])
    found = ba.balance_series(table, freq="1h", tz="Europe/Berlin")
    assert str(found.index[0]) == f"2023-10-29 02:00:00{offset}"
    assert found.index[1] - found.index[0] == pd.Timedelta("1h")


def test_a_series_of_many_rows_is_exact():
    rows = many_rows()
    grid = Grid(Fixed(101), START - 5)
    found = ba.balance_series(table_of(rows), **asked(grid), layout="long")
    assert records(found) == oracle.series(rows, {}, grid)


def test_moments_without_a_zone_are_in_the_zone_of_the_grid():
    table = table_of([(*GENERAL, START, 5)])
    found = ba.balance_series(
        table, freq="6h", start="2023-03-28", end="2023-03-29", tz="Asia/Tokyo"
    )
    assert [str(point) for point in found.index] == [
        f"2023-03-28 {hour}:00:00+09:00" for hour in ("00", "06", "12", "18")
    ]


def test_the_end_is_not_a_point():
    table = table_of([(*GENERAL, START, 5)])
    found = ba.balance_series(table, freq="1h", start=instant(START), end=instant(START + 2 * HOUR))
    assert [moment(point) for point in found.index] == [START, START + HOUR]


def test_without_an_end_the_last_point_is_the_first_that_shows_the_last_row():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + HOUR + 1, 6)])
    found = ba.balance_series(table, freq="1h", start=instant(START))
    assert [moment(point) for point in found.index] == [START, START + HOUR, START + 2 * HOUR]


def test_days_count_from_the_start_and_months_stand_on_their_first():
    table = table_of([(*GENERAL, START, 5)])
    days = ba.balance_series(table, freq="1D", start="2023-03-30T12:00Z", end="2023-04-02")
    months = ba.balance_series(table, freq="MS", start="2023-03-30T12:00Z", end="2023-06-01")
    assert [str(point)[:13] for point in days.index] == [
        "2023-03-30 12", "2023-03-31 12", "2023-04-01 12"
    ]  # fmt: skip
    assert [str(point)[:13] for point in months.index] == [
        "2023-03-30 12", "2023-04-01 00", "2023-05-01 00"
    ]  # fmt: skip


def test_the_grid_begins_at_the_midnight_before_the_first_row():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START + DAY, 6)])
    found = ba.balance_series(table, freq="1D")
    assert [str(point) for point in found.index] == [
        f"2023-03-{day} 00:00:00+00:00" for day in (28, 29, 30)
    ]


def test_an_unknown_balance_is_na_and_never_0():
    table = table_of([(*GENERAL, START, 0), (*MARGIN, START + 1, 0)])
    found = records(ba.balance_series(table, freq="1us", layout="long"))
    assert [row[4:] for row in found if row[:4] == MARGIN] == [
        (START, None, "unknown"),
        (START + 1, 0, "observed"),
    ]


@pytest.mark.parametrize("freq", ["0h", "-1h", "1ns", "1500ns", "no such frequency"])
def test_a_frequency_that_makes_no_grid_is_refused(freq):
    with pytest.raises(ValueError, match="freq"):
        ba.balance_series(table_of([(*GENERAL, START, 5)]), freq=freq)


@pytest.mark.parametrize("freq", [None, "1D"])
def test_a_start_that_is_not_before_the_end_is_refused(freq):
    with pytest.raises(ValueError, match="start must be before end"):
        ba.balance_series(empty_table(), freq=freq, start="2023-04-02", end="2023-04-02")


def test_a_grid_too_large_to_hold_is_refused_before_it_is_made():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START + 365 * DAY, 6)])
    with pytest.raises(ValueError, match=r"freq"):
        ba.balance_series(table, freq="1us")


@pytest.mark.parametrize(
    "function",
    [
        ba.balance_series,
        ba.time_weighted_average,
        ba.ohlc,
        ba.totals,
        ba.share,
        ba.concentration,
        ba.active_accounts,
    ],
)
def test_more_cells_than_fit_into_memory_are_refused_before_they_are_made(function):
    keys = [(f"a{place}", "T", "p", "") for place in range(5000)]
    table = table_of([(*key, START, 5) for key in keys] + [(*keys[0], START + 10_000_000, 5)])
    with pytest.raises(ValueError, match=r"need some 1,600 GB, but this machine has .*freq"):
        function(table, freq="1us")


def test_a_layout_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="layout"):
        ba.balance_series(empty_table(), layout="tall")


def test_a_zone_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="Mars"):
        ba.balance_series(empty_table(), freq="1D", tz="Mars/Olympus")


def test_an_opening_later_than_the_first_row_is_refused():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError):
        ba.balance_series(table, opening=opening_frame({GENERAL: (5, START + 2)}))


@pytest.mark.parametrize(
    "opening", [{GENERAL: (6, START + 8)}, {GENERAL: (5, START + 1)}, {OTHER: (6, START + 9)}]
)
def test_an_opening_later_than_the_last_row_is_refused(opening):
    table = table_of([(*GENERAL, START, 5), (*OTHER, START + 8, 6)])
    with pytest.raises(CheckError):
        ba.balance_series(table, opening=opening_frame(opening))


@pytest.mark.parametrize("column", [*ACCOUNT_KEY, "timestamp", "balance"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_that_lacks_a_value_is_refused(row, column):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])
    table.loc[row, column] = pd.NA if column != "timestamp" else pd.NaT
    with pytest.raises(ValueError, match=column):
        ba.balance_series(table)


@pytest.mark.parametrize("since", [START, START + 5])
def test_an_opening_that_contradicts_a_row_is_refused(since):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 5)])
    with pytest.raises(CheckError):
        ba.balance_series(table, opening=opening_frame({GENERAL: (6, since)}))


def test_an_opening_that_repeats_a_row_changes_nothing():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    pd.testing.assert_frame_equal(
        ba.balance_series(table, freq="1us", opening=opening_frame({GENERAL: (6, START + 5)})),
        ba.balance_series(table, freq="1us"),
    )


def test_rows_that_contradict_each_other_are_refused():
    table = pd.concat([table_of([(*GENERAL, START, 5)]), table_of([(*GENERAL, START, 6)])])
    with pytest.raises(CheckError, match="conflicting"):
        ba.balance_series(table)
