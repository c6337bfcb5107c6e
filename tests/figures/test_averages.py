from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import table_of
from tests.columns import note_known
from tests.figures.drawn import DAY, HOUR, areas, entries, said, shaded, us

START, DAYS = us("2023-04-05"), 3


def account(who):
    return ("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{who}", "")


def average(changes, day):
    """Return what an account held on average on a day; None where that isn't known."""
    begin, stop = START + day * DAY, START + (day + 1) * DAY
    if min(changes) > begin:
        return None
    times = sorted({begin, *(time for time in changes if begin < time < stop), stop})
    held = [changes[max(t for t in changes if t <= time)] for time in times[:-1]]
    spans = np.diff(times).tolist()
    return Fraction(sum(level * span for level, span in zip(held, spans, strict=True)), DAY)


def heights(ax):
    """Return the tops of the bars of each label, day by day; NaN where there is no bar."""
    middles = [START + day * DAY + DAY // 2 for day in range(DAYS)]
    return {
        label: [[level for time, level in steps if time < middle][-1] for middle in middles]
        for label, steps in areas(ax).items()
    }


LEVELS = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, DAYS * 24 - 1)),
    st.sampled_from([0, 20, 33, 100]),
    min_size=1,
    max_size=15,
)


@given(LEVELS, st.booleans())
def test_bars_are_as_high_as_what_is_known_of_a_day_was_on_average(levels, shares):
    plt.close("all")
    changes = {who: {} for who, _ in levels}
    for (who, hour), level in levels.items():
        changes[who][START + hour * HOUR] = level
    rows = [(*account(who), time, x) for who in changes for time, x in changes[who].items()]
    bounds = {"start": "2023-04-05", "end": "2023-04-08"}
    ax = ba.plot_averages(table_of(rows), n=2, shares=shares, **bounds)
    found = [[average(each, day) for each in changes.values()] for day in range(DAYS)]
    tops = [sum(x for x in day if x is not None) for day in found]
    told = all if shares else any
    known = [told(x is not None for x in day) for day in found]
    if any(known):
        highest = [*heights(ax).values()][-1]
        expected = [float(top) if is_it else np.nan for top, is_it in zip(tops, known, strict=True)]
        if shares:
            expected = [1.0 if top else np.nan for top in np.nan_to_num(expected)]
        assert highest == pytest.approx(expected, abs=1e-9 if shares else 3, nan_ok=True)
        lacking = sum(x is None for day in found for x in day)
        assert (f"{lacking} of {DAYS * len(changes)}" in said(ax)) == (lacking > 0)
        assert bool(shaded(ax, "////")) == (not all(known))
    else:
        assert ax.texts


@given(LEVELS)
@settings(max_examples=15)
def test_bars_of_parties_are_what_is_told_of_them_where_that_is_known(levels):
    plt.close("all")
    kinds = ("GENERAL", "MARGIN", "BOND")
    rows = [
        ("VOTE", f"ACCOUNT_TYPE_{kinds[who // 2]}", f"p{who % 2}", "", START + hour * HOUR, level)
        for (who, hour), level in levels.items()
    ]
    bounds = {"start": "2023-04-05", "end": "2023-04-08", "by": "party_id"}
    told = ba.time_weighted_average(table_of(rows), freq="1D", **bounds)
    ax = ba.plot_averages(table_of(rows), n=1, **bounds)
    tops = ba.to_integers(told).groupby("start")["average"].apply(lambda day: day.dropna().sum())
    is_known = told.groupby("start")["average"].count() > 0
    lacking = int(told["average"].isna().sum())
    if is_known.any():
        expected = tops.astype(float).where(is_known).tolist()
        assert [*heights(ax).values()][-1] == pytest.approx(expected, nan_ok=True)
        assert (f"{lacking} of {len(told)} averages" in said(ax)) == (lacking > 0)
    else:
        assert ax.texts


def test_as_many_are_drawn_by_themselves_as_one_asks_for_however_small_they_are():
    rows = [(*account(who), START, level) for who, level in enumerate((500, 400, 2, 1, 1))]
    ax = ba.plot_averages(table_of(rows), n=3, end="2023-04-08")
    assert entries(ax) == ["general · p0", "general · p1", "general · p2", "2 others"]


def test_the_largest_are_drawn_and_the_others_together_with_no_bar_over_a_gap():
    rows = [(*account(who), START, level) for who, level in enumerate((50, 30, 15, 5))]
    table = table_of(rows)
    note_known(table, [(START, START + DAY), (START + 2 * DAY, START + 3 * DAY)])
    again = table_of([*rows, *((*row[:4], START + 2 * DAY, row[5]) for row in rows)])
    again.attrs = table.attrs
    ax = ba.plot_averages(again, n=2)
    assert entries(ax) == [
        "general · p0",
        "general · p1",
        "2 others",
        "changes may be missing",
    ]
    drawn = heights(ax)
    assert [drawn[name][0] for name in entries(ax)[:3]] == [50, 80, 100]
    assert all(np.isnan(level) for _, level, _ in drawn.values())
    assert ax.get_title("left") == "VOTE average balance per day"


def test_groups_and_many_periods_are_drawn_without_gaps_between_bars():
    rows = [(*account(who), START, 5) for who in (1, 2)]
    by = ["asset_id", "account_type"]
    ax = ba.plot_averages(table_of(rows), by=by, freq="1min", end="2023-04-08")
    ((label, steps),) = areas(ax).items()
    assert label == "general"
    assert {level for _, level in steps} == {10}
    table = table_of(rows).assign(desk="north")
    ax = ba.plot_averages(table, by=["asset_id", "desk"], end="2023-04-08")
    assert entries(ax) == ["north"]
    ax = ba.plot_averages(table, by=["asset_id", "party_id", "desk"], end="2023-04-08")
    assert entries(ax) == ["p1 · north", "p2 · north"]


def test_an_average_that_nobody_knows_is_said_to_be():
    ax = ba.plot_averages(table_of([(*account(1), START + HOUR, 5)]))
    assert ax.texts[0].get_text().startswith("no average is known:\nbalances are unknown")
    assert ba.plot_averages(table_of([])).texts[0].get_text() == "no balance changes"
    with pytest.raises(ValueError, match="n must be at least 1"):
        ba.plot_averages(table_of([]), n=0)
