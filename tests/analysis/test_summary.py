from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import ACCOUNT_KEY, summarize_accounts
from tests.analysis import oracle
from tests.analysis.oracle import Grid
from tests.analysis.tables import (
    BEGIN,
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    amount,
    books,
    edges,
    fixed_grids,
    gaps,
    instant,
    instants,
    many_rows,
    moment,
    opened,
    outcome,
    recorded_table,
    rows,
    signed,
    since_openings,
    table_of,
)
from tests.columns import BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table

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


def check(rows, opening, grid, known=None):
    bounds = {"start": instant(grid.start), "end": instant(grid.end)}
    found = outcome(lambda: summaries(summarize_accounts(opened(rows, opening, known), **bounds)))
    expected = outcome(oracle.summaries, rows, opening, since_openings(grid, opening), known)
    assert found == expected
    assert list(found) == list(expected)


@settings(max_examples=12)
@given(st.data(), books(signed).filter(lambda book: book[0]))
def test_every_column_is_what_a_walk_through_the_interval_finds(data, book):
    check(*book, data.draw(fixed_grids(book[0], freqs=st.none())))


@settings(max_examples=12)
@given(books(), gaps, edges, edges)
def test_where_a_change_may_be_missing_it_is_what_a_walk_finds(book, known, one, other):
    check(*book, Grid(None, min(one, other), max(one, other) + 1), known)


def test_summaries_of_many_rows_are_exact():
    rows = many_rows()
    found = summaries(summarize_accounts(table_of(rows), start=instant(START + 400)))
    assert found == oracle.summaries(rows, {}, Grid(None, START + 400))


@settings(max_examples=12)
@given(rows.filter(bool), instants)
def test_an_interval_that_ends_before_the_first_row_has_one_microsecond(rows, end):
    found = summarize_accounts(table_of(rows), end=instant(end))
    assert summaries(found) == oracle.summaries(rows, {}, Grid(None, None, end))


def test_the_share_of_time_at_zero_is_of_the_time_that_is_known():
    table = table_of([(*GENERAL, START + 2, 0), (*GENERAL, START + 5, 1)])
    found = summarize_accounts(table, start=instant(START), end=instant(START + 9))
    assert found["zero_share"].tolist() == [3 / 7]


def test_an_account_that_only_the_opening_has_is_summarised():
    opening = {MARGIN: (0, BEGIN - 1), GENERAL: (7, BEGIN - 2), OTHER: (5, BEGIN - 9)}
    table = opened([], opening, known=[(BEGIN - 3, START + 4)])
    found = summaries(summarize_accounts(table, start=instant(START), end=instant(START + 4)))
    assert [(row["closing"], row["average"], row["zero_share"]) for row in found.values()] == [
        (7, 7, 0.0),
        (0, 0, 1.0),
        (None, None, None),
    ]


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


def test_an_opening_without_rows_or_bounds_is_what_is_held():
    table = opened([], {GENERAL: (7, BEGIN - 1)})
    [found] = summaries(summarize_accounts(table)).values()
    assert (found["opening"], found["average"], found["closing"], found["rows"]) == (7, 7, 7, 0)


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


@settings(max_examples=20)
@given(
    books(),
    st.lists(st.sampled_from([*summarize_accounts(empty_table()).columns[4:]]), unique=True),
    st.booleans(),
)
def test_columns_that_are_asked_for_are_those_of_the_whole_summary(book, columns, by_party):
    table = opened(*book)
    function = ba.summarize_parties if by_party else summarize_accounts
    whole = function(table)
    keys = [name for name in ba.ACCOUNT_KEY if name in whole]
    found = function(table, columns=columns)
    pd.testing.assert_frame_equal(found, whole[[*keys, *columns]])


@pytest.mark.parametrize("columns", ["net", ["net", "gross"]])
def test_columns_that_there_are_not_are_refused(columns):
    with pytest.raises(ValueError, match="columns must be some of"):
        summarize_accounts(empty_table(), columns=columns)
