from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.analysis.grid import count_before, fitting_grid, make_grid, to_instants

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EXTREMES = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])

moments = st.integers(-(2**60), 2**60)


def times(*texts):
    return (
        pd.to_datetime(list(texts), utc=True, format="ISO8601")
        .as_unit("us")
        .to_numpy("M8[us]")
        .view(np.int64)
    )


def grid(rows, **options):
    return make_grid(rows, **{"freq": "1D", "start": None, "end": None, "tz": None} | options)


def bounds(found):
    return found.bounds(np.arange(len(found)))


def texts(index):
    return [str(moment) for moment in index]


@st.composite
def edges_and_times(draw):
    """Draw edges, most often even ones with odd first and last periods, and times around them."""
    first, step, count = draw(moments), draw(st.integers(1, 2**40)), draw(st.integers(0, 8))
    edges = [first + step * place for place in range(count)]
    before, after = draw(st.tuples(*[st.none() | st.integers(1, 2**41)] * 2))
    edges = [first - (before or 0), *edges, first + step * count + (after or 0)]
    if draw(st.booleans()):
        edges = draw(st.lists(moments | st.sampled_from(edges)))
    edges = sorted(set(edges))
    near = [edge + by for edge in edges for by in (-1, 0, 1)]
    return np.array(edges, np.int64), np.array(
        [*draw(st.lists(moments | st.sampled_from(near or [0]))), *EXTREMES]
    )


@given(edges_and_times())
def test_edges_are_counted_as_numpy_counts_them(case):
    edges, times = case
    assert count_before(edges, times).tolist() == np.searchsorted(edges, times).tolist()


def test_bounds_without_a_time_zone_are_in_the_zone_of_the_grid():
    found = grid(times(), tz="Europe/Berlin", start="2023-03-25", end="2023-03-26")
    assert texts(bounds(found)["start"]) == ["2023-03-25 00:00:00+01:00"]


def test_an_hour_that_comes_twice_is_two_hours():
    rows = times("2023-10-29T00:50", "2023-10-29T01:50")
    found = grid(rows, freq="1h", tz="Europe/Berlin")
    assert texts(bounds(found)["start"]) == [
        "2023-10-29 02:00:00+02:00",
        "2023-10-29 02:00:00+01:00",
    ]


def test_without_an_end_the_points_reach_the_last_row():
    assert len(grid(times("2023-04-01", "2023-04-03T05:00")).points) == 4
    assert len(grid(times("2023-04-01", "2023-04-03")).points) == 3
    assert len(grid(times("2023-04-01", "2023-04-03"), end="2023-04-03").points) == 2


def test_no_rows_and_no_start_make_no_period():
    assert len(grid(times(), end="2023-04-01")) == 0


def test_a_start_alone_makes_one_period():
    assert texts(bounds(grid(times(), start="2023-04-01"))["end"]) == ["2023-04-02 00:00:00+00:00"]


@pytest.mark.parametrize("freq", ["bh", pd.DateOffset(hours=1), pd.DateOffset(days=1, hours=2)])
@pytest.mark.parametrize("tz", [None, "Europe/Berlin", "America/New_York"])
def test_offsets_of_less_than_a_day_hold_the_rows_too(freq, tz):
    rows = times("2023-03-29T10:40:00", "2023-03-31T21:59:59")
    found = grid(rows, freq=freq, tz=tz)
    assert found.edges[0] <= rows[0]
    assert found.edges[-2] <= rows[-1] < found.edges[-1]


@pytest.mark.parametrize("freq", ["1ns", "1500ns"])
def test_a_frequency_finer_than_timestamps_is_refused(freq):
    with pytest.raises(ValueError, match="whole microseconds"):
        grid(times("2023-04-01"), freq=freq)


@pytest.mark.parametrize("freq", ["0h", "-1D", pd.Timedelta(0)])
def test_a_frequency_that_does_not_go_on_is_refused(freq):
    with pytest.raises(ValueError, match="positive"):
        grid(times("2023-04-01"), freq=freq)


@pytest.mark.parametrize("freq", ["often", "", 5])
def test_what_is_no_frequency_is_refused(freq):
    with pytest.raises(ValueError, match="no frequency of pandas"):
        grid(times("2023-04-01"), freq=freq)


@pytest.mark.parametrize("tz", ["Mars", "", "../etc/passwd"])
def test_an_unknown_time_zone_is_refused(tz):
    with pytest.raises(ValueError, match="unknown time zone"):
        grid(times("2023-04-01"), tz=tz)


def test_more_periods_than_can_be_numbered_are_refused():
    with pytest.raises(ValueError, match="coarser freq"):
        grid(times("2023-04-01"), freq="1us", end="2024-04-01")


def test_one_instant_and_several_are_told_apart():
    assert to_instants("1970-01-01T00:00:01")[1]
    found, is_one = to_instants(["1970-01-01T00:00:01", pd.Timestamp(0)])
    assert (found.tolist(), is_one) == ([1_000_000, 0], False)


SKIPPED_MIDNIGHTS = {
    "America/Santiago": 2023,
    "America/Sao_Paulo": 2018,
    "Asia/Beirut": 2022,
    "Africa/Cairo": 2023,
    "America/Havana": 2023,
    "Europe/Berlin": 2023,
    "Pacific/Apia": 2011,
}


def first_moment(day, zone):
    """Return when a day begins, microseconds: looked for minute by minute."""
    moment = dt.datetime.combine(day, dt.time(), dt.UTC) - dt.timedelta(hours=15)
    while moment.astimezone(zone).date() < day:
        moment += dt.timedelta(minutes=15)
    return int(moment.timestamp()) * 10**6


@given(
    st.sampled_from(sorted(SKIPPED_MIDNIGHTS)),
    st.integers(0, 365),
    st.integers(0, 20),
    st.integers(0, 86_399),
)
def test_every_day_begins_when_the_calendar_turns(name, day, days, second):
    zone = ZoneInfo(name)
    first = dt.date(SKIPPED_MIDNIGHTS[name], 1, 1) + dt.timedelta(days=day)
    begin = first_moment(first, zone)
    row, last = begin + second * 10**6, begin + second * 10**6 + days * 24 * HOUR
    dates = [dt.datetime.fromtimestamp(moment // 10**6, zone).date() for moment in (row, last)]
    # One more than the last: its end. A day that a zone leaves out begins with the next.
    count = (dates[1] - dates[0]).days + 2
    wanted = {first_moment(dates[0] + dt.timedelta(days=at), zone) for at in range(count)}
    assert grid(np.array([row, last]), tz=name).edges.tolist() == sorted(wanted)


@pytest.mark.parametrize(
    ("zone", "start", "offset"),
    [
        ("America/Santiago", "2023-09-03", -3),
        ("America/Sao_Paulo", "2018-11-04", -2),
        ("Asia/Beirut", "2022-03-27", 3),
        ("Africa/Cairo", "2023-04-28", 3),
        ("America/Havana", "2023-03-12", -4),
    ],
)
@pytest.mark.parametrize("with_start", [True, False])
def test_days_after_a_skipped_midnight_begin_at_midnight(zone, start, offset, with_start):
    first = pd.Timestamp(start, tz="UTC") + pd.Timedelta(hours=1 - offset)
    rows = np.array([first.value // 1000 + HOUR, first.value // 1000 + 60 * HOUR])
    found = grid(rows, tz=zone, start=start if with_start else None)
    clocks = [str(moment.time()) for moment in bounds(found)["start"]]
    assert clocks == ["01:00:00", "00:00:00", "00:00:00"]


@given(
    st.integers(1_500_000_000, 1_700_000_000),
    st.floats(0, 10),
    st.sampled_from((0, HOUR, DAY)),
    st.sampled_from((4, 30, 300)),
)
def test_periods_that_fit_a_range_are_those_of_the_calendar(second, size, unit, most):
    start = second * 1_000_000 // max(unit, 1) * max(unit, 1)
    end = start + max(int(MINUTE * 10**size) // max(unit, 1), 1) * max(unit, 1)
    name, grid = fitting_grid(start, end, most)
    edges = grid.edges.tolist()
    assert edges == sorted({*edges, start, end})
    assert grid.points.tolist() == edges[:-1]
    assert (edges[0], edges[-1]) == (start, end)
    inner = pd.to_datetime(edges[1:-1], unit="us", utc=True)
    assert len(inner) <= most or name == "year"
    begins = {
        "week": inner.day_of_week == 0,
        "month": inner.day == 1,
        "quarter": (inner.day == 1) & (inner.month % 3 == 1),
        "year": inner.day_of_year == 1,
    }
    if name in begins:
        assert (begins[name] & (inner == inner.normalize())).all()
    lengths = set(np.diff(edges[1:-1]).tolist())
    fixed = {"minute": MINUTE, "5 minutes": 5 * MINUTE, "hour": HOUR, "4 hours": 4 * HOUR}
    if name in fixed:
        assert lengths <= {fixed[name]}
        assert not any(edge % fixed[name] for edge in edges[1:-1])
    # A shorter one would have been too many; one that is as short as a minute may be few.
    assert name == "minute" or len(inner) > most // 8 - 1


def test_a_range_of_the_far_future_has_periods_as_well():
    last = 253_402_214_400_000_000
    _, grid = fitting_grid(last - 3 * HOUR, last, 100)
    assert grid.edges[[0, -1]].tolist() == [last - 3 * HOUR, last]
