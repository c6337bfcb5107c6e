"""Tables so large that they are worked on account by account, in blocks side by side."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.analysis import steps, totals
from tests.analysis.tables import (
    LARGEST,
    START,
    arrow_of,
    instant,
    records,
    table_from,
    table_of,
)

SIZES = {"p0": 1900, "p1": 1900, "p2": 10, "p3": 4400, "p4": 2500, "p5": 1, "p6": 3750}
LENGTH = 4400
BLOCK = 1 << 13
BOUNDS = {"start": instant(START), "end": instant(START + LENGTH + 5)}


def long_table(*last):
    """Return the rows of accounts of these sizes, and other ones."""
    columns = list(zip(*last, strict=True)) or [()] * 6
    parties = [party for party, size in SIZES.items() for _ in range(size)]
    times = [START + place * (LENGTH // size) for size in SIZES.values() for place in range(size)]
    balances = [place * 2_654_435_761 % 10**9 * 10**24 + place for place in range(len(times))]
    same = [["VOTE"] * len(times), ["T"] * len(times), parties, [""] * len(times)]
    return table_from(
        arrow_of([[*a, *b] for a, b in zip([*same, times, balances], columns, strict=True)])
    )


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "BLOCK", BLOCK)
        patch.setattr(totals, "AT_ONCE", BLOCK)
        yield


@pytest.fixture(scope="module")
def table():
    return long_table()


@pytest.fixture(scope="module")
def opened_table(table):
    """Return the table with openings of some of its accounts, and of others."""
    before = [("VOTE", "T", party, "", START - 9, 7) for party in ("p0", "p3", "p7", "p8")]
    return ba.to_table(pd.concat([table, table_of(before)]), start=instant(START))


def test_the_table_has_several_blocks(table):
    assert len(table) > BLOCK


def test_rows_in_any_order_are_the_same_table(table):
    mixed, deltas = table.sample(frac=1, random_state=1), ba.deltas(table)
    backwards = ["unused", *sorted(SIZES, reverse=True)]

    for rows in [
        mixed,
        mixed.sort_values("timestamp"),
        mixed.sort_values("timestamp", ascending=False),
        table.iloc[::-1],
        mixed.assign(party_id=mixed["party_id"].cat.set_categories(backwards)),
        pd.concat([mixed, mixed.iloc[:3]]),
    ]:
        assert ba.deltas(rows).equals(deltas)


@pytest.mark.parametrize(
    "function",
    [
        lambda table: ba.balance_at(table, BOUNDS["end"]),
        lambda table: ba.balance_series(table, freq="300us", **BOUNDS, layout="long"),
        lambda table: ba.balance_series(table, start=BOUNDS["start"], layout="long"),
        ba.deltas,
        lambda table: ba.flows(table, freq="300us", **BOUNDS),
        lambda table: ba.time_weighted_average(table, freq="300us", **BOUNDS),
        lambda table: ba.ohlc(table, "300us", **BOUNDS),
        ba.drawdown,
        lambda table: ba.totals(table, by=ba.ACCOUNT_KEY, freq="300us", **BOUNDS),
        lambda table: ba.summarize_accounts(table, **BOUNDS),
        lambda table: ba.summarize_parties(table, **BOUNDS),
        lambda table: ba.flows(table, by="party_id", freq="300us", internal=True, **BOUNDS),
        lambda table: ba.balance_series(table, by="party_id", layout="long", **BOUNDS),
        lambda table: ba.totals(table, by="party_id", **BOUNDS),
    ],
)
def test_an_account_is_the_same_alone_and_among_many(opened_table, function):
    whole = function(opened_table)
    keys = dict.fromkeys({*ba.ACCOUNT_KEY} & {*whole}, "str")
    whole = whole.astype(keys)
    alone = [
        function(opened_table[opened_table["party_id"] == party]) for party in [*SIZES, "p7", "p8"]
    ]
    parts = [part.astype(keys) for part in alone]
    whole = whole.reset_index(drop=True)
    pd.testing.assert_frame_equal(whole, pd.concat(parts, ignore_index=True))


def test_a_wide_series_has_each_account_as_it_is_alone(opened_table):
    whole = ba.balance_series(opened_table, freq="300us", **BOUNDS)
    for party in SIZES:
        own = opened_table[opened_table["party_id"] == party]
        alone = ba.balance_series(own, freq="300us", **BOUNDS)
        pd.testing.assert_frame_equal(whole[list(alone.columns)], alone)


def test_blocks_of_many_points_are_those_of_few(table):
    few = table.iloc[::200]
    whole = ba.balance_series(few, freq="2us", **BOUNDS, layout="long")
    assert len(whole) > BLOCK
    for party in ("p0", "p4", "p5"):
        alone = ba.balance_series(
            few[few["party_id"] == party], freq="2us", **BOUNDS, layout="long"
        )
        own = whole[whole["party_id"] == party].reset_index(drop=True)
        columns = ["timestamp", "balance", "state"]
        pd.testing.assert_frame_equal(own[columns], alone[columns])


@pytest.mark.parametrize("freq", [None, "300us"])
def test_a_total_is_that_of_all_blocks(opened_table, freq):
    points = records(ba.totals(opened_table, by=["asset_id"], freq=freq, **BOUNDS))[::97]
    when = [instant(time) for _, time, *_ in points]
    sums = defaultdict(lambda: [0, 0, 0])
    for *_, time, balance, _ in records(ba.balance_at(opened_table, when)):
        known = balance is not None
        for place, part in enumerate((balance or 0, known, not known)):
            sums[time][place] += part
    assert [list(point[2:]) for point in points] == [sums[time] for _, time, *_ in points]


@pytest.mark.parametrize("by", [["asset_id"], ["account_type", "asset_id"]])
def test_flows_of_a_group_are_those_of_all_blocks(opened_table, by):
    arguments = {"freq": "300us", **BOUNDS}
    sums = defaultdict(lambda: np.zeros(6, object))
    for *_, start, _, inflow, outflow, net, changes, active, unknown in records(
        ba.flows(opened_table, **arguments)
    ):
        sums[start] += np.array([inflow, outflow, net, changes, active, unknown], object)
    found = records(ba.flows(opened_table, by=by, **arguments))
    assert {row[len(by)]: list(row[-6:]) for row in found} == {
        start: list(parts) for start, parts in sums.items()
    }


@pytest.mark.parametrize(
    "function",
    [ba.deltas, ba.flows, ba.drawdown, ba.summarize_accounts],
)
def test_an_amount_too_large_in_the_last_block_is_named(function):
    last = [("VOTE", "T", "p9", "", START + at, level) for at, level in ((0, LARGEST), (1, -9))]
    with pytest.raises(OverflowError, match=r"'p9'.* 38 digits"):
        function(long_table(*last))
