"""Amounts as text: every digit, grouped, in the unit that the reader knows."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from balance_analysis.analysis.int128 import integers_of, words_of
from balance_analysis.analysis.units import read_decimals
from balance_analysis.text import short_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from balance_analysis.analysis.units import Decimals

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class AssetUnit:
    """What amounts of an asset are shown in.

    Attributes
    ----------
    asset_id
        The asset.
    decimals
        How many decimals it has; `None` where that is not known, and amounts stay in its smallest
        unit.
    symbol
        What a whole unit is called; `None` where that is not known.
    """

    asset_id: str
    decimals: int | None = None
    symbol: str | None = None

    @property
    def label(self) -> str:
        """What stands in the head of a column."""
        if self.decimals is None:
            return "smallest unit"
        return self.symbol or "whole units"

    def write(self, amounts: Sequence[int | None]) -> list[str]:
        """Return the amounts of a column, in the same number of decimals, as few as all need.

        Parameters
        ----------
        amounts
            In the smallest unit; `None` is unknown.

        Examples
        --------
        >>> AssetUnit("USDT", 6).write([1_234_500_000, -20_000, None])
        ['1,234.50', '-0.02', 'unknown']
        """
        decimals = self.decimals or 0
        needed = decimals - min(
            (_trailing_zeros(amount, decimals) for amount in amounts if amount), default=decimals
        )
        return [
            UNKNOWN if amount is None else _write(amount, decimals, needed) for amount in amounts
        ]


def _trailing_zeros(amount: int, most: int) -> int:
    digits = str(abs(amount))
    return min(len(digits) - len(digits.rstrip("0")), most)


def _write(amount: int, decimals: int, needed: int) -> str:
    whole, fraction = divmod(abs(amount), 10**decimals)
    sign = "-" if amount < 0 else ""
    if not needed:
        return f"{sign}{whole:,}"
    return f"{sign}{whole:,}.{str(fraction).zfill(decimals)[:needed]}"


def integers(column: pd.Series[Any]) -> list[int | None]:
    """Return a column of amounts as Python integers, `None` where it is NA."""
    values = pa.array(column.array)
    known = values.is_valid().to_pylist()
    numbers = integers_of(words_of(values))
    return [number if valid else None for number, valid in zip(numbers, known, strict=True)]


def read_units(assets: Iterable[str], decimals: Decimals | None) -> dict[str, AssetUnit]:
    """Return what each asset is shown in.

    Parameters
    ----------
    assets
        The assets of a report.
    decimals
        As `to_units` takes it; a TOML file may tell the `symbol` of each asset as well. An asset
        that it doesn't tell stays in its smallest unit.

    Raises
    ------
    ValueError, TypeError
        If it is malformed.
    OSError
        If the file can't be read.
    """
    known, symbols = _read(decimals)
    for asset, count in known.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"asset {asset!r} can't have {count!r} decimals")
    return {asset: AssetUnit(asset, known.get(asset), symbols.get(asset)) for asset in assets}


def _read(decimals: Decimals | None) -> tuple[Mapping[str, int], dict[str, str]]:
    if decimals is None:
        return {}, {}
    if isinstance(decimals, Mapping):
        return decimals, {}
    if not isinstance(decimals, str | os.PathLike):
        raise TypeError(
            f"decimals must be {{asset_id: decimals}} or the path of a file, not {decimals!r}"
        )
    known, file = read_decimals(decimals), Path(decimals)
    if file.suffix.lower() != ".toml":
        return known, {}
    entries = tomllib.loads(file.read_text(encoding="utf-8")).items()
    symbols = {
        asset: about["symbol"]
        for asset, about in entries
        if isinstance(about, dict) and isinstance(about.get("symbol"), str) and about["symbol"]
    }
    return known, symbols


def asset_names(units: Mapping[str, AssetUnit]) -> dict[str, str]:
    """Return what each asset is called in a heading: its symbol, where it has one, and its id."""
    short = short_ids(units)
    return {
        asset: f"{unit.symbol} ({short[asset]})" if unit.symbol else short[asset]
        for asset, unit in units.items()
    }
