from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.figures.drawn import (
    BOND,
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    areas,
    entries,
    micros,
    said,
    shaded,
    us,
)

ROWS = st.dictionaries(
    st.tuples(st.sampled_from([GENERAL, MARGIN, BOND]), st.integers(START, START + 40 * HOUR)),
    st.integers(10**19, 10**20),
    min_size=1,
    max_size=12,
)


def held(rows, account, when):
    """Return what an account holds, the naive way; 0 where nothing is known."""
    before = [(row[4], row[5]) for row in rows if row[:4] == account and row[4] <= when]
    return max(before)[1] if before else 0


def at(steps, when):
    return [level for time, level in steps if time <= when][-1]


@given(ROWS)
@settings(max_examples=12)
def test_the_top_is_the_sum_of_all_that_is_known_and_each_band_what_its_group_holds(levels):
    rows = [(*account, time, balance) for (account, time), balance in levels.items()]
    plt.close("all")  # also of an example that failed
    ax = ba.plot_totals(table_of(rows))
    drawn = areas(ax)
    names = {"general": GENERAL, "margin": MARGIN, "bond": BOND}
    first = min(row[4] for row in rows)
    for when in {row[4] for row in rows} | {first + HOUR}:
        below = 0.0
        for label, steps in drawn.items():
            top = at(steps, when)
            expected = held(rows, names[label.rsplit(" ", 1)[0]], when)
            assert top - below == pytest.approx(expected, rel=1e-9, abs=1e6)
            below = top
        assert below == pytest.approx(sum(held(rows, a, when) for a in names.values()))


def test_what_is_known_to_be_nothing_is_not_hatched_as_unknown():
    rows = [(*MARGIN, START, 0), (*GENERAL, START + HOUR, 5), (*GENERAL, START + 2 * HOUR, 5)]
    ax = ba.plot_totals(table_of(rows))
    assert "unknown" not in entries(ax)
    assert areas(ax)["general 5"][0] == (START, 0)


def test_the_largest_group_lies_at_the_bottom_also_in_the_legend():
    rows = [(*GENERAL, START, 1), (*MARGIN, START, 5), (*BOND, START, 3)]
    ax = ba.plot_totals(table_of(rows))
    assert list(areas(ax)) == ["margin 5", "bond 3", "general 1"]
    assert entries(ax) == ["general 1", "bond 3", "margin 5"]
    assert said(ax).startswith("amounts at the end")


def test_shares_add_up_to_the_whole():
    rows = [(*GENERAL, START, 1), (*MARGIN, START, 3), (*MARGIN, START + DAY, 1)]
    end = START + 2 * DAY
    ax = ba.plot_totals(table_of(rows), share=True, end=pd.Timestamp(end, unit="us"))
    assert areas(ax) == {
        "margin 50%": [(START, 0.75), (START + DAY, 0.5), (end, 0.5)],
        "general 50%": [(START, 1.0), (START + DAY, 1.0), (end, 1.0)],
    }
    assert ax.get_ylim()[0] == 0
    assert ax.get_yticks().max() == 1


def test_a_total_of_nothing_has_no_shares():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 4)]), share=True)
    ((_, steps),) = areas(ax).items()
    assert np.isnan(steps[0][1])
    assert steps[1][1] == 1


def test_a_frequency_draws_the_points_of_its_grid_only():
    rows = [(*GENERAL, us("2023-04-01T05:00"), 5), (*GENERAL, us("2023-04-02T05:00"), 7)]
    ax = ba.plot_totals(table_of(rows), freq="1D", start="2023-04-01", end="2023-04-04")
    ((_, steps),) = areas(ax).items()
    assert steps[1:] == [
        (us("2023-04-02"), 5.0),
        (us("2023-04-03"), 7.0),
        (us("2023-04-04"), 7.0),
    ]


def test_what_is_not_known_is_hatched_and_counted():
    rows = [(*GENERAL, us("2023-04-03"), 5), (*MARGIN, us("2023-04-04"), 5)]
    ax = ba.plot_totals(table_of(rows), start="2023-04-01", end="2023-04-05")
    assert shaded(ax, "////") == [("unknown", us("2023-04-01"), us("2023-04-03"))]
    assert "2 of 2 accounts left out while unknown" in said(ax)


def test_groups_that_hold_nothing_are_left_out():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 5), (*MARGIN, START, 0)]))
    assert list(areas(ax)) == ["general 5"]


def test_groups_that_all_hold_nothing_draw_one_of_them():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 0), (*MARGIN, START, 0)]))
    assert list(areas(ax)) == ["general 0"]


def test_the_smallest_of_many_groups_are_drawn_as_one():
    rows = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:02}", "", START, 10 + i) for i in range(15)]
    ax = ba.plot_totals(table_of(rows), by=("asset_id", "party_id"))
    drawn = areas(ax)
    assert list(drawn) == [*(f"p{i:02} {10 + i}" for i in range(14, 5, -1)), "6 others 75"]
    assert at(drawn["6 others 75"], START) == sum(range(10, 25))
    assert len(set(ax.patches[-1].get_facecolor()[:3])) == 1  # grey


def test_bands_have_the_colour_and_hatch_of_their_type():
    account = ("VOTE", "ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES", "network", "")
    ax = ba.plot_totals(table_of([(*account, START, 5)]))
    (area,) = ax.patches
    (line,) = ba.plot_balances(table_of([(*account, START, 5)])).lines
    assert mpl.colors.to_hex(area.get_facecolor()) == line.get_color()
    assert area.get_hatch()
    assert line.get_linestyle() != "-"


def test_amounts_start_at_zero():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 1000), (*GENERAL, START + DAY, 1001)]))
    assert ax.get_ylim()[0] == 0


def test_nothing_known_in_the_interval_gives_axes_that_say_so():
    table = table_of([(*GENERAL, us("2023-04-09"), 5)])
    ax = ba.plot_totals(table, start="2023-04-01", end="2023-04-05")
    assert [text.get_text() for text in ax.texts] == [
        "no balance is known\nfrom 2023-04-01 to 2023-04-05"
    ]


def test_a_group_is_of_one_asset_even_if_only_the_type_is_named():
    table = table_of([(*GENERAL, START, 5)])
    drawn = [ba.plot_totals(table, by=by) for by in ("account_type", ["asset_id", "account_type"])]
    one, other = ([text.get_text() for text in ax.get_legend().get_texts()] for ax in drawn)
    assert one == other


def test_a_lower_band_covers_the_higher_ones_that_reach_down_behind_it():
    ax = ba.plot_totals(table_of([(*GENERAL, START, 1), (*MARGIN, START, 5), (*BOND, START, 3)]))
    orders = [patch.get_zorder() for patch in ax.patches]
    assert orders == sorted(orders, reverse=True)
    assert len(set(orders)) == 3


@pytest.mark.parametrize("share", [False, True])
def test_the_legend_tells_what_is_held_at_the_end_whatever_the_points_are(share):
    rows = [
        (*GENERAL, us("2023-04-01"), 5),
        (*MARGIN, us("2023-04-01"), 5),
        (*GENERAL, us("2023-04-03T18:00"), 15),
        (*GENERAL, us("2023-04-04"), 99),
    ]
    ax = ba.plot_totals(
        table_of(rows), freq="1D", start="2023-04-01", end="2023-04-04", share=share
    )
    wanted = ["general 75%", "margin 25%"] if share else ["general 15", "margin 5"]
    assert sorted(entries(ax)) == wanted


def painted(ax):
    """Return how many pixels within an Axes are coloured."""
    ax.figure.canvas.draw()
    image = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)[..., :3]
    box, height = ax.get_window_extent(), len(image)
    inside = image[height - int(box.y1) + 3 : height - int(box.y0) - 3, int(box.x0) + 3 :]
    inside = inside[:, : int(box.width) - 6]
    return int(((inside.max(axis=2) - inside.min(axis=2)) > 40).sum())


@pytest.mark.parametrize(
    "plot",
    [
        ba.plot_totals,
        lambda data: ba.plot_totals(data, share=True),
    ],
    ids=["totals", "shares"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_held_at_a_single_instant_is_seen(plot, count):
    assert painted(plot(table_of([(*GENERAL, START, 5), (*MARGIN, START, 7)][:count]))) > 200


def test_the_last_row_is_seen_without_an_end():
    rows = [(*GENERAL, us("2015-04-01"), 10), (*GENERAL, us("2023-04-01"), 12)]
    ax = ba.plot_totals(table_of(rows))
    (steps,) = areas(ax).values()
    (before, _), (last, level), (until, _) = steps[-3:]
    assert (before, last, level) == (us("2015-04-01"), us("2023-04-01"), 12)
    assert until - last > (last - before) / 400


BELOW = st.lists(
    st.dictionaries(
        st.integers(0, 9),
        st.integers(-5, 5).map(lambda n: n * 10**19),
        min_size=1,
    ),
    min_size=2,
    max_size=3,
)


@given(BELOW)
@settings(max_examples=12)
def test_what_is_below_zero_is_stacked_downwards_and_in_the_legend(levels):
    plt.close("all")
    accounts = [GENERAL, MARGIN, BOND][: len(levels)]
    rows = [
        (*account, START + hour * HOUR, level)
        for account, held_then in zip(accounts, levels, strict=True)
        for hour, level in held_then.items()
    ]
    ax = ba.plot_totals(table_of(rows))
    names = {"general": GENERAL, "margin": MARGIN, "bond": BOND}
    times = sorted({row[4] for row in rows})
    reached = [patch.get_data() for patch in ax.patches if hasattr(patch, "get_data")]
    for when in times:
        now = [held(rows, account, when) for account in accounts]
        drawn = [
            values[np.searchsorted(micros(edges), when, side="right") - 1]
            for values, edges, _ in reached
        ]
        assert max(*drawn, 0) == pytest.approx(sum(level for level in now if level > 0))
        assert min(*drawn, 0) == pytest.approx(sum(level for level in now if level < 0))
    for label in entries(ax):
        name, amount = label.split()[:2]
        if amount != "unknown":
            assert float(amount) == pytest.approx(held(rows, names[name], times[-1]), rel=1e-3)


def test_shares_of_a_total_with_debts_are_those_of_the_table_of_totals():
    table = table_of([(*GENERAL, START, 150), (*MARGIN, START, -50)])
    ax = ba.plot_totals(table, share=True)
    assert sorted(entries(ax)) == ["general 150%", "margin -50%"]
    assert sorted(ba.totals(table, share=True)["share"]) == [-0.5, 1.5]
    low, high = ax.get_ylim()
    assert low <= -0.5
    assert high >= 1.5
    ax = ba.plot_totals(table_of([(*GENERAL, START, 1), (*MARGIN, START, -3)]), share=True)
    assert ax.texts[0].get_text().startswith("nothing is held")
