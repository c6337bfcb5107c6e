"""The table as a pandas DataFrame: what `schema` declares, in pandas' dtypes.

A *table* in this package is a frame as `to_frame` returns it. Every frame with these columns has
`.balances` once this module is imported; the package imports it at its first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.errors import check_frame
from balance_analysis.table import schema
from balance_analysis.table.filters import make_filters
from balance_analysis.table.known import merge_notes, note_selection, read_notes
from balance_analysis.table.labels import labelled
from balance_analysis.table.moments import Instant, range_text
from balance_analysis.table.names import names_of
from balance_analysis.table.text import (
    Frame,
    clipped,
    count_text,
    facts_html,
    list_text,
    spans_text,
)

BALANCE_DTYPE: Final = pd.ArrowDtype(pa.decimal128(schema.BALANCE_DIGITS, 0))
TIMESTAMP_DTYPE: Final = pd.DatetimeTZDtype("us", "UTC")

_TEXT: Final = (pa.string(), pa.large_string())

_SHOWN_ROWS: Final = 10
"""Maximum number of rows shown: the first and the last ones."""

_LABEL_LENGTH: Final = 24
"""Maximum number of characters of a label shown."""


class _AnyFrame(type):
    """A metaclass that makes every frame an instance, as `assert_frame_equal` requires."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pd.DataFrame)


class Table(pd.DataFrame, metaclass=_AnyFrame):
    """A table whose attrs `pandas.concat` merges; pandas itself drops attrs that differ."""

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
        if method == "concat" and self.columns.is_unique and {*schema.COLUMNS} <= {*self.columns}:
            notes = [part.attrs.get(schema.ATTRS_KEY) for part in other.input_objs]
            if any(note != notes[0] for note in notes):
                merge_notes(self, other.input_objs)
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
    _check_complete(column)
    ids = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    categories = ids.cat.categories
    if pd.api.types.infer_dtype(categories) not in {"string", "empty"}:
        raise TypeError(f"column {column.name} must be text, not {categories.dtype}")
    codes = pa.array(ids.cat.codes.to_numpy().astype("int32"))
    return pa.DictionaryArray.from_arrays(codes, pa.array(categories.astype("str"), pa.string()))


def _to_moments(column: pd.Series[Any]) -> pa.Array[Any]:
    _check_complete(column)
    if not pd.api.types.infer_dtype(column).startswith("datetime"):
        raise TypeError(
            f"column {column.name} must be datetimes, not {column.dtype}: "
            "make them with pd.to_datetime(..., utc=True)"
        )
    moments = pd.DatetimeIndex(pd.to_datetime(column, utc=True))
    whole = moments.as_unit("us")
    finer = (whole != moments).nonzero()[0]
    if len(finer):
        raise ValueError(
            f"column {column.name} has a fraction of a microsecond in row "
            f"{column.index[finer[0]]!r}: {column.iloc[finer[0]]}"
        )
    return pa.array(whole.tz_localize(None).to_numpy("M8[us]")).cast(pa.timestamp("us", "UTC"))


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
        _check_complete(column)
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
    """Whether a column has amounts, unlike counts, which are plain integers."""
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
    if number is None or (isinstance(value, Decimal) and number != value):
        raise ValueError(f"column {name} has {value!r} in row {label!r}, not a whole number")
    if abs(number) >= 10**schema.BALANCE_DIGITS:
        raise ValueError(
            f"column {name} has {value!r} in row {label!r}: more than "
            f"{schema.BALANCE_DIGITS} digits"
        )
    return number


def _check_complete(column: pd.Series[Any]) -> None:
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
    ids: Iterable[pd.Categorical], times: NDArray[np.int64], balances: pa.ChunkedArray
) -> pd.DataFrame:
    """Return columns (times in microseconds) as a table, without copying them."""
    columns: dict[str, Any] = dict(zip(schema.ACCOUNT_KEY, ids, strict=True))
    columns["timestamp"] = pd.array(times, dtype=TIMESTAMP_DTYPE, copy=False)
    columns["balance"] = pd.arrays.ArrowExtensionArray(balances)
    return Table(columns, copy=False)


def categories_of(
    column: pa.DictionaryArray, counts: NDArray[np.int64] | None = None
) -> pd.Categorical:
    """Return ids as a table's column; with `counts`, each id is repeated by its count."""
    kind = pd.CategoricalDtype(pd.Index(column.dictionary.to_pylist(), dtype="str"))
    ids = pd.Categorical.from_codes(column.indices, dtype=kind)
    if counts is None:
        return ids
    return pd.Categorical.from_codes(np.repeat(ids.codes, counts), dtype=kind)


def empty_table() -> pd.DataFrame:
    """Return a table without rows, with all columns and dtypes."""
    return to_frame(schema.ARROW_SCHEMA.empty_table())


def to_columns(rows: pa.Table) -> pd.DataFrame:
    """Return some of a table's columns in its dtypes, with rows in the same order."""
    types = {BALANCE_DTYPE.pyarrow_dtype: BALANCE_DTYPE}
    frame: pd.DataFrame = rows.to_pandas(types_mapper=types.get)
    for name in frame.columns.intersection(schema.ACCOUNT_KEY):
        frame[name] = frame[name].cat.remove_unused_categories()
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


@pd.api.extensions.register_dataframe_accessor("balances")
class BalancesAccessor:
    """Select parts of a table that keep what it knows, and explore it on a page.

    Raises
    ------
    AttributeError
        If the frame lacks a column of a table.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in schema.COLUMNS if name not in table]
        if missing:
            raise AttributeError(
                f"a frame without the columns {missing} is not a table of balance changes, so it "
                "has no .balances"
            )
        self._table = table

    def select(
        self,
        *,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
    ) -> pd.DataFrame:
        """Return the rows of some accounts.

        Parameters
        ----------
        asset_id
            One asset: its id or its symbol.
        party_ids, market_ids
            Whole ids, short forms such as `c2071f…76b5`, unique beginnings of four characters or
            more, or labels; a single value may be plain text.
        account_types
            Names such as `ACCOUNT_TYPE_GENERAL` or `general`.

        Returns
        -------
        pandas.DataFrame
            All rows of the accounts that every filter selects, with the index and the columns of
            the table. Its attrs have the known intervals of these accounts.

        Raises
        ------
        ValueError
            If a value isn't in the table, or is ambiguous.

        Examples
        --------
        >>> import pandas as pd
        >>> import balance_analysis as ba
        >>> table = pd.DataFrame({
        ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
        ...     "party_id": ["alice", "berta"], "market_id": "",
        ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
        ...     "balance": [5, 7],
        ... })
        >>> table.balances.select(party_ids="alic")["balance"].tolist()
        [5]
        """
        table = self._table
        held = {name: {*map(str, table[name].unique())} for name in schema.ACCOUNT_KEY}
        filters = make_filters(
            asset_id=asset_id,
            party_ids=party_ids,
            market_ids=market_ids,
            account_types=account_types,
            names=lambda: names_of(table),
            held=held,
        )
        for name, ids in filters.allowed().items():
            if missing := [each for each in ids if each not in held[name]]:
                raise ValueError(f"no row of the table has the {name} {list_text(missing)}")
        selection = filters.select(table)
        note_selection(selection, table, filters)
        return selection

    def between(self, start: Instant | None = None, end: Instant | None = None) -> pd.DataFrame:
        """Return the table's changes in [start, end), and each account's opening.

        Over this interval, functions return the same for the result as for the whole table. A mask
        on `timestamp` would lose the balances that accounts held before.

        Parameters
        ----------
        start, end
            The interval, half-open; UTC without a time zone. By default from the start of the first
            known interval to the end of the last, else from the first row to just after the last.

        Returns
        -------
        pandas.DataFrame
            A table: the rows in [start, end), and each account's last row before `start` with its
            own timestamp. Its attrs have the `start` and the known intervals.

        Raises
        ------
        ValueError
            If `start` isn't before `end`.
        CheckError
            If two rows of one account and timestamp differ in balance.

        Examples
        --------
        >>> import pandas as pd
        >>> import balance_analysis as ba
        >>> table = pd.DataFrame({
        ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
        ...     "market_id": "", "balance": [5, 7],
        ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
        ... })
        >>> part = table.balances.between("2023-04-02", "2023-04-08")
        >>> ba.deltas(part)[["timestamp", "balance", "delta"]]
                          timestamp  balance  delta
        1 2023-04-03 00:00:00+00:00        7      2
        """
        part: pd.DataFrame = _module("analysis.history").between(self._table, start, end)
        return part

    def explore(self, **options: Any) -> Frame:  # noqa: ANN401 - those of write_report
        """Show the page of `write_report`, with its options, in a notebook."""
        with TemporaryDirectory() as folder:
            page = Path(folder, "report.html")
            _module("explorer.report").write_report(self._table, page, **options)
            return Frame(page.read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        facts = (f"{name}: {value}" for name, value in self._facts())
        return "\n".join([self._title(), *facts, "", _preview(self._table).to_string()])

    def _repr_html_(self) -> str:
        return facts_html(self._title(), self._facts()) + _preview(self._table).to_html(border=0)

    def _title(self) -> str:
        accounts = len(self._table.drop_duplicates(schema.ACCOUNT_KEY))
        rows = count_text(len(self._table), "balance change")
        return f"{rows} of {count_text(accounts, 'account')}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        times, notes = self._table["timestamp"], read_notes(self._table.attrs.get(schema.ATTRS_KEY))
        ids = self._table["asset_id"].drop_duplicates().astype("str")
        labels = names_of(self._table).shown("asset_id", ids)
        yield "assets", list_text([*labels.values()], 5) or "none"
        if not times.empty:
            yield "from", range_text(times.min(), times.max())
        is_stated = notes.known is not None
        yield "known", spans_text(notes.known or ()) or "nothing" if is_stated else "not stated"


def _preview(table: pd.DataFrame) -> pd.DataFrame:
    """Return the first and last rows, with names in place of the ids of accounts."""
    half = _SHOWN_ROWS // 2
    rows = table if len(table) <= _SHOWN_ROWS else table.iloc[[*range(half), *range(-half, 0)]]
    shown = labelled(rows)[["symbol", "label", "timestamp", "balance"]]
    label = [clipped(text, _LABEL_LENGTH) for text in shown["label"]]
    return shown.assign(label=label, timestamp=shown["timestamp"].dt.floor("s"))


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a module on first use, because it imports this one."""
    return importlib.import_module(f"balance_analysis.{name}")
