"""Slices of an archive's accounts, worked on in threads, or by the active client of Dask.

A slice is read out of every file of the archive, over all time, and opened as a history. So nothing
is carried from day to day, and no row is read twice. Only results come back. This module starts no
cluster: it uses the `distributed.Client` that the caller has made.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.archive.datafile import ALL, KeyRange, combine_accounts, cut
from balance_analysis.archive.snapshot import Scan, Snapshot
from balance_analysis.filters import Filters
from balance_analysis.frame import frame_of
from balance_analysis.known import ROWS_KEY, note_evidence
from balance_analysis.load.request import Report
from balance_analysis.names import Names, note_names
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY

ROWS: Final = 1_000_000
"""Rows of a slice: with what is made of them, a thread needs some 300 MB."""

_CELLS: Final = 2
"""Cells of a slice's result, accounts times points, for each of these rows."""

_FILES: Final = 8
"""Files of which a task counts the accounts."""

_THREADS: Final = 4
"""Maximum number of threads: each holds a slice."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Slices:
    """The accounts of one state of an archive, in slices.

    Attributes
    ----------
    snapshot, filters
        The state, and which accounts.
    names
        What assets, parties and markets are called.
    rows
        Maximum number of rows of a slice, unless one party has more of one asset.
    show
        Is told after each slice which part of them is done, and how many rows.
    """

    snapshot: Snapshot
    filters: Filters
    names: Names
    rows: int
    show: Report

    @cached_property
    def scan(self) -> Scan:
        """All rows."""
        return self.snapshot.scan(self.filters)

    @cached_property
    def outline(self) -> History:
        """A history without accounts that has the interval, the names and what is known."""
        nothing = open_history(replace(self.scan, files=()).read())
        extent = np.array(self.scan.extent(), np.int64)
        return replace(nothing, extent=extent, attrs=self._noted(nothing.attrs))

    def _noted(self, attrs: dict[Any, Any]) -> dict[Any, Any]:
        """Return attrs of some rows as those of all."""
        metadata = {**note_names(attrs[ATTRS_KEY], self.names)}
        metadata.pop(ROWS_KEY, None)
        return {ATTRS_KEY: metadata}

    def whole(self) -> History:
        """Return the history of all rows."""
        return _opened(self.scan, self.outline, ALL)

    def held(self, moments: NDArray[np.int64]) -> History:
        """Return a history of all accounts that holds at some moments, microseconds."""
        _, end = self.snapshot.evidence.bounds
        ends = {at for at in moments.tolist() if at + 1 < end} | {end}
        rows = [self.snapshot.last_rows(self.filters, at) for at in ends]
        table = frame_of(canonical(pa.concat_tables(rows)))
        table = table[~table.duplicated([*ACCOUNT_KEY, "timestamp"])]
        note_evidence(table, self.scan.evidence)
        history = open_history(table)
        return replace(history, attrs=self._noted(history.attrs))

    def map(self, function: Callable[[History], T], points: int = 1) -> Iterator[T]:
        """Yield a function's results for all slices, in the order of the files.

        Parameters
        ----------
        function
            Takes a slice's history.
        points
            How many cells each account has in the result.
        """
        parts, done = self._cut(points), 0
        work = partial(_work, function, self.scan, self.outline)
        for number, (rows, result) in enumerate(mapped(work, parts), start=1):
            done += rows
            self.show(number / len(parts), done)
            yield result

    def _cut(self, points: int) -> list[KeyRange]:
        rows = sum(max(note.rows for note in file.notes) for file in self.scan.files)
        if rows * max(points / _CELLS, 1) <= self.rows:
            return [ALL]
        counts = combine_accounts(mapped(Scan.accounts, self.scan.split(_FILES)))
        return cut(counts, rows=self.rows, accounts=_CELLS * self.rows / max(points, 1))


def _work(
    function: Callable[[History], T], scan: Scan, outline: History, part: KeyRange
) -> tuple[int, T]:
    """Return how many rows a slice has, and what a function makes of it."""
    with in_one_thread():  # as many slices are worked on at once as there are processors
        history = _opened(scan, outline, part)
        return len(history.rows), function(history)


def _opened(scan: Scan, outline: History, part: KeyRange) -> History:
    """Return the history of a slice, with the interval and the names of the whole."""
    history = open_history(scan.read(part))
    return replace(history, extent=outline.extent, attrs=outline.attrs)


def mapped(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield a function's results in the order of the items, computed in threads or by Dask.

    Raises
    ------
    Exception
        What a task failed with, with a note of the item; the others are cancelled.
    """
    running: deque[tuple[S, Any]] = deque()
    with _executor() as (submit, width):
        try:
            for item in items:
                if len(running) >= 2 * width:
                    yield _result(*running.popleft())
                running.append((item, submit(function, item)))
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
    """Give what submits a task, and how many run at once."""
    client = None
    if "distributed" in sys.modules:
        with contextlib.suppress(ValueError):  # the caller has made none
            client = sys.modules["distributed"].Client.current()
    if client is not None:
        # A result that is there already may be of another run: each call is a task of its own.
        yield partial(client.submit, pure=False), max(1, sum(client.nthreads().values()))
        return
    width = min(os.cpu_count() or 1, _THREADS)
    with ThreadPoolExecutor(width, "balance-analysis") as pool:
        yield pool.submit, width
