import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.dates import num2date

import balance_analysis as ba
from tests.analysis.tables import GENERAL, HOUR, START, table_of
from tests.figures.drawn import visible_labels


@given(st.lists(st.integers(0, 40 * 24), min_size=1, max_size=60, unique=True))
@settings(max_examples=10)
def test_each_day_is_in_its_week_with_its_count_over_all_assets(hours):
    times = [START + hour * HOUR for hour in hours]
    rows = [("VOTE" if n % 2 else "other", *GENERAL[1:], time, 1) for n, time in enumerate(times)]
    ax = ba.plot_activity(table_of(rows))
    dates = [dt.datetime.fromtimestamp(time / 1e6, dt.UTC).date() for time in times]
    mesh = ax.collections[0]
    mondays = [num2date(x).date() for x in mesh.get_coordinates()[0, :-1, 0]]
    counts, shown = mesh.get_array(), {}
    for day, week in np.argwhere(~np.ma.getmaskarray(counts)):
        shown[mondays[week] + dt.timedelta(int(day))] = counts[day, week]
    assert {monday.weekday() for monday in mondays} == {0}
    span = [min(dates) + dt.timedelta(n) for n in range((max(dates) - min(dates)).days + 1)]
    assert shown == {date: dates.count(date) for date in span}


def test_monday_is_at_the_top():
    ax = ba.plot_activity(table_of([(*GENERAL, START, 1)]))
    ax.figure.canvas.draw()
    labels = {label.get_text(): label.get_window_extent().y0 for label in visible_labels(ax.yaxis)}
    assert " ".join(sorted(labels, key=labels.get)) == "Sun Sat Fri Thu Wed Tue Mon"


@pytest.mark.parametrize("count", [1, 3, 2000])
def test_the_scale_of_colours_has_each_whole_number_once(count):
    ax = ba.plot_activity(table_of([(*GENERAL, START + n, 1) for n in range(count)]))
    scale = ax.collections[0].colorbar.ax
    ax.figure.draw_without_rendering()
    labels = [label.get_text() for label in visible_labels(scale.yaxis)]
    assert "0" in labels
    assert len(labels) == len({*labels}) >= 2
