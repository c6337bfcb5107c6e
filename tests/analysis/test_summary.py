from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.errors import CheckError
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, empty_table
from balance_analysis.schema import ACCOUNT_KEY, EXTERNAL, from_microseconds
from tests.analysis.tables import (
    LARGEST,
    START,
    amount,
    by_account,
    instants,
    moment,
    recorded_table,
    rows,
    table_of,
)

LATEST = START + 1000

GENERAL = ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "")
MOMENTS = ("first_seen", "last_seen", "minimum_at", "maximum_at")
AMOUNTS = ("opening", "closing", "minimum", "maximum", "inflow", "outflow", "net")

intervals = st.none() | instants


def naive_summary(rows, start, end):
    """Summarise with plain integers, walking each account microsecond by microsecond."""
    moments = [row[4] for row in rows]
    begin = min(*moments, end - 1 if end else LATEST) if start is None else start
    end = max(*moments, begin) + 1 if end is None else end
    start = begin
    result = {}
    for account, changes in by_account(rows).items():
        inside = [time for time, _ in changes if start <= time < end]
        deltas = [
            after - before
            for (_, before), (time, after) in pairwise(changes)
            if start <= time < end
        ]
        levels = {}
        for instant in range(start, end):
            known = [balance for time, balance in changes if time <= instant]
            if known:
                levels[instant] = known[-1]
        low, high = (min(levels.values()), max(levels.values())) if levels else (None, None)
        result[account] = {
            "first_seen": min(inside, default=None),
            "last_seen": max(inside, default=None),
            "rows": len(inside),
            "changes": sum(delta != 0 for delta in deltas),
            "opening": next((level for time, level in changes[::-1] if time < start), None),
            "closing": levels.get(end - 1),
            "minimum": low,
            "maximum": high,
            "minimum_at": next((time for time, level in levels.items() if level == low), None),
            "maximum_at": next((time for time, level in levels.items() if level == high), None),
            "inflow": sum(delta for delta in deltas if delta > 0) if levels else None,
            "outflow": -sum(delta for delta in deltas if delta < 0) if levels else None,
            "net": sum(deltas) if levels else None,
        }
    return result


def summaries(frame):
    result = {}
    for record in frame.to_dict("records"):
        account = tuple(str(record.pop(name)) for name in ACCOUNT_KEY)
        result[account] = {
            name: moment(value) if name in MOMENTS else amount(value)
            for name, value in record.items()
        }
    return result


def instant(microseconds):
    return None if microseconds is None else from_microseconds(microseconds)


@given(rows.filter(bool), intervals, intervals)
def test_every_column_is_what_a_walk_through_the_interval_finds(rows, start, end):
    if start is not None and end is not None and start >= end:
        start, end = end, start + 1
    expected = naive_summary(rows, start, end)
    found = summarize_accounts(table_of(rows), start=instant(start), end=instant(end))
    assert summaries(found) == expected
    assert list(summaries(found)) == sorted(expected)


@given(rows, intervals, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(rows, start, random):
    table = table_of(rows)
    order = [*range(len(table)), *range(0, len(table), 2)]
    random.shuffle(order)
    pd.testing.assert_frame_equal(
        summarize_accounts(table.iloc[order], start=instant(start)),
        summarize_accounts(table, start=instant(start)),
    )


@given(rows, st.sets(instants, min_size=3, max_size=3))
def test_flows_of_adjacent_intervals_add_up(rows, bounds):
    start, split, end = sorted(bounds)
    table = table_of(rows)
    early, late, whole = (
        summarize_accounts(table, start=instant(left), end=instant(right))
        for left, right in ((start, split), (split, end), (start, end))
    )
    for name in ("rows", "changes", "inflow", "outflow", "net"):
        parts = [
            (amount(a) or 0) + (amount(b) or 0)
            for a, b in zip(early[name], late[name], strict=True)
        ]
        assert parts == [amount(value) or 0 for value in whole[name]]


@given(rows, st.sets(instants, min_size=2, max_size=2))
def test_opening_and_closing_are_balances_at_the_bounds(rows, bounds):
    start, end = sorted(bounds)
    table = table_of(rows)
    found = summarize_accounts(table, start=instant(start), end=instant(end))
    for name, when in (("opening", start - 1), ("closing", end - 1)):
        expected = balance_at(table, instant(when))["balance"]
        pd.testing.assert_series_equal(found[name], expected, check_names=False)


@given(rows, st.sets(instants, min_size=2, max_size=2))
def test_a_known_opening_and_the_net_make_the_closing(rows, bounds):
    start, end = sorted(bounds)
    found = summarize_accounts(table_of(rows), start=instant(start), end=instant(end))
    for opening, net, closing in zip(found["opening"], found["net"], found["closing"], strict=True):
        assert amount(opening) is None or amount(opening) + amount(net) == amount(closing)


def test_recorded_flows_agree_with_the_ledger(recorded_rows, recorded_ledger):
    found = summaries(summarize_accounts(recorded_table(recorded_rows)))
    flows = {account: {"inflow": 0, "outflow": 0} for account in found if account[1] != EXTERNAL}
    for entry in recorded_ledger:
        account = (entry.asset_id, entry.account_type, entry.party_id, entry.market_id)
        # What came with an account's first row is no delta: the balance before it is unknown.
        if account in flows and entry.timestamp_ns // 1000 > found[account]["first_seen"]:
            flows[account]["inflow" if entry.net > 0 else "outflow"] += abs(entry.net)
    assert any(flow["outflow"] for flow in flows.values())
    assert flows == {
        account: {name: found[account][name] for name in ("inflow", "outflow")} for account in flows
    }


def test_flows_of_38_digits_are_exact():
    table = table_of([(*GENERAL, START, 1), (*GENERAL, START + 1, LARGEST)])
    assert amount(summarize_accounts(table)["inflow"].iloc[0]) == LARGEST - 1


def test_a_flow_beyond_38_digits_raises_and_names_the_account():
    levels = [0, LARGEST, 0, LARGEST]
    table = table_of(
        [
            ("VOTE", "ACCOUNT_TYPE_GENERAL", "a0", "", START, 1),
            *((*GENERAL, START + at, level) for at, level in enumerate(levels)),
        ]
    )
    with pytest.raises(OverflowError, match=r"inflow of .*'a1'.* more than 38 digits"):
        summarize_accounts(table)


def test_a_negative_flow_beyond_38_digits_raises():
    table = table_of([(*GENERAL, START, LARGEST), (*GENERAL, START + 1, -LARGEST)])
    with pytest.raises(OverflowError, match="outflow"):
        summarize_accounts(table)


def test_an_account_that_begins_after_the_interval_is_listed_as_unknown():
    table = table_of([(*GENERAL, START, 5)])
    found = summarize_accounts(table, end=from_microseconds(START))
    assert found[list(AMOUNTS)].isna().all(axis=None)
    assert found["rows"].tolist() == [0]


def test_a_start_after_the_end_is_refused():
    with pytest.raises(ValueError, match=r"start must be before end.*2023-04-02"):
        summarize_accounts(empty_table(), start="2023-04-02", end="2023-04-02")


def test_rows_that_contradict_each_other_are_refused():
    table = pd.concat([table_of([(*GENERAL, START, 5)]), table_of([(*GENERAL, START, 6)])])
    with pytest.raises(CheckError, match="conflicting"):
        summarize_accounts(table)


@given(rows, intervals)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows, start):
    dtypes = summarize_accounts(table_of(rows), start=instant(start)).dtypes.astype(str)
    expected = {
        **dict.fromkeys(ACCOUNT_KEY, "category"),
        **dict.fromkeys(("first_seen", "last_seen"), str(TIMESTAMP_DTYPE)),
        **dict.fromkeys(("rows", "changes"), "int64"),
        **dict.fromkeys(("opening", "closing", "minimum", "maximum"), str(BALANCE_DTYPE)),
        **dict.fromkeys(("minimum_at", "maximum_at"), str(TIMESTAMP_DTYPE)),
        **dict.fromkeys(("inflow", "outflow", "net"), str(BALANCE_DTYPE)),
    }
    assert list(dtypes.items()) == list(expected.items())


def test_no_rows_give_no_rows():
    assert summarize_accounts(empty_table(), start="2023-04-01", end="2023-04-02").empty
