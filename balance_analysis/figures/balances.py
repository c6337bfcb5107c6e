"""What accounts held: steps, and how far one account's balance lies below its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from balance_analysis.analysis import int128
from balance_analysis.analysis.steps import check_fits
from balance_analysis.figures import axes
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
from balance_analysis.figures.styles import VERMILION, account_labels, account_styles, type_style
from balance_analysis.figures.timelines import shade_limits
from balance_analysis.figures.times import open_figure, show_interval
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.figures.steps import Level
    from balance_analysis.figures.times import Extent
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant

MOST_LINES: Final = 8


def plot_balances(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: axes.Decimals | None = None,
    unit: str | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    limits: pd.DataFrame | None = None,
) -> Axes:
    """Draw the balances of accounts of one asset over time, as steps.

    A balance holds from its row until the account's next row, the last one until `end`, as far as
    every change is known. Before an account's first row its balance is unknown, unless `opening`
    tells it, and no line is drawn; where no account's balance is known, it is hatched. Of more than
    eight accounts, the eight with the largest maximum are drawn, and the legend says how many are
    not.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it, two inches wide: give the figure `layout="constrained"`, or save
        it with `bbox_inches="tight"`.
    decimals
        How many decimals the asset has, as a number, {asset_id: decimals} or the path of a file of
        that, see `to_units`: amounts are then in whole units. By default they are in the asset's
        smallest unit.
    unit
        What a whole unit of the asset is called, for the axis.
    start, end
        The interval, half-open; without a time zone UTC. By default from the first timestamp of
        `data` to the end of what is known, else to its last, whose row is still drawn.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. What may have changed outside of them is not drawn, but hatched.
    limits
        The frame of `Archive.limits()`: shades when proposals were enabled.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no balance is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `decimals` lacks the asset, or `start` is not before `end`.
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
    >>> ax = plot_balances(table, end="2023-04-05")
    >>> print(ax.get_ylabel())
    balance (smallest unit)
    asset VOTE
    """
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    asset = axes.Unit(axes.only_asset(steps.accounts), decimals, unit)
    ax = axes.new_axes(ax)
    ax.set_ylabel(asset.axis_label("balance"))
    if interval is None:
        return axes.explain(ax, "no balance changes", start=start, end=end)
    levels = levels_in(steps, interval)
    seen = [level for level in levels if len(level.times)]
    if not seen:
        return axes.explain(ax, "no balance is known", start=start, end=end)
    drawn = sorted(seen, key=lambda level: -float(sort_keys(level.words).max()))[:MOST_LINES]
    lines = _draw_lines(ax, steps, drawn, interval, asset)
    axes.format_amounts(ax, asset)
    first = min(int(level.times[0]) for level in seen)
    hatches = show_interval(ax, interval, unknown=[(interval.start, first)])
    handles = [*lines, *hatches, *shade_limits(ax, limits)]
    axes.legend_beside(ax, handles, title=_title(len(drawn), len(seen), len(levels)))
    return ax


def _draw_lines(
    ax: Axes, steps: Steps, levels: list[Level], interval: Extent, unit: axes.Unit
) -> list[Line2D]:
    accounts = steps.accounts.iloc[[level.account for level in levels]]
    labels, styles = account_labels(accounts), account_styles(accounts["account_type"])
    lines = []
    for level, label, style in zip(levels, labels, styles, strict=True):
        places = thin(level.times, sort_keys(level.words), columns=count_columns(ax))
        amounts = unit.scale(int128.to_balances(int128.take(level.words, places)))
        look = {"color": style.colour, "linestyle": style.dashes, "label": label}
        times, ceases = level.times[places], level.ceases[places]
        lines.append(draw_line(ax, times, amounts, ceases, interval, **look))
    return lines


def _title(drawn: int, known: int, total: int) -> str:
    """Return what a legend of some of the accounts says of the others."""
    words = []
    if known > drawn:
        words.append(
            f"{drawn} of {known:,} accounts: those with\n"
            f"the largest maximum; {known - drawn:,} are not drawn"
        )
    if total > known:
        words.append(f"{total - known:,} more are unknown throughout")
    return "\n".join(words)


def plot_drawdown(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: axes.Decimals | None = None,
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
    asset = axes.Unit(axes.only_asset(steps.accounts), decimals, unit)
    ax = axes.new_axes(ax)
    ax.set_ylabel(asset.axis_label("balance"))
    if interval is None:
        return axes.explain(ax, "no balance changes", start=start, end=end)
    (level,) = levels_in(steps, interval)
    if not len(level.times):
        return axes.explain(ax, "no balance is known", start=start, end=end)
    colour = type_style(str(steps.accounts["account_type"].iloc[0])).colour
    drawn = _draw_depths(ax, level, colour, interval, asset)
    axes.format_amounts(ax, asset)
    hatches = show_interval(ax, interval, unknown=[(interval.start, int(level.times[0]))])
    axes.legend_beside(ax, [*drawn, *hatches], title=account_labels(steps.accounts)[0])
    return ax


def _draw_depths(
    ax: Axes, level: Level, colour: str, interval: Extent, unit: axes.Unit
) -> list[Artist]:
    peaks = int128.take(level.words, int128.running_maxima(level.words, np.array([0])))
    depths, too_large = int128.subtract(peaks, level.words)
    moments = level.times.tolist()
    check_fits(too_large, lambda place: f"the depth at {from_microseconds(moments[place])}")
    keys = sort_keys(level.words), sort_keys(depths)
    places = thin(level.times, *keys, columns=count_columns(ax))
    times, ceases = level.times[places], level.ceases[places]
    balance, peak, depth = (
        unit.scale(int128.to_balances(int128.take(words, places)))
        for words in (level.words, peaks, depths)
    )
    line = draw_line(ax, times, balance, ceases, interval, color=colour, label="balance")
    dashed = {"color": axes.ink(ax), "linestyle": (0, (4, 3)), "linewidth": 0.8, "marker": None}
    label = "its peak so far"
    top = draw_line(ax, times, peak, ceases, interval, **dashed, zorder=1.9, label=label)
    label = "never below its peak"
    if depth.max() > 0:
        deepest = int(depth.argmax())
        part = f" ({axes.percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = axes.date_text(int(times[deepest]))
        label = f"below its peak; deepest:\n{axes.short_amount(depth[deepest])}{part}\n{moment}"
    edges, levels = broken(times, -depth, ceases, last_edge(times, interval))
    area = draw_area(ax, edges, levels, color=VERMILION, alpha=0.45, label=label)
    ax.axhline(0, color=axes.ink(ax), linewidth=0.8)
    return [line, top, area]
