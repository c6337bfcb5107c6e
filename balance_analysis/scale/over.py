"""Write what a function makes of an archive to a file, slice by slice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.door import frames_of, numbers_of_ids, stacked, without_names
from balance_analysis.analysis.history import Sliced
from balance_analysis.archive.datafile import FILE_KEY
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.frame import to_plain_arrow
from balance_analysis.load.request import Report, check_positive, reporting
from balance_analysis.scale.slices import ROWS


def over_accounts(
    function: Callable[..., pd.DataFrame],
    archive: Sliced,
    *,
    to: PathLike | None = None,
    rows_per_slice: int = ROWS,
    progress: bool | Report | None = None,
    **options: Any,  # noqa: ANN401 - the function's own
) -> pd.DataFrame | None:
    """Return or write what a function makes of an archive.

    Parameters
    ----------
    function
        A function of this package that takes a table first and returns a frame, such as
        `balance_series`.
    archive
        The archive, or a selection of it.
    to
        A Parquet file to write the result to, whole or not at all. Only a few slices are then in
        memory at once. The rows of accounts stand by party, asset, type and market, then time, as
        in the files of an archive; those of other groups as the function returns them. The columns
        `symbol` and `label` are left out.
    rows_per_slice
        Maximum number of rows that are read at once; more take more memory. The rows that one party
        has of one asset are always read together.
    progress
        As for `load_balance_changes`: by the slices that are done.
    **options
        What the function takes besides.

    Returns
    -------
    pandas.DataFrame
        What `function(archive, **options)` returns; `None` if it was written.

    Raises
    ------
    TypeError
        If `function` is no such function.
    ValueError
        If a wide layout is to be written.
    OSError
        If the file can't be written.

    Notes
    -----
    Threads of this process do the work, or the workers of the `distributed.Client` that the caller
    has made: these need this package, and must reach the archive's address.
    """
    check_positive("rows_per_slice", rows_per_slice)
    frames = frames_of(function)
    if to is not None:
        check_output(to)
    with reporting(progress) as show:
        how: Any = {"rows": rows_per_slice, "show": show}
        if to is None:
            return archive.by_slices(lambda x: stacked([*frames(x, **options)]), **how)
        return archive.by_slices(lambda x: _write(frames(x, **options), to), **how)


def _write(frames: Iterable[pd.DataFrame], path: PathLike) -> None:
    """Write frames of the same columns to one file, one after the other."""
    with contextlib.ExitStack() as stack:
        temporary, writer = stack.enter_context(replacing(path)), None
        for frame in map(without_names, frames):
            if "asset_id" in frame.columns.names:
                raise ValueError("a file takes the long layout: layout='long'")
            rows = to_plain_arrow(frame)
            if {*FILE_KEY} <= {*frame}:
                order = np.argsort(numbers_of_ids(frame, FILE_KEY), kind="stable")
                rows = rows.take(pa.array(order))
            if writer is None:
                schema = rows.schema.with_metadata(make_note({"kind": "analysis"}))
                writer = stack.enter_context(parquet_writer(temporary, schema))
            writer.write_table(rows)
