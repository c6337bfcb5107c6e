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
    START,
    amount,
    cases,
    dtypes_of,
    expected_dtypes,
    instant,
    opened,
    records,
    table_of,
)
from tests.analysis.test_gaps import POINTS
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


@given(cases, moments, moments, groupings)
def test_two_moments_differ_as_a_loop_over_accounts_says(case, one, other, by):
    rows, opening, known = case
    table = opened(rows, opening, known)
    one, other = sorted([one, other])
    at = (instant(one), instant(other))
    if one == other:
        with pytest.raises(ValueError, match="the earlier one first"):
            ba.compare(table, at, by=by)
        return
    found = ba.compare(table, at, by=by)
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


TABLE = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 7), (*MARGIN, START + DAY, 1)])
DAYS = (instant(START), instant(START + DAY))
PARTIES = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{number}", "") for number in range(3)]


def moved(levels):
    """Return the comparison of two days of accounts, {account: (before, after)}."""
    rows = [
        (*key, START + day * DAY, held)
        for key, pair in levels.items()
        for day, held in enumerate(pair)
    ]
    return ba.compare(table_of(rows), DAYS)


def test_changes_of_one_size_stand_in_the_order_of_accounts():
    found = moved({PARTIES[2]: (4, 0), PARTIES[0]: (4, 8), PARTIES[1]: (4, 0)})
    assert found["party_id"].tolist() == ["p0", "p1", "p2"]


def test_changes_are_told_apart_by_the_last_of_38_digits():
    found = moved({PARTIES[0]: (0, LARGEST - 1), PARTIES[1]: (0, LARGEST)})
    assert found["party_id"].tolist() == ["p1", "p0"]


def test_what_was_taken_in_and_paid_out_again_is_no_change():
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate((5, 9, 5))])
    found = ba.compare(table, (instant(START), instant(START + 2)))
    assert found["state"].tolist() == ["same"]


def test_an_account_that_began_where_everything_is_known_is_new():
    table = TABLE.copy()
    note_known(table, [(START - DAY, START + 9 * DAY)], nothing_before=True)
    found = ba.compare(table, DAYS)
    assert found["state"].tolist() == ["changed", "new"]
    assert found["change"].tolist() == [2, 1]


def test_amounts_in_whole_units_keep_the_percent():
    found = ba.compare(TABLE, DAYS, units={"VOTE": 1})
    assert found["change"].iloc[0] == pytest.approx(0.2)
    assert found["change_percent"].iloc[0] == pytest.approx(40)


def test_desks_are_compared_by_a_column_of_the_table():
    table = TABLE.assign(desk="east")
    found = ba.compare(table, DAYS, by="desk")
    assert (found["desk"].tolist(), amount(found["after"].iloc[0])) == (["east"], 8)
    assert pd.isna(found["before"].iloc[0])


def test_what_can_not_be_compared_is_refused():
    with pytest.raises(ValueError, match="at must be two moments"):
        ba.compare(TABLE, "2023-04-01")
    with pytest.raises(ValueError, match="at must be two moments"):
        ba.compare(TABLE, ["2023-04-01"])
    message = "the earlier one first, not 2023-04-02 and 2023-04-01"
    with pytest.raises(ValueError, match=message):
        ba.compare(TABLE, ("2023-04-02", "2023-04-01"))
    with pytest.raises(OverflowError, match=r"the change of asset_id='VOTE'.* 38 digits"):
        moved({GENERAL: (-LARGEST, LARGEST)})
    assert ba.compare(empty_table(), DAYS).empty
