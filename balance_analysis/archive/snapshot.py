"""Snapshots of an archive, and scans of their rows.

A snapshot is the state that the manifest described when it was read. Each query reads one snapshot,
so an export that commits meanwhile can't mix two states. A file that was replaced since is still
read if the new one is sure to have the snapshot's rows; otherwise the query starts again with the
next snapshot.

A scan selects rows of a snapshot. It pickles, so other machines can read it while the archive
grows. Every file is sorted by account, so a slice of accounts is one slice of each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.steps import map_parallel
from balance_analysis.archive import datafile, layout
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    check_not_replaced,
    current_entries,
    parse,
)
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError, IncompleteError, SnapshotGoneError
from balance_analysis.load.merge import Part, merge, sort_parts
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import to_columns
from balance_analysis.table.known import note_evidence
from balance_analysis.table.moments import (
    EVER,
    Moment,
    Span,
    bounds_of,
    clipped,
    from_microseconds,
    gaps_in,
    joined,
    moment_text,
    to_bounds,
    without,
)
from balance_analysis.table.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS
from balance_analysis.table.text import spans_text

if TYPE_CHECKING:
    import dask.dataframe as dd

_PARTIAL_HINT: Final = "pass `partial` to read it anyway"

_TRIES: Final = 10
"""Maximum attempts to read while exports replace one state after another."""

_TASKS: Final = 4
"""Tasks per processor."""

_ROWS_EACH: Final = 8
"""A file with more rows than this per account already read is searched for other accounts."""

_MANIFESTS: Final = 4
"""Number of decoded manifests to cache."""

_REQUESTS: Final = 16
"""Files to read from an object store at once; most of the time is spent waiting."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file of rows, and the times to read from it.

    Attributes
    ----------
    name
        Its name in the archive.
    entries
        Its manifest entries; it matches one. There are several while it is being replaced.
    begin, stop
        Its period (in microseconds).
    spans
        The covered times to read: disjoint, in order.
    is_final
        Whether these are complete; a file that replaces it then has the same rows.
    """

    name: str
    entries: tuple[FileEntry, ...]
    begin: int
    stop: int
    spans: tuple[Span, ...]
    is_final: bool = False

    @property
    def most_rows(self) -> int:
        """Upper bound of the number of rows: those of the whole file."""
        return max(entry.rows for entry in self.entries)

    @property
    def time_filter(self) -> tuple[Span, ...] | None:
        """The times to read, or `None` for the whole period."""
        return None if self.spans == ((self.begin, self.stop),) else self.spans


@dataclass(frozen=True, slots=True)
class Scan:
    """A selection of an archive's rows.

    Attributes
    ----------
    store
        The archive's files.
    filters
        The accounts to select.
    files
        Files that may have selected rows, in time order.
    evidence
        The evidence for the rows; with openings also for the time before `start`.
    start, end
        The interval (in microseconds); `None` if nothing was ever answered.
    openings
        Earlier files, which hold each account's last row before `files`; in time order.
    later
        Later files, which hold each account's latest row; in time order.
    """

    store: Store
    filters: Filters
    files: tuple[FileSlice, ...]
    evidence: Evidence
    start: int | None = None
    end: int | None = None
    openings: tuple[FileSlice, ...] = ()
    later: tuple[FileSlice, ...] = ()

    def __str__(self) -> str:
        return " to ".join(dict.fromkeys(file.name for file in (*self.files[:1], *self.files[-1:])))

    def split(self, count: int) -> list[Scan]:
        """Split the scan into scans of `count` files each, without openings and later files."""
        starts = range(0, len(self.files), count)
        parts = (self.files[start : start + count] for start in starts)
        return [replace(self, files=files, openings=(), later=()) for files in parts]

    def rows(
        self,
        file: FileSlice,
        columns: Sequence[str] = COLUMNS,
        key_range: datafile.KeyRange = datafile.ALL,
        *,
        use_threads: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield a file's selected rows in their order.

        Raises
        ------
        ArchiveError
            If the file can't be read.
        """
        predicate = datafile.Predicate(self.filters.allowed(), file.time_filter, key_range)
        with opened(self.store, file) as data:
            yield from data.rows(predicate, columns, use_threads=use_threads)

    def map(
        self, function: Callable[[Scan], T], parts: list[Scan] | None = None, tasks: int = _TASKS
    ) -> list[T]:
        """Return a function's results for parts of this scan, by default files, in parallel."""
        if self.store.folder is not None:
            count = len(self.files) // (tasks * (os.cpu_count() or 1)) + 1
            return map_parallel(function, self.split(count) if parts is None else parts)
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return list(pool.map(function, self.split(1) if parts is None else parts))

    def groups(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], int]]:
        """Yield first owner, last owner and size of each row group that may have selected rows.

        An owner is a party and an asset.
        """
        for file in (*self.openings, *self.files, *self.later):
            with opened(self.store, file) as data:
                predicate = datafile.Predicate(self.filters.allowed(), file.time_filter)
                for number in data.row_groups(predicate):
                    rows = data.footer.metadata.row_group(number).num_rows
                    yield *data.footer.owners(number), rows

    def iter_batches(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yield all selected rows, file by file; see `rows`."""
        for file in self.files:
            for rows in self.rows(file, columns, use_threads=True):
                yield from rows.to_batches()

    def extent(self) -> list[int]:
        """Return the times of the first and the last row (in microseconds), or `[]` without rows.

        Files are read from both ends, until one has rows.
        """
        return self._extreme(self.files, np.min) + self._extreme(self.files[::-1], np.max)

    def _extreme(self, files: Sequence[FileSlice], extreme_of: Callable[..., Any]) -> list[int]:
        """Return the least or greatest time in the first of these files that has rows, or `[]`."""
        for file in files:
            parts = map(datafile.times_of, self.rows(file, ["timestamp"]))
            if extremes := [extreme_of(times) for times in parts if len(times)]:
                return [int(extreme_of(extremes))]
        return []

    def last_rows(
        self, columns: Sequence[str] = COLUMNS, key_range: datafile.KeyRange = datafile.ALL
    ) -> pa.Table:
        """Return each account's last row in these files, in the order of a file.

        Files are read last to first. If a file has many rows for each account already read, only
        its row groups with other accounts are read.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """
        parts: list[pa.Table] = []
        for file in reversed(self.files):
            predicate = datafile.Predicate(self.filters.allowed(), file.time_filter, key_range)
            with opened(self.store, file) as data:
                groups, known = data.row_groups(predicate), sum(part.num_rows for part in parts)
                is_whole = predicate == datafile.Predicate()
                if is_whole and parts and _ROWS_EACH * known < data.footer.metadata.num_rows:
                    groups = data.with_others(groups, pa.concat_tables(parts))
                rows = data.rows(predicate, columns, groups=groups, use_threads=False)
                parts = [*map(datafile.last_rows, rows), *parts]
        return datafile.merge_last_rows(parts, columns)

    def read(self, key_range: datafile.KeyRange = datafile.ALL) -> pd.DataFrame:
        """Return the rows and openings as a table, for all accounts or for a slice.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """

        def read(part: Scan) -> list[Part]:
            tables = (rows for file in part.files for rows in part.rows(file, key_range=key_range))
            return list(sort_parts(tables))

        def read_last(files: tuple[FileSlice, ...]) -> Iterator[Part]:
            scan = replace(self, files=files)
            parts = scan.map(lambda part: part.last_rows(COLUMNS, key_range), tasks=1)
            return sort_parts([datafile.merge_last_rows(parts)])

        # Sorting the few rows of a party takes as long as sorting some thousands.
        rows = itertools.chain(*self.map(read, tasks=1 if self.filters.party_ids else _TASKS))
        table = merge([*read_last(self.openings), *rows, *read_last(self.later)])
        note_evidence(table, self.evidence, self.start, self.end)
        return table

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return a scan's identity; file systems have no stable token."""
        return self.store.uri, self.filters, self.files, self.evidence


@contextlib.contextmanager
def opened(store: Store, file: FileSlice) -> Iterator[datafile.DataFile]:
    """Open a file of rows, and check that it matches one of its manifest entries.

    A final file may match a current entry instead.

    Parameters
    ----------
    store, file
        The archive's files, and the one to open.

    Raises
    ------
    SnapshotGoneError
        If the file was replaced since.
    ArchiveError
        If the file is damaged.
    """
    try:
        with contextlib.closing(_open(store, file)) as data:
            yield data
    except (pa.ArrowException, OSError) as error:
        check_not_replaced(store, file.name, file.entries)
        raise ArchiveDamagedError(
            f"{store.uri}/{file.name} can't be read: {error}; verify the archive to see what is "
            "wrong"
        ) from error


def _open(store: Store, file: FileSlice) -> datafile.DataFile:
    entries: Any = file.entries
    while True:
        try:
            source = store.open(file.name)
            return datafile.DataFile(source, datafile.check_footer(source, entries))
        except (pa.ArrowException, OSError):
            now = current_entries(store, file.name)
            if not file.is_final or now in ((), entries):
                raise
            entries = now


def interval_of(start: Moment | None, end: Moment | None) -> Span:
    """Return an interval in microseconds; open bounds mean all time. ValueError if it is empty."""
    begin, stop = (EVER[n] if x is None else x for n, x in enumerate(to_bounds(start, end)))
    if begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    return begin, stop


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError unless these are columns of a table, at least one, without repeats."""
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns must be a list of names, each once, not {columns!r}")


def read_frame(scan: Scan, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a scan as a table: see `Archive.read`."""
    if scan.openings or set(columns) == set(COLUMNS):
        return scan.read()[list(columns)]
    batches = scan.map(lambda part: list(part.iter_batches(columns)))
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    return to_columns(pa.Table.from_batches(itertools.chain(*batches), schema))


def dask_frame(scan: Scan, columns: Sequence[str]) -> dd.DataFrame:
    """Return the rows of a scan, one partition per file: see `Archive.to_dask`."""
    dask: Any = importlib.import_module("dask.dataframe")  # an extra, untyped in parts
    empty = replace(scan, files=())
    scans = scan.split(1) or [empty]
    begins = [_begin(part) for part in scans]
    ids = [name for name in columns if name in ACCOUNT_KEY]
    frame: dd.DataFrame = dask.from_map(
        _read_partition,
        scans,
        args=(tuple(columns),),
        meta=dask.utils.clear_known_categories(_read_partition(empty, columns), ids),
        divisions=(*begins, begins[-1]),
        label="balance-changes",
        enforce_metadata=False,
    )
    return frame


def _read_partition(scan: Scan, names: Sequence[str]) -> pd.DataFrame:
    # Not named `columns`: dask would then drop the columns that it doesn't need, and rows of fewer
    # columns come in another order.
    table = read_frame(scan, names)
    period = pd.DatetimeIndex([_begin(scan)]).repeat(len(table))
    return table.set_axis(period.rename("period"), axis=0)


def _begin(scan: Scan) -> pd.Timestamp:
    """Return the start of the first file's period."""
    begin = scan.files[0].begin if scan.files else 0
    return pd.Timestamp(from_microseconds(begin)).as_unit("us")


class LruCache:
    """A thread-safe cache of the most recently used entries.

    Parameters
    ----------
    max_size
        Maximum size, in any unit: entries, rows or bytes. The newest entry is always kept.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size, self._size, self._lock = max_size, 0, threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return the entry of a key; if there is none, `make` returns it and its size.

        The least recently used entries are dropped until the rest fits.
        """
        entry = self.peek(key)
        if entry is None:
            entry, size = make()
            with self._lock:
                self._size += size - self._entries.pop(key, (None, 0))[1]
                self._entries[key] = entry, size
                while len(self._entries) > 1 and self._size > self._max_size:
                    self._size -= self._entries.popitem(last=False)[1][1]
        return entry

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - any cached value
        """Return the entry of a key, or `None` if there is none."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key, (None, 0))[0]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of an archive. It pickles; two are equal if their manifests are.

    Attributes
    ----------
    store
        The archive's files.
    manifest
        Its manifest.
    version
        A digest of the manifest, which identifies the state.
    """

    store: Store = field(compare=False)
    manifest: Manifest = field(compare=False)
    version: str

    @property
    def evidence(self) -> Evidence:
        """The evidence that is true whether or not the pending file is already in place."""
        evidence, pending = self.manifest.evidence, self.manifest.pending
        if pending is None:
            return evidence
        agreed = joined(span for span, _ in pending.evidence.agreed)
        return replace(
            evidence.without_agreements(gaps_in(agreed, *EVER)),
            set_aside=tuple(dict.fromkeys([*evidence.set_aside, *pending.evidence.set_aside])),
            disputed=(*evidence.disputed, *pending.evidence.disputed),
        )

    def files(self, start: int = EVER[0], end: int = EVER[1]) -> list[FileSlice]:
        """Return the files that may have rows in covered parts of [start, end), in time order."""
        manifest, answered, known = self.manifest, self.evidence.answered, self.evidence.complete
        files = []
        for period, entry in manifest.files.items():
            begin, stop = layout.period_bounds(period, manifest.partition)
            spans = tuple(clipped(answered, max(begin, start), min(stop, end)))
            if spans:
                name = manifest.changes_file(period)
                is_final = all(any(a <= c and d <= b for a, b in known) for c, d in spans)
                entries = manifest.with_pending(name, entry)
                files.append(FileSlice(name, entries, begin, stop, spans, is_final=is_final))
        return files

    def files_since(self, start: int, end: int) -> list[FileSlice]:
        """Return the files of [start, end), and those needed for the balances before it.

        The first file may be a checkpoint, which has each account's last row before its `stop`.
        """
        stop = max((at for at in self.manifest.checkpoints if at <= start), default=None)
        if stop is None:
            return self.files(end=end)
        name, entry = layout.checkpoint_file(stop), self.manifest.checkpoints[stop]
        checkpoint = FileSlice(name, (entry,), entry.first, stop, ((entry.first, stop),))
        return [checkpoint, *self.files(stop, end)]

    def scan(
        self,
        filters: Filters = Filters(),
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        opening: bool = False,
        partial: bool = True,
    ) -> Scan:
        """Return a scan of this state: see `Archive.read`."""
        self.manifest.query.check_holds(filters)
        begin, stop = self.interval(start, end, partial=partial)
        evidence = self.evidence.narrow(filters)
        if not partial:
            self.check_complete(begin, stop, evidence)
        bounds = (begin, stop) if evidence.answers else (None, None)
        return Scan(
            self.store,
            filters,
            tuple(self.files(begin, stop)),
            # Gaps before `start` show which openings may have changed since.
            evidence.within(EVER[0] if opening else begin, stop),
            bounds[0],
            bounds[1],
            tuple(self.files_since(begin, begin)) if opening else (),
        )

    def around(self, scan: Scan, start: int, end: int) -> Scan:
        """Return a scan of [start, end) that includes every account that ever has a row.

        It adds each account's last row before `start`, and its latest row if that is after `end`.
        """
        later = [
            replace(file, spans=tuple(clipped(file.spans, end, EVER[1])))
            for file in self.files_since(EVER[1], EVER[1])
        ]
        return replace(
            scan,
            files=tuple(self.files(start, end)),
            openings=tuple(self.files_since(start, start)),
            later=tuple(file for file in later if file.spans),
        )

    def interval(self, start: Moment | None, end: Moment | None, *, partial: bool) -> Span:
        """Return an interval (in microseconds); open bounds are those of the complete rows.

        With `partial`, open bounds are those of the covered time, and `start` may lie after `end`:
        the interval is then empty.

        Raises
        ------
        IncompleteError
            If nothing in the interval is complete, unless `partial`.
        ValueError
            If `start` is not before `end`, unless `partial`.
        """
        first, last = bounds_of(self.evidence.answered if partial else self.evidence.complete)
        begin, stop = to_bounds(start, end)
        begin, stop = first if begin is None else begin, last if stop is None else stop
        if begin < stop or partial:
            return begin, stop
        if start is not None and end is not None:
            raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
        why = "nothing is known to be complete"
        if first < last:
            complete = _spans_are(self.evidence.complete)
            why = f"only {complete} complete, outside the requested interval"
        raise IncompleteError(f"{self.store.uri}: {why}; {_PARTIAL_HINT}")

    def check_complete(self, start: int, end: int, evidence: Evidence) -> None:
        """Raise IncompleteError with the gaps if a row in [start, end) may be missing."""
        if not (gaps := evidence.incomplete(start, end)):
            return
        missing = evidence.missing(start, end)
        first, last = evidence.bounds if evidence.answers else (start, end)
        gone, ends = "missing", f"ends at {moment_text(last)}, where the next export continues"
        forgotten = "unproven: the node may have forgotten rows, or a bad row was set aside"
        faults = (
            (clipped(missing, start, first), f"{gone}: the archive begins at {moment_text(first)}"),
            (clipped(missing, first, last), f"{gone}; `export --fill-gaps` fetches it"),
            (clipped(missing, last, end), f"{gone}: the archive {ends}"),
            (without(gaps, missing), forgotten),
        )
        why = [f"{_spans_are(x)} {fault}" for spans, fault in faults if (x := [*spans])]
        raise IncompleteError(f"{self.store.uri}: {'; '.join(why)}; {_PARTIAL_HINT}")

    def last_rows(
        self, filters: Filters = Filters(), moment: int = EVER[1], columns: Sequence[str] = COLUMNS
    ) -> pa.Table:
        """Return each account's last row up to a moment, in the order of files."""
        files = tuple(self.files_since(moment, moment + 1))
        scan = Scan(self.store, filters, files, Evidence())
        parts = scan.map(lambda part: part.last_rows(columns), tasks=1)
        return datafile.merge_last_rows(parts, columns)

    def ids(self, filters: Filters = Filters()) -> dict[str, set[str]]:
        """Return the ids of the accounts that filters select, by column."""
        accounts = self.last_rows(filters, columns=datafile.FILE_KEY)
        distinct = {name: accounts[name].cast(pa.string()).unique() for name in ACCOUNT_KEY}
        return {name: {*ids.to_numpy(zero_copy_only=False)} for name, ids in distinct.items()}

    def narrow(self, narrowed: Filters, find: Callable[..., Filters]) -> Filters:
        """Narrow filters by those that `find` returns for the ids `held`: see `Archive.select`.

        Raises
        ------
        ValueError
            If an id or name matches nothing in the archive.
        ArchiveError
            If the archive is bound to other accounts.
        """
        ids = self.ids(narrowed)
        wanted = find(held=ids)
        self.manifest.query.check_holds(wanted)
        wanted.check_held(ids)
        both = narrowed.intersection(wanted)
        assert both is not None  # noqa: S101 - each wanted id is among the narrowed ones
        return both


def _spans_are(spans: Sequence[Span]) -> str:
    """Return spans as the subject of a sentence, with its verb."""
    return f"{spans_text(spans)} {'are' if len(spans) > 1 else 'is'}"


def read_snapshot(store: Store) -> Snapshot:
    """Return the current state of an archive.

    The manifest is read each time, but decoded only if its bytes have changed: times and sizes can
    mislead, bytes can't.

    Raises
    ------
    ArchiveError
        If there is no archive, or its manifest is damaged.
    """
    content = store.read(layout.MANIFEST)
    version = hashlib.sha256(content or b"").hexdigest()[:16]
    return Snapshot(store, _parsed(store, content), version)


_parsed = lru_cache(maxsize=_MANIFESTS)(parse)


def with_snapshot(store: Store, read: Callable[[Snapshot], T]) -> T:
    """Return a function's result for the current state; retry if that is replaced meanwhile."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(SnapshotGoneError):
            return read(read_snapshot(store))
    return read(read_snapshot(store))
