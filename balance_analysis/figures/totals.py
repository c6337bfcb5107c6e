"""What an asset consists of over time: stacked steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from balance_analysis.analysis.grid import make_grid
from balance_analysis.analysis.groups import Groups, make_groups
from balance_analysis.analysis.int128 import take, to_balances, words_of
from balance_analysis.analysis.steps import cut
from balance_analysis.analysis.totals import change_points, sum_at, sum_at_changes
from balance_analysis.figures.amounts import (
    Unit,
    format_amounts,
    format_shares,
    in_units,
    only_asset,
    percent,
    short_amount,
)
from balance_analysis.figures.canvas import (
    draw_bands,
    draw_unknown,
    explain,
    explain_no_changes,
    legend_beside,
    new_axes,
    note,
    unknown_patch,
)
from balance_analysis.figures.labels import axis_label, group_labels
from balance_analysis.figures.levels import blank_gaps, open_figure, sort_keys
from balance_analysis.figures.palette import OTHERS, group_styles
from balance_analysis.figures.shading import hatch_incomplete, shade_limits
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import format_times, seen_until, to_dates

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency, Grid
    from balance_analysis.analysis.steps import Steps
    from balance_analysis.analysis.totals import Sums
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.figures.levels import Interval
    from balance_analysis.figures.palette import Style
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant

MOST_BANDS: Final = 10


def plot_totals(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    shares: bool = False,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    decimals: Decimals | None = None,
    unit: str | None = None,
    limits: pd.DataFrame | None = None,
    coverage: pd.DataFrame | Archive | None = None,
) -> Axes:
    """Draw the sums of balances of groups of accounts of one asset, stacked, as steps.

    A balance that is unknown is in no sum: the legend says of how many accounts that is so. Where
    nothing is known, nothing is drawn, and until anything is, the figure is hatched. Groups that
    never hold anything are left out; of more than ten, the nine with the largest maximum are drawn,
    and the others as one.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it, with what each group holds at the end, whatever `freq` is.
    by
        The columns of `ACCOUNT_KEY` that make a group, "asset_id" among them.
    freq
        The distance of the points, see `totals`; `None` for every change.
    start, end
        The interval, half-open; without a time zone UTC. By default from the first timestamp of
        `data` to the end of what is known, else to its last, whose row is still drawn.
    shares
        Whether to draw parts of the known total instead of amounts.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. What may have changed outside of them is not drawn, but hatched.
    decimals, unit
        As for `plot_balances`.
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
        If there is more than one asset, `decimals` lacks the asset, `by` lacks "asset_id", or the
        interval or `freq` is none.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

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
    ['general, 5', 'margin, 7']
    """
    steps, interval = open_figure(data, opening=opening, known=known, start=start, end=end)
    asset = only_asset(steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    measure = "share of the known total" if shares else "total"
    ax.set_ylabel(axis_label(measure, asset, unit=unit, whole=decimals is not None, bare=shares))
    if asset is None or interval is None:
        return explain_no_changes(ax, start, end)
    extent = np.array([interval.start, interval.before - 1])
    grid = make_grid(extent, freq=freq, start=start, end=end, tz=None, known=interval.known)
    sums = _Sums(steps, grid, interval, is_at_changes=freq is None)
    bands, first = _largest(sums, make_groups(steps.accounts, by))
    if not bands:
        return explain(ax, f"no balance is known\n{interval.words}")
    if shares and not any(band.words.any() for band in bands):
        return explain(ax, f"nothing is held, so there are no shares\n{interval.words}")
    handles: list[Artist] = [*_draw(ax, bands, first, sums, Unit(asset, decimals), shares=shares)]
    if shares:
        format_shares(ax)
    else:
        format_amounts(ax, whole=decimals is not None)
        ax.set_ylim(bottom=min(ax.dataLim.y0, 0))
    format_times(ax, interval.start, interval.end)
    if first > interval.start:
        draw_unknown(ax, float(to_dates(interval.start)), float(to_dates(first)))
        handles.append(unknown_patch(ax))
    handles += shade_limits(ax, limits)
    handles += hatch_incomplete(ax, coverage, interval.known, interval.start, interval.end)
    handles += _lacks(steps, interval)
    legend_beside(ax, handles, title="at the end:")
    return ax


@dataclass(frozen=True, slots=True)
class Band:
    """One group's total over time.

    Attributes
    ----------
    label, style
        What it is called, and how it is drawn.
    times, words
        From when on the total was which amount; where none is known, it is 0.
    last
        The total at the end, which may differ from that at the last point of a frequency; NA where
        none is known.
    """

    label: str
    style: Style
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    last: pd.api.extensions.ExtensionArray


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of groups of accounts in an interval, as of `totals`.

    Attributes
    ----------
    steps, grid, interval
        The accounts, the points, and what is shown.
    is_at_changes
        Whether the points are the start, and where a group changes or ceases to be known; else they
        are those of the grid.
    """

    steps: Steps
    grid: Grid
    interval: Interval
    is_at_changes: bool

    def of(self, groups: Groups) -> Sums:
        """Return the sums of groups, at the points."""
        if not self.is_at_changes:
            return sum_at(self.steps, groups, self.grid.points)
        points = change_points(self.steps, groups, self.grid, from_start=True, with_events=True)
        return sum_at_changes(self.steps, groups, *points)

    def are_known(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which times, ascending, the balance of any account is known."""
        if self.steps.ceases is None:
            return np.ones(len(times), bool)
        everyone = make_groups(self.steps.accounts, (), mixes_assets=True)
        return sum_at(self.steps, everyone, times).known > 0

    def last(self, groups: Groups) -> pd.api.extensions.ExtensionArray:
        """Return the sums of groups just before the end."""
        return sum_at(self.steps, groups, np.array([self.interval.before - 1])).total


def _largest(sums: _Sums, groups: Groups) -> tuple[list[Band], int]:
    """Return the bands to draw, the largest first, and from when on a total is known of any group.

    Bands stand from the bottom up. Of those that hold nothing at any time none is drawn, or one
    where there is no other.
    """
    found, lasts = sums.of(groups), sums.last(groups)
    if not found.known.any():
        return [], sums.interval.start
    heads = np.flatnonzero(np.diff(found.groups, prepend=-1))
    numbers, stops = found.groups[heads], np.append(heads[1:], len(found.groups))
    keys = np.abs(sort_keys(words_of(pa.array(found.total))))
    sizes = np.maximum.reduceat(np.where(found.known > 0, keys, -1), heads)
    order = np.argsort(-sizes, kind="stable")
    held = order[sizes[order] > 0] if (sizes > 0).any() else order[:1]
    most, rest = (held, held[:0]) if len(held) <= MOST_BANDS else np.split(held, [MOST_BANDS - 1])
    ranked = groups.ids.iloc[numbers[held]].reset_index(drop=True)
    bands = [
        _band(label, style, found, slice(heads[place], stops[place]), lasts[numbers[[place]]])
        for place, label, style in zip(
            most, group_labels(ranked), group_styles(ranked.iloc[: len(most)]), strict=False
        )
    ]
    if len(rest):
        is_other = np.isin(groups.numbers, numbers[rest])
        two = Groups(groups.ids[["asset_id"]].iloc[[0, 0]], is_other.astype(np.int64))
        summed = sums.of(two)
        rows = slice(int(np.searchsorted(summed.groups, 1)), None)
        label = f"{len(rest):,} others"
        bands.append(_band(label, OTHERS, summed, rows, sums.last(two)[[1]]))
    return bands, int(found.times[found.known > 0].min())


def _band(
    label: str, style: Style, sums: Sums, rows: slice, last: pd.api.extensions.ExtensionArray
) -> Band:
    is_known = sums.known[rows] > 0
    words = np.where(is_known[:, None], words_of(pa.array(sums.total[rows])), 0)
    return Band(label, style, sums.times[rows], words, last)


def _draw(
    ax: Axes, bands: list[Band], first: int, sums: _Sums, unit: Unit, *, shares: bool
) -> list[StepPatch]:
    """Draw bands on top of each other, and return what stands for them in the legend."""
    times = np.sort(np.concatenate([[first], *(band.times for band in bands)]))
    times = times[
        (np.diff(times, prepend=times[0] - 1) != 0) & (times >= first)
    ]  # np.unique takes ten times as long
    held = [np.searchsorted(band.times, times, side="right") - 1 for band in bands]
    keys = [
        np.where(rows < 0, 0.0, sort_keys(band.words)[rows])
        for band, rows in zip(bands, held, strict=True)
    ]
    bounds = np.cumsum(keys, axis=0)
    if shares:
        bounds = bounds / np.where(bounds[-1], bounds[-1], 1)
    columns = count_columns(ax)
    kept = [thin(times, level, columns=columns) for level in bounds]
    places = np.flatnonzero(np.bincount(np.concatenate(kept), minlength=len(times)))
    amounts = np.array(
        [_amounts(band, rows[places], unit) for band, rows in zip(bands, held, strict=True)]
    )
    amounts[:, ~sums.are_known(times[places])] = np.nan
    held_last = np.array([in_units(band.last, unit)[0] for band in bands])
    last = ["unknown" if np.isnan(amount) else short_amount(amount) for amount in held_last]
    if shares:
        whole = amounts.sum(axis=0)
        amounts = amounts / np.where(whole, whole, np.nan)
        parts = held_last / (np.nansum(held_last) or 1)
        last = ["unknown" if np.isnan(part) else percent(part) for part in parts]
    interval = sums.interval
    begins = np.maximum(times[places], interval.start)
    until = seen_until(interval.start, int(begins[-1]), interval.end)
    edges = np.append(begins, until)
    labels = [f"{band.label}, {amount}" for band, amount in zip(bands, last, strict=True)]
    styles = [band.style for band in bands]
    edges, tops = blank_gaps(edges, np.cumsum(amounts, axis=0), interval.known)
    return draw_bands(ax, edges, tops, styles, labels)[::-1]


def _amounts(band: Band, rows: NDArray[np.int64], unit: Unit) -> NDArray[np.float64]:
    """Return what a band holds at some of its rows; at -1 nothing is known."""
    used, where = np.unique(np.maximum(rows, 0), return_inverse=True)
    amounts = in_units(to_balances(take(band.words, used)), unit)[where]
    return np.where(rows < 0, 0.0, amounts)


def _lacks(steps: Steps, interval: Interval) -> list[Artist]:
    """Return what the legend says of balances that are in no sum."""
    pieces = cut(steps, np.array([interval.start, interval.before]))
    late, never = int((~pieces.known_throughout).sum()), int((~pieces.has_known).sum())
    if not late:
        return []
    some = "until their first row" if steps.ceases is None else "for some time"
    words = f"not in it: {late:,} of {len(steps):,} accounts,\nunknown "
    words += "to the end" if never == late else some
    return [note(words if never in {0, late} else f"{words},\n{never:,} of them to the end")]
