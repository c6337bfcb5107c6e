"""Stretches of time in lanes: what an archive covers, and what the network's limits were."""

from itertools import pairwise

import matplotlib as mpl
import matplotlib.dates
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, HOUR, instant, table_of
from tests.figures.drawn import coverage_frame, entries, micros, shaded, snapshots, us
from tests.moments import to_microseconds

START = us("2023-04-01")
STATES = ("complete", "unproven", "missing")
KINDS = {"market": None, "asset": ".."}
LATER = "yes, by a later snapshot"


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
    ("plot", "frame", "empty", "lacks"),
    [
        (ba.plot_coverage, ba.Archive.coverage, "nothing is covered yet", "start, end, state"),
        (ba.plot_limits, ba.Archive.limits, "no snapshot of the limits", "first_seen, last_seen"),
    ],
)
def test_an_archive_is_drawn_as_its_frame_is_and_other_values_are_refused(
    plot, frame, empty, lacks, sample
):
    one, *others = (lanes(plot(source)) for source in (frame(sample), sample, sample.uri))
    assert any(one.values())
    assert others == [one, one]
    assert [text.get_text() for text in plot(frame(sample)[:0]).texts] == [empty]
    with pytest.raises(ValueError, match=rf"Archive\.{frame.__name__}.*no column {lacks}"):
        plot(table_of([(*GENERAL, START, 5)]))
    for wrong in ([], 5, None):
        with pytest.raises(TypeError, match="expected an Archive or the path of one"):
            plot(wrong)


# Coverage


hours, flags = st.integers(1, 50), st.booleans()


@given(st.lists(st.tuples(hours, hours, flags), min_size=1, max_size=8))
@settings(max_examples=12)
def test_every_stretch_is_drawn_in_the_lane_of_its_state_with_the_total_length(parts):
    spans, at = [], START
    for pause, length, proven in parts:
        at += (pause - 1) * HOUR
        spans.append((at, at + length * HOUR, proven))
        at = spans[-1][1]
    frame, expected = coverage_frame(*spans), {}
    for state in [each for each in STATES if each in {*frame["state"]}]:
        own = frame[frame["state"] == state]
        bounds = zip(own["start"], own["end"], strict=True)
        spans = [tuple(map(to_microseconds, span)) for span in bounds]
        days, hours = divmod(sum(end - start for start, end in spans) // HOUR, 24)
        length = [f"{n} {name}{'s' * (n > 1)}" for n, name in ((days, "day"), (hours, "hour")) if n]
        expected[" ".join([state, *length])] = spans
    drawn = lanes(ba.plot_coverage(frame))
    assert {label: [bar[2:] for bar in bars] for label, bars in drawn.items()} == expected
    assert [*drawn] == [*expected]


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


def test_a_gap_of_an_hour_is_visible_among_years():
    year = 365 * 24 * HOUR
    spans = [(START, START + year, True), (START + year + HOUR, START + 4 * year, True)]
    ax = ba.plot_coverage(coverage_frame(*spans))
    ax.figure.canvas.draw()
    assert ax.collections[-1].get_linewidth()[0] >= 1
    image = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)
    assert (image[..., 0] > image[..., 2] + 100).sum() > 20


# Limits


def looks(ax):
    """Return {(edge colour, hatch): state} of a legend."""
    handles = zip(entries(ax), ax.get_legend().legend_handles, strict=True)
    return {(mpl.colors.to_hex(x.get_edgecolor()), x.get_hatch()): words for words, x in handles}


def state_at(bars, when, names):
    """Return which state the bar at a moment has."""
    states = [names[bar[:2]] for bar in bars if bar[2] <= when < bar[3]] or [None]
    assert len({*states}) == 1
    return states[0]


STEP = 4 * DAY  # no bar is so short that it is drawn wider
steps = st.integers(1, 3)


@given(st.lists(st.tuples(steps, steps, flags, flags, st.none() | st.integers(1, 25)), min_size=1))
@example([(1, 1, True, True, 25)])
@settings(max_examples=12)
def test_a_limit_is_drawn_while_a_snapshot_was_seen_and_since_the_stated_time(sights):
    begin, seen, ends = START - 6 * STEP, [], [START]
    for pause, length, *is_enabled, since in sights[:4]:
        first = ends[-1] + pause * STEP
        ends.append(first + length * STEP)
        seen.append((first, ends[-1], *is_enabled, since and begin + since * STEP))
    rows = [(*map(instant, one[:2]), *one[2:4]) for one in seen]
    limits, end = snapshots(*rows, since=[instant(one[4]) for one in seen]), ends[-1] + STEP
    ax = ba.plot_limits(limits, end=instant(end))
    names, drawn = looks(ax), lanes(ax)
    table = table_of([(*GENERAL, begin, 5)])
    figure = ba.plot_balances(table, end=instant(end), limits=limits)
    for place, kind in ((2, "market"), (3, "asset")):
        shades = [x for x in shaded(figure, KINDS[kind]) if x[0] == f"{kind} proposals enabled"]
        for when in range(begin + STEP // 2, end, STEP):
            inside = [one[place] for one in seen if one[0] <= when < one[1]]
            state = ("no", "yes")[inside[0]] if inside else "unknown" if when > seen[0][0] else None
            assert state_at(drawn[f"can propose {kind}"], when, names) == state
            could = any(
                one[place] and max(last, one[4] or one[0]) <= when < one[1]
                for last, one in zip([0, *ends[1:]], seen, strict=False)
            )
            state = LATER if could and not inside else state
            assert state_at(drawn[f"propose {kind} enabled"], when, names) == state
            assert any(first <= when < last for _, first, last in shades) == could


def test_a_snapshot_seen_once_is_wide_enough_to_see():
    ax = ba.plot_limits(snapshots(("2023-04-01", "2023-04-01", True, True)))
    ((_, _, start, end),) = lanes(ax)["can propose asset"]
    low, high = micros(ax.get_xlim())
    assert high - low > 0.9 * DAY
    assert low <= start < us("2023-04-01") < end <= high
    assert (end - start) / (high - low) > 0.015


def test_a_date_long_ago_takes_no_more_than_half_of_the_timeline():
    limits = snapshots(("2023-04-03", "2023-04-13", True, True), since=["2020-01-01"])
    assert us("2023-03-23") < micros([ba.plot_limits(limits).get_xlim()[0]])[0] < us("2023-03-25")


@pytest.mark.parametrize("style", [{}, ba.DARK_STYLE], ids=["light", "dark"])
def test_enabled_proposals_are_visible_without_colours(style):
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


def test_a_bar_that_began_before_the_timeline_has_no_left_edge_and_states_its_beginning():
    limits = snapshots(("2023-04-26", "2023-04-26", True, True), since=["2023-03-01T12:00"])
    ax = ba.plot_limits(limits)
    bars, names = lanes(ax)["propose market enabled"], looks(ax)
    (stated,) = [bar for bar in bars if names[bar[:2]] == LATER]
    assert stated[2] == us("2023-03-01T12:00") < micros([ax.get_xlim()[0]])[0]
    assert [text.get_text().strip() for text in ax.texts] == ["◂ since 2023-03-01T12:00Z"] * 2


def test_the_timeline_begins_at_the_requested_start():
    limits = snapshots(("2023-04-16", "2023-04-26", True, True), since=["2023-03-01"])
    left = micros([ba.plot_limits(limits, start="2023-04-10", end="2023-05-01").get_xlim()[0]])[0]
    assert us("2023-04-09T12:00") < left < us("2023-04-10")
    with pytest.raises(ValueError, match="is after the last snapshot, 2023-04-26"):
        ba.plot_limits(limits, start="2023-04-27")
