"""The table as a pandas DataFrame: what `schema` declares, in pandas' dtypes.

A *table* in this package is a frame as `to_frame` returns it. This module converts frames to tables
and to Arrow, and checks whether a frame is a table. Identical duplicates are the only fault that it
repairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.errors import CheckError, check_frame
from balance_analysis.table import schema
from balance_analysis.table.known import Stated, merge_notes, note_known, note_rows, read_notes
from balance_analysis.table.moments import Moment
from balance_analysis.table.schema import Ints, Mask
from balance_analysis.table.text import count_text

BALANCE_DTYPE: Final = pd.ArrowDtype(pa.decimal128(schema.BALANCE_DIGITS, 0))
TIMESTAMP_DTYPE: Final = pd.DatetimeTZDtype("us", "UTC")

_REBUILD: Final = "convert it with to_table"
_DTYPES: Final = {"timestamp": str(TIMESTAMP_DTYPE), "balance": str(BALANCE_DTYPE)}
_TEXT: Final = (pa.string(), pa.large_string())


class _AnyFrame(type):
    """A metaclass that makes every frame an instance, as `assert_frame_equal` requires."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pd.DataFrame)


class Table(pd.DataFrame, metaclass=_AnyFrame):
    """A table whose attrs survive `concat` and `merge`, where pandas drops attrs that differ.

    `concat` merges the attrs of tables. Otherwise the first frame's attrs stay, and functions
    notice lost rows.
    """

    @property
    def _constructor(self) -> type[Table]:
        return Table

    def __finalize__(
        self,
        other: Any,  # noqa: ANN401 - pandas' own
        method: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - pandas' own
    ) -> Table:
        super().__finalize__(other, method=method, **kwargs)  # type: ignore[misc]
        if method in {"concat", "merge"}:
            notes = [part.attrs.get(schema.ATTRS_KEY) for part in other.input_objs]
            is_table = {*schema.COLUMNS} <= {*self.columns} and self.columns.is_unique
            if method == "concat" and is_table and any(note != notes[0] for note in notes):
                merge_notes(self, other.input_objs)
            elif noted := next(filter(None, notes), None):
                self.attrs[schema.ATTRS_KEY] = {**noted}
        return self


def to_arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table, or any frame with its columns, as Arrow in `ARROW_SCHEMA`, in the same order.

    Parameters
    ----------
    table
        Ids as text or categories of text, timestamps as datetimes (UTC without a time zone),
        balances as Arrow decimals, integers of any kind, `decimal.Decimal` or text of digits.

    Raises
    ------
    ValueError
        If a column or a value is missing, or a value doesn't fit its column.
    TypeError
        If `table` isn't a frame, or a column's type can't be converted, such as floats as balances.
    """
    check_frame(table)
    missing = [name for name in schema.COLUMNS if name not in table]
    if missing:
        raise ValueError(f"not a table of balance changes: it has no column {', '.join(missing)}")
    twice = [name for name in schema.COLUMNS if isinstance(table[name], pd.DataFrame)]
    if twice:
        raise ValueError(f"a table must have each column once, but repeats {', '.join(twice)}")
    if table.empty:  # its columns may have any type
        return schema.ARROW_SCHEMA.empty_table()
    columns = [
        *(_to_ids(table[name]) for name in schema.ACCOUNT_KEY),
        _to_moments(table["timestamp"]),
        to_amounts(table["balance"]),
    ]
    return pa.table(columns, schema=schema.ARROW_SCHEMA)


def _to_ids(column: pd.Series[Any]) -> pa.Array[Any]:
    _check_has_values(column)
    ids = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    categories = ids.cat.categories
    if pd.api.types.infer_dtype(categories) not in {"string", "empty"}:
        raise TypeError(f"column {column.name} must be text, not {categories.dtype}")
    codes = pa.array(ids.cat.codes.to_numpy().astype("int32"))
    return pa.DictionaryArray.from_arrays(codes, pa.array(categories.astype("str"), pa.string()))


def _to_moments(column: pd.Series[Any]) -> pa.Array[Any]:
    _check_has_values(column)
    if not pd.api.types.infer_dtype(column).startswith("datetime"):
        raise TypeError(
            f"column {column.name} must be datetimes, not {column.dtype}: "
            "make them with pd.to_datetime(..., utc=True)"
        )
    moments = pa.array(pd.DatetimeIndex(pd.to_datetime(column, utc=True)))
    try:
        return moments.cast(schema.ARROW_SCHEMA.field("timestamp").type)
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {column.name} isn't in whole microseconds: {error}") from error


def to_amounts(column: pd.Series[Any], *, allow_missing: bool = False) -> pa.Array[Any]:
    """Return whole numbers as Arrow decimals of 38 digits.

    Parameters
    ----------
    column
        Arrow decimals, integers of any kind, `decimal.Decimal` or text of digits.
    allow_missing
        Whether values may be missing.

    Raises
    ------
    ValueError
        If a value is missing, isn't a whole number, or has more than 38 digits.
    TypeError
        If values are floats, or aren't numbers.
    """
    if not allow_missing:
        _check_has_values(column)
    name, dtype, wanted = column.name, column.dtype, BALANCE_DTYPE.pyarrow_dtype
    if pd.api.types.is_float_dtype(dtype) or pd.api.types.is_bool_dtype(dtype):
        raise TypeError(f"column {name} is {dtype}, which loses digits: use whole numbers")
    is_arrow = isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)
    if is_arrow or pd.api.types.is_integer_dtype(dtype):
        amounts = pa.array(column, from_pandas=True)
        amounts = amounts.combine_chunks() if isinstance(amounts, pa.ChunkedArray) else amounts
        try:
            return amounts.cast(wanted)
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {name} has amounts that aren't whole: {error}") from error
    return pa.array([_to_integer(*pair, name=name) for pair in column.items()], wanted)


def is_amounts(column: pd.Series[Any]) -> bool:
    """Whether a column has amounts. Plain integers are counts, except in `balance`."""
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        return True
    if dtype == "object" and pd.api.types.infer_dtype(column) in {"decimal", "integer"}:
        return True
    return column.name == "balance" and not pd.api.types.is_float_dtype(dtype)


def _to_integer(label: object, value: object, *, name: object) -> int | None:
    """Return a value as an integer of at most 38 digits; `None` if missing."""
    if value is None or value is pd.NA or value != value:  # noqa: PLR0124 - NaN differs from itself
        return None
    if isinstance(value, float | bool) or not isinstance(value, int | str | Decimal | np.integer):
        raise TypeError(
            f"column {name} has {value!r} in row {label!r}: amounts are integers, Decimal or text "
            "of digits"
        )
    try:
        number = int(value)
    except (ValueError, ArithmeticError):
        number = None
    is_whole = number is not None and (number == value or isinstance(value, str))
    if number is None or not is_whole or abs(number) >= 10**schema.BALANCE_DIGITS:
        raise ValueError(
            f"column {name} has {value!r} in row {label!r}, not a whole number of at most "
            f"{schema.BALANCE_DIGITS} digits"
        )
    return number


def _check_has_values(column: pd.Series[Any]) -> None:
    missing = column.isna().to_numpy().nonzero()[0]
    if len(missing):
        hint = "; write '' for no market" if column.name == "market_id" else ""
        raise ValueError(
            f"column {column.name} lacks a value in {count_text(len(missing), 'row')}, first in "
            f"row {column.index[missing[0]]!r}{hint}"
        )


def to_frame(arrow: pa.Table, *, sort: bool = True) -> pd.DataFrame:
    """Return Arrow rows as a table: typed, sorted, with a fresh index.

    Parameters
    ----------
    arrow
        The columns of `ARROW_SCHEMA` in any order and any chunks; ids may be plain strings.
    sort
        Whether to sort the rows into the table's order. Otherwise they keep their order.

    Returns
    -------
    pandas.DataFrame
        Columns `asset_id`, `account_type`, `party_id`, `market_id` (category of str, categories
        sorted and all in use), `timestamp` (datetime64[us, UTC]) and `balance`
        (decimal128(38, 0)[pyarrow], in the asset's smallest unit), sorted by `ACCOUNT_KEY`, then
        `timestamp`. The same rows give an equal table, whatever their order and chunks.
    """
    return frame_of(schema.canonical(arrow, sort=sort))


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Return rows as `canonical` returns them, in the table's order, as a table; see `to_frame`."""
    ids = (categories_of(rows[name].chunk(0)) for name in schema.ACCOUNT_KEY)
    return frame_from(ids, rows["timestamp"].cast(pa.int64()).to_numpy().copy(), rows["balance"])


def frame_from(
    ids: Iterable[pd.Categorical], times: Ints, balances: pa.ChunkedArray
) -> pd.DataFrame:
    """Return columns (times in microseconds) as a table, without copying them."""
    columns: dict[str, Any] = dict(zip(schema.ACCOUNT_KEY, ids, strict=True))
    columns["timestamp"] = pd.array(times, dtype=TIMESTAMP_DTYPE, copy=False)
    columns["balance"] = pd.arrays.ArrowExtensionArray(balances)
    return Table(columns, copy=False)


def categories_of(column: pa.DictionaryArray, counts: Ints | None = None) -> pd.Categorical:
    """Return ids as a table's column; with `counts`, each id is repeated by its count."""
    kind = pd.CategoricalDtype(pd.Index(column.dictionary.to_pylist(), dtype="str"))
    ids = pd.Categorical.from_codes(column.indices, dtype=kind)
    if counts is None:
        return ids
    return pd.Categorical.from_codes(np.repeat(ids.codes, counts), dtype=kind)


def to_columns(rows: pa.Table) -> pd.DataFrame:
    """Return some of a table's columns in its dtypes, with rows in the same order."""
    types = {BALANCE_DTYPE.pyarrow_dtype: BALANCE_DTYPE}
    frame: pd.DataFrame = rows.to_pandas(types_mapper=types.get)
    for name in frame.columns.intersection(schema.ACCOUNT_KEY):
        frame[name] = sorted_ids(frame[name].array)
    if "timestamp" in frame:
        frame["timestamp"] = frame["timestamp"].dt.tz_convert("UTC")
    return frame


def to_plain_arrow(frame: pd.DataFrame) -> pa.Table:
    """Return any result as Arrow, with ids in an archive's type and without pandas' metadata."""
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    fields = []
    for field in arrow.schema:
        values = field.type.value_type if pa.types.is_dictionary(field.type) else None
        fields.append(field.with_type(schema.ID_TYPE) if values in _TEXT else field)
    return arrow.cast(pa.schema(fields))


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
    >>> table = to_table(pd.DataFrame(columns=list(schema.COLUMNS)))
    >>> check_table(table)
    >>> check_table(table.drop(columns="balance"))
    Traceback (most recent call last):
    balance_analysis.errors.CheckError: the table lacks the columns ['balance']: convert ...
    """
    check_frame(table)
    _check_columns(table)
    missing = table.isna()
    names = [name for name in schema.COLUMNS if missing[name].any()]
    _refuse(
        table,
        missing.any(axis=1).to_numpy(),
        f"have no value in {names}",
        "every field of a balance change is known, so find out where the value was lost",
    )
    backwards, repeated = _neighbours(table)
    key = ", ".join(schema.ACCOUNT_KEY)
    order = f"a table is sorted by {key}, then timestamp: to_table(...) sorts it"
    _refuse(table, np.append(False, backwards), "belong before the row above them", order)
    _refuse_conflicts(table, repeated)
    twice = "are identical duplicates"
    _refuse(table, _both(repeated), twice, "to_table(...) drops them")
    negative = (table["balance"] < 0).to_numpy(dtype=bool)
    below = "have a balance below 0"
    _refuse(table, negative, below, "balances are never negative: check where the rows come from")


def to_table(
    table: pd.DataFrame,
    *,
    known: Stated | None = None,
    start: Moment | None = None,
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
        Whether an account without an opening held nothing before its first row. If not, sums warn
        that accounts without a change since the first known interval are left out.

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
        If two rows of one account and timestamp differ in balance, because nothing shows which is
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
    if known is not None or start is not None or nothing_before:
        note_known(made, known, start, nothing_before=nothing_before)
    elif read_notes(made.attrs.get(schema.ATTRS_KEY)).digests is None:
        note_rows(made)
    return made


def is_typed(table: pd.DataFrame) -> bool:
    """Return whether a frame has a table's columns, each once and with its dtype."""
    if not isinstance(table, pd.DataFrame) or not table.columns.is_unique:
        return False
    return {*schema.COLUMNS} <= {*table} and not _wrong_dtypes(table)


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


def microseconds(table: pd.DataFrame) -> Ints:
    """Return the times of a table's rows as microseconds since 1970-01-01 UTC."""
    return table["timestamp"].to_numpy(dtype="M8[us]").view(np.int64)


def _check_columns(table: pd.DataFrame) -> None:
    missing = [name for name in schema.COLUMNS if name not in table.columns]
    if missing:
        raise CheckError(f"the table lacks the columns {missing}: {_REBUILD}")
    if list(table.columns) != list(schema.COLUMNS):
        raise CheckError(
            f"the table's columns are {list(table.columns)}, not {list(schema.COLUMNS)}: "
            "select them with table[list(schema.COLUMNS)]"
        )
    for fault in _wrong_dtypes(table):
        raise CheckError(f"column {fault}: {_REBUILD}")


def _wrong_dtypes(table: pd.DataFrame) -> list[str]:
    """Return the table's columns that have a wrong dtype, each with both dtypes."""
    faults, dtypes = [], table.dtypes
    for name in schema.COLUMNS:
        wanted, actual = _DTYPES.get(name, "category of str"), str(dtypes[name])
        if isinstance(dtypes[name], pd.CategoricalDtype):
            actual = f"category of {dtypes[name].categories.dtype}"
        if actual != wanted:
            faults.append(f"{name!r} must be {wanted}, not {actual}")
    return faults


def _refuse(table: pd.DataFrame, faulty: Mask, what: str, hint: str) -> None:
    """Raise CheckError with the faulty rows, if any; the message describes the first."""
    if not faulty.any():
        return
    rows = table.loc[faulty]
    first = ", ".join(f"{name}={value}" for name, value in rows.iloc[0].items())
    raise CheckError(
        f"rows that {what}: {len(rows):,}; the first is row {rows.index[0]} ({first}): {hint}",
        rows=rows,
    )


def _refuse_conflicts(table: pd.DataFrame, repeated: Mask) -> None:
    """Raise CheckError if rows of one account and timestamp differ in balance."""
    balances = table["balance"].array
    conflicting = repeated & (balances[1:] != balances[:-1]).to_numpy(bool, na_value=False)
    if conflicting.any():
        both = _both(conflicting)
        pair = " and ".join(map(str, balances[both][:2]))
        what = f"are conflicting duplicates (balances {pair})"
        _refuse(table, both, what, "load this time again, or remove the wrong rows")


def _neighbours(table: pd.DataFrame) -> tuple[Mask, Mask]:
    """Return which rows belong before the row above, and which repeat its account and time.

    Both masks begin at the second row.
    """
    backwards = np.zeros(max(len(table) - 1, 0), dtype=bool)
    tied = ~backwards
    codes = (sorted_ids(table[name].array).codes for name in schema.ACCOUNT_KEY)
    for values in (*codes, microseconds(table)):
        backwards |= tied & (values[1:] < values[:-1])
        tied &= values[1:] == values[:-1]
    return backwards, tied


def _both(pairs: Mask) -> Mask:
    """Return a mask of rows from a mask of neighbouring pairs; empty if there are no rows."""
    mask: Mask = np.append(False, pairs) | np.append(pairs, False)
    return mask
