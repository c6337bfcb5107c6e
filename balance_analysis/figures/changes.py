"""What changed, period by period: flows as bars around zero, and how many changes, as cells."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from balance_analysis.analysis.downsampling import downsample
from balance_analysis.analysis.flows import sum_flows
from balance_analysis.analysis.grid import Frequency
from balance_analysis.analysis.history import Source, are_known
from balance_analysis.figures import axes
from balance_analysis.figures.layout import points_of
from balance_analysis.figures.styles import BLUE, VERMILION, ink, looks
from balance_analysis.figures.times import Extent, incomplete_style, set_ticks, to_dates
from balance_analysis.names import AssetsLike, LabelsLike
from balance_analysis.schema import Instant
from balance_analysis.text import count_text

GAP: Final = 0.12
"""Between two bars, of the length of a period."""

_NARROWEST: Final = 1.0
"""Points: a bar or a net that is narrower gets an edge as wide, or it could not be seen."""

_HOUR: Final = 3_600_000_000
_DAY: Final = 24 * _HOUR
_WEEK_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EPOCH_DAY: Final = 3
"""1970-01-01 was a Thursday."""

_LIGHT: Final = (0.28, 0.5, 0.75, 1.0)
_DARK: Final = (0.15, 0.35, 0.55, 0.78)
"""Where in a map of colours the classes of counts lie: on dark, each is about 1.5 times as light
as the one below it."""

_ROWS: Final = 8.5
"""Days that the height of a calendar has, with the room for its legend."""

_NAME: Final = 13.7
"""The height of the name of a day, in points."""

_HALF: Final = 0.46
"""Half the width of a cell; the rest is the gap between cells."""


def plot_flows(
    source: Source,
    *,
    ax: Axes | None = None,
    freq: Frequency | None = "1D",
    start: Instant | None = None,
    end: Instant | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the bars
) -> Axes:
    """Draw what flowed into and out of the accounts of one asset in each period, and the net.

    Bars above zero are inflows, bars below it outflows; the line across each period is the net.
    What one of the accounts gives another counts as in and as out. What came with an account's
    first row, or its first one behind a stretch that is not known, is unknown and in no bar: the
    legend says how many such rows there are. A period of which a part is not known has no bar, but
    is hatched. A bar that would be too narrow to see is drawn a point wide.

    Parameters
    ----------
    source
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    freq
        How long a period is, see `flows`; `None` for a single one.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the period of
        the first row to the end of what is known, else of the rows. Rows before it tell what came
        with the first row in it.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit where its
        decimals are not known.
    labels
        Own names, as other functions take them; nothing that they name is drawn here.
    limits
        The frame of `Archive.limits()`; when markets could be proposed is shaded, and when assets
        could, dotted.
    title
        The title; by default one that says what is drawn, and "" for none.
    **style
        Arguments of matplotlib for the bars, such as `alpha=0.8`; `color` may be a list of that of
        inflows and that of outflows.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, or `freq` is none.
    OverflowError
        If a delta or a sum has more than 38 digits.
    CheckError
        If two rows of one account and timestamp differ in balance.

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
    >>> ax = plot_flows(table)
    >>> [text.get_text() for text in ax.get_legend().get_texts()][:3]
    ['inflow', 'outflow', 'net']
    """
    chart = axes.Chart(source, ax, start, end, assets, labels, title, limits, freq)
    found, measure = sum_flows(chart.history, chart.over[1], "asset_id"), chart.each_period("flows")
    ax = chart.label(measure)
    if found.empty:
        return chart.explain("no balance changes")
    notes = chart.show(chart.periods)
    drawn = _draw_bars(chart, found, style)
    axes.format_amounts(ax, chart.unit)
    unknown = int(found["unknown"].sum())
    rows = count_text(unknown, "first row")
    says = [f"left out, as unknown: what came with {rows}"] if unknown else []
    return chart.finish(measure, drawn, notes=notes, says=says)


def _draw_bars(chart: axes.Chart, found: pd.DataFrame, style: dict[str, Any]) -> list[Artist]:
    ax, columns = chart.ax, chart.columns // 4
    starts, ends = (found[name].to_numpy("M8[us]").view(np.int64) for name in ("start", "end"))
    amounts = [chart.unit.scale(found[name].array) for name in ("inflow", "outflow", "net")]
    places = downsample(starts, *amounts, columns=columns, starts_known=np.isnan(amounts[0]))
    left, right = to_dates(starts[places]), to_dates(ends[places])
    margin = (right - left) * GAP / 2
    within = left + margin, right - margin
    inflow, outflow, net = (values[places] for values in amounts)
    low, high = ax.get_xlim()
    point = (high - low) / points_of(ax)[0]
    is_narrow = right - left < (1 + GAP) * _NARROWEST * point
    drawn: list[Artist] = []
    sides = ((inflow, BLUE, "inflow"), (-outflow, VERMILION, "outflow"))
    for (height, colour, label), told in zip(sides, looks(style, 2, PolyCollection), strict=True):
        edges = np.where(is_narrow & (height != 0), _NARROWEST, 0)
        bar = {"facecolor": colour, "edgecolor": "face", "linewidth": edges, "label": label}
        drawn.append(axes.draw_boxes(ax, *within, 0, height, **{**bar, **told}))
    cap, width = ("projecting", _NARROWEST) if is_narrow.any() else ("butt", 1.8)
    look: Any = {"color": ink(ax), "capstyle": cap, "linewidth": width, "label": "net"}
    drawn.append(ax.hlines(net, left, right, **look))
    ax.axhline(0, color=ink(ax), linewidth=0.8)
    # Those that matplotlib finds are a little off, even where all is zero.
    ax.dataLim.intervaly = -np.nanmax(outflow, initial=0), np.nanmax(inflow, initial=0)
    ax.autoscale_view(scalex=False)
    return drawn


def plot_activity(
    source: Source,
    *,
    ax: Axes | None = None,
    kind: Literal["calendar", "week"] = "calendar",
    start: Instant | None = None,
    end: Instant | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the cells
) -> Axes:
    """Draw how many balance changes there were, as a map of coloured cells.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order. Rows are counted, not amounts, so it may
        be of several assets.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    kind
        "calendar": each day of the interval, a column for each week. "week": the hours of the week,
        all weeks added up. Days and hours are those of UTC.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row
        to the end of what is known, else to the last row.
    assets
        The names of assets, as `read_assets` takes them; by default those in the table's attrs. The
        title has the name where the table is of one asset.
    labels
        Own names, as other functions take them; nothing that they name is drawn here.
    title
        The title; by default one that says what is drawn, and "" for none.
    **style
        Arguments of matplotlib for the cells: `color` is that of the most changes.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

    Raises
    ------
    ValueError
        If `kind` is neither.
    CheckError
        If rows contradict each other: see `balance_at`.

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
    kinds = {"calendar": ("day", _draw_calendar), "week": ("hour of the week", _draw_week)}
    if kind not in kinds:
        raise ValueError(f"kind must be 'calendar' or 'week', not {kind!r}")
    look: Any = {"size": (10, 3.2), "mixes_assets": True}
    chart = axes.Chart(source, ax, start, end, assets, labels, title, **look)
    interval, times = chart.interval, chart.over[0].row_times
    times = times[(interval.start <= times) & (times < interval.before)]
    if not len(times):
        return chart.explain("no balance changes")
    period, draw = kinds[kind]
    cells, notes = draw(chart.ax, times, interval, looks(style, 1)[0])
    _format_days(chart.ax)
    says = ["not all hours are known"] * bool(interval.gaps and kind == "week")
    return chart.finish(f"balance changes per {period}", cells, notes=notes, says=says)


def _format_days(ax: Axes) -> None:
    """Let the y axis show the days of the week, as many names as there is room for."""
    row = points_of(ax)[1] / _ROWS
    step = next((step for step in (1, 2, 3) if row * step > _NAME), 6)
    ax.set_yticks(range(0, 7, step), _WEEK_DAYS[::step])
    ax.set_ylim(6.5, -0.5)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _draw_calendar(
    ax: Axes, times: NDArray[np.int64], interval: Extent, style: dict[str, Any]
) -> tuple[list[Artist], list[Artist]]:
    first, last = interval.start // _DAY, (interval.before - 1) // _DAY
    days = np.arange(first, last + 1)
    counts = np.bincount(times // _DAY - first, minlength=len(days))
    begins, ends = np.maximum(days * _DAY, interval.start), (days + 1) * _DAY
    is_known = are_known(interval.known, begins, np.minimum(ends, interval.before))
    weekdays = (days + _EPOCH_DAY) % 7
    mondays = to_dates((days - weekdays) * _DAY)
    edges = _edges(mondays, weekdays, 7)
    patches = _draw_cells(ax, edges, counts, style)
    notes: list[Artist] = []
    if not is_known.all():
        look = {**incomplete_style(ax), "linewidth": 0}
        notes = [axes.draw_boxes(ax, *edges[:, ~is_known], **look)]
    set_ticks(ax, of_weeks=True, until=mondays[-1] + 3.5)
    ax.set_xlim(mondays[0] - 3.5, mondays[-1] + 3.5)
    return patches, notes


def _draw_week(
    ax: Axes, times: NDArray[np.int64], _: Extent, style: dict[str, Any]
) -> tuple[list[Artist], list[Artist]]:
    hours = (times // _HOUR + 24 * _EPOCH_DAY) % (7 * 24)
    counts = np.bincount(hours, minlength=7 * 24)
    weekday, hour = np.divmod(np.arange(7 * 24), 24)
    patches = _draw_cells(ax, _edges(hour + 0.5, weekday, 1), counts, style)
    ax.set_xticks(range(0, 25, 6), [f"{hour:02}:00" for hour in range(0, 25, 6)])
    ax.set_xlim(0, 24)
    return patches, []


def _edges(
    columns: NDArray[np.floating[Any]], rows: NDArray[np.int64], width: float
) -> NDArray[np.float64]:
    """Return the left, right, lower and upper edges of cells."""
    half = _HALF * width
    return np.array([columns - half, columns + half, rows - _HALF, rows + _HALF])


def _draw_cells(
    ax: Axes, edges: NDArray[np.float64], counts: NDArray[np.int64], style: dict[str, Any]
) -> list[Artist]:
    """Draw a cell for each count, coloured by its class; return what a legend shows for it."""
    bounds = class_bounds(counts)
    colours = _scale(ax, len(bounds), style.pop("color", None))
    shades = [colours[each] for each in np.searchsorted(bounds, counts, side="right")]
    axes.draw_boxes(ax, *edges, **{"facecolor": shades, "linewidth": 0, **style})
    lasts = [*(bound - 1 for bound in bounds[1:]), int(counts.max())]
    names = [
        f"{first:,}" if first == last else f"{first:,} to {last:,}"
        for first, last in zip([0, *bounds], [0, *lasts], strict=True)
    ]
    return [Patch(facecolor=c, label=name) for c, name in zip(colours, names, strict=True)]


def _scale(ax: Axes, classes: int, colour: Any) -> list[str]:  # noqa: ANN401 - or none
    """Return the colours of none and of each class, ever further from the paper."""
    paper, text = to_rgb(ax.get_facecolor()), to_rgb(ink(ax))
    is_dark = sum(paper) < sum(text)
    chosen = colormaps["Blues_r" if is_dark else "Blues"]
    if colour is not None:
        chosen = LinearSegmentedColormap.from_list("", [paper, colour])
    shades = chosen(_DARK if is_dark and colour is None else _LIGHT)
    empty = np.average([paper, text], axis=0, weights=(0.86, 0.14) if is_dark else (0.94, 0.06))
    return [to_hex(tuple(colour)) for colour in (empty, *shades[-classes:])]


def class_bounds(counts: NDArray[np.int64]) -> list[int]:
    """Return from which count on each class of counts above 0 begins: at most four.

    About as many counts fall into each, so that a map shows its differences whatever its scale.
    """
    found = np.unique(counts[counts > 0])
    if len(found) <= len(_LIGHT):
        return [int(count) for count in found]
    quarters = np.quantile(counts[counts > 0], (0.25, 0.5, 0.75))
    rounded = {int(float(f"{quarter:.2g}")) for quarter in quarters}
    return [1, *sorted(bound for bound in rounded if 1 < bound <= found[-1])]
