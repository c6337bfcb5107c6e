from __future__ import annotations

import datetime as dt
from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import ACCOUNT_KEY, balance_at
from tests.analysis.tables import (
    DAY,
    GENERAL,
    MARGIN,
    START,
    amount,
    dtypes_of,
    expected_dtypes,
    instant,
    instants,
    moment,
    recorded_table,
    records,
    rows,
    table_of,
)
from tests.columns import BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table
from tests.moments import from_microseconds


def states(frame):
    return {
        tuple(str(name) for name in row[:4]): (amount(row[4]), moment(row[5]))
        for row in frame.itertuples(index=False)
    }


@pytest.mark.parametrize(
    "when",
    [
        ["2023-04-02", "2023-04-01"],
        ("2023-04-02T00:00Z", "2023-04-01T02:00+02:00"),
        [dt.date(2023, 4, 2), dt.datetime(2023, 4, 1, tzinfo=dt.UTC)],
        pd.DatetimeIndex(["2023-04-02", "2023-04-01"]),
        pd.DatetimeIndex(["2023-04-02", "2023-04-01"], tz="UTC"),
        pd.DatetimeIndex(["2023-04-02T02:00", "2023-04-01T02:00"], tz="Europe/Berlin"),
    ],
)
def test_instants_may_be_given_in_many_ways(when):
    table = table_of([(*GENERAL, 19448 * DAY, 5), (*GENERAL, 19449 * DAY, 6)])
    assert records(balance_at(table, when)) == [
        (*GENERAL, 19449 * DAY, 6, 19449 * DAY),
        (*GENERAL, 19448 * DAY, 5, 19448 * DAY),
    ]


@settings(max_examples=12)
@given(rows, st.lists(instants, min_size=1, max_size=3))
def test_many_instants_have_the_same_columns_and_dtypes_for_any_rows(rows, whens):
    found = balance_at(table_of(rows), [instant(when) for when in whens])
    expected = {
        **expected_dtypes(ACCOUNT_KEY, times=["timestamp"], amounts=["balance"]),
        **expected_dtypes((), times=["since"]),
    }
    assert list(dtypes_of(found).items()) == list(expected.items())


@given(rows, instants, instants)
def test_the_balances_at_a_split_open_the_rows_after_it(rows, one, other):
    split, when = sorted([one, other])
    table = table_of(rows)
    resumed = balance_at(table.balances.between(instant(split), instant(START + 20)), instant(when))
    whole = balance_at(table, instant(when))
    pd.testing.assert_frame_equal(resumed, whole)


@pytest.mark.parametrize(
    "how", [{"nothing_before": True}, {"known": [("2023-04-01", "2023-05-01")]}]
)
def test_an_account_of_an_opening_alone_is_there(how):
    rows = [(*GENERAL, 19448 * DAY, 5), (*MARGIN, 19448 * DAY + 1, 7)]
    table = ba.to_table(table_of(rows), start="2023-04-02", **how)
    found = states(balance_at(table, "2023-04-05"))
    assert found == {GENERAL: (5, 19448 * DAY), MARGIN: (7, 19448 * DAY + 1)}


def test_an_instant_without_a_time_zone_is_utc():
    table = table_of([(*GENERAL, 19449 * DAY, 5), (*GENERAL, 19449 * DAY + 1, 6)])
    assert amount(balance_at(table, "2023-04-02")["balance"].iloc[0]) == 5


def test_a_part_of_a_microsecond_is_rounded_down():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6)])
    when = pd.Timestamp(START * 1000 + 999, tz="UTC")
    assert amount(balance_at(table, when)["balance"].iloc[0]) == 5
    assert amount(ba.holders(table, when)["balance"].iloc[0]) == 5
    assert amount(balance_at(table, when.isoformat())["balance"].iloc[0]) == 5


def test_no_rows_give_no_rows_with_all_dtypes():
    found = balance_at(empty_table(), "2023-04-01")
    assert found.empty
    assert [str(dtype) for dtype in found.dtypes] == [
        *["category"] * 4,
        str(BALANCE_DTYPE),
        str(TIMESTAMP_DTYPE),
    ]


def test_recorded_balances_agree_with_the_ledger_at_every_block(recorded_rows, recorded_ledger):
    table = recorded_table(recorded_rows)
    sums, compared = defaultdict(int), 0
    nets = by_block(recorded_ledger)
    for block in sorted({row.timestamp_ns // 1000 for row in recorded_rows} | set(nets)):
        for account, net in nets.get(block, []):
            sums[account] += net
        found = {
            account: balance
            for account, (balance, _) in states(balance_at(table, from_microseconds(block))).items()
            if account[1] != EXTERNAL and balance is not None
        }
        assert found == {account: sums[account] for account in found}
        assert {account for account in sums if sums[account]} <= set(found)
        compared += len(found)
    assert compared > 500


def by_block(ledger):
    """Return {block: [(account, net), ...]}, EXTERNAL aside: its rows don't follow its flows."""
    nets = defaultdict(list)
    for entry in ledger:
        if entry.account_type != EXTERNAL:
            account = (entry.asset_id, entry.account_type, entry.party_id, entry.market_id)
            nets[entry.timestamp_ns // 1000].append((account, entry.net))
    return nets
