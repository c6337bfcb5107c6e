"""Rows against an independent list of flows."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    GENERAL,
    LARGEST,
    START,
    accounts,
    dtypes_of,
    instant,
    opened,
    outcome,
    recorded_table,
    records,
    signed,
    table_of,
    times,
    worlds,
)
from tests.columns import ATTRS_KEY, BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table

DTYPES = {
    **dict.fromkeys(ba.ACCOUNT_KEY, "category"),
    "timestamp": str(TIMESTAMP_DTYPE),
    **dict.fromkeys(("delta", "net", "difference"), str(BALANCE_DTYPE)),
    "reason": "category",
}
OUTSIDE = ("VOTE", EXTERNAL, "network", "")


def flow_frame(entries):
    """Return a list of (account, microseconds, net) as a frame of flows."""
    keys = pd.DataFrame([key for key, _, _ in entries], columns=ba.ACCOUNT_KEY, dtype="str")
    moments = pd.array([instant(time) for _, time, _ in entries], dtype=TIMESTAMP_DTYPE)
    nets = pd.array([net for _, _, net in entries], dtype=BALANCE_DTYPE)
    return keys.assign(timestamp=moments, net=nets)


def differences(table, entries):
    """Return the records of a comparison, and how much was not compared."""
    result = ba.reconcile(table, flow_frame(entries))
    assert list(dtypes_of(result, table).items()) == list(DTYPES.items())
    return records(result), result.attrs[ATTRS_KEY]["not_compared"]


entries = st.lists(
    st.tuples(
        accounts | st.just(OUTSIDE),
        times,
        st.integers(-3, 3).filter(bool) | st.integers(1, LARGEST // 100),
    ),
    max_size=12,
    unique_by=lambda entry: entry[:2],
)


@settings(max_examples=25)
@given(st.data(), worlds(signed), entries)
def test_rows_and_flows_are_compared_for_each_account_and_block(data, world, others):
    world.rows.append((*OUTSIDE, START + 2, 9))
    true = outcome(oracle.deltas, world)
    true = [(row[:4], row[4], row[6]) for row in true if row[6]] if isinstance(true, list) else []
    kept = data.draw(st.lists(st.sampled_from(true), unique=True)) if true else []
    # Flows that add up to nothing may count as one of 0 or as none.
    kept = [entry for entry in kept if entry[:2] not in {other[:2] for other in others}]
    halves = [(key, time, part) for key, time, net in kept for part in (net // 2, net - net // 2)]
    expected = outcome(oracle.differences, world, halves + others)
    assert outcome(differences, opened(world), halves + others) == expected


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


def test_a_falsified_row_of_the_recording_has_its_reason(recorded_rows, recorded_ledger):
    whole = ba.to_table(recorded_table(recorded_rows), nothing_before=True)
    assert differences(whole, recorded_ledger) == ([], 0)
    nets = {(key, time): net for key, time, net in recorded_ledger}
    rows = records(whole)
    last = {row[:4]: row for row in rows if row[1] != EXTERNAL}
    for key, row in list(last.items())[::24]:
        net = nets.get((key, row[4]))
        raised = table_of([(*other[:5], other[5] + (other == row)) for other in rows])
        reason = "other amount" if net else "no flow"
        expected = [(*row[:5], (net or 0) + 1, net, 1, reason)]
        assert differences(ba.to_table(raised, nothing_before=True), recorded_ledger)[0] == expected
        removed = ba.to_table(
            table_of([other for other in rows if other != row]), nothing_before=True
        )
        expected = [(*row[:5], None, net, -net, "no row")] if net else []
        assert differences(removed, recorded_ledger)[0] == expected
