"""Check whether a frame is a table, and convert frames to tables.

`schema` defines a table. Identical duplicates are the only fault that is mended.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.errors import CheckError, check_frame
from balance_analysis.table.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, to_arrow, to_frame
from balance_analysis.table.known import (
    ROWS_KEY,
    Stated,
    note_known,
    note_rows,
    read_notes,
    to_known,
)
from balance_analysis.table.moments import Instant, to_microseconds
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, COLUMNS

_REBUILD: Final = "convert it with to_table"
_DTYPES: Final = {"timestamp": str(TIMESTAMP_DTYPE), "balance": str(BALANCE_DTYPE)}


def check_table(table: pd.DataFrame) -> None:
    """Check that a frame meets every rule of a table of balance changes.

    The rules, in the order in which they are checked: the columns of `schema.COLUMNS` and no
    others, their dtypes (timestamps in UTC and microseconds), no missing value, sorted by
    `ACCOUNT_KEY`, then `timestamp`, one row per account and timestamp, no negative balance.

    Parameters
    ----------
    table
        Any frame. Unused categories and any index are allowed: a selection of a table's rows is a
        table.

    Raises
    ------
    CheckError
        At the first broken rule. The message says which, where and what to do; `rows` holds the
        faulty rows, or `None` if the rule is about columns.

    Examples
    --------
    >>> import pandas as pd
    >>> table = to_table(pd.DataFrame(columns=list(COLUMNS)))
    >>> check_table(table)
    >>> check_table(table.drop(columns="balance"))
    Traceback (most recent call last):
    balance_analysis.errors.CheckError: the table lacks the columns ['balance']: convert ...
    """
    check_frame(table)
    _check_columns(table)
    missing = table.isna()
    names = [name for name in COLUMNS if missing[name].any()]
    _refuse(
        table,
        missing.any(axis=1).to_numpy(),
        f"have no value in {names}",
        "every field of a balance change is known, so find out where the value was lost",
    )
    backwards, repeated = _neighbours(table)
    order = f"a table is sorted by {', '.join(ACCOUNT_KEY)}, then timestamp: to_table(...) sorts it"
    _refuse(table, np.append(False, backwards), "belong before the row above them", order)
    _refuse_conflicts(table, repeated)
    twice = "are identical duplicates, of one account and timestamp"
    _refuse(table, _both(repeated), twice, "to_table(...) drops them")
    negative = (table["balance"] < 0).to_numpy(dtype=bool)
    below = "have a balance below 0"
    _refuse(table, negative, below, "it is never negative, so look into where the rows come from")


def to_table(
    table: pd.DataFrame,
    *,
    known: Stated | None = None,
    start: Instant | None = None,
    nothing_before: bool = False,
) -> pd.DataFrame:
    """Convert a frame of balance changes to a table: typed, sorted, without duplicates.

    Every function that takes a table does this itself. Call it to state in which intervals your
    rows are complete; a table without such a statement is assumed to have every change.

    Parameters
    ----------
    table
        Any frame with a table's columns, its rows in any order: ids as text, timestamps as
        datetimes (UTC if without a time zone), balances as integers, `decimal.Decimal`, Arrow
        decimals or text of digits. Rows that agree in all six columns count once; other columns
        are dropped.
    known
        Intervals [start, end) in which the frame has every change of all accounts; UTC if without
        a time zone. Outside them, a balance is unknown until the account's next row. By default
        those in the frame's attrs.
    start
        The moment since which the frame has every change. Older rows are openings: each account's
        last row before `start`, under its own timestamp. They set the balance held at `start` and
        aren't changes. If `known` has a gap between an opening and `start`, the balance at `start`
        is unknown. By default the one in the frame's attrs.
    nothing_before
        Whether an account without an opening held nothing before its first row.

    Returns
    -------
    pandas.DataFrame
        A table, with a new index and the frame's attrs, which hold its known intervals.

    Raises
    ------
    ValueError
        If a column or a value is missing, a value doesn't fit its column, or `known` or `start` is
        invalid.
    TypeError
        If a column has the wrong type, such as float balances.
    CheckError
        If two rows of one account and timestamp differ in balance, because nothing tells which is
        right. `rows` holds them.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.table.frame import BALANCE_DTYPE
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
    metadata = made.attrs.get(ATTRS_KEY)
    is_stated = known is not None or start is not None or nothing_before
    if is_stated:
        spans = read_notes(metadata).known if known is None else to_known(known)
        since = None if start is None else to_microseconds(start)
        note_known(made, spans, since, nothing_before=nothing_before)
    if is_stated or ROWS_KEY not in (metadata or {}):
        note_rows(made)
    return made


def is_typed(table: pd.DataFrame) -> bool:
    """Return whether a frame has a table's columns, each once and with its dtype."""
    if not isinstance(table, pd.DataFrame) or not table.columns.is_unique:
        return False
    return {*COLUMNS} <= {*table} and not _wrong_dtypes(table)


def sorted_ids(ids: pd.Categorical) -> pd.Categorical:
    """Return ids whose categories are sorted and all in use."""
    categories = ids.categories
    is_used = np.zeros(len(categories), bool)
    is_used[ids.codes] = True
    if is_used.all() and categories.is_monotonic_increasing and categories.dtype == "str":
        return ids
    return ids.set_categories(pd.Index(sorted(categories[is_used]), dtype="str"))


def merge_duplicates(table: pd.DataFrame) -> pd.DataFrame:
    """Drop identical duplicates from a sorted frame, as returned by `frame.to_frame`."""
    _, repeated = _neighbours(table)
    if not repeated.any():
        return table
    _refuse_conflicts(table, repeated)
    return table.loc[np.append(True, ~repeated)].reset_index(drop=True)


def microseconds(table: pd.DataFrame, name: str = "timestamp") -> NDArray[np.int64]:
    """Return a table's column of moments as microseconds since 1970-01-01 UTC."""
    return table[name].to_numpy(dtype="M8[us]").view(np.int64)


def _check_columns(table: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise CheckError(f"the table lacks the columns {missing}: {_REBUILD}")
    if list(table.columns) != list(COLUMNS):
        raise CheckError(
            f"the table's columns are {list(table.columns)}, not {list(COLUMNS)}: "
            "select them with table[list(schema.COLUMNS)]"
        )
    for fault in _wrong_dtypes(table):
        raise CheckError(f"column {fault}: {_REBUILD}")


def _wrong_dtypes(table: pd.DataFrame) -> list[str]:
    """Return each of a table's columns that has another dtype, with both dtypes."""
    faults, dtypes = [], table.dtypes
    for name in COLUMNS:
        wanted, actual = _DTYPES.get(name, "category of str"), str(dtypes[name])
        if isinstance(dtypes[name], pd.CategoricalDtype):
            actual = f"category of {dtypes[name].categories.dtype}"
        if actual != wanted:
            faults.append(f"{name!r} must be {wanted}, not {actual}")
    return faults


def _refuse(table: pd.DataFrame, faulty: NDArray[np.bool_], what: str, hint: str) -> None:
    """Raise CheckError with the faulty rows, if any; the message describes the first."""
    if not faulty.any():
        return
    rows = table.loc[faulty]
    first = ", ".join(
        f"{name}={value}" if name in {"timestamp", "balance"} else f"{name}={value!r}"
        for name, value in rows.iloc[0].items()
    )
    raise CheckError(
        f"{len(rows)} rows {what}, the first of them row {rows.index[0]} ({first}): {hint}",
        rows=rows,
    )


def _refuse_conflicts(table: pd.DataFrame, repeated: NDArray[np.bool_]) -> None:
    """Raise CheckError if rows of one account and timestamp differ in balance."""
    balances = table["balance"].array
    conflicting = repeated & (balances[1:] != balances[:-1]).to_numpy(bool, na_value=False)
    if conflicting.any():
        both = _both(conflicting)
        pair = " and ".join(map(str, balances[both][:2]))
        what = f"are conflicting duplicates, the first two, {pair}"
        _refuse(table, both, what, "load this time again, or remove the wrong rows")


def _neighbours(table: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows belong before the row above, and which repeat its account and time.

    Both masks begin at the second row.
    """
    backwards = np.zeros(max(len(table) - 1, 0), dtype=bool)
    tied = ~backwards
    codes = (sorted_ids(table[name].array).codes for name in ACCOUNT_KEY)
    for values in (*codes, microseconds(table)):
        backwards |= tied & (values[1:] < values[:-1])
        tied &= values[1:] == values[:-1]
    return backwards, tied


def _both(pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of rows from a mask of neighbouring pairs; empty if there are no rows."""
    mask: NDArray[np.bool_] = np.append(False, pairs) | np.append(pairs, False)
    return mask
