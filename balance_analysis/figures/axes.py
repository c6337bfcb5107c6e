"""What every figure has: its table and Axes, what amounts are called, and a y axis of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from numpy.typing import ArrayLike, NDArray

from balance_analysis.analysis.downsampling import downsample, levels_in, sort_keys, starts_of_known
from balance_analysis.analysis.grid import Frequency, Grid
from balance_analysis.analysis.history import History, Source, are_known, open_history
from balance_analysis.analysis.steps import Steps
from balance_analysis.analysis.totals import merged
from balance_analysis.analysis.units import to_units
from balance_analysis.figures.layout import finish, points_of
from balance_analysis.figures.times import (
    Extent,
    date_text,
    period_name,
    shade_limits,
    show_interval,
)
from balance_analysis.names import Assets, AssetsLike, LabelsLike, Names
from balance_analysis.schema import ACCOUNT_KEY, Instant, to_microseconds
from balance_analysis.spans import Span, joined

_READABLE: Final = (1e3, 1e15)
"""From 1 k to 1000 T: prefixes beyond, such as Z or m, are not what people expect of amounts."""

_DOMINANT: Final = 50
"""How many times as much as half of the others have makes these invisible beside it."""

_TICK: Final = 24
"""Points between two ticks of a logarithmic axis."""

_COLUMNS: Final = 600 / 72
"""To a point: as fine as print, of which a screen has a sixth."""


@dataclass(frozen=True)
class Chart:
    """A figure of a table: what a caller asks of it, and what follows from that.

    Attributes
    ----------
    source
        The table or the archive.
    given
        The Axes to draw into; `None` for that of a new figure, which is made when it is needed.
    start, end, assets, labels, title, limits
        As for `plot_balances`.
    freq
        The periods of the history, if it has any.
    size
        Of a new figure, in inches.
    mixes_assets
        Whether accounts of several assets go together, as no amounts are drawn.
    by
        The columns that make a holder.
    """

    source: Source
    given: Axes | None
    start: Instant | None
    end: Instant | None
    assets: AssetsLike | None
    labels: LabelsLike | None
    title: str | None
    limits: pd.DataFrame | None = None
    freq: Frequency | None = None
    size: tuple[float, float] = (10, 4.5)
    mixes_assets: bool = False
    by: str | Sequence[str] = tuple(ACCOUNT_KEY)

    def __post_init__(self) -> None:
        """Refuse what can't be drawn, before a figure is made."""
        _ = self.unit, self.interval

    @cached_property
    def history(self) -> History:
        """What the table tells."""
        return merged(open_history(self.source), self.by)

    @property
    def left_out(self) -> list[str]:
        """What the legend says of accounts that the table can't have."""
        return ["without accounts of which no row is known"] if self.history.left_out else []

    @cached_property
    def over(self) -> tuple[Steps, Grid]:
        """The accounts, as far as they are known, and the periods."""
        return self.history.over(self.freq, start=self.start, end=self.end)

    @cached_property
    def interval(self) -> Extent:
        """What to show: by default from the first row to the end of what is known, or the last row.

        It is empty where that is nothing.
        """
        (steps, grid), known = self.over, self.history.known
        times, edges = steps.extent, grid.edges[[0, -1]] if len(grid) else np.zeros(2, np.int64)
        begin, stop = edges.tolist()
        is_before = self.start is None and len(times) > 0 and stop <= times.min()
        if not len(grid) or not len(steps) or is_before:
            return Extent(begin, begin, begin)
        if self.end is not None or (known and known[-1][1] == stop):
            return Extent(begin, stop, stop, known)
        last = int(times.max(initial=begin - 1))
        return Extent(begin, last, last + 1, known)

    @cached_property
    def periods(self) -> Extent:
        """All periods, and as known those of which every part is."""
        edges = self.over[1].edges
        is_known = are_known(self.history.known, edges[:-1], edges[1:])
        spans = compress(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True), is_known)
        known = None if self.history.known is None else tuple(joined(spans))
        return Extent(int(edges[0]), int(edges[-1]), int(edges[-1]), known)

    @cached_property
    def names(self) -> Names:
        """What the assets and accounts are called."""
        return self.history.names.but(self.assets, self.labels)

    @cached_property
    def unit(self) -> Unit:
        """In what amounts are drawn; none where assets may go together, and do."""
        ids = sorted(self.history.accounts["asset_id"].astype("str").unique())
        if self.mixes_assets and len(ids) > 1:
            return Unit()
        return unit_of(ids, self.names.assets)

    @cached_property
    def ax(self) -> Axes:
        """The Axes to draw into."""
        return new_axes(self.given, size=self.size)

    @property
    def columns(self) -> int:
        """How many columns the Axes has that nobody can tell apart."""
        return max(int(points_of(self.ax)[0] * _COLUMNS), 1)

    def levels(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the steps of one account: their times, words, and whether they are known."""
        account, shown = self.over[0].part(number, number + 1), self.interval
        return levels_in(account, shown.start, shown.before, since=shown.start)[:3]

    def thinned(
        self, times: NDArray[np.int64], is_known: NDArray[np.bool_], *words: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return which steps to draw: as many as can be told apart."""
        keys, starts_known = map(sort_keys, words), starts_of_known(is_known)
        return downsample(times, *keys, columns=self.columns, starts_known=starts_known)

    def label(self, measure: str) -> Axes:
        """Return the Axes, whose y axis shows amounts of something."""
        self.ax.set_ylabel(self.unit.axis_label(measure))
        return self.ax

    def each_period(self, measure: str) -> str:
        """Return what is measured in each period."""
        return measure if self.freq is None else f"{measure} per {period_name(self.freq)}"

    def show(self, interval: Extent, *, unknown: Iterable[Span] = ()) -> list[Artist]:
        """Let the x axis show an interval; return what a legend shows for hatches and limits."""
        hatches = show_interval(self.ax, interval, unknown=unknown)
        return [*hatches, *shade_limits(self.ax, self.limits)]

    def explain(self, words: str) -> Axes:
        """Say why there is nothing to see in the interval."""
        asked = " ".join(
            f"{word} {date_text(to_microseconds(bound))}"
            for word, bound in (("from", self.start), ("to", self.end))
            if bound is not None
        )
        return explain(self.ax, f"{words}\n{asked}".rstrip(), self.title)

    def finish(self, words: str, handles: Sequence[Artist], **legend: Any) -> Axes:  # noqa: ANN401 - see `finish`
        """Give the figure its legend, and its title: by default words behind the asset's name."""
        title = self.unit.title(words) if self.title is None else self.title
        return finish(self.ax, title, handles, **legend)


def new_axes(ax: Axes | None, *, size: tuple[float, float]) -> Axes:
    """Return the given Axes, or that of a new figure of `matplotlib.pyplot`."""
    if ax is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

        ax = plt.subplots(figsize=size, layout="constrained")[1]
    if ax.xaxis.get_visible() and ax.xaxis.get_tick_params().get("labelbottom", True):
        ax.set_xlabel("UTC", loc="left")  # short: the date of the ticks stands on its right
    return ax


def explain(ax: Axes, words: str, title: str | None) -> Axes:
    """Say why there is nothing to see."""
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title or "", loc="left", parse_math=False)
    return ax


@dataclass(frozen=True, slots=True)
class Unit:
    """In what amounts of an asset are drawn, and how that is called.

    Attributes
    ----------
    asset
        The asset; "" where there is no account.
    decimals
        For whole units; `None`, where it isn't known, for the smallest unit.
    label
        What the asset is called: its symbol, or its id, shortened.
    """

    asset: str = ""
    decimals: int | None = None
    label: str = ""

    def scale(
        self, amounts: pd.api.extensions.ExtensionArray | pd.Series[Any]
    ) -> NDArray[np.float64]:
        """Return amounts for drawing: the one place where they are floats; NA becomes NaN."""
        column = pd.DataFrame({"amount": amounts})
        column.insert(0, "asset_id", pd.Series(self.asset, index=column.index, dtype="str"))
        return to_units(column, {self.asset: self.decimals or 0})["amount"].to_numpy(np.float64)

    def axis_label(self, measure: str) -> str:
        """Return what an axis of amounts shows: a measure, and in which unit.

        Examples
        --------
        >>> Unit("993ed98f4f770d91", 6, "USDT").axis_label("total")
        'total (USDT)'
        >>> print(Unit("993ed98f4f770d91", None, "993ed9…0d91").axis_label("total"))
        total
        (smallest unit of 993ed9…0d91)
        """
        if self.decimals is not None:
            return f"{measure} ({self.label})"
        return f"{measure}\n(smallest unit of {self.label})" if self.asset else measure

    def title(self, words: str) -> str:
        """Return a title of words that follow the name of the asset, such as `USDT balances`."""
        return f"{self.label} {words}" if self.asset else words.capitalize()


def unit_of(ids: Sequence[str], known: Assets) -> Unit:
    """Return the unit of the one asset that is drawn, among those that are known.

    Raises
    ------
    ValueError
        If there is more than one: amounts of different assets never share an axis.
    """
    if len(ids) > 1:
        raise ValueError(
            f"one plot shows one asset, but the table has {len(ids)}: "
            f"{', '.join(known.labels(ids).values())}; "
            f'select one with table[table["asset_id"] == {ids[0]!r}]'
        )
    if not ids:
        return Unit()
    decimals = known[ids[0]].decimals if ids[0] in known else None
    return Unit(ids[0], decimals, known.label(ids[0]))


def format_amounts(ax: Axes, unit: Unit, *, tops: Sequence[float] = ()) -> None:
    """Let the y axis show amounts, with a grid.

    Parameters
    ----------
    tops
        The largest amount of each line: where one of them hides others, the axis is logarithmic,
        and says so.
    """
    low, high = ax.dataLim.intervaly
    top = max(abs(low), abs(high))
    is_readable = _READABLE[0] <= top < _READABLE[1]
    if least := _least_seen(tops):
        measure, *unit_line = ax.get_ylabel().split("\n")
        ax.set_ylabel("\n".join([f"{measure}, log scale", *unit_line]))
        powers = np.arange(np.log10(least).round(), np.log10(top) + 1)
        step = int(len(powers) * _TICK // points_of(ax)[1] + 1)
        ax.set_yscale("symlog", linthresh=least, linscale=step)
        ax.yaxis.set_major_locator(ticker.FixedLocator([0, *10.0 ** powers[::step]]))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        whole = not unit.decimals
        ax.yaxis.set_major_locator(ticker.MaxNLocator("auto", steps=[1, 2, 5, 10], integer=whole))
    # k, M, G and T where people read them and they tell ticks apart, else powers of ten.
    if least:
        ax.yaxis.set_major_formatter(lambda amount, _: _power(amount))
    elif is_readable and (low == high or high - low > top / 1e3):
        ax.yaxis.set_major_formatter(ticker.EngFormatter())
    else:
        formatter = ticker.ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-3, 4))
        ax.yaxis.set_major_formatter(formatter)
    if low == high == 0:
        ax.set_ylim(-0.05, 1.05)
    draw_grid(ax)


def _power(amount: float) -> str:
    if amount == 0 or _READABLE[0] <= amount < _READABLE[1] or 0.01 <= amount < 1000:  # noqa: PLR2004 - as people write them
        return f"{amount:g}" if amount < _READABLE[0] else ticker.EngFormatter()(amount)
    return f"$10^{{{np.log10(amount):.0f}}}$"


def _least_seen(tops: Sequence[float]) -> float:
    """Return the power of ten below the tops that show, if the largest hides others, else 0.

    What is a billionth of the largest, or less, is dust, which stays at 0.
    """
    seen = sorted(top for top in tops if top > 0)
    if len(seen) < 2 or np.median(seen[:-1]) * _DOMINANT > seen[-1]:  # noqa: PLR2004 - others
        return 0
    return float(10.0 ** np.floor(np.log10(max(seen[0], seen[-1] / 1e9))))


def format_shares(ax: Axes) -> None:
    """Let the y axis show parts of a whole, with a grid."""
    ax.set_ylabel("share of the known total")
    ax.set_yticks(np.linspace(0, 1, 5))
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    ax.set_ylim(0, 1)
    draw_grid(ax)


def draw_grid(ax: Axes, axis: Literal["both", "x"] = "both") -> None:
    """Draw faint lines behind the data."""
    ax.grid(visible=True, axis=axis, alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def draw_boxes(
    ax: Axes,
    *edges: ArrayLike,
    **style: Any,  # noqa: ANN401 - of patches
) -> PolyCollection:
    """Draw boxes, by their left, right, lower and upper edges, and return them."""
    left, right, low, high = np.broadcast_arrays(*edges)
    corners = np.array([(left, low), (left, high), (right, high), (right, low)])
    boxes = PolyCollection(list(np.moveaxis(corners, -1, 0)), **style)
    ax.add_collection(boxes)
    return boxes


def short_amount(amount: float) -> str:
    """Return an amount in few digits, as `1.23 M`."""
    if amount == 0 or _READABLE[0] <= abs(amount) < _READABLE[1]:
        return ticker.EngFormatter(places=2 if amount else 0)(amount)
    return f"{amount:.4g}"


def percent(part: float) -> str:
    """Return a part of a whole in words that don't round it to nothing or to all.

    Examples
    --------
    >>> [percent(part) for part in (0, 0.001, 0.5, 0.9999, 1)]
    ['0%', '<1%', '50%', '>99%', '100%']
    """
    if 0 < part < 0.005:  # noqa: PLR2004 - it would be rounded to 0
        return "<1%"
    if 0.995 <= part < 1:  # noqa: PLR2004 - it would be rounded to 1
        return ">99%"
    return f"{part:.0%}"
