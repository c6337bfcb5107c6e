"""Who holds how much: shares to the last digit, and the moment that is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import (
    DAY,
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    cases,
    instant,
    opened,
    table_of,
)
from tests.analysis.test_gaps import POINTS
from tests.columns import note_known


@given(cases, st.sampled_from(POINTS), st.booleans())
def test_every_function_counts_the_same_balances_as_unknown_at_a_moment(case, when, nothing_before):
    rows, opening, known = case
    table = opened(rows, opening, known, nothing_before=nothing_before)
    at, behind = instant(when), instant(when + 1)
    held = ba.balance_at(table, at)
    is_unknown = held["balance"].isna()
    expected = is_unknown.groupby(held["asset_id"], observed=True).sum().tolist()
    found = ba.holders(table, at, by="asset_id")
    assert found["unknown"].tolist() == expected
    total = ba.totals(table, by="asset_id", freq="1us", start=at, end=behind)
    assert total["unknown"].tolist() == expected
    whole = ba.totals(table, by="asset_id", start=at, end=behind)
    assert whole["unknown"].tolist() == expected
    before = ba.compare(table, (at, behind))["before"]
    assert before.isna().sum() == is_unknown.sum()


def test_a_share_of_38_digits_is_rounded_once():
    # 38 digits make the quotient that floats of them round away from.
    one, other = 3 * 10**37 + 1, 6 * 10**37 + 5
    found = ba.holders(table_of([(*GENERAL, START, one), (*MARGIN, START, other)]))
    assert found["share"].tolist() == [other / (one + other), one / (one + other)]
    assert found["cumulative_share"].tolist() == [other / (one + other), 1.0]


def test_a_difference_in_the_38th_digit_ranks_holders():
    held = 4 * 10**37 + 1
    found = ba.holders(table_of([(*GENERAL, START, held), (*MARGIN, START, held + 1)]))
    assert found["account_type"].tolist() == [MARGIN[1], GENERAL[1]]


def test_shares_are_of_the_asset():
    table = table_of([(*GENERAL, START, 1), (*MARGIN, START, 3), (*OTHER, START, 5)])
    assert ba.holders(table)["share"].tolist() == [0.75, 0.25, 1.0]


def test_what_a_holder_has_beyond_38_digits_raises_and_names_it():
    table = table_of([(*GENERAL, START, LARGEST), (*MARGIN, START, 1)])
    with pytest.raises(OverflowError, match=r"VOTE.*a1.* 38 digits"):
        ba.holders(table, by="party_id")


def test_holders_are_by_default_those_just_before_the_end_of_what_is_known(caplog):
    table = table_of([(*GENERAL, START, 3), (*MARGIN, START + DAY, 1)])
    note_known(table, [(START, START + 2 * DAY)])
    found = ba.holders(table)
    assert found["share"].tolist() == [0.75, 0.25]
    assert found.equals(ba.holders(table, instant(START + 2 * DAY - 1)))
    assert not caplog.records
    assert ba.holders(table, instant(START + 3 * DAY))["unknown"].tolist() == [1, 1]
    assert "no balance is known at" in caplog.text
