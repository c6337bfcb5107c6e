"""Rows against an independent list of flows."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.cases import keyed
from tests.analysis.tables import (
    ACCOUNTS,
    BEGIN,
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    accounts,
    dtypes_of,
    instant,
    outcome,
    records,
    signed,
    table_of,
    tables,
    times,
)
from tests.columns import ATTRS_KEY, BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table

CASE = keyed(
    ba.reconcile, oracle.differences, ("timestamp", "delta", "net", "difference", "reason")
)
OUTSIDE = ("VOTE", EXTERNAL, "network", "")


def flow_frame(entries):
    """Return a list of (account, microseconds, net) as a frame of flows."""
    keys = pd.DataFrame([key for key, _, _ in entries], columns=ba.ACCOUNT_KEY, dtype="str")
    moments = pd.array([instant(time) for _, time, _ in entries], dtype=TIMESTAMP_DTYPE)
    nets = pd.array([net for _, _, net in entries], dtype=BALANCE_DTYPE)
    return keys.assign(timestamp=moments, net=nets)


def differences(table, entries):
    """Return the records of a comparison, and the number of rows not compared."""
    result = ba.reconcile(table, flow_frame(entries))
    assert list(dtypes_of(result, table).items()) == list(CASE.dtypes().items())
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


CUT = (START - 1, START + 9)
ways = st.sampled_from(["all accounts", "words", "mask", "mask and interval"])


@settings(max_examples=25)
@given(st.data(), tables(signed, [(*OUTSIDE, START + 2, 9)]), entries, ways)
def test_rows_and_flows_are_compared_where_all_rows_of_an_account_are_known(
    data, shown, others, how
):
    table, world = shown
    true = [(row[:4], row[4], row[6]) for row in oracle.deltas(world) if row[6]]
    kept = data.draw(st.lists(st.sampled_from(true), unique=True)) if true else []
    # Flows that add up to nothing may count as one of 0 or as none.
    kept = [entry for entry in kept if entry[:2] not in {other[:2] for other in others}]
    halves = [(key, time, part) for key, time, net in kept for part in (net // 2, net - net // 2)]
    if assets := sorted({key[0] for key in world.book()}):
        table, world = of_asset(table, world, data.draw(st.sampled_from(assets)), how)
    expected = outcome(oracle.differences, world, halves + others)
    assert outcome(differences, table, halves + others) == expected


def of_asset(table, world, asset, how):
    """Return a table's rows of an asset; accounts that may be missing count as lost."""
    rows = [row for row in world.rows if row[0] == asset]
    opening = {key: held for key, held in world.opening.items() if key[0] == asset}
    own = replace(world, rows=rows, opening=opening)
    if how == "words":
        # A table that states nothing is assumed to have every change, before the selection too.
        every = ACCOUNTS if world.known is not None else world.book()
        left = {key for key in every if key[0] != asset}
        return table.balances.select(asset_id=asset), replace(own, lost=world.lost | left)
    is_unnoted = world.lost or world.known is None
    if how == "all accounts" or (how == "mask and interval" and is_unnoted):
        return table, world
    left, table = {*world.book()} - {*own.book()}, table[table["asset_id"] == asset]
    if how == "mask and interval":
        # The part no longer records which accounts without a row the table would have.
        left = {*ACCOUNTS} - {*own.book()} if left else left
        own, table = own.between(*CUT), table.balances.between(*map(instant, CUT))
    return table, replace(own, lost=world.lost | left)


def test_an_asset_whose_rows_were_lost_before_a_selection_is_not_compared():
    known = [(instant(START), instant(START + 9))]
    whole = ba.to_table(table_of([(*GENERAL, START, 7), (*OTHER, START, 8)]), known=known)
    left = whole[whole["asset_id"] != GENERAL[0]].balances.select(asset_id=OTHER[0])
    assert differences(left, [(MARGIN, START + 1, 3)]) == ([], 2)  # a first row is not, either


def test_flows_of_floats_are_refused():
    flow = flow_frame([(GENERAL, START, 4)]).astype({"net": "float64"})
    with pytest.raises(TypeError, match="float"):
        ba.reconcile(empty_table(), flow)


def test_the_recording_agrees_with_its_ledger(recorded_rows, recorded_ledger):
    whole = ba.to_table(table_of(recorded_rows), nothing_before=True)
    assert differences(whole, recorded_ledger) == ([], 0)
    assert len(recorded_ledger) > 100
