"""Frames as JSON has them: amounts and moments with every digit, unknown values as null."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

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


class Sheets:
    """A frame as a sheet, and that of each account or asset, whose rows stand together."""

    def __init__(
        self, frame: pd.DataFrame, by: Sequence[str], names: Iterable[str] | None = None
    ) -> None:
        heads = np.flatnonzero(~frame.duplicated(list(by)))
        stops = [*heads[1:].tolist(), len(frame)]
        keys = zip(*(frame[name].iloc[heads].tolist() for name in by), strict=True)
        self._places = dict(zip(keys, map(slice, heads.tolist(), stops), strict=False))
        self._whole = to_sheet(frame, names or [str(name) for name in frame if name not in by])

    def of(self, key: tuple[str, ...]) -> Sheet:
        """Return the sheet of one; where it has no row, an empty one."""
        return {**self._whole, "rows": self._whole["rows"][self._places.get(key, slice(0))]}


def to_cells(column: pd.Series[Any]) -> tuple[str, list[Any]]:
    """Return the kind of a column, and its cells."""
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        return "amount", amounts(pa.array(column.array))
    known = column.notna().tolist()
    if isinstance(dtype, pd.DatetimeTZDtype):
        kind, column = "moment", column.dt.as_unit("us").astype("int64")
    elif pd.api.types.is_bool_dtype(dtype):
        kind = "flag"
    elif pd.api.types.is_integer_dtype(dtype):
        kind = "count"
    elif pd.api.types.is_float_dtype(dtype):
        kind = "ratio"
    else:
        kind, column = "text", column.astype("object").map(str)
    cells = zip(column.tolist(), known, strict=True)
    return kind, [cell if is_known else None for cell, is_known in cells]


def amounts(balances: pa.Array[Any]) -> list[str | None]:
    """Return amounts as text, unknown ones as `None`."""
    texts: list[str | None] = balances.cast(pa.string()).to_pylist()
    return texts
