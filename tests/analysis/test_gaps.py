from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis import oracle
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    START,
    amount,
    books,
    edges,
    gaps,
    instant,
    moment,
    opened,
    records,
    signed,
    table_of,
)
from tests.columns import ATTRS_KEY, known_of, note_known

POINTS = range(START - 3, START + 17)
BY = ["asset_id", "account_type"]


def told(rows, known):
    """Return a table whose attrs tell what is known."""
    table = table_of(rows)
    note_known(table, known)
    return table


def moments(times):
    return [instant(time) for time in times]


@settings(max_examples=25)
@given(books(signed), st.none() | gaps, st.lists(edges, max_size=9))
def test_a_balance_is_known_as_long_as_every_change_would_be_seen(book, known, times):
    """Many instants stand in the order asked for; an opening holds from its own time on."""
    found = ba.balance_at(opened(*book, known), moments(times))
    assert records(found) == oracle.balances_at(*book, times, known)
    for when in times[:1]:
        found = records(ba.balance_at(opened(*book, known), instant(when)))
        one = oracle.balances_at(*book, [when], known)
        assert found == [(*row[:4], *row[5:]) for row in one]


A_MONTH = [(*GENERAL, START + HOUR, 5), (*GENERAL, START + DAY, 7), (*MARGIN, START + DAY, 1)]
KNOWN = ((START, START + 10 * DAY),)


def test_what_is_stated_comes_before_what_the_table_tells():
    table = told(A_MONTH, KNOWN)
    when = instant(START + 5 * DAY)
    assert ba.balance_at(table, when)["balance"].tolist() == [7, 1]
    shorter = [(instant(START), instant(START + 3 * DAY))]
    assert ba.balance_at(ba.to_table(table, known=shorter), when)["balance"].isna().all()
    assert ba.balance_at(table_of(A_MONTH), when)["balance"].tolist() == [7, 1]


@pytest.mark.parametrize(
    ("days", "warnings"), [([-1], 1), ([11], 1), ([11, 12], 1), ([10], 0), ([0, 5], 0), ([0], 0)]
)
def test_a_moment_outside_of_what_a_table_knows_is_told_once(days, warnings, caplog):
    held = ba.balance_at(told(A_MONTH, KNOWN), [instant(START + day * DAY) for day in days])
    assert held["balance"].isna().all() or not warnings
    assert caplog.text.count("no balance is known at") == warnings


def test_nothing_is_carried_past_the_known_end():
    table = told(A_MONTH, KNOWN)
    assert ba.balance_at(table, "2030-01-01")["balance"].isna().all()
    end = instant(START + 10 * DAY)
    assert ba.balance_at(table, end + pd.Timedelta("1us"))["balance"].isna().all()
    days = {"start": instant(START), "end": end + pd.Timedelta("2D")}
    series = ba.balance_series(table, freq="1D", **days)
    assert series.loc[end].tolist() == [7, 1]
    assert series.iloc[-1].isna().all()


def test_every_function_tells_of_the_end_of_what_is_known_what_was_held_until_then():
    table, end = told(A_MONTH, KNOWN), instant(START + 10 * DAY)
    before = end - pd.Timedelta("1us")
    pd.testing.assert_frame_equal(ba.balance_at(table, end), ba.balance_at(table, before))
    pd.testing.assert_frame_equal(ba.holders(table, end), ba.holders(table, before))
    at = {"at": (instant(START + DAY), end)}
    found = ba.compare(table, **at, by="party_id")
    assert records(found[["before", "after", "unknown"]]) == [(8, 8, 0)]
    parties = (ba.holders(table, moment, by="party_id") for moment in (end, before))
    pd.testing.assert_frame_equal(*parties)


def test_a_row_at_the_end_of_what_is_known_counts_there():
    rows = [*A_MONTH, (*MARGIN, START + 10 * DAY, 3)]
    found = ba.holders(told(rows, KNOWN), instant(START + 10 * DAY), by="party_id")
    assert [amount(held) for held in found["balance"]] == [10]


def test_a_gap_of_a_microsecond_is_not_bridged():
    known = ((START, START + 2 * DAY), (START + 2 * DAY + 1, START + 9 * DAY))
    gap = instant(START + 2 * DAY)
    found = ba.balance_at(told(A_MONTH, known), [gap, gap + pd.Timedelta("1us")])
    assert [amount(held) for held in found["balance"]] == [7, None, 1, None]
    late = told(A_MONTH, known).balances.between(instant(START + 3 * DAY), None)
    assert ba.balance_at(late, instant(START + 5 * DAY))["balance"].isna().all()


def test_selecting_rows_keeps_what_is_known():
    table = told(A_MONTH, KNOWN)
    margin = table[table["account_type"] == "ACCOUNT_TYPE_MARGIN"]
    assert known_of(margin) == KNOWN
    series = ba.balance_series(margin, freq="1D")
    assert moment(series.index[-1]) < START + 10 * DAY <= moment(series.index[-1]) + DAY


def test_a_frame_made_a_table_and_a_file_keep_what_is_known(tmp_path):
    table = told(A_MONTH, KNOWN)
    shuffled = table.sample(frac=1, random_state=1)
    assert known_of(ba.to_table(shuffled)) == KNOWN
    ba.write_parquet(shuffled, tmp_path / "table.parquet")
    assert known_of(ba.read_parquet(tmp_path / "table.parquet")) == KNOWN


def test_intervals_end_by_default_where_knowledge_ends():
    table = told(A_MONTH, KNOWN)
    end = instant(START + 10 * DAY)
    assert ba.time_weighted_average(table)["end"].unique().tolist() == [end]
    assert ba.flows(table, freq=None)["end"].unique().tolist() == [end]
    assert ba.ohlc(table, "1D")["end"].max() == end
    summary = ba.summarize_accounts(table)
    assert summary["closing"].tolist() == [7, 1]
    rows_behind = told([*A_MONTH, (*MARGIN, START + 12 * DAY, 3)], KNOWN)
    assert ba.balance_series(rows_behind, freq="1D").index[-1] >= instant(START + 12 * DAY)


def test_a_first_period_begins_no_earlier_than_what_is_known():
    known = ((START + HOUR // 2, START + 10 * DAY),)
    flows = ba.flows(told(A_MONTH, known), by=BY)
    assert flows["start"].min() == instant(START + HOUR // 2)
    assert flows["inflow"].notna().all()


def test_flows_of_a_period_that_is_not_known_are_missing():
    table = told(A_MONTH, KNOWN)
    flows = ba.flows(table, freq=None, start=instant(START - DAY), end=instant(START + DAY * 2))
    assert flows["net"].isna().all()
    bounds = {"start": instant(START - DAY), "end": instant(START + DAY)}
    active = ba.flows(table, by="asset_id", layout="wide", value="active", **bounds)
    assert active["VOTE"].isna().tolist() == [True, False]


def test_a_reconciliation_leaves_out_what_is_not_known():
    rows = [
        *((*GENERAL, START + n * DAY, 5 + n) for n in (0, 1, 4)),
        *((*MARGIN, START + n * DAY, 5 - n) for n in (0, 1, 4)),
    ]
    gap = ((START, START + 2 * DAY), (START + 3 * DAY, START + 9 * DAY))
    ledger = table_of([(*GENERAL, START + n * DAY, 1) for n in (1, 2)])
    flows = ledger.rename(columns={"balance": "net"})
    found = ba.reconcile(told(rows, gap), flows)
    assert found["reason"].tolist() == ["no flow"]
    assert found.attrs[ATTRS_KEY]["not_compared"] == 5


@pytest.mark.parametrize(
    "known", [["2023-04-01"], [("2023-04-02", "2023-04-01")], [("soon", "later")]]
)
def test_known_intervals_that_are_none_are_refused(known):
    with pytest.raises(ValueError, match=r"known|start|ISO"):
        ba.to_table(table_of(A_MONTH), known=known)


def test_averages_most_of_which_are_unknown_say_once_why_and_what_helps(caplog):
    table = ba.read_parquet(demo.sample_data() / "changes.parquet")
    assert ba.time_weighted_average(table, freq="MS")["average"].isna().all()
    (record,) = caplog.records
    assert "686 of 686 averages are unknown" in record.getMessage()
    assert "partial=True averages the known part" in record.getMessage()
    found = ba.time_weighted_average(table, freq="MS", partial=True)
    assert found["average"].notna().all()
    assert found["known_share"].between(0, 1, inclusive="right").all()
    assert len(caplog.records) == 1
