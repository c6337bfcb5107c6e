"""What came in and went out: bars around zero."""

from __future__ import annotations

from itertools import compress
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray

from balance_analysis.analysis.downsampling import downsample
from balance_analysis.analysis.flows import sum_flows
from balance_analysis.analysis.grid import Frequency, to_period
from balance_analysis.analysis.history import are_known, open_history
from balance_analysis.assets import AssetsLike
from balance_analysis.figures import axes
from balance_analysis.figures.layout import finish
from balance_analysis.figures.styles import BLUE, VERMILION, looks
from balance_analysis.figures.timelines import shade_limits
from balance_analysis.figures.times import Extent, count_columns, show_interval, to_dates
from balance_analysis.known import Known, Stated
from balance_analysis.schema import Instant
from balance_analysis.spans import joined
from balance_analysis.text import count_text

_GAP: Final = 0.12
"""Between two bars, of the length of a period."""

_NARROWEST: Final = 1.0
"""Points: a bar or a net that is narrower gets an edge as wide, or it could not be seen."""


def plot_flows(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    freq: Frequency | None = "1D",
    start: Instant | None = None,
    end: Instant | None = None,
    assets: AssetsLike | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
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
    data
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
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those in its attrs:
        see `balance_at`. Stretches outside of them are hatched, and nothing is drawn there.
    limits
        The frame of `Archive.limits()`; times when proposals were enabled are shaded.
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
    history = open_history(data, opening, known)
    grid = history.grid(freq, start=start, end=end)
    unit = axes.unit_of(data, history.accounts, assets)
    found = sum_flows(history, grid, "asset_id")
    ax = axes.new_axes(ax)
    measure = "flows" if freq is None else f"flows per {period_name(freq)}"
    ax.set_ylabel(unit.axis_label(measure))
    if found.empty:
        return axes.explain(ax, "no balance changes", title, start=start, end=end)
    hatches = show_interval(ax, _whole_periods(grid.edges, history.known))
    drawn = _draw_bars(ax, found, unit, style)
    axes.format_amounts(ax, unit)
    notes = [*hatches, *shade_limits(ax, limits)]
    unknown = int(found["unknown"].sum())
    rows = count_text(unknown, "first row")
    says = [f"left out, as unknown: what came with {rows}"] if unknown else []
    title = unit.title(measure) if title is None else title
    return finish(ax, title, drawn, notes=notes, says=says)


def _whole_periods(edges: NDArray[np.int64], known: Known | None) -> Extent:
    """Return what to show: all periods, and as known those of which every part is."""
    whole = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    is_known = are_known(known, edges[:-1], edges[1:])
    spans = None if known is None else tuple(joined(compress(whole, is_known)))
    return Extent(int(edges[0]), int(edges[-1]), int(edges[-1]), spans)


def _draw_bars(
    ax: Axes, found: pd.DataFrame, unit: axes.Unit, style: dict[str, Any]
) -> list[Artist]:
    starts, ends = (found[name].to_numpy("M8[us]").view(np.int64) for name in ("start", "end"))
    amounts = [unit.scale(found[name].array) for name in ("inflow", "outflow", "net")]
    is_unknown = np.isnan(amounts[0])
    places = downsample(starts, *amounts, columns=count_columns(ax) // 4, starts_known=is_unknown)
    left, right = to_dates(starts[places]), to_dates(ends[places])
    margin = (right - left) * _GAP / 2
    within = left + margin, right - margin
    inflow, outflow, net = (values[places] for values in amounts)
    low, high = ax.get_xlim()
    point = (high - low) / axes.points_of(ax)[0]
    is_narrow = right - left < (1 + _GAP) * _NARROWEST * point
    drawn: list[Artist] = []
    sides = ((inflow, BLUE, "inflow"), (-outflow, VERMILION, "outflow"))
    for (height, colour, label), told in zip(sides, looks(style, 2, PolyCollection), strict=True):
        edges = np.where(is_narrow & (height != 0), _NARROWEST, 0)
        bar = {"facecolor": colour, "edgecolor": "face", "linewidth": edges, "label": label}
        drawn.append(axes.draw_boxes(ax, *within, 0, height, **{**bar, **told}))
    cap, width = ("projecting", _NARROWEST) if is_narrow.any() else ("butt", 1.8)
    look: Any = {"color": axes.ink(ax), "capstyle": cap, "linewidth": width, "label": "net"}
    drawn.append(ax.hlines(net, left, right, **look))
    ax.axhline(0, color=axes.ink(ax), linewidth=0.8)
    # Those that matplotlib finds are a little off, even where all is zero.
    ax.dataLim.intervaly = -np.nanmax(outflow, initial=0), np.nanmax(inflow, initial=0)
    ax.autoscale_view(scalex=False)
    return drawn


_WORDS: Final = {"s": "second", "min": "minute", "h": "hour", "D": "day", "W": "week"} | {
    "MS": "month",
    "QS": "quarter",
    "YS": "year",
}


def period_name(freq: Frequency) -> str:
    """Return how a frequency is called, such as `day`; of others what was given.

    Examples
    --------
    >>> [period_name(freq) for freq in ("1D", "6h", "W-MON", "2MS")]
    ['day', '6 hours', 'week', '2 months']
    """
    offset = to_period(freq)
    word = _WORDS.get(offset.rule_code.split("-")[0])
    if word is None:
        return str(offset.freqstr)
    return word if offset.n == 1 else f"{offset.n} {word}s"
