"""Rows that were taken out of a table are noticed; a cut in time says what it knows."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.known import note_known, note_rows
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    OTHER,
    START,
    books,
    disorder,
    instant,
    many_rows,
    opening_frame,
    records,
    table_of,
)
from tests.analysis.test_gaps import BY, cases
from tests.columns import ATTRS_KEY

A_WEEK = ((START, START + 7 * DAY),)
ROWS = [(*key, START + day * DAY, 5 + day) for key in (GENERAL, MARGIN, OTHER) for day in range(6)]
FUNCTIONS = {
    "deltas": ba.deltas,
    "flows": ba.flows,
    "summaries": ba.summarize_accounts,
    "averages": lambda table, **how: ba.time_weighted_average(table, freq="1D", **how),
    "totals": ba.totals,
    "series": lambda table, **how: ba.balance_series(table, layout="long", **how),
    "balances": lambda table, **how: ba.balance_at(table, instant(START + 3 * DAY), **how),
    "candles": lambda table, **how: ba.ohlc(table, freq="1D", **how),
    "drawdowns": ba.drawdown,
    "comparison": lambda table, **how: ba.compare(
        table, (instant(START + DAY), instant(START + 3 * DAY)), **how
    ),
    "shares": lambda table, **how: ba.share(table, instant(START + 3 * DAY), **how),
    "holders": lambda table, **how: ba.concentration(table, instant(START + 3 * DAY), **how),
    "conservation": lambda table, **how: ba.check_conservation(table, **how).moves,
    "flow pictures": lambda table, **how: ba.plot_flows(only_vote(table), **how),
    "balance pictures": lambda table, **how: ba.plot_balances(only_vote(table), **how),
    "total pictures": lambda table, **how: ba.plot_totals(only_vote(table), **how),
    "pictures of holders": lambda table, **how: ba.plot_concentration(only_vote(table), **how),
    "activity pictures": ba.plot_activity,
}
SELECTIONS = {
    "every other row": lambda table: table.iloc[::2],
    "the first rows": lambda table: table.head(len(table) - 2),
    "those before a moment": lambda table: table[table["timestamp"] < instant(START + 3 * DAY)],
    "those from a moment on": lambda table: table[table["timestamp"] >= instant(START + 2 * DAY)],
    "a sample": lambda table: table.sample(frac=0.7, random_state=1),
    "all but one": lambda table: table.drop(index=table.index[3]),
    "parts together": lambda table: pd.concat([table.iloc[:4], table.iloc[5:]]),
    "some of them twice": lambda table: pd.concat([table.iloc[::2], table.iloc[::2]]),
}


def only_vote(table):
    return table[table["asset_id"] == "VOTE"]


def made(rows=ROWS, known=A_WEEK, *, nothing_before=False):
    """Return a table that notes its rows, as all do that are loaded or read."""
    table = table_of(rows)
    if known is not None:
        note_known(table, known, nothing_before=nothing_before)
    note_rows(table)
    return table


@contextmanager
def told_rows():
    """Collect what is told of rows that were taken out."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger = logging.getLogger("balance_analysis")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        said[:] = [text for text in said if "table lost" in text]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_tells_once_that_rows_were_taken_out(function):
    table = made()
    with told_rows() as said:
        FUNCTIONS[function](table.drop(index=[1, 2, 8]))
    assert len(said) == 1
    assert said[0].startswith("the table lost 3 rows of 2 accounts since it was made")
    assert "cut, opening = table.balances.between(start, end)" in said[0]
    with told_rows() as said:
        FUNCTIONS[function](table)
        FUNCTIONS[function](table.iloc[6:])
    assert not said


@pytest.mark.parametrize("selection", SELECTIONS)
def test_of_rows_that_others_were_taken_from_each_is_known_at_its_own_moment_only(selection):
    cut = SELECTIONS[selection](made(nothing_before=True))
    held = {(*row[:4], row[4]): row[5] for row in records(cut)}
    moments = [START - 1, *(START + hours * HOUR for hours in range(0, 150, 12))]
    with told_rows() as said:
        found = ba.balance_at(cut, [instant(at) for at in moments])
        changed = ba.deltas(cut)
        flowed = ba.flows(cut, layout="wide")
        average = ba.time_weighted_average(cut, freq="1D")
    assert len(said) == 4
    assert all(row[5] == held.get((*row[:4], row[4])) for row in records(found))
    assert changed["delta"].isna().all()
    assert flowed.isna().all(axis=None)
    assert average["average"].isna().all()


def test_an_opening_is_not_assumed_to_hold_up_to_rows_that_others_were_taken_from():
    cut = made().drop(index=1)
    opening = opening_frame({GENERAL: (1, None)})
    assert ba.deltas(cut, opening=opening)["delta"].isna().all()


def test_who_states_what_is_known_is_taken_at_his_word():
    cut = SELECTIONS["those from a moment on"](made())
    with told_rows() as said:
        found = ba.balance_at(cut, instant(START + 6 * DAY), known=[(instant(START), "2023-05-01")])
    assert not said
    assert found["balance"].notna().all()


@settings(max_examples=20, deadline=None)
@given(cases(), st.randoms(use_true_random=False), st.booleans())
def test_a_selection_of_whole_accounts_is_silent_and_exact(case, rng, nothing_before):
    rows, _, known = case
    table = made(rows, known, nothing_before=nothing_before)
    keys = list(dict.fromkeys(row[:4] for row in rows))
    chosen = set(rng.sample(keys, rng.randint(0, len(keys))))
    is_chosen = np.array([row[:4] in chosen for row in records(table)], bool)
    parts = [table[is_chosen], table[~is_chosen]]
    plain = made([row for row in rows if row[:4] in chosen], known, nothing_before=nothing_before)
    other = disorder(table, rng)
    other.attrs = table.attrs
    with told_rows() as said:
        assert records(ba.deltas(parts[0])) == records(ba.deltas(plain))
        assert records(ba.deltas(other)) == records(ba.deltas(table))
        assert records(ba.deltas(pd.concat(parts[::-1]))) == records(ba.deltas(table))
    assert not said


@settings(max_examples=20, deadline=None)
@given(books(), st.data())
def test_any_row_that_is_missing_is_noticed(book, data):
    rows, _ = book
    table = made(rows, None)
    kept = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
    left = table[np.array(kept, bool)]
    sizes, now = (Counter(row[:4] for row in records(each)) for each in (table, left))
    lost = [sizes[account] - now[account] for account in now if sizes[account] > now[account]]
    with told_rows() as said:
        ba.deltas(left)
    told = [text.removeprefix("the table lost ").split(" since ")[0] for text in said]
    assert told == [words(sum(lost), len(lost))] * bool(lost)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=2, max_size=4, unique=True), st.data())
def test_a_row_that_is_missing_is_noticed_whatever_other_accounts_were_called(parties, data):
    rows = [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", party, "", START + day * DAY, day + place)
        for place, party in enumerate(parties)
        for day in range(4)
    ]
    table, party = made(rows), data.draw(st.sampled_from(parties))
    whole = table[table["party_id"] == party]
    with told_rows() as said:
        assert ba.balance_at(whole, instant(START + 6 * DAY))["balance"].notna().all()
        assert not said
        left = whole[whole["timestamp"] < instant(START + 2 * DAY)]
        assert ba.balance_at(left, instant(START + 6 * DAY))["balance"].isna().all()
    assert len(said) == 1


@settings(max_examples=20, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_an_opening_of_all_accounts_says_nothing_of_those_that_a_selection_left_out(case, rng):
    rows, _, known = case
    table = made(rows, known)
    times = sorted({row[4] for row in rows}) or [START]
    cut, opening = table.balances.between(instant(times[len(times) // 2]), instant(times[-1] + 1))
    keys = list(dict.fromkeys(row[:4] for row in records(cut)))
    chosen = set(rng.sample(keys, rng.randint(0, len(keys))))
    some = cut[np.array([row[:4] in chosen for row in records(cut)], bool)]
    at = instant(times[-1])
    expected = {row[:4]: row[4] for row in records(ba.balance_at(cut, at, opening=opening))}
    found = {row[:4]: row[4] for row in records(ba.balance_at(some, at, opening=opening))}
    assert found == {key: held for key, held in expected.items() if key in found}
    assert found.keys() & {*keys} == chosen


def test_what_pandas_wrote_of_a_selection_is_noticed_when_it_is_read(tmp_path):
    table, path = made(), tmp_path / "x.parquet"
    table.iloc[::2].to_parquet(path)
    with told_rows() as said:
        assert ba.deltas(ba.read_parquet(path))["delta"].isna().all()
    assert len(said) == 1
    table[table["account_type"] == GENERAL[1]].to_parquet(path)
    with told_rows() as said:
        assert ba.deltas(ba.read_parquet(path))["delta"].notna().sum() == 10
    assert not said


def words(rows, accounts):
    return f"{rows} row{'s' * (rows != 1)} of {accounts} account{'s' * (accounts != 1)}"


@settings(max_examples=10)
@given(cases(), st.booleans(), st.booleans(), st.data())
def test_what_is_made_of_a_cut_with_its_opening_is_what_is_made_of_the_whole(
    case, is_told, nothing_before, data
):
    rows, opening, known = case
    whole = made(rows, known if is_told else None, nothing_before=nothing_before and is_told)
    bounds = st.integers(min(known, default=(START,))[0], START + 14)
    start = data.draw(bounds)
    end = data.draw(st.integers(start + 1, START + 16))
    before = opening_frame(opening)
    cut, opened = whole.balances.between(instant(start), instant(end), opening=before)
    assert_same(whole, before, cut, opened, start, end)
    # And so of a cut of a cut.
    middle = data.draw(st.integers(start, end - 1))
    part, held = cut.balances.between(instant(middle), None, opening=opened)
    assert_same(cut, opened, part, held, middle, end)


def assert_same(whole, before, cut, opened, *bounds):
    start, end = bounds
    bounds = {"start": instant(start), "end": instant(end)}
    changed = ba.deltas(whole, opening=before)
    inside = changed["timestamp"].between(*bounds.values(), inclusive="left")
    with told_rows() as said:
        assert records(ba.deltas(cut, opening=opened)) == records(changed[inside])
        for function, how in (
            (ba.flows, {"freq": "2us"}),
            (ba.flows, {"freq": None, "by": "asset_id"}),
            (ba.time_weighted_average, {"freq": "3us"}),
            (ba.summarize_accounts, {}),
            (ba.totals, {"by": BY}),
            (ba.totals, {"by": BY, "freq": "1us"}),
            (ba.balance_series, {"freq": "1us", "layout": "long"}),
        ):
            found = function(cut, opening=opened, **bounds, **how)
            expected = function(whole, opening=before, **bounds, **how)
            left_out = ["state"] if "state" in found else []
            assert records(found.drop(columns=left_out)) == records(expected.drop(columns=left_out))
        moments = [instant(at) for at in range(start, end)]
        found, expected = (
            ba.balance_at(table, moments, opening=held)
            for table, held in ((whole, before), (cut, opened))
        )
        assert records(found) == records(expected)
    assert not said


def test_a_cut_knows_the_part_of_what_the_whole_knows_and_tells_its_own_interval(tmp_path):
    table = made(known=((START, START + 2 * DAY), (START + 3 * DAY, START + 7 * DAY)))
    table.attrs[ATTRS_KEY] |= {"source": "a node", "rows": len(table)}
    cut, _ = table.balances.between(instant(START + DAY), instant(START + 4 * DAY))
    told = cut.attrs[ATTRS_KEY]
    days = [instant(START + day * DAY).isoformat() for day in range(5)]
    assert told["known"] == [[days[1], days[2]], [days[3], days[4]]]
    assert (told["source"], told["rows"], told["start"], told["end"]) == (
        *("a node", 9),
        *(days[1], days[4]),
    )
    assert ba.check_table(cut) is None
    ba.write_parquet(cut, tmp_path / "cut.parquet")
    again = ba.read_parquet(tmp_path / "cut.parquet")
    pd.testing.assert_frame_equal(again, cut)
    assert again.attrs == cut.attrs


# What is noted


def test_what_is_noted_survives_whatever_carries_a_table(tmp_path):
    table = made()
    short = table.iloc[1:]
    ba.write_parquet(short, tmp_path / "ours.parquet")
    short.to_parquet(tmp_path / "pandas.parquet")
    assert pa.table(short).num_rows == len(short)
    assert json.loads(short.to_json(orient="table", default_handler=str))["data"]
    assert json.loads(json.dumps(short.attrs)) == table.attrs
    carried = [
        short.copy(),
        pickle.loads(pickle.dumps(short)),
        pd.concat([short.iloc[:4], short.iloc[4:]]),
        ba.to_table(short),
        ba.deltas(short),
        ba.read_parquet(tmp_path / "ours.parquet"),
    ]
    for each in carried:
        # A file says that its evidence is that of a selection.
        noted = {key: x for key, x in each.attrs["balance_analysis"].items() if x is not None}
        assert noted == table.attrs["balance_analysis"]
        with told_rows() as said:
            ba.balance_at(each, instant(START))
        assert len(said) == 1


def test_a_file_that_notes_no_rows_is_taken_at_its_word_and_its_selections_are_not(tmp_path):
    plain = table_of(ROWS)
    ba.write_parquet(plain.iloc[::2], tmp_path / "plain.parquet")
    table = ba.read_parquet(tmp_path / "plain.parquet")
    with told_rows() as said:
        ba.deltas(table)
    assert not said
    with told_rows() as said:
        ba.deltas(table.iloc[::2])
    assert len(said) == 1


@pytest.mark.parametrize("note", ["?", "AAAA", "AAAAAAAAAAA="])
def test_a_note_that_others_made_up_breaks_nothing(note):
    table = made()
    table.attrs[ATTRS_KEY]["account_rows"] = note
    assert ba.deltas(table.iloc[::2])["delta"].notna().any()


def test_copies_of_attrs_copy_nothing_that_grows_with_the_table():
    days = [(START + day * DAY, START + day * DAY + HOUR) for day in range(1000)]
    table = made(many_rows(), days)
    told, copied = table.attrs[ATTRS_KEY], deepcopy(table.attrs)[ATTRS_KEY]
    assert all(copied[name] is told[name] for name in told)
    assert len(told["known"]) == 1000


def test_equal_tables_note_the_same_whatever_the_order_of_categories():
    notes = set()
    for order in (1, -1):
        table = table_of(ROWS)
        for name in ba.ACCOUNT_KEY:
            ids = table[name].cat.categories[::order]
            table[name] = table[name].cat.set_categories(["unused", *ids])
        note_rows(table)
        notes.add(table.attrs[ATTRS_KEY]["account_rows"])
    # Of this very text, as files keep it: another process notes the same.
    assert len(notes) == 1
    assert len(notes.pop()) == 32


def test_a_report_tells_once_that_rows_were_taken_out_and_shows_nothing_as_known(tmp_path):
    with told_rows() as said:
        ba.write_report(made().drop(index=1), tmp_path / "report.html")
    assert len(said) == 1
    with told_rows() as said:
        ba.write_report(made(), tmp_path / "report.html", start=instant(START + 2 * DAY))
    assert not said
