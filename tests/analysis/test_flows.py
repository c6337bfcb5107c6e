from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings

import balance_analysis as ba
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    START,
    instant,
    instants,
    recorded_table,
    records,
    rows,
    split,
    table_of,
)
from tests.columns import EXTERNAL


def delta_records(*args, **options):
    return records(ba.deltas(*args, **options))


def flow_records(*args, **options):
    return records(ba.flows(*args, **options))


@settings(max_examples=12)
@given(rows, instants)
def test_openings_at_a_split_open_the_deltas_after_it(rows, when):
    table = table_of(rows)
    early, _ = split(table, when)
    resumed = ba.deltas(table.balances.between(instant(when + 1), instant(START + 20)))
    assert sorted(delta_records(early) + records(resumed)) == delta_records(table)


def test_deltas_of_a_selection_stand_at_the_selections_rows(recorded_rows):
    table = recorded_table(recorded_rows)
    chosen = table[table["party_id"] != "network"].iloc[3:]
    assert [*chosen.index] != [*range(len(chosen))]
    found = ba.deltas(chosen)
    assert found.index.equals(chosen.index)
    assert found["balance"].equals(chosen["balance"])
    assert [*ba.deltas(chosen[::-1]).index] == [*range(len(chosen))]


def test_a_delta_beyond_38_digits_raises_and_names_the_account():
    table = table_of([(*MARGIN, START, 1), (*GENERAL, START, -1), (*GENERAL, START + 1, LARGEST)])
    with pytest.raises(OverflowError, match=r"ACCOUNT_TYPE_GENERAL.* 38 digits"):
        ba.deltas(table)


def test_deltas_of_the_recording_are_the_ledger(recorded_rows, recorded_ledger):
    nets = defaultdict(int)
    for entry in recorded_ledger:
        account = (entry.asset_id, entry.account_type, entry.party_id, entry.market_id)
        nets[*account, entry.timestamp_ns // 1000] += entry.net
    found = ba.deltas(ba.to_table(recorded_table(recorded_rows), nothing_before=True))
    compared = {row[:5]: row[6] for row in records(found) if row[1] != EXTERNAL}
    assert {key: delta for key, delta in compared.items() if delta} == {
        key: net for key, net in nets.items() if net and key[1] != EXTERNAL
    }
    assert len(compared) > 100


def test_flows_are_of_days_unless_told():
    table = table_of(
        [(*GENERAL, START, 1), (*GENERAL, START + HOUR, 3), (*GENERAL, START + DAY, 2)]
    )
    midnight = START - START % DAY
    assert flow_records(table) == [
        (*GENERAL, midnight, midnight + DAY, 2, 0, 2, 1, 1, 1),
        (*GENERAL, midnight + DAY, midnight + 2 * DAY, 0, 1, -1, 1, 1, 0),
    ]


@pytest.mark.parametrize("level", [2**114 - 1, 1 - 2**114, 2**64 - 1, 2**32])
def test_thousands_of_large_flows_add_up_exactly(level):
    rows = [(*GENERAL, START + at, level * (at % 2)) for at in range(4001)]
    total = 2000 * abs(level)
    assert flow_records(table_of(rows), freq=None)[0][6:] == (total, total, 0, 4000, 1, 1)


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


def test_recorded_flows_of_each_ten_seconds_are_the_ledger(recorded_rows, recorded_ledger):
    table = ba.to_table(recorded_table(recorded_rows), nothing_before=True)
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
    )
    assert {
        (asset, kind, (begin - start) // length): [inflow, outflow]
        for asset, kind, begin, _, inflow, outflow, *_ in records(found)
        if kind != EXTERNAL and (inflow or outflow)
    } == {key: both for key, both in nets.items() if any(both)}


def test_wide_flows_of_one_level_are_columns_by_their_id_and_zero_on_quiet_days():
    rows = [(*GENERAL, START, 1), (*GENERAL, START + 3 * DAY, 4)]
    table = ba.to_table(table_of(rows), nothing_before=True)
    how = {"by": "asset_id", "layout": "wide"}
    assert ba.flows(table, **how)["VOTE"].tolist() == [1, 0, 0, 3]
    whole = ba.flows(table, value="inflow", units={"VOTE": 1}, **how)
    assert whole["VOTE"].tolist() == [0.1, 0, 0, 0.3]
    counted = ba.flows(table, value="changes", units={"VOTE": 1}, **how)
    assert counted["VOTE"].tolist() == [1, 0, 0, 1]
    assert ba.flows(table_of([]), layout="wide").shape == (0, 0)


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        *(
            *(("ME", "MS"), ("2ME", "2MS"), ("QE", "QS"), ("QE-NOV", "QS-DEC")),
            *(("W", "W-SUN"), ("w", "W"), ("1w", "W"), ("w-mon", "W-MON")),
            (pd.offsets.Week(weekday=6), "W"),
        ),
        *(("YE", "YS"), ("YE-MAR", "YS-APR"), (pd.offsets.MonthEnd(), "MS")),
    ],
)
def test_what_pandas_labels_by_its_end_is_the_period_that_ends_there(named, meant):
    table = table_of([(*GENERAL, START + day * DAY, day) for day in range(0, 900, 11)])
    for function in (ba.flows, ba.time_weighted_average, ba.balance_series, ba.totals):
        pd.testing.assert_frame_equal(function(table, freq=named), function(table, freq=meant))


@pytest.mark.parametrize(
    ("freq", "said"), [("1M", "'MS' for a month"), ("BME", "BMS does"), ("SME", "SMS does")]
)
def test_ends_of_periods_that_nothing_begins_at_are_refused_with_the_right_name(freq, said):
    with pytest.raises(ValueError, match=said):
        ba.flows(table_of([]), freq=freq)


@pytest.mark.parametrize("options", [{"layout": "tall"}, {"layout": "wide", "value": "balance"}])
def test_a_layout_or_value_of_flows_that_there_is_not_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        ba.flows(table_of([]), **options)
