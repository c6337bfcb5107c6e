"""The time axis of a figure: ticks in UTC, hatches over unknown stretches, limits as shades."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib import dates
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from numpy.typing import NDArray

from balance_analysis.analysis.grid import Frequency, to_period
from balance_analysis.figures.styles import incomplete_style, ink, unknown_style
from balance_analysis.table.known import Known
from balance_analysis.table.moments import DAY, Span, gaps_in, joined, moment_text
from balance_analysis.table.schema import Ints

KINDS: Final[dict[str, tuple[float, str | None]]] = {"market": (0.12, None), "asset": (0.0, "..")}
"""The opacity and the hatch that show when proposals of a kind are enabled. Both kinds can be seen
on top of each other, also in print and on a dark background."""

_CLOCK: Final = {"s": "second", "min": "minute", "h": "hour"}
_PERIODS: Final = {"D": "day", "W": "week", "MS": "month", "QS": "quarter", "YS": "year"}

_SHORTEST: Final = 10_000
"""Shortest axis, in microseconds: on a shorter one, matplotlib's float days make ticks coincide."""

_LONGEST: Final = {dates.MONTHLY: 12, dates.HOURLY: 24, dates.MINUTELY: 60, dates.SECONDLY: 60}
"""Longest tick intervals to add to matplotlib's, so that three ticks are enough for every span."""

_SLIVERS: Final = 300
"""Number of slivers across an axis: each is about two points wide, enough to see."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The time that a figure shows, in microseconds since 1970-01-01 UTC.

    Attributes
    ----------
    start, end
        The interval of the x axis; the last value is drawn up to `end`.
    before
        Rows before this moment are drawn: `end`, or right after it if the caller gave no end.
    known
        The intervals in which every change is known; `None` if not stated.
    """

    start: int
    end: int
    before: int
    known: Known | None = None

    @property
    def gaps(self) -> list[Span]:
        """The stretches in which changes may be missing."""
        return [] if self.known is None else gaps_in(self.known, self.start, self.end)

    @property
    def sliver(self) -> int:
        """The shortest stretch that is wide enough to see (in microseconds)."""
        return int(_shown(self.start, self.end) / _SLIVERS)


def to_dates(microseconds: Ints | Sequence[int] | int) -> NDArray[np.float64]:
    """Convert microseconds since 1970-01-01 UTC to matplotlib's days."""
    days = dates.date2num(np.asarray(microseconds, np.int64).view("M8[us]"))  # type: ignore[no-untyped-call]
    return np.asarray(days)


def show_interval(ax: Axes, interval: Extent, *, unknown: Iterable[Span] = ()) -> list[Artist]:
    """Let the x axis show an interval, and hatch its unknown and incomplete stretches.

    Parameters
    ----------
    unknown
        Stretches in which no balance is known. Parts of them in which changes may be missing are
        hatched as incomplete instead.

    Returns
    -------
    list
        Handles for a legend.
    """
    format_times(ax, interval.start, interval.end)
    spans = [span for stretch in unknown for span in gaps_in(interval.gaps, *stretch)]
    spans = [span for span in spans if span[1] - span[0] >= interval.sliver]
    handles = _shade(ax, map(to_dates, spans), unknown_style(ax))
    return handles + _shade(ax, map(to_dates, interval.gaps), incomplete_style(ax))


def _shade(ax: Axes, spans: Iterable[Any], style: dict[str, Any]) -> list[Artist]:
    """Draw stretches of dates over the whole height; return the handle for a legend, if any."""
    drawn: list[Artist] = [ax.axvspan(*span, **style) for span in spans]
    return drawn[:1]


def shade_limits(ax: Axes, limits: pd.DataFrame | None) -> list[Artist]:
    """Shade or dot the times when proposals were enabled, within the range of the x axis.

    Returns
    -------
    list
        Handles for a legend; empty if nothing is shaded.
    """
    handles: list[Artist] = []
    if limits is None:
        return handles
    for kind, (alpha, hatch) in KINDS.items():
        days = [to_dates(span) for span in proposal_spans(limits, kind)]
        seen = [span for span in np.clip(days, *ax.get_xlim()).tolist() if span[0] < span[1]]
        shade, edge = to_rgba(ink(ax), alpha), to_rgba(ink(ax), 0.3)
        shape = {"facecolor": shade, "edgecolor": edge, "hatch": hatch, "linewidth": 0}
        handles += _shade(ax, seen, {**shape, "zorder": 0.2, "label": f"{kind} proposals enabled"})
    return handles


def proposal_spans(limits: pd.DataFrame, kind: str) -> list[Span]:
    """Return the spans in which proposals of a kind are known to have been enabled.

    They are ascending, in microseconds. If a snapshot states since when proposals are enabled, the
    span begins then, but not before an earlier snapshot was last seen.

    Parameters
    ----------
    limits
        The frame of `Archive.limits()`; the columns `propose_..._enabled_from` may be missing.
    kind
        "market" or "asset".
    """
    frame = limits.sort_values("first_seen", kind="stable")
    firsts, lasts = frame["first_seen"], frame["last_seen"]
    since = frame.get(f"propose_{kind}_enabled_from", firsts).fillna(firsts)
    begins = since.where(~(since < lasts.shift()), lasts.shift())
    is_enabled = frame[f"propose_{kind}_enabled"] & (begins <= lasts)
    return joined(to_spans(frame.assign(begins=begins)[is_enabled], "begins", "last_seen"))


def to_spans(frame: pd.DataFrame, start: str, end: str) -> list[Span]:
    """Return the spans between two columns of moments, in microseconds, rounded up."""
    edges = [frame[name].dt.ceil("us").to_numpy("M8[us]").view(np.int64) for name in (start, end)]
    return list(zip(*(each.tolist() for each in edges), strict=True))


class _FittingLocator(dates.AutoDateLocator):
    """Place as many date ticks as fit side by side."""

    def get_locator(self, dmin: dt.datetime, dmax: dt.datetime) -> dates.DateLocator:
        most = int(np.clip(self.axis.get_tick_space(), 3, 7))  # type: ignore[union-attr]
        self.minticks, self.maxticks = max(2, most // 2), dict.fromkeys(self.maxticks, most)
        return super().get_locator(dmin, dmax)  # type: ignore[no-any-return, no-untyped-call]


class _UtcFormatter(dates.ConciseDateFormatter):
    """Write short date labels, with their common part and the time zone once below them.

    The common part is that of the last tick before `end`: a month ends where the next one begins.
    """

    end: float

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        labels: list[str] = super().format_ticks(values)  # type: ignore[no-untyped-call]
        super().format_ticks([x for x in values if x < self.end] or values)  # type: ignore[no-untyped-call]
        return labels

    def get_offset(self) -> str:
        return f"{super().get_offset()} UTC".lstrip()  # type: ignore[no-untyped-call]


def format_times(ax: Axes, start: int, end: int) -> None:
    """Let the x axis show [start, end] (in microseconds) in UTC; for a single moment, its day.

    Everything else drawn there, or on an Axes that shares the axis, stays visible.
    """
    locator = _FittingLocator(tz=dt.UTC)  # type: ignore[no-untyped-call]
    for freq, longest in _LONGEST.items():
        locator.intervald[freq].append(longest)
    ax.xaxis.set_major_locator(locator)
    formatter = _UtcFormatter(locator, tz=dt.UTC)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_formatter(formatter)
    first, last = float(to_dates(start)), float(to_dates(end))
    formatter.end = last
    margin = (_shown(start, end) / DAY - (last - first)) / 2
    ax.margins(x=0)
    ax.update_datalim([(first - margin, 0), (last + margin, 0)], updatey=False)
    ax.autoscale_view(scaley=False)


def _shown(start: int, end: int) -> float:
    """Return the length of an interval's axis (in microseconds), with 1 % margins on each side."""
    return max((end - start) * 1.02, _SHORTEST) if start < end else DAY


def draw_line(
    ax: Axes,
    edges: Ints,
    levels: NDArray[np.float64],
    interval: Extent,
    **style: Any,  # noqa: ANN401 - of a line
) -> Line2D:
    """Draw steps between edges (in microseconds); a piece too short to see becomes a dot."""
    is_held = np.concatenate([[False], ~np.isnan(levels), [False]])
    heads, stops = np.flatnonzero(np.diff(is_held)).reshape(-1, 2).T
    dots = heads[edges[stops] - edges[heads] < interval.sliver].tolist()
    (line,) = ax.plot(
        to_dates(edges),
        np.append(levels, levels[-1]),
        drawstyle="steps-post",
        markevery=dots or None,
        **{"marker": "o" if dots else None, "markersize": 3, **style},
    )
    return line


def draw_area(
    ax: Axes,
    times: Ints,
    levels: NDArray[np.float64],
    interval: Extent,
    **style: Any,  # noqa: ANN401 - of a patch
) -> StepPatch:
    """Draw the area between zero and steps that begin at `times`, and return it.

    The last step ends with the interval, and is always wide enough to see.
    """
    end = max(interval.end, int(times[-1]) + interval.sliver)
    days, drawn = to_dates(np.append(times, end)), np.nan_to_num(levels)
    area = StepPatch(levels, days, baseline=0, fill=True, linewidth=0, **style)
    # `add_patch` and `stairs` are slow: they search each step for extremes as if it were a curve.
    ax.add_artist(area)
    ax.update_datalim([*product(days[[0, -1]], (min(drawn.min(), 0), max(drawn.max(), 0)))])
    ax.autoscale_view()
    return area


def period_name(freq: Frequency) -> str:
    """Return a frequency's name, such as `day`, or pandas' own text if it has none.

    Examples
    --------
    >>> [period_name(freq) for freq in ("1D", "6h", "W-MON", "2MS")]
    ['day', '6 hours', 'week', '2 months']
    """
    offset = to_period(freq)
    word = {**_CLOCK, **_PERIODS}.get(offset.rule_code.split("-")[0])
    if word is None:
        return str(offset.freqstr)
    return word if offset.n == 1 else f"{offset.n} {word}s"


def date_text(microseconds: int) -> str:
    """Return a moment as text; for midnight, the date alone."""
    text = moment_text(microseconds, "seconds")
    return text if microseconds % DAY else text.removesuffix("T00:00Z")
