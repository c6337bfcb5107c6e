from __future__ import annotations

import pytest

import balance_analysis as ba
from tests.analysis.tables import (
    DAY,
    GENERAL,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    instant,
    records,
    table_of,
)


def total_records(*args, **options):
    return records(ba.totals(*args, **options))


@pytest.mark.parametrize("level", [2**114 - 1, 1 - 2**114, 2**64 + 1, 2**64 - 1, 2**32])
def test_thousands_of_large_balances_add_up_exactly(level):
    rows = [("VOTE", "T", f"p{place}", "", START, level) for place in range(4000)]
    assert total_records(table_of(rows)) == [("VOTE", "T", START, 4000 * level, 4000, 0)]


@pytest.mark.parametrize("freq", [None, "1us"])
def test_a_total_beyond_38_digits_raises_and_names_the_group(freq):
    table = table_of([(*OTHER, START, 1), (*GENERAL, START, LARGEST), (*MARGIN, START, 1)])
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.totals(table, by=["asset_id"], freq=freq)


@pytest.mark.parametrize("freq", [None, "1us"])
def test_a_total_fits_where_its_first_parts_alone_would_not(freq):
    third = ("VOTE", "ACCOUNT_TYPE_MARGIN", "b2", "m1")
    table = table_of(
        [(*GENERAL, START, LARGEST), (*MARGIN, START, LARGEST), (*third, START, -LARGEST)]
    )
    assert total_records(table, by=["asset_id"], freq=freq) == [("VOTE", START, LARGEST, 3, 0)]


def test_totals_are_by_asset_and_type_unless_told():
    table = table_of([(*account, START, 1) for account in (GENERAL, MARGIN, OTHER)])
    assert [row[:2] for row in total_records(table)] == [GENERAL[:2], MARGIN[:2], OTHER[:2]]


def test_a_total_of_which_nothing_is_known_is_na_and_not_0():
    table = table_of([(*GENERAL, START, 0)])
    found = total_records(table, by=["asset_id"], start=instant(START - 1))
    assert found == [("VOTE", START - 1, None, 0, 1), ("VOTE", START, 0, 1, 0)]


@pytest.mark.parametrize("years", [1, 60])
def test_thousands_of_parties_over_decades_keep_their_own_times(years):
    """So many groups and microseconds that one number holds both, and more than it holds."""
    keys = [("VOTE", GENERAL[1], f"p{number:04}", "") for number in range(6000)]
    ends = [(START + place, START + years * 365 * DAY - place) for place in range(len(keys))]
    rows = [
        (*key, at, 5 + n) for key, own in zip(keys, ends, strict=True) for n, at in enumerate(own)
    ]
    found = ba.totals(table_of(rows), by="party_id")
    assert [(row[1], *row[2:4]) for row in records(found)] == [row[2:3] + row[4:] for row in rows]
    parties = ba.summarize_parties(table_of(rows))
    assert (parties["net"] == 1).all()
    assert [time.value // 1000 for time in parties["last_seen"]] == [last for _, last in ends]
