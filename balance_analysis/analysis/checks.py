"""The rules of the table, and what may be mended: identical duplicates.

`schema` says what a table is; this module says whether a frame is one, and makes one of it. It also
knows how the rows of a sorted table fall into accounts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from balance_analysis.errors import CheckError
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, to_arrow, to_frame
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

REBUILD = "make a table of it with to_table"


def check_table(table: pd.DataFrame) -> None:
    """Check that a frame is a table of balance changes, by every rule of it.

    The rules, in the order in which they are checked: the columns of `schema.COLUMNS` and no
    others, their dtypes (timestamps in UTC and microseconds), no missing value, sorted by
    `ACCOUNT_KEY`, then `timestamp`, one row per account and timestamp, no negative balance.

    Parameters
    ----------
    table
        Any frame. Categories that no row uses, and any index, are allowed: a selection of a table's
        rows is a table.

    Raises
    ------
    CheckError
        At the first rule that is broken. The message says which, where and what to do; `rows` holds
        the rows at fault, or `None` where the rule is about columns.

    Examples
    --------
    >>> from balance_analysis.frame import empty_table
    >>> check_table(empty_table())
    >>> check_table(empty_table().drop(columns="balance"))
    Traceback (most recent call last):
    balance_analysis.errors.CheckError: the table lacks the columns ['balance']: make ...
    """
    _check_columns(table)
    _check_dtypes(table)
    _check_missing(table)
    _check_order(table)
    _check_unique(table)
    _check_negative(table)


def to_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of balance changes as a table: typed, sorted, each row once.

    Every function that takes a table does this by itself.

    Parameters
    ----------
    table
        Any frame with a table's columns, rows in any order: ids as text, timestamps as datetimes
        (without a time zone UTC), balances as integers, `decimal.Decimal`, Arrow decimals or text
        of digits. Rows that agree in all six columns count once; other columns are left out.

    Returns
    -------
    pandas.DataFrame
        A table, with a fresh index and the frame's attrs.

    Raises
    ------
    ValueError
        If a column or a value is missing, or a value doesn't fit its column.
    TypeError
        If a column is of another kind, such as floats as balances.
    CheckError
        If two rows of one account and timestamp differ in balance: which of them is true can't be
        known. `rows` holds them.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> rows = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01"] * 2, utc=True),
    ...     "balance": pd.array([5, 5], dtype=BALANCE_DTYPE),
    ... })
    >>> len(to_table(rows))
    1
    """
    made = merge_duplicates(to_frame(to_arrow(table)))
    made.attrs = dict(table.attrs)
    return made


def merge_duplicates(table: pd.DataFrame) -> pd.DataFrame:
    """Do what `to_table` does to a frame that `frame.to_frame` has just made."""
    _, repeated = _neighbours(table)
    if not repeated.any():
        return table
    conflicting = repeated & _balance_differs(table)
    if conflicting.any():
        _raise_conflict(table, conflicting)
    return table.loc[np.append(True, ~repeated)].reset_index(drop=True)


def account_numbers(table: pd.DataFrame) -> NDArray[np.int64]:
    """Return for each row of a sorted table its account's number: 0 for the first, then 1, 2 ..."""
    changes = np.zeros(len(table), dtype=np.int64)
    for name in ACCOUNT_KEY:
        codes = table[name].cat.codes.to_numpy()
        changes[1:] |= codes[1:] != codes[:-1]
    return changes.cumsum()


def microseconds(table: pd.DataFrame) -> NDArray[np.int64]:
    """Return the timestamps of a table as microseconds since 1970-01-01 UTC."""
    return table["timestamp"].to_numpy(dtype="M8[us]").view(np.int64)


def _check_columns(table: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise CheckError(f"the table lacks the columns {missing}: {REBUILD}")
    if list(table.columns) != list(COLUMNS):
        raise CheckError(
            f"the table's columns are {list(table.columns)}, not {list(COLUMNS)}: "
            "select them with table[list(schema.COLUMNS)]"
        )


def _check_dtypes(table: pd.DataFrame) -> None:
    for name, dtype in table.dtypes.items():
        if name in ACCOUNT_KEY:
            wanted = "category of str"
            right = isinstance(dtype, pd.CategoricalDtype) and dtype.categories.dtype == "str"
        else:
            expected = TIMESTAMP_DTYPE if name == "timestamp" else BALANCE_DTYPE
            wanted, right = str(expected), dtype == expected
        if not right:
            raise CheckError(
                f"column {name!r} must be {wanted}, not {_dtype_name(dtype)}: {REBUILD}"
            )


def _dtype_name(dtype: object) -> str:
    if isinstance(dtype, pd.CategoricalDtype):
        return f"category of {dtype.categories.dtype}"
    return str(dtype)


def _check_missing(table: pd.DataFrame) -> None:
    missing = table.isna()
    if missing.to_numpy().any():
        names = [name for name in COLUMNS if missing[name].any()]
        rows = table.loc[missing.any(axis=1).to_numpy()]
        raise CheckError(
            f"{len(rows)} rows have no value in {names}, the first at {_place(rows)}: "
            "every field of a balance change is known, so find out where the value was lost",
            rows=rows,
        )


def _check_order(table: pd.DataFrame) -> None:
    backwards, _ = _neighbours(table)
    if backwards.any():
        rows = table.loc[np.append(False, backwards)]
        raise CheckError(
            f"a table is sorted by {', '.join(ACCOUNT_KEY)}, then timestamp, but {len(rows)} rows "
            f"belong before the row above them, the first at {_place(rows)}: "
            "to_table(...) sorts it",
            rows=rows,
        )


def _check_unique(table: pd.DataFrame) -> None:
    _, repeated = _neighbours(table)
    if not repeated.any():
        return
    conflicting = repeated & _balance_differs(table)
    if conflicting.any():
        _raise_conflict(table, conflicting)
    rows = table.loc[_both(repeated)]
    raise CheckError(
        f"an account has one row per timestamp, but {repeated.sum()} rows are identical "
        f"duplicates, the first at {_place(rows)}: to_table(...) drops them",
        rows=rows,
    )


def _raise_conflict(table: pd.DataFrame, conflicting: NDArray[np.bool_]) -> NoReturn:
    rows = table.loc[_both(conflicting)]
    first, second = rows["balance"].iloc[:2]
    raise CheckError(
        f"an account has one balance per timestamp, but {len(rows)} rows are conflicting "
        f"duplicates, the first two, {first} and {second}, at {_place(rows)}: load this time "
        "again, or remove the wrong rows",
        rows=rows,
    )


def _check_negative(table: pd.DataFrame) -> None:
    negative = (table["balance"] < 0).to_numpy(dtype=bool)
    if negative.any():
        rows = table.loc[negative]
        raise CheckError(
            f"a balance is never negative, but {len(rows)} rows have one, the first "
            f"{rows['balance'].iloc[0]} at {_place(rows)}: look into where the rows come from",
            rows=rows,
        )


def _neighbours(table: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where a row belongs before the row above it, and where account and time are the same.

    Both masks begin with the second row.
    """
    backwards = np.zeros(max(len(table) - 1, 0), dtype=bool)
    tied = ~backwards
    for values in (*(_ranks(table[name]) for name in ACCOUNT_KEY), microseconds(table)):
        backwards |= tied & (values[1:] < values[:-1])
        tied &= values[1:] == values[:-1]
    return backwards, tied


def _ranks(ids: pd.Series[Any]) -> NDArray[np.int64]:
    """Return ids as numbers that sort as the ids do, whatever order their categories have."""
    ranks = np.empty(len(ids.cat.categories), dtype=np.int64)
    ranks[ids.cat.categories.argsort()] = np.arange(len(ranks))
    return ranks[ids.cat.codes.to_numpy()]


def _balance_differs(table: pd.DataFrame) -> NDArray[np.bool_]:
    balances = table["balance"].array
    differs = balances[1:] != balances[:-1]
    mask: NDArray[np.bool_] = differs.to_numpy(bool, na_value=False)
    return mask


def _both(pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of rows from a mask of neighbouring pairs."""
    mask: NDArray[np.bool_] = np.append(False, pairs) | np.append(pairs, False)
    return mask


def _place(rows: pd.DataFrame) -> str:
    """Say of which account and when the first of these rows is, and where in the frame."""
    first = rows.iloc[0]
    account = ", ".join(f"{name}={first[name]!r}" for name in ACCOUNT_KEY)
    return f"row {rows.index[0]} ({account}, timestamp={first['timestamp']})"
