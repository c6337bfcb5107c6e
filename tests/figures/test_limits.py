from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import matplotlib.dates
import numpy as np
import pandas as pd
import pytest

import balance_analysis as ba
from tests.analysis.tables import table_of
from tests.figures.drawn import DAY, GENERAL, entries, micros, shaded, snapshots, us


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


def lane(ax, flag):
    """Return [(edge colour, hatch, start, end)] of the bars of a limit, as drawn."""
    place = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()].index(flag)
    bars = []
    for collection in ax.collections:
        for path in collection.get_paths():
            y = path.vertices[:, 1]
            if y.min() < place < y.max():
                colour = mpl.colors.to_hex(collection.get_edgecolor()[0])
                x = path.vertices[:, 0]
                bars.append((colour, collection.get_hatch(), *micros([x.min(), x.max()])))
    return bars


def test_a_limit_is_known_only_between_its_first_and_its_last_sight():
    limits = snapshots(
        ("2023-04-01", "2023-04-03", False, True), ("2023-04-05", "2023-04-06", True, True)
    )
    ax = ba.plot_limits(limits, end="2023-04-09")
    bars = lane(ax, "can propose market")
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
    ((_, _, start, end),) = lane(ax, "can propose asset")
    low, high = micros(ax.get_xlim())
    assert high - low > 0.9 * DAY
    assert low <= start < us("2023-04-01") < end <= high
    assert (end - start) / (high - low) > 0.015


def test_what_a_snapshot_says_of_the_time_before_it_is_drawn_in_another_colour():
    limits = snapshots(("2023-04-03", "2023-04-05", True, True), since=["2023-04-02"])
    ax = ba.plot_limits(limits)
    stated = [bar for bar in lane(ax, "propose market enabled") if bar[0] != edge_of(ax, "yes")]
    assert [bar[2] for bar in stated] == [us("2023-04-02")]
    assert not [bar for bar in lane(ax, "can propose market") if bar[0] != edge_of(ax, "yes")]
    assert "yes, by a later snapshot" in entries(ax)


def test_a_date_long_ago_takes_no_more_than_half_of_the_timeline():
    limits = snapshots(("2023-04-03", "2023-04-13", True, True), since=["2020-01-01"])
    left = micros([ba.plot_limits(limits).get_xlim()[0]])[0]
    assert us("2023-03-23") < left < us("2023-03-25")


def test_no_snapshot_gives_axes_that_say_so():
    limits = snapshots(("2023-04-01", "2023-04-01", True, True))[:0]
    ax = ba.plot_limits(limits)
    assert [text.get_text() for text in ax.texts] == ["no snapshot of the limits"]


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
    (stated,) = [bar for bar in lane(ax, "propose market enabled") if bar[0] != edge_of(ax, "yes")]
    assert stated[2] == us("2023-03-01T12:00") < micros([ax.get_xlim()[0]])[0]
    said = [text.get_text().strip() for text in ax.texts]
    assert said == ["◂ since 2023-03-01T12:00Z"] * 2


def test_the_timeline_begins_where_it_is_asked_to():
    limits = snapshots(("2023-04-16", "2023-04-26", True, True), since=["2023-03-01"])
    left = micros([ba.plot_limits(limits, start="2023-04-10", end="2023-05-01").get_xlim()[0]])[0]
    assert us("2023-04-09T12:00") < left < us("2023-04-10")
    with pytest.raises(ValueError, match="start is after the end, 2023-04-26"):
        ba.plot_limits(limits, start="2023-04-27")


def test_an_archive_is_drawn_by_its_limits(sample):
    drawn = [ba.plot_limits(source) for source in (sample, sample.uri, sample.limits())]
    assert len({str(lane(ax, "can propose market")) for ax in drawn}) == 1


def test_a_frame_that_is_no_limits_is_refused():
    with pytest.raises(ValueError, match=r"Archive\.limits.*no column first_seen, last_seen"):
        ba.plot_limits(table_of([(*GENERAL, us("2023-04-01"), 5)]))
