"""Changes per period: flows as bars around zero, and numbers of changes as cells."""

from __future__ import annotations

from itertools import compress, pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgb
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from balance_analysis.analysis.door import frames_of, stacked
from balance_analysis.analysis.flows import flows
from balance_analysis.analysis.grid import Frequency, Grid
from balance_analysis.analysis.history import AccountSlices, History, Source, are_known, over_slices
from balance_analysis.analysis.steps import downsample
from balance_analysis.figures import axes, times
from balance_analysis.figures.styles import BLUE, SKY, VERMILION, incomplete_style, ink, spread
from balance_analysis.table.moments import DAY, Moment, joined
from balance_analysis.table.names import AssetsLike
from balance_analysis.table.schema import Ints
from balance_analysis.table.text import count_text

_GAP: Final = 0.12
"""Gap between two bars, as a fraction of a period's length."""

_NARROWEST: Final = 0.5
"""Width of a bar's edge (in points), so that a narrow bar stays visible."""

_WEEK_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EPOCH_DAY: Final = 3
"""Day of the week of 1970-01-01, a Thursday, counted from Monday as 0."""


def plot_flows(
    source: Source,
    *,
    ax: Axes | None = None,
    freq: Frequency | None = "1D",
    start: Moment | None = None,
    end: Moment | None = None,
    assets: AssetsLike | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the bars
) -> Axes:
    """Draw inflow, outflow and net of one asset's accounts in each period.

    Bars above zero are inflows, bars below it outflows; the line across each period is the net. A
    transfer between two of the accounts counts as both. The delta of an account's first row, and of
    its first row after an unknown stretch, is unknown and in no bar: the legend counts such rows. A
    period that isn't known throughout is hatched and has no bar.

    Parameters
    ----------
    source
        A table of one asset's balance changes, with rows in any order, or an `Archive`.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    freq
        The length of a period, see `flows`; `None` for a single period.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row's
        period to the end of the known intervals, else to that of the last row's period. A row
        before the interval makes the delta of the account's first row in it known.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit if its
        decimals are unknown.
    limits
        The frame of `Archive.limits()`. Times when markets could be proposed are shaded; those when
        assets could be proposed are dotted.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the bars, such as `alpha=0.8`; `color` may be a list of two
        colours, for inflows and outflows.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If there is no row, a text on it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, or `freq` is invalid.
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

    def summed(slices: AccountSlices) -> tuple[History, Grid, pd.DataFrame]:
        grid = slices.outline.grid(freq, start=start, end=end)
        sums = stacked([*frames_of(flows)(slices, freq=grid, by="asset_id")])
        return slices.history_at(np.array([], np.int64)), grid, sums

    history, grid, sums = over_slices(source, summed)
    chart = axes.Chart(history, ax, start, end, assets, None, title, limits)
    measure = "flows" if freq is None else f"flows per {times.period_name(freq)}"
    ax = chart.label(measure)
    if sums.empty:
        return chart.explain("no balance changes")
    is_known = are_known(chart.history.known, grid.edges[:-1], grid.edges[1:])
    edges = grid.edges.tolist()
    known = tuple(joined(compress(pairwise(edges), is_known)))
    hatches = chart.show(times.Extent(edges[0], edges[-1], edges[-1], known))
    drawn = _draw_bars(chart, sums, style)
    axes.format_amounts(ax, chart.unit)
    rows = count_text(unknown := int(sums["unknown"].sum()), "first row")
    notes = [f"left out: {rows} (previous balance unknown)"] * (unknown > 0)
    notes += ["left out: accounts with bad rows only"] * bool(history.bad_row_warnings)
    return chart.finish(measure, [*drawn, *hatches], notes=notes)


def _draw_bars(chart: axes.Chart, sums: pd.DataFrame, style: dict[str, Any]) -> list[Artist]:
    ax, columns = chart.ax, axes.PIXELS // 4
    starts, ends = (sums[name].to_numpy("M8[us]").view(np.int64) for name in ("start", "end"))
    amounts = [chart.unit.scale(sums[name].array) for name in ("inflow", "outflow", "net")]
    places = downsample(starts, *amounts, columns=columns, starts_known=np.isnan(amounts[0]))
    left, right = times.to_dates(starts[places]), times.to_dates(ends[places])
    margin = (right - left) * _GAP / 2
    within = left + margin, right - margin
    inflow, outflow, net = (values[places] for values in amounts)
    drawn: list[Artist] = []
    sides = ((inflow, BLUE, "inflow"), (-outflow, VERMILION, "outflow"))
    for (height, colour, label), given in zip(sides, spread(style, 2, PolyCollection), strict=True):
        bar = {"facecolor": colour, "edgecolor": "face", "linewidth": _NARROWEST, "label": label}
        drawn.append(axes.draw_boxes(ax, *within, 0, height, **{**bar, **given}))
    options: Any = {"color": ink(ax), "capstyle": "projecting", "linewidth": 1.2, "label": "net"}
    drawn.append(ax.hlines(net, left, right, **options))
    ax.axhline(0, color=ink(ax), linewidth=0.8)
    # Matplotlib's own data limits are slightly off, even if all flows are zero.
    ax.dataLim.intervaly = -np.nanmax(outflow, initial=0), np.nanmax(inflow, initial=0)
    ax.autoscale_view(scalex=False)
    return drawn


def plot_activity(
    source: Source,
    *,
    ax: Axes | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the cells
) -> Axes:
    """Draw the number of balance changes on each UTC day, one column per week.

    Parameters
    ----------
    source
        A table of balance changes, with rows in any order, or an `Archive`. It may have several
        assets: rows are counted, not amounts.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row
        to the end of the known intervals, else to the last row.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the cells; `color` is the colour of the most changes.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If there is no row, a text on it says so.

    Raises
    ------
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
    >>> ax.collections[0].get_array().compressed().tolist()
    [1, 1, 0]
    """

    def counted(slices: AccountSlices) -> tuple[axes.Chart, Ints, Ints]:
        chart = axes.Chart(slices.outline, ax, start, end, None, None, title)
        shown, first = chart.interval, chart.interval.start // DAY
        first -= (first + _EPOCH_DAY) % 7
        days = first + np.arange(7 * -(-((shown.before - 1) // DAY + 1 - first) // 7))

        def count(history: History) -> Ints:
            moments = history.steps.row_times
            moments = moments[(shown.start <= moments) & (moments < shown.before)]
            return np.bincount(moments // DAY - first, minlength=len(days))

        return chart, days, np.sum([*slices.map(count, chart.steps_and_grid[1])], axis=0)

    chart, days, counts = over_slices(source, counted)
    if not counts.any():
        return chart.explain("no balance changes")
    ax, interval = chart.ax, chart.interval
    begins, ends = np.clip([days * DAY, (days + 1) * DAY], interval.start, interval.before)
    weeks, is_shown = times.to_dates(np.append(days[::7], days[-1] + 1) * DAY), begins < ends
    _draw_cells(ax, weeks, np.ma.masked_where(~is_shown, counts).reshape(-1, 7).T, style)
    missing = np.flatnonzero(is_shown & ~are_known(interval.known, begins, ends))
    left, row = weeks[missing // 7], missing % 7
    hatches = axes.draw_boxes(ax, left, left + 7, row, row + 1, **incomplete_style(ax))
    times.format_times(ax, int(days[0]) * DAY, int(days[-1] + 1) * DAY)
    ax.set_yticks(np.arange(7) + 0.5, _WEEK_DAYS)
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    words = "Balance changes per day" if title is None else title
    return axes.finish(ax, words, [hatches] * bool(len(missing)))


def _draw_cells(
    ax: Axes, columns: NDArray[np.float64], counts: Ints, style: dict[str, Any]
) -> None:
    """Draw a cell per count and a colour bar; higher counts differ more from the background."""
    paper, text = to_rgb(ax.get_facecolor()), to_rgb(ink(ax))
    empty = np.average([paper, text], axis=0, weights=(0.93, 0.07))
    colour = style.pop("color", SKY if sum(paper) < sum(text) else BLUE)
    shades = LinearSegmentedColormap.from_list("", [empty, colour])
    options: Any = {"norm": PowerNorm(0.5, 0, counts.max()), "edgecolor": paper, "cmap": shades}
    options |= {"linewidth": min(1.5, 60 / len(columns)), **style}
    mesh = ax.pcolormesh(columns, np.arange(8), counts, **options)
    whole = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True)
    ax.figure.colorbar(mesh, ax=ax, pad=0.01, ticks=whole, format=StrMethodFormatter("{x:,.0f}"))
