"""What must never be, in any figure: labels over labels, words outside, a legend over data."""

from __future__ import annotations

from itertools import combinations

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import balance_analysis as ba
from balance_analysis.archive.coverage import Coverage, Interval
from tests.analysis.tables import START, table_of
from tests.figures.drawn import (
    DAY,
    GENERAL,
    extents,
    history,
    snapshots,
    us,
    visible_labels,
)

TYPES = ("GENERAL", "MARGIN", "BOND", "INSURANCE", "REWARD_LP_RECEIVED_FEES", "SETTLEMENT")
LIMITS = snapshots(
    ("2023-03-20", "2023-04-02", False, True),
    ("2023-04-03", "2023-04-20", True, True),
    ("2023-04-25", "2023-04-25", True, False),
    since=[None, "2023-04-01", "2023-04-01"],
)
COVERAGE = Coverage(
    tuple(
        Interval(us(start), us(end), proven, "https://node.example", 7, "2023-05-01")
        for start, end, proven in (
            ("2021-04-01", "2022-04-01", True),
            ("2022-04-02", "2023-04-01", False),
            ("2023-04-01", "2023-05-01", True),
        )
    )
).to_frame()


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
    "totals": lambda table, ax: ba.plot_totals(
        table, ax=ax, decimals=6, unit="VEGA", limits=LIMITS
    ),
    "shares by party": lambda table, ax: ba.plot_totals(
        table, ax=ax, by=("asset_id", "party_id"), shares=True
    ),
    "flows": lambda table, ax: ba.plot_flows(table, ax=ax, decimals=18, limits=LIMITS),
    "drawdown": lambda table, ax: ba.plot_drawdown(one_account(table), ax=ax),
    "calendar": lambda table, ax: ba.plot_activity(table, ax=ax),
    "week": lambda table, ax: ba.plot_activity(table, ax=ax, kind="week"),
    "lorenz": lambda table, ax: ba.plot_concentration(table, ax=ax),
    "largest": lambda table, ax: ba.plot_concentration(table, ax=ax, kind="largest"),
}
SNAPSHOT_PLOTS = {
    "coverage": lambda ax: ba.plot_coverage(COVERAGE, ax=ax),
    "limits": lambda ax: ba.plot_limits(LIMITS, ax=ax, end="2023-05-01"),
    "limits seen once": lambda ax: ba.plot_limits(LIMITS[2:], ax=ax),
}
SIZES = [(5, 3), (10, 4.5)]


def check_layout(ax):
    figure = ax.figure
    figure.canvas.draw()
    for axis in (ax.xaxis, ax.yaxis):
        words = [*visible_labels(axis), axis.get_offset_text(), axis.label]
        for one, other in combinations(extents(words), 2):
            assert not overlap(one, other), (axis.axis_name, one, other)
    outside = figure.bbox.padded(1)
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and is_shown(text, ax):
            box = text.get_window_extent()
            assert outside.x0 <= box.x0, text
            assert box.x1 <= outside.x1, text
            assert outside.y0 <= box.y0, text
            assert box.y1 <= outside.y1, text
    legend = ax.get_legend()
    if legend is not None:
        assert not overlap(legend.get_window_extent().extents, ax.get_window_extent().extents)


def is_shown(text, ax):
    """Whether a text is drawn: matplotlib keeps ticks beyond an axis, which it doesn't draw."""
    ticks = {
        tick.label1
        for axis in (ax.xaxis, ax.yaxis)
        for tick in [*axis.majorTicks, *axis.minorTicks]
    }
    return text not in ticks or text in {*visible_labels(ax.xaxis), *visible_labels(ax.yaxis)}


def overlap(one, other):
    return (
        one[0] < other[2] - 0.5
        and other[0] < one[2] - 0.5
        and one[1] < other[3] - 0.5
        and other[1] < one[3] - 0.5
    )


def axes_of(size):
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


@pytest.mark.parametrize(
    ("table", "size"), [(name, SIZES[0]) for name in TABLES if name != "a day"], ids=str
)
@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_words_stand_apart_within_the_figure_and_the_legend_beside_the_data(plot, table, size):
    check_layout(plot(TABLES[table], axes_of(size)))


@pytest.mark.parametrize("size", [*SIZES, (6, 2)], ids=str)
@pytest.mark.parametrize("plot", SNAPSHOT_PLOTS.values(), ids=SNAPSHOT_PLOTS)
def test_so_they_do_where_an_archive_is_drawn(plot, size):
    check_layout(plot(axes_of(size)))


@given(
    st.sampled_from(list(PLOTS)),
    st.floats(5, 14),
    st.floats(3, 8),
    st.floats(0.00001, 3000),
    st.integers(1, 12),
)
@settings(max_examples=12)
def test_so_they_do_in_any_size_and_over_any_time(name, width, height, days, parties):
    table = history(30, days=days, parties=parties, types=TYPES)
    check_layout(PLOTS[name](table, axes_of((width, height))))


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


TIMED = [name for name in PLOTS if name not in {"calendar", "week", "lorenz"}]


@pytest.mark.parametrize("name", TIMED)
def test_times_are_utc_whatever_the_time_zone_of_matplotlib(name):
    seen = []
    for zone in ("UTC", "Asia/Kolkata"):
        with mpl.rc_context({"timezone": zone}):
            ax = PLOTS[name](TABLES["a day"], axes_of((10, 4)))
            ax.figure.canvas.draw()
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
        ax = ba.plot_flows(table_of([(*GENERAL, START + 7, 5)]), freq=freq, decimals=6)
        assert ax.get_ylim() == (-0.05, 1.05)
