"""A table's known intervals, and the warnings about the rest."""

from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis.oracle import World
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    START,
    instant,
    opened,
    records,
    spans,
    table_of,
)
from tests.columns import known_of
from tests.scale.archives import write_archive

ROWS = [(*GENERAL, START + HOUR, 5), (*GENERAL, START + DAY, 7), (*MARGIN, START + DAY, 1)]
KNOWN = ((START, START + 10 * DAY),)


@pytest.fixture
def table():
    return opened(World(ROWS, {}, KNOWN))


def day(number):
    return instant(START + number * DAY)


@pytest.mark.parametrize(
    ("days", "warnings"), [([-1], 1), ([11], 1), ([11, 12], 1), ([10], 0), ([0, 5], 0), ([0], 0)]
)
def test_a_moment_outside_the_known_intervals_is_named_once(table, days, warnings, caplog):
    held = ba.balance_at(table, [day(number) for number in days])
    assert held["balance"].isna().all() or not warnings
    assert caplog.text.count("no balance is known at") == warnings


def test_holders_are_by_default_those_just_before_the_end_of_the_known_intervals(table, caplog):
    holders = ba.holders(table)
    assert holders.equals(ba.holders(table, day(10) - pd.Timedelta("1us")))
    assert holders["balance"].tolist() == [7, 1]
    assert ba.holders(table, n=1)["balance"].tolist() == [7]
    assert "no balance is known at" not in caplog.text
    assert ba.holders(table, day(11))["unknown"].tolist() == [1, 1]
    assert "no balance is known at" in caplog.text


def test_a_candle_opens_with_the_sum_of_holders_where_a_known_interval_ends():
    """One of the party's accounts has a row at that moment, the other holds what it held."""
    table = opened(World([*ROWS, (*GENERAL, START + 10 * DAY, 9)], {}, KNOWN))
    bounds = {"start": day(10), "end": day(11), "by": "party_id"}
    (candle,) = records(ba.ohlc(table, "1D", **bounds)[["open", "high", "low", "close"]])
    assert candle == (10, 10, 10, None)
    assert ba.holders(table, day(10), by="party_id")["balance"].tolist() == [10]
    assert ba.totals(table, freq="1D", **bounds)["total"].tolist() == [10]
    assert ba.balance_series(table, freq="1D", **bounds).iloc[0].tolist() == [10]


@pytest.mark.parametrize(
    "known",
    [["2023-04-01"], [("2023-04-01",) * 3], [("2023-04-02", "2023-04-01")], [("soon", "later")]],
)
def test_malformed_known_intervals_are_refused(known):
    with pytest.raises(ValueError, match=r"known|start|ISO"):
        ba.to_table(table_of(ROWS), known=known)


def test_mostly_unknown_averages_warn_once_with_the_reason_and_the_cure(caplog):
    table = ba.read_parquet(demo.sample_data() / "changes.parquet")
    assert ba.time_weighted_average(table, freq="MS")["average"].isna().all()
    (record,) = caplog.records
    assert "unknown averages: 686 of 686" in record.getMessage()
    assert "partial=True averages the known part" in record.getMessage()
    averages = ba.time_weighted_average(table, freq="MS", partial=True)
    assert averages["average"].notna().all()
    assert averages["known_share"].between(0, 1, inclusive="right").all()
    assert len(caplog.records) == 1


BAD = START + 3 * DAY


@pytest.mark.parametrize("account", [GENERAL, None])
def test_an_archive_explains_a_bad_row_as_its_table_does(tmp_path, account):
    rows = [*ROWS, (*GENERAL, START + 6 * DAY, 9), (*MARGIN, START + 9 * DAY, 3)]
    archive = write_archive(tmp_path, table_of(rows), "month", bad=[((BAD, BAD + 1), account)])
    table, end = archive.read(partial=True), START + (6 if account else 9) * DAY
    for moment in (BAD - 1, BAD, BAD + 1, START + 6 * DAY, START + 9 * DAY):
        balances = ba.balance_at(archive, instant(moment))
        assert records(balances) == records(ba.balance_at(table, instant(moment)))
        assert balances["balance"].isna().any() == (BAD <= moment < end)
        for *key, balance, _ in records(balances):
            assert archive.explain(tuple(key), at=instant(moment)).balance == balance


def test_an_average_of_the_known_part_may_be_of_one_microsecond():
    table = opened(World(ROWS[1:], {}, ((START + DAY, START + DAY + 1),)))
    assert ba.time_weighted_average(table, freq=None, partial=True)["average"].tolist() == [7, 1]


def test_a_bad_row_at_the_end_of_a_period_leaves_its_changes_known():
    table = opened(World(ROWS, {}, KNOWN, bad=(((BAD, BAD + 1), GENERAL),)))
    changes = ba.flows(table, value="changes", layout="wide", start=day(0), end=day(5))
    assert changes.iloc[:, 0].isna().tolist() == [False, False, False, True, False]


def test_a_change_over_a_gap_within_a_period_is_counted_as_unknown():
    known = ((START, START + 2 * HOUR), (START + DAY, START + 2 * DAY))
    flows = ba.flows(opened(World(ROWS[:2], {}, known, nothing_before=True)), freq=None)
    assert flows["unknown"].tolist() == [1]


def test_time_before_all_known_intervals_is_unknown_even_if_nothing_was_held_before():
    rows, known = [ROWS[0], (*GENERAL, START + 3 * DAY, 9)], ((START + 2 * DAY, START + 4 * DAY),)
    table = opened(World(rows, {}, known, nothing_before=True))
    assert ba.balance_at(table, [day(1), day(2.5)])["balance"].isna().all()
    assert ba.deltas(table)["delta"].isna().tolist() == [False, True]
    assert ba.balance_at(table.iloc[1:], day(1))["balance"].isna().all()


@pytest.mark.parametrize("function", [ba.deltas, ba.drawdown])
def test_changes_of_a_table_with_openings_know_the_balances_from_their_rows_on(function):
    known = ((START, START + 9 * DAY),)
    again = function(opened(World(ROWS, {GENERAL: (4, START - 1)}, known, begin=START)))
    held = ba.balance_at(again, [day(0), day(2)])["balance"]
    assert [None if x is pd.NA else x for x in held] == [None, 7, None, 1]


def test_periods_begin_with_the_first_row_though_a_table_without_openings_starts_earlier():
    table = opened(World(ROWS[1:], {}, KNOWN, begin=START - DAY))
    assert ba.flows(table, layout="wide").index[0] == day(1).replace(hour=0, minute=0, second=0)


@given(st.lists(spans, max_size=8), spans)
def test_stated_intervals_are_joined_and_a_cut_keeps_those_up_to_its_end(some, cut):
    def moments(known):
        return {moment for start, end in known for moment in range(start, end)}

    table = opened(World([(*GENERAL, START, 5)], {}, some))
    known = known_of(table)
    assert moments(known) == moments(some)
    assert all(before[1] < after[0] for before, after in pairwise(known))
    assert known_of(ba.to_table(table.sample(frac=1, random_state=1))) == known
    assert known_of(ba.to_table(table, start=instant(cut[0]))) == known
    part = known_of(table.balances.between(*map(instant, cut)))
    assert moments(part) == {moment for moment in moments(some) if moment < cut[1]}
