from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.errors import CheckError
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY, EXTERNAL
from tests.analysis import oracle
from tests.analysis.oracle import Account, Fixed, Grid, half_even
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    START,
    asked,
    books,
    by_account,
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

SPAN = ["start", "end"]
AVERAGE_DTYPES = expected_dtypes(ACCOUNT_KEY, times=SPAN, amounts=["average"])
CANDLE = ["open", "high", "low", "close"]
CANDLE_DTYPES = expected_dtypes(ACCOUNT_KEY, times=SPAN, amounts=CANDLE)
DRAWDOWN_DTYPES = {
    **expected_dtypes(ACCOUNT_KEY, times=["timestamp"], amounts=["balance", "peak"]),
    **expected_dtypes((), times=["peak_at"], amounts=["depth"]),
}


def average_of(rows, start, end, **options):
    found = ba.time_weighted_average(table_of(rows), instant(start), instant(end), **options)
    return [row[6] for row in records(found)]


@settings(max_examples=40)
@given(st.data(), books(signed), st.booleans())
def test_an_average_weighs_each_balance_by_how_long_it_was_held(data, book, whole):
    rows, opening = book
    grid = data.draw(fixed_grids(rows, freqs=st.none() if whole else None))
    found = ba.time_weighted_average(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert records(found) == oracle.averages(rows, opening, grid)


@settings(max_examples=15)
@given(calendar_cases())
def test_averages_of_days_weeks_and_months_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    found = ba.time_weighted_average(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert records(found) == oracle.averages(rows, opening, grid)


@settings(max_examples=15)
@given(st.data(), books(signed))
def test_an_average_lies_between_the_lowest_and_the_highest(data, book):
    rows, opening = book
    arguments = asked(data.draw(fixed_grids(rows))) | {"opening": opening_frame(opening)}
    averages = records(ba.time_weighted_average(table_of(rows), **arguments))
    candles = records(ba.ohlc(table_of(rows), **arguments))
    assert [row[:6] for row in averages] == [row[:6] for row in candles]
    for (*_, average), (*_, high, low, _) in zip(averages, candles, strict=True):
        assert average is None or low <= average <= high


@settings(max_examples=15)
@given(rows.filter(bool), st.integers(1, 9), st.integers(1, 4))
def test_the_average_of_a_whole_is_that_of_its_parts_but_for_rounding(rows, length, count):
    start, end = START + 13, START + 13 + length * count
    whole = average_of(rows, start, end)
    parts = average_of(rows, start, end, freq=f"{length}us")
    for position, average in enumerate(whole):
        own = parts[position * count : (position + 1) * count]
        assert abs(Fraction(sum(own), count) - average) <= 1


@pytest.mark.parametrize(
    ("levels", "average"),
    [
        ((1, 2), 2),
        ((2, 3), 2),
        ((3, 4), 4),
        ((-1, -2), -2),
        ((-2, -3), -2),
        ((0, -1), 0),
        ((0, 1), 0),
        ((0, 0, 1), 0),
        ((0, 1, 1), 1),
        ((-1, 0, 0), 0),
        ((-1, -1, 0), -1),
        ((LARGEST - 1, LARGEST), LARGEST - 1),
        ((LARGEST, LARGEST - 2, LARGEST - 2), LARGEST - 1),
        ((-LARGEST, LARGEST), 0),
        ((LARGEST,) * 7, LARGEST),
        ((-LARGEST,) * 7, -LARGEST),
    ],
)
def test_a_half_is_rounded_to_the_even_neighbour(levels, average):
    rows = [(*GENERAL, START + at, level) for at, level in enumerate(levels)]
    assert average_of(rows, START, START + len(levels)) == [average]
    assert half_even(Fraction(sum(levels), len(levels))) == average


def test_an_average_of_38_odd_digits_over_a_century_is_exact():
    start, end = (pd.Timestamp(year, tz="UTC").value // 1000 for year in ("2015", "2099"))
    rows = [(*GENERAL, start, LARGEST), (*GENERAL, end - 1, LARGEST - 7)]
    exact = Account(((start, LARGEST), (end - 1, LARGEST - 7))).average(start, end)
    assert average_of(rows, start, end) == [half_even(exact)] == [LARGEST]


def test_an_average_of_which_any_part_is_unknown_is_unknown():
    rows = [(*GENERAL, START + 1, 5)]
    assert average_of(rows, START, START + 10) == [None]
    assert average_of(rows, START + 1, START + 10) == [5]


def test_an_opening_within_the_period_leaves_a_part_unknown():
    opening = opening_frame({GENERAL: (5, START + 1)})
    assert average_of([], START, START + 10, opening=opening) == [None]
    assert average_of([], START + 1, START + 10, opening=opening) == [5]


def test_a_row_at_the_end_of_a_period_has_no_weight_in_it():
    rows = [(*GENERAL, START, 4), (*GENERAL, START + 2, 1000)]
    assert average_of(rows, START, START + 2) == [4]


@pytest.mark.parametrize(("day", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_a_day_in_berlin_weighs_its_23_or_25_hours(day, hours):
    midnight = pd.Timestamp(day, tz="Europe/Berlin").value // 1000
    rows = [(*GENERAL, midnight, 0), (*GENERAL, midnight + HOUR, hours * 1000)]
    found = ba.time_weighted_average(table_of(rows), freq="1D", tz="Europe/Berlin")
    assert records(found) == [(*GENERAL, midnight, midnight + hours * HOUR, (hours - 1) * 1000)]


def test_without_bounds_the_interval_reaches_from_the_first_row_to_just_after_the_last():
    rows = [(*GENERAL, START, 6), (*GENERAL, START + 2, 9)]
    found = records(ba.time_weighted_average(table_of(rows)))
    assert found == [(*GENERAL, START, START + 3, 7)]


@settings(max_examples=15)
@given(rows, instants, st.integers(1, 9))
def test_the_balances_at_a_split_open_the_averages_and_candles_after_it(rows, when, length):
    table = table_of(rows)
    early, late = split(table, when)
    arguments = asked(Grid(Fixed(length), when, START + 20))
    opening = ba.balance_at(early, instant(when))
    for function in (ba.time_weighted_average, ba.ohlc):
        resumed = function(late, **arguments, opening=opening)
        pd.testing.assert_frame_equal(resumed, function(table, **arguments))


@settings(max_examples=40)
@given(st.data(), books(signed))
def test_a_candle_has_the_first_the_extreme_and_the_last_balances_of_its_period(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = ba.ohlc(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert records(found) == oracle.ohlc(rows, opening, grid)


@settings(max_examples=15)
@given(calendar_cases())
def test_candles_of_days_weeks_and_months_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    found = ba.ohlc(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert records(found) == oracle.ohlc(rows, opening, grid)


def test_a_candle_of_38_odd_digits_is_exact():
    levels = [LARGEST - 4, LARGEST, LARGEST - 6, LARGEST - 2]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    found = ba.ohlc(table, "4us", start=instant(START))
    assert records(found) == [
        (*GENERAL, START, START + 4, LARGEST - 4, LARGEST, LARGEST - 6, LARGEST - 2)
    ]


def test_a_candle_that_begins_unknown_has_no_open_but_the_rest():
    table = table_of([(*GENERAL, START + 1, 5), (*GENERAL, START + 2, 3)])
    found = ba.ohlc(table, "4us", start=instant(START), end=instant(START + 4))
    assert records(found)[0][6:] == (None, 5, 3, 3)


def test_a_quiet_candle_stays_where_it_was():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START + 9, 3)])
    found = records(ba.ohlc(table, "4us", start=instant(START)))
    assert [row[6:] for row in found if row[:4] == GENERAL] == [(5, 5, 5, 5)] * 3


@settings(max_examples=40)
@given(books(signed))
def test_a_drawdown_is_the_fall_from_the_highest_balance_so_far(book):
    rows, opening = book
    found = outcome(lambda: records(ba.drawdown(table_of(rows), opening=opening_frame(opening))))
    assert found == outcome(oracle.drawdowns, rows, opening)


@settings(max_examples=40)
@given(rows)
def test_a_peak_is_the_highest_balance_up_to_each_row(rows):
    found = {row[:5]: row[5:] for row in records(ba.drawdown(table_of(rows)))}
    for account, changes in by_account(rows).items():
        for position, (time, balance) in enumerate(changes):
            peak = max(level for _, level in changes[: position + 1])
            reached = next(at for at, level in changes if level == peak)
            assert found[(*account, time)] == (balance, peak, reached, peak - balance)


def test_a_peak_that_is_reached_again_keeps_its_first_time():
    levels = [5, 3, 5, 4]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    assert [row[7] for row in records(ba.drawdown(table))] == [START] * 4


@pytest.mark.parametrize("since", [None, START - 5])
def test_an_opening_is_a_peak_and_has_the_time_that_it_knows(since):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 9)])
    found = records(ba.drawdown(table, opening=opening_frame({GENERAL: (7, since)})))
    assert [row[6:] for row in found] == [(7, since, 2), (9, START + 1, 0)]


def test_an_opening_as_high_as_the_first_row_was_there_first():
    table = table_of([(*GENERAL, START, 5)])
    found = records(ba.drawdown(table, opening=opening_frame({GENERAL: (5, None)})))
    assert found[0][6:] == (5, None, 0)


def test_a_drawdown_of_38_odd_digits_is_exact():
    table = table_of([(*GENERAL, START, LARGEST), (*GENERAL, START + 1, 2)])
    assert records(ba.drawdown(table))[1][6:] == (LARGEST, START, LARGEST - 2)


def test_drawdowns_and_candles_and_averages_of_many_rows_are_exact():
    rows = many_rows()
    table, grid = table_of(rows), Grid(Fixed(301), START - 5)
    assert records(ba.drawdown(table)) == oracle.drawdowns(rows, {})
    assert records(ba.ohlc(table, **asked(grid))) == oracle.ohlc(rows, {}, grid)
    averages = ba.time_weighted_average(table, **asked(grid))
    assert records(averages) == oracle.averages(rows, {}, grid)


def test_extremes_and_averages_at_the_edges_of_words_are_exact():
    rows = edge_rows()
    table = table_of(rows)
    assert records(ba.drawdown(table)) == oracle.drawdowns(rows, {})
    for grid in (Grid(Fixed(2), START), Grid(Fixed(3), START)):
        assert records(ba.ohlc(table, **asked(grid))) == oracle.ohlc(rows, {}, grid)
        averages = ba.time_weighted_average(table, **asked(grid))
        assert records(averages) == oracle.averages(rows, {}, grid)


@pytest.mark.parametrize("other", [0, 5, 2**63, -1, -(2**64) - 7])
@pytest.mark.parametrize("high", [2**64, -(2**64), 2**64 - 1, 2**65 - 1, -1])
def test_an_extreme_whose_lower_word_is_empty_or_full_is_found(high, other):
    for levels in ((high, other), (other, high)):
        rows = [(*GENERAL, START + at, level) for at, level in enumerate(levels)]
        found = records(ba.ohlc(table_of(rows), "2us", start=instant(START)))
        assert found[0][7:9] == (max(levels), min(levels))


def test_a_drawdown_beyond_38_digits_raises_and_names_the_account():
    table = table_of([(*GENERAL, START, LARGEST), (*GENERAL, START + 1, -1)])
    with pytest.raises(OverflowError, match=r"'a1'.* 38 digits"):
        ba.drawdown(table)


@settings(max_examples=15)
@given(st.data(), books(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(data, book, random):
    table, opening = table_of(book[0]), opening_frame(book[1])
    mixed = disorder(table, random)
    arguments = asked(data.draw(fixed_grids(book[0])))
    for function, options in (
        (ba.time_weighted_average, arguments),
        (ba.ohlc, arguments),
        (ba.drawdown, {}),
    ):
        pd.testing.assert_frame_equal(
            function(mixed, **options, opening=opening.iloc[::-1]),
            function(table, **options, opening=opening),
        )


@settings(max_examples=10)
@given(rows)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows):
    table = table_of(rows)
    assert list(dtypes_of(ba.time_weighted_average(table)).items()) == list(AVERAGE_DTYPES.items())
    assert list(dtypes_of(ba.ohlc(table, "5us")).items()) == list(CANDLE_DTYPES.items())
    assert list(dtypes_of(ba.drawdown(table)).items()) == list(DRAWDOWN_DTYPES.items())


def test_no_rows_give_no_rows_with_all_dtypes():
    table = empty_table()
    for found, dtypes in (
        (ba.time_weighted_average(table), AVERAGE_DTYPES),
        (ba.time_weighted_average(table, freq="1D"), AVERAGE_DTYPES),
        (ba.ohlc(table, "1D"), CANDLE_DTYPES),
        (ba.drawdown(table), DRAWDOWN_DTYPES),
    ):
        assert found.empty
        assert dtypes_of(found) == dtypes


def test_periods_are_in_the_zone_asked_for():
    table = table_of([(*GENERAL, START, 5)])
    for found in (
        ba.time_weighted_average(table, freq="1D", tz="Europe/Berlin"),
        ba.ohlc(table, "1D", tz="Europe/Berlin"),
    ):
        assert str(found["start"].dtype) == "datetime64[us, Europe/Berlin]"
        assert str(found["start"].iloc[0]) == "2023-03-28 00:00:00+02:00"
        assert str(found["end"].iloc[0]) == "2023-03-29 00:00:00+02:00"


def test_a_start_that_is_not_before_the_end_is_refused():
    with pytest.raises(ValueError, match="start must be before end"):
        ba.time_weighted_average(empty_table(), "2023-04-02", "2023-04-02")
    with pytest.raises(ValueError, match="start must be before end"):
        ba.ohlc(empty_table(), "1D", start="2023-04-02", end="2023-04-02")


@pytest.mark.parametrize(
    "function",
    [ba.time_weighted_average, lambda table, **rest: ba.ohlc(table, "1D", **rest), ba.drawdown],
)
def test_what_contradicts_itself_is_refused(function):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError, match="conflicting"):
        function(pd.concat([table, table_of([(*GENERAL, START, 6)])]))
    with pytest.raises(CheckError):
        function(table, opening=opening_frame({GENERAL: (5, START + 2)}))


def test_recorded_averages_are_those_of_the_ledger(recorded_rows, recorded_ledger):
    start, end, length = 1_678_443_430_000_000, 1_678_444_080_000_000, 50_000_000
    entries = defaultdict(list)
    for entry in recorded_ledger:
        account = (entry.asset_id, entry.account_type, entry.party_id, entry.market_id)
        entries[account].append((entry.timestamp_ns // 1000, entry.net))
    expected = {}
    for account in {row.account for row in recorded_rows}:
        for begin in range(start, end, length):
            stop = min(begin + length, end)
            held = sum(
                net * (stop - max(time, begin)) for time, net in entries[account] if time < stop
            )
            expected[*account, begin, stop] = half_even(Fraction(held, stop - begin))
    none_yet = {row.account: (0, None) for row in recorded_rows}
    found = ba.time_weighted_average(
        recorded_table(recorded_rows),
        instant(start),
        instant(end),
        freq="50s",
        opening=opening_frame(none_yet),
    )
    averages = {row[:6]: row[6] for row in records(found)}
    assert {key: average for key, average in averages.items() if key[1] != EXTERNAL} == {
        key: average for key, average in expected.items() if key[1] != EXTERNAL
    }
    assert len(averages) == len({row.account for row in recorded_rows}) * 13


def test_a_period_of_a_day_ends_at_the_first_midnight_after_the_last_row():
    midnight = START - START % DAY
    found = ba.ohlc(table_of([(*GENERAL, midnight, 5)]), "1D")
    assert records(found) == [(*GENERAL, midnight, midnight + DAY, 5, 5, 5, 5)]
