"""Tables so large that they are worked on in parts, side by side, give what small ones give."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pyarrow as pa
import pytest

import balance_analysis as ba
from tests.analysis.cases import CASES
from tests.analysis.oracle import Fixed, Grid
from tests.analysis.tables import (
    BEGIN,
    LARGEST,
    START,
    arrow_of,
    asked,
    instant,
    table_from,
    table_of,
)

SIZES = {"p0": 30_000, "p1": 30_000, "p2": 10, "p3": 130_000, "p4": 90_000, "p5": 1, "p6": 40_000}
LENGTH = 130_000
GRID = Grid(Fixed(900), START, START + LENGTH + 5)
PERIODS = asked(GRID)
BOUNDS = {name: PERIODS[name] for name in ("start", "end")}
COUNTED = ["total", "known", "unknown"]


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


@pytest.fixture(scope="module")
def table():
    """Return a table with openings of some of its accounts, and of others."""
    before = [("VOTE", "T", party, "", BEGIN, 7) for party in ("p0", "p3", "p7", "p8")]
    return ba.to_table(pd.concat([long_table(), table_of(before)]), start=instant(START))


def test_rows_in_any_order_are_the_same_table(table):
    mixed, deltas = table.sample(frac=1, random_state=1), ba.deltas(table)
    backwards = ["unused", *sorted([*SIZES, "p7", "p8"], reverse=True)]
    for rows in [
        mixed.sort_values("timestamp", ascending=False),
        table.iloc[::-1],
        mixed.assign(party_id=mixed["party_id"].cat.set_categories(backwards)),
        pd.concat([mixed, mixed.iloc[:3]]),
    ]:
        assert ba.deltas(rows).equals(deltas)


OF_ALL = {"share", "change"}
"""Columns that compare an account with others."""

ALONE = [name for name, case in CASES.items() if case.columns and not OF_ALL & {*case.columns}]


def in_arrow(frame):
    return pa.Table.from_pandas(
        frame.astype(dict.fromkeys({*ba.ACCOUNT_KEY, "state"} & {*frame}, "str")),
        preserve_index=False,
    )


@pytest.mark.parametrize("name", ALONE)
def test_an_account_is_the_same_alone_and_among_many(table, name):
    of = partial(CASES[name].of, grid=GRID, by=["asset_id", "party_id"])
    parts = [table[table["party_id"] == party] for party in [*SIZES, "p7", "p8"]]
    alone = pa.concat_tables([in_arrow(of(part)) for part in parts])
    assert in_arrow(of(table)).equals(alone)


def sums_of(accounts, moment, columns):
    """Return {moment: the sums of some columns over all accounts}; NA counts as nothing."""
    exact = ba.to_integers(accounts).fillna(dict.fromkeys(columns, 0))
    return {time: [*row] for time, *row in exact.groupby(moment)[columns].sum().itertuples()}


def test_a_group_is_the_sum_of_its_accounts_in_all_blocks(table):
    moved = [*ba.flows(table, **PERIODS).columns[-6:]]
    flows = sums_of(ba.flows(table, **PERIODS), "start", moved)
    assert sums_of(ba.flows(table, by="account_type", **PERIODS), "start", moved) == flows
    for freq, step in ((None, 9973), ("9ms", 1)):
        totals = ba.totals(table, by="asset_id", freq=freq, **BOUNDS).iloc[::step]
        held = ba.balance_at(table, totals["timestamp"])
        held = held.assign(known=held["balance"].notna(), unknown=held["balance"].isna())
        wanted = sums_of(held.rename(columns={"balance": "total"}), "timestamp", COUNTED)
        assert sums_of(totals, "timestamp", COUNTED) == wanted


def test_an_amount_too_large_in_the_last_block_is_named():
    last = [("VOTE", "T", "p9", "", START + at, level) for at, level in ((0, LARGEST), (1, -9))]
    table = long_table(*last)
    for function in (ba.deltas, ba.flows, ba.drawdown, ba.summarize_accounts):
        with pytest.raises(OverflowError, match=r"'p9'.* 38 digits"):
            function(table)
