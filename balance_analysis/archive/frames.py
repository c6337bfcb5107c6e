"""What is asked for of an archive, as a table or as a dask DataFrame."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from balance_analysis.frame import frame_of, to_columns
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.dataframe as dd

    from balance_analysis.archive.scan import Chosen


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError if these are not some of a table's columns, each once."""
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} must be a list of at least one, each once")


def read_frame(chosen: Chosen, columns: Sequence[str]) -> pd.DataFrame:
    """Return what is asked for of an archive: see `Archive.read`."""
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    rows = pa.Table.from_batches(chosen.iter_batches(columns), schema)
    if set(columns) != set(COLUMNS):
        return to_columns(rows)
    # An account's rows stand in time order, in each file and from file to file.
    return frame_of(canonical(rows, is_by_time=True))[list(columns)]


def dask_frame(chosen: Chosen, columns: Sequence[str]) -> dd.DataFrame:
    """Return what is asked for of an archive, a partition a file: see `Archive.to_dask`."""
    dask: Any = importlib.import_module("dask.dataframe")  # an extra, untyped in parts
    nothing = replace(chosen, files=())
    parts = chosen.split(1) or [nothing]
    begins = [_begin(part) for part in parts]
    ids = [name for name in columns if name in ACCOUNT_KEY]
    frame: dd.DataFrame = dask.from_map(
        _read_partition,
        parts,
        args=(tuple(columns),),
        meta=dask.utils.clear_known_categories(_read_partition(nothing, columns), ids),
        divisions=(*begins, begins[-1]),
        label="balance-changes",
        enforce_metadata=False,
    )
    return frame


def _read_partition(chosen: Chosen, names: Sequence[str]) -> pd.DataFrame:
    # Not named `columns`: dask would then leave some out where it needs fewer, and their rows come
    # in another order.
    table = read_frame(chosen, names)
    period = pd.DatetimeIndex([_begin(chosen)]).repeat(len(table))
    return table.set_axis(period.rename("period"), axis=0)


def _begin(chosen: Chosen) -> pd.Timestamp:
    """Return when the period of the first file begins."""
    begin = chosen.files[0].begin if chosen.files else 0
    return pd.Timestamp(from_microseconds(begin)).as_unit("us")
