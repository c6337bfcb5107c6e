"""Rows removed from a table are noticed; its own selections keep the known intervals."""

import json
import logging
import pickle
from collections import Counter
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.oracle import World
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    OTHER,
    START,
    books,
    disorder,
    gaps,
    instant,
    many_rows,
    opened,
    records,
    table_of,
)
from tests.columns import ATTRS_KEY, note_evidence

A_WEEK = ((START, START + 7 * DAY),)
A_DAY = ((START, START + DAY),)
ROWS = [(*key, START + day * DAY, 5 + day) for key in (GENERAL, MARGIN, OTHER) for day in range(6)]
FUNCTIONS = {
    "deltas": ba.deltas,
    "pictures": lambda table: ba.plot_totals(table[table["asset_id"] == "VOTE"]),
    "reports": lambda table: ba.write_report(table, "x.html", start=at(48), end=at(60)),
}


def at(hour):
    return instant(START + hour * HOUR)


def made(rows=ROWS, known=A_WEEK, *, nothing_before=False):
    """Return a table that notes its rows, as loaded and read tables do."""
    return opened(World(rows, {}, known, nothing_before or known is None))


@contextmanager
def warnings_of_rows():
    """Collect the warnings about removed rows."""
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


def silently(function, *args):
    """Return a function's result, and check that it doesn't warn of lost rows."""
    with warnings_of_rows() as said:
        result = function(*args)
    assert not said
    return result


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_warns_once_that_rows_were_removed(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = made()
    with warnings_of_rows() as said:
        FUNCTIONS[function](table.drop(index=[1, 2, 8]))
    assert len(said) == 1
    assert said[0].startswith("2 accounts lost or gained rows since the table was made")
    assert "table.balances.between(start, end)" in said[0]
    silently(FUNCTIONS[function], table)
    silently(FUNCTIONS[function], table.iloc[6:])


def test_a_mask_in_time_that_drops_all_rows_of_an_account_warns():
    late = [(*OTHER[:2], "c3", "", START + day * DAY, 5) for day in (4, 5)]
    table = made([*ROWS, *late], nothing_before=True)
    with warnings_of_rows() as said:
        ba.totals(table[table["timestamp"] < at(72)])
    assert said[0].startswith("3 accounts lost or gained rows since the table was made")
    assert said[0].endswith(". Sums leave out 1 account that lost all rows")


def counts(table):
    return Counter(row[:4] for row in {*records(table)})


@settings(max_examples=12)
@given(books(openings=False), st.none() | gaps, st.randoms(use_true_random=False), st.data())
def test_any_missing_row_is_noticed_but_missing_whole_accounts_are_not(book, known, rng, data):
    table = made(book[0], known)
    masks = st.lists(st.booleans(), min_size=len(table), max_size=len(table))
    left = table[np.array(data.draw(masks), bool)]
    lost = [account for account, count in counts(left).items() if count < counts(table)[account]]
    with warnings_of_rows() as said:
        ba.deltas(left)
    noted = [text.split(" lost ")[0] for text in said]
    assert noted == [f"{len(lost)} account{'s' * (len(lost) != 1)}"] * bool(lost)
    chosen = {account for account in counts(table) if rng.random() < 0.5}
    is_chosen = np.array([row[:4] in chosen for row in records(table)], bool)
    other = disorder(table, rng)
    deltas, parts = ba.deltas(table), [table[is_chosen], table[~is_chosen]]
    assert records(silently(ba.deltas, parts[0])) == records(deltas[is_chosen])
    assert records(silently(ba.deltas, other)) == records(deltas)
    assert records(silently(ba.deltas, pd.concat(parts[::-1]))) == records(deltas)


def test_an_account_that_lost_as_many_rows_as_it_gained_is_unknown():
    whole = made()
    changed = pd.concat([whole.drop(index=1), table_of([(*GENERAL, START + DAY + HOUR, 6)])])
    assert len(changed) == len(whole)
    with warnings_of_rows() as said:
        balances = ba.balance_at(changed, at(144))["balance"]
    assert said
    assert balances.isna().tolist() == [True, False, False]


def test_rows_removed_from_a_callers_own_table_are_noticed_even_if_nothing_was_stated():
    plain = pd.DataFrame(table_of(ROWS))
    plain.attrs = {}
    whole = ba.to_table(plain)
    account = whole.loc[whole.duplicated(list(ba.ACCOUNT_KEY)), list(ba.ACCOUNT_KEY)].index[0]
    with warnings_of_rows() as said:
        assert ba.balance_at(whole.drop(index=account), at(144))["balance"].isna().any()
        assert (
            ba.balance_at(ba.to_table(whole.drop(index=account)), at(144))["balance"].isna().any()
        )
    assert said
    assert silently(ba.balance_at, ba.to_table(whole), at(144))["balance"].notna().all()


def test_known_intervals_that_a_caller_states_are_believed():
    cut = made()[lambda table: table["timestamp"] >= at(48)]
    table = ba.to_table(cut, known=[(at(0), "2023-05-01")])
    assert silently(ba.balance_at, table, at(144))["balance"].notna().all()


def test_a_selection_knows_no_more_after_it_was_written(tmp_path):
    keys = [("a" * 64, "ACCOUNT_TYPE_GENERAL", party * 64, "") for party in "bc"]
    table = table_of([(*key, START + at, 5) for at, key in enumerate(keys)])
    answer = {"span": (START, START + 10), "node": {"name": "node"}, "asked": (0, 0)}
    note_evidence(table, [(START, START + 10)], {"answers": [answer]})
    ba.write_parquet(table, tmp_path / "x.parquet")
    whole = ba.read_parquet(tmp_path / "x.parquet")
    ba.write_parquet(whole[whole["party_id"] == "b" * 64], tmp_path / "x.parquet")
    mine = ba.read_parquet(tmp_path / "x.parquet")
    assert ba.balance_at(mine, instant(START + 5))["balance"].tolist() == [5]
    assert ba.balance_at(mine, instant(START + 50))["balance"].isna().all()


def test_a_cut_has_the_tables_known_intervals_within_its_own_interval(tmp_path):
    table = made(known=((START, START + 2 * DAY), (START + 3 * DAY, START + 7 * DAY)))
    table.attrs[ATTRS_KEY] |= {"source": "a node", "rows": len(table)}
    cut = table.balances.between(at(24), at(96))
    noted, days = cut.attrs[ATTRS_KEY], [at(24 * day).isoformat() for day in range(5)]
    assert noted["known"] == [[days[0], days[2]], [days[3], days[4]]]
    assert [noted[name] for name in ("source", "rows", "start", "end")] == [
        *("a node", 12),
        *(days[1], days[4]),
    ]
    assert ba.check_table(cut) is None
    ba.write_parquet(cut, tmp_path / "cut.parquet")
    again = ba.read_parquet(tmp_path / "cut.parquet")
    pd.testing.assert_frame_equal(again, cut)
    assert again.attrs == cut.attrs


# Notes of rows


def test_notes_survive_every_way_to_store_or_copy_a_table(tmp_path):
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
        ba.to_table(short.sample(frac=1, random_state=1)),
        ba.deltas(short),
        ba.read_parquet(tmp_path / "ours.parquet"),
        ba.read_parquet(tmp_path / "pandas.parquet"),
    ]
    for each in carried:
        # A file notes that its evidence belongs to a selection.
        noted = {key: x for key, x in each.attrs[ATTRS_KEY].items() if x is not None}
        assert noted == table.attrs[ATTRS_KEY]
        with warnings_of_rows() as said:
            ba.balance_at(each, at(0))
        assert len(said) == 1


def test_a_file_without_a_note_of_its_rows_is_believed_but_its_selections_are_not(tmp_path):
    ba.write_parquet(table_of(ROWS).iloc[::2], tmp_path / "plain.parquet")
    table = ba.read_parquet(tmp_path / "plain.parquet")
    silently(ba.deltas, table)
    with warnings_of_rows() as said:
        ba.deltas(table.iloc[::2])
    assert len(said) == 1


@pytest.mark.parametrize("note", ["?", "AAAA", "3 AAAAAAAAAAA="])
def test_a_made_up_note_breaks_nothing(note):
    table = made()
    table.attrs[ATTRS_KEY]["account_rows"] = note
    assert ba.deltas(table)["delta"].isna().all()


def test_copying_attrs_copies_nothing_that_grows_with_the_table():
    days = [(START + day * DAY, START + day * DAY + HOUR) for day in range(1000)]
    table = made(many_rows(), days)
    noted, copied = table.attrs[ATTRS_KEY], deepcopy(table.attrs)[ATTRS_KEY]
    assert all(copied[name] is noted[name] for name in noted)
    assert len(noted["known"]) == 1000


def test_equal_tables_have_equal_notes_whatever_the_order_of_categories():
    notes = set()
    for order in (1, -1):
        table = table_of(ROWS)
        for name in ba.ACCOUNT_KEY:
            ids = table[name].cat.categories[::order]
            table[name] = table[name].cat.set_categories(["unused", *ids])
        notes.add(ba.to_table(table, nothing_before=True).attrs[ATTRS_KEY]["account_rows"])
    # Of this very text, as files keep it: another process notes the same.
    assert len(notes) == 1
    assert len(notes.pop()) == len("18 ") + 32


# Its own selections


NAMED = {"assets": {"VOTE": {"symbol": "Vote", "decimals": 0}}, "labels": {"b2": "Berta"}}
WORDS = [
    ({"asset_id": "vote"}, {GENERAL, MARGIN}),
    ({"party_ids": "berta"}, {OTHER}),
    ({"account_types": ["margin", "general"], "asset_id": "VOTE"}, {GENERAL, MARGIN}),
]


@pytest.mark.parametrize(("words", "accounts"), WORDS)
def test_a_selection_by_filters_keeps_the_known_intervals(words, accounts):
    table = made()
    table.attrs[ATTRS_KEY] |= NAMED
    some = table.balances.select(**words)
    assert {*counts(some)} == accounts
    assert silently(ba.balance_at, some, at(144))["balance"].notna().all()


@pytest.mark.parametrize(
    "words",
    [
        {"asset_id": "a" * 64},
        {"party_ids": ["b2", "network"]},
        {"market_ids": "Berta"},
        {"account_types": "BOND"},
    ],
)
def test_a_filter_that_matches_nothing_is_an_error_that_names_it(words):
    table = made()
    table.attrs[ATTRS_KEY] |= NAMED
    (word,) = words.values()
    with pytest.raises(ValueError, match=word if isinstance(word, str) else word[-1]) as caught:
        table.balances.select(**words)
    assert "rows have none" not in str(caught.value)


# Tables put together


def parts_of(whole, *days):
    return [whole.balances.between(at(24 * a), at(24 * b)) for a, b in days]


def test_two_concatenated_loads_know_the_gap_between_them():
    parts = parts_of(made(nothing_before=True), (0, 2), (4, 6))
    for joined in (pd.concat(parts), pd.concat(parts[::-1], ignore_index=True)):
        held = ba.balance_at(joined, [at(24 * day + 1) for day in range(6)])
        assert held["balance"].notna().tolist()[:6] == [True, True, False, False, True, True]
        flowed = ba.flows(joined, by="asset_id", layout="wide", start=at(0))
        assert flowed.isna().any(axis=1).tolist()[2:4] == [True, True]


def test_plain_frames_with_stated_intervals_are_concatenated_as_tables():
    whole = made()
    spans = [(0, 2), (4, 6)]
    plain = [pd.DataFrame(part) for part in parts_of(whole, *spans)]
    own = [
        ba.to_table(rows, known=[(at(24 * a), at(24 * b))])
        for rows, (a, b) in zip(plain, spans, strict=True)
    ]
    assert ba.balance_at(pd.concat(own), at(24 * 3 + 1))["balance"].isna().all()


def test_two_adjacent_loads_are_one_unless_one_had_lost_rows():
    whole = made(nothing_before=True)
    first, second = parts_of(whole, (0, 2), (2, 7))
    joined = pd.concat([first, second])
    for function in (ba.deltas, ba.totals):
        assert records(function(joined)) == records(function(whole))
    assert ba.deltas(pd.concat([first.drop(index=0), second]))["delta"].isna().any()
    for parts in ([first], [first, second[["party_id"]]]):
        assert pd.concat(parts).attrs == first.attrs


OWN = pd.DataFrame({"party_id": [OTHER[2]], "desk": "x"})
DESKS = OWN.set_index("party_id")


def beside_ones(table):
    chosen = table[table["party_id"] == OTHER[2]].set_index("timestamp")
    return pd.concat([chosen, pd.Series(1, chosen.index, name="one")], axis=1).reset_index()


MERGES = [
    lambda table: table.merge(OWN),
    lambda table: pd.merge(table, OWN),
    lambda table: table.merge(OWN, how="right"),
    lambda table: table.join(DESKS, on="party_id", how="inner"),
    lambda table: OWN.pipe(table.merge, how="left").dropna(),
    lambda table: table.set_index("party_id").join(DESKS, how="inner").reset_index(),
    lambda table: pd.merge_ordered(table, OWN, on="party_id").dropna(),
    beside_ones,
]


@pytest.mark.parametrize("merge", MERGES)
def test_a_merge_is_a_selection_of_what_it_leaves(merge):
    table = made(known=A_DAY)
    merged, chosen = merge(table), table[table["party_id"] == OTHER[2]]
    assert records(silently(ba.deltas, merged)) == records(ba.deltas(chosen))
    assert ba.balance_at(merged, [at(1), at(25)])["balance"].isna().tolist() == [False, True]
    with warnings_of_rows() as said:
        assert ba.balance_at(merge(table.iloc[::2]), at(1))["balance"].isna().all()
    assert said


def test_of_two_loads_that_are_merged_the_rows_of_the_second_are_not_taken_for_known():
    first, second = parts_of(made(), (0, 2), (4, 6))
    merged = first.merge(second, how="outer")
    assert len(merged) == len(first) + len(second)
    assert ba.balance_at(merged, at(24 * 3 + 1))["balance"].isna().all()


def test_columns_concatenated_beside_a_table_keep_its_known_intervals():
    whole = made()
    other = pd.Series(range(len(whole)), name="place")
    for beside in (other, other.to_frame()):
        assert records(ba.deltas(pd.concat([whole, beside], axis=1))) == records(ba.deltas(whole))
        assert len(pd.concat([whole, whole.iloc[:, :2]], axis=1).columns) == 8


def test_a_cut_keeps_a_callers_own_columns():
    table = made(nothing_before=True)
    table["desk"] = table["party_id"].map({"a1": "east", "b2": "west"})
    part = table.balances.between(at(48), at(96))
    desks = ba.totals(part, by="desk", start=at(48))["desk"]
    assert desks.astype("str").unique().tolist() == ["east", "west"]


PARTS = [
    (*GENERAL[:2], party, "", START + day * DAY, day)
    for party, days in {"a": (1, 2, 12, 32), "b": (3, 22, 31)}.items()
    for day in days
]


def test_a_part_of_selected_accounts_knows_nothing_about_the_others_when_concatenated(caplog):
    whole = made(PARTS, ((START, START + 60 * DAY),), nothing_before=True)
    part, later = parts_of(whole, (30, 40), (40, 60))
    some = whole["party_id"] == "a"
    for chosen in (
        *parts_of(whole[some], (30, 40)),
        part[lambda rows: rows["party_id"] == "a"],
        *parts_of(whole.balances.select(party_ids="a"), (30, 40)),
    ):
        for joined in (pd.concat([chosen, later]), pd.concat([later, chosen])):
            held = ba.balance_at(joined, [at(24 * 32), at(24 * 35)])
            assert held[held["party_id"] == "b"]["balance"].isna().all()
            days = {"start": at(24 * 30), "end": at(24 * 40)}
            assert ba.flows(joined, freq="5D", layout="wide", **days).isna().all(axis=None)
            assert ba.flows(joined, freq=None, by="asset_id", **days)["net"].isna().all()
    assert caplog.text.count("are known only in no interval") == 4


@pytest.mark.parametrize("days", [(30, 40), (20, 30), (40, 60)])
def test_a_part_of_selected_accounts_removes_no_interval_that_a_part_of_all_accounts_knows(
    days, caplog
):
    whole = made(PARTS, ((START, START + 60 * DAY),), nothing_before=True)
    (wide,), moments = parts_of(whole, (20, 45)), [at(24 * day + 1) for day in range(60)]
    truth = ba.balance_at(whole, moments)["balance"]
    is_known = [20 <= day < 45 for day in range(60)] * 2
    (narrow,) = parts_of(whole.balances.select(party_ids="a"), days)
    for joined in (pd.concat([wide, narrow]), pd.concat([narrow, wide])):
        held = ba.balance_at(joined, moments)["balance"]
        assert held[is_known].equals(truth[is_known])
        assert (held.isna() | (held == truth)).all()
    assert ("are known only in" in caplog.text) == (days == (40, 60))
    caplog.clear()
    both = [whole.balances.select(party_ids=party) for party in "ab"]
    held = ba.balance_at(pd.concat(both), moments)["balance"]
    assert held[truth > 0].equals(truth[truth > 0])
    assert not caplog.messages


def test_of_two_parts_with_one_start_the_one_with_openings_gives_the_balances():
    whole = made(PARTS, ((START, START + 60 * DAY),), nothing_before=True)
    (one,) = parts_of(whole, (20, 30))
    days = at(24 * 20), at(24 * 40)
    rows = whole[whole["timestamp"].between(*days)]
    other = ba.to_table(rows, known=[days], start=days[0])
    for joined in (pd.concat([one, other]), pd.concat([other, one])):
        assert ba.balance_at(joined, at(24 * 21))["balance"].tolist() == [12, 3]


# Accounts that sums leave out


SUMS = {
    "totals": lambda table, _: ba.totals(table, by="asset_id"),
    "holders": ba.holders,
    "comparison": lambda table, when: ba.compare(table, (when, when + pd.Timedelta("1h"))),
    "parties": lambda table, _: ba.summarize_parties(table),
    "series of parties": lambda table, _: ba.balance_series(table, by="party_id"),
}
CUTS = {
    "itself": lambda _, part, __: part,
    "of a file": lambda _, part, folder: of_file(part, folder / "part.parquet"),
    "again": lambda _, part, __: part.balances.between(
        part["timestamp"].max() + pd.Timedelta("1h")
    ),
    "selected": lambda _, part, __: part.balances.select(asset_id=OTHER[0]),
    "joined": lambda first, part, _: pd.concat([part, first]),
}


def of_file(table, path):
    ba.write_parquet(table, path)
    return ba.read_parquet(path)


def middle(begin, **how):
    """Return a table that begins in the middle, by default without openings."""
    rows = pd.DataFrame(table_of([(*GENERAL, begin, 1), (*OTHER, begin + DAY, 2)]))
    known = [(instant(begin), instant(begin + 4 * DAY))]
    return ba.to_table(rows, known=known, start=instant(begin), **how)


@pytest.mark.parametrize(
    ("name", "how"), [*product(SUMS, ["itself"]), *product(["totals"], [*CUTS][1:])]
)
def test_sums_without_openings_warn_once_that_quiet_accounts_are_left_out(
    name, how, tmp_path, caplog
):
    # Another table each time.
    begin = START + 2 * DAY + 10 * [*SUMS].index(name) + [*CUTS].index(how)
    table, days = middle(begin), [instant(begin + day * DAY) for day in range(3)]
    first, part = (table.balances.between(*bounds) for bounds in pairwise(days))
    some = CUTS[how](first, part, tmp_path)
    for _ in range(2):
        SUMS[name](some, days[1] + pd.Timedelta("2h"))
    (said,) = [text for text in caplog.messages if "accounts without a change" in text]
    assert said.startswith("accounts without a change since 2023-03-30T10:40")
    assert ("opening=True" in said) == (how == "joined")  # which begins where the table does


def test_sums_with_openings_and_functions_without_sums_dont_warn_about_quiet_accounts(caplog):
    whole, lacking, plain = middle(START, nothing_before=True), middle(START), table_of(ROWS)
    part = whole.balances.between(at(12), at(72))
    joined = pd.concat([lacking.balances.between(at(48)), part])
    for function in SUMS.values():
        for table in (whole, part, joined, plain, plain.balances.between(at(48))):
            function(table, at(50))
    ba.deltas(lacking)
    ba.balance_at(lacking, at(50))
    assert "opening=True" not in caplog.text


@pytest.mark.parametrize(("gaps", "more"), [(1, ""), (3, ""), (5, ", and 2 more")])
def test_sums_over_gaps_warn_that_accounts_of_the_gaps_are_left_out(gaps, more, caplog):
    known = [(START + n * HOUR, START + n * HOUR + HOUR - 1) for n in range(gaps + 1)]
    known[-1] = (known[-1][0], START + 60 * DAY)
    ba.totals(made(known=known, nothing_before=True), by="asset_id")
    (said,) = caplog.messages
    shown = [f"2023-03-28T1{n}:39:59.999999Z to 2023-03-28T1{n}:40Z" for n in range(1, gaps + 1)]
    assert said.startswith(f"accounts that changed only in {', '.join(shown[:3])}{more} are left")


def test_sums_also_warn_about_rows_after_the_known_intervals_and_without_any(caplog):
    known = ((START, START + HOUR),)
    ba.totals(made(known=known, nothing_before=True), by="asset_id")
    assert caplog.messages[0].startswith("accounts that changed only in 2023-03-28T11:40Z to ")
    caplog.clear()
    ba.totals(ba.to_table(table_of(ROWS), known=[]), by="asset_id")
    assert caplog.messages == ["accounts without a row are left out: nothing is known of them"]


@pytest.mark.parametrize(("function", "days"), [(ba.totals, 60), (ba.flows, 61)])
def test_sums_warn_that_accounts_whose_rows_were_all_set_aside_are_left_out(function, days, caplog):
    stranger = ("VOTE", "ACCOUNT_TYPE_BOND", "z9", "")
    accounts = (stranger, ROWS[0][:4], ROWS[0][:4])
    bad = tuple(((START + n, START + n + 1), account) for n, account in enumerate(accounts))
    world = World(ROWS, {}, ((START, START + days * DAY),), nothing_before=True, bad=bad)
    function(opened(world), by="asset_id")
    assert caplog.messages == ["accounts whose rows were all set aside as bad are left out (1 row)"]
    legend = ba.plot_flows(opened(world).balances.select(asset_id="VOTE")).get_legend()
    assert "accounts with bad\nrows only" in legend.get_title().get_text()


def test_rows_before_a_stated_start_are_in_no_flow_of_a_party():
    rows = [(*GENERAL, START + day * DAY, day) for day in range(5)]
    table = ba.to_table(table_of(rows), known=[(at(0), at(144))], start=at(60))
    early = {"start": at(0), "end": at(50)}
    assert ba.flows(table, by="party_id", internal=True, **early).empty
    for by in ("party_id", [*ba.ACCOUNT_KEY]):
        summary = ba.summarize_parties(table, by=by, **early)
        assert summary[["accounts", "rows", "changes"]].to_numpy().tolist() == [[1, 0, 0]]
    flows = ba.flows(table, by="party_id", internal=True, start=at(0), end=at(144))
    assert flows[["inflow", "internal", "changes"]].to_numpy().tolist() == [[1, 0, 1]] * 2
