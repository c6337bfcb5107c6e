"""How far a balance lies below its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from balance_analysis.analysis.integers import words_of
from balance_analysis.analysis.ranges import drawdown
from balance_analysis.analysis.steps import open_table
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
    explain_no_changes,
    ink,
    legend_beside,
    named,
    new_axes,
)
from balance_analysis.figures.labels import account_labels, axis_label
from balance_analysis.figures.levels import find_interval, sort_keys
from balance_analysis.figures.palette import VERMILION, type_style
from balance_analysis.figures.shading import hatch_incomplete
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import format_times, seen_until
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.figures.levels import Interval
    from balance_analysis.schema import Instant


def plot_drawdown(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: Decimals | None = None,
    unit: str | None = None,
    end: Instant | None = None,
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
    end
        The end of the interval, exclusive; without a time zone UTC. By default the newest timestamp
        of `data`, whose row is still drawn.
    coverage
        The frame of `Archive.coverage()`, or an archive: hatches its gaps and what is unproven, as
        changes may be missing there.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

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
    rows, steps = open_table(data, None)
    _check_one(steps)
    asset = only_asset(steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    ax.set_ylabel(axis_label("balance", asset, unit=unit, whole=decimals is not None))
    interval = find_interval(steps, None, end)
    if asset is None or interval is None:
        return explain_no_changes(ax, None, end)
    found = drawdown(rows[rows["timestamp"] < from_microseconds(interval.before)])
    _draw(ax, found, interval, Unit(asset, decimals))
    format_amounts(ax, whole=decimals is not None)
    format_times(ax, interval.start, interval.end)
    hatch_incomplete(ax, coverage, interval.start, interval.end)
    legend_beside(ax, title=account_labels(steps.accounts)[0].replace(" · market", "\nmarket"))
    return ax


def _check_one(steps: Steps) -> None:
    if len(steps) > 1:
        raise ValueError(
            f"a drawdown is of one account, but the table has {len(steps):,}: select one, such as "
            f"that of {steps.name(0)}"
        )


def _draw(ax: Axes, found: pd.DataFrame, interval: Interval, unit: Unit) -> None:
    times = found["timestamp"].to_numpy("M8[us]").view(np.int64)
    depths = sort_keys(words_of(pa.array(found["depth"])))
    places = thin(
        times, sort_keys(words_of(pa.array(found["balance"]))), depths, columns=count_columns(ax)
    )
    kept = found.iloc[places]
    balance, peak, depth = (
        np.append(amounts, amounts[-1])
        for amounts in (in_units(kept[name].array, unit) for name in ("balance", "peak", "depth"))
    )
    moments = np.append(times[places], interval.end).view("M8[us]")
    style = type_style(str(found["account_type"].iloc[0]))
    ax.plot(
        moments,
        balance,
        drawstyle="steps-post",
        color=style.colour,
        marker="o" if moments[0] == moments[-1] else None,
        label="balance",
    )
    ax.plot(
        moments,
        peak,
        drawstyle="steps-post",
        color=ink(ax),
        linestyle=(0, (4, 3)),
        linewidth=0.8,
        zorder=1.9,
        label="its peak so far",
    )
    label = "never below its peak"
    if depth.max() > 0:
        deepest = int(depth.argmax())
        part = f" ({percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = named(int(moments[deepest].astype(np.int64)))
        label = f"below its peak; deepest:\n{short_amount(depth[deepest])}{part}\n{moment}"
    edges = moments.view(np.int64).copy()
    edges[-1] = seen_until(interval.start, int(edges[-2]), interval.end)
    draw_area(ax, edges, -depth[:-1], color=VERMILION, alpha=0.45, label=label)
    ax.axhline(0, color=ink(ax), linewidth=0.8)
