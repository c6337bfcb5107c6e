from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pandas as pd
import pytest

import balance_analysis as ba
from tests.analysis.oracle import Account, half_even
from tests.analysis.tables import (
    BEGIN,
    GENERAL,
    LARGEST,
    START,
    expected_dtypes,
    instant,
    opened,
    recorded_table,
    records,
    table_of,
)
from tests.columns import EXTERNAL

DRAWDOWN_DTYPES = {
    **expected_dtypes(ba.ACCOUNT_KEY, times=["timestamp"], amounts=["balance", "peak"]),
    **expected_dtypes((), times=["peak_at"], amounts=["depth"]),
}


def average_of(rows, start, end, **options):
    found = ba.time_weighted_average(table_of(rows), instant(start), instant(end), **options)
    return [row[6] for row in records(found)]


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


def test_without_bounds_the_interval_reaches_from_the_first_row_to_just_after_the_last():
    rows = [(*GENERAL, START, 6), (*GENERAL, START + 2, 9)]
    found = records(ba.time_weighted_average(table_of(rows)))
    assert found == [(*GENERAL, START, START + 3, 7)]


def test_a_peak_that_is_reached_again_keeps_its_first_time():
    levels = [5, 3, 5, 4]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    assert [row[7] for row in records(ba.drawdown(table))] == [START] * 4


def test_an_opening_is_a_peak_and_has_its_own_time():
    rows = [(*GENERAL, START, 5), (*GENERAL, START + 1, 9)]
    found = records(ba.drawdown(opened(rows, {GENERAL: (7, BEGIN - 5)})))
    assert [row[6:] for row in found] == [(7, BEGIN - 5, 2), (9, START + 1, 0)]


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
    table = ba.to_table(recorded_table(recorded_rows), nothing_before=True)
    found = ba.time_weighted_average(table, instant(start), instant(end), freq="50s")
    averages = {row[:6]: row[6] for row in records(found)}
    assert {key: average for key, average in averages.items() if key[1] != EXTERNAL} == {
        key: average for key, average in expected.items() if key[1] != EXTERNAL
    }
    assert len(averages) == len({row.account for row in recorded_rows}) * 13
