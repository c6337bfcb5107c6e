"""What an asset consists of over time: groups of accounts on top of each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from numpy.typing import NDArray

from balance_analysis.analysis.downsampling import downsample, sort_keys, starts_of_known
from balance_analysis.analysis.grid import Frequency, make_grid
from balance_analysis.analysis.history import Source
from balance_analysis.analysis.steps import Steps, cut
from balance_analysis.analysis.sums import (
    Groups,
    distinct,
    events,
    group_names,
    make_groups,
    sum_at,
)
from balance_analysis.figures import axes
from balance_analysis.figures.styles import (
    OTHERS,
    Style,
    group_labels,
    group_styles,
    looks,
)
from balance_analysis.figures.times import Extent, draw_area, draw_line, last_edge
from balance_analysis.names import AssetsLike, LabelsLike
from balance_analysis.schema import Instant
from balance_analysis.spans import Span
from balance_analysis.text import count_text

MOST_BANDS: Final = 9

_THINNEST: Final = 0.01
"""Of the height of an Axes: an area that is thinner cannot be seen."""


def plot_totals(
    source: Source,
    *,
    ax: Axes | None = None,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    shares: bool = False,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a patch
) -> Axes:
    """Draw the sums of balances of groups of accounts of one asset, stacked, as steps.

    A balance that is unknown is in no sum: the legend says of how many accounts that is so. Where
    nothing is known, nothing is drawn, but the figure is hatched. Groups that never hold anything
    are left out. Of more than nine, those that hold most on average are drawn, and the others as
    one, with those that are too thin to see. Where one group holds so much that no other would be
    seen on top of it, groups are lines beside each other on a logarithmic axis, which says so.

    Parameters
    ----------
    source
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    by
        The columns that make a group, "asset_id" among them: see `totals`.
    freq
        The distance of the points, see `totals`; `None` for every change.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first
        timestamp of `data` to the end of what is known, else to its last, whose row is still drawn.
    shares
        Whether to draw parts of the known total instead of amounts.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit where its
        decimals are not known.
    labels
        Own names, as `read_labels` takes them; by default those in the table's attrs.
    limits
        The frame of `Archive.limits()`; when markets could be proposed is shaded, and when assets
        could, dotted.
    title
        The title; by default one that says what is drawn, and "" for none.
    **style
        Arguments of matplotlib for the areas, such as `alpha=0.8`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no balance is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, `by` lacks "asset_id", or the
        interval or `freq` is none.
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
    ['margin 7', 'general 5']
    """
    chart = axes.Chart(source, ax, start, end, assets, labels, title, limits)
    names = group_names(by, chart.history.columns)
    chart.label("total")
    if chart.interval.is_empty:
        return chart.explain("no balance changes")
    stack = largest_groups(chart, names, shares=shares)
    drawn, notes, says = draw_stack(stack, style, freq)
    if not drawn:
        return chart.explain(
            "nothing is held, so there are no shares" if shares else "no balance is known"
        )
    told = [name.removesuffix("_id").replace("_", " ") for name in names if name != "asset_id"]
    words = ("shares" if shares else "total") + f" by {' and '.join(told)}" * bool(told)
    return chart.finish(words, drawn, notes=notes, says=says)


@dataclass(frozen=True, slots=True)
class Stack:
    """What is drawn on top of each other, from the bottom up.

    Attributes
    ----------
    chart
        What accounts hold, and what to show of it.
    shares
        Whether parts of the known total are drawn instead.
    labels, styles
        What each area is called, and how it is drawn.
    numbers
        The area of each account; behind the last one for those that never hold anything.
    is_stacked
        Whether the areas lie on each other; else they are lines, as one group holds so much that
        nobody would see the others on top of it.
    """

    chart: axes.Chart
    shares: bool
    labels: list[str]
    styles: list[Style]
    numbers: NDArray[np.int64]
    is_stacked: bool


def largest_groups(chart: axes.Chart, by: Sequence[str], *, shares: bool) -> Stack:
    """Return the groups that hold most on average, the largest first, and all others as one.

    They are nine at most, without those that are never large enough to be seen. Of groups that
    never hold anything none is drawn, or one where there is no other.
    """
    (steps, _), interval = chart.over, chart.interval
    groups, changes = make_groups(chart.history, by), _changes(steps, interval)
    changes["group"] = groups.numbers[changes["number"]]
    by_group = changes.sort_values(["group", "time"]).groupby("group")
    levels = by_group["delta"].cumsum().abs()
    lengths = by_group["time"].diff(-1).rsub(0).fillna(interval.before - changes["time"])
    areas = (levels * lengths).groupby(changes["group"]).sum()
    sizes = areas.reindex(range(len(groups)), fill_value=0).to_numpy()
    whole = changes.sort_values("time", kind="stable")["delta"].cumsum()
    peaks = levels / (whole[levels.index].clip(lower=1) if shares else max(whole.max(), 1))
    parts = peaks.groupby(changes["group"]).max().reindex(range(len(groups)), fill_value=0)
    order = np.argsort(-sizes, kind="stable")
    held = order[sizes[order] > 0] if sizes.any() else order[:1]
    is_seen = parts.to_numpy()[held] > _THINNEST
    is_seen[:1] = True
    is_stacked = shares or is_seen.sum() > 1 or len(held) == 1
    is_seen |= not is_stacked
    ranked, count = np.append(held[is_seen], held[~is_seen]), min(MOST_BANDS, is_seen.sum())
    most, rest = ranked[:count], ranked[count:]
    ids = groups.ids.iloc[[*most, *rest]]
    labels = group_labels(ids, chart.names.labels)[: len(most)]
    styles = group_styles(groups.ids.iloc[most])
    areas_of = np.full(len(groups), len(most) + min(len(rest), 1))
    areas_of[most], areas_of[rest] = np.arange(len(most)), len(most)
    if len(rest):
        labels.append(count_text(len(rest), "other"))
        styles.append(OTHERS)
    numbers = areas_of[groups.numbers]
    return Stack(chart, shares, labels, styles, numbers, is_stacked)


def _changes(steps: Steps, interval: Extent) -> pd.DataFrame:
    """Return when accounts change in an interval, and about by how much: to rank and to thin."""
    numbers, times, words, _ = events(steps)
    levels = sort_keys(words)
    deltas = np.diff(levels, prepend=0.0)
    is_head = np.diff(numbers, prepend=-1) != 0
    deltas[is_head] = levels[is_head]
    times = np.maximum(times, interval.start)
    frame = pd.DataFrame({"number": numbers, "time": times, "delta": deltas}, copy=False)
    return frame[times < interval.before]


def draw_stack(
    stack: Stack, style: dict[str, Any], freq: Frequency | None
) -> tuple[list[Artist], list[Artist], list[str]]:
    """Draw the sums of groups on top of each other, format both axes and hatch what is unknown.

    Returns
    -------
    list
        The areas, labelled with what each group holds at the end: none where nothing is drawn.
    list, list
        What a legend shows and says besides.
    """
    (steps, _), interval, shares = stack.chart.over, stack.chart.interval, stack.shares
    points = _change_points(stack) if freq is None else _grid_points(stack, freq)
    amounts, is_known = _sums(stack, points)
    if np.isnan(amounts).all():
        return [], [], []
    edges = np.append(points, last_edge(points, interval))
    last = _sums(stack, np.array([interval.before - 1]))[0][:, 0]
    write = axes.percent if shares else axes.short_amount
    labels = [
        f"{label} {'unknown' if np.isnan(amount) else write(amount)}"
        for label, amount in zip(stack.labels, last, strict=True)
    ]
    words = "shares at the end" if shares else "amounts at the end"
    says = [words, *["not stacked"] * (not stack.is_stacked), *_lacks(steps, interval)]
    says += stack.chart.left_out
    if stack.is_stacked and not shares:
        amounts = np.where(is_known, np.nan_to_num(amounts), np.nan)
    drawn = draw_sums(stack, edges, amounts, labels, style)
    unknown = unknown_spans(edges, is_known, interval.start)
    return drawn, stack.chart.show(interval, unknown=unknown), says


def _grid_points(stack: Stack, freq: Frequency) -> NDArray[np.int64]:
    """Return the moments of a grid, microseconds, and where each gap begins."""
    chart, interval = stack.chart, stack.chart.interval
    extent, known = np.array([interval.start, interval.before - 1]), interval.known
    grid = make_grid(extent, freq=freq, start=chart.start, end=chart.end, tz=None, known=known)
    points = np.append(grid.points, np.array([gap[0] for gap in interval.gaps], np.int64))
    return distinct(np.clip(points, interval.start, interval.before - 1))


def _change_points(stack: Stack) -> NDArray[np.int64]:
    """Return when something changes, downsampled."""
    chart = stack.chart
    changes = _changes(chart.over[0], chart.interval)
    times, places = np.unique(changes["time"], return_inverse=True)
    cells = stack.numbers[changes["number"]] * len(times) + places
    count = len(stack.labels)
    deltas = np.bincount(cells, changes["delta"], (count + 1) * len(times))
    tops = np.cumsum(deltas.reshape(count + 1, -1)[:count], axis=1)
    if stack.is_stacked:
        tops = tops.cumsum(axis=0)
    parts = tops / np.where(tops[-1], tops[-1], 1) if stack.shares else tops
    stretches = np.searchsorted(np.array(chart.interval.gaps).ravel(), times, side="right")
    starts_known = np.diff(stretches, prepend=0) > 0
    return times[downsample(times, *parts, columns=chart.columns, starts_known=starts_known)]


def _sums(stack: Stack, points: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the exact sum of each area at each point, and where any balance is known."""
    count, steps = len(stack.labels), stack.chart.over[0]
    ids = steps.accounts[["asset_id"]].iloc[[0] * (count + 1)]
    sums = sum_at(steps, Groups(ids, stack.numbers), points)
    amounts = stack.chart.unit.scale(sums.total).reshape(count + 1, -1)[:count]
    if stack.shares:
        whole = np.nansum(amounts, axis=0)
        amounts = amounts / np.where(whole, whole, np.nan)
    return amounts, sums.known.reshape(count + 1, -1).sum(axis=0) > 0


def draw_sums(
    stack: Stack,
    edges: NDArray[np.int64],
    levels: NDArray[np.float64],
    labels: Sequence[str],
    style: dict[str, Any],
) -> list[Artist]:
    """Draw the sums of groups between edges, and format the y axis."""
    ax, kind = stack.chart.ax, StepPatch if stack.is_stacked else Line2D
    wanted = looks(style, len(labels), kind)
    named = ({"label": label, **told} for label, told in zip(labels, wanted, strict=True))
    drawn = _draw_groups(stack, edges, levels, named)
    if stack.shares:
        axes.format_shares(ax)
        return drawn
    tops = () if stack.is_stacked else np.nanmax(levels, axis=1)
    axes.format_amounts(ax, stack.chart.unit, tops=tops)
    if stack.is_stacked:
        ax.set_ylim(bottom=min(ax.dataLim.y0, 0))
    return drawn


def _draw_groups(
    stack: Stack,
    edges: NDArray[np.int64],
    levels: NDArray[np.float64],
    styles: Iterable[dict[str, Any]],
) -> list[Artist]:
    """Draw areas from zero, lower ones over higher ones, so that there is no seam; or lines."""
    ax = stack.chart.ax
    if stack.is_stacked:
        is_unknown = np.isnan(levels).all(axis=0)
        levels = np.cumsum(np.nan_to_num(levels), axis=0)
        levels[:, is_unknown] = np.nan
    drawn: list[Artist] = []
    for number, (level, own, told) in enumerate(zip(levels, stack.styles, styles, strict=True)):
        starts_known = starts_of_known(~np.isnan(level))
        points, columns = (edges[:-1], np.nan_to_num(level)), stack.chart.columns
        places = downsample(*points, columns=columns, starts_known=starts_known)
        times = edges[[*places, -1]]
        if stack.is_stacked:
            seam = {"edgecolor": ax.get_facecolor(), "zorder": 1 - number / 1000}
            look = {**own.area, **seam, **told}
            drawn.append(draw_area(ax, times, level[places], **look))
        else:
            look = {**own.line, **told}
            drawn.append(draw_line(ax, times, level[places], stack.chart.interval, **look))
    return drawn


def unknown_spans(edges: NDArray[np.int64], is_known: NDArray[np.bool_], start: int) -> list[Span]:
    """Return the stretches from the start on in which no balance is known."""
    if start < edges[0]:
        edges, is_known = np.append(start, edges), np.append(False, is_known)
    turns = np.flatnonzero(np.diff(is_known, prepend=True, append=True))
    first, last = edges[turns].reshape(-1, 2).T.tolist()
    return list(zip(first, last, strict=True))


def _lacks(steps: Steps, interval: Extent) -> list[str]:
    """Return what the legend says of balances that are in no sum."""
    pieces = cut(steps, np.array([interval.start, interval.before]))
    late = int((~pieces.known_throughout).sum())
    what = "accounts" if "market_id" in steps.accounts else "holders"
    return [f"{late:,} of {len(steps):,} {what} left out while unknown"] * (late > 0)
