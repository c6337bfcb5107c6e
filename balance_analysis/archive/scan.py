"""What is asked for of an archive, and reading it: as a table, by slices of accounts, with dask.

A scan is fixed at one moment and pickles: others can read it, on other machines too, while the
archive grows. As rows stand by account in every file, a slice is one stretch of each of them.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.steps import map_parallel
from balance_analysis.archive import layout
from balance_analysis.archive.accounts import (
    ALL,
    FILE_KEY,
    KeyRange,
    combine_accounts,
    find_accounts,
    times_of,
)
from balance_analysis.archive.datafile import DataFile, Footer, Predicate, check_footer
from balance_analysis.archive.manifest import (
    FileEntry,
    check_not_replaced,
    check_seen,
    noted_files,
    read_manifest,
)
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.evidence import Evidence
from balance_analysis.filters import Filters
from balance_analysis.frame import to_columns
from balance_analysis.known import ROWS_KEY, note_evidence
from balance_analysis.merge import Part, merge, sort_parts
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    COLUMNS,
    from_microseconds,
)
from balance_analysis.spans import EVER, Span, clipped

if TYPE_CHECKING:
    import dask.dataframe as dd


_FILES: Final = 8
"""How many files are read one after the other, while others read others."""

_REQUESTS: Final = 16
"""How many files are read at once of an object store, where most of the time is spent waiting."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows, and what of it is asked for.

    Attributes
    ----------
    name
        Its name in the archive.
    notes
        What it must be: one of these, as it may be replaced meanwhile.
    begin, stop
        Its period, microseconds.
    spans
        The covered parts of that which are asked for, disjoint, in time order.
    is_final
        Whether these are proven to be complete: a file that takes its place has the same rows then.
    """

    name: str
    notes: tuple[FileEntry, ...]
    begin: int
    stop: int
    spans: tuple[Span, ...]
    is_final: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def bounds(self) -> tuple[Span, ...] | None:
        """The times that are asked for; `None` where that is all of its period."""
        return None if self.spans == ((self.begin, self.stop),) else self.spans


@dataclass(frozen=True, slots=True)
class Scan:
    """What is asked for of an archive.

    Attributes
    ----------
    store
        Its files.
    filters
        Which accounts.
    files
        Those that may have rows, in time order.
    evidence
        What is proven of the rows that are asked for.
    """

    store: Store
    filters: Filters
    files: tuple[File, ...]
    evidence: Evidence

    def __str__(self) -> str:
        if len(self.files) <= 1:
            return "".join(map(str, self.files))
        return f"{self.files[0]} to {self.files[-1]}"

    def split(self, count: int) -> list[Scan]:
        """Return scans of so many of the files each, that are together all."""
        starts = range(0, len(self.files), count)
        return [replace(self, files=self.files[start : start + count]) for start in starts]

    def between(self, since: int | None, until: int | None) -> Scan:
        """Return a scan of what of its time lies in [since, until), microseconds."""
        if since is until is None:
            return self
        start = EVER[0] if since is None else since
        end = EVER[1] if until is None else until
        files = (replace(x, spans=tuple(clipped(x.spans, start, end))) for x in self.files)
        return replace(self, files=tuple(file for file in files if file.spans))

    def rows(
        self,
        file: File,
        columns: Sequence[str] = COLUMNS,
        key_range: KeyRange = ALL,
        *,
        use_threads: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file that are asked for, in its order.

        Raises
        ------
        ArchiveError
            If it can't be read.
        """
        predicate = Predicate(self.filters.allowed(), file.bounds, key_range)
        with opened(self.store, file) as data:
            yield from data.rows(predicate, columns, use_threads=use_threads)

    def each(self, function: Callable[[Scan], T], parts: list[Scan] | None = None) -> list[T]:
        """Return what a function makes of parts of this scan, side by side; by default of files."""
        if self.store.folder is not None:
            return map_parallel(function, self.split(_FILES) if parts is None else parts)
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return list(pool.map(function, self.split(1) if parts is None else parts))

    def iter_batches(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yield all rows that are asked for, file by file; see `rows`."""
        for file in self.files:
            for rows in self.rows(file, columns, use_threads=True):
                yield from rows.to_batches()

    def extent(self) -> list[int]:
        """Return the times of the first row and of the last one, microseconds; none without rows.

        Only the files up to the first one that has rows are read, from both ends.
        """
        ends: list[int] = []
        for files, function in ((self.files, np.min), (reversed(self.files), np.max)):
            times_of_files = (map(times_of, self.rows(file, ["timestamp"])) for file in files)
            found = ([function(times) for times in each if len(times)] for each in times_of_files)
            ends += itertools.islice((int(function(each)) for each in found if each), 1)
        return ends

    def accounts(self, columns: Sequence[str] = FILE_KEY) -> pa.Table:
        """Return the accounts of all files, and what columns tell of them: see `combine_accounts`.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """
        return combine_accounts(
            find_accounts(rows) for file in self.files for rows in self.rows(file, columns)
        )

    def read(self, key_range: KeyRange = ALL) -> pd.DataFrame:
        """Return the rows as a table, of all accounts or of a slice.

        Of a cut of an account's time there are the row before it and the one behind it as well:
        whatever is made of that time is then what it is of all rows.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """

        def read(some: Scan) -> list[Part]:
            found = (rows for file in some.files for rows in some.rows(file, key_range=key_range))
            return list(sort_parts(found))

        parts = [*itertools.chain(*self.between(key_range.since, key_range.until).each(read))]
        if key_range.since is not None:
            before = self.between(None, key_range.since)
            parts = [*sort_parts(_end_of(before, key_range, is_last=True)), *parts]
        if key_range.until is not None:
            behind = self.between(key_range.until, None)
            parts += sort_parts(_end_of(behind, key_range, is_last=False))
        table = merge(parts)
        note_evidence(table, self.evidence)
        return table

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what tells this scan from others: file systems don't."""
        return self.store.uri, self.filters, self.files, self.evidence


def _end_of(scan: Scan, key_range: KeyRange, *, is_last: bool) -> list[pa.Table]:
    """Return the last row of an account that is asked for, or the first, if there is any."""
    for file in reversed(scan.files) if is_last else scan.files:
        found = [rows for rows in scan.rows(file, key_range=key_range) if rows.num_rows]
        if found:
            return [found[-1].slice(found[-1].num_rows - 1) if is_last else found[0].slice(0, 1)]
    return []


@contextlib.contextmanager
def opened(
    store: Store, file: File, parse: Callable[[bytes], Footer] = Footer
) -> Iterator[DataFile]:
    """Open a file of rows, which must be what is noted of it: then, or if it is final, by now.

    Parameters
    ----------
    store, file
        The archive's files, and which one.
    parse
        See `check_footer`.

    Raises
    ------
    SnapshotGoneError
        If it was replaced since.
    ArchiveError
        If it is damaged.
    """
    try:
        with contextlib.closing(_open(store, file, parse)) as data:
            yield data
    except (pa.ArrowException, OSError) as error:
        check_seen(store, layout.MANIFEST)
        check_not_replaced(store, file.name, file.notes)
        raise ArchiveDamagedError(
            f"{store.uri}/{file.name} can't be read: {error}; verify the archive to see what is "
            "wrong"
        ) from error


def _open(store: Store, file: File, parse: Callable[[bytes], Footer]) -> DataFile:
    notes: Any = file.notes
    while True:
        try:
            source = store.open(file.name)
            return DataFile(source, check_footer(source, notes, parse))
        except (pa.ArrowException, OSError):
            check_seen(store, layout.MANIFEST)
            now = noted_files(read_manifest(store)).get(file.name)
            if not file.is_final or now in (None, notes):
                raise
            notes = now


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError if these are not some of a table's columns, each once."""
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} must be a list of at least one, each once")


def read_frame(scan: Scan, columns: Sequence[str]) -> pd.DataFrame:
    """Return what is asked for of an archive: see `Archive.read`."""
    if set(columns) == set(COLUMNS):
        return scan.read()[list(columns)]
    batches = scan.each(lambda some: list(some.iter_batches(columns)))
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    return to_columns(pa.Table.from_batches(itertools.chain(*batches), schema))


def dask_frame(scan: Scan, columns: Sequence[str]) -> dd.DataFrame:
    """Return what is asked for of an archive, a partition a file: see `Archive.to_dask`."""
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


class LruCache:
    """What was used last, for any number of threads.

    Parameters
    ----------
    most
        How much is kept, in whatever its users measure: entries, rows or bytes. The newest entry
        is kept in any case.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size, self._lock = most, 0, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return what is kept under a key, or else make it; `make` tells its size as well."""
        found = self.peek(key)
        if found is None:
            found, size = make()
            self.put(key, found, size)
        return found

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return what is kept under a key, or `None`."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key, (None, 0))[0]

    def put(self, key: Hashable, made: Any, size: int) -> None:  # noqa: ANN401 - likewise
        """Keep something, and let go of what wasn't used for longest where that is too much."""
        with self._lock:
            self._size += size - self._found.pop(key, (None, 0))[1]
            self._found[key] = made, size
            while len(self._found) > 1 and self._size > self._most:
                self._size -= self._found.popitem(last=False)[1][1]
