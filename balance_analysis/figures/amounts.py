"""Axes of amounts, of one asset and in one unit; the one place of figures where they are floats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter, ScalarFormatter

from balance_analysis.analysis.units import Decimals as DecimalsOfAssets
from balance_analysis.analysis.units import to_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter
    from numpy.typing import NDArray

Decimals = int | DecimalsOfAssets
"""How many decimals the asset of a figure has, or what `to_units` takes."""

_READABLE: Final = (1e3, 1e15)
"""From 1 k to 1000 T: prefixes beyond, such as Z or m, are not what people expect of amounts."""


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


@dataclass(frozen=True, slots=True)
class Unit:
    """In what amounts of an asset are drawn.

    Attributes
    ----------
    asset
        The asset.
    decimals
        How many it has, as a number, {asset_id: decimals} or the path of a file of that, for whole
        units; `None` for its smallest unit.
    """

    asset: str
    decimals: Decimals | None


def in_units(
    amounts: pd.api.extensions.ExtensionArray | pd.Series[Any], unit: Unit
) -> NDArray[np.float64]:
    """Return amounts for drawing; NA becomes NaN.

    Raises
    ------
    ValueError
        If the decimals lack the asset, or their file isn't as described in `to_units`.
    OSError
        If that can't be read.
    """
    places = unit.decimals
    if not isinstance(places, Mapping | str | os.PathLike):
        places = {unit.asset: places or 0}
    column = pd.DataFrame({"amount": amounts})
    column.insert(0, "asset_id", pd.Series(unit.asset, index=column.index, dtype="str"))
    return to_units(column, places)["amount"].to_numpy(np.float64)


class _TicksFrom(MaxNLocator):
    """Ticks that don't stand below a floor."""

    def __init__(self, floor: float, **options: Any) -> None:  # noqa: ANN401 - of the locator
        super().__init__(**options)
        self._floor = floor

    def tick_values(self, vmin: float, vmax: float) -> Any:  # noqa: ANN401 - an array
        ticks = np.asarray(super().tick_values(max(vmin, self._floor), vmax))
        return ticks[ticks >= self._floor]


def make_room_below(ax: Axes, part: float, *, whole: bool) -> None:
    """Make room for a part of the Axes below its amounts, where there are no ticks, nor a scale."""
    low, high = ax.get_ylim()
    ax.set_ylim(low - (high - low) * part / (1 - part), high)
    ax.yaxis.set_major_locator(_TicksFrom(low, **_ticks(whole=whole)))
    ax.axhline(low, color=ax.spines["bottom"].get_edgecolor(), linewidth=0.8)


def _ticks(*, whole: bool) -> dict[str, Any]:
    return {"nbins": "auto", "steps": [1, 2, 5, 10], "integer": not whole}


def format_amounts(ax: Axes, *, whole: bool) -> None:
    """Let the y axis show amounts, with a grid; `whole` is whether they are in whole units."""
    low, high = ax.dataLim.intervaly
    ax.yaxis.set_major_locator(MaxNLocator(**_ticks(whole=whole)))
    ax.yaxis.set_major_formatter(_amount_formatter(low, high))
    if low == high == 0:
        ax.set_ylim(-0.05, 1.05)
    draw_grid(ax)


def format_shares(ax: Axes) -> None:
    """Let the y axis show parts of a whole, with a grid."""
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, 1)
    draw_grid(ax)


def draw_grid(ax: Axes) -> None:
    """Draw faint lines behind the data."""
    ax.grid(visible=True, alpha=0.3)
    ax.set_axisbelow(True)


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


def _amount_formatter(low: float, high: float) -> Formatter:
    """Return k, M, G and T where people read them and they tell ticks apart, else powers of ten."""
    top = max(abs(low), abs(high))
    if _READABLE[0] <= top < _READABLE[1] and (low == high or high - low > top / 1e3):
        return EngFormatter()
    formatter = ScalarFormatter(useMathText=True)
    formatter.set_powerlimits((-3, 4))
    return formatter
