from __future__ import annotations

import random
from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from balance_analysis.figures.plots import COLOURS, MOST_LINES, plot_balances
from balance_analysis.frame import empty_table
from tests.analysis.tables import LARGEST, START, by_account, table_of

HOUR = 3_600_000_000
DAY = 24 * HOUR
GENERAL = ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "")
MARGIN = ("VOTE", "ACCOUNT_TYPE_MARGIN", "a1", "m1")


@pytest.fixture(autouse=True)
def drawing():
    """Draw to memory, and leave no figure behind."""
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def drawn(ax):
    """Return {legend label: [(microseconds, level), ...]} of the lines of an Axes."""
    return {
        line.get_label(): [
            (int(time.astype("M8[us]").astype(int)), level)
            for time, level in zip(line.get_xdata(orig=True), line.get_ydata(), strict=True)
        ]
        for line in ax.lines
    }


def history(count, *, scale=10**24, days=30, parties=1, seed=1):
    """Return a lifelike table: random walks of several parties with ids as long as real ones."""
    walk = random.Random(seed)
    rows = []
    for _ in range(parties):
        account = ("VOTE", "ACCOUNT_TYPE_GENERAL", f"{walk.getrandbits(256):064x}", "")
        level, time = walk.randrange(scale), START
        for _ in range(count):
            time += 1 + walk.randrange(int(2 * days * DAY) // count)
            level = abs(level + walk.randrange(-scale // 10, scale // 10))
            rows.append((*account, time, level))
    return table_of(rows)


def extents(artists):
    boxes = [artist.get_window_extent() for artist in artists if artist.get_text()]
    return sorted((box.extents for box in boxes), key=tuple)


def visible_labels(axis):
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    ]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from([GENERAL, MARGIN]), st.integers(START, START + 40 * HOUR)),
        st.integers(0, 10**20),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=30)
def test_each_line_has_the_rows_of_its_account_and_ends_with_the_interval(levels):
    rows = [(*account, time, balance) for (account, time), balance in levels.items()]
    last = max(row[4] for row in rows)
    names = {GENERAL: "general · a1", MARGIN: "margin · a1\nmarket m1"}
    expected = {
        names[account]: [
            *((time, float(balance)) for time, balance in changes),
            (last, float(changes[-1][1])),
        ]
        for account, changes in by_account(rows).items()
    }
    ax = plot_balances(table_of(rows).iloc[::-1])
    assert drawn(ax) == expected
    plt.close(ax.figure)


def test_a_balance_holds_until_the_next_row():
    ax = plot_balances(history(5, parties=3))
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}


def test_an_end_after_the_last_row_is_drawn_to():
    table = table_of([(*GENERAL, START, 5)])
    ax = plot_balances(table, end="2023-04-05")
    assert drawn(ax)["general · a1"] == [(START, 5.0), (19452 * DAY, 5.0)]


def test_rows_at_or_after_the_end_are_not_drawn():
    table = table_of([(*GENERAL, 19449 * DAY, 5), (*GENERAL, 19450 * DAY, 6)])
    ax = plot_balances(table, end="2023-04-03")
    assert drawn(ax)["general · a1"] == [(19449 * DAY, 5.0), (19450 * DAY, 5.0)]


def test_nothing_is_drawn_before_the_first_row():
    rows = [(*GENERAL, START, 5), (*MARGIN, START + DAY, 6), (*GENERAL, START + 2 * DAY, 7)]
    assert drawn(plot_balances(table_of(rows)))["margin · a1\nmarket m1"][0][0] == START + DAY


@pytest.mark.parametrize("decimals", [18, {"VOTE": 18, "other": 6}])
def test_decimals_turn_amounts_into_whole_units(decimals):
    table = table_of([(*GENERAL, START, 15 * 10**17)])
    ax = plot_balances(table, decimals=decimals, unit="VEGA")
    assert drawn(ax)["general · a1"][0][1] == 1.5
    assert ax.get_ylabel() == "balance (VEGA)\nasset VOTE"


def test_decimals_that_lack_the_asset_are_refused():
    with pytest.raises(ValueError, match="VOTE"):
        plot_balances(table_of([(*GENERAL, START, 5)]), decimals={"other": 6})


def test_without_decimals_the_axis_names_the_smallest_unit():
    ax = plot_balances(table_of([(*GENERAL, START, 5)]))
    assert ax.get_ylabel() == "balance (smallest unit)\nasset VOTE"


def test_two_assets_are_refused_with_the_way_to_select_one():
    table = table_of([(*GENERAL, START, 5), ("other", *GENERAL[1:], START, 5)])
    with pytest.raises(ValueError, match=r"table\[table\[\"asset_id\"\] == 'VOTE'\]"):
        plot_balances(table)


def test_a_selected_asset_of_a_larger_table_is_drawn():
    table = table_of([(*GENERAL, START, 5), ("other", *GENERAL[1:], START, 6)])
    ax = plot_balances(table[table["asset_id"] == "other"])
    assert drawn(ax) == {"general · a1": [(START, 6.0), (START, 6.0)]}


def test_a_balance_of_one_moment_is_marked():
    ax = plot_balances(table_of([(*GENERAL, START, 5), (*MARGIN, START - DAY, 5)]))
    assert [line.get_marker() for line in ax.lines] == ["o", "None"]


def test_the_largest_of_many_accounts_are_drawn_and_the_rest_counted():
    rows = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:02}", "", START + i, i) for i in range(20)]
    ax = plot_balances(table_of(rows))
    assert list(drawn(ax)) == [f"general · p{i:02}" for i in range(19, 19 - MOST_LINES, -1)]
    assert "8 of 20 accounts" in ax.get_legend().get_title().get_text()
    assert "12 are not drawn" in ax.get_legend().get_title().get_text()


def test_a_legend_of_all_accounts_says_nothing_of_others():
    ax = plot_balances(history(5, parties=MOST_LINES))
    assert len(ax.lines) == MOST_LINES
    assert ax.get_legend().get_title().get_text() == ""


def test_an_account_that_was_large_for_a_moment_counts_as_large():
    rows = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:02}", "", START, 50) for i in range(9)]
    rows += [(*GENERAL, START, 1), (*GENERAL, START + 1, 99), (*GENERAL, START + 2, 1)]
    assert next(iter(drawn(plot_balances(table_of(rows))))) == "general · a1"


def test_each_line_has_a_colour_of_its_own():
    ax = plot_balances(history(5, parties=MOST_LINES))
    assert [to_hex(line.get_color()).upper() for line in ax.lines] == list(COLOURS)


def test_labels_show_short_ids():
    ax = plot_balances(history(2))
    assert all(len(text.get_text()) < 30 for text in ax.get_legend().get_texts())


def test_the_given_axes_are_drawn_into():
    _, axes = plt.subplots(1, 2)
    assert plot_balances(history(5), ax=axes[1]) is axes[1]
    assert not axes[0].lines
    assert len(plt.get_fignums()) == 1


def test_global_settings_stay_as_they_are():
    before = mpl.rcParams.copy()
    plot_balances(history(5)).figure.canvas.draw()
    assert mpl.rcParams == before


def test_no_rows_give_axes_that_say_so():
    ax = plot_balances(empty_table())
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["no balance changes"]
    assert ax.get_xlabel() == "UTC"


def test_an_end_before_the_first_row_gives_axes_that_say_so():
    ax = plot_balances(table_of([(*GENERAL, START, 5)]), end="2020-01-01")
    assert [text.get_text() for text in ax.texts] == [
        "no balance changes\nbefore 2020-01-01 00:00:00 UTC"
    ]


def test_dates_are_utc_whatever_the_time_zone_of_matplotlib():
    seen = []
    for zone in ("UTC", "Asia/Kolkata"):
        with mpl.rc_context({"timezone": zone}):
            ax = plot_balances(history(40, days=1))
            ax.figure.canvas.draw()
            labels = [label.get_text() for label in visible_labels(ax.xaxis)]
            seen.append((ax.get_xticks().tolist(), labels, ax.xaxis.get_offset_text().get_text()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("parties", [1, 20])
@pytest.mark.parametrize("size", [(10, 4.5), (5, 3)])
def test_the_legend_stands_inside_the_figure_and_outside_the_data(parties, size):
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    plot_balances(history(50, parties=parties), ax=ax)
    figure.canvas.draw()
    legend, data = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.x0 >= data.x1
    assert legend.x1 <= figure.bbox.x1


SPANS = [0.00001, 0.001, 0.01, 0.1, 0.7, 1, 2, 5, 30, 50, 200, 400, 800, 2000]


@pytest.mark.parametrize("days", SPANS)
@pytest.mark.parametrize("width", [5, 7, 12])
def test_dates_do_not_overlap(days, width):
    figure, ax = plt.subplots(figsize=(width, 3), layout="constrained")
    plot_balances(history(40, days=days), ax=ax)
    figure.canvas.draw()
    boxes = extents(visible_labels(ax.xaxis))
    assert boxes
    assert all(left[2] < right[0] for left, right in pairwise(boxes))


@pytest.mark.parametrize("width", [5, 7, 12])
def test_the_time_zone_and_the_date_do_not_overlap(width):
    figure, ax = plt.subplots(figsize=(width, 3), layout="constrained")
    plot_balances(history(40), ax=ax)
    figure.canvas.draw()
    boxes = extents([ax.xaxis.label, ax.xaxis.get_offset_text()])
    assert len(boxes) == 2
    assert boxes[0][2] < boxes[1][0]


LEVELS = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, LARGEST), st.integers(10**9, 10**9 + 50)),
    min_size=1,
    max_size=5,
)


@given(LEVELS, st.sampled_from([None, 0, 6, 18]), st.sampled_from([1, HOUR, 100 * DAY]))
@settings(max_examples=25)
def test_any_history_draws_with_amounts_that_can_be_told_apart(levels, decimals, step):
    rows = [(*GENERAL, START + at * step, level) for at, level in enumerate(levels)]
    ax = plot_balances(table_of(rows), decimals=decimals)
    ax.figure.canvas.draw()
    texts = [label.get_text() for label in visible_labels(ax.yaxis)]
    assert texts
    assert len(set(texts)) == len(texts)
    plt.close(ax.figure)


def test_large_amounts_that_differ_little_can_be_told_apart():
    rows = [(*GENERAL, START, 10**9), (*GENERAL, START + DAY, 10**9 + 50)]
    ax = plot_balances(table_of(rows))
    ax.figure.canvas.draw()
    texts = [label.get_text() for label in visible_labels(ax.yaxis)]
    assert len(set(texts)) == len(texts) > 1


def test_an_account_that_is_always_empty_lies_at_the_bottom_of_an_axis_from_0_to_1():
    ax = plot_balances(table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 0)]))
    assert ax.get_ylim() == (-0.05, 1.05)


def test_large_amounts_have_si_prefixes():
    ax = plot_balances(history(50, scale=10**12), decimals=6)
    ax.figure.canvas.draw()
    assert {label.get_text()[-1] for label in visible_labels(ax.yaxis)} <= {"k", "M", "0"}


def test_amounts_in_the_smallest_unit_are_never_split():
    ax = plot_balances(table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 1)]))
    ax.figure.canvas.draw()
    low, high = ax.get_ylim()
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert np.allclose(ticks, [0, 1])


def test_one_row_shows_its_day_and_not_its_years():
    ax = plot_balances(table_of([(*GENERAL, START, 5)]))
    left, right = ax.get_xlim()
    assert right - left == pytest.approx(1)
