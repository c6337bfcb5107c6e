"""A bad row that was set aside makes unknown what it may have changed, and nothing else."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive.layout import period_of
from balance_analysis.evidence import Answer, Evidence, Node, SetAside
from balance_analysis.known import note_evidence, note_rows, table_evidence
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    OTHER,
    START,
    arrow_from,
    records,
    table_of,
)
from tests.archive.writing import begin
from tests.moments import from_microseconds

NODE = Node("http://node", frozenset({"1.1.1.1:80"}))
END = START + 10 * DAY
ROWS = [
    (*GENERAL, START + DAY, 5),
    (*GENERAL, START + 6 * DAY, 9),
    (*MARGIN, START + DAY, 100),
    (*MARGIN, START + 5 * DAY, 130),
    (*OTHER, START + 2 * DAY, 7),
]
BAD = START + 3 * DAY


def table_with(*set_aside, rows=ROWS, span=(START, END), from_first_block=False):
    """Return a table whose evidence has bad rows."""
    table = table_of(rows)
    answers = (Answer(span, NODE, (span[1], span[1])),)
    evidence = Evidence(answers=answers, set_aside=set_aside, from_first_block=from_first_block)
    note_evidence(table, evidence)
    return table


def known_of(table):
    return [
        tuple(pd.Timestamp(x) for x in span) for span in table.attrs["balance_analysis"]["known"]
    ]


def at(table, moment):
    """Return the balance of each account at a moment, in microseconds; `None` is unknown."""
    found = ba.balance_at(table, from_microseconds(moment))
    keys = found[list(ba.ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None)
    levels = [None if pd.isna(x) else int(x) for x in found["balance"]]
    return dict(zip(keys, levels, strict=True))


@pytest.fixture
def table():
    return table_with(SetAside((BAD, BAD + 1), GENERAL))


def test_its_moment_is_no_known_one(table):
    moment = from_microseconds(BAD)
    assert known_of(table) == [
        (from_microseconds(START), moment),
        (moment + pd.Timedelta(1, "us"), from_microseconds(END)),
    ]


def test_sums_count_it_as_unknown_from_then_on(table):
    bounds = {"start": from_microseconds(START), "end": from_microseconds(END)}
    totals = ba.totals(table, by="asset_id", freq="1D", **bounds)
    series = ba.balance_series(table, freq="1D", layout="long", **bounds)
    series["unknown"] = series["balance"].isna()
    expected = series.groupby(["asset_id", "timestamp"], observed=True)["unknown"].sum()
    found = totals.set_index(["asset_id", "timestamp"])["unknown"]
    assert found.to_dict() == expected.to_dict()
    assert found["VOTE"].tolist() == [2, 0, 0, 1, 1, 1, 0, 0, 0, 0]


def test_the_delta_of_its_next_row_is_unknown_and_all_others_known(table):
    deltas = ba.deltas(table).set_index([*ba.ACCOUNT_KEY, "timestamp"])["delta"]
    assert pd.isna(deltas[(*GENERAL, from_microseconds(START + 6 * DAY))])
    assert deltas[(*MARGIN, from_microseconds(START + 5 * DAY))] == 30


def test_flows_are_unknown_when_it_may_have_moved_something_and_of_no_other_account(table):
    bounds = {"start": from_microseconds(START + 3 * DAY), "end": from_microseconds(END)}
    by = [*ba.ACCOUNT_KEY]
    wide = ba.flows(table, freq="1D", by=by, layout="wide", value="net", **bounds)
    net = {key: [None if pd.isna(x) else int(x) for x in wide[key]] for key in wide}
    assert net == {
        GENERAL: [None, 0, 0, None, 0, 0, 0],
        MARGIN: [0, 0, 30, 0, 0, 0, 0],
        OTHER: [0] * 7,
    }
    whole = ba.flows(table, freq=None, by=by, **bounds).set_index(by)
    assert whole["unknown"].to_dict() == {GENERAL: 1, MARGIN: 0}
    assert whole["net"].isna().to_dict() == {GENERAL: True, MARGIN: False}
    summary = ba.summarize_accounts(table, **bounds).set_index(by)
    assert summary["inflow"].isna().to_dict() == {GENERAL: True, MARGIN: False, OTHER: False}
    active = ba.flows(table, by=["account_type"], layout="wide", value="active", **bounds)
    assert active["VOTE", MARGIN[1]].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert active["VOTE", GENERAL[1]].isna().tolist() == [True] + [False] * 6


@pytest.mark.parametrize("account", [GENERAL, None])
@pytest.mark.parametrize("moment", [BAD - 1, BAD, BAD + 1, START + 6 * DAY, END])
def test_an_archive_explains_what_its_table_knows(tmp_path, account, moment):
    table = table_with(SetAside((BAD, BAD + 1), account))
    archive, writer = ba.Archive(tmp_path), begin(tmp_path, "month")
    for month in ("2023-03", "2023-04"):
        rows = [row for row in ROWS if period_of(row[4], "month") == month]
        writer.commit(month, arrow_from(table_of(rows)), table_evidence(table))
    when = from_microseconds(moment)
    known = at(table, moment)
    found = ba.balance_at(archive, when)
    levels = [None if pd.isna(x) else int(x) for x in found["balance"]]
    keys = found[list(ba.ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None)
    assert dict(zip(keys, levels, strict=True)) == known
    assert {key: archive.explain(key, at=when).balance for key in known} == known


@pytest.mark.parametrize("account", [GENERAL, None])
def test_a_bad_row_of_the_first_block_leaves_nothing_said_of_what_is_behind_it(account):
    """Before its first good row an account may hold what the bad row said."""
    table = table_with(SetAside((START, START + 1), account), from_first_block=True)
    assert at(table, START + DAY - 1)[GENERAL] is None
    assert at(table, START + DAY)[GENERAL] == 5
    assert at(table, START + DAY - 1)[MARGIN] == (0 if account else None)


spans = st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda x: (x[0], x[0] + x[1]))
rows = st.dictionaries(
    st.tuples(st.sampled_from([GENERAL, MARGIN]), st.integers(0, 39)), st.integers(0, 9), max_size=9
)


@given(
    rows, st.lists(st.tuples(spans, st.sampled_from([GENERAL, MARGIN, OTHER, None])), max_size=3)
)
def test_a_balance_is_known_where_no_bad_row_may_be_between_its_row_and_then(held, bad):
    lines = [(*key, START + at * HOUR, level) for (key, at), level in sorted(held.items())]
    aside = [SetAside((START + a * HOUR, START + b * HOUR), who) for (a, b), who in bad]
    table = table_with(*aside, rows=lines, span=(START, START + 40 * HOUR))
    moments = [from_microseconds(START + hour * HOUR) for hour in range(41)]
    for *key, time, level, _ in records(ba.balance_at(table, moments)):
        account, moment = tuple(key), (time - START) // HOUR
        since = max((x for who, x in held if who == account and x <= moment), default=None)
        own = [span for span, who in bad if who in (account, None)]
        is_known = since is not None and (
            since == moment or not any(a <= moment and since < b for a, b in own)
        )
        assert level == (held[account, since] if is_known else None)


@pytest.mark.parametrize("bounds", [(2, 8), (4, 10), (0, 3)])
def test_a_cut_has_the_evidence_of_its_interval_and_no_more(table, bounds):
    start, end = (START + days * DAY for days in bounds)
    cut = table.balances.between(from_microseconds(start), from_microseconds(end))
    evidence = table_evidence(cut)
    whole = table_evidence(table)
    assert evidence == whole.within(start, end)
    for moment in (start, BAD, end - 1):
        if start <= moment < end:
            found = ba.balance_at(cut, from_microseconds(moment))
            expected = ba.balance_at(table, from_microseconds(moment))
            merged = found.merge(expected, on=[*ba.ACCOUNT_KEY], suffixes=("", "_whole"))
            assert (
                merged["balance"].astype(str).tolist()
                == merged["balance_whole"].astype(str).tolist()
            )
    late = ba.balance_at(cut, from_microseconds(end + DAY))
    assert late["balance"].isna().all()


def test_a_selection_that_was_written_knows_no_more_than_before(tmp_path):
    key, other = (
        ("a" * 64, "ACCOUNT_TYPE_GENERAL", "b" * 64, ""),
        ("a" * 64, "ACCOUNT_TYPE_GENERAL", "c" * 64, ""),
    )
    table = table_of([(*key, START, 5), (*other, START + 1, 7)])
    note_evidence(table, Evidence(answers=(Answer((START, START + 10), Node("x"), (0, 0)),)))
    note_rows(table)
    ba.write_parquet(table[table["party_id"] == "b" * 64], tmp_path / "x.parquet")
    mine = ba.read_parquet(tmp_path / "x.parquet")
    assert ba.balance_at(mine, from_microseconds(START + 5))["balance"].tolist() == [5]
    assert ba.balance_at(mine, from_microseconds(START + 50))["balance"].isna().all()
