from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import table_of
from tests.figures.drawn import GENERAL, HOUR, coverage_frame, micros, us

START = us("2023-04-01")


def bars(ax):
    """Return {state: [(start, end), ...]} as drawn."""
    states = [label.get_text().split("\n")[0] for label in ax.get_yticklabels()]
    drawn = {}
    for state, collection in zip(states, ax.collections, strict=True):
        edges = [path.vertices[:, 0] for path in collection.get_paths()]
        drawn[state] = [tuple(micros([x.min(), x.max()])) for x in edges]
    return drawn


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
    assert bars(ax) == expected
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


def test_an_archive_is_drawn_by_its_coverage(sample):
    expected = bars(ba.plot_coverage(sample.coverage()))
    assert bars(ba.plot_coverage(sample)) == bars(ba.plot_coverage(sample.uri)) == expected


def test_nothing_covered_gives_axes_that_say_so():
    ax = ba.plot_coverage(coverage_frame())
    assert [text.get_text() for text in ax.texts] == ["nothing is covered yet"]


@pytest.mark.parametrize("wrong", [[], 5, None])
def test_what_is_neither_frame_nor_archive_is_refused(wrong):
    with pytest.raises(TypeError, match="an Archive or the path of one is wanted"):
        ba.plot_coverage(wrong)


def test_a_frame_that_is_no_coverage_is_refused():
    with pytest.raises(ValueError, match=r"Archive\.coverage.*no column start, end, state"):
        ba.plot_coverage(table_of([(*GENERAL, START, 5)]))
