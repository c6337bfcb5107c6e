from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.errors import CheckError
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, empty_table
from balance_analysis.schema import ACCOUNT_KEY, EXTERNAL, from_microseconds
from tests.analysis import oracle
from tests.analysis.oracle import Grid
from tests.analysis.tables import (
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    amount,
    books,
    fixed_grids,
    instant,
    instants,
    many_rows,
    moment,
    opening_frame,
    outcome,
    recorded_table,
    rows,
    signed,
    split,
    table_of,
)

MOMENTS = ("first_seen", "last_seen", "minimum_at", "maximum_at", "drawdown_at")
AMOUNTS = ("opening", "closing", "minimum", "maximum", "inflow", "outflow", "net", "average")

intervals = st.none() | instants


def summaries(frame):
    result = {}
    for record in frame.to_dict("records"):
        account = tuple(str(record.pop(name)) for name in ACCOUNT_KEY)
        share = record.pop("zero_share")
        result[account] = {
            name: moment(value) if name in MOMENTS else amount(value)
            for name, value in record.items()
        }
        result[account]["zero_share"] = None if math.isnan(share) else share
    return result


@settings(max_examples=40)
@given(st.data(), books(signed).filter(lambda book: book[0]))
def test_every_column_is_what_a_walk_through_the_interval_finds(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows, freqs=st.none()))
    found = outcome(
        lambda: summaries(
            summarize_accounts(
                table_of(rows),
                start=instant(grid.start),
                end=instant(grid.end),
                opening=opening_frame(opening),
            )
        )
    )
    expected = outcome(oracle.summaries, rows, opening, grid)
    assert found == expected
    assert list(found) == list(expected)


def test_summaries_of_many_rows_are_exact():
    rows = many_rows()
    found = summaries(summarize_accounts(table_of(rows), start=instant(START + 400)))
    assert found == oracle.summaries(rows, {}, Grid(None, START + 400))


@settings(max_examples=40)
@given(rows.filter(bool), instants)
def test_an_interval_that_ends_before_the_first_row_has_one_microsecond(rows, end):
    found = summarize_accounts(table_of(rows), end=instant(end))
    assert summaries(found) == oracle.summaries(rows, {}, Grid(None, None, end))


@settings(max_examples=40)
@given(rows, st.sets(instants, min_size=2, max_size=2))
def test_the_average_of_a_summary_is_the_time_weighted_average(rows, bounds):
    start, end = sorted(instant(bound) for bound in bounds)
    found = summarize_accounts(table_of(rows), start=start, end=end)["average"]
    expected = ba.time_weighted_average(table_of(rows), start, end)["average"]
    pd.testing.assert_series_equal(found, expected)


@settings(max_examples=40)
@given(rows)
def test_the_drawdown_of_a_summary_is_the_deepest_of_its_history(rows):
    found = summarize_accounts(table_of(rows)).groupby(list(ACCOUNT_KEY), observed=True)
    depths = ba.drawdown(table_of(rows)).groupby(list(ACCOUNT_KEY), observed=True)
    assert {key: max(own["depth"]) for key, own in depths} == {
        key: own["drawdown"].iloc[0] for key, own in found
    }


@settings(max_examples=40)
@given(rows, instants, instants)
def test_the_balances_at_a_split_open_the_summary_after_it(rows, when, end):
    table = table_of(rows)
    early, late = split(table, when)
    bounds = {"start": instant(when), "end": instant(max(end, when + 1))}
    opening = balance_at(early, instant(when))
    resumed = summarize_accounts(late, **bounds, opening=opening)
    whole = summarize_accounts(table, **bounds)
    # A row at the start itself is one of the interval only where it is in the table.
    of_rows = ["first_seen", "last_seen", "rows", "changes", "opening", "inflow", "outflow", "net"]
    pd.testing.assert_frame_equal(resumed.drop(columns=of_rows), whole.drop(columns=of_rows))
    at_start = early["timestamp"] == instant(when)
    if not at_start.any():
        pd.testing.assert_frame_equal(resumed, whole)


def test_a_drawdown_falls_from_a_peak_within_the_interval():
    levels = [9, 4, 6, 3, 5]
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    [whole] = summaries(summarize_accounts(table)).values()
    assert (whole["drawdown"], whole["drawdown_at"]) == (6, START + 3)
    [later] = summaries(summarize_accounts(table, start=instant(START + 1))).values()
    assert (later["drawdown"], later["drawdown_at"]) == (3, START + 3)


def test_the_share_of_time_at_zero_is_of_the_time_that_is_known():
    table = table_of([(*GENERAL, START + 2, 0), (*GENERAL, START + 5, 1)])
    found = summarize_accounts(table, start=instant(START), end=instant(START + 9))
    assert found["zero_share"].tolist() == [3 / 7]


def test_an_account_that_only_the_opening_has_is_summarised():
    opening = opening_frame({MARGIN: (0, START + 1), GENERAL: (7, None), OTHER: (None, None)})
    found = summaries(
        summarize_accounts(
            empty_table(), start=instant(START), end=instant(START + 4), opening=opening
        )
    )
    assert [(row["closing"], row["average"], row["zero_share"]) for row in found.values()] == [
        (7, 7, 0.0),
        (0, None, 1.0),
        (None, None, None),
    ]


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
    with pytest.raises(OverflowError, match=r"flow of .*'a1'.* more than 38 digits"):
        summarize_accounts(table)


def test_a_negative_flow_beyond_38_digits_raises():
    table = table_of([(*GENERAL, START, LARGEST), (*GENERAL, START + 1, -LARGEST)])
    with pytest.raises(OverflowError, match=r"'a1'.* 38 digits"):
        summarize_accounts(table)


def test_an_account_that_begins_after_the_interval_is_listed_as_unknown():
    table = table_of([(*GENERAL, START, 5)])
    found = summarize_accounts(table, end=from_microseconds(START))
    assert found[list(AMOUNTS)].isna().all(axis=None)
    assert found["rows"].tolist() == [0]


def test_an_opening_without_rows_or_bounds_is_what_is_held():
    opening = opening_frame({GENERAL: (7, None)})
    [found] = summaries(summarize_accounts(empty_table(), opening=opening)).values()
    assert (found["opening"], found["average"], found["closing"], found["rows"]) == (7, 7, 7, 0)


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
        **dict.fromkeys(("inflow", "outflow", "net", "average", "drawdown"), str(BALANCE_DTYPE)),
        "drawdown_at": str(TIMESTAMP_DTYPE),
        "zero_share": "float64",
    }
    assert list(dtypes.items()) == list(expected.items())


def test_no_rows_give_no_rows():
    assert summarize_accounts(empty_table(), start="2023-04-01", end="2023-04-02").empty
