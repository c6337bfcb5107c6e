"""A comparison is of what both sides prove, says what else there is, and calls nothing else same.

The oracle looks at every tick by itself.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.filters import Filters
from tests.cli.running import run
from tests.moments import from_microseconds
from tests.proof.histories import (
    ACCOUNTS,
    FORMS,
    ORIGINS,
    PARTIES,
    START,
    TICK,
    TICKS,
    TRUTH,
    Held,
    at,
    held,
)

FIRST, LAST = from_microseconds(START), from_microseconds(at(TICKS))
WHOLE = Held(TRUTH, ((0, TICKS, 1, True),), (), Filters())


def ticks_of(moments):
    """Return the ticks that lie in intervals."""
    return {t for t in range(TICKS) for a, b in moments if a <= from_microseconds(at(t)) < b}


def shared_ticks(ours, theirs):
    both = ours.filters.intersection(theirs.filters)
    if both is None:
        return set()
    return {
        tick
        for tick in range(TICKS)
        if ours.state(tick, both) == theirs.state(tick, both) == "complete"
    }


def known_rows(side, ticks, filters):
    return {
        (account, tick): balance
        for (account, tick), balance in side.balances.items()
        if tick in ticks and filters is not None and filters.selects(account)
    }


def differences(ours, theirs):
    return {x for x in ours.keys() | theirs.keys() if ours.get(x) != theirs.get(x)}


def found_in(rows):
    kinds = {(True, False): "removed", (False, True): "added", (True, True): "changed"}
    there = zip(rows["balance"].notna(), rows["other_balance"].notna(), strict=True)
    assert [*rows["change"]] == [kinds[each] for each in there]
    times = (rows["timestamp"].astype("int64") - START) // TICK
    ids = rows[list(ba.ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None)
    return {*zip(ids, times.tolist(), strict=True)}


@settings(max_examples=25, deadline=None)
@given(ours=held(), theirs=held(), forms=st.tuples(*[st.sampled_from(FORMS)] * 2), data=st.data())
def test_what_is_shared_and_what_differs_is_what_a_look_at_each_tick_shows(
    tmp_path_factory, ours, theirs, forms, data
):
    folder = tmp_path_factory.mktemp("diff")
    (folder / "one").mkdir()
    (folder / "other").mkdir()
    start, end = sorted(data.draw(st.sets(st.integers(-1, TICKS + 1), min_size=2, max_size=2)))
    found = ba.diff(
        ours.write(folder / "one", forms[0]),
        theirs.write(folder / "other", forms[1]),
        start=from_microseconds(at(start)),
        end=from_microseconds(at(end)),
    )
    asked = {*range(max(start, 0), min(end, TICKS))}
    shared, both = shared_ticks(ours, theirs) & asked, ours.filters.intersection(theirs.filters)
    mine, its = (known_rows(side, shared, both) for side in (ours, theirs))

    assert ticks_of(found.shared) == shared
    assert found.compared == (len(mine), len(its))
    assert found_in(found.rows) == differences(mine, its)
    assert sum(json.loads(found.to_json())["rows"].values()) == len(differences(mine, its))
    is_all = all(
        tick in shared for tick in asked for side in (ours, theirs) if side.answer(tick) is not None
    )
    assert found.is_same == (
        bool(shared) and is_all and ours.filters == theirs.filters and mine == its
    )
    for moments, *states in found.not_shared:
        for tick in ticks_of([moments]):
            assert states == [ours.state(tick), theirs.state(tick)]
            assert tick not in shared
    if found.is_same:
        assert not found.not_shared


@settings(max_examples=15, deadline=None)
@given(ours=held(origins=(0, 1, 2)), theirs=held(origins=(0, 1, 2)), form=st.sampled_from(FORMS))
def test_only_what_another_origin_has_of_all_accounts_is_confirmed(
    tmp_path_factory, ours, theirs, form
):
    folder = tmp_path_factory.mktemp("confirm")
    (folder / "other").mkdir()
    archive = ours.write(folder, "day")
    shared, both = shared_ticks(ours, theirs), ours.filters.intersection(theirs.filters)
    mine, its = (known_rows(side, shared, both) for side in (ours, theirs))
    common = [place for place in mine if mine[place] == its.get(place)]
    before = archive.coverage()
    try:
        ba.confirm(archive, theirs.write(folder / "other", form))
    except ba.NetworkMismatchError:
        assert (bool(mine), bool(its), common) == (True, True, [])
        assert archive.coverage().equals(before)
        return
    assert common or not (mine and its)
    status = archive.status()
    disputed = {tick for _, tick in differences(mine, its)}
    is_of_all = both == ours.filters.sorted()
    confirmed = {
        tick
        for tick in shared - disputed
        if is_of_all and common and ours.state(tick) == "complete"
        for one, other in [(ORIGINS[ours.answer(tick)[2]], ORIGINS[theirs.answer(tick)[2]])]
        if one and other and not one & other
    }
    assert ticks_of(status.confirmed) == confirmed
    assert ticks_of(status.disputed) == disputed
    assert bool([*folder.glob("a/_disputes/*")]) == bool(disputed)


def spoilt(side, place):
    return replace(side, balances={**side.balances, place: -1})


def test_a_dispute_takes_confirmed_away_and_an_older_answer_does_not_give_it_back(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    other = replace(WHOLE, answers=((0, TICKS, 2, True),))
    (tmp_path / "o").mkdir()
    place = (ACCOUNTS[0], 4)
    ba.confirm(archive, other.write(tmp_path / "o", "table"))
    assert archive.status().confirmed == ((FIRST, LAST),)
    assert len(ba.confirm(archive, spoilt(other, place).write(tmp_path / "o", "table")).rows) == 1
    status = archive.status()
    assert ticks_of(status.confirmed) == {*range(TICKS)} - {4}
    assert ticks_of(status.disputed) == {4}
    # Nor does its own node, which disputes too.
    ba.confirm(archive, other.write(tmp_path / "o", "table"))
    ba.confirm(archive, spoilt(WHOLE, place).write(tmp_path / "o", "table"))
    assert ticks_of(archive.status().confirmed) == {*range(TICKS)} - {4}


def test_a_frame_that_states_nothing_is_compared_with_nothing_and_the_cure_is_named(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    table.attrs = {}
    found = ba.diff(archive, table)
    assert (found.shared, found.compared, found.is_same) == ((), (0, 0), False)
    assert "ba.to_table(frame, known=[(start, end)])" in str(found)
    stated = ba.to_table(table, known=[(FIRST, LAST)])
    assert ba.diff(archive, stated).is_same
    assert ba.diff(stated, archive).is_same
    assert not ba.diff(
        archive, ba.to_table(table, known=[(FIRST, from_microseconds(at(5)))])
    ).is_same
    less = ba.to_table(table.drop(index=[3]), known=[(FIRST, LAST)])
    assert len(ba.diff(archive, less).rows) == 1
    ba.confirm(archive, stated)
    assert not archive.status().confirmed


def test_a_selection_of_a_tables_rows_proves_nothing_in_whatever_file(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    one = table[table["party_id"] == PARTIES[0]]
    ba.write_parquet(one, tmp_path / "ours.parquet")
    one.to_parquet(tmp_path / "pandas.parquet")
    ba.write_parquet(table, tmp_path / "whole.parquet")
    assert ba.diff(archive, tmp_path / "whole.parquet").is_same
    rows = pq.read_table(tmp_path / "whole.parquet")
    pq.write_table(rows.slice(1), tmp_path / "arrow.parquet")
    again = ba.read_parquet(tmp_path / "arrow.parquet")
    ba.write_parquet(again, tmp_path / "again.parquet")
    cut = one.balances.between()
    names = ["ours", "pandas", "arrow", "again"]
    for side in [one, again, cut, *(tmp_path / f"{name}.parquet" for name in names)]:
        assert ba.diff(archive, side).shared == ()
    assert ba.read_parquet(tmp_path / "ours.parquet").attrs["balance_analysis"]["known"]


def test_a_cut_of_a_table_is_proven_for_its_interval_alone(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    middle = from_microseconds(at(5))
    cut = archive.read().balances.between(middle)
    found = ba.diff(archive, cut)
    assert found.shared == ((middle, LAST),)
    assert found.not_shared == (((FIRST, middle), "complete", "missing"),)
    assert ba.diff(archive, cut, start=middle).is_same


def test_what_was_compared_is_said_and_the_exit_code_goes_by_it(tmp_path):
    (tmp_path / "other").mkdir()
    WHOLE.write(tmp_path, "day")
    archive = tmp_path / "a"
    party = replace(WHOLE, filters=Filters(party_ids=(PARTIES[0],)))
    party = replace(party, balances={x: y for x, y in TRUTH.items() if x[0][2] == PARTIES[0]})
    other = party.write(tmp_path / "other", "file")
    said = run("diff", archive, other, code=3).stdout
    assert f"other accounts than party_id {PARTIES[0]}: the first has all accounts" in said
    assert "no difference in what both have" in said
    assert f"({len(party.balances)} and {len(party.balances)} rows compared)" in said
    said = run("diff", archive, archive, "--since=2022-01-01", "--until=2022-02-01", code=3).stdout
    assert "nothing was compared" in said
    said = run("diff", archive, archive).stdout
    assert "the same" in said
    content = json.loads(run("diff", archive, other, "--format=json", code=3).stdout)
    all_accounts = {"asset_id": None, "party_ids": [], "market_ids": [], "account_types": []}
    assert content["filters"] == {**all_accounts, "party_ids": [PARTIES[0]]}
    assert content["accounts"] == [all_accounts, content["filters"]]


def test_a_side_with_two_rows_of_one_account_and_time_is_refused(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    twice = table.iloc[[*range(len(table)), 3]]
    with pytest.raises(ba.CheckError, match="two rows"):
        ba.diff(archive, twice)
