"""The largest holders over time, on average too, and how unevenly an asset is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.concentration import concentration
from balance_analysis.analysis.grid import Frequency
from balance_analysis.analysis.holders import check_count
from balance_analysis.analysis.statistics import time_weighted_average
from balance_analysis.figures import axes
from balance_analysis.figures.changes import GAP
from balance_analysis.figures.layout import finish, points_of
from balance_analysis.figures.styles import BLUE, ink, looks
from balance_analysis.figures.times import date_text
from balance_analysis.figures.totals import draw_stack, draw_sums, largest_groups, unknown_spans
from balance_analysis.names import AssetsLike, LabelsLike
from balance_analysis.schema import ACCOUNT_KEY, Instant, from_microseconds, to_microseconds
from balance_analysis.text import count_text

NOBODY: Final = "nobody is known to hold anything"

_NARROWEST: Final = 4
"""Points: narrower bars are drawn without gaps."""

_POINTS: Final = 2000
"""Of a curve, which is smooth where there are more holders."""


def plot_concentration(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    kind: Literal["lorenz", "largest"] = "lorenz",
    when: Instant | None = None,
    n: int = 5,
    holders: str | Sequence[str] = ACCOUNT_KEY,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a line, or of patches
) -> Axes:
    """Draw how unevenly the balances of one asset are spread over those who hold some.

    Accounts whose balance is unknown or 0 are no holders.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    kind
        "lorenz": the part of the total that the smallest holders have together, against how many
        they are, with the Gini coefficient. "largest": the shares of the `n` holders that held most
        on average, over time, stacked, and that of all others; hatched where nothing is known.
    when
        For "lorenz", the instant; without a time zone UTC. By default just before `end`.
    n
        How many of the largest holders.
    holders
        The columns that make a holder, by default those of an account: see `concentration`.
    freq
        For "largest", the distance of the points, see `share`; `None` for every change.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first
        timestamp to the end of what is known, else to the last timestamp, whose rows count.
    assets
        The names of assets, as `read_assets` takes them; by default those in the table's attrs.
    labels
        Own names, as `read_labels` takes them; by default those in the table's attrs.
    title
        The title; by default one that says what is drawn, and "" for none.
    **style
        Arguments of matplotlib for the curve or the areas; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where nobody holds anything, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `kind` is neither, `n` is below 1, or `when` or `freq` is
        given for the other kind.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-02"], utc=True), "balance": [3, 1],
    ... })
    >>> ax = plot_concentration(table, n=1)
    >>> ax.get_legend().get_texts()[0].get_text()
    'Lorenz curve, Gini 0.25'
    """
    _check(kind, n, {"lorenz": ("freq", freq), "largest": ("when", when)})
    look: Any = {"size": (7 if kind == "lorenz" else 10, 4.5), "by": holders}
    chart = axes.Chart(data, ax, start, end, assets, labels, title, **look)
    if chart.interval.is_empty:
        return chart.explain("no balance changes")
    if kind == "largest":
        stack = largest_groups(chart, [*chart.history.accounts], n=n, shares=True)
        drawn, notes, says = draw_stack(stack, style, freq)
        count = min(n, len(stack.labels))
        most = f"shares of the {count} that" if count > 1 else "share of the one that"
        if not drawn:
            return axes.explain(chart.ax, NOBODY, title)
        return chart.finish(f"{most} held most on average", drawn, notes=notes, says=says)
    instant, named = chart.interval.before - 1, chart.interval.end
    if when is not None:
        instant = named = to_microseconds(when)
    words, moment = f"at {date_text(named)}", from_microseconds(instant)
    found = concentration(chart.history, moment, n=n).iloc[0]
    if not found["holders"]:
        return axes.explain(chart.ax, f"{NOBODY}\n{words}", title)
    amounts = chart.unit.scale(held_at(chart.history, moment)["balance"].dropna())
    held = np.sort(amounts[amounts > 0])
    curve, says = _draw_lorenz(chart.ax, found, held, n, looks(style, 1)[0])
    title = f"How unevenly {chart.unit.label} is held {words}" if title is None else title
    return finish(chart.ax, title, curve, says=says)


def plot_averages(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    n: int = 8,
    freq: Frequency | None = "1D",
    start: Instant | None = None,
    end: Instant | None = None,
    shares: bool = False,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the bars
) -> Axes:
    """Draw what the largest accounts of one asset, or other holders, held on average per period.

    Each period has a bar: what `time_weighted_average` tells of the `n` that hold most on average,
    on top of each other, and of all others together. A holder whose balance is unknown in a part of
    a period is in no bar of it: the legend says how many such averages there are. A period in which
    no average is known has no bar, but is hatched.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.
    by
        The columns that make a holder, such as "party_id": see `holders`. What it has is unknown
        while that of one of its accounts is.
    n
        How many of the largest are drawn by themselves.
    freq
        How long a period is, see `time_weighted_average`; `None` for a single one.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the period of
        the first row to the end of what is known, else of the rows.
    shares
        Whether to draw parts of the total of each period instead of amounts; a period in which one
        average is unknown has no bar then, but is hatched.
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
        Arguments of matplotlib for the bars, such as `alpha=0.8`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where no average is known, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, `n` is below 1, or the interval or
        `freq` is none.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "b2", "c3"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 3, utc=True), "balance": [5, 3, 2],
    ... })
    >>> ax = plot_averages(table, n=1, end="2023-04-05")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['general · a1', '2 others']
    """
    check_count(n)
    how: Any = {"limits": limits, "freq": freq, "by": by}
    chart = axes.Chart(data, ax, start, end, assets, labels, title, **how)
    (steps, grid), ax = chart.over, chart.label("average balance")
    if chart.interval.is_empty:
        return chart.explain("no balance changes")
    stack = largest_groups(chart, [*chart.history.accounts], n=n, shares=shares)
    found = time_weighted_average(chart.history, freq=grid)["average"]
    amounts = chart.unit.scale(found).reshape(len(steps), len(grid))
    is_known = ~np.isnan(amounts)
    # A share of what is known would pass for a share of all.
    has_bar = np.asarray(is_known.all(axis=0) if shares else is_known.any(axis=0))
    if not has_bar.any():
        return chart.explain("no average is known:\nbalances are unknown in a part of each period")
    sums = [np.nansum(amounts[stack.numbers == area], axis=0) for area in range(len(stack.labels))]
    levels = np.where(has_bar, sums, np.nan)
    if shares:
        levels /= np.where(levels.sum(axis=0) == 0, np.nan, levels.sum(axis=0))
    edges, gaps = grid.edges, (np.diff(grid.edges) * GAP / 2).astype(np.int64)
    if stack.is_stacked and len(grid) * _NARROWEST < points_of(ax)[0]:
        edges = np.column_stack([edges[:-1] + gaps, edges[1:] - gaps]).ravel()
        levels = np.insert(levels, range(1, len(grid)), np.nan, axis=1)
    drawn = draw_sums(stack, edges, levels, stack.labels, style)
    unknown = unknown_spans(grid.edges, has_bar, chart.periods.start)
    notes = chart.show(chart.periods, unknown=unknown)
    lacking, whole = int((~is_known).sum()), count_text(is_known.size, "average")
    says = ["not stacked"] * (not stack.is_stacked)
    says += [f"left out, as unknown: {lacking:,} of {whole}"] * (lacking > 0)
    return chart.finish(chart.each_period("average balance"), drawn, notes=notes, says=says)


def _check(kind: str, n: int, others: dict[str, tuple[str, object]]) -> None:
    """Raise unless it is one of both kinds, without what belongs to the other."""
    if kind not in others:
        raise ValueError(f"kind must be 'lorenz' or 'largest', not {kind!r}")
    name, value = others[kind]
    if value is not None:
        raise ValueError(f"{name} has no meaning for kind={kind!r}")
    check_count(n)


def _draw_lorenz(
    ax: Axes, found: pd.Series[Any], held: NDArray[np.float64], n: int, style: dict[str, Any]
) -> tuple[list[Line2D], list[str]]:
    holders, parts = lorenz(held)
    colour = style.get("color", BLUE)
    ax.fill_between(holders, parts, holders, color=colour, alpha=0.15, linewidth=0)
    look = {"color": BLUE, "label": f"Lorenz curve, Gini {_gini(found['gini'])}", **style}
    curve = ax.plot(holders, parts, **look)
    dashed: Any = {"color": ink(ax), "linestyle": "--", "linewidth": 0.8}
    curve += ax.plot([0, 1], [0, 1], label="all hold the same", **dashed)
    ax.set_xlabel(f"share of the {count_text(len(held), 'holder')}, smallest first", loc="center")
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.format_shares(ax, "share of what they hold")
    shown = min(n, len(held))
    largest = "the largest holds" if shown == 1 else f"the {shown} largest hold"
    says = [f"{largest} {axes.percent(found['largest'])}"]
    if found["unknown"]:
        says.append(f"unknown: {count_text(int(found['unknown']), 'more account')}")
    return curve, says


def _gini(gini: float) -> str:
    return ">0.99" if 0.995 <= gini < 1 else f"{gini:.2f}"  # noqa: PLR2004 - rounding would say 1


def lorenz(held: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a Lorenz curve: parts of the holders, and of what they hold, from 0 to 1.

    Parameters
    ----------
    held
        What each holder has, above 0, ascending.
    """
    sums, last = np.append(0, held.cumsum()), len(held)
    places = np.unique(np.linspace(0, last, min(last, _POINTS) + 1).round().astype(np.int64))
    return places / last, sums[places] / sums[-1]
