"""From an asset's smallest unit to whole units, for drawing and statistics.

This is the one place where an amount becomes a float.
"""

from __future__ import annotations

import csv
import operator
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.int128 import integers_of, words_of
from balance_analysis.frame import to_amounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Decimals = Mapping[str, int] | str | os.PathLike[str]
"""How many decimals each asset has: {asset_id: decimals}, or a CSV or TOML file of that."""


def to_units(data: pd.DataFrame, decimals: Decimals) -> pd.DataFrame:
    """Return amounts in whole units of their asset, as the nearest float64.

    Parameters
    ----------
    data
        A table, or any frame with `asset_id` and columns of Arrow decimals, such as `balance_at`
        and `summarize_accounts` return; or one that has `asset_id` as a level of its columns, such
        as `balance_series` returns.
    decimals
        How many decimals each asset has. An asset of 18 decimals has 10**18 smallest units in a
        whole one. Assets that don't occur in `data` are ignored. Either {asset_id: decimals}; or
        the path of a .csv file with the columns `asset_id` and `decimals`, among others; or of a
        .toml file with a table for each asset, `[asset_id]`, that has `decimals = 18`, or with
        lines `asset_id = 18`.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of amounts is float64: the exact quotient, rounded
        once to the nearest float. NA becomes NaN. Amounts are Arrow decimals, objects that are
        `Decimal` or integers, and whatever the column `balance` has; other integers are counts.

    Raises
    ------
    ValueError
        If an asset in `data` has no entry in `decimals`, or one below 0, or the file isn't as
        described.
    TypeError
        If a number of decimals is not an integer, or `data` has no column of amounts.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"asset_id": ["USDT", "VEGA"],
    ...                      "balance": pd.array([1_500_000, 2 * 10**18], dtype=BALANCE_DTYPE)})
    >>> to_units(data, {"USDT": 6, "VEGA": 18})
      asset_id  balance
    0     USDT      1.5
    1     VEGA      2.0
    """
    places = read_decimals(decimals)
    if "asset_id" in data.columns.names:
        return _wide_to_units(data, places)
    if "asset_id" not in data:
        raise ValueError("the frame has no column asset_id, which tells the unit of its amounts")
    assets = data["asset_id"].astype("str").to_numpy(dtype=object)
    scales = _scales(pd.unique(assets), places)
    rows_of = {asset: np.flatnonzero(assets == asset) for asset in scales}
    amounts = {str(name): column for name, column in data.items() if _is_amounts(column)}
    if not amounts:
        raise TypeError(
            "the frame has no column of amounts: Arrow decimals, Decimal, or whole numbers of any "
            "size as Python's"
        )
    return data.assign(
        **{
            name: _divide(to_amounts(column, may_lack=True), rows_of, scales)
            for name, column in amounts.items()
        }
    )


def read_decimals(decimals: Decimals) -> Mapping[str, int]:
    """Return how many decimals each asset has, as `to_units` takes them.

    Raises
    ------
    ValueError, TypeError
        If it is neither, or the file isn't as described there.
    OSError
        If it can't be read.
    """
    if isinstance(decimals, Mapping):
        return decimals
    if not isinstance(decimals, str | os.PathLike):
        raise TypeError(
            f"decimals must be {{asset_id: decimals}} or the path of a file, not {decimals!r}"
        )
    file = Path(decimals)
    readers = {".csv": _read_csv, ".toml": _read_toml}
    if file.suffix.lower() not in readers:
        raise ValueError(f"{file}: decimals stand in a .csv or a .toml file")
    found: dict[str, int] = {}
    for asset, count in readers[file.suffix.lower()](file):
        if not str(count).strip().isdecimal():
            raise ValueError(
                f"{file}: asset {asset!r} needs decimals, a whole number, not {count!r}"
            )
        if found.setdefault(asset, int(count)) != int(count):
            raise ValueError(f"{file}: asset {asset!r} has {found[asset]} and {count} decimals")
    return found


def _read_csv(file: Path) -> Iterator[tuple[str, Any]]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines)
        missing = {"asset_id", "decimals"} - set(rows.fieldnames or ())
        if missing:
            raise ValueError(f"{file} has no column {', '.join(sorted(missing))}")
        for row in rows:
            yield row["asset_id"], row["decimals"]


def _read_toml(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} is no TOML: {error}") from error
    for asset, about in content.items():
        yield asset, about.get("decimals") if isinstance(about, dict) else about


def _wide_to_units(data: pd.DataFrame, decimals: Mapping[str, int]) -> pd.DataFrame:
    """Return a frame whose columns belong to assets in whole units."""
    assets = [str(asset) for asset in data.columns.get_level_values("asset_id")]
    scales = _scales(assets, decimals)
    everything = np.arange(len(data))
    columns = {
        place: _divide(pa.array(data.iloc[:, place]), {asset: everything}, scales)
        for place, asset in enumerate(assets)
    }
    return pd.DataFrame(columns, index=data.index).set_axis(data.columns, axis="columns")


def _scales(assets: Iterable[str], decimals: Mapping[str, int]) -> dict[str, int]:
    """Return how many smallest units a whole one of each asset has."""
    present = list(dict.fromkeys(assets))
    missing = [asset for asset in present if asset not in decimals]
    if missing:
        raise ValueError(
            f"decimals has no entry for the assets {missing}: add how many decimals each has, "
            "0 to leave its amounts in the smallest unit"
        )
    places = {asset: operator.index(decimals[asset]) for asset in present}
    below = [asset for asset, count in places.items() if count < 0]
    if below:
        raise ValueError(f"asset {below[0]!r} can't have {places[below[0]]} decimals")
    return {asset: 10**count for asset, count in places.items()}


def _is_amounts(column: pd.Series[Any]) -> bool:
    """Whether a column is of amounts: counts are plain integers, which are none."""
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        return True
    if dtype == "object" and pd.api.types.infer_dtype(column) in {"decimal", "integer"}:
        return True
    return column.name == "balance" and not pd.api.types.is_float_dtype(dtype)


def _divide(
    amounts: pa.Array[Any] | pa.ChunkedArray[Any],
    rows_of: Mapping[str, NDArray[np.int64]],
    scales: Mapping[str, int],
) -> NDArray[np.float64]:
    result = np.full(len(amounts), np.nan)
    words, is_known = words_of(amounts), amounts.is_valid().to_numpy(zero_copy_only=False)
    for asset, rows in rows_of.items():
        known, scale = rows[is_known[rows]], scales[asset]
        # Python divides integers of any size with a single rounding; numpy would round twice.
        result[known] = [amount / scale for amount in integers_of(words[known])]
    return result
