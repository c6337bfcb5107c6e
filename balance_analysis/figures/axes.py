"""What every figure has: its Axes, a legend beside it, and a y axis of amounts or shares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter, ScalarFormatter

from balance_analysis.analysis.units import to_units
from balance_analysis.errors import check_type
from balance_analysis.schema import to_microseconds
from balance_analysis.text import moment_text, short_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.assets import AssetsLike
    from balance_analysis.schema import Instant

Decimals: TypeAlias = "int | AssetsLike"
"""How many decimals the asset of a figure has, or what `to_units` takes."""

_READABLE: Final = (1e3, 1e15)
"""From 1 k to 1000 T: prefixes beyond, such as Z or m, are not what people expect of amounts."""

_LINE_HEIGHT: Final = 1.75
"""Of a line in a legend, in sizes of its font."""

_SMALL, _SMALLEST = 8.5, 5.0


def new_axes(ax: Axes | None, *, size: tuple[float, float] = (10, 4.5)) -> Axes:
    """Return the given Axes, or that of a new figure of `matplotlib.pyplot`."""
    if ax is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

        ax = plt.subplots(figsize=size, layout="constrained")[1]
    ax.set_xlabel("UTC", loc="left")  # short: the date of the ticks stands on its right
    return ax


def inches(ax: Axes) -> tuple[float, float]:
    """Return how wide and high an Axes is, about: its legend has no room yet."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return box.width / dpi, box.height / dpi


def ink(ax: Axes) -> Any:  # noqa: ANN401 - a colour as matplotlib has them
    """Return the colour of an Axes' own words, which stands out on its background."""
    return ax.xaxis.label.get_color()


def check_columns(frame: pd.DataFrame, source: str, names: Sequence[str]) -> None:
    """Raise where a frame that isn't what a source returns lacks columns.

    Raises
    ------
    ValueError
        It says which.
    """
    check_type(frame, pd.DataFrame, f"the frame of {source}")
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(
            f"expected the frame of {source}; this one has no column {', '.join(missing)}"
        )


def explain(
    ax: Axes, words: str, *, start: Instant | None = None, end: Instant | None = None
) -> Axes:
    """Say why there is nothing to see between two moments, as far as they are given."""
    bounds = " ".join(
        f"{word} {date_text(to_microseconds(bound))}"
        for word, bound in (("from", start), ("to", end))
        if bound is not None
    )
    words = f"{words}\n{bounds}" if bounds else words
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
    return ax


def date_text(microseconds: int) -> str:
    """Return a moment in words; of midnight the date alone."""
    text = moment_text(microseconds, "seconds")
    return text if microseconds % 86_400_000_000 else text.removesuffix(" 00:00:00 UTC")


def note(words: str) -> Line2D:
    """Return an entry of a legend that has words only."""
    return Line2D([], [], linestyle="none", label=words)


def legend_beside(ax: Axes, handles: Sequence[Artist], *, title: str = "") -> None:
    """Put a legend to the right of an Axes, in letters small enough for its height."""
    title, *labels = (
        words.replace(" · market", "\nmarket")
        for words in (title, *(str(handle.get_label()) for handle in handles))
    )
    lines = sum(words.count("\n") + 1 for words in (*labels, title))
    size = min(_SMALL, max(_SMALLEST, 72 * inches(ax)[1] / lines / _LINE_HEIGHT))
    ax.legend(
        handles,
        labels,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        borderaxespad=0,
        fontsize=size,
        title_fontsize=size,
        alignment="left",
        frameon=False,
    )


@dataclass(frozen=True, slots=True)
class Unit:
    """In what amounts of an asset are drawn, and how that is called.

    Attributes
    ----------
    asset
        The asset; `None` where there is no account.
    decimals
        For whole units, as the functions take it; `None` for the smallest unit.
    symbol
        What a whole unit is called, if that is known.
    """

    asset: str | None
    decimals: Decimals | None = None
    symbol: str | None = None

    def scale(
        self, amounts: pd.api.extensions.ExtensionArray | pd.Series[Any]
    ) -> NDArray[np.float64]:
        """Return amounts for drawing: the one place where they are floats; NA becomes NaN.

        Raises
        ------
        ValueError
            If the decimals lack the asset, or their file isn't as described in `to_units`.
        OSError
            If that can't be read.
        """
        places = self.decimals
        if not isinstance(places, Mapping | str | os.PathLike):
            places = {str(self.asset): places or 0}
        column = pd.DataFrame({"amount": amounts})
        column.insert(0, "asset_id", pd.Series(self.asset, index=column.index, dtype="str"))
        return to_units(column, places)["amount"].to_numpy(np.float64)

    def axis_label(self, measure: str) -> str:
        """Return what an axis of amounts shows: a measure in which unit, and of which asset.

        Examples
        --------
        >>> print(Unit("993ed98f4f770d91a796faab17385511", 6, "USDT").axis_label("total"))
        total (USDT)
        asset 993ed9…5511
        """
        name = self.symbol or "whole units"
        if self.decimals is None:
            name = f"smallest unit of {self.symbol}" if self.symbol else "smallest unit"
        return f"{measure} ({name})\nasset {self._asset}" if self.asset else measure

    def share_label(self, measure: str) -> str:
        """Return what an axis of shares shows, and of which asset."""
        return f"{measure}\nasset {self.symbol or self._asset}" if self.asset else measure

    @property
    def _asset(self) -> str:
        return short_ids([self.asset])[self.asset] if self.asset else ""


def only_asset(accounts: pd.DataFrame) -> str | None:
    """Return the asset of some accounts, or `None` where there are none.

    Raises
    ------
    ValueError
        If there is more than one: amounts of different assets never share an axis.
    """
    assets = sorted(accounts["asset_id"].astype("str").unique())
    if len(assets) > 1:
        raise ValueError(
            f"one plot shows one asset, but the table has {len(assets)}: {assets}; "
            f'select one with table[table["asset_id"] == {assets[0]!r}]'
        )
    return assets[0] if assets else None


def format_amounts(ax: Axes, unit: Unit) -> None:
    """Let the y axis show amounts, with a grid."""
    low, high = ax.dataLim.intervaly
    top = max(abs(low), abs(high))
    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=not unit.decimals))
    # k, M, G and T where people read them and they tell ticks apart, else powers of ten.
    if _READABLE[0] <= top < _READABLE[1] and (low == high or high - low > top / 1e3):
        ax.yaxis.set_major_formatter(EngFormatter())
    else:
        formatter = ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-3, 4))
        ax.yaxis.set_major_formatter(formatter)
    if low == high == 0:
        ax.set_ylim(-0.05, 1.05)
    draw_grid(ax)


def format_shares(ax: Axes) -> None:
    """Let the y axis show parts of a whole, with a grid."""
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, 1)
    draw_grid(ax)


def draw_grid(ax: Axes, axis: Literal["both", "x"] = "both") -> None:
    """Draw faint lines behind the data."""
    ax.grid(visible=True, axis=axis, alpha=0.3)
    ax.set_axisbelow(True)


def format_lanes(ax: Axes, names: Sequence[str]) -> None:
    """Let the y axis show a lane for each name, from top to bottom."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    draw_grid(ax, "x")


def short_amount(amount: float) -> str:
    """Return an amount in few digits, as `1.23 M`."""
    if amount == 0 or _READABLE[0] <= abs(amount) < _READABLE[1]:
        return EngFormatter(places=2 if amount else 0)(amount)
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
