"""Axes of time: ticks at round moments in UTC, as many as there is room for."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from matplotlib.dates import (
    DAILY,
    HOURLY,
    MINUTELY,
    MONTHLY,
    SECONDLY,
    AutoDateLocator,
    ConciseDateFormatter,
    date2num,
    num2date,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.dates import DateLocator
    from numpy.typing import NDArray

_LABEL_WIDTH: Final = 2
"""Of a date, in the tick labels of three characters for which matplotlib counts the room."""

_FEWEST_TICKS: Final = 3

_WHOLE_INTERVALS: Final = {MONTHLY: 12, DAILY: 31, HOURLY: 24, MINUTELY: 60, SECONDLY: 60}
"""Steps between ticks without which matplotlib finds none, and warns, for an axis of few ticks."""

_MARGIN: Final = 0.01


def to_dates(microseconds: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Return microseconds since 1970-01-01 UTC as matplotlib's days."""
    days = date2num(np.asarray(microseconds, np.int64).view("M8[us]"))  # type: ignore[no-untyped-call]
    return np.asarray(days)


def format_times(ax: Axes, start: int, end: int) -> None:
    """Let the x axis show [start, end], microseconds, in UTC; of a single moment its day."""
    locator = _FittingDateLocator(tz=dt.UTC)  # type: ignore[no-untyped-call]
    for frequency, whole in _WHOLE_INTERVALS.items():
        locator.intervald[frequency] = [*locator.intervald[frequency], whole]
    ax.xaxis.set_major_locator(locator)
    formatter = _DateFormatter(  # type: ignore[no-untyped-call]
        locator,
        tz=dt.UTC,
        formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
        zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M"],
    )
    ax.xaxis.set_major_formatter(formatter)
    first, last = float(to_dates(start)), float(to_dates(end))
    margin = (last - first) * _MARGIN if last > first else 0.5
    ax.set_xlim(first - margin, last + margin)
    ax.set_xlabel("UTC", loc="left")  # short: the date of the ticks stands on its right


class _DateFormatter(ConciseDateFormatter):
    """Short dates; of a single tick the whole of it, since no other tells what it has in common."""

    _is_single = False

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        labels: list[str] = super().format_ticks(values)  # type: ignore[no-untyped-call]
        self._is_single = len(values) == 1
        if not self._is_single:
            return labels
        moment: dt.datetime = num2date(values[0], tz=dt.UTC)  # type: ignore[no-untyped-call]
        date = f"{moment:%d %b}\n{moment:%Y}"
        return [date if moment.time() == dt.time() else f"{moment:%H:%M:%S}\n{date}"]

    def get_offset(self) -> str:
        offset: str = super().get_offset()  # type: ignore[no-untyped-call]
        return "" if self._is_single else offset


class _FittingDateLocator(AutoDateLocator):
    """Ticks at round times, as many as the axis has room for when it is drawn."""

    def get_locator(self, dmin: dt.datetime, dmax: dt.datetime) -> DateLocator:
        room = cast("Axis", self.axis).get_tick_space() // _LABEL_WIDTH
        most = min(max(room, _FEWEST_TICKS), 8)
        self.minticks = min(most - 1, 4)
        self.maxticks = dict.fromkeys(self.maxticks, most)
        locator: DateLocator = super().get_locator(dmin, dmax)  # type: ignore[no-untyped-call]
        return locator
