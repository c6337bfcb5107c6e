import numpy as np
import pandas as pd
import pytest

import balance_analysis as ba
from tests.analysis.tables import GENERAL, HOUR, MARGIN, START, table_of
from tests.figures.drawn import BOND, areas, entries, said, shaded, us


def test_a_known_balance_of_zero_is_not_hatched_as_unknown():
    rows = [(*MARGIN, START, 0), (*GENERAL, START + HOUR, 5), (*GENERAL, START + 2 * HOUR, 5)]
    ax = ba.plot_totals(table_of(rows))
    assert "unknown" not in entries(ax)
    assert areas(ax)["general 5"][0] == (START, 0)


def test_the_largest_group_is_at_the_bottom_on_top_and_last_in_the_legend():
    rows = [(*GENERAL, START, 1), (*MARGIN, START, 5), (*BOND, START, 3)]
    ax = ba.plot_totals(table_of(rows))
    assert list(areas(ax)) == ["margin 5", "bond 3", "general 1"]
    assert entries(ax) == ["general 1", "bond 3", "margin 5"]
    assert said(ax).startswith("amounts at the end")
    orders = [patch.get_zorder() for patch in ax.patches]
    assert orders == sorted({*orders}, reverse=True)


def test_an_amount_that_was_far_larger_before_the_start_is_drawn_exactly():
    rows = [(*GENERAL, START, 10**36), (*GENERAL, START + HOUR, 1000), (*MARGIN, START, 9)]
    ax = ba.plot_totals(table_of(rows), start=pd.Timestamp(START + HOUR, unit="us"))
    assert entries(ax) == ["margin 9", "general 1.00\xa0k"]


def test_an_axis_of_shares_shows_the_whole():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 1), (*MARGIN, START, 3)]), share=True)
    assert (ax.get_ylim()[0], ax.get_yticks().max()) == (0, 1)
    assert entries(ax) == ["general 25%", "margin 75%"]


def test_unknown_balances_are_hatched_and_counted():
    rows = [(*GENERAL, us("2023-04-03"), 5), (*MARGIN, us("2023-04-04"), 5)]
    ax = ba.plot_totals(table_of(rows), start="2023-04-01", end="2023-04-05")
    assert shaded(ax, "////") == [("unknown", us("2023-04-01"), us("2023-04-03"))]
    assert "left out while unknown: 2 of 2 accounts" in said(ax)


@pytest.mark.parametrize("level", [0, 5])
def test_groups_that_hold_nothing_are_omitted_unless_all_hold_nothing(level):
    ax = ba.plot_totals(table_of([(*GENERAL, START, level), (*MARGIN, START, 0)]))
    assert list(areas(ax)) == [f"general {level}"]


def test_the_smallest_of_many_groups_are_drawn_as_one():
    rows = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:02}", "", START, 10 + i) for i in range(15)]
    ax = ba.plot_totals(table_of(rows), by=("asset_id", "party_id"))
    drawn = areas(ax)
    assert list(drawn) == [*(f"p{i:02} {10 + i}" for i in range(14, 5, -1)), "6 others 75"]
    assert drawn["6 others 75"][0] == (START, sum(range(10, 25)))
    assert len(set(ax.patches[-1].get_facecolor()[:3])) == 1  # grey


@pytest.mark.parametrize("share", [False, True])
def test_a_frequency_draws_only_its_grid_and_the_legend_has_the_amounts_at_the_end(share):
    days = [us(f"2023-04-0{day}") for day in (1, 2, 3, 4)]
    changes = [(days[0], 1), (days[1] + 5 * HOUR, 5), (days[2] + 18 * HOUR, 15), (days[3], 99)]
    rows = [(*MARGIN, days[0], 5), *((*GENERAL, *change) for change in changes)]
    ends = {"start": "2023-04-01", "end": "2023-04-04"}
    ax = ba.plot_totals(table_of(rows), freq="1D", share=share, **ends)
    margin, general = areas(ax).values()
    assert [time for time, _ in margin] == [time for time, _ in general] == days
    wanted = ["general 75%", "margin 25%"] if share else ["general 15", "margin 5"]
    assert sorted(entries(ax)) == wanted


@pytest.mark.parametrize("share", [False, True])
def test_an_amount_held_at_a_single_moment_is_wide_enough_to_see(share):
    ax = ba.plot_totals(table_of([(*GENERAL, START, 5), (*MARGIN, START, 7)]), share=share)
    left, right = ax.get_xlim()
    for area in ax.patches:
        assert np.ptp(area.get_data().edges) > (right - left) / 400


def test_the_last_row_is_visible_without_an_end():
    rows = [(*GENERAL, us("2015-04-01"), 10), (*GENERAL, us("2023-04-01"), 12)]
    ax = ba.plot_totals(table_of(rows))
    (steps,) = areas(ax).values()
    (before, _), (last, level), (until, _) = steps[-3:]
    assert (before, last, level) == (us("2015-04-01"), us("2023-04-01"), 12)
    assert until - last > (last - before) / 400
    assert ba.plot_totals(table_of(rows), assets={"VOTE": 4}).get_ylim()[1] < 0.002


def test_shares_of_a_total_with_debts_exceed_the_whole_or_are_unknown():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 150), (*MARGIN, START, -50)]), share=True)
    assert sorted(entries(ax)) == ["general 150%", "margin -50%"]
    low, high = ax.get_ylim()
    assert low <= -0.5 < 1.5 <= high
    ax = ba.plot_totals(table_of([(*GENERAL, START, 1), (*MARGIN, START, -3)]), share=True)
    assert ax.texts[0].get_text().startswith("nothing is held")
