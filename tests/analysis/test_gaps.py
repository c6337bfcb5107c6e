from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.spans import joined
from tests.analysis import oracle
from tests.analysis.tables import (
    BEGIN,
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    START,
    amount,
    books,
    instant,
    moment,
    opened,
    records,
    table_of,
)
from tests.columns import ATTRS_KEY, known_of, note_known

POINTS = range(START - 3, START + 17)
EDGES = st.integers(START - 2, START + 15)
BY = ["asset_id", "account_type"]
FLOWS = ("inflow", "outflow", "net", "changes", "active", "unknown")

FROM = st.integers(BEGIN - 10, BEGIN + 2) | EDGES
intervals = st.lists(st.tuples(FROM, FROM).filter(lambda pair: pair[0] < pair[1]), max_size=3).map(
    lambda pairs: tuple(joined(pairs))
)


@st.composite
def cases(draw):
    """Draw rows, openings, and known intervals, maybe none."""
    rows, opening = draw(books())
    return rows, opening, draw(intervals)


def told(rows, known):
    """Return a table whose attrs tell what is known."""
    table = table_of(rows)
    note_known(table, known)
    return table


def since_start(known):
    """Return the known intervals in which the table has every change."""
    return tuple((max(begin, BEGIN), end) for begin, end in known if end > BEGIN)


def moments(times):
    return [instant(time) for time in times]


@settings(max_examples=12)
@given(cases())
def test_a_balance_is_known_as_long_as_every_change_would_be_seen(case):
    rows, opening, known = case
    found = ba.balance_at(opened(rows, opening, known), moments(POINTS))
    expected = [
        (*key, when, *account.told(when))
        for key, account in oracle.book(rows, opening, known).items()
        for when in POINTS
    ]
    assert records(found) == expected


@settings(max_examples=12)
@given(cases(), st.integers(1, 4))
def test_a_series_is_unknown_where_a_change_may_be_missing(case, step):
    rows, opening, known = case
    options = {"start": instant(POINTS[0]), "end": instant(POINTS[-1]), "freq": f"{step}us"}
    table = opened(rows, opening, known)
    found = ba.balance_series(table, layout="long", **options)
    accounts = oracle.book(rows, opening, known).items()
    points = range(POINTS[0], POINTS[-1], step)
    assert records(found) == [
        (*key, when, account.told(when)[0], account.state(when))
        for key, account in accounts
        for when in points
    ]
    wide = ba.balance_series(table, **options)
    for key, account in accounts:
        assert [amount(value) for value in wide[key]] == [account.told(when)[0] for when in points]


@settings(max_examples=12)
@given(cases(), st.integers(1, 7))
def test_averages_ranges_and_flows_are_of_what_is_known(case, step):
    rows, opening, known = case
    options = {"start": instant(POINTS[0]), "end": instant(POINTS[-1]), "freq": f"{step}us"}
    table, accounts = opened(rows, opening, known), oracle.book(rows, opening, known)
    edges = [*range(POINTS[0], POINTS[-1], step), POINTS[-1]]
    periods = list(pairwise(edges))
    averages, parts, ranges = [], [], []
    for key, account in accounts.items():
        for start, end in periods:
            exact = account.average(start, end)
            averages.append(None if exact is None else oracle.half_even(exact))
            pieces = account.known(start, end)
            length = sum(right - left for left, right, _ in pieces)
            held = sum((right - left) * level for left, right, level in pieces)
            part = oracle.half_even(Fraction(held, length)) if pieces else None
            parts.append((*key, start, end, part, length / (end - start)))
            levels = [level for _, _, level in account.known(start, end)]
            low, high = min(levels, default=None), max(levels, default=None)
            ranges.append(
                (*key, start, end, account.level(start), high, low, account.level(end - 1))
            )
    assert [amount(x) for x in ba.time_weighted_average(table, **options)["average"]] == averages
    assert records(ba.time_weighted_average(table, partial=True, **options)) == parts
    assert records(ba.ohlc(table, **options)) == ranges

    flows, cells = [], {}
    anyone = oracle.Account((), intervals=since_start(known))
    for group, members in oracle.groups(accounts, BY).items():
        for start, end in periods:
            inside = oracle._deltas_in(members, start, end)
            *sums, changes = oracle._flow_of(inside)
            if not anyone.sees_all(start, end - 1):
                sums = [None] * 3
            active = sum(any(oracle._deltas_in([one], start, end)) for one in members)
            counts = [changes, active, inside.count(None)]
            if inside:
                flows.append((*group, start, end, *sums, *counts))
            elif sums[0] is None:
                counts = [None] * 3
            if not changes and None in inside:
                sums = [None] * 3
            cells[group, start] = dict(zip(FLOWS, (*sums, *counts), strict=True))
    assert records(ba.flows(table, by=BY, **options)) == flows
    for value in FLOWS:
        wide = ba.flows(table, by=BY, layout="wide", value=value, **options)
        assert wide.index.equals(pd.DatetimeIndex(moments(start for start, _ in periods)))
        assert (wide.index.name, [*wide.columns.names]) == ("start", BY)
        assert {
            (group, start): amount(wide[group].iloc[place])
            for group in wide.columns
            for place, (start, _) in enumerate(periods)
        } == {cell: flow[value] for cell, flow in cells.items()}


@settings(max_examples=12)
@given(cases(), st.integers(1, 5))
def test_totals_count_what_may_have_changed_as_unknown(case, step):
    rows, opening, known = case
    table = opened(rows, opening, known)
    members_of = oracle.groups(oracle.book(rows, opening, known), BY)
    points = range(POINTS[0], POINTS[-1], step)
    bounds = {"start": instant(POINTS[0]), "end": instant(POINTS[-1])}
    found = ba.totals(table, by=BY, freq=f"{step}us", **bounds)
    assert records(found) == [
        (*group, when, *oracle.total_at(members, when))
        for group, members in members_of.items()
        for when in points
    ]
    at_changes = ba.totals(table, by=BY, **bounds)
    assert records(at_changes) == [
        (*group, when, *oracle.total_at(members, when))
        for group, members in members_of.items()
        for when in sorted({POINTS[0], *(t for each in members for t, _ in each.changes)})
    ]


@settings(max_examples=12)
@given(cases(), EDGES, EDGES)
def test_summaries_tell_of_the_known_part(case, one, other):
    rows, opening, known = case
    start, end = min(one, other), max(one, other) + 1
    bounds = {"start": instant(start), "end": instant(end)}
    found = ba.summarize_accounts(opened(rows, opening, known), **bounds)
    accounts = oracle.book(rows, opening, known)
    assert len(found) == len(accounts)
    is_whole = oracle.Account((), intervals=since_start(known)).sees_all(start, end - 1)
    for row, account in zip(found.to_dict("records"), accounts.values(), strict=True):
        expected = oracle._summary(account, start, end)
        if not is_whole:
            before, after = expected["opening"], expected["closing"]
            is_told = before is not None and after is not None
            expected |= {"inflow": None, "outflow": None}
            expected["net"] = after - before if is_told else None
        for name, value in expected.items():
            if name.endswith(("seen", "_at")):
                assert moment(row[name]) == value, name
            elif name == "zero_share":
                assert row[name] == pytest.approx(value) or (value is None and pd.isna(row[name]))
            else:
                assert amount(row[name]) == value, name


@settings(max_examples=12)
@given(cases())
def test_a_delta_over_a_gap_is_unknown(case):
    rows, opening, known = case
    found = ba.deltas(opened(rows, opening, known))
    assert records(found) == [
        (*key, *change)
        for key, account in oracle.book(rows, opening, known).items()
        for change in account.deltas()
    ]


@settings(max_examples=12)
@given(cases())
def test_a_drawdown_behind_a_gap_is_unknown(case):
    rows, opening, known = case
    found = ba.drawdown(opened(rows, opening, known))
    steady = ba.drawdown(opened(rows, opening))
    expected = []
    for account in oracle.book(rows, opening, known).values():
        is_behind = False
        for n, (time, _) in enumerate(account.changes):
            follows = n > 0 or account.held is not None
            is_behind |= follows and account.level(time - 1) is None
            expected.append(not is_behind)
    assert found["peak"].notna().tolist() == expected
    assert found["depth"][expected].tolist() == steady["depth"][expected].tolist()


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


def test_conservation_and_reconciliation_leave_out_what_is_not_known():
    rows = [
        *((*GENERAL, START + n * DAY, 5 + n) for n in (0, 1, 4)),
        *((*MARGIN, START + n * DAY, 5 - n) for n in (0, 1, 4)),
    ]
    gap = ((START, START + 2 * DAY), (START + 3 * DAY, START + 9 * DAY))
    assert len(ba.check_conservation(table_of(rows)).moves) == 1
    report = ba.check_conservation(told(rows, gap))
    assert report.moves["timestamp"].tolist() == [instant(START)]
    assert report.blocks == 2
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
