"""An asset's total over time: groups of accounts stacked on top of each other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch
from numpy.typing import NDArray

from balance_analysis.analysis import door, totals
from balance_analysis.analysis.grid import Frequency
from balance_analysis.analysis.history import Source
from balance_analysis.analysis.steps import (
    Steps,
    cut,
    downsample,
    events,
    sort_keys,
    starts_of_known,
)
from balance_analysis.figures import axes
from balance_analysis.figures.styles import OTHERS, Style, group_labels, group_styles, spread
from balance_analysis.figures.times import Extent, draw_area
from balance_analysis.table.moments import Moment, gaps_in, joined
from balance_analysis.table.names import AssetsLike, LabelsLike
from balance_analysis.table.schema import Ints, Mask
from balance_analysis.table.text import count_text

MOST_BANDS: Final = 9
"""Maximum number of groups drawn by themselves in a figure of totals."""


def plot_totals(
    source: Source,
    *,
    ax: Axes | None = None,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    share: bool = False,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a patch
) -> Axes:
    """Draw one asset's total as stacked steps, one area per group of accounts.

    Unknown balances are in no sum: the legend counts the accounts left out. While no balance is
    known, the figure is hatched. Groups that never hold anything are omitted. If there are more
    than nine groups, the nine that hold most on average are drawn, and the others as one. Sums
    below zero are stacked downwards.

    Parameters
    ----------
    source
        A table of one asset's balance changes, with rows in any order, or an `Archive`.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    by
        The columns that identify a group, "asset_id" among them: see `totals`.
    freq
        The interval between points, see `totals`; `None` for every change.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row
        to the end of the known intervals, else to the last row, which is still drawn.
    share
        Whether to draw shares of the known total instead of amounts, as in `totals`. Shares are
        unknown where the total isn't above 0.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit if its
        decimals are unknown.
    labels
        The labels, as `read_labels` takes them; by default those in the table's attrs.
    limits
        The frame of `Archive.limits()`. Times when markets could be proposed are shaded; those when
        assets could be proposed are dotted.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the areas, such as `alpha=0.8`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If no balance is known, a text on it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, `by` lacks "asset_id", or the
        interval or `freq` is invalid.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"],
    ...     "party_id": "a1", "market_id": ["", "m1"],
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 2, utc=True), "balance": [5, 7],
    ... })
    >>> ax = plot_totals(table, end="2023-04-05")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['general 5', 'margin 7']
    """
    chart = axes.Chart(source, ax, start, end, assets, labels, title, limits)
    names = door.group_names(by, chart.history.columns)
    chart.label("total")
    if chart.interval.start == chart.interval.before:
        return chart.explain("no balance changes")
    stack = _largest_groups(chart, names, share=share)
    points = _change_points(stack) if freq is None else _grid_points(stack, freq)
    amounts, is_known = stack.sum_up(points)
    if np.isnan(amounts).all():
        why = "nothing is held, so there are no shares" if share else "no balance is known"
        return chart.explain(why)
    levels = amounts if share else np.where(is_known, np.nan_to_num(amounts), np.nan)
    drawn = _draw_areas(stack, points, levels, style)
    if share:
        _format_shares(chart.ax)
    else:
        axes.format_amounts(chart.ax, chart.unit)
        chart.ax.set_ylim(bottom=None if chart.ax.dataLim.y0 < 0 else 0)
    interval = chart.interval
    spans = compress(pairwise([*points.tolist(), interval.end]), is_known)
    hatches = chart.show(interval, unknown=gaps_in(joined(spans), interval.start, interval.end))
    notes = ["shares at the end" if share else "amounts at the end", *_left_out(chart)]
    groups = [name.removesuffix("_id").replace("_", " ") for name in names if name != "asset_id"]
    words = ("shares" if share else "total") + f" by {' and '.join(groups)}" * bool(groups)
    return chart.finish(words, [*drawn[::-1], *hatches], notes=notes)


@dataclass(frozen=True, slots=True)
class _Stack:
    """Groups of accounts as stacked areas, from the bottom up.

    Attributes
    ----------
    chart
        The data and the interval.
    share
        Whether shares of the known total are drawn instead of amounts.
    labels, styles
        Each area's label and style.
    numbers
        Each account's area; the number after the last area if the account never holds anything.
    """

    chart: axes.Chart
    share: bool
    labels: list[str]
    styles: list[Style]
    numbers: Ints

    def sum_up(self, points: Ints) -> tuple[NDArray[np.float64], Mask]:
        """Return each area's sum at each point, and the points at which any balance is known."""
        count, steps = len(self.labels), self.chart.steps_and_grid[0]
        ids = self.chart.history.accounts[["asset_id"]].iloc[[0] * (count + 1)]
        sums = totals.sum_at(steps, door.Groups(ids, self.numbers), points)
        frame = totals.totals_of(sums, dt.UTC)
        amounts = self.chart.unit.scale(frame["total"].array).reshape(count + 1, -1)[:count]
        is_known = frame["known"].to_numpy().reshape(count + 1, -1).sum(axis=0) > 0
        return self.parts(amounts), is_known

    def parts(self, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return amounts, or if `share` their shares of the sum; NaN if the sum isn't above 0."""
        if not self.share:
            return amounts
        whole = np.nansum(amounts, axis=0)
        return amounts / np.where(whole > 0, whole, np.nan)


def _largest_groups(chart: axes.Chart, by: Sequence[str], *, share: bool) -> _Stack:
    """Return the groups that hold most on average, the largest first, and all others as one.

    Groups that never hold anything are omitted, except for one if no group holds anything.
    """
    (steps, _), interval = chart.steps_and_grid, chart.interval
    groups, changes = door.make_groups(chart.history, by), _changes(steps, interval)
    owners = groups.numbers[changes["number"]]
    changes = changes.assign(group=owners).sort_values(["group", "time"], kind="stable")
    by_group = changes.groupby("group")
    lengths = by_group["time"].diff(-1).rsub(0).fillna(interval.before - changes["time"])
    areas = (by_group["delta"].cumsum().abs() * lengths).groupby(changes["group"]).sum()
    sizes = areas.reindex(range(len(groups)), fill_value=0).to_numpy()
    order = np.argsort(-sizes, kind="stable")
    held = order[sizes[order] > 0] if sizes.any() else order[:1]
    most, rest = held[:MOST_BANDS], held[MOST_BANDS:]
    labels = group_labels(groups.ids.iloc[held], chart.names.labels)[: len(most)]
    styles = group_styles(groups.ids.iloc[most])
    areas_of = np.full(len(groups), len(most) + bool(len(rest)))
    areas_of[most], areas_of[rest] = np.arange(len(most)), len(most)
    if len(rest):
        labels.append(count_text(len(rest), "other"))
        styles.append(OTHERS)
    return _Stack(chart, share, labels, styles, areas_of[groups.numbers])


def _changes(steps: Steps, interval: Extent) -> pd.DataFrame:
    """Return the times and approximate amounts of changes in an interval, to rank and thin them."""
    moves = events(steps)
    numbers, times = moves["numbers"], np.maximum(moves["times"], interval.start)
    # Only the last move up to the start counts: larger amounts before it leave rounding errors.
    is_last = np.append((np.diff(numbers) != 0) | (np.diff(times) > 0), True)[: len(numbers)]
    numbers, times, levels = numbers[is_last], times[is_last], sort_keys(moves["words"][is_last])
    is_head = np.diff(numbers, prepend=-1) != 0
    deltas = np.where(is_head, levels, np.diff(levels, prepend=0.0))
    columns = {"number": numbers, "time": times, "delta": deltas}
    return pd.DataFrame(columns, copy=False).query("time < @interval.before")


def _grid_points(stack: _Stack, freq: Frequency) -> Ints:
    """Return the points of a grid and the starts of gaps (in microseconds)."""
    chart, interval = stack.chart, stack.chart.interval
    grid = chart.history.grid(freq, start=chart.start, end=chart.end)
    points = [*grid.points.tolist(), *(gap[0] for gap in interval.gaps)]
    return np.sort(pd.unique(np.clip(points, interval.start, interval.before - 1)))


def _change_points(stack: _Stack) -> Ints:
    """Return the times of changes (in microseconds), downsampled."""
    chart = stack.chart
    changes = _changes(chart.steps_and_grid[0], chart.interval)
    times, places = np.unique(changes["time"], return_inverse=True)
    cells = stack.numbers[changes["number"]] * len(times) + places
    count = len(stack.labels)
    deltas = np.bincount(cells, changes["delta"], (count + 1) * len(times))
    levels = deltas.reshape(count + 1, -1)[:count].cumsum(axis=1, dtype=np.float64)
    edges = [edge for pair in _piled(stack.parts(levels)) for edge in pair]
    stretches = np.searchsorted(np.array(chart.interval.gaps).ravel(), times, side="right")
    starts_known = np.diff(stretches, prepend=0) > 0
    kept = downsample(times, *edges, columns=axes.PIXELS, starts_known=starts_known)
    return times[kept]


def _piled(levels: NDArray[np.float64]) -> list[list[NDArray[np.float64]]]:
    """Return each area's upper edge, and its lower edge if its level is ever negative."""
    levels = np.nan_to_num(levels)
    up, down = np.maximum(levels, 0).cumsum(axis=0), np.minimum(levels, 0)
    reaches = zip(up, down.cumsum(axis=0), down, strict=True)
    return [[high, low] if level.any() else [high] for high, low, level in reaches]


def _draw_areas(
    stack: _Stack, points: Ints, levels: NDArray[np.float64], style: dict[str, Any]
) -> list[Artist]:
    """Draw areas from zero to their edges, the lowest area on top, so that no seam shows."""
    ax, drawn = stack.chart.ax, list[Artist]()
    is_unknown = ~np.isfinite(levels).any(axis=0).reshape(-1)
    write = axes.percent if stack.share else axes.short_amount
    last = stack.sum_up(np.array([stack.chart.interval.before - 1]))[0][:, 0]
    fresh, wanted = starts_of_known(~is_unknown), spread(style, len(last), StepPatch)
    for number, reaches in enumerate(_piled(levels)):
        amount = "unknown" if np.isnan(last[number]) else write(last[number])
        group, label = stack.styles[number], f"{stack.labels[number]} {amount}"
        seam = {"edgecolor": ax.get_facecolor(), "zorder": 1 - number / 1000, "label": label}
        options = {"facecolor": group.colour, "hatch": group.hatch, **seam, **wanted[number]}
        for reach in reaches:
            places = downsample(points, reach, columns=axes.PIXELS, starts_known=fresh)
            seen = np.where(is_unknown, np.nan, reach)[places]
            area = draw_area(ax, points[places], seen, stack.chart.interval, **options)
            drawn += [area] * (reach is reaches[0])
    return drawn


def _format_shares(ax: Axes) -> None:
    """Let the y axis show shares of the total, with a grid."""
    ax.set_ylabel("share of the known total", wrap=True)
    ax.yaxis.set_major_locator(ticker.MaxNLocator(5))
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    ax.set_ylim(min(ax.dataLim.y0, 0), max(ax.dataLim.y1, 1))
    axes.draw_grid(ax)


def _left_out(chart: axes.Chart) -> list[str]:
    """Return the legend's sentences about accounts that are not in the sums."""
    steps, bounds = chart.steps_and_grid[0], np.array([chart.interval.start, chart.interval.before])
    late = int((cut(steps, bounds).known_lengths < bounds[1] - bounds[0]).sum())
    notes = [f"left out while unknown: {late:,} of {len(steps):,} accounts"] * (late > 0)
    return notes + ["left out: accounts without a known row"] * bool(chart.history.sum_warnings)
