"""Axes of time: ticks at round moments in UTC, as many as there is room for."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, cast

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
_LEAST_DISTANCE: Final = 0.7
"""Between two ticks, of the largest between two others."""

_WHOLE_INTERVALS: Final = {MONTHLY: 12, DAILY: 31, HOURLY: 24, MINUTELY: 60, SECONDLY: 60}
"""Steps between ticks without which matplotlib finds none, and warns, for an axis of few ticks."""

_MARGIN: Final = 0.01

_DAY: Final = 86_400_000_000
_SHORTEST: Final = 10_000
"""Microseconds: of a shorter axis, matplotlib's floats of days no longer tell the ticks apart."""

_SLIVERS: Final = 300
"""Of so many an axis consists: about two points each."""


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
    margin = (_shown(start, end) / _DAY - (last - first)) / 2
    ax.set_xlim(first - margin, last + margin)
    ax.set_xlabel("UTC", loc="left")  # short: the date of the ticks stands on its right


def seen_until(start: int, last: int, end: int) -> int:
    """Return until when to draw a last step: to the end, and no narrower than can be seen.

    Parameters
    ----------
    start, end
        What the axis shows, microseconds.
    last
        When the step begins.
    """
    return max(end, last + sliver(start, end))


def sliver(start: int, end: int) -> int:
    """Return what of an axis that shows an interval is just wide enough to see, microseconds."""
    return int(_shown(start, end) / _SLIVERS)


def _shown(start: int, end: int) -> float:
    """Return how long an axis of an interval is, with its margins, microseconds."""
    if start == end:
        return _DAY
    return max((end - start) * (1 + 2 * _MARGIN), _SHORTEST)


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

    def __call__(self) -> Any:  # noqa: ANN401 - an array
        """Return the ticks, without those that stand too close to the next one.

        Matplotlib begins each month anew, so that the 29th and the 1st may be neighbours.
        """
        ticks = np.asarray(super().__call__())  # type: ignore[no-untyped-call]
        distances = np.diff(ticks)
        if not len(distances):
            return ticks
        is_far = distances > _LEAST_DISTANCE * distances.max()
        return ticks[np.append(is_far, True)]

    def get_locator(self, dmin: dt.datetime, dmax: dt.datetime) -> DateLocator:
        room = cast("Axis", self.axis).get_tick_space() // _LABEL_WIDTH
        most = min(max(room, _FEWEST_TICKS), 8)
        self.minticks = min(most - 1, 4)
        self.maxticks = dict.fromkeys(self.maxticks, most)
        locator: DateLocator = super().get_locator(dmin, dmax)  # type: ignore[no-untyped-call]
        return locator
