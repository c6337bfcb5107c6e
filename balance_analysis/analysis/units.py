"""From an asset's smallest unit to whole units, for drawing and statistics.

This is the one place where an amount becomes a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.errors import check_frame
from balance_analysis.frame import is_amounts, to_amounts
from balance_analysis.labels import UNITS_KEY, with_names
from balance_analysis.names import AssetsLike, Names, carried, names_in, names_of
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.text import list_text

Units: TypeAlias = "AssetsLike | bool"
"""The assets whose whole units amounts are wanted in; `True` stands for the table's own."""


def in_units(result: pd.DataFrame, units: Units | None, attrs: Mapping[Any, Any]) -> pd.DataFrame:
    """Return what was made of a table, in whole units if these are asked for: see `to_units`.

    Where the table's attrs carry names, those of the result do as well, and a long result has the
    columns `symbol` and `label` in front, as of `labelled`, unless it has such columns itself.
    """
    told, result = result.attrs, pd.DataFrame(result)
    result.attrs = told
    if carried(names := attrs.get(ATTRS_KEY)):
        if {*ACCOUNT_KEY} & {*result.columns}:
            result = with_names(result, names_in(names))
        result.attrs[ATTRS_KEY] = {**result.attrs.get(ATTRS_KEY, {}), **carried(names)}
    if units is None or units is False:
        return result
    return to_units(result, None if units is True else units)


def to_units(data: pd.DataFrame, assets: AssetsLike | None = None) -> pd.DataFrame:
    """Return amounts in whole units of their asset, as the nearest float64.

    Parameters
    ----------
    data
        A table, or any frame with `asset_id` and columns of Arrow decimals, such as `balance_at`
        and `summarize_accounts` return; or one that has `asset_id` as a level of its columns, such
        as `balance_series` returns.
    assets
        What `read_assets` takes: {asset_id: decimals}, or more about each, or a file of that; by
        default those that the attrs of `data` tell. An asset of 18 decimals has 10**18 smallest
        units in a whole one. Assets that don't occur in `data` are ignored.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of amounts is float64: the exact quotient, rounded
        once to the nearest float. NA becomes NaN. Amounts are Arrow decimals, objects that are
        `Decimal` or integers, and whatever the column `balance` has; other integers are counts.

    Raises
    ------
    ValueError
        If an asset in `data` is not described, or the file isn't as `read_assets` wants it.
    TypeError
        If `data` has no column of amounts.
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
    check_frame(data)
    known = names_of(data, assets)
    if "asset_id" in data.columns.names:
        return _wide_to_units(data, known)
    if "asset_id" not in data:
        raise ValueError("the frame has no column asset_id, which tells the unit of its amounts")
    ids = pd.Categorical(data["asset_id"])
    names = [*map(str, ids.categories), "NA"]
    rows_of = {names[code]: np.flatnonzero(ids.codes == code) for code in np.unique(ids.codes)}
    decimals = _decimals(rows_of, known)
    amounts = {str(name): column for name, column in data.items() if is_amounts(column)}
    if not amounts:
        raise TypeError(
            "the frame has no column of amounts: Arrow decimals, Decimal, or whole numbers of any "
            "size as Python's"
        )
    whole = {name: np.full(len(data), np.nan) for name in amounts}
    for name, column in amounts.items():
        exact = to_amounts(column, allow_missing=True)
        for asset, rows in rows_of.items():
            whole[name][rows] = _in_whole_units(exact.take(pa.array(rows)), decimals[asset])
    return _noted(data.assign(**whole), rows_of, known)


def to_integers(data: pd.DataFrame) -> pd.DataFrame:
    """Return amounts as Python's integers, with which pandas computes exactly.

    Parameters
    ----------
    data
        A table, or any frame with amounts, in the long or the wide layout: see `to_units`.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of amounts is of object: integers of any size, NA
        where one is missing.

    Raises
    ------
    TypeError
        If `data` is no frame, or amounts are floats.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"balance": pd.array([10**37, 9 * 10**37], dtype=BALANCE_DTYPE)})
    >>> to_integers(data)["balance"].sum()
    100000000000000000000000000000000000000
    """
    check_frame(data)
    exact = data.copy()
    for place in range(data.shape[1]):
        column = data.iloc[:, place]
        if is_amounts(column):
            amounts = to_amounts(column, allow_missing=True).to_pylist()
            numbers = [pd.NA if amount is None else int(amount) for amount in amounts]
            exact.isetitem(place, pd.array(numbers, dtype=object))
    return exact


def _wide_to_units(data: pd.DataFrame, known: Names) -> pd.DataFrame:
    """Return a frame whose columns belong to assets in whole units."""
    assets = [str(asset) for asset in data.columns.get_level_values("asset_id")]
    decimals = _decimals(assets, known)
    columns: dict[int, Any] = {}
    for place, asset in enumerate(assets):
        column = columns[place] = data.iloc[:, place].rename(None)
        if is_amounts(column):
            amounts = to_amounts(column, allow_missing=True)
            columns[place] = _in_whole_units(amounts, decimals[asset])
    whole = pd.DataFrame(columns, index=data.index).set_axis(data.columns, axis="columns")
    whole.attrs.update(data.attrs)
    return _noted(whole, assets, known)


def _noted(whole: pd.DataFrame, assets: Iterable[str], known: Names) -> pd.DataFrame:
    """Note in the attrs of a frame which whole units it has, by asset, and return it."""
    units = dict(known.shown("asset_id", assets))
    whole.attrs[ATTRS_KEY] = {**whole.attrs.get(ATTRS_KEY, {}), UNITS_KEY: units}
    return whole


def _decimals(assets: Iterable[str], known: Names) -> dict[str, int]:
    """Return how many decimals each asset has."""
    present = list(dict.fromkeys(assets))
    missing = [asset for asset in present if asset not in known.assets]
    if missing:
        raise ValueError(
            f"how many decimals the assets {list_text(missing)} have is not known: give assets, "
            "such as a .toml, .csv or .json file of them (--assets FILE); 0 leaves amounts as "
            "they are"
        )
    return {asset: known.assets[asset].decimals for asset in present}


def _in_whole_units(amounts: pa.Array[Any], decimals: int) -> NDArray[np.float64]:
    """Return decimals of 38 digits divided by a power of ten, NaN where one is missing."""
    # Arrow rounds the float of a decimal more than once, that of its text once.
    texts = pc.binary_join_element_wise(amounts.cast(pa.string()), f"e-{decimals}", "")
    floats = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(floats, np.float64)
