"""What an asset consists of over time: stacked steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.integers import take, to_balances, words_of
from balance_analysis.analysis.steps import open_table
from balance_analysis.analysis.totals import totals
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
from balance_analysis.figures.levels import find_interval, sort_keys
from balance_analysis.figures.palette import OTHERS, group_styles
from balance_analysis.figures.shading import hatch_incomplete, shade_limits
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import format_times, seen_until, to_dates
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency
    from balance_analysis.analysis.steps import Steps
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.figures.levels import Interval
    from balance_analysis.figures.palette import Style
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
    decimals: Decimals | None = None,
    unit: str | None = None,
    limits: pd.DataFrame | None = None,
    coverage: pd.DataFrame | Archive | None = None,
) -> Axes:
    """Draw the sums of balances of groups of accounts of one asset, stacked, as steps.

    A balance that is unknown is in no sum: the legend says of how many accounts that is so. Until
    anything is known, the figure is hatched. Groups that never hold anything are left out; of more
    than ten, the nine with the largest maximum are drawn, and the others as one.

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
        `data` to its last, whose row is still drawn.
    shares
        Whether to draw parts of the known total instead of amounts.
    decimals, unit
        As for `plot_balances`.
    limits
        The frame of `Archive.limits()`: shades when proposals were enabled.
    coverage
        The frame of `Archive.coverage()`, or an archive: hatches its gaps and what is unproven, as
        changes may be missing there.

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
        If two rows of one account and timestamp differ in balance.

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
    rows, steps = open_table(data, None)
    asset = only_asset(steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    measure = "share of the known total" if shares else "total"
    ax.set_ylabel(axis_label(measure, asset, unit=unit, whole=decimals is not None, bare=shares))
    interval = find_interval(steps, start, end)
    if asset is None or interval is None:
        return explain_no_changes(ax, start, end)
    window = {"freq": freq, "start": start, "end": end}
    bands, first = _largest(rows, [by] if isinstance(by, str) else list(by), window, interval)
    if not bands:
        return explain(ax, f"no balance is known\n{interval.words}")
    if shares and not any(band.words.any() for band in bands):
        return explain(ax, f"nothing is held, so there are no shares\n{interval.words}")
    handles: list[Artist] = [
        *_draw(ax, bands, first, interval, Unit(asset, decimals), shares=shares)
    ]
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
    handles += hatch_incomplete(ax, coverage, interval.start, interval.end)
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
        From when on the total was which amount, as far as one is known.
    last
        The total at the end, which may differ from that at the last point of a frequency.
    """

    label: str
    style: Style
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    last: NDArray[np.int64]


def _largest(
    rows: pd.DataFrame, by: list[str], window: dict[str, Any], interval: Interval
) -> tuple[list[Band], int]:
    """Return the bands to draw, the largest first, and from when on a total is known of any group.

    Bands stand from the bottom up. Of those that hold nothing at any time none is drawn, or one
    where there is no other.
    """
    found = totals(rows, by=by, **window)
    is_known = found["known"].to_numpy() > 0
    numbers = found.groupby(by, observed=True, sort=True).ngroup().to_numpy()[is_known]
    found = found[is_known]
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    if not len(heads):
        return [], interval.start
    sizes = np.maximum.reduceat(np.abs(sort_keys(words_of(pa.array(found["total"])))), heads)
    order = np.argsort(-sizes, kind="stable")
    held = order[sizes[order] > 0] if sizes.any() else order[:1]
    most, rest = (held, held[:0]) if len(held) <= MOST_BANDS else np.split(held, [MOST_BANDS - 1])
    ranked = found[by].iloc[heads[held]].reset_index(drop=True)
    stops = np.append(heads[1:], len(found))
    if window["freq"] is None:
        lasts = found["total"].iloc[stops - 1]
    else:
        lasts = _at_end(rows, by, interval).iloc[numbers[heads]]
    bands = [
        _band(label, style, found.iloc[heads[group] : stops[group]], lasts.iloc[[group]])
        for group, label, style in zip(
            most, group_labels(ranked), group_styles(ranked.iloc[: len(most)]), strict=False
        )
    ]
    if len(rest):
        others = pd.MultiIndex.from_frame(ranked.iloc[len(most) :].astype("str"))
        is_other = pd.MultiIndex.from_frame(rows[by].astype("str")).isin(others)
        summed = totals(rows[is_other], by="asset_id", **window)
        last = _at_end(rows[is_other], ["asset_id"], interval)
        bands.append(_band(f"{len(rest):,} others", OTHERS, summed[summed["known"] > 0], last))
    return bands, int(found["timestamp"].to_numpy("M8[us]").view(np.int64).min())


def _at_end(rows: pd.DataFrame, by: list[str], interval: Interval) -> pd.Series[Any]:
    """Return the total of every group just before the end."""
    start, end = (from_microseconds(moment) for moment in (interval.before - 1, interval.before))
    return totals(rows, by=by, start=start, end=end)["total"]


def _band(label: str, style: Style, known: pd.DataFrame, last: pd.Series[Any]) -> Band:
    times = known["timestamp"].to_numpy("M8[us]").view(np.int64)
    amounts, at_end = (words_of(pa.array(each)) for each in (known["total"], last))
    return Band(label, style, times, amounts, at_end)


def _draw(
    ax: Axes, bands: list[Band], first: int, interval: Interval, unit: Unit, *, shares: bool
) -> list[StepPatch]:
    """Draw bands on top of each other, and return what stands for them in the legend."""
    times = np.sort(np.concatenate([[first], *(band.times for band in bands)]))
    times = times[np.diff(times, prepend=times[0] - 1) != 0]  # np.unique takes ten times as long
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
    held_last = np.array([in_units(to_balances(band.last), unit)[0] for band in bands])
    last = [short_amount(amount) for amount in held_last]
    if shares:
        whole = amounts.sum(axis=0)
        amounts = amounts / np.where(whole, whole, np.nan)
        last = [percent(part) for part in held_last / (held_last.sum() or 1)]
    begins = np.maximum(times[places], interval.start)
    until = seen_until(interval.start, int(begins[-1]), interval.end)
    edges = np.append(begins, until)
    labels = [f"{band.label}, {amount}" for band, amount in zip(bands, last, strict=True)]
    styles = [band.style for band in bands]
    return draw_bands(ax, edges, np.cumsum(amounts, axis=0), styles, labels)[::-1]


def _amounts(band: Band, rows: NDArray[np.int64], unit: Unit) -> NDArray[np.float64]:
    """Return what a band holds at some of its rows; at -1 nothing is known."""
    used, where = np.unique(np.maximum(rows, 0), return_inverse=True)
    amounts = in_units(to_balances(take(band.words, used)), unit)[where]
    return np.where(rows < 0, 0.0, amounts)


def _lacks(steps: Steps, interval: Interval) -> list[Artist]:
    """Return what the legend says of balances that are in no sum."""
    firsts = steps.times[steps.heads]
    late, never = int((firsts > interval.start).sum()), int((firsts >= interval.before).sum())
    if not late:
        return []
    until = "to the end" if never == late else "until their first row"
    words = f"not in it: {late:,} of {len(steps):,} accounts,\nunknown {until}"
    return [note(words if never in {0, late} else f"{words},\n{never:,} of them to the end")]
