"""When things happened: balance changes by day, or by hour of the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from balance_analysis.analysis.history import are_known
from balance_analysis.figures.canvas import explain_no_changes, ink, legend_beside, new_axes
from balance_analysis.figures.levels import open_figure
from balance_analysis.figures.palette import BLUE, INCOMPLETE_HATCH
from balance_analysis.figures.shading import INCOMPLETE
from balance_analysis.schema import from_microseconds
from balance_analysis.spans import between

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.figures.levels import Interval
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant

Colour = tuple[float, float, float]

_HOUR: Final = 3_600_000_000
_DAY: Final = 24 * _HOUR
_WEEK_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EPOCH_DAY: Final = 3
"""1970-01-01 was a Thursday."""

_SHADES: Final = (0.25, 0.55, 1.0)
_CLASSES: Final = len(_SHADES) + 1
_EMPTY: Final = 0.06
_DARK_TINTS: Final = (0.7, 1.0)
_DARK_LIGHTS: Final = (0.7, 0.4)
_DARK_EMPTY: Final = 0.14
"""On dark paper, each class is about 1.5 times as light as the one below it."""
_HALF: Final = 0.46
"""Half the width of a cell; the rest is the gap between cells."""

_WEEKS_A_MONTH: Final = 4.3
_MONTH_STEPS: Final = (1, 2, 3, 6, 12, 24, 60, 120)
_NAME_INCHES: Final = 0.5
_DAY_INCHES: Final = 0.19
_LEAST_SQUARE: Final = 0.05
"""Of so many inches are the smallest cells that are still drawn as squares."""


def plot_activity(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    kind: Literal["calendar", "week"] = "calendar",
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> Axes:
    """Draw how many balance changes there were, as a map of coloured cells.

    Parameters
    ----------
    data
        A table of balance changes, its rows in any order. Rows are counted, not amounts, so it may
        be of several assets.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it.
    kind
        "calendar": each day of the interval, a column for each week. "week": the hours of the week,
        all weeks added up. Days and hours are those of UTC.
    start, end
        The interval, half-open; without a time zone UTC. By default from the first row to the end
        of what is known, else to the last row.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. A day of the interval of which a part is not known is hatched; of
        hours of the week the legend says that there are such.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

    Raises
    ------
    ValueError
        If `kind` is neither.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> ax = plot_activity(table)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['0', '1']
    """
    if kind not in {"calendar", "week"}:
        raise ValueError(f"kind must be 'calendar' or 'week', not {kind!r}")
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    ax = new_axes(ax, size=(10, 3.2))
    times = steps.row_times
    if interval is not None:
        times = times[(interval.start <= times) & (times < interval.before)]
    if interval is None or not len(times):
        return explain_no_changes(ax, start, end)
    (_draw_calendar if kind == "calendar" else _draw_week)(ax, times, interval)
    ax.yaxis.set_major_formatter(lambda day, _: _WEEK_DAYS[int(day)])
    ax.set_ylim(6.5, -0.5)
    ax.set_xlabel("UTC", loc="left")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _draw_calendar(ax: Axes, times: NDArray[np.int64], interval: Interval) -> None:
    days, counts = np.unique(times // _DAY, return_counts=True)
    every = np.arange(interval.start // _DAY, (interval.before - 1) // _DAY + 1)
    begins, stops = np.maximum(every * _DAY, interval.start), (every + 1) * _DAY
    is_known = are_known(interval.known, begins, np.minimum(stops, interval.before))
    filled = np.zeros(len(every), np.int64)
    filled[days - every[0]] = counts
    weeks, weekday = np.divmod(every + _EPOCH_DAY, 7)
    weeks -= weeks[0]
    _draw_cells(ax, weeks, weekday, filled, "balance changes a day", is_known=is_known)
    ax.set_xlim(-0.5, weeks[-1] + 0.5)
    width, height = _cell_inches(ax, int(weeks[-1]) + 1)
    if _LEAST_SQUARE < width < height:
        ax.set_aspect("equal", anchor="NW")
        height = width
    ax.set_yticks(np.arange(7)[:: _day_step(height)])
    if width < _NAME_INCHES:
        _label_months(ax, every, weeks, step=_month_step(min(width, height)))
    else:
        _label_weeks(ax, every, weeks, step=1 if width > 2 * _NAME_INCHES else 2)


def _cell_inches(ax: Axes, weeks: int) -> tuple[float, float]:
    """Return about how large a day's cell is, with a legend beside the cells."""
    figure, position = ax.get_figure(root=True), ax.get_position()
    width, height = figure.get_size_inches() if figure is not None else (10, 4.5)
    return max(width * position.width - 1.5, 1) / weeks, height * position.height / 7


def _month_step(cell: float) -> int:
    """Return of how many months one is named where a week is so many inches wide."""
    fitting = (step for step in _MONTH_STEPS if step * _WEEKS_A_MONTH * cell > _NAME_INCHES)
    return next(fitting, _MONTH_STEPS[-1])


def _day_step(height: float) -> int:
    """Return every which weekday is named where a cell is so many inches high."""
    return next((step for step in (1, 2, 3) if step * height > _DAY_INCHES), 6)


def _label_months(
    ax: Axes, days: NDArray[np.int64], weeks: NDArray[np.int64], *, step: int
) -> None:
    """Name every so many months, at the week of their first day."""
    dates = [from_microseconds(int(day) * _DAY) for day in days]
    places = [
        place
        for place, date in enumerate(dates)
        if date.day == 1 and (date.year * 12 + date.month - 1) % step == 0
    ]
    if not places or weeks[places[0]] >= _WEEKS_A_MONTH * step:
        places = [0, *places]
    years = [dates[place].year for place in places]
    names = [
        f"{dates[place]:%b}\n{year}" if year != before else f"{dates[place]:%b}"
        for place, year, before in zip(places, years, [None, *years], strict=False)
    ]
    ax.set_xticks(weeks[places], names)


def _label_weeks(ax: Axes, days: NDArray[np.int64], weeks: NDArray[np.int64], *, step: int) -> None:
    """Name every so many weeks by their Mondays."""
    mondays = (days[0] - (days[0] + _EPOCH_DAY) % 7 + 7 * np.arange(weeks[-1] + 1))[::step]
    dates = [from_microseconds(int(day) * _DAY) for day in mondays]
    years = [date.year for date in dates]
    names = [
        f"{date:%d %b}\n{date.year}" if date.year != before else f"{date:%d %b}"
        for date, before in zip(dates, [None, *years], strict=False)
    ]
    ax.set_xticks(np.arange(weeks[-1] + 1)[::step], names)


def _draw_week(ax: Axes, times: NDArray[np.int64], interval: Interval) -> None:
    hours = (times // _HOUR + 24 * _EPOCH_DAY) % (7 * 24)
    counts = np.bincount(hours, minlength=7 * 24)
    weekday, hour = np.divmod(np.arange(7 * 24), 24)
    ax.set_yticks(np.arange(7)[:: _day_step(_cell_inches(ax, 24)[1])])
    title = "balance changes\nin that hour of all weeks"
    if interval.known and between(interval.known, interval.start, interval.before):
        title += ";\nnot all hours are known"
    _draw_cells(ax, hour, weekday, counts, title, is_known=np.ones(len(counts), bool))
    ax.set_xticks(np.arange(0, 25, 6) - 0.5, [f"{hour:02}:00" for hour in range(0, 25, 6)])
    ax.set_xlim(-0.5, 23.5)


def _draw_cells(
    ax: Axes,
    columns: NDArray[np.int64],
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
    title: str,
    *,
    is_known: NDArray[np.bool_],
) -> None:
    """Draw a square for each count, coloured by its class, hatched where it may lack some."""
    bounds = class_bounds(counts)
    classes = np.searchsorted(bounds, counts, side="right")
    empty, *shades = _scale(to_rgb(ax.get_facecolor()), to_rgb(ink(ax)))
    colours = [empty, *shades[-len(bounds) :]]
    squares = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)]) * _HALF
    cells = np.stack([columns, rows], 1)[:, None] + squares
    ax.add_collection(
        PolyCollection(list(cells), facecolor=[colours[each] for each in classes], linewidth=0)
    )
    patches = []
    if not is_known.all():
        style: Any = {"facecolor": "none", "edgecolor": ink(ax), "hatch": INCOMPLETE_HATCH}
        style |= {"alpha": 0.5, "linewidth": 0}
        ax.add_collection(PolyCollection(list(cells[~is_known]), **style))
        patches = [Patch(**style, label=INCOMPLETE)]
    names = ["0", *_class_names(bounds, int(counts.max()))]
    shown = zip(colours, names, strict=True)
    patches = [*(Patch(facecolor=colour, label=name) for colour, name in shown), *patches]
    legend_beside(ax, patches, title=title)


def _scale(paper: Colour, text: Colour) -> list[Colour]:
    """Return the colours of none and of each class, ever further from the paper."""
    blue = to_rgb(BLUE)
    if sum(paper) > sum(text):
        tints = [_blend(blue, paper, share) for share in _SHADES]
        return [_blend(text, paper, _EMPTY), *tints, _blend(blue, text, 0.5)]
    tints = [_blend(blue, paper, share) for share in _DARK_TINTS]
    lights = [_blend(blue, text, share) for share in _DARK_LIGHTS]
    return [_blend(text, paper, _DARK_EMPTY), *tints, *lights]


def class_bounds(counts: NDArray[np.int64]) -> list[int]:
    """Return from which count on each class of counts above 0 begins: at most four.

    About as many counts fall into each, so that a map shows its differences whatever its scale.
    """
    found = np.unique(counts[counts > 0])
    if len(found) <= _CLASSES:
        return [int(count) for count in found]
    quarters = np.quantile(counts[counts > 0], (0.25, 0.5, 0.75))
    rounded = {_rounded(quarter) for quarter in quarters}
    return [1, *sorted(bound for bound in rounded if 1 < bound <= found[-1])]


def _rounded(number: float) -> int:
    """Return a whole number near another, of two digits."""
    power = max(10 ** (int(np.log10(max(number, 1))) - 1), 1)
    return int(round(number / power) * power)


def _class_names(bounds: list[int], most: int) -> list[str]:
    lasts = [*(bound - 1 for bound in bounds[1:]), most]
    return [
        f"{first:,}" if first == last else f"{first:,} to {last:,}"
        for first, last in zip(bounds, lasts, strict=True)
    ]


def _blend(colour: Colour, other: Colour, part: float) -> Colour:
    red, green, blue = (part * a + (1 - part) * b for a, b in zip(colour, other, strict=True))
    return red, green, blue
