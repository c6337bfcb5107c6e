"""What accounts held: steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.patches import Rectangle

from balance_analysis.analysis.int128 import take, to_balances
from balance_analysis.figures.amounts import (
    Unit,
    format_amounts,
    in_units,
    make_room_below,
    only_asset,
)
from balance_analysis.figures.canvas import (
    draw_unknown,
    explain,
    explain_no_changes,
    legend_beside,
    new_axes,
    unknown_patch,
)
from balance_analysis.figures.labels import account_labels, axis_label
from balance_analysis.figures.levels import draw_steps, levels_in, open_figure, sort_keys
from balance_analysis.figures.palette import UNKNOWN_HATCH, account_styles
from balance_analysis.figures.shading import hatch_incomplete, shade_limits
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import format_times, to_dates

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.figures.levels import Interval, Level
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant

MOST_LINES: Final = 8

_LANE: Final = 0.03
"""How high the hatched bar of an account that is unknown for some time is, of the Axes."""


def plot_balances(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: Decimals | None = None,
    unit: str | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    limits: pd.DataFrame | None = None,
    coverage: pd.DataFrame | Archive | None = None,
) -> Axes:
    """Draw the balances of accounts of one asset over time, as steps.

    A balance holds from its row until the account's next row, the last one until `end`, as far as
    every change is known. Before an account's first row its balance is unknown, unless `opening`
    tells it, and no line is drawn.
    With `start`, or where `opening` has the account as unknown, that stretch is hatched: the whole
    height for a single account, and a bar for each account at the bottom for several. Of more than
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
    asset = only_asset(steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    ax.set_ylabel(axis_label("balance", asset, unit=unit, whole=decimals is not None))
    if asset is None or interval is None:
        return explain_no_changes(ax, start, end)
    levels = levels_in(steps, interval)
    seen = [level for level in levels if len(level.times)]
    if not seen:
        return explain(ax, f"no balance is known\n{interval.words}")
    drawn = _largest(seen)
    lines = _draw_lines(ax, steps, drawn, interval, Unit(asset, decimals))
    format_amounts(ax, whole=decimals is not None)
    format_times(ax, interval.start, interval.end)
    handles: list[Artist] = [*lines]
    if start is not None or opening is not None:
        handles += _hatch(ax, drawn, lines, interval, whole=decimals is not None)
    handles += shade_limits(ax, limits)
    handles += hatch_incomplete(ax, coverage, interval.known, interval.start, interval.end)
    legend_beside(ax, handles, title=_title(len(drawn), len(seen), len(levels)))
    return ax


def _largest(levels: list[Level]) -> list[Level]:
    """Return the levels with the largest maximum, the largest first."""
    return sorted(levels, key=lambda level: -float(sort_keys(level.words).max()))[:MOST_LINES]


def _draw_lines(
    ax: Axes, steps: Steps, levels: list[Level], interval: Interval, unit: Unit
) -> list[Line2D]:
    accounts = steps.accounts.iloc[[level.account for level in levels]]
    labels = account_labels(accounts)
    styles = account_styles(accounts["account_type"].astype("str"))
    columns = count_columns(ax)
    lines: list[Line2D] = []
    for level, label, style in zip(levels, labels, styles, strict=True):
        places = thin(level.times, sort_keys(level.words), columns=columns)
        amounts = in_units(to_balances(take(level.words, places)), unit)
        (line,) = draw_steps(
            *(ax, level.times[places], amounts, level.ceases[places], interval),
            color=style.colour,
            linestyle=style.dashes,
            label=label.replace(" · market", "\nmarket"),
        )
        lines.append(line)
    return lines


def _hatch(
    ax: Axes, levels: list[Level], lines: list[Line2D], interval: Interval, *, whole: bool
) -> list[Artist]:
    """Hatch when balances are unknown, and return what stands for it in the legend."""
    late = [
        (float(to_dates(level.times[0])), line)
        for level, line in zip(levels, lines, strict=True)
        if level.times[0] > interval.start
    ]
    if not late:
        return []
    start = float(to_dates(interval.start))
    if len(levels) == 1:
        draw_unknown(ax, start, late[0][0])
        return [unknown_patch(ax)]
    make_room_below(ax, (len(late) + 1) * _LANE, whole=whole)
    for lane, (until, line) in enumerate(reversed(late)):
        ax.add_patch(
            Rectangle(
                (start, (lane + 0.5) * _LANE),
                until - start,
                _LANE * 0.8,
                transform=ax.get_xaxis_transform(),
                facecolor="none",
                edgecolor=line.get_color(),
                hatch=UNKNOWN_HATCH,
                linewidth=0.8,
            )
        )
    return [unknown_patch(ax)]


def _title(drawn: int, known: int, total: int) -> str | None:
    """Return what a legend of some of the accounts says of the others."""
    words = []
    if known > drawn:
        words.append(
            f"{drawn} of {known} accounts: those with\n"
            f"the largest maximum; {known - drawn} are not drawn"
        )
    if total > known:
        words.append(f"{total - known} more are unknown throughout")
    return "\n".join(words) or None
