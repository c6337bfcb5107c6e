"""Process an archive's accounts in slices, in threads or with the active Dask client.

Files' footers show which accounts have rows where, so slices are cut before rows are read. A slice
has every row of its accounts in an interval, and their balances before it; it is opened as a
history, so no state is passed between days. Workers return only results. This module never starts
a cluster: it uses the `distributed.Client` that the caller created.
"""

from __future__ import annotations

import contextlib
import os
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.door import frames_of, stacked
from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import History, Sliced, open_history
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.archive.datafile import ALL, FILE_KEY, KeyRange, merge_last_rows
from balance_analysis.archive.snapshot import Scan, Snapshot
from balance_analysis.files.atomic import PathLike, making_folder
from balance_analysis.files.parquet import make_note, write_rows
from balance_analysis.load.arguments import OnProgress, check_positive, reporting
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import frame_of, to_plain_arrow
from balance_analysis.table.known import note_evidence, without_evidence
from balance_analysis.table.moments import EVER
from balance_analysis.table.names import Names, note_names
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, Ints, canonical, number_ids

ROWS: Final = 2_000_000
"""Rows per slice: with their results, a thread needs some 400 MB."""

_CELLS: Final = 2
"""Maximum cells (accounts times points) of a slice's result per row that it may have."""

_ROUND: Final = 4
"""Round the number of slices up to a multiple of this, so that four workers finish together."""

_FILES: Final = 8
"""Files per task that counts accounts."""

_ALONE: Final = 2
"""Factor by which a single slice may be larger, because no other one is in memory."""

_THREADS: Final = 4
"""Maximum number of threads, each of which holds a slice."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Slices:
    """The accounts of one state of an archive, in slices.

    Attributes
    ----------
    snapshot, filters
        The state, and the selected accounts.
    names
        The names of assets, parties and markets.
    rows
        Approximate maximum of rows per slice; more if one party has more of one asset.
    show
        Called after each slice with the finished share and the number of rows so far.
    """

    snapshot: Snapshot
    filters: Filters
    names: Names
    rows: int
    show: OnProgress

    @cached_property
    def scan(self) -> Scan:
        """A scan of all rows."""
        return self.snapshot.scan(self.filters)

    @cached_property
    def _empty(self) -> History:
        table = replace(self.scan, files=()).read()
        table.attrs[ATTRS_KEY] = note_names(table.attrs[ATTRS_KEY], self.names)
        return open_history(table)

    @property
    def attrs(self) -> dict[Any, Any]:
        """The names and the known intervals; reads no file."""
        return self._empty.attrs

    @cached_property
    def outline(self) -> History:
        """A history without accounts, with the interval, the names and the known intervals."""
        return replace(self._empty, extent=np.array(self.scan.extent(), np.int64))

    def warn_about_missing_accounts(self, *, of_changes: bool = False) -> None:
        """Warn, once per archive, about accounts missing from sums.

        Files are read only to see whether accounts of bad rows have other rows.
        """
        bad = self._empty.bad_row_warnings
        history = self.history_at(np.array([], np.int64)) if bad else self._empty
        history.warn_about_missing_accounts(of_changes=of_changes)

    def history_at(self, moments: Ints) -> History:
        """Return a history with all accounts' balances at some moments (in microseconds)."""
        _, end = self.snapshot.evidence.bounds
        ends = {at for at in moments.tolist() if at + 1 < end} | {end}
        rows = [self.snapshot.last_rows(self.filters, at) for at in ends]
        table = frame_of(canonical(pa.concat_tables(rows)))
        table = table[~table.duplicated([*ACCOUNT_KEY, "timestamp"])]
        note_evidence(table, self.scan.evidence)
        return replace(open_history(table), attrs=self.attrs)

    def map(
        self, function: Callable[[History], T], grid: Grid | None = None, *, per_point: bool = False
    ) -> Iterator[T]:
        """Yield a function's results for all slices, in the order of the files.

        Parameters
        ----------
        function
            Takes a slice's history.
        grid
            Restricts the history to the rows in the grid's interval and, if there are any, each
            account's last row before it and a row after it; `None` for all rows.
        per_point
            Whether the result has a cell for each account and point of the grid.
        """
        scan, done = self._around(grid), 0
        parts = self._cut(scan, len(grid.points) if per_point and grid is not None else 1)
        work = partial(_work, function, scan, self.outline)
        results = mapped(work, parts) if len(parts) > 1 else map(work, parts)
        for number, (rows, result) in enumerate(results, start=1):
            done += rows
            self.show(number / len(parts), done)
            yield result
        # Free the memory of reading before the results are combined.
        pa.default_memory_pool().release_unused()

    def _around(self, grid: Grid | None) -> Scan:
        """Return the scan of the rows that a grid needs."""
        if grid is None or not len(grid):
            return self.scan
        return self.snapshot.around(self.scan, *grid.span)

    def _cut(self, scan: Scan, points: int) -> list[KeyRange]:
        accounts = _CELLS * self.rows / max(points, 1)
        files = (*scan.openings, *scan.files, *scan.later)
        if sum(file.most_rows for file in files) <= min(self.rows, accounts):
            return [ALL]
        owners, sizes = self.owners
        return cut(owners, sizes, scan.groups(), rows=self.rows, accounts=accounts)

    @cached_property
    def owners(self) -> tuple[list[Owner], Ints]:
        """The owners, ascending, and the number of accounts of each."""
        files = tuple(self.snapshot.files_since(EVER[1], EVER[1]))
        parts = replace(self.scan, files=files).split(_FILES)
        last_rows = partial(Scan.last_rows, columns=FILE_KEY)
        accounts = merge_last_rows(mapped(last_rows, parts), FILE_KEY)
        counts = Counter(zip(*(accounts[x].to_pylist() for x in FILE_KEY[:2]), strict=True))
        return [*counts], np.array([*counts.values()], np.int64)


Owner = tuple[str, ...]
"""A party and an asset. A slice has all accounts of an owner, so results by owner are exact."""


def cut(
    owners: list[Owner],
    sizes: Ints,
    groups: Iterable[tuple[Owner, Owner, int]],
    *,
    rows: float,
    accounts: float,
) -> list[KeyRange]:
    """Cut all accounts, between owners, into slices of about equal work.

    Parameters
    ----------
    owners, sizes
        All owners, ascending, and the number of accounts of each.
    groups
        The first owner, the last one and the number of rows of each row group; its rows are assumed
        to be spread evenly over these owners.
    rows, accounts
        Maximum per slice. An owner with more has a slice of its own.
    """
    change = np.zeros(len(owners) + 1)
    for first, last, count in groups:
        low = bisect_left(owners, first)
        high = max(bisect_right(owners, last), low + 1)
        change[low] += count / (high - low)
        change[min(high, len(owners))] -= count / (high - low)
    shares = np.cumsum(change)[: len(owners)] / rows + sizes / accounts
    work = np.cumsum(shares)
    parts = 1 if shares.sum() <= _ALONE else int(np.ceil(work[-1]))
    parts += -parts % _ROUND if parts > _ROUND else 0
    hot = np.flatnonzero(shares > _ALONE)
    ends = np.searchsorted(work, work[-1:] / parts * np.arange(1, parts))
    places = sorted({*ends.tolist(), *hot.tolist(), *(hot + 1).tolist()} - {0, len(owners)})
    lows: list[Owner] = [(), *(owners[place] for place in places)]
    return [KeyRange(low, high) for low, high in zip(lows, [*lows[1:], None], strict=True)]


def _work(
    function: Callable[[History], T], scan: Scan, outline: History, part: KeyRange
) -> tuple[int, T]:
    """Return a slice's number of rows, and a function's result for it."""
    history = open_history(scan.read(part))
    # The interval and the names are those of all slices.
    history = replace(history, extent=outline.extent, attrs=outline.attrs)
    return len(history.rows), function(history)


def _in_one_thread(function: Callable[[S], T], item: S) -> T:
    """Return a function's result, computed in one thread: each processor has its own task."""
    with in_one_thread():
        return function(item)


def mapped(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield a function's results in the order of the items, computed in threads or by Dask.

    Raises
    ------
    Exception
        The error of a failed task, with a note that names its item; the other tasks are cancelled.
    """
    running: deque[tuple[S, Any]] = deque()
    with _executor() as (submit, width):
        try:
            for item in items:
                if len(running) >= 2 * width:
                    yield _result(*running.popleft())
                running.append((item, submit(_in_one_thread, function, item)))
            while running:
                yield _result(*running.popleft())
        finally:
            for _, future in running:
                future.cancel()


def _result(item: object, future: Any) -> Any:  # noqa: ANN401 - of concurrent.futures or Dask
    try:
        return future.result()
    except Exception as error:
        error.add_note(f"in the task of {item}")
        raise


@contextlib.contextmanager
def _executor() -> Iterator[tuple[Callable[..., Any], int]]:
    """Yield a function that submits a task, and the number of tasks that run at once."""
    client = None
    if "distributed" in sys.modules:
        with contextlib.suppress(ValueError):  # no active client
            client = sys.modules["distributed"].Client.current()
    if client is not None:
        # Dask would reuse the result of an equal earlier call unless each task is impure.
        yield partial(client.submit, pure=False), max(1, sum(client.nthreads().values()))
        return
    width = min(os.cpu_count() or 1, _THREADS)
    with ThreadPoolExecutor(width, "balance-analysis") as pool:
        yield pool.submit, width


def over_accounts(
    function: Callable[..., pd.DataFrame],
    archive: Sliced,
    *,
    to: PathLike | None = None,
    rows_per_slice: int = ROWS,
    progress: bool | OnProgress | None = None,
    **options: Any,  # noqa: ANN401 - the function's own
) -> pd.DataFrame | None:
    """Return or write a function's result for an archive.

    Parameters
    ----------
    function
        A function of this package that takes a table and returns a frame, such as
        `balance_series`.
    archive
        The archive, or a selection of it.
    to
        A new folder to which the result is written, completely or not at all, as one dataset of
        Parquet files: `pyarrow.dataset`, `pandas.read_parquet` and DuckDB read it. Only a few
        slices are then in memory at once. Rows of accounts are sorted by party, asset, type and
        market, then time, across the files, as in an archive; rows of other groups keep the
        function's order. The columns `symbol` and `label` are omitted.
    rows_per_slice
        Approximate maximum of rows read at once; more rows take more memory. The rows of one party
        and asset are always read together.
    progress
        As for `load_balance_changes`, counted in slices.
    **options
        The function's other arguments.

    Returns
    -------
    pandas.DataFrame
        The result of `function(archive, **options)`; `None` if it was written.

    Raises
    ------
    TypeError
        If `function` isn't such a function, or `archive` isn't an archive.
    ValueError
        If the result to write has the wide layout.
    OSError
        If the folder exists and isn't empty, or can't be written.

    Notes
    -----
    Threads of this process do the work, or the workers of the active `distributed.Client`: these
    need this package, and must reach the archive's address.

    Results by account or by party need the memory of a few slices, besides the result. For other
    groups, `totals` and series without a `freq`, and `summarize_parties`, hold the changes of all
    accounts in memory at once: 18 million changes take 1.9 GB. The wide layout has a column per
    account: 500,000 accounts take 3.4 GB. Choose the long layout, or use `archive.select` to narrow
    an archive to one asset.
    """
    check_positive("rows_per_slice", rows_per_slice)
    frames = frames_of(function)
    if not isinstance(archive, Sliced):
        raise TypeError(f"over_accounts takes an archive; for a table, call {function.__name__}")
    with reporting(progress) as show:
        slicing: Any = {"rows": rows_per_slice, "show": show}
        if to is None:
            return archive.by_slices(lambda x: stacked([*frames(x, **options)]), **slicing)
        return archive.by_slices(lambda x: _write(frames(x, **options), to), **slicing)


def _write(frames: Iterable[pd.DataFrame], path: PathLike) -> None:
    """Write frames with the same columns to a folder, one file each.

    Frames without rows are omitted, except the first.
    """
    with making_folder(path) as folder:
        for number, frame in enumerate(frames):
            if "asset_id" in frame.columns.names:
                raise ValueError("the wide layout can't be written: pass layout='long'")
            rows = to_plain_arrow(frame)
            if {*FILE_KEY} <= {*frame}:
                rows = rows.take(np.argsort(number_ids(frame[[*FILE_KEY]]), kind="stable"))
            if rows.num_rows or not number:
                # A part has only some of the accounts that the evidence is of.
                load = without_evidence(frame.attrs.get(ATTRS_KEY, {}))
                rows = rows.replace_schema_metadata(make_note({"kind": "analysis", "load": load}))
                write_rows(rows, folder / f"part-{number:05}.parquet")
        # The names say how many files there are, so that a lost one is noticed.
        for number, file in enumerate(parts := sorted(folder.iterdir()), 1):
            file.rename(folder / f"part-{number:05}-of-{len(parts):05}.parquet")
