"""Rows against an independent list of flows."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    BEGIN,
    DAY,
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    accounts,
    dtypes_of,
    instant,
    outcome,
    recorded_table,
    records,
    signed,
    table_of,
    tables,
    times,
)
from tests.columns import (
    ATTRS_KEY,
    BALANCE_DTYPE,
    EXTERNAL,
    TIMESTAMP_DTYPE,
    empty_table,
    note_evidence,
)

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
        times | st.integers(BEGIN - 9, BEGIN),
        st.integers(-3, 3).filter(bool) | st.integers(1, LARGEST // 100),
    ),
    max_size=12,
    unique_by=lambda entry: entry[:2],
)


@settings(max_examples=25)
@given(st.data(), tables(signed, [(*OUTSIDE, START + 2, 9)]), entries)
def test_rows_and_flows_are_compared_where_all_rows_of_an_account_are_known(data, shown, others):
    table, world = shown
    true = outcome(oracle.deltas, world)
    true = [(row[:4], row[4], row[6]) for row in true if row[6]] if isinstance(true, list) else []
    kept = data.draw(st.lists(st.sampled_from(true), unique=True)) if true else []
    # Flows that add up to nothing may count as one of 0 or as none.
    kept = [entry for entry in kept if entry[:2] not in {other[:2] for other in others}]
    halves = [(key, time, part) for key, time, net in kept for part in (net // 2, net - net // 2)]
    expected = outcome(oracle.differences, world, halves + others)
    assert outcome(differences, table, halves + others) == expected


def with_bad_row(table):
    """Return a table of which a row of MARGIN was set aside."""
    bad = {"span": (START + 5, START + 6), "account": MARGIN}
    answer = {"span": (START - HOUR, START + DAY), "node": {"name": "node"}, "asked": (0, 0)}
    note_evidence(table, [answer["span"]], {"answers": [answer], "set_aside": [bad]})
    return table


LACKING = {
    "from before the start": (lambda x: x.balances.between(instant(START + 9)), GENERAL, START),
    "behind what is known": (lambda x: x, GENERAL, START + DAY),
    "of an account that lost rows": (lambda x: x.iloc[1:], GENERAL, START + 1),
    "of an account that a filter left out": (
        lambda x: x.balances.select(asset_id="VOTE"),
        OTHER,
        START,
    ),
    "of an account that a mask left out": (lambda x: x[x["asset_id"] == "VOTE"], OTHER, START),
    "of an account that an interval of a selection lacks": (
        lambda x: x[x["asset_id"] == "VOTE"].balances.between(instant(START)),
        OTHER,
        START,
    ),
    "of the account and the moment of a bad row": (with_bad_row, MARGIN, START + 5),
}


@pytest.mark.parametrize(("how", "account", "time"), LACKING.values(), ids=LACKING)
def test_a_flow_whose_row_the_table_may_lack_is_not_compared(how, account, time):
    rows = [(*GENERAL, START, 5), (*GENERAL, START + 9, 7), (*OTHER, START + 9, 1)]
    whole = ba.to_table(table_of(rows), known=[(instant(START - HOUR), instant(START + DAY))])
    true, more = (GENERAL, START + 9, 2), (account, START + 2, 3)
    same, firsts = differences(whole, [true, more])
    assert same == [(*account, START + 2, None, 3, -3, "no row")]
    assert firsts == 2
    table = how(whole)
    others, count = differences(table, [true])
    assert differences(table, [true, (account, time, 3)]) == (others, count + 1)


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
