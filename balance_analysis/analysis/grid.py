"""Convert a frequency, bounds and a time zone to periods: where each begins and ends.

Fixed frequencies and days count from the start; others, such as months, follow the calendar. Days
and longer periods follow the clocks of the time zone, so a day may have 23 or 25 hours.
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

from balance_analysis.table.moments import Moment, Span, to_bounds, to_microseconds
from balance_analysis.table.schema import Ints

Frequency = str | dt.timedelta | pd.offsets.BaseOffset
"""A pandas frequency: "1h", "1D", "MS", a timedelta, an offset."""

Zone = str | dt.tzinfo

CELL: Final = 32
"""Approximate bytes per cell of a result while it is computed."""

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
"""Calendar periods by name, each with its frequency and its least number of minutes."""

_Step = int | pd.offsets.BaseOffset


@dataclass(frozen=True, slots=True)
class Grid:
    """Adjacent periods, and the points of a series: microseconds since 1970-01-01 UTC.

    Attributes
    ----------
    edges
        Where each period begins, and where the last one ends, ascending; empty if there is no
        period.
    points
        Where each period begins, and the end if rows lie after the last beginning and no end was
        passed or known.
    zone
        The time zone of days.
    """

    edges: Ints
    points: Ints
    zone: dt.tzinfo

    def __len__(self) -> int:
        """Return the number of periods."""
        return max(len(self.edges) - 1, 0)

    @property
    def span(self) -> Span:
        """Where the first period begins and the last one ends; equal if there is no period."""
        return (int(self.edges[0]), int(self.edges[-1])) if len(self) else (0, 0)

    def bounds(self, periods: NDArray[np.integer[Any]]) -> dict[str, pd.DatetimeIndex]:
        """Return the columns `start` and `end` for periods, given by number."""
        starts, ends = self.edges[:-1][periods], self.edges[1:][periods]
        return {"start": to_times(starts, self.zone), "end": to_times(ends, self.zone)}


def make_grid(
    times: Ints,
    *,
    freq: Frequency | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    tz: Zone | None = None,
    known: Sequence[Span] | None = None,
) -> Grid:
    """Return the periods of [start, end).

    Parameters
    ----------
    times
        The rows' times (in microseconds), in any order. Without `start`, the first period is that
        of the first row; without `end`, the last one is that of the last row.
    freq
        The length of a period; `None` for a single one.
    start, end
        The interval; in `tz` if without a time zone. The first period begins at `start` and the
        last one ends at `end`, whatever `freq` is.
    tz
        A name such as "Europe/Berlin", or a tzinfo; `None` is UTC.
    known
        The known intervals (in microseconds, ascending). Without `end`, the last period ends where
        the last interval does, unless a row lies after it. Without `start`, the first period begins
        no earlier than the interval of the first row; without rows, with the first interval.

    Raises
    ------
    ValueError
        If `start` is not before `end`, `freq` isn't a positive frequency of whole microseconds, the
        time zone is unknown, or the periods don't fit into memory.
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
    """Return calendar periods in UTC that fill [start, end), as short as a maximum number allows.

    Hours, days, weeks and months begin where the calendar has them; the first and the last period
    are cut at the interval's bounds.

    Parameters
    ----------
    start, end
        The interval (in microseconds).
    most
        Maximum number of whole periods, except for years.

    Returns
    -------
    tuple
        The name of the period, and a grid whose points are the periods' beginnings.
    """
    longest = most * _MINUTE
    fits = (name for name, (_, least) in _CALENDAR.items() if end - start <= least * longest)
    name = next(fits, "year")
    step = _to_step(_CALENDAR[name][0])
    edges = _edges(_floor(start, step, dt.UTC), end, start, step, dt.UTC)
    edges[0] = start
    return name, Grid(edges, edges[:-1], dt.UTC)


def grid_at(instants: Ints) -> Grid:
    """Return a grid whose points are moments (ascending): each period ends at the next one."""
    return Grid(np.append(instants, instants[-1:] + 1), instants, dt.UTC)


def check_cells(accounts: int, points: int) -> None:
    """Check that a result with a cell for each account and moment fits into memory.

    Raises
    ------
    ValueError
        If it doesn't; the message has both sizes.
    """
    needed, available = accounts * points * CELL, memory()
    if needed > available:
        of_each = f" for {accounts:,} accounts or groups" if accounts > 1 else ""
        raise ValueError(
            f"{points:,} moments{of_each} need some {needed / 1e9:,.0f} GB, but this machine has "
            f"{available / 1e9:,.0f}: choose a coarser freq, a shorter interval, fewer accounts "
            "or, for a series at every change, the long layout"
        )


def count_before(edges: Ints, times: Ints) -> Ints:
    """Return the number of edges (ascending) before each time, as `numpy.searchsorted` does.

    If all periods but the first and the last have one length, it takes a tenth of the time.
    """
    inner = edges[1:-1]
    steps, places = np.diff(inner), np.zeros(len(times), np.int64)
    if np.any(steps != steps[:1]):
        return np.searchsorted(edges, times)
    first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    if len(steps):
        is_inside = first >= inner[0] and last <= inner[-1] + 1
        inside = times if is_inside else np.clip(times, inner[0], inner[-1] + 1)
        np.add(inside, steps[0] - 1 - inner[0], out=places)
        places //= steps[0]
    for edge in edges[[0, -1]] if len(steps) else edges:
        if last > edge:
            places += 1 if first > edge else times > edge
    return places


def memory() -> int:
    """Return the machine's memory in bytes; 64 GB if the system doesn't report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 64 * 10**9


def to_times(microseconds: Ints, zone: dt.tzinfo = dt.UTC) -> pd.DatetimeIndex:
    """Return microseconds since 1970-01-01 UTC as timestamps in a time zone."""
    return pd.DatetimeIndex(microseconds, dtype=pd.DatetimeTZDtype("us", zone), copy=False)


def to_zone(tz: Zone | None) -> dt.tzinfo:
    """Return a time zone, given by name or as a tzinfo.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If `tz` is neither.
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
        raise ValueError(f"unknown time zone {tz!r}: use a name such as 'Europe/Berlin'") from error


def to_period(freq: Frequency) -> pd.offsets.BaseOffset:
    """Convert a frequency to an offset whose points are the beginnings of periods.

    Frequencies that pandas labels by the end of a period stand for the same periods: "ME" becomes
    "MS", "W" (which is "W-SUN") the week that begins on Monday, "W-MON" the week from Tuesday.

    Raises
    ------
    ValueError
        If it isn't a positive frequency, or names ends other than of months, quarters or years.
    """
    try:
        if isinstance(freq, str) and re.fullmatch(r"\d*w(-\w{3})?", freq.strip(), re.IGNORECASE):
            freq = freq.upper()
        offset: Any = to_offset(pd.Timedelta(freq) if isinstance(freq, np.timedelta64) else freq)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{freq!r} isn't a pandas frequency, such as '1h', '1D', 'W' for a week, 'MS' for a "
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
            f"{freq!r} names ends of periods, but freq needs their beginnings: {name[:-1]}S"
        )
    return offset  # type: ignore[no-any-return]


def _to_step(freq: Frequency) -> _Step:
    """Return a fixed frequency in microseconds, another one as its offset."""
    offset = to_period(freq)
    if not isinstance(offset, pd.offsets.Tick):
        return offset
    microseconds, rest = divmod(pd.Timedelta(offset).value, _NANOSECONDS)
    if rest:
        raise ValueError(f"freq must be whole microseconds, not {freq!r}")
    return microseconds


def _edges(begin: int, stop: int | None, last: int, step: _Step | None, zone: dt.tzinfo) -> Ints:
    """Return `begin`, the points of `step` after it, and `stop` or the first point after `last`."""
    if step is None:
        return np.array([begin, last + 1 if stop is None else stop])
    if isinstance(step, int):
        final = begin + ((last - begin) // step + 1) * step if stop is None else stop
        check_cells(1, (final - begin) // step)
        inner = np.arange(begin + step, final, step)
    else:
        points = _calendar(begin, last if stop is None else stop, step, zone)
        final = int(points[points > last][0]) if stop is None else stop
        inner = points[points < final]
    return np.concatenate([[begin], inner, [final]])


def _calendar(begin: int, last: int, step: pd.offsets.BaseOffset, zone: dt.tzinfo) -> Ints:
    """Return a calendar offset's points after `begin`, including some after `last`."""
    first, final = _to_local(begin, zone), _to_local(last, zone)
    midnight = pd.DatetimeIndex([first.normalize()])
    # If the clocks skip a day's midnight, that day begins at the skip, the next ones at midnight.
    begins_a_day = _from_local(midnight, zone, is_first=True)[0] == begin
    if begins_a_day or not isinstance(step, pd.offsets.Day):
        first = midnight[0]
    local = pd.date_range(first, final + 2 * step, freq=step)
    points = _from_local(local, zone, is_first=True)
    # A day that a time zone skips has no point.
    exists = to_times(points, zone).tz_localize(None).normalize() == local.normalize()
    points = np.unique(points[exists])
    return points[points > begin]


def _floor(moment: int, step: _Step, zone: dt.tzinfo) -> int:
    """Return a step's last point at or before a moment, on the clocks of a time zone."""
    local = _to_local(moment, zone)
    if isinstance(step, int):
        local -= pd.Timedelta(microseconds=int(local.as_unit("us").asm8.view("i8")) % step)
        # When the clocks are put back, a local time occurs twice.
        both = [_from_local(pd.DatetimeIndex([local]), zone, is_first=x)[0] for x in (True, False)]
        return int(max(point for point in both if point <= moment))
    local = local.normalize()
    if not isinstance(step, pd.offsets.Day):
        local = step.rollback(local)
    return int(_from_local(pd.DatetimeIndex([local]), zone, is_first=True)[0])


def _to_local(microseconds: int, zone: dt.tzinfo) -> pd.Timestamp:
    return to_times(np.array([microseconds]), zone).tz_localize(None)[0]


def _from_local(local: pd.DatetimeIndex, zone: dt.tzinfo, *, is_first: bool) -> Ints:
    """Convert local times to microseconds; a skipped time becomes the moment of the skip."""
    first = np.full(len(local), is_first)
    moments = local.as_unit("us").tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    return moments.tz_convert(dt.UTC).tz_localize(None).to_numpy("M8[us]").view(np.int64)


def to_instants(when: Moment | Iterable[Moment], zone: dt.tzinfo = dt.UTC) -> tuple[Ints, bool]:
    """Convert one moment or several to microseconds, rounded down; also return whether it was one.

    Raises
    ------
    TypeError, ValueError
        If a moment is invalid.
    """
    if isinstance(when, pd.DataFrame):
        raise TypeError("expected a moment, not a DataFrame: the table comes first")
    if isinstance(when, str | dt.date) or not isinstance(when, Iterable):
        return np.array([to_microseconds(when, zone=zone, down=True)]), True
    return np.array([to_microseconds(x, zone=zone, down=True) for x in when], np.int64), False
