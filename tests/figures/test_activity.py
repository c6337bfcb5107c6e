from __future__ import annotations

import datetime as dt
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.dates import date2num

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.figures.drawn import DAY, GENERAL, HOUR, entries, micros, us, visible_labels

WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def cells(ax):
    """Return {(column, row): label of its class in the legend}."""
    (found,) = ax.collections
    names = {
        mpl.colors.to_hex(handle.get_facecolor()): text.get_text()
        for handle, text in zip(
            ax.get_legend().legend_handles, ax.get_legend().get_texts(), strict=True
        )
    }
    centres = [path.vertices[:4].mean(axis=0) for path in found.get_paths()]
    return {
        (round(float(x), 3), round(y)): names[mpl.colors.to_hex(colour)]
        for (x, y), colour in zip(centres, found.get_facecolors(), strict=True)
    }


def includes(label, count):
    """Whether a class of the legend, such as "3 to 1,200", has a count in it."""
    bounds = [int(part.replace(",", "")) for part in label.split(" to ")]
    return bounds[0] <= count <= bounds[-1]


@given(st.lists(st.integers(0, 40 * 24), min_size=1, max_size=60, unique=True))
@settings(max_examples=10)
def test_each_day_stands_in_its_week_and_has_its_count(hours):
    times = [START + hour * HOUR for hour in hours]
    ax = ba.plot_activity(table_of([(*GENERAL, time, 1) for time in times]))
    dates = [dt.datetime.fromtimestamp(time / 1e6, dt.UTC).date() for time in times]
    found = cells(ax)
    assert len(found) == (max(dates) - min(dates)).days + 1
    for number in range(len(found)):
        date = min(dates) + dt.timedelta(days=number)
        label = found[date2num(date - dt.timedelta(date.weekday())), date.weekday()]
        assert includes(label, dates.count(date))
    plt.close(ax.figure)


@given(st.lists(st.integers(0, 40 * 24), min_size=1, max_size=60, unique=True))
@settings(max_examples=10)
def test_each_hour_of_the_week_has_the_count_of_all_weeks(hours):
    times = [START + hour * HOUR for hour in hours]
    ax = ba.plot_activity(table_of([(*GENERAL, time, 1) for time in times]), kind="week")
    moments = [dt.datetime.fromtimestamp(time / 1e6, dt.UTC) for time in times]
    slots = [(moment.hour + 0.5, moment.weekday()) for moment in moments]
    found = cells(ax)
    assert len(found) == 7 * 24
    assert all(includes(found[slot], slots.count(slot)) for slot in found)
    plt.close(ax.figure)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12).filter(any))
@settings(max_examples=10)
def test_classes_of_counts_ascend_and_hold_every_count(counts):
    times = [START + day * DAY + n for day, count in enumerate(counts) for n in range(count)]
    ax = ba.plot_activity(table_of([(*GENERAL, time, 1) for time in times]))
    none, *classes = entries(ax)
    bounds = [[int(bound) for bound in label.split(" to ")] for label in classes]
    assert none == "0"
    assert 1 <= len(classes) <= 4
    assert all(after[0] == before[-1] + 1 for before, after in pairwise(bounds))
    assert bounds[-1][-1] == max(counts)
    assert all(any(includes(label, count) for label in classes) for count in counts if count)
    plt.close(ax.figure)


def test_monday_stands_at_the_top():
    ax = ba.plot_activity(table_of([(*GENERAL, START, 1)]))
    ax.figure.canvas.draw()
    labels = {label.get_text(): label.get_window_extent().y0 for label in visible_labels(ax.yaxis)}
    assert sorted(labels, key=labels.__getitem__, reverse=True) == WEEKDAYS


def test_weeks_are_named_by_their_mondays_where_there_is_room():
    table = table_of([(*GENERAL, us("2023-04-05"), 1), (*GENERAL, us("2023-04-20"), 1)])
    ax = ba.plot_activity(table)
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "03 Apr",
        "10 Apr",
        "17 Apr",
    ]


def test_months_are_named_at_their_first_day():
    table = table_of([(*GENERAL, us("2022-11-20"), 1), (*GENERAL, us("2023-10-20"), 1)])
    ax = ba.plot_activity(table)
    ax.figure.canvas.draw()
    found = dict(zip(micros(ax.get_xticks()), ax.get_xticklabels(), strict=True))
    assert found[us("2023-01-01")].get_text() == "2023"
    assert found[us("2023-03-01")].get_text() == "Mar"


def test_several_assets_are_counted_together():
    table = table_of([(*GENERAL, START, 5), ("other", *GENERAL[1:], START + HOUR, 5)])
    assert entries(ba.plot_activity(table)) == ["0", "2"]


@pytest.mark.parametrize("days", [6, 29, 364])
def test_cells_fill_the_figure_whatever_the_interval(days):
    ax = ba.plot_activity(table_of([(*GENERAL, START, 5), (*GENERAL, START + days * DAY, 5)]))
    ax.figure.canvas.draw()
    corners = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    width, height = np.ptp(ax.transData.transform(corners), axis=0) / ax.figure.bbox.size
    assert width > 0.85
    assert height > 0.6


def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="'calendar' or 'week', not 'month'"):
        ba.plot_activity(table_of([(*GENERAL, START, 5)]), kind="month")


@pytest.mark.parametrize("kind", ["calendar", "week"])
def test_no_rows_give_axes_that_say_so(kind):
    ax = ba.plot_activity(table_of([]), kind=kind)
    assert [text.get_text() for text in ax.texts] == ["no balance changes"]
