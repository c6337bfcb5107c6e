"""The parts that all figures share: data and Axes, units of amounts, titles and legends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.font_manager import font_scalings
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from balance_analysis.analysis.door import to_units
from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import History, Source, open_history
from balance_analysis.analysis.steps import Steps, levels_in
from balance_analysis.analysis.totals import merged
from balance_analysis.figures.times import Extent, date_text, shade_limits, show_interval
from balance_analysis.table.moments import Moment, Span, to_microseconds
from balance_analysis.table.names import AssetsLike, LabelsLike, Names
from balance_analysis.table.schema import ACCOUNT_KEY, Ints, Mask
from balance_analysis.table.text import truncated

PIXELS: Final = 6_000
"""Columns of pixels in a figure: 600 per inch of a new figure, as fine as print."""

PLAIN: Final[dict[str, Any]] = {"parse_math": False, "usetex": False}
"""Text arguments that keep matplotlib from reading names as formulas."""

_READABLE: Final = (1e3, 1e15)
"""Amounts in this range get a prefix from k to T; prefixes such as Z or m are unusual for them."""

_LETTERS: Final = 30
"""Characters per line of a legend, and of an asset's name; a title's line has twice as many."""

_SMALLEST: Final = 5.0
"""Smallest font size of a legend (in points)."""


@dataclass(frozen=True)
class Chart:
    """The arguments of a plotting function, and the data and texts derived from them.

    Attributes
    ----------
    source
        The table or the archive.
    given
        The Axes to draw into; if `None`, a new figure is made when it is needed.
    start, end, assets, labels, title, limits
        As for `plot_balances`.
    by
        The columns that identify a holder.
    """

    source: Source
    given: Axes | None
    start: Moment | None
    end: Moment | None
    assets: AssetsLike | None
    labels: LabelsLike | None
    title: str | None
    limits: pd.DataFrame | None = None
    by: str | Sequence[str] = tuple(ACCOUNT_KEY)

    @cached_property
    def history(self) -> History:
        """The history of the accounts, or of the holders if `by` merges accounts."""
        return merged(open_history(self.source, start=self.start, end=self.end), self.by)

    @cached_property
    def steps_and_grid(self) -> tuple[Steps, Grid]:
        """The known steps of the accounts, and the requested interval as a grid."""
        grid = self.history.grid(start=self.start, end=self.end)
        return self.history.over(grid), grid

    @cached_property
    def interval(self) -> Extent:
        """The interval to show; empty if there is nothing to show.

        By default it goes from the first row to the end of the known intervals, else to the last
        row.
        """
        (steps, grid), known = self.steps_and_grid, self.history.known
        times = self.history.extent
        edges = grid.edges[[0, -1]] if len(grid) else np.zeros(2, np.int64)
        begin, stop = edges.tolist()
        is_before = self.start is None and len(times) > 0 and stop <= times.min()
        if not len(grid) or not (len(steps) or len(times)) or is_before:
            return Extent(begin, begin, begin)
        if self.end is not None or (known and known[-1][1] == stop):
            return Extent(begin, stop, stop, known)
        last = int(times.max(initial=begin - 1))
        return Extent(begin, last, last + 1, known)

    @cached_property
    def names(self) -> Names:
        """The names of the assets and accounts."""
        return self.history.names.overridden_by(self.assets, self.labels)

    @cached_property
    def unit(self) -> Unit:
        """The unit of the amounts.

        Raises
        ------
        ValueError
            If there is more than one asset.
        """
        ids = sorted(self.history.accounts["asset_id"].astype("str").unique())
        assets, shown = self.names.assets, self.names.shown("asset_id", ids)
        if len(ids) > 1:
            raise ValueError(
                f"one plot shows one asset, but the table has {len(ids)}: "
                f"{', '.join(shown.values())}; "
                f"select one: table.balances.select(asset_id={shown[ids[0]]!r})"
            )
        if not ids:
            return Unit()
        decimals = assets[ids[0]].decimals if ids[0] in assets else None
        return Unit(ids[0], decimals, truncated(shown[ids[0]], _LETTERS))

    @cached_property
    def ax(self) -> Axes:
        """The Axes to draw into."""
        return new_axes(self.given)

    def levels(self, number: int) -> tuple[Ints, Ints, Mask]:
        """Return one account's steps: their times, 128-bit words, and whether they are known."""
        account, shown = self.steps_and_grid[0].part(number, number + 1), self.interval
        return levels_in(account, shown.start, shown.before, since=shown.start)[:3]

    def label(self, measure: str) -> Axes:
        """Label the y axis with a measure and its unit, and return the Axes.

        Data that can't be drawn is refused before a figure is made.
        """
        words, _ = self.unit.axis_label(measure), self.interval
        self.ax.set_ylabel(words, wrap=True, **PLAIN)
        return self.ax

    def show(self, interval: Extent, *, unknown: Iterable[Span] = ()) -> list[Artist]:
        """Let the x axis show an interval; return legend handles for hatches and limits."""
        hatches = show_interval(self.ax, interval, unknown=unknown)
        return [*hatches, *shade_limits(self.ax, self.limits)]

    def explain(self, words: str) -> Axes:
        """Write on the Axes why the interval shows nothing."""
        asked = " ".join(
            f"{word} {date_text(to_microseconds(bound))}"
            for word, bound in (("from", self.start), ("to", self.end))
            if bound is not None
        )
        return explain(self.ax, f"{words}\n{asked}".rstrip(), self.title)

    def finish(self, words: str, handles: Sequence[Artist], *, notes: Sequence[str] = ()) -> Axes:
        """Add the legend, and the title: by default the asset's name followed by `words`."""
        unit = self.unit
        default = f"{unit.label} {words}" if unit.asset else words.capitalize()
        return finish(self.ax, default if self.title is None else self.title, handles, notes=notes)


def new_axes(ax: Axes | None, *, height: float = 4.5) -> Axes:
    """Return the given Axes, or those of a new `matplotlib.pyplot` figure.

    A figure without a layout engine gets the constrained one, which makes room for all texts.

    Raises
    ------
    ValueError
        If pandas drew periods on the Axes, or on one that shares its x axis: the axis then counts
        days or months, not moments.
    """
    if ax is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

        ax = plt.subplots(figsize=(10, height), layout="constrained")[1]
    freqs = (getattr(each, "freq", None) for each in ax.get_shared_x_axes().get_siblings(ax))
    if freq := next(filter(None, freqs), None):
        raise ValueError(
            f"pandas drew periods ({freq}) on this x axis, which then can't show moments; draw "
            "there with .plot(x_compat=True), or take another Axes"
        )
    figure = ax.get_figure(root=True)
    if figure is not None and figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    return ax


def explain(ax: Axes, words: str, title: str | None) -> Axes:
    """Write on the Axes why it shows nothing."""
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes, **PLAIN)
    ax.set(xticks=[], yticks=[])
    return finish(ax, title or "")


def finish(
    ax: Axes, title: str, handles: Sequence[Artist] = (), *, notes: Sequence[str] = ()
) -> Axes:
    """Add a title, and a legend beside the Axes with the lines of `notes` above its entries.

    The legend is inside if the Axes isn't in a grid, as an inset, or has its ticks at the right.
    """
    words = textwrap.fill(title, 2 * _LETTERS)
    ax.set_title(words, loc="left", fontsize="medium", wrap=True, **PLAIN)
    if handles or notes:
        entries = [textwrap.fill(str(each.get_label()), _LETTERS) for each in handles]
        above = "\n".join(textwrap.fill(each, _LETTERS) for each in notes)
        size = _letter_size(ax, "\n".join([above, *entries]).count("\n") + 1)
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False}
        is_free = ax.get_subplotspec() and ax.yaxis.get_ticks_position() != "right"
        options = beside if is_free else {"loc": "best"}
        options |= {"title": above, "title_fontsize": size, "fontsize": size, "alignment": "left"}
        artists = handles or [Line2D([], [], linestyle="none")]
        legend = ax.legend(artists, entries or [" "], **options)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set(**PLAIN)
    return ax


def _letter_size(ax: Axes, lines: int) -> float:
    """Return a font size for a legend (in points) that leaves room for data beside it.

    It is matplotlib's "small", or less if the Axes is narrow or low.
    """
    # In units of the font size, a legend and as much room for data are 43 wide, a line 1.6 high.
    fitting = min(ax.bbox.width / 43, ax.bbox.height / (1.6 * lines)) * 72 / ax.figure.dpi
    return float(np.clip(fitting, _SMALLEST, font_scalings["small"] * mpl.rcParams["font.size"]))


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit in which an asset's amounts are drawn, and the unit's name.

    Attributes
    ----------
    asset
        The asset; "" if there is no account.
    decimals
        The asset's decimals, to draw whole units; `None` if unknown, to draw the smallest unit.
    label
        The asset's symbol or its id, shortened.
    """

    asset: str = ""
    decimals: int | None = None
    label: str = ""

    def scale(
        self, amounts: pd.api.extensions.ExtensionArray | pd.Series[Any]
    ) -> NDArray[np.float64]:
        """Convert amounts to floats for drawing; NA becomes NaN."""
        column = pd.DataFrame({"amount": amounts}).assign(asset_id=self.asset)
        return to_units(column, {self.asset: self.decimals or 0})["amount"].to_numpy(np.float64)

    def axis_label(self, measure: str) -> str:
        """Return the label of an axis of amounts: a measure and its unit.

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


def format_amounts(ax: Axes, unit: Unit) -> None:
    """Let the y axis show amounts, with a grid."""
    low, high = ax.dataLim.intervaly
    top = max(abs(low), abs(high))
    ax.yaxis.set_major_locator(
        ticker.MaxNLocator("auto", steps=[1, 2, 5, 10], integer=not unit.decimals)
    )
    # k, M, G and T if they are readable and distinguish the ticks, else powers of ten.
    if _READABLE[0] <= top < _READABLE[1] and (low == high or high - low > top / 1e3):
        ax.yaxis.set_major_formatter(ticker.EngFormatter())
    else:
        formatter = ticker.ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-3, 4))
        ax.yaxis.set_major_formatter(formatter)
    if low == high == 0:
        ax.set_ylim(-0.05, 1.05)
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
    """Draw boxes with the given left, right, lower and upper edges, and return them."""
    left, right, low, high = np.broadcast_arrays(*edges)
    corners = np.array([(left, low), (left, high), (right, high), (right, low)])
    boxes = PolyCollection(list(np.moveaxis(corners, -1, 0)), **style)
    ax.add_collection(boxes)
    return boxes


def short_amount(amount: float) -> str:
    """Return an amount with few digits, such as `1.23 M`."""
    if amount == 0 or _READABLE[0] <= abs(amount) < _READABLE[1]:
        # A legend must not break the line between a number and its prefix.
        return ticker.EngFormatter(places=2 if amount else 0, sep="\u00a0", usetex=False)(amount)
    return f"{amount:.4g}"


def percent(part: float) -> str:
    """Return a part of a whole as a percentage that isn't rounded to 0% or 100%.

    Examples
    --------
    >>> [percent(part) for part in (0, 0.001, 0.5, 0.9999, 1)]
    ['0%', '<1%', '50%', '>99%', '100%']
    """
    text = f"{part:.0%}"
    return {"0%": "<1%", "100%": ">99%"}.get(text, text) if 0 < part < 1 else text
