"""An archive's rows as a dask DataFrame, one partition for each file."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from balance_analysis.archive.snapshot import Scan, read_frame
from balance_analysis.known import ROWS_KEY
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, from_microseconds

if TYPE_CHECKING:
    import dask.dataframe as dd


def dask_frame(scan: Scan, columns: Sequence[str]) -> dd.DataFrame:
    """Return the rows of a scan, one partition per file: see `Archive.to_dask`."""
    dask: Any = importlib.import_module("dask.dataframe")  # an extra, untyped in parts
    nothing = replace(scan, files=())
    scans = scan.split(1) or [nothing]
    begins = [_begin(some) for some in scans]
    ids = [name for name in columns if name in ACCOUNT_KEY]
    frame: dd.DataFrame = dask.from_map(
        _read_partition,
        scans,
        args=(tuple(columns),),
        meta=dask.utils.clear_known_categories(_read_partition(nothing, columns), ids),
        divisions=(*begins, begins[-1]),
        label="balance-changes",
        enforce_metadata=False,
    )
    return frame


def _read_partition(scan: Scan, names: Sequence[str]) -> pd.DataFrame:
    # Not named `columns`: dask would then leave some out where it needs fewer, and their rows come
    # in another order.
    table = read_frame(scan, names)
    # Joined, only attrs stay that are the same in all partitions: how many rows are in one is not.
    table.attrs.get(ATTRS_KEY, {}).pop(ROWS_KEY, None)
    period = pd.DatetimeIndex([_begin(scan)]).repeat(len(table))
    return table.set_axis(period.rename("period"), axis=0)


def _begin(scan: Scan) -> pd.Timestamp:
    """Return when the period of the first file begins."""
    begin = scan.files[0].begin if scan.files else 0
    return pd.Timestamp(from_microseconds(begin)).as_unit("us")
