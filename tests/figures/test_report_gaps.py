"""What periods of a report say of the gaps of an archive."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.figures.report_gaps import mark_periods
from balance_analysis.figures.report_source import Hole
from balance_analysis.schema import from_microseconds
from tests.analysis.tables import GENERAL, MARGIN, table_of

UNIT = 6 * 3_600_000_000
ORIGIN = 19_000 * 4 * UNIT
"""A midnight; a day has four units."""

HORIZON = 40
ACCOUNTS = (GENERAL, MARGIN)


def at(unit):
    return from_microseconds(ORIGIN + unit * UNIT)


@st.composite
def torn(draw):
    """Draw stretches that don't overlap, and rows outside of gaps, as places and accounts."""
    cuts = sorted(draw(st.sets(st.integers(0, HORIZON), max_size=6)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    states = [draw(st.sampled_from(["gap", "unproven"])) for _ in pairs]
    holes = [(*pair, state) for pair, state in zip(pairs, states, strict=True)]
    places = [
        place
        for place in range(HORIZON)
        if not any(first <= place < last and state == "gap" for first, last, state in holes)
    ]
    cells = [(place, number) for place in places for number in range(len(ACCOUNTS))]
    some = st.sampled_from(cells) if cells else st.nothing()
    return holes, sorted(draw(st.sets(some, max_size=12))), draw(st.integers(0, HORIZON // 4)) * 4


@given(torn())
@example(([(4, 8, "gap")], [(0, 0), (8, 0)], 0))
def test_a_period_says_what_gaps_have_to_do_with_it(drawn):
    holes, cells, start = drawn
    rows = table_of([(*ACCOUNTS[n], ORIGIN + place * UNIT, place) for place, n in cells])
    is_inside = rows["timestamp"] >= at(start)
    opening = ba.balance_at(rows[~is_inside], at(start)) if (~is_inside).any() else None
    periods = ba.flows(
        rows[is_inside], by="asset_id", start=at(start), end=at(HORIZON + 4), opening=opening
    )
    marks = mark_periods(
        periods,
        rows[is_inside],
        opening,
        [Hole(at(first), at(last), state) for first, last, state in holes],
    )
    days = sorted({place // 4 for place, _ in cells if place >= start})
    assert [pd.Timestamp(at(4 * day)) for day in days] == list(periods["start"])
    assert list(marks) == [expected(day, days, holes, cells) for day in days]


def expected(day, days, holes, cells):
    said = []
    for kind, name in (("gap", "a gap"), ("unproven", "an unproven stretch")):
        verb = ""
        for first, last, state in holes:
            if state != kind:
                continue
            if first < 4 * day + 4 and 4 * day < last:
                verb = "overlaps"
            is_next = 4 * day >= last and not any(last <= 4 * other < 4 * day for other in days)
            if (is_next or holds_what_moved(day, first, last, cells)) and not verb:
                verb = "follows"
        if verb:
            said.append(f"{verb} {name}")
    return "; ".join(said)


def holds_what_moved(day, first, last, cells):
    """Whether an account has a row in a day that is its first for some time in a stretch."""
    for number in range(len(ACCOUNTS)):
        places = [place for place, owner in cells if owner == number]
        for before, after in pairwise(places):
            if after // 4 == day and before < last and first < after:
                return True
    return False


def test_without_gaps_nothing_is_said():
    rows = table_of([(*GENERAL, ORIGIN, 1)])
    assert mark_periods(ba.flows(rows, by="asset_id"), rows, None, ()) == ("",)
