"""How far a balance lies below its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from balance_analysis.analysis.int128 import running_maxima, subtract, take, to_balances
from balance_analysis.analysis.steps import check_fits
from balance_analysis.figures.amounts import (
    Unit,
    format_amounts,
    in_units,
    only_asset,
    percent,
    short_amount,
)
from balance_analysis.figures.canvas import (
    draw_area,
    draw_unknown,
    explain,
    explain_no_changes,
    ink,
    legend_beside,
    named,
    new_axes,
)
from balance_analysis.figures.labels import account_labels, axis_label
from balance_analysis.figures.levels import (
    broken,
    draw_steps,
    levels_in,
    open_figure,
    sort_keys,
)
from balance_analysis.figures.palette import VERMILION, type_style
from balance_analysis.figures.shading import hatch_incomplete
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import format_times, seen_until, to_dates
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.figures.levels import Interval, Level
    from balance_analysis.figures.palette import Style
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
    coverage: pd.DataFrame | Archive | None = None,
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
    coverage
        The frame of `Archive.coverage()`, or an archive: hatches its gaps and what is unproven, as
        changes may be missing there, instead of what the table tells.

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
    _check_one(steps)
    asset = only_asset(steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    ax.set_ylabel(axis_label("balance", asset, unit=unit, whole=decimals is not None))
    if asset is None or interval is None:
        return explain_no_changes(ax, start, end)
    (level,) = levels_in(steps, interval)
    if not len(level.times):
        return explain(ax, f"no balance is known\n{interval.words}")
    account_type = str(steps.accounts["account_type"].iloc[0])
    _draw(ax, level, type_style(account_type), interval, Unit(asset, decimals))
    format_amounts(ax, whole=decimals is not None)
    format_times(ax, interval.start, interval.end)
    if level.times[0] > interval.start:
        draw_unknown(ax, *to_dates(np.array([interval.start, level.times[0]])))
    hatch_incomplete(ax, coverage, interval.known, interval.start, interval.end)
    legend_beside(ax, title=account_labels(steps.accounts)[0].replace(" · market", "\nmarket"))
    return ax


def _check_one(steps: Steps) -> None:
    if len(steps) > 1:
        raise ValueError(
            f"a drawdown is of one account, but the table has {len(steps):,}: select one, such as "
            f"that of {steps.name(0)}"
        )


def _draw(ax: Axes, level: Level, style: Style, interval: Interval, unit: Unit) -> None:
    peaks = take(level.words, running_maxima(level.words, np.array([0])))
    depths, too_large = subtract(peaks, level.words)
    moments = level.times.tolist()
    check_fits(too_large, lambda place: f"the depth at {from_microseconds(moments[place])}")
    keys = sort_keys(level.words), sort_keys(depths)
    places = thin(level.times, *keys, columns=count_columns(ax))
    times, ceases = level.times[places], level.ceases[places]
    balance, peak, depth = (
        in_units(to_balances(take(words, places)), unit) for words in (level.words, peaks, depths)
    )
    draw_steps(ax, times, balance, ceases, interval, color=style.colour, label="balance")
    draw_steps(
        *(ax, times, peak, ceases, interval),
        color=ink(ax),
        linestyle=(0, (4, 3)),
        linewidth=0.8,
        marker=None,
        zorder=1.9,
        label="its peak so far",
    )
    label = "never below its peak"
    if depth.max() > 0:
        deepest = int(depth.argmax())
        part = f" ({percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = named(int(times[deepest]))
        label = f"below its peak; deepest:\n{short_amount(depth[deepest])}{part}\n{moment}"
    edges, levels = broken(times, -depth, ceases, interval.end)
    edges[-1] = seen_until(interval.start, int(edges[-2]), interval.end)
    draw_area(ax, edges, levels, color=VERMILION, alpha=0.45, label=label)
    ax.axhline(0, color=ink(ax), linewidth=0.8)
