from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    DAY,
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    amount,
    dtypes_of,
    expected_dtypes,
    instant,
    opening_frame,
    records,
    table_of,
)
from tests.analysis.test_gaps import POINTS, cases, told
from tests.analysis.test_parties import groupings, with_asset
from tests.columns import empty_table, note_known

moments = st.sampled_from(POINTS)


def ranked(levels, names):
    """Return the rows of a comparison, of {account: (before, after)}."""
    members_of = {}
    for key, pair in levels.items():
        group = tuple(key[oracle.KEY.index(name)] for name in names)
        members_of.setdefault(group, []).append(pair)
    found = []
    for group, members in sorted(members_of.items()):
        counts = len(members), sum(None in pair for pair in members)
        before, after = (None if None in side else sum(side) for side in zip(*members, strict=True))
        if before is None or after is None:
            found.append((*group, before, after, None, None, "unknown", *counts))
            continue
        change = after - before
        state = "same" if not change else "new" if not before else "changed" if after else "gone"
        percent = 100 * change / abs(before) if before else None
        found.append((*group, before, after, change, percent, state, *counts))
    place, size = names.index("asset_id"), len(names) + 2
    return sorted(found, key=lambda row: (row[place], row[size] is None, -abs(row[size] or 0)))


@given(cases(), moments, moments, groupings)
def test_two_moments_differ_as_a_loop_over_accounts_says(case, one, other, by):
    rows, opening, known = case
    table, opening_balances = told(rows, known), opening_frame(opening)
    found = ba.compare(table, at=(instant(one), instant(other)), by=by, opening=opening_balances)
    names = with_asset(by)
    levels = {
        key: (account.told(one)[0], account.told(other)[0])
        for key, account in oracle.book(rows, opening, known).items()
    }
    assert records(found) == ranked(levels, names)
    assert dtypes_of(found) == {
        **expected_dtypes(names, amounts=["before", "after", "change"]),
        "change_percent": "float64",
        "state": "category",
        "accounts": "int64",
        "unknown": "int64",
    }


@given(st.tuples(cases(), moments), st.tuples(cases(), moments), groupings, st.booleans())
def test_tables_and_their_balances_at_moments_compare_alike(one, other, by, at_once):
    pairs = [one, other]
    tables = [told(rows, known) for (rows, _, known), _ in pairs]
    held = [ba.balance_at(table, instant(at)) for table, (_, at) in zip(tables, pairs, strict=True)]
    books = [oracle.book(rows, None, known) for (rows, _, known), _ in pairs]
    levels = {
        key: tuple(
            book[key].told(at)[0] if key in book else None
            for book, (_, at) in zip(books, pairs, strict=True)
        )
        for key in {*books[0], *books[1]}
    }
    how = {"at": (instant(one[1]), instant(other[1]))} if at_once else {}
    found = ba.compare(*(tables if at_once else held), by=by, **how)
    assert records(found) == ranked(levels, with_asset(by))


TABLE = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 7), (*MARGIN, START + DAY, 1)])


def test_a_table_is_taken_at_the_end_of_what_it_knows():
    later = table_of([(*GENERAL, START + 2 * DAY, 0), (*OTHER, START, 4)])
    found = ba.compare(TABLE, later)
    assert records(found[["before", "after", "change", "change_percent", "state"]]) == [
        (7, 0, -7, -100.0, "gone"),
        (1, None, None, None, "unknown"),
        (None, 4, None, None, "unknown"),
    ]


def test_an_account_that_began_where_everything_is_known_is_new():
    table = TABLE.copy()
    note_known(table, [(START - DAY, START + 9 * DAY)], nothing_before=True)
    at = (instant(START), instant(START + DAY))
    found = ba.compare(table, at=at)
    assert found["state"].tolist() == ["changed", "new"]
    assert found["change"].tolist() == [2, 1]
    before, after = (ba.balance_at(table, when) for when in at)
    pd.testing.assert_frame_equal(ba.compare(before, after), found)
    alone = before[before["account_type"] == "ACCOUNT_TYPE_GENERAL"]
    pd.testing.assert_frame_equal(ba.compare(alone, after), found)


def test_amounts_in_whole_units_keep_the_percent():
    at = (instant(START), instant(START + DAY))
    found = ba.compare(TABLE, at=at, units={"VOTE": 1})
    assert found["change"].iloc[0] == pytest.approx(0.2)
    assert found["change_percent"].iloc[0] == pytest.approx(40)


def test_desks_are_compared_by_a_column_of_the_table():
    table = TABLE.assign(desk="east")
    found = ba.compare(table, at=(instant(START), instant(START + DAY)), by="desk")
    assert (found["desk"].tolist(), amount(found["after"].iloc[0])) == (["east"], 8)
    assert pd.isna(found["before"].iloc[0])


def test_what_can_not_be_compared_is_refused():
    with pytest.raises(ValueError, match="two tables, or a table at="):
        ba.compare(TABLE)
    with pytest.raises(ValueError, match="at must be two moments"):
        ba.compare(TABLE, at="2023-04-01")
    with pytest.raises(TypeError, match="loses digits"):
        ba.compare(ba.balance_at(TABLE, instant(START), units={"VOTE": 0}), TABLE)
    with pytest.raises(ValueError, match="no column balance"):
        ba.compare(TABLE[[*ba.ACCOUNT_KEY]], TABLE)
    huge = [table_of([(*GENERAL, START, sign * LARGEST)]) for sign in (-1, 1)]
    with pytest.raises(OverflowError, match=r"the change of asset_id='VOTE'.* 38 digits"):
        ba.compare(*huge)
    assert ba.compare(empty_table(), empty_table()).empty
