"""Where periods begin and end: a frequency, bounds and a time zone as moments.

Fixed frequencies and days count from the start; others, such as months, have their own points. Days
and longer follow the clocks of the time zone, so that a day may have 23 or 25 hours.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from balance_analysis.table.schema import Instant, to_bounds, to_microseconds
from balance_analysis.table.spans import Span

Frequency = str | dt.timedelta | pd.offsets.BaseOffset
"""What pandas reads as one: "1h", "1D", "MS", a timedelta, an offset."""

Zone = str | dt.tzinfo

MOST_POINTS: Final = 2**31
CELL: Final = 32
"""Bytes that a cell of a result takes while it is made, about."""

_NANOSECONDS: Final = 1000
_MINUTE: Final = 60_000_000
_CALENDAR: Final[dict[str, tuple[Frequency, int]]] = {
    "minute": ("1min", 1),
    "5 minutes": ("5min", 5),
    "10 minutes": ("10min", 10),
    "30 minutes": ("30min", 30),
    "hour": ("1h", 60),
    "4 hours": ("4h", 240),
    "day": ("1D", 1440),
    "week": ("W", 10_080),
    "month": ("MS", 40_320),
    "quarter": ("QS", 129_600),
    "year": ("YS", 525_600),
}
"""Periods by what people call them, each with how many minutes it has at least."""

_Step = int | pd.offsets.BaseOffset


@dataclass(frozen=True, slots=True)
class Grid:
    """Adjacent periods, and where a series is looked at: microseconds since 1970-01-01 UTC.

    Attributes
    ----------
    edges
        Ascending: where each period begins, and where the last one ends. None at all where there is
        no period.
    points
        The beginnings, and the end where rows lie behind the last beginning and no end was asked
        for or known.
    zone
        The time zone in which days are days.
    """

    edges: NDArray[np.int64]
    points: NDArray[np.int64]
    zone: dt.tzinfo

    def __len__(self) -> int:
        """Return the number of periods."""
        return max(len(self.edges) - 1, 0)

    def bounds(self, periods: NDArray[np.integer[Any]]) -> dict[str, pd.DatetimeIndex]:
        """Return `start` and `end` of periods by their numbers, as columns."""
        starts, ends = self.edges[:-1][periods], self.edges[1:][periods]
        return {"start": to_times(starts, self.zone), "end": to_times(ends, self.zone)}


def make_grid(
    times: NDArray[np.int64],
    *,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    known: Sequence[Span] | None = None,
) -> Grid:
    """Return the periods of [start, end).

    Parameters
    ----------
    times
        When rows are, microseconds, in any order: what the bounds are made of that are left out.
        Then the first period is the one that holds the first row, the last one that of the last.
    freq
        How long a period is; `None` for a single one.
    start, end
        The interval; without a time zone in `tz`. The first period begins at `start`, the last one
        ends at `end`, whatever `freq` is.
    tz
        A name such as "Europe/Berlin", or a tzinfo; `None` is UTC.
    known
        The known intervals, microseconds, ascending. Without `end`, the last period ends where the
        last of them does, unless rows lie behind it; without `start`, the first one begins no
        earlier than the interval of the first row does, and where there are no rows with the first.

    Raises
    ------
    ValueError
        If `start` is not before `end`, `freq` is no frequency, is not positive or finer than a
        microsecond, the time zone is unknown, or there are more than `MOST_POINTS` periods.
    """
    zone = to_zone(tz)
    step = None if freq is None else _to_step(freq)
    begin, stop = to_bounds(start, end, zone=zone)
    if begin is not None and stop is not None and begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    if not len(times) and known:
        times = np.array([known[0][0]])
    if begin is None:
        if not len(times):
            return Grid(np.empty(0, np.int64), np.empty(0, np.int64), zone)
        first = int(times.min()) if stop is None else min(int(times.min()), stop - 1)
        begin = first if step is None else _floor(first, step, zone)
    last = max(int(times.max()), begin) if len(times) else begin
    if stop is None and known and known[-1][1] > last:
        stop = known[-1][1]
    edges = _edges(begin, stop, last, step, zone)
    points = edges if stop is None and edges[-2] < last else edges[:-1]
    if start is None and known:
        edges = edges.copy()
        first = int(times.min())
        edges[0] = max([begin, *(since for since, _ in known if since <= first < edges[1])])
    return Grid(edges, points, zone)


def fitting_grid(start: int, end: int, most: int) -> tuple[str, Grid]:
    """Return periods of the calendar, in UTC, that fill [start, end) and are not too many.

    Hours, days, weeks, months begin where the calendar has them; the first and the last one are cut
    where the interval is.

    Parameters
    ----------
    start, end
        Microseconds.
    most
        How many whole ones there are at most, unless they are years.

    Returns
    -------
    tuple
        What a period is called, and the periods; points are their beginnings.
    """
    longest = most * _MINUTE
    fits = (name for name, (_, least) in _CALENDAR.items() if end - start <= least * longest)
    name = next(fits, "year")
    step = _to_step(_CALENDAR[name][0])
    edges = _edges(_floor(start, step, dt.UTC), end, start, step, dt.UTC)
    edges[0] = start
    return name, Grid(edges, edges[:-1], dt.UTC)


def grid_at(instants: NDArray[np.int64], zone: dt.tzinfo = dt.UTC) -> Grid:
    """Return a grid whose points are instants, ascending: a period reaches from one to the next."""
    return Grid(np.append(instants, instants[-1:] + 1), instants, zone)


def check_cells(accounts: int, points: int) -> None:
    """Raise if a result with a cell for each account and moment doesn't fit into memory.

    Raises
    ------
    ValueError
        With what it needs and what there is.
    """
    needed, held = accounts * points * CELL, memory()
    if needed > held:
        raise ValueError(
            f"{accounts:,} accounts or groups at {points:,} moments need some {needed / 1e9:,.0f} "
            f"GB, but this machine has {held / 1e9:,.0f}: choose a coarser freq, a shorter "
            "interval, fewer accounts, or for a series at every change the long layout"
        )


def count_before(edges: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many edges, ascending, lie before each time: `numpy.searchsorted`, but fast.

    Periods of one length, but for the first and the last one, take a tenth of its time.
    """
    steps, places = np.diff(edges[1:-1]), np.zeros(len(times), np.int64)
    if np.any(steps != steps[:1]):
        return np.searchsorted(edges, times)
    if len(steps):
        places = np.clip(times, edges[1], edges[-2] + 1)
        places += steps[0] - 1 - edges[1]
        places //= steps[0]
    for edge in edges[[0, -1]] if len(steps) else edges:
        places += times > edge
    return places


def memory() -> int:
    """Return the machine's memory in bytes; 64 GB where the system doesn't say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 64 * 10**9


def to_times(microseconds: NDArray[np.int64], zone: dt.tzinfo = dt.UTC) -> pd.DatetimeIndex:
    """Return microseconds since 1970-01-01 UTC as timestamps in a time zone."""
    return pd.DatetimeIndex(microseconds, dtype=pd.DatetimeTZDtype("us", zone), copy=False)


def to_zone(tz: Zone | None) -> dt.tzinfo:
    """Return a time zone by its name.

    Raises
    ------
    ValueError
        If no zone has this name.
    """
    if tz is None or tz == "UTC":
        return dt.UTC
    if isinstance(tz, dt.tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(f"tz must be the name of a time zone or a tzinfo, not {tz!r}")
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {tz!r}; a name is such as 'Europe/Berlin'") from error


def to_period(freq: Frequency) -> pd.offsets.BaseOffset:
    """Return a frequency as an offset whose points are where periods begin.

    What pandas labels by its end is that period: "ME" is the month that begins at "MS", "W", which
    is "W-SUN", the week from Monday on, and "W-MON" that from Tuesday on.

    Raises
    ------
    ValueError
        If it is no frequency, is not positive, or names ends of periods that no offset begins.
    """
    try:
        if isinstance(freq, str) and re.fullmatch(r"\d*w(-\w{3})?", freq.strip(), re.IGNORECASE):
            freq = freq.upper()
        offset: Any = to_offset(pd.Timedelta(freq) if isinstance(freq, np.timedelta64) else freq)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{freq!r} is no frequency of pandas, such as '1h', '1D', 'W' for a week, 'MS' for a "
            "month, 'QS' for a quarter or 'YS' for a year"
        ) from error
    if offset.n <= 0:
        raise ValueError(f"freq must be positive, not {freq!r}")
    name = offset.freqstr.lstrip("0123456789").split("-")[0]
    if name == "W" and offset.weekday is not None:
        return pd.offsets.Week(offset.n, weekday=(offset.weekday + 1) % 7)
    if name == "ME":
        return pd.offsets.MonthBegin(offset.n)
    if name == "QE":
        return pd.offsets.QuarterBegin(offset.n, startingMonth=offset.startingMonth % 3 + 1)
    if name == "YE":
        return pd.offsets.YearBegin(offset.n, month=offset.month % 12 + 1)
    if name.endswith(("ME", "QE", "YE")):
        raise ValueError(
            f"{freq!r} names the ends of periods, and freq where they begin: {name[:-1]}S does"
        )
    return offset  # type: ignore[no-any-return]


def _to_step(freq: Frequency) -> _Step:
    """Return a fixed frequency as microseconds, another as its offset."""
    offset = to_period(freq)
    if not isinstance(offset, pd.offsets.Tick):
        return offset
    microseconds, rest = divmod(pd.Timedelta(offset).value, _NANOSECONDS)
    if rest:
        raise ValueError(f"freq must be whole microseconds, as timestamps are, not {freq!r}")
    return microseconds


def _edges(
    begin: int, stop: int | None, last: int, step: _Step | None, zone: dt.tzinfo
) -> NDArray[np.int64]:
    """Return `begin`, the points of `step` after it, and `stop` or the first point after `last`."""
    if step is None:
        return np.array([begin, last + 1 if stop is None else stop])
    if isinstance(step, int):
        beyond = begin + ((last - begin) // step + 1) * step if stop is None else stop
        count = (beyond - begin) // step
        if count > MOST_POINTS:
            raise ValueError(
                f"the interval has {count:,} periods, more than {MOST_POINTS:,}: "
                "choose a coarser freq or a shorter interval"
            )
        inner = np.arange(begin + step, beyond, step)
    else:
        points = _calendar(begin, last if stop is None else stop, step, zone)
        beyond = int(points[points > last][0]) if stop is None else stop
        inner = points[points < beyond]
    return np.concatenate([[begin], inner, [beyond]])


def _calendar(
    begin: int, last: int, step: pd.offsets.BaseOffset, zone: dt.tzinfo
) -> NDArray[np.int64]:
    """Return the points of a calendar's offset after `begin`, and some of them after `last`."""
    first, final = _to_local(begin, zone), _to_local(last, zone)
    midnight = pd.DatetimeIndex([first.normalize()])
    # A day whose midnight the clocks skip begins when they go on, the days after it at midnight.
    begins_a_day = _from_local(midnight, zone, is_first=True)[0] == begin
    if begins_a_day or not isinstance(step, pd.offsets.Day):
        first = midnight[0]
    local = pd.date_range(first, final + 2 * step, freq=step)
    points = _from_local(local, zone, is_first=True)
    # A day that a zone leaves out has no point: the clocks go on in the next one.
    is_there = to_times(points, zone).tz_localize(None).normalize() == local.normalize()
    points = np.unique(points[is_there])
    return points[points > begin]


def _floor(moment: int, step: _Step, zone: dt.tzinfo) -> int:
    """Return the last point of a step at or before a moment, as the clocks count."""
    local = _to_local(moment, zone)
    if isinstance(step, int):
        local -= pd.Timedelta(microseconds=int(local.as_unit("us").asm8.view("i8")) % step)
        # Where the clocks were put back, a time of theirs comes twice.
        both = [_from_local(pd.DatetimeIndex([local]), zone, is_first=x)[0] for x in (True, False)]
        return int(max(point for point in both if point <= moment))
    local = local.normalize()
    if not isinstance(step, pd.offsets.Day):
        local = step.rollback(local)
    return int(_from_local(pd.DatetimeIndex([local]), zone, is_first=True)[0])


def _to_local(microseconds: int, zone: dt.tzinfo) -> pd.Timestamp:
    return to_times(np.array([microseconds]), zone).tz_localize(None)[0]


def _from_local(local: pd.DatetimeIndex, zone: dt.tzinfo, *, is_first: bool) -> NDArray[np.int64]:
    """Return local times in microseconds; one that the clocks skip is the moment they go on."""
    moments = local.as_unit("us").tz_localize(
        zone, ambiguous=np.full(len(local), is_first), nonexistent="shift_forward"
    )
    return moments.tz_convert(dt.UTC).tz_localize(None).to_numpy("M8[us]").view(np.int64)


def to_instants(
    when: Instant | Iterable[Instant], zone: dt.tzinfo = dt.UTC
) -> tuple[NDArray[np.int64], bool]:
    """Return one instant or several as microseconds, rounded down, and whether it was one.

    Raises
    ------
    TypeError, ValueError
        If one is no instant.
    """
    if isinstance(when, pd.DataFrame):
        raise TypeError("expected a moment, not a DataFrame: the table comes first")
    if isinstance(when, str | dt.date) or not isinstance(when, Iterable):
        return np.array([to_microseconds(when, zone=zone, down=True)]), True
    return np.array([to_microseconds(each, zone=zone, down=True) for each in when], np.int64), False
