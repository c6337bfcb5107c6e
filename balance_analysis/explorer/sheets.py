"""Frames as JSON has them: amounts and moments with every digit, unknown values as null."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.int128 import integers_of, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Sheet = dict[str, Any]


def to_sheet(frame: pd.DataFrame, names: Iterable[str] | None = None) -> Sheet:
    """Return columns of a frame, each with what kind it is, and the rows.

    Kinds are `amount`, whole numbers of the asset's smallest unit as text; `moment`, microseconds
    since 1970-01-01 UTC; `count`, `ratio`, `flag` and `text`.
    """
    columns = [(name, *to_cells(frame[name])) for name in names or frame.columns]
    return {
        "columns": [{"name": name, "kind": kind} for name, kind, _ in columns],
        "rows": list(map(list, zip(*(cells for *_, cells in columns), strict=True))),
    }


def to_cells(column: pd.Series[Any]) -> tuple[str, list[Any]]:
    """Return the kind of a column, and its cells."""
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        values = pa.array(column.array)
        return "amount", amounts(words_of(values), values.is_valid().to_pylist())
    if isinstance(dtype, pd.DatetimeTZDtype):
        times = column.dt.as_unit("us").astype("int64")
        known = column.notna()
        return "moment", [
            time if is_known else None for time, is_known in zip(times, known, strict=True)
        ]
    if pd.api.types.is_bool_dtype(dtype):
        return "flag", [bool(value) for value in column]
    if pd.api.types.is_integer_dtype(dtype):
        return "count", [None if pd.isna(value) else int(value) for value in column]
    if pd.api.types.is_float_dtype(dtype):
        return "ratio", [None if math.isnan(value) else value for value in column.tolist()]
    return "text", [None if pd.isna(value) else str(value) for value in column]


def amounts(words: NDArray[Any], known: Iterable[bool]) -> list[str | None]:
    """Return amounts as text, unknown ones as `None`."""
    return [
        str(number) if is_known else None
        for number, is_known in zip(integers_of(words), known, strict=True)
    ]
