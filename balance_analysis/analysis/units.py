"""From an asset's smallest unit to whole units, for drawing and statistics.

This is the one place where an amount becomes a float.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def to_units(data: pd.DataFrame, decimals: Mapping[str, int]) -> pd.DataFrame:
    """Return amounts in whole units of their asset, as the nearest float64.

    Parameters
    ----------
    data
        A table, or any frame with `asset_id` and columns of Arrow decimals, such as `balance_at`
        and `summarize_accounts` return.
    decimals
        How many decimals each asset has: {asset_id: decimals}. An asset of 18 decimals has 10**18
        smallest units in a whole one. Assets that don't occur in `data` are ignored.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of Arrow decimals is float64: the exact quotient,
        rounded once to the nearest float. NA becomes NaN.

    Raises
    ------
    ValueError
        If an asset in `data` has no entry in `decimals`, or one below 0.
    TypeError
        If a number of decimals is not an integer.

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
    assets = data["asset_id"].astype("str").to_numpy(dtype=object)
    scales = _scales(assets, decimals)
    rows_of = {asset: np.flatnonzero(assets == asset) for asset in scales}
    amounts = [name for name, dtype in data.dtypes.items() if _is_decimal(dtype)]
    return data.assign(**{str(name): _divide(data[name], rows_of, scales) for name in amounts})


def _scales(assets: NDArray[Any], decimals: Mapping[str, int]) -> dict[str, int]:
    """Return how many smallest units a whole one of each asset has."""
    present = pd.unique(assets)
    missing = [asset for asset in present if asset not in decimals]
    if missing:
        raise ValueError(
            f"decimals has no entry for the assets {missing}: add how many decimals each has, "
            "0 to leave its amounts in the smallest unit"
        )
    places = {asset: operator.index(decimals[asset]) for asset in present}
    for asset, count in places.items():
        if count < 0:
            raise ValueError(f"asset {asset!r} can't have {count} decimals")
    return {asset: 10**count for asset, count in places.items()}


def _is_decimal(dtype: object) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def _divide(
    column: pd.Series[Any], rows_of: Mapping[str, NDArray[np.int64]], scales: Mapping[str, int]
) -> NDArray[np.float64]:
    amounts = pa.array(column)
    result = np.full(len(amounts), np.nan)
    for asset, rows in rows_of.items():
        scale = scales[asset]
        # Python divides integers of any size with a single rounding; numpy would round twice.
        quotients = [
            np.nan if amount is None else int(amount) / scale
            for amount in amounts.take(pa.array(rows)).to_pylist()
        ]
        result[rows] = quotients
    return result
