"""Rows that were taken out of a table are noticed; its own selections keep what it knows."""

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
    cases,
    disorder,
    instant,
    many_rows,
    opened,
    records,
    table_of,
)
from tests.analysis.test_gaps import BY
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
    "holders": lambda table, **how: ba.holders(table, instant(START + 3 * DAY), **how),
    "comparison": lambda table: ba.compare(table, at=(instant(START), instant(START + DAY))),
    "flow pictures": lambda table, **how: ba.plot_flows(only_vote(table), **how),
    "balance pictures": lambda table, **how: ba.plot_balances(only_vote(table), **how),
    "total pictures": lambda table, **how: ba.plot_totals(only_vote(table), **how),
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
def warnings_of_rows():
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
        said[:] = [text for text in said if "lost or gained rows" in text]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_tells_once_that_rows_were_taken_out(function):
    table = made()
    with warnings_of_rows() as said:
        FUNCTIONS[function](table.drop(index=[1, 2, 8]))
    assert len(said) == 1
    assert said[0].startswith("2 accounts lost or gained rows since the table was made")
    assert "table.balances.between(start, end)" in said[0]
    with warnings_of_rows() as said:
        FUNCTIONS[function](table)
        FUNCTIONS[function](table.iloc[6:])
    assert not said


def counts(table):
    return Counter(row[:4] for row in {*records(table)})


@pytest.mark.parametrize("selection", SELECTIONS)
def test_an_account_that_lost_rows_is_known_at_the_rows_that_are_left_only(selection):
    whole = made(nothing_before=True)
    cut = SELECTIONS[selection](whole)
    held = {(*row[:4], row[4]): row[5] for row in records(cut)}
    kept = {account for account, count in counts(cut).items() if count == counts(whole)[account]}
    moments = [START - 1, *(START + hours * HOUR for hours in range(0, 150, 12))]
    true = {row[:5]: row[5] for row in records(ba.balance_at(whole, [*map(instant, moments)]))}
    with warnings_of_rows() as said:
        found = ba.balance_at(cut, [instant(at) for at in moments])
        changed = ba.deltas(cut)
        flowed = ba.flows(cut, layout="wide", by=ba.ACCOUNT_KEY)
        average = ba.time_weighted_average(cut, freq="1D")
        total = ba.totals(cut, by=ba.ACCOUNT_KEY, freq="12h", start=instant(START))
    assert len(said) == 5
    for row in records(found):
        assert row[5] == (true[row[:5]] if row[:4] in kept else held.get(row[:5]))
    for frame, column in ((changed, "delta"), (average, "average")):
        known = frame[frame[column].notna()]
        assert {row[:4] for row in records(known[ba.ACCOUNT_KEY])} <= kept
    assert {*flowed.columns[flowed.notna().any()]} <= kept
    for *account, when, amount, _, _ in records(total):
        expected = held.get((*account, when))
        assert tuple(account) in kept or amount == expected


def test_an_account_that_lost_as_many_rows_as_it_gained_is_unknown():
    whole = made()
    other = table_of([(*GENERAL, START + DAY + HOUR, 6)])
    changed = pd.concat([whole.drop(index=1), other])
    assert len(changed) == len(whole)
    with warnings_of_rows() as said:
        found = ba.balance_at(changed, instant(START + 6 * DAY))
    assert said
    assert found["balance"].isna().tolist() == [True, False, False]


def test_who_states_what_is_known_is_taken_at_his_word():
    cut = SELECTIONS["those from a moment on"](made())
    table = ba.to_table(cut, known=[(instant(START), "2023-05-01")])
    with warnings_of_rows() as said:
        found = ba.balance_at(table, instant(START + 6 * DAY))
    assert not said
    assert found["balance"].notna().all()


@settings(max_examples=10, deadline=None)
@given(cases, st.randoms(use_true_random=False), st.booleans())
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
    with warnings_of_rows() as said:
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
    lost = [account for account, count in counts(left).items() if count < counts(table)[account]]
    with warnings_of_rows() as said:
        ba.deltas(left)
    noted = [text.split(" lost ")[0] for text in said]
    assert noted == [f"{len(lost)} account{'s' * (len(lost) != 1)}"] * bool(lost)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=2, max_size=4, unique=True), st.data())
def test_a_row_that_is_missing_is_noticed_whatever_other_accounts_were_called(parties, data):
    rows = [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", party, "", START + day * DAY, day + place)
        for place, party in enumerate(parties)
        for day in range(4)
    ]
    table, party = made(rows), data.draw(st.sampled_from(parties))
    whole = table[table["party_id"] == party]
    with warnings_of_rows() as said:
        assert ba.balance_at(whole, instant(START + 6 * DAY))["balance"].notna().all()
        assert not said
        left = whole[whole["timestamp"] < instant(START + 2 * DAY)]
        assert ba.balance_at(left, instant(START + 6 * DAY))["balance"].isna().all()
    assert len(said) == 1


def test_what_pandas_wrote_of_a_selection_is_noticed_when_it_is_read(tmp_path):
    table, path = made(), tmp_path / "x.parquet"
    table.iloc[::2].to_parquet(path)
    with warnings_of_rows() as said:
        assert ba.deltas(ba.read_parquet(path))["delta"].isna().all()
    assert len(said) == 1
    table[table["account_type"] == GENERAL[1]].to_parquet(path)
    with warnings_of_rows() as said:
        assert ba.deltas(ba.read_parquet(path))["delta"].notna().sum() == 10
    assert not said


@settings(max_examples=6)
@given(cases, st.booleans(), st.booleans(), st.data())
def test_functions_give_the_same_of_an_interval_with_openings_as_of_the_whole(
    case, is_stated, nothing_before, data
):
    rows, opening, known = case
    whole = opened(
        rows,
        opening,
        known if is_stated else None,
        nothing_before=nothing_before and is_stated,
    )
    bounds = st.integers(START, START + 14)
    start = data.draw(bounds)
    end = data.draw(st.integers(start + 1, START + 16))
    cut = whole.balances.between(instant(start), instant(end))
    assert_same(whole, cut, start, end)
    # And so of an interval of an interval.
    middle = data.draw(st.integers(start, end - 1))
    assert_same(cut, cut.balances.between(instant(middle), None), middle, end)


def assert_same(whole, cut, *bounds):
    start, end = bounds
    bounds = {"start": instant(start), "end": instant(end)}
    changed = ba.deltas(whole)
    inside = changed["timestamp"].between(*bounds.values(), inclusive="left")
    with warnings_of_rows() as said:
        assert records(ba.deltas(cut)) == records(changed[inside])
        for function, how in (
            (ba.flows, {"freq": "2us"}),
            (ba.flows, {"freq": None, "by": "asset_id"}),
            (ba.time_weighted_average, {"freq": "3us"}),
            (ba.summarize_accounts, {}),
            (ba.totals, {"by": BY}),
            (ba.totals, {"by": BY, "freq": "1us"}),
            (ba.balance_series, {"freq": "1us", "layout": "long"}),
        ):
            found, expected = function(cut, **bounds, **how), function(whole, **bounds, **how)
            left_out = ["state"] if "state" in found else []
            there = there_by(whole, end)
            expected = expected.drop(columns=left_out)
            if {*ba.ACCOUNT_KEY} <= {*expected}:
                expected = expected[[row[:4] in there for row in records(expected[ba.ACCOUNT_KEY])]]
            elif len(there) < len(counts(whole)):
                continue  # accounts that come later count as unknown in the whole
            assert records(found.drop(columns=left_out)) == records(expected)
        moments = [instant(at) for at in range(start, end)]
        expected = [row for row in records(ba.balance_at(whole, moments)) if row[:4] in there]
        assert records(ba.balance_at(cut, moments)) == expected
    assert not said


def there_by(table, end):
    """Return the accounts that have a row before a moment."""
    return {row[:4] for row in records(table) if row[4] < end}


def test_openings_are_no_changes_and_the_first_change_after_one_has_its_delta():
    whole = made()
    cut = whole.balances.between(instant(START + 2 * DAY), instant(START + 4 * DAY))
    assert len(cut) == 9
    assert ba.deltas(cut)["delta"].tolist() == [1] * 6
    flowed = ba.flows(cut, freq=None)
    assert flowed[["net", "changes", "unknown"]].to_numpy().tolist() == [[2, 2, 0]] * 3
    assert ba.summarize_accounts(cut)["rows"].tolist() == [2, 2, 2]


def test_an_opening_behind_a_gap_leaves_the_balance_at_the_start_unknown():
    rows = [(*GENERAL, START - 5 * DAY, 3), (*MARGIN, START - DAY, 4), (*MARGIN, START + DAY, 5)]
    known = [(instant(START - 2 * DAY), instant(START + 3 * DAY))]
    table = ba.to_table(table_of(rows), start=instant(START), known=known)
    held = ba.balance_at(table, instant(START))
    assert records(held[["account_type", "balance"]]) == [(GENERAL[1], None), (MARGIN[1], 4)]
    total = ba.totals(table, by="asset_id", freq="1D", start=instant(START))
    assert records(total[["total", "known", "unknown"]])[0] == (4, 1, 1)


def test_a_cut_knows_the_part_of_what_the_whole_knows_and_tells_its_own_interval(tmp_path):
    table = made(known=((START, START + 2 * DAY), (START + 3 * DAY, START + 7 * DAY)))
    table.attrs[ATTRS_KEY] |= {"source": "a node", "rows": len(table)}
    cut = table.balances.between(instant(START + DAY), instant(START + 4 * DAY))
    told = cut.attrs[ATTRS_KEY]
    days = [instant(START + day * DAY).isoformat() for day in range(5)]
    assert told["known"] == [[days[0], days[2]], [days[3], days[4]]]
    assert (told["source"], told["rows"], told["start"], told["end"]) == (
        *("a node", 12),
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
        with warnings_of_rows() as said:
            ba.balance_at(each, instant(START))
        assert len(said) == 1


def test_a_file_that_notes_no_rows_is_taken_at_its_word_and_its_selections_are_not(tmp_path):
    plain = table_of(ROWS)
    ba.write_parquet(plain.iloc[::2], tmp_path / "plain.parquet")
    table = ba.read_parquet(tmp_path / "plain.parquet")
    with warnings_of_rows() as said:
        ba.deltas(table)
    assert not said
    with warnings_of_rows() as said:
        ba.deltas(table.iloc[::2])
    assert len(said) == 1


@pytest.mark.parametrize("note", ["?", "AAAA", "3 AAAAAAAAAAA="])
def test_a_note_that_others_made_up_breaks_nothing(note):
    table = made()
    table.attrs[ATTRS_KEY]["account_rows"] = note
    assert ba.deltas(table)["delta"].isna().all()


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
    assert len(notes.pop()) == len("18 ") + 32


def test_a_report_tells_once_that_rows_were_taken_out_and_shows_nothing_as_known(tmp_path):
    with warnings_of_rows() as said:
        ba.write_report(made().drop(index=1), tmp_path / "report.html")
    assert len(said) == 1
    with warnings_of_rows() as said:
        ba.write_report(made(), tmp_path / "report.html", start=instant(START + 2 * DAY))
    assert not said


# Its own selections


NAMED = {
    "assets": {"VOTE": {"symbol": "Vote", "decimals": 0}},
    "labels": {"b2": "Berta"},
}
WORDS = [
    ({"asset_id": "VOTE"}, {GENERAL, MARGIN}),
    ({"asset_id": "vote"}, {GENERAL, MARGIN}),
    ({"party_ids": "berta"}, {OTHER}),
    ({"party_ids": ["b2"]}, {OTHER}),
    ({"account_types": "margin"}, {MARGIN}),
    ({"account_types": ["margin", "general"], "asset_id": "VOTE"}, {GENERAL, MARGIN}),
]


@pytest.mark.parametrize(("words", "accounts"), WORDS)
def test_a_selection_by_words_keeps_what_the_table_knows(words, accounts):
    table = made()
    table.attrs[ATTRS_KEY] |= NAMED
    some = table.balances.select(**words)
    assert {*counts(some)} == accounts
    with warnings_of_rows() as said:
        held = ba.balance_at(some, instant(START + 6 * DAY))
    assert not said
    assert held["balance"].notna().all()


@pytest.mark.parametrize(
    "words",
    [
        {"asset_id": "a" * 64},
        {"asset_id": "tUSD"},
        {"party_ids": "f" * 64},
        {"party_ids": ["b2", "network"]},
        {"market_ids": "Berta"},
        {"account_types": "BOND"},
    ],
)
def test_a_word_that_stands_for_nothing_is_an_error_that_names_it(words):
    table = made()
    table.attrs[ATTRS_KEY] |= NAMED
    (word,) = words.values()
    with pytest.raises(ValueError, match=word if isinstance(word, str) else word[-1]):
        table.balances.select(**words)


# Tables put together


def test_two_loads_with_a_hole_between_them_know_the_hole():
    whole = made(nothing_before=True)
    parts = [
        whole.balances.between(instant(START + a * DAY), instant(START + b * DAY))
        for a, b in ((0, 2), (4, 6))
    ]
    for joined in (pd.concat(parts), pd.concat(parts[::-1], ignore_index=True)):
        days = [instant(START + day * DAY + HOUR) for day in range(6)]
        held = ba.balance_at(joined, days)
        known = held["balance"].notna().tolist()[:6]
        assert known == [True, True, False, False, True, True]
        flowed = ba.flows(joined, by="asset_id", layout="wide", start=instant(START))
        assert flowed.isna().any(axis=1).tolist()[2:4] == [True, True]


def test_two_loads_that_meet_are_one():
    whole = made(nothing_before=True)
    middle = instant(START + 2 * DAY)
    parts = [
        whole.balances.between(instant(START), middle),
        whole.balances.between(middle, instant(START + 7 * DAY)),
    ]
    joined = pd.concat(parts)
    assert records(ba.deltas(joined)) == records(ba.deltas(whole))
    assert records(ba.totals(joined)) == records(ba.totals(whole))


def test_rows_that_a_part_had_lost_before_it_was_joined_stay_unknown():
    whole = made(nothing_before=True)
    middle = instant(START + 2 * DAY)
    parts = [
        whole.balances.between(instant(START), middle).drop(index=0),
        whole.balances.between(middle, instant(START + 7 * DAY)),
    ]
    assert ba.deltas(pd.concat(parts))["delta"].isna().any()


def test_columns_put_beside_a_table_leave_what_it_knows():
    whole = made()
    other = pd.Series(range(len(whole)), name="place")
    for beside in (other, other.to_frame()):
        wide = pd.concat([whole, beside], axis=1)
        assert records(ba.deltas(wide)) == records(ba.deltas(whole))
        assert len(pd.concat([whole, whole.iloc[:, :2]], axis=1).columns) == 8


@pytest.mark.parametrize("known", [A_WEEK, None])
def test_a_party_of_an_account_that_lost_rows_is_unknown(known):
    cut = made(known=known).drop(index=[1])
    how = {"by": "party_id", "start": instant(START + HOUR)}
    held = ba.balance_series(cut, freq="36h", layout="long", **how)
    assert {row[1] for row in records(held) if row[3] is not None} == {"b2"}
    candles = ba.ohlc(cut, "36h", **how)
    assert {row[1] for row in records(candles) if row[7] is not None} == {"b2"}


SUMS = {
    "totals": lambda table: ba.totals(table, by="asset_id"),
    "holders": lambda table: ba.holders(table, instant(START + DAY)),
    "comparison": lambda table: ba.compare(table, at=(instant(START), instant(START + DAY))),
    "parties": ba.summarize_parties,
    "series of parties": lambda table: ba.balance_series(table, by="party_id"),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_a_table_that_begins_in_the_middle_say_once_that_quiet_accounts_are_left_out(
    name, caplog
):
    moment = START + DAY + 1_000_000 * [*SUMS].index(name)  # another table for each function
    whole = made(known=[(START - DAY, moment + DAY)])
    middle = [(instant(moment), instant(moment + DAY))]
    rows = whole[whole["timestamp"] >= instant(moment)]
    table = ba.to_table(rows, known=middle, start=instant(moment))
    for _ in range(2):
        SUMS[name](table)
    said = [text for text in caplog.messages if "opening=True" in text]
    assert len(said) == 1
    assert "accounts without a change since 2023-03-29" in said[0]
    caplog.clear()
    SUMS[name](whole.balances.between(instant(moment), instant(moment + DAY)))
    SUMS[name](made(nothing_before=True))
    SUMS[name](table_of(ROWS))
    ba.deltas(table)
    ba.balance_at(table, instant(moment))
    assert not [text for text in caplog.messages if "opening=True" in text]


HOURS = {"a": (1, 2, 12, 32), "b": (3, 22, 31)}


def hours(known=((0, 20), (30, 60)), parties=HOURS, start=0, **how):
    """Return a table of hours, of parties that have rows in some of them."""
    rows = [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", party, "", START + hour * HOUR, hour)
        for party, all_hours in parties.items()
        for hour in all_hours
    ]
    spans = [(instant(START + a * HOUR), instant(START + b * HOUR)) for a, b in known]
    return ba.to_table(table_of(rows), known=spans, start=instant(START + start * HOUR), **how)


def at(hour):
    return instant(START + hour * HOUR)


def test_a_part_of_chosen_accounts_knows_nothing_of_the_others_when_it_is_put_beside_them():
    whole = hours([(0, 60)], nothing_before=True)
    some = whole["party_id"] == "a"
    later = whole.balances.between(at(40), at(60))
    for part in (
        whole[some].balances.between(at(30), at(40)),
        whole.balances.between(at(30), at(40))[lambda rows: rows["party_id"] == "a"],
        whole.balances.select(party_ids="a").balances.between(at(30), at(40)),
    ):
        for joined in (pd.concat([part, later]), pd.concat([later, part])):
            held = ba.balance_at(joined, [at(32), at(35)])
            assert held[held["party_id"] == "b"]["balance"].isna().all()
            flowed = ba.flows(joined, freq="5h", start=at(30), end=at(40), layout="wide")
            assert flowed.isna().all(axis=None)
            assert (
                ba.flows(joined, freq=None, by="asset_id", start=at(30), end=at(35))["net"]
                .isna()
                .all()
            )


def test_of_two_parts_with_one_start_that_with_openings_says_what_was_held():
    whole = hours([(0, 60)], nothing_before=True)
    one = whole.balances.between(at(20), at(30))
    other = ba.to_table(
        whole[(whole["timestamp"] >= at(20)) & (whole["timestamp"] < at(40))],
        known=[(at(20), at(40))],
        start=at(20),
    )
    for joined in (pd.concat([one, other]), pd.concat([other, one])):
        assert records(ba.balance_at(joined, at(21))[["balance"]]) == [(12,), (3,)]


def test_sums_over_a_gap_say_that_accounts_of_the_gap_are_left_out(caplog):
    ba.totals(hours(nothing_before=True), by="asset_id")
    (said,) = caplog.messages
    assert said.startswith("accounts that changed only in 2023-03-29T06:40Z to 2023-03-29T16:40Z")


def test_an_interval_with_openings_begins_at_its_start():
    part = hours([(0, 60)], {"a": (1, 15)}, nothing_before=True).balances.between(at(10), at(20))
    found = ba.time_weighted_average(part)
    assert records(found[["start", "end", "average"]]) == [
        (START + 10 * HOUR, START + 20 * HOUR, 8)
    ]
    assert ba.summarize_accounts(part)["minimum"].tolist() == [1]
    assert ba.flows(part, freq=None)["start"].tolist() == [at(10)]


def test_an_interval_keeps_the_columns_of_ones_own():
    table = hours([(0, 60)], nothing_before=True)
    table["desk"] = table["party_id"].map({"a": "east", "b": "west"})
    part = table.balances.between(at(20), at(40))
    assert ba.totals(part, by="desk", start=at(20))["desk"].astype("str").unique().tolist() == [
        "east",
        "west",
    ]
    assert records(ba.deltas(part)[["delta"]]) == [(20,), (19,), (9,)]


def test_flows_of_an_account_that_is_known_to_be_quiet_are_zero_even_if_its_balance_is_unknown():
    table = hours([(0, 20), (30, 50)], {"a": (10,)}, start=40)
    found = ba.summarize_accounts(table, start=at(40), end=at(50))
    assert records(found[["opening", "inflow", "outflow", "net"]]) == [(None, 0, 0, 0)]
