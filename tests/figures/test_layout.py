"""What must never be, in any figure: words over words, words outside, a legend over data."""

from __future__ import annotations

import io
from itertools import combinations, pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.figures.drawn import (
    DAY,
    GENERAL,
    coverage_frame,
    entries,
    history,
    snapshots,
    us,
    visible_labels,
)

VEGA = {"VOTE": {"symbol": "VEGA", "decimals": 6}}
TYPES = ("GENERAL", "MARGIN", "BOND", "INSURANCE", "REWARD_LP_RECEIVED_FEES", "SETTLEMENT")
LIMITS = snapshots(
    ("2023-03-20", "2023-04-02", False, True),
    ("2023-04-03", "2023-04-20", True, True),
    ("2023-04-25", "2023-04-25", True, False),
    since=[None, "2023-04-01", "2023-04-01"],
)
COVERAGE = coverage_frame(
    (us("2021-04-01"), us("2022-04-01"), True),
    (us("2022-04-02"), us("2023-04-01"), False),
    (us("2023-04-01"), us("2023-05-01"), True),
)


def in_markets(table):
    """Return a table whose accounts have markets with ids as long as real ones."""
    return table.assign(market_id=table["party_id"].astype("str").str[::-1])


TABLES = {
    "one row": table_of([(*GENERAL, START, 5 * 10**9)]),
    "a minute": history(30, days=1 / 1440, parties=2),
    "a day": history(60, days=1, parties=5, types=TYPES),
    "a month": in_markets(history(60, days=30, parties=20, types=TYPES)),
    "six years": history(60, days=2200, parties=12, types=TYPES),
    "nothing": table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 0)]),
    "large": history(40, scale=10**37, parties=3),
}


def one_account(table):
    keys = ba.ACCOUNT_KEY
    return table.merge(table[keys].head(1), on=keys).astype(dict.fromkeys(keys, "category"))


PLOTS = {
    "balances": lambda table, ax: ba.plot_balances(
        table, ax=ax, start="2017-01-01" if len(table) == 1 else None, limits=LIMITS
    ),
    "balances from a start": lambda table, ax: ba.plot_balances(table, ax=ax, start="2023-03-27"),
    "totals": lambda table, ax: ba.plot_totals(table, ax=ax, assets=VEGA, limits=LIMITS),
    "shares by party": lambda table, ax: ba.plot_totals(
        table, ax=ax, by=("asset_id", "party_id"), shares=True
    ),
    "flows": lambda table, ax: ba.plot_flows(table, ax=ax, assets=VEGA, limits=LIMITS),
    "drawdown": lambda table, ax: ba.plot_drawdown(one_account(table), ax=ax),
    "calendar": lambda table, ax: ba.plot_activity(table, ax=ax),
    "week": lambda table, ax: ba.plot_activity(table, ax=ax, kind="week"),
}
SNAPSHOT_PLOTS = {
    "coverage": lambda ax: ba.plot_coverage(COVERAGE, ax=ax),
    "limits": lambda ax: ba.plot_limits(LIMITS, ax=ax, end="2023-05-01"),
    "limits seen once": lambda ax: ba.plot_limits(LIMITS[2:], ax=ax),
}
SIZES = [(10, 4), (3.3, 2.5)]


def check_layout(ax):
    """Check each word of a figure, and that no data lies behind the legend of an Axes."""
    figure = ax.figure
    figure.draw_without_rendering()
    found = []
    for each in figure.axes:
        legend = each.get_legend()
        found += [text for text in each.findobj(Text) if is_seen(text, each)]
        if legend is not None:
            assert inside(legend.get_window_extent(), each.bbox)
            assert not any(overlap(top, legend.get_window_extent()) for top in drawn(each))
    for text in found:
        assert inside(text.get_window_extent(), figure.bbox), text
    # Where a text is, without the line that leads to it.
    boxes = [(text, Text.get_window_extent(text)) for text in found]
    for (one, box), (other, its_box) in combinations(boxes, 2):
        assert not overlap(box, its_box), (one, other)


def is_seen(text, ax):
    return text.get_text().strip() and text.get_visible() and is_shown(text, ax)


def inside(box, other):
    return (
        other.x0 - 1 <= box.x0
        and box.x1 <= other.x1 + 1
        and other.y0 - 1 <= box.y0
        and box.y1 <= other.y1 + 1
    )


def drawn(ax):
    """Return the boxes of the data of an Axes: of lines, areas, bars and cells."""
    low, high = ax.dataLim.intervaly
    ends = ax.transData.transform([(0, low), (0, high)])[:, 1]
    return [Bbox.from_extents(ax.bbox.x0, min(ends), ax.bbox.x1, max(ends))]


def is_shown(text, ax):
    """Whether a text is drawn: matplotlib keeps ticks beyond an axis, which it doesn't draw."""
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.majorTicks, *axis.minorTicks]:
            if text in (tick.label1, tick.label2):
                return axis.get_visible() and low <= tick.get_loc() <= high
    return True


def overlap(one, other):
    return (
        one.x0 < other.x1 - 1
        and other.x0 < one.x1 - 1
        and one.y0 < other.y1 - 1
        and other.y0 < one.y1 - 1
    )


def axes_of(size, **layout):
    return plt.subplots(figsize=size, **layout)[1]


ALL = {
    **PLOTS,
    **{name: lambda _, ax, plot=plot: plot(ax) for name, plot in SNAPSHOT_PLOTS.items()},
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("plot", ALL.values(), ids=ALL)
def test_words_stand_apart_in_the_figure_and_the_legend_above_the_data(plot, size):
    check_layout(plot(TABLES["a month"], axes_of(size)))


@pytest.mark.parametrize("table", [name for name in TABLES if name != "a month"])
@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_so_they_do_whatever_the_data_is(plot, table):
    check_layout(plot(TABLES[table], axes_of((6.4, 4.8))))


@pytest.mark.parametrize(
    ("first", "layout"), [(0, None), (4, "constrained"), (8, "tight"), (12, None)]
)
def test_so_they_do_in_subplots(first, layout):
    _, axes = plt.subplots(2, 2, figsize=(10, 8), layout=layout)
    for plot, ax in zip(list(ALL.values())[first : first + 4], axes.flat, strict=False):
        plot(TABLES["a month"], ax)
    check_layout(axes[0, 0])


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("count", [1, 4, 8, 20])
def test_so_they_do_however_many_lines_there_are(count, size):
    ax = ba.plot_balances(history(20, parties=count, types=TYPES[:2]), ax=axes_of(size))
    check_layout(ax)
    assert len(ax.lines) == min(count, 8)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_so_they_do_beside_a_second_axis(is_first, size):
    ax = axes_of(size)
    twin = ax.twinx() if is_first else None
    ba.plot_balances(history(20, parties=4), ax=ax)
    twin = twin or ax.twinx()
    ba.plot_totals(history(20, parties=4, types=TYPES), ax=twin, assets=VEGA)
    twin.set_ylabel("total (VEGA)")
    check_layout(ax)
    assert ax.bbox.bounds == pytest.approx(twin.bbox.bounds)
    assert not overlap(*(each.get_legend().get_window_extent() for each in (ax, twin)))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_figure_saved_in_a_tight_box_has_the_same_legend(size):
    ax = ba.plot_totals(TABLES["a month"], ax=axes_of(size))
    ax.figure.canvas.draw()
    before = entries(ax)
    ax.figure.savefig(io.BytesIO(), bbox_inches="tight")
    assert entries(ax) == before
    check_layout(ax)


def test_an_inset_keeps_its_words_within():
    inset = axes_of((8, 6)).inset_axes((0.2, 0.3, 0.7, 0.5))
    ba.plot_totals(TABLES["a month"], ax=inset)
    inset.figure.canvas.draw()
    assert inside(inset.get_legend().get_window_extent(), inset.bbox)


def test_lines_are_named_at_their_ends_where_there_is_room():
    ax = ba.plot_balances(history(20, parties=8), ax=axes_of((10, 4)))
    check_layout(ax)
    assert ax.get_legend() is None
    names = {text.get_text(): text.xy[1] for text in ax.texts}
    assert names == {line.get_label(): line.get_ydata()[-1] for line in ax.lines}
    ax.figure.set_size_inches(3.3, 2.5)
    check_layout(ax)
    assert not ax.texts
    assert ax.get_legend() is not None


@given(st.lists(st.integers(0, 100), min_size=2, max_size=8))
@settings(max_examples=8)
def test_names_are_spread_in_their_order_and_no_farther_than_needed(levels):
    rows = [("VOTE", GENERAL[1], f"p{n}", "", START, level) for n, level in enumerate(levels)]
    ax = ba.plot_balances(table_of(rows), ax=axes_of((10, 4)), end="2023-05-01")
    check_layout(ax)
    boxes = {text.get_text(): Text.get_window_extent(text) for text in ax.texts}
    ends = {
        line.get_label(): ax.transData.transform((0, line.get_ydata()[-1]))[1] for line in ax.lines
    }
    assert set(boxes) == set(ends)
    ascending = sorted(ends, key=ends.__getitem__)
    assert all(inside(box, ax.bbox) for box in boxes.values())
    assert all(
        boxes[low].y0 < boxes[high].y0
        for low, high in pairwise(ascending)
        if ends[low] < ends[high]
    )
    room = 1.5 * max(box.height for box in boxes.values())
    if all(ends[high] - ends[low] > room for low, high in pairwise(ascending)):
        shifts = [(boxes[name].y0 + boxes[name].y1) / 2 - ends[name] for name in ascending]
        assert max(map(abs, shifts)) < room


@given(
    st.lists(
        st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=60),
        min_size=1,
        max_size=20,
        unique=True,
    ),
    st.floats(60, 800),
    st.floats(40, 600),
)
@example([f"{number}" for number in range(10)], 60, 48)
@settings(max_examples=15)
def test_a_legend_has_room_or_says_how_many_have_none(parties, width, height):
    rows = [("VOTE", GENERAL[1], party, "", START, 5) for party in parties]
    ax = plt.figure(figsize=(width / 72, height / 72)).add_axes((0, 0, 1, 1))
    ba.plot_totals(table_of(rows), ax=ax, by="party_id")
    ax.figure.draw_without_rendering()
    legend = ax.get_legend()
    if legend is not None:
        assert inside(legend.get_window_extent(), ax.bbox)
        *_, last = entries(ax)
        handles = [each for each in legend.legend_handles if hasattr(each, "get_facecolor")]
        if more := min(len(parties), 10) - len(handles):
            assert last == f"and {more} other{'s' * (more > 1)}"
    plt.close(ax.figure)


def test_a_figure_that_has_no_room_for_the_words_above_its_legend_still_names_its_data():
    ax = PLOTS["totals"](TABLES["a month"], axes_of((3.3, 2.5)))
    check_layout(ax)
    named, others, *_ = entries(ax)
    assert named.startswith("settlement")
    assert others == "and 5 others"


def test_a_label_that_is_too_long_is_cut_and_not_left_out():
    ax = ba.plot_totals(TABLES["a month"], ax=axes_of((3.3, 2.5)), by=ba.ACCOUNT_KEY)
    check_layout(ax)
    assert entries(ax)[0][-1] == "…"


def test_limits_and_legends_that_a_caller_sets_stay():
    ax = ba.plot_totals(TABLES["a day"], ax=axes_of((6, 4)))
    ax.set_ylim(0, 7)
    ax.set_xlim(0, 1)
    ax.set_title("Mine")
    ax.get_legend().remove()
    ax.figure.set_size_inches(9, 3)
    ax.figure.canvas.draw()
    assert ax.get_ylim() == (0, 7)
    assert ax.get_xlim() == (0, 1)
    assert ax.get_legend() is None
    assert [
        text.get_text()
        for text in ax.findobj(Text)
        if "total by" in text.get_text() and text.get_visible()
    ] == []


def test_ids_with_any_letters_are_written_as_they_are():
    party, asset = "_a$b$^x", "$VO_TE$"
    rows = [(asset, GENERAL[1], name, "", START, 5) for name in (party, "line\nbreak")]
    ax = ba.plot_totals(table_of(rows), ax=axes_of((8, 4)), by=("asset_id", "party_id"))
    check_layout(ax)
    assert entries(ax) == [f" {party} 5", "line\ufffdbreak 5"]
    assert ax.get_title("left") == f"{asset} total by party"


@pytest.mark.parametrize("days", [1 / 24, 1, 3, 30, 400, 2000])
def test_no_date_stands_twice_under_an_axis(days):
    ax = ba.plot_balances(history(20, days=days), ax=axes_of((10, 4)))
    ax.figure.draw_without_rendering()
    words = [label.get_text() for label in visible_labels(ax.xaxis)]
    dates = [word for word in words if ":" not in word]
    assert len(set(dates)) == len(dates)
    assert not any(word in ax.xaxis.get_offset_text().get_text() for word in dates)


@given(
    st.sampled_from(list(PLOTS)),
    st.floats(5, 14),
    st.floats(3, 8),
    st.floats(0.00001, 3000),
    st.integers(1, 12),
)
@settings(max_examples=6)
def test_so_they_do_in_any_size_and_over_any_time(name, width, height, days, parties):
    table = history(30, days=days, parties=parties, types=TYPES)
    check_layout(PLOTS[name](table, axes_of((width, height))))
    plt.close("all")


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_a_figure_draws_into_the_axes_that_it_is_given_and_changes_no_setting(plot):
    before = mpl.rcParams.copy()
    figure, axes = plt.subplots(1, 2, figsize=(16, 5), layout="constrained")
    assert plot(TABLES["a day"], axes[1]) is axes[1]
    figure.canvas.draw()
    assert not axes[0].get_children()[0].get_label() or not axes[0].has_data()
    assert len(plt.get_fignums()) == 1
    assert mpl.rcParams == before


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_without_axes_a_figure_is_made(plot):
    ax = plot(TABLES["a day"], None)
    assert plt.get_fignums() == [ax.figure.number]


TIMED = [name for name in PLOTS if name not in {"calendar", "week"}]


@pytest.mark.parametrize("name", TIMED)
def test_times_are_utc_whatever_the_time_zone_of_matplotlib(name):
    seen = []
    for zone in ("UTC", "Asia/Kolkata"):
        with mpl.rc_context({"timezone": zone}):
            ax = PLOTS[name](TABLES["a day"], axes_of((10, 4)))
            ax.figure.draw_without_rendering()
            labels = [label.get_text() for label in visible_labels(ax.xaxis)]
            seen.append((ax.get_xticks().tolist(), labels, ax.xaxis.get_offset_text().get_text()))
    assert seen[0] == seen[1]
    assert seen[0][1]
    assert ax.get_xlabel() == "UTC"


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_rows_in_any_order_draw_the_same_picture(plot):
    images = []
    for table in (TABLES["a day"], TABLES["a day"].sample(frac=1, random_state=1)):
        ordered = table.sort_values([*ba.ACCOUNT_KEY, "timestamp"])
        wanted = ordered.head(1)[ba.ACCOUNT_KEY]
        mine = table.merge(wanted, on=ba.ACCOUNT_KEY) if plot is PLOTS["drawdown"] else table
        ax = plot(mine, axes_of((8, 4)))
        ax.figure.canvas.draw()
        images.append(bytes(ax.figure.canvas.buffer_rgba()))
    assert images[0] == images[1]


@pytest.mark.parametrize("plot", [ba.plot_balances, ba.plot_flows, ba.plot_drawdown])
@pytest.mark.parametrize("length", [1, 7, 900])
def test_microseconds_are_an_axis_like_any_other(plot, length):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + length, 7)])
    ax = axes_of((7, 4))
    if plot is ba.plot_flows:
        plot(table, ax=ax, freq=None)
    else:
        plot(table, ax=ax)
    check_layout(ax)
    ticks = [label.get_text() for label in visible_labels(ax.xaxis)]
    assert len(ticks) == len(set(ticks)) >= 2


def test_flows_of_nothing_have_an_axis_of_nothing():
    for freq in ("1D", "1h", None):
        ax = ba.plot_flows(table_of([(*GENERAL, START + 7, 5)]), freq=freq, assets=VEGA)
        assert ax.get_ylim()[0] == -0.05
