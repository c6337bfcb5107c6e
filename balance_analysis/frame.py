"""The table as a pandas DataFrame: what `schema` declares, in pandas' dtypes.

Everything that is called a *table* in this package is what `to_frame` returns.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa

from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, BALANCE_DIGITS, COLUMNS

BALANCE_DTYPE: Final = pd.ArrowDtype(pa.decimal128(BALANCE_DIGITS, 0))
TIMESTAMP_DTYPE: Final = pd.DatetimeTZDtype("us", "UTC")


def to_arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table, or any frame with its columns, as Arrow in its schema, rows as they stand.

    Raises
    ------
    ValueError
        If a column or a value is missing, or a value doesn't fit its column.
    TypeError
        If a column has a type that its column can't be made of, such as a float as a balance.
    """
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f"not a table of balance changes: it has no column {', '.join(missing)}")
    if pd.api.types.is_float_dtype(table["balance"].dtype):
        raise TypeError(
            "balances are floats, which lose digits; make them Arrow decimals or integers"
        )
    columns = table[list(COLUMNS)]
    if pd.api.types.is_integer_dtype(columns["balance"].dtype):
        columns = columns.assign(balance=columns["balance"].astype(BALANCE_DTYPE))
    return pa.Table.from_pandas(
        columns, schema=ARROW_SCHEMA, preserve_index=False
    ).replace_schema_metadata(None)


def to_frame(arrow: pa.Table, *, sort: bool = True) -> pd.DataFrame:
    """Return Arrow rows as a table: typed, sorted, with a fresh index.

    Parameters
    ----------
    arrow
        The columns of `ARROW_SCHEMA` in any order and any chunks; ids may be plain strings.
    sort
        Whether to bring the rows into the table's order. Without, they stand as they came.

    Returns
    -------
    pandas.DataFrame
        Columns `asset_id`, `account_type`, `party_id`, `market_id` (category of str, categories
        sorted and all in use), `timestamp` (datetime64[us, UTC]) and `balance`
        (decimal128(38, 0)[pyarrow], in the asset's smallest unit), sorted by `ACCOUNT_KEY`, then
        `timestamp`. The same rows give an equal table, whatever order and chunks they came in.
    """
    rows = canonical(arrow, sort=sort)
    ids = {name: rows[name].chunk(0) for name in ACCOUNT_KEY}
    times = rows["timestamp"].cast(pa.int64()).to_numpy()
    return pd.DataFrame(
        {
            **{
                name: pd.Categorical.from_codes(
                    column.indices, categories=pd.Index(column.dictionary.to_pylist(), dtype="str")
                )
                for name, column in ids.items()
            },
            "timestamp": pd.Series(times.view("M8[us]")).dt.tz_localize("UTC"),
            "balance": pd.Series(pd.arrays.ArrowExtensionArray(rows["balance"])),
        }
    )


def empty_table() -> pd.DataFrame:
    """Return a table of no rows, with all columns and dtypes."""
    return to_frame(ARROW_SCHEMA.empty_table())
