"""What accounts held: steps, and how far one account's balance lies below its peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.downsampling import downsample, sort_keys
from balance_analysis.analysis.steps import NEVER, Steps, check_fits
from balance_analysis.assets import AssetsLike
from balance_analysis.figures import axes
from balance_analysis.figures.layout import finish
from balance_analysis.figures.styles import (
    VERMILION,
    account_styles,
    looks,
    type_style,
)
from balance_analysis.figures.timelines import shade_limits
from balance_analysis.figures.times import (
    Extent,
    count_columns,
    draw_area,
    draw_line,
    last_edge,
    open_figure,
    show_interval,
)
from balance_analysis.known import Stated
from balance_analysis.labels import account_labels, split_labels
from balance_analysis.schema import Instant
from balance_analysis.text import count_text, moment_text

MOST_LINES: Final = 8


def plot_balances(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    assets: AssetsLike | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a line
) -> Axes:
    r"""Draw the balances of accounts of one asset over time, as steps.

    A balance holds from its row until the account's next row, the last one until `end`, as far as
    every change is known. Before an account's first row its balance is unknown, unless `opening`
    tells it, and no line is drawn; where no account's balance is known, it is hatched. Of more than
    eight accounts, the eight with the largest maximum are drawn, and the legend says how many are
    not. Where one account holds so much that others would lie flat on zero, the axis is
    logarithmic, and says so.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit where its
        decimals are not known.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first
        timestamp of `data` to the end of what is known, else to its last, whose row is still drawn.
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
        Arguments of matplotlib for the lines, such as `linewidth=2`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no balance is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, or `start` is not before `end`.
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
    >>> ax.get_title("left"), ax.get_ylabel()
    ('VOTE balance of general · a1', 'balance\n(smallest unit of VOTE)')
    """
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    unit = axes.unit_of(data, steps.accounts, assets)
    ax = axes.new_axes(ax)
    ax.set_ylabel(unit.axis_label("balance"))
    if interval is None:
        return axes.explain(ax, "no balance changes", title, start=start, end=end)
    levels = _levels_in(steps, interval)
    seen = [level for level in levels if len(level.times)]
    if not seen:
        return axes.explain(ax, "no balance is known", title, start=start, end=end)
    drawn = sorted(seen, key=lambda level: -float(sort_keys(level.words).max()))[:MOST_LINES]
    who, labels = split_labels(steps.accounts.iloc[[level.account for level in drawn]])
    styles = account_styles(steps.accounts["account_type"].iloc[[each.account for each in drawn]])
    wanted, lines = looks(style, len(drawn)), []
    for level, label, own, told in zip(drawn, labels, styles, wanted, strict=True):
        times, valid_until, (amounts,) = _downsampled(ax, level, unit, level.words)
        edges, held = _broken(times, amounts, valid_until, interval.end)
        lines.append(draw_line(ax, edges, held, interval, **{**own.line, "label": label, **told}))
    axes.format_amounts(ax, unit, tops=[float(np.nanmax(line.get_ydata())) for line in lines])
    first = min(int(level.times[0]) for level in seen)
    hatches = show_interval(ax, interval, unknown=[(interval.start, first)])
    notes = [*hatches, *shade_limits(ax, limits)]
    says = _counts(len(drawn), len(seen), len(levels))
    if title is None:
        title = unit.title(f"balance{'s' * (len(lines) > 1)} of {who}")
        lines = lines if len(lines) > 1 else []
    return finish(ax, title, lines, notes=notes, says=says, ends=True)


def _counts(drawn: int, known: int, total: int) -> list[str]:
    """Return what a legend of some of the accounts says of the others."""
    words = []
    if known > drawn:
        words.append(f"not drawn: {count_text(known - drawn, 'other')} with smaller maxima")
    if total > known:
        words.append(f"{total - known:,} unknown throughout")
    return words


@dataclass(frozen=True, slots=True)
class _Level:
    """What an account held in an interval, as far as that is known.

    Attributes
    ----------
    account
        The place of the account among those of the steps.
    times, words
        From when on it held which balance, microseconds, ascending; none where it is all unknown.
    valid_until
        Until when each is known before the next one; `NEVER` where it doesn't.
    """

    account: int
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    valid_until: NDArray[np.int64]


def _levels_in(steps: Steps, interval: Extent) -> list[_Level]:
    """Return what each account held in an interval."""
    return [_level(steps, account, interval) for account in range(len(steps))]


def _level(steps: Steps, account: int, interval: Extent) -> _Level:
    head, stop = steps.bounds[account : account + 2].tolist()
    times = steps.times[head:stop]
    valid_until = (
        np.full(len(times), NEVER) if steps.valid_until is None else steps.valid_until[head:stop]
    )
    first = max(int(np.searchsorted(times, interval.start, side="right")) - 1, 0)
    first += int(valid_until[first] <= interval.start)
    rows = np.arange(first, max(int(np.searchsorted(times, interval.before)), first))
    begins = np.maximum(times[rows], interval.start)
    return _Level(account, begins, int128.take(steps.words, head + rows), valid_until[rows])


def _downsampled(
    ax: Axes, level: _Level, unit: axes.Unit, *words: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return when to draw a level, until when each is known, and the amounts of these times."""
    starts_known = np.append(True, level.valid_until[:-1] < level.times[1:])
    keys = map(sort_keys, words)
    places = downsample(level.times, *keys, columns=count_columns(ax), starts_known=starts_known)
    amounts = [unit.scale(int128.to_balances(int128.take(each, places))) for each in words]
    return level.times[places], level.valid_until[places], amounts


def _broken(
    times: NDArray[np.int64], levels: NDArray[np.float64], valid_until: NDArray[np.int64], end: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges of steps and the level between each two, NaN where it isn't known.

    Parameters
    ----------
    times, levels
        From when on what is held, microseconds.
    valid_until
        Until when each is known before the next one.
    end
        Where the last step ends.
    """
    places = np.flatnonzero(valid_until < end)
    edges = np.append(np.insert(times, places + 1, valid_until[places]), end)
    return edges, np.insert(levels, places + 1, np.nan)


def plot_drawdown(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    assets: AssetsLike | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a line
) -> Axes:
    """Draw one account's balance, and below zero how far it lies under its peak so far.

    Parameters
    ----------
    data
        A table of balance changes of one account, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit where its
        decimals are not known.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first
        timestamp of `data` to the end of what is known, else to its last, whose row is still drawn.
        What the account held when it began may be its peak; earlier peaks are none.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those in its attrs:
        see `balance_at`. Stretches outside of them are hatched, and nothing is drawn there.
    title
        The title; by default one that says what is drawn, and "" for none.
    **style
        Arguments of matplotlib for the line of the balance, such as `color="k"`.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no balance is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one account, or `assets` is malformed.
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
    >>> ax.get_legend().get_title().get_text()
    'deepest: 2 (25%), 2023-04-03'
    """
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    if len(steps) > 1:
        raise ValueError(
            f"plot_drawdown draws one account, but the table has {len(steps):,}; "
            f"select one, such as that of {steps.name(0)}"
        )
    unit = axes.unit_of(data, steps.accounts, assets)
    ax = axes.new_axes(ax)
    ax.set_ylabel(unit.axis_label("balance"))
    if interval is None:
        return axes.explain(ax, "no balance changes", title, start=start, end=end)
    (level,) = _levels_in(steps, interval)
    if not len(level.times):
        return axes.explain(ax, "no balance is known", title, start=start, end=end)
    colour = type_style(str(steps.accounts["account_type"].iloc[0])).colour
    drawn, said = _draw_depths(ax, level, interval, unit, {"color": colour, **looks(style, 1)[0]})
    axes.format_amounts(ax, unit)
    hatches = show_interval(ax, interval, unknown=[(interval.start, int(level.times[0]))])
    if title is None:
        title = unit.title(f"balance and drawdown of {account_labels(steps.accounts).iloc[0]}")
    return finish(ax, title, drawn, notes=hatches, says=[said])


def _draw_depths(
    ax: Axes, level: _Level, interval: Extent, unit: axes.Unit, style: dict[str, Any]
) -> tuple[list[Artist], str]:
    peaks = int128.take(level.words, int128.running_maxima(level.words, np.array([0])))
    depths, too_large = int128.subtract(peaks, level.words)
    moments = level.times.tolist()
    check_fits(too_large, lambda place: f"the depth at {moment_text(moments[place])}")
    words = level.words, peaks, depths
    times, valid_until, (balance, peak, depth) = _downsampled(ax, level, unit, *words)
    held, tops = (_broken(times, each, valid_until, interval.end) for each in (balance, peak))
    line = draw_line(ax, *held, interval, **{"label": "balance", **style})
    dashed = {"color": axes.ink(ax), "linestyle": (0, (4, 3)), "linewidth": 0.8, "marker": None}
    label = "its peak so far"
    top = draw_line(ax, *tops, interval, **dashed, zorder=1.9, label=label)
    said = "never below its peak"
    if depth.max() > 0:
        deepest = int(depth.argmax())
        part = f" ({axes.percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = axes.date_text(int(times[deepest]))
        said = f"deepest: {axes.short_amount(depth[deepest])}{part}, {moment}"
    edges, levels = _broken(times, -depth, valid_until, last_edge(times, interval))
    area = draw_area(ax, edges, levels, color=VERMILION, alpha=0.45, label="below its peak")
    ax.axhline(0, color=axes.ink(ax), linewidth=0.8)
    return [line, top, area], said
