from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
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
    books,
    instant,
    instants,
    moderate,
    odd,
    opened,
    records,
    rows,
    table_of,
)
from tests.columns import empty_table, note_known

groupings = st.sets(st.sampled_from(ba.ACCOUNT_KEY[1:])).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)
positive = st.integers(0, 3) | odd
moments = st.lists(instants, min_size=1, max_size=4)
PARTIES = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{number}", "") for number in range(8)]


def held_by(*balances):
    """Return a table in which each of these balances is another account's."""
    return table_of(
        [(*party, START, balance) for party, balance in zip(PARTIES, balances, strict=False)]
    )


def share_records(*args, **options):
    return records(ba.share(*args, **options))


def concentration_records(*args, **options):
    return records(ba.concentration(*args, **options))


def measures_of(*balances, **options):
    """Return the holders, what the largest hold, the Herfindahl index and the Gini coefficient."""
    found = ba.concentration(held_by(*balances), instant(START), **options)
    [(_, _, _, holders, _, *measures)] = records(found)
    return holders, *measures


@settings(max_examples=12)
@given(books(moderate), groupings, moments)
def test_a_share_is_the_exact_quotient_rounded_once(book, by, whens):
    rows, opening = book
    found = share_records(
        opened(rows, opening),
        [instant(when) for when in whens],
        by=by,
    )
    assert found == oracle.shares(rows, opening, sorted(set(whens)), by)


def test_a_share_of_38_digits_is_rounded_once():
    # 38 digits make the quotient that floats of them round away from.
    one, other = 3 * 10**37 + 1, 6 * 10**37 + 5
    table = held_by(one, other)
    found = [row[6] for row in share_records(table, instant(START))]
    assert found == [one / (one + other), other / (one + other)]


def test_shares_are_of_the_asset_unless_told():
    table = table_of([(*GENERAL, START, 1), (*MARGIN, START, 3), (*OTHER, START, 5)])
    assert [row[6] for row in share_records(table, instant(START))] == [0.25, 0.75, 1.0]


@settings(max_examples=12)
@given(books(), groupings, moments, st.integers(1, 5))
def test_concentration_is_what_its_definitions_say(book, by, whens, n):
    rows, opening = book
    found = concentration_records(
        opened(rows, opening),
        [instant(when) for when in whens],
        n=n,
        by=by,
    )
    assert found == oracle.concentration(rows, opening, sorted(set(whens)), by, n)


@pytest.mark.parametrize(
    ("balances", "expected"),
    [
        ((5,), (1, 1.0, 1.0, 0.0)),
        ((5, 5), (2, 0.5, 0.5, 0.0)),
        ((1, 3), (2, 0.75, 0.625, 0.25)),
        ((1, 3, 0, 0), (2, 0.75, 0.625, 0.25)),
        ((1, 1, 2), (3, 0.5, 0.375, 1 / 6)),
        ((LARGEST - 3, 3), (2, 1.0, 1.0, 0.5)),
        ((2, 2, 2, 2), (4, 0.25, 0.25, 0.0)),
        ((0, 0), (0, None, None, None)),
    ],
)
def test_a_few_holders_are_as_concentrated_as_by_hand(balances, expected):
    assert measures_of(*balances, n=1) == expected


def test_more_of_the_largest_than_holders_hold_everything():
    assert measures_of(1, 2, 3, n=10)[:2] == (3, 1.0)


def test_a_difference_in_the_38th_digit_is_no_equal_holding():
    held = 4 * 10**37 + 1
    assert measures_of(held, held + 2, n=1)[3] == 1 / (2 * held + 2)


def test_a_concentration_beyond_38_digits_raises_and_names_the_group():
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.concentration(held_by(LARGEST, 1), instant(START))


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
def test_several_instants_are_sorted_and_each_stands_once(function):
    table = table_of([(*GENERAL, START, 1), (*MARGIN, START, 1), (*GENERAL, START + 2, 3)])
    whens = pd.DatetimeIndex([instant(START + 2), instant(START), instant(START + 2)])
    one_by_one = [function(table, instant(when)) for when in (START, START + 2)]
    expected = sorted(row for one in one_by_one for row in records(one))
    assert records(function(table, whens)) == expected


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
def test_an_instant_or_a_frequency_is_asked_for_not_both(function):
    assert function(empty_table()).empty
    with pytest.raises(ValueError, match="freq"):
        function(empty_table(), "2023-04-01", freq="1D")


@settings(max_examples=12)
@given(rows, instants)
def test_each_party_has_its_share_of_each_account_type(rows, when):
    found = ba.share(table_of(rows), instant(when), by=("account_type", "asset_id"))
    sums = defaultdict(int)
    for asset, kind, _, _, _, balance, _, _ in records(found):
        sums[asset, kind] += balance or 0
    for asset, kind, _, _, _, balance, part, _ in records(found):
        known = balance is not None and sums[asset, kind]
        assert part == (balance / sums[asset, kind] if known else None)


def test_holders_are_by_default_those_just_before_the_end_of_what_is_known(caplog):
    table = table_of([(*GENERAL, START, 3), (*MARGIN, START + DAY, 1)])
    note_known(table, [(START, START + 2 * DAY)])
    found = ba.concentration(table, n=1)
    assert found[["timestamp", "holders", "largest"]].to_numpy().tolist() == [
        [instant(START + 2 * DAY - 1), 2, 0.75]
    ]
    assert ba.share(table)["share"].tolist() == [0.75, 0.25]
    assert not caplog.records
    for function in (ba.concentration, ba.share):
        assert function(table, instant(START + 3 * DAY))["unknown"].iloc[0] == 2
        assert "no balance is known at" in caplog.text
        caplog.clear()
