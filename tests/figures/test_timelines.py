"""Stretches of time in lanes: what an archive covers, and what the network's limits were."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import matplotlib.dates
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, HOUR, table_of
from tests.figures.drawn import coverage_frame, entries, micros, shaded, snapshots, us

START = us("2023-04-01")


def lanes(ax):
    """Return {label: [(edge colour, hatch, start, end), ...]} of the bars, as drawn."""
    drawn = {label.get_text().replace("\n", " "): [] for label in ax.get_yticklabels()}
    for bars in ax.collections:
        for path in bars.get_paths():
            x, y = path.vertices.T
            bar = mpl.colors.to_hex(bars.get_edgecolor()[0]), bars.get_hatch()
            [*drawn.values()][round(y.mean())].append((*bar, *micros([x.min(), x.max()])))
    return drawn


@pytest.mark.parametrize(
    ("plot", "frame"),
    [(ba.plot_coverage, ba.Archive.coverage), (ba.plot_limits, ba.Archive.limits)],
)
def test_an_archive_is_drawn_as_its_frame_is(plot, frame, sample):
    one, *others = (lanes(plot(source)) for source in (frame(sample), sample, sample.uri))
    assert any(one.values())
    assert others == [one, one]


@pytest.mark.parametrize(
    ("plot", "empty", "says", "refused"),
    [
        (
            ba.plot_coverage,
            coverage_frame(),
            "nothing is covered yet",
            r"Archive\.coverage.*no column start, end, state",
        ),
        (
            ba.plot_limits,
            snapshots(("2023-04-01", "2023-04-01", True, True))[:0],
            "no snapshot of the limits",
            r"Archive\.limits.*no column first_seen, last_seen",
        ),
    ],
)
def test_an_empty_frame_gives_axes_that_say_so_and_another_one_is_refused(
    plot, empty, says, refused
):
    assert [text.get_text() for text in plot(empty).texts] == [says]
    with pytest.raises(ValueError, match=refused):
        plot(table_of([(*GENERAL, START, 5)]))
    for wrong in ([], 5, None):
        with pytest.raises(TypeError, match="expected an Archive or the path of one"):
            plot(wrong)


# Coverage


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 50), st.booleans()), min_size=1, max_size=8
    )
)
@settings(max_examples=12)
def test_every_stretch_is_drawn_in_the_row_of_its_state(parts):
    spans, at = [], START
    for pause, length, proven in parts:
        at += (pause - 1) * HOUR
        spans.append((at, at + length * HOUR, proven))
        at = spans[-1][1]
    frame = coverage_frame(*spans)
    ax = ba.plot_coverage(frame)
    expected = {}
    for start, end, state in zip(frame["start"], frame["end"], frame["state"], strict=True):
        span = tuple(int(moment.timestamp() * 1e6) for moment in (start, end))
        expected.setdefault(state, []).append(span)
    assert {name.split()[0]: [x[2:] for x in each] for name, each in lanes(ax).items()} == expected
    plt.close(ax.figure)


def test_rows_stand_in_the_order_complete_unproven_gap_with_their_lengths():
    day = 24 * HOUR
    spans = [(START, START + day, False), (START + 3 * day, START + 4 * day + HOUR, True)]
    ax = ba.plot_coverage(coverage_frame(*spans))
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "complete\n1 day 1 hour",
        "unproven\n1 day",
        "missing\n2 days",
    ]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ("3D", "3 days"),
        ("1D 2h 5min", "1 day 2 hours"),
        ("61s", "1 minute 1 second"),
        ("5us", "less than a second"),
        ("1200D", "1,200 days"),
        ("29D 23h 59min 59.7s", "30 days"),
        ("29D 23h 31min", "30 days"),
        ("29D 23h 29min", "29 days 23 hours"),
        ("23h 59min 40s", "1 day"),
        ("59.9s", "1 minute"),
    ],
)
def test_lengths_are_written_in_two_units(length, words):
    end = START + int(pd.Timedelta(length) / pd.Timedelta("1us"))
    (label,) = ba.plot_coverage(coverage_frame((START, end, True))).get_yticklabels()
    assert label.get_text() == f"complete\n{words}"


def test_a_gap_of_an_hour_is_seen_among_years():
    year = 365 * 24 * HOUR
    spans = [(START, START + year, True), (START + year + HOUR, START + 4 * year, True)]
    ax = ba.plot_coverage(coverage_frame(*spans))
    ax.figure.canvas.draw()
    gap = ax.collections[-1]
    assert gap.get_linewidth()[0] >= 1
    image = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)
    reds = (image[..., 0] > image[..., 2] + 100).sum()
    assert reds > 20


# Limits


def spans_of(limits, kind):
    """Return the days that are shaded in a figure of all of 2023."""
    table = table_of([(*GENERAL, us("2023-01-01"), 5)])
    ax = ba.plot_balances(table, end="2024-01-01", limits=limits)
    return [
        tuple(pd.Timestamp(bound, unit="us").isoformat()[:10] for bound in span)
        for label, *span in [*shaded(ax), *shaded(ax, "..")]
        if label == f"{kind} proposals enabled"
    ]


def edge_of(ax, state):
    """Return the colour that the legend says a state has."""
    handles = dict(zip(entries(ax), ax.get_legend().legend_handles, strict=True))
    return mpl.colors.to_hex(handles[state].get_edgecolor())


def test_a_limit_is_known_only_between_its_first_and_its_last_sight():
    limits = snapshots(
        ("2023-04-01", "2023-04-03", False, True), ("2023-04-05", "2023-04-06", True, True)
    )
    ax = ba.plot_limits(limits, end="2023-04-09")
    bars = lanes(ax)["can propose market"]
    assert (edge_of(ax, "no"), None, us("2023-04-01"), us("2023-04-03")) in bars
    assert (edge_of(ax, "yes"), None, us("2023-04-05"), us("2023-04-06")) in bars
    assert [bar[2:] for bar in bars if bar[1] == "////"] == [
        (us("2023-04-03"), us("2023-04-05")),
        (us("2023-04-06"), us("2023-04-09")),
    ]
    assert len(bars) == 4
    assert entries(ax) == ["yes", "no", "unknown"]


def test_a_snapshot_that_was_seen_once_is_wide_enough_to_see():
    ax = ba.plot_limits(snapshots(("2023-04-01", "2023-04-01", True, True)))
    ((_, _, start, end),) = lanes(ax)["can propose asset"]
    low, high = micros(ax.get_xlim())
    assert high - low > 0.9 * DAY
    assert low <= start < us("2023-04-01") < end <= high
    assert (end - start) / (high - low) > 0.015


def test_what_a_snapshot_says_of_the_time_before_it_is_drawn_in_another_colour():
    limits = snapshots(("2023-04-03", "2023-04-05", True, True), since=["2023-04-02"])
    ax = ba.plot_limits(limits)
    stated = [bar for bar in lanes(ax)["propose market enabled"] if bar[0] != edge_of(ax, "yes")]
    assert [bar[2] for bar in stated] == [us("2023-04-02")]
    assert not [bar for bar in lanes(ax)["can propose market"] if bar[0] != edge_of(ax, "yes")]
    assert "yes, by a later snapshot" in entries(ax)


def test_a_date_long_ago_takes_no_more_than_half_of_the_timeline():
    limits = snapshots(("2023-04-03", "2023-04-13", True, True), since=["2020-01-01"])
    left = micros([ba.plot_limits(limits).get_xlim()[0]])[0]
    assert us("2023-03-23") < left < us("2023-03-25")


SEEN = {
    "from sight to sight": (
        snapshots(
            ("2023-04-01", "2023-04-03", True, True), ("2023-04-05", "2023-04-06", True, False)
        ),
        [("2023-04-01", "2023-04-03"), ("2023-04-05", "2023-04-06")],
        [("2023-04-01", "2023-04-03")],
    ),
    "since when they have been": (
        snapshots(("2023-04-05", "2023-04-06", True, False), since=["2023-03-01"]),
        [("2023-03-01", "2023-04-06")],
        [],
    ),
    "not before an earlier snapshot": (
        snapshots(
            ("2023-04-01", "2023-04-03", False, False),
            ("2023-04-05", "2023-04-06", True, False),
            since=[None, "2023-03-01"],
        ),
        [("2023-04-03", "2023-04-06")],
        [],
    ),
    "not yet": (snapshots(("2023-04-01", "2023-04-03", True, True), since=["2023-05-01"]), [], []),
}
"""Snapshots, and when they say that proposals of markets, and of assets, were enabled."""


@pytest.mark.parametrize(("limits", "markets", "assets"), SEEN.values(), ids=SEEN)
def test_what_snapshots_say_was_enabled_is_shaded(limits, markets, assets):
    assert (spans_of(limits, "market"), spans_of(limits, "asset")) == (markets, assets)


@pytest.mark.parametrize("style", [{}, ba.DARK_STYLE], ids=["light", "dark"])
def test_what_was_enabled_is_seen_without_colours(style):
    limits = snapshots(
        ("2023-01-02", "2023-01-04", False, False),
        ("2023-01-04", "2023-01-06", True, False),
        ("2023-01-06", "2023-01-08", False, True),
        ("2023-01-08", "2023-01-10", True, True),
    )
    with mpl.rc_context(style):
        table = table_of([(*GENERAL, us("2023-01-02"), 0)])
        ax = ba.plot_balances(table, end="2023-01-10", limits=limits)
        ax.grid(visible=False)
        ax.figure.canvas.draw()
    grey = np.asarray(ax.figure.canvas.buffer_rgba())[:, :, :3].mean(axis=2)
    inside = grey[int(len(grey) * 0.3) : int(len(grey) * 0.7)]
    dates = pd.date_range("2023-01-02", "2023-01-10", periods=5)
    edges = ax.transData.transform([(each, 0) for each in mpl.dates.date2num(dates)])[:, 0]
    none, market, asset, both = (inside[:, int(a) + 5 : int(b) - 5] for a, b in pairwise(edges))
    assert np.ptp(none) == np.ptp(market) == 0
    assert abs(none[0, 0] - market[0, 0]) > 10
    assert np.median(asset) == none[0, 0]
    assert np.median(both) == market[0, 0]
    assert min(np.ptp(asset), np.ptp(both)) > 25


def test_a_bar_that_began_before_the_timeline_has_no_edge_in_it_and_says_when():
    limits = snapshots(("2023-04-26", "2023-04-26", True, True), since=["2023-03-01T12:00"])
    ax = ba.plot_limits(limits)
    (stated,) = [bar for bar in lanes(ax)["propose market enabled"] if bar[0] != edge_of(ax, "yes")]
    assert stated[2] == us("2023-03-01T12:00") < micros([ax.get_xlim()[0]])[0]
    said = [text.get_text().strip() for text in ax.texts]
    assert said == ["◂ since 2023-03-01T12:00Z"] * 2


def test_the_timeline_begins_where_it_is_asked_to():
    limits = snapshots(("2023-04-16", "2023-04-26", True, True), since=["2023-03-01"])
    left = micros([ba.plot_limits(limits, start="2023-04-10", end="2023-05-01").get_xlim()[0]])[0]
    assert us("2023-04-09T12:00") < left < us("2023-04-10")
    with pytest.raises(ValueError, match="start is after the end, 2023-04-26"):
        ba.plot_limits(limits, start="2023-04-27")
