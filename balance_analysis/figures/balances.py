"""Balances over time as steps, and the drawdown of one account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.history import Source
from balance_analysis.analysis.steps import Pieces, cut, name_of, sort_keys, thinned
from balance_analysis.figures import axes, styles
from balance_analysis.figures.times import date_text, draw_area, draw_line
from balance_analysis.table.moments import Moment
from balance_analysis.table.names import AssetsLike, LabelsLike
from balance_analysis.table.schema import ACCOUNT_KEY, Ints, Mask
from balance_analysis.table.text import count_text

MOST_LINES: Final = 8
"""Maximum number of lines in a figure of balances."""


def plot_balances(
    source: Source,
    *,
    ax: Axes | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    limits: pd.DataFrame | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a line
) -> Axes:
    r"""Draw the balances of one asset's accounts over time, as steps.

    A balance holds from its row until the account's next row, the last one until `end`, as long as
    every change is known. While a balance is unknown, such as before an account's first row, no
    line is drawn; while no account's balance is known, the figure is hatched. If one account holds
    so much that the others look like zero, `ax.set_yscale("asinh")` shows them.

    If there are more than eight accounts, the eight with the largest maxima are drawn, and the
    legend says how many are not.

    Parameters
    ----------
    source
        A table of one asset's balance changes, with rows in any order, or an `Archive`.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit if its
        decimals are unknown.
    labels
        The labels, as `read_labels` takes them; by default those in the table's attrs.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row
        to the end of the known intervals, else to the last row, which is still drawn.
    by
        The columns that identify a holder, such as "party_id" for one line per party: see
        `holders`.
    limits
        The frame of `Archive.limits()`. Times when markets could be proposed are shaded; those when
        assets could be proposed are dotted.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the lines, such as `linewidth=2`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If no balance is known, a text on it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `assets` is malformed, or `start` is not before `end`.
    CheckError
        If rows contradict each other: see `balance_at`.

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
    chart = axes.Chart(source, ax, start, end, assets, labels, title, limits, by=by)
    (steps, _), interval = chart.steps_and_grid, chart.interval
    ax = chart.label("balance")
    if interval.start == interval.before:
        return chart.explain("no balance changes")
    pieces = cut(steps, np.array([interval.start, interval.before]))
    numbers, notes = _choose(pieces)
    if not len(numbers):
        return chart.explain("no balance is known")
    who, texts = styles.split_labels(chart.history.accounts.iloc[numbers], chart.names.labels)
    groups = styles.group_styles(chart.history.accounts.iloc[numbers])
    wanted = zip(numbers.tolist(), texts, groups, styles.spread(style, len(numbers)), strict=True)
    lines: list[Artist] = []
    for number, label, group, arguments in wanted:
        times, words, is_known = chart.levels(number)
        places = thinned(times, is_known, words, columns=axes.PIXELS)
        amounts = chart.unit.scale(int128.to_balances(words[places], is_known[places]))
        merged = {"color": group.colour, "linestyle": group.dashes, "label": label, **arguments}
        edges = np.append(times[places], interval.end)
        lines.append(draw_line(ax, edges, amounts, interval, **merged))
    axes.format_amounts(ax, chart.unit)
    known_from = np.where(pieces.is_known, interval.start, pieces.ends[pieces.starts])
    hatches = chart.show(interval, unknown=[(interval.start, int(known_from.min()))])
    shown = lines if len(lines) > 1 or title is not None else []
    what = "balances" if len(lines) > 1 else "balance"
    return chart.finish(f"{what} of {who}", [*shown, *hatches], notes=notes)


def _choose(pieces: Pieces) -> tuple[Ints, list[str]]:
    """Return the numbers of the accounts to draw, and sentences about the others for the legend."""
    maxima = np.maximum.reduceat(sort_keys(pieces.words), pieces.starts)
    ranked, is_known = np.argsort(-maxima, kind="stable"), pieces.known_lengths > 0
    ranked = ranked[is_known[ranked]]
    others, unknown = max(len(ranked) - MOST_LINES, 0), int((~is_known).sum())
    notes = [f"not drawn: {count_text(others, 'other')} with smaller maxima"] * (others > 0)
    notes += [f"not drawn: {unknown:,} unknown throughout"] * (unknown > 0)
    return ranked[:MOST_LINES], notes


def plot_drawdown(
    source: Source,
    *,
    ax: Axes | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of a line
) -> Axes:
    """Draw one account's balance, and below zero its distance from its peak so far.

    After an unknown stretch only the balance is drawn, since that stretch may have had a higher
    peak.

    Parameters
    ----------
    source
        A table of one account's balance changes, with rows in any order, or an `Archive`.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    assets
        The names and decimals of assets, as `read_assets` takes them; by default those in the
        table's attrs. Amounts are drawn in whole units, or in the asset's smallest unit if its
        decimals are unknown.
    labels
        The labels, as `read_labels` takes them; by default those in the table's attrs.
    start, end
        The half-open interval; moments without a time zone are UTC. By default from the first row
        to the end of the known intervals, else to the last row, which is still drawn.
        The balance at its start may be the peak; earlier balances are ignored.
    by
        The columns that identify a holder instead of an account, such as "party_id": see `holders`.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the line of the balance, such as `color="k"`.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If no balance is known, a text on it says so.

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
    chart = axes.Chart(source, ax, start, end, assets, labels, title, by=by)
    (steps, _), interval = chart.steps_and_grid, chart.interval
    if len(steps) > 1:
        raise ValueError(
            f"plot_drawdown draws one account or holder, but the table has {len(steps):,}; "
            f"select one, such as that of {name_of(chart.history.accounts, 0)}"
        )
    ax = chart.label("balance")
    if interval.start == interval.before:
        return chart.explain("no balance changes")
    times, words, is_known = chart.levels(0)
    if not is_known.any():
        return chart.explain("no balance is known")
    first = int(is_known.argmax())
    has_peak = is_known & (np.cumsum(~is_known) == first)  # not after a gap
    peaks, depths = _falls(words, has_peak)
    places = thinned(times, is_known, words, peaks, depths, columns=axes.PIXELS)
    levels = [
        chart.unit.scale(int128.to_balances(int128.take(each, places), has_it[places]))
        for each, has_it in ((words, is_known), (peaks, has_peak), (depths, has_peak))
    ]
    colour = styles.group_styles(chart.history.accounts)[0].colour
    options = {"label": "balance", "color": colour, **styles.spread(style, 1)[0]}
    drawn, sentence = _draw_falls(chart, times[places], levels, options)
    axes.format_amounts(ax, chart.unit)
    hatches = chart.show(interval, unknown=[(interval.start, int(times[first]))])
    who, _ = styles.split_labels(chart.history.accounts, chart.names.labels)
    return chart.finish(f"balance and drawdown of {who}", [*drawn, *hatches], notes=[sentence])


def _falls(words: Ints, is_known: Mask) -> tuple[Ints, Ints]:
    """Return each known balance's peak so far, and its depth below that peak."""
    peaks, known = words.copy(), words[is_known]
    peaks[is_known] = int128.take(known, int128.running_maxima(known, np.array([0])))
    return peaks, int128.subtract(peaks, words)


def _draw_falls(
    chart: axes.Chart, times: Ints, levels: Sequence[NDArray[np.float64]], style: dict[str, Any]
) -> tuple[list[Artist], str]:
    """Draw balances, peaks and depths; return the artists, and a sentence about the deepest."""
    balance, peak, depth = levels
    ax, interval, ink = chart.ax, chart.interval, styles.ink(chart.ax)
    edges = np.append(times, interval.end)
    line = draw_line(ax, edges, balance, interval, **style)
    dashed = {"color": ink, "linestyle": (0, (4, 3)), "linewidth": 0.8, "marker": None}
    label = "its peak so far"
    top = draw_line(ax, edges, peak, interval, **dashed, zorder=1.9, label=label)
    sentence, deepest = "never below its peak", int(np.nanargmax(depth))
    if depth[deepest] > 0:
        share = f" ({axes.percent(depth[deepest] / peak[deepest])})" if peak[deepest] else ""
        moment = date_text(int(times[deepest]))
        sentence = f"deepest: {axes.short_amount(depth[deepest])}{share}, {moment}"
    options = {"color": styles.VERMILION, "alpha": 0.45, "label": "below its peak"}
    area = draw_area(ax, times, -depth, interval, **options)
    ax.axhline(0, color=ink, linewidth=0.8)
    return [line, top, area], sentence
