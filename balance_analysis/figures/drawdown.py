"""How far a balance lies below its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from balance_analysis.analysis.int128 import running_maxima, subtract, take, to_balances
from balance_analysis.analysis.steps import check_fits
from balance_analysis.figures.axes import (
    Unit,
    date_text,
    explain,
    format_amounts,
    ink,
    legend_beside,
    new_axes,
    only_asset,
    percent,
    short_amount,
)
from balance_analysis.figures.labels import account_labels
from balance_analysis.figures.palette import VERMILION, type_style
from balance_analysis.figures.steps import (
    broken,
    count_columns,
    draw_area,
    draw_line,
    last_edge,
    levels_in,
    sort_keys,
    thin,
)
from balance_analysis.figures.times import open_figure, show_interval
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from balance_analysis.figures.axes import Decimals
    from balance_analysis.figures.steps import Level
    from balance_analysis.figures.times import Interval
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant


def plot_drawdown(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: Decimals | None = None,
    unit: str | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> Axes:
    """Draw one account's balance, and below zero how far it lies under its peak so far.

    Parameters
    ----------
    data
        A table of balance changes of one account, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it, with the deepest fall.
    decimals, unit
        As for `plot_balances`.
    start, end
        The interval, half-open; without a time zone UTC. By default from the first timestamp of
        `data` to the end of what is known, else to its last, whose row is still drawn. What the
        account held when it began may be its peak; earlier peaks are none.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. What may have changed outside of them is not drawn, but hatched.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no balance is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one account, or `decimals` lacks the asset.
    OverflowError
        If a depth has more than 38 digits.
    CheckError
        If two rows of one timestamp differ in balance.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [8, 6],
    ... })
    >>> ax = plot_drawdown(table, end="2023-04-05")
    >>> print(ax.get_legend().get_texts()[-1].get_text())
    below its peak; deepest:
    2 (25%)
    2023-04-03
    """
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    if len(steps) > 1:
        raise ValueError(
            f"a drawdown is of one account, but the table has {len(steps):,}: select one, such as "
            f"that of {steps.name(0)}"
        )
    asset = Unit(only_asset(steps.accounts), decimals, unit)
    ax = new_axes(ax)
    ax.set_ylabel(asset.axis_label("balance"))
    if interval is None:
        return explain(ax, "no balance changes", start=start, end=end)
    (level,) = levels_in(steps, interval)
    if not len(level.times):
        return explain(ax, "no balance is known", start=start, end=end)
    colour = type_style(str(steps.accounts["account_type"].iloc[0])).colour
    drawn = _draw(ax, level, colour, interval, asset)
    format_amounts(ax, asset)
    hatches = show_interval(ax, interval, unknown=[(interval.start, int(level.times[0]))])
    legend_beside(ax, [*drawn, *hatches], title=account_labels(steps.accounts)[0])
    return ax


def _draw(ax: Axes, level: Level, colour: str, interval: Interval, unit: Unit) -> list[Artist]:
    peaks = take(level.words, running_maxima(level.words, np.array([0])))
    depths, too_large = subtract(peaks, level.words)
    moments = level.times.tolist()
    check_fits(too_large, lambda place: f"the depth at {from_microseconds(moments[place])}")
    keys = sort_keys(level.words), sort_keys(depths)
    places = thin(level.times, *keys, columns=count_columns(ax))
    times, ceases = level.times[places], level.ceases[places]
    balance, peak, depth = (
        unit.scale(to_balances(take(words, places))) for words in (level.words, peaks, depths)
    )
    line = draw_line(ax, times, balance, ceases, interval, color=colour, label="balance")
    dashed = {"color": ink(ax), "linestyle": (0, (4, 3)), "linewidth": 0.8, "marker": None}
    label = "its peak so far"
    top = draw_line(ax, times, peak, ceases, interval, **dashed, zorder=1.9, label=label)
    label = "never below its peak"
    if depth.max() > 0:
        deepest = int(depth.argmax())
        part = f" ({percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = date_text(int(times[deepest]))
        label = f"below its peak; deepest:\n{short_amount(depth[deepest])}{part}\n{moment}"
    edges, levels = broken(times, -depth, ceases, last_edge(times, interval))
    area = draw_area(ax, edges, levels, color=VERMILION, alpha=0.45, label=label)
    ax.axhline(0, color=ink(ax), linewidth=0.8)
    return [line, top, area]
