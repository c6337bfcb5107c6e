"""Write what a function makes of an archive to a folder, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.door import frames_of, stacked, without_names
from balance_analysis.analysis.history import Sliced
from balance_analysis.analysis.sums import numbers_of_ids
from balance_analysis.archive.datafile import FILE_KEY
from balance_analysis.files.atomic import PathLike, making_folder
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
        A new folder to write the result to, whole or not at all, as Parquet files that together are
        one dataset: `pyarrow.dataset`, `pandas.read_parquet` or DuckDB read it. Only a few slices
        are then in memory at once. The rows of accounts stand by party, asset, type and market,
        then time, file after file, as in an archive; those of other groups as the function returns
        them. The columns `symbol` and `label` are left out.
    rows_per_slice
        Maximum number of rows, about, that are read at once; more take more memory. The rows that
        one party has of one asset are always read together.
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
        If the folder is there already and not empty, or can't be written.

    Notes
    -----
    Threads of this process do the work, or the workers of the `distributed.Client` that the caller
    has made: these need this package, and must reach the archive's address.

    Results by account or by party need the memory of a few slices, besides what is returned. What
    other groups hold changes at the moments of all their accounts, which are in memory together: of
    `totals` and series without a `freq`, and of `summarize_parties` by such groups. 16 million
    moments take 5 GB; `archive.select` narrows an archive to an asset.
    """
    check_positive("rows_per_slice", rows_per_slice)
    frames = frames_of(function)
    with reporting(progress) as show:
        how: Any = {"rows": rows_per_slice, "show": show}
        if to is None:
            return archive.by_slices(lambda x: stacked([*frames(x, **options)]), **how)
        return archive.by_slices(lambda x: _write(frames(x, **options), to), **how)


def _write(frames: Iterable[pd.DataFrame], path: PathLike) -> None:
    """Write frames of the same columns to a folder, a file each; one without rows is left out."""
    with making_folder(path) as folder:
        for number, frame in enumerate(map(without_names, frames)):
            if "asset_id" in frame.columns.names:
                raise ValueError("files take the long layout: layout='long'")
            rows = to_plain_arrow(frame)
            if {*FILE_KEY} <= {*frame}:
                order = np.argsort(numbers_of_ids(frame[[*FILE_KEY]]), kind="stable")
                rows = rows.take(pa.array(order))
            if rows.num_rows or not number:
                schema = rows.schema.with_metadata(make_note({"kind": "analysis"}))
                with parquet_writer(folder / f"part-{number:05}.parquet", schema) as writer:
                    writer.write_table(rows)
