from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    GENERAL,
    LARGEST,
    OTHER,
    START,
    accounts,
    books,
    dtypes_of,
    expected_dtypes,
    instant,
    opened,
    recorded_table,
    records,
    rows,
    table_of,
    times,
)
from tests.columns import BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table

DIFFERENCE_DTYPES = expected_dtypes(
    ba.ACCOUNT_KEY, times=["timestamp"], amounts=["delta", "net", "difference"]
)
OUTSIDE = ("VOTE", EXTERNAL, "network", "")


def flow_frame(entries):
    """Return a list of (account, microseconds, net) as a frame of flows."""
    keys = pd.DataFrame([key for key, _, _ in entries], columns=ba.ACCOUNT_KEY, dtype="str")
    moments = pd.array([instant(time) for _, time, _ in entries], dtype=TIMESTAMP_DTYPE)
    nets = pd.array([net for _, _, net in entries], dtype=BALANCE_DTYPE)
    return keys.assign(timestamp=moments, net=nets)


def difference_records(table, entries, **options):
    """Return the records of a comparison, with 0 where a side has nothing."""
    found = records(ba.reconcile(table, flow_frame(entries), **options))
    return [(*row[:5], row[5] or 0, row[6] or 0, *row[7:]) for row in found]


def ledger_entries(recorded_ledger):
    return [
        (
            (entry.asset_id, entry.account_type, entry.party_id, entry.market_id),
            entry.timestamp_ns // 1000,
            entry.net,
        )
        for entry in recorded_ledger
    ]


@settings(max_examples=10)
@given(rows)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows):
    found = dtypes_of(ba.reconcile(table_of(rows), flow_frame([(OTHER, START + 99, 1)])))
    assert found.pop("reason")
    assert list(found.items()) == list(DIFFERENCE_DTYPES.items())


entries = st.lists(
    st.tuples(accounts, times, st.integers(-3, 3).filter(bool) | st.integers(1, LARGEST // 100)),
    max_size=12,
)


@settings(max_examples=12)
@given(st.data(), books(), entries)
def test_rows_and_flows_are_compared_for_each_account_and_block(data, book, others):
    rows, opening = book
    true = [(row[:4], row[4], row[6]) for row in oracle.deltas(rows, opening) if row[6]]
    kept = data.draw(st.lists(st.sampled_from(true), unique=True)) if true else []
    found = difference_records(opened(rows, opening), kept + others)
    sums = defaultdict(int)
    for key, time, net in kept + others:
        sums[key, time] += net
    expected = oracle.differences(rows, opening, kept + others)
    assert [row[:8] for row in found] == [row[:8] for row in expected]
    # Whether flows that add up to 0 are one of 0 or none is not said.
    assert [row[8] for row in found if sums[row[:4], row[4]]] == [
        row[8] for row in expected if sums[row[:4], row[4]]
    ]


@pytest.mark.parametrize(
    ("levels", "nets", "expected"),
    [
        ((5, 9), (3,), (4, 3, 1, "other amount")),
        ((5, 5), (3,), (0, 3, -3, "other amount")),
        ((5, 9), (), (4, 0, 4, "no flow")),
        ((5,), (3,), (0, 3, -3, "no row")),
        ((LARGEST - 1, LARGEST), (2,), (1, 2, -1, "other amount")),
        ((0, LARGEST), (LARGEST - 1,), (LARGEST, LARGEST - 1, 1, "other amount")),
    ],
)
def test_a_difference_has_its_reason(levels, nets, expected):
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    found = difference_records(table, [(GENERAL, START + 1, net) for net in nets])
    assert found == [(*GENERAL, START + 1, *expected)]


def test_what_is_outside_is_not_compared():
    table = table_of([(*OUTSIDE, START, 0), (*OUTSIDE, START + 1, 3)])
    assert difference_records(table, [(OUTSIDE, START + 1, -3), (OUTSIDE, START + 2, 1)]) == []


@pytest.mark.parametrize("dtype", ["int64", "object", str(BALANCE_DTYPE)])
def test_flows_may_be_integers_of_any_kind(dtype):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 9)])
    flow = flow_frame([(GENERAL, START + 1, 4)])
    nets = pd.Series([4], dtype=BALANCE_DTYPE if "decimal" in dtype else dtype)
    assert ba.reconcile(table, flow.assign(net=nets)).empty


def test_flows_of_floats_are_refused():
    flow = flow_frame([(GENERAL, START, 4)]).astype({"net": "float64"})
    with pytest.raises(TypeError, match="float"):
        ba.reconcile(empty_table(), flow)


def test_the_recording_agrees_with_its_ledger(recorded_rows, recorded_ledger):
    table, entries = recorded_table(recorded_rows), ledger_entries(recorded_ledger)
    assert difference_records(table, entries) == []
    assert difference_records(ba.to_table(table, nothing_before=True), entries) == []


def test_a_falsified_row_of_the_recording_is_found_with_its_reason(recorded_rows, recorded_ledger):
    entries = ledger_entries(recorded_ledger)
    rows = [(*row.account, row.timestamp_ns // 1000, row.balance) for row in recorded_rows]
    nets = {(key, time): net for key, time, net in entries}
    last = {row[:4]: row for row in rows if row[1] != EXTERNAL}
    for key, row in list(last.items())[::12]:
        raised = [(*other[:5], other[5] + (other == row)) for other in rows]
        found = difference_records(ba.to_table(table_of(raised), nothing_before=True), entries)
        net = nets.get((key, row[4]), 0)
        reason = "other amount" if net else "no flow"
        assert found == [(*row[:5], net + 1, net, 1, reason)]
        removed = [other for other in rows if other != row]
        found = difference_records(ba.to_table(table_of(removed), nothing_before=True), entries)
        assert found == ([(*row[:5], 0, net, -net, "no row")] if net else [])
