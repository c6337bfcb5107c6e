"""Where periods begin and end, and the points of a series."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.analysis.grid import fitting_grid
from tests.analysis.tables import DAY, GENERAL, HOUR, MINUTE, START, table_of
from tests.moments import to_microseconds


def rows_at(*moments):
    """Return a table of an account that has rows at these moments, microseconds or text."""
    times = [x if isinstance(x, int) else to_microseconds(x) for x in moments]
    return table_of([(*GENERAL, time, place) for place, time in enumerate(times)])


def edges(table, freq="1D", **how):
    """Return where each period begins, and where the last one ends."""
    candles = ba.ohlc(table, freq, **how)
    return [*candles["start"], *candles["end"][-1:]]


def test_bounds_without_a_time_zone_are_in_the_zone_of_the_grid():
    days = {"start": "2023-03-25", "end": "2023-03-26", "tz": "Europe/Berlin"}
    assert [*map(str, edges(rows_at("2023-03-25"), **days))] == [
        "2023-03-25 00:00:00+01:00",
        "2023-03-26 00:00:00+01:00",
    ]


@pytest.mark.parametrize("freq", ["bh", pd.DateOffset(hours=1), pd.DateOffset(days=1, hours=2)])
@pytest.mark.parametrize("tz", [None, "Europe/Berlin", "America/New_York"])
def test_offsets_of_less_than_a_day_hold_the_rows_too(freq, tz):
    rows = rows_at("2023-03-29T10:40:00", "2023-03-31T21:59:59")
    moments = edges(rows, freq, tz=tz)
    assert moments[0] <= rows["timestamp"].iloc[0]
    assert moments[-2] <= rows["timestamp"].iloc[1] < moments[-1]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        *(("ME", "MS"), ("2ME", "2MS"), ("QE", "QS"), ("QE-NOV", "QS-DEC")),
        *(("W", "W-SUN"), ("w", "W"), ("1w", "W"), ("w-mon", "W-MON")),
        *(("YE", "YS"), ("YE-MAR", "YS-APR"), (pd.offsets.MonthEnd(), "MS")),
        (pd.offsets.Week(weekday=6), "W"),
    ],
)
def test_a_frequency_that_pandas_labels_by_its_end_is_the_same_period(named, meant):
    table = rows_at(*(START + day * DAY for day in range(0, 900, 11)))
    for function in (ba.flows, ba.time_weighted_average, ba.balance_series, ba.totals):
        pd.testing.assert_frame_equal(function(table, freq=named), function(table, freq=meant))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        *(({"freq": freq}, "whole microseconds") for freq in ("1ns", "1500ns")),
        *(({"freq": freq}, "positive") for freq in ("0h", "-1D", pd.Timedelta(0))),
        *(({"freq": freq}, "isn't a pandas frequency") for freq in ("often", "", 5)),
        *(({"tz": zone}, "unknown time zone") for zone in ("Mars", "", "../etc/passwd")),
        ({"freq": "1us", "end": "2024-04-01"}, "coarser freq"),
        ({"freq": "1M"}, "'MS' for a month"),
        ({"freq": "BME"}, "beginnings: BMS"),
        ({"freq": "SME"}, "beginnings: SMS"),
    ],
)
def test_an_impossible_grid_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        edges(rows_at("2023-04-01"), **how)


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


def test_a_range_in_the_far_future_has_periods_too():
    last = 253_402_214_400_000_000
    _, grid = fitting_grid(last - 3 * HOUR, last, 100)
    assert grid.edges[[0, -1]].tolist() == [last - 3 * HOUR, last]
    for name, length in (("minute", MINUTE), ("hour", HOUR), ("month", 28 * DAY)):
        start = last - 100 * length
        assert fitting_grid(start, last, 100)[0] == name != fitting_grid(start - 1, last, 100)[0]
