"""One state of an archive, as its manifest had it when it was read, and scans of its rows.

Each answer goes by one snapshot, so that an export that commits meanwhile can't mix two states. A
file that was replaced since is still read if its rows of the snapshot's time are sure to be there;
else the snapshot is gone, and the answer is made of the next.

A scan names the rows that are asked for. It pickles, so that other machines can read it while the
archive grows. As every file is sorted by account, a slice of accounts is one stretch of each.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
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
from balance_analysis.archive import layout
from balance_analysis.archive.datafile import (
    ALL,
    FILE_KEY,
    DataFile,
    KeyRange,
    Predicate,
    check_footer,
    last_rows,
    merge_last_rows,
    times_of,
)
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    check_not_replaced,
    notes_now,
    parse,
)
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError, IncompleteError, SnapshotGoneError
from balance_analysis.load.merge import Part, merge, sort_parts
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters, make_filters
from balance_analysis.table.frame import to_columns
from balance_analysis.table.known import START_KEY, Known, note_evidence
from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    COLUMNS,
    NO_MARKET,
    Instant,
    from_microseconds,
    to_bounds,
)
from balance_analysis.table.spans import EVER, Span, between, bounds_of, clipped, joined
from balance_analysis.table.text import iso_text, list_text, moment_text, range_text, spans_text

if TYPE_CHECKING:
    import dask.dataframe as dd

TAKE: Final = "`partial` takes what there is"

_TRIES: Final = 10
"""Maximum attempts to read while exports replace one state after another."""

_FILES: Final = 8
"""Files per task of a thread."""

_NAMED: Final = 3
"""Maximum ids that an error names."""

_MANIFESTS: Final = 4
"""Decoded manifests that are kept."""

_REQUESTS: Final = 16
"""Files of an object store that are read at once; most of the time is spent waiting."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows, and the times that are read of it.

    Attributes
    ----------
    name
        Its name in the archive.
    notes
        Its notes in the manifest; it matches one, as it may be being replaced.
    begin, stop
        Its period, microseconds.
    spans
        The covered times to read, disjoint, in order.
    is_final
        Whether these are complete: a file that replaces it then has the same rows.
    """

    name: str
    notes: tuple[FileEntry, ...]
    begin: int
    stop: int
    spans: tuple[Span, ...]
    is_final: bool = False

    @property
    def bounds(self) -> tuple[Span, ...] | None:
        """The times to read; `None` for all of its period."""
        return None if self.spans == ((self.begin, self.stop),) else self.spans


@dataclass(frozen=True, slots=True)
class Scan:
    """A choice of an archive's rows.

    Attributes
    ----------
    store
        Its files.
    filters
        Which accounts.
    files
        The files that may have rows, in time order.
    evidence
        The evidence for the rows; with openings also for the time before `start`.
    start
        From when on all rows are there, microseconds; `None` where that is not said.
    openings
        The files that have each account's last row before the others, in time order.
    later
        The files that have each account's last row of all behind the others, in time order.
    """

    store: Store
    filters: Filters
    files: tuple[File, ...]
    evidence: Evidence
    start: int | None = None
    openings: tuple[File, ...] = ()
    later: tuple[File, ...] = ()

    def __str__(self) -> str:
        return " to ".join(dict.fromkeys(file.name for file in (*self.files[:1], *self.files[-1:])))

    def split(self, count: int) -> list[Scan]:
        """Split the scan into scans of `count` files."""
        starts = range(0, len(self.files), count)
        parts = (self.files[start : start + count] for start in starts)
        return [replace(self, files=files, openings=(), later=()) for files in parts]

    def rows(
        self,
        file: File,
        columns: Sequence[str] = COLUMNS,
        key_range: KeyRange = ALL,
        *,
        use_threads: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the chosen rows of a file, in its order.

        Raises
        ------
        ArchiveError
            If it can't be read.
        """
        predicate = Predicate(self.filters.allowed(), file.bounds, key_range)
        with opened(self.store, file) as data:
            yield from data.rows(predicate, columns, use_threads=use_threads)

    def each(self, function: Callable[[Scan], T], parts: list[Scan] | None = None) -> list[T]:
        """Return a function's results for parts of this scan, by default its files, in parallel."""
        if self.store.folder is not None:
            return map_parallel(function, self.split(_FILES) if parts is None else parts)
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return list(pool.map(function, self.split(1) if parts is None else parts))

    @property
    def most_rows(self) -> int:
        """The number of rows of all files: filters and times may choose fewer."""
        files = (*self.openings, *self.files, *self.later)
        return sum(max(note.rows for note in file.notes) for file in files)

    def groups(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], int]]:
        """Yield the first owner, the last one and the size of row groups that may have chosen rows.

        An owner is a party and an asset.
        """
        for file in (*self.openings, *self.files, *self.later):
            with opened(self.store, file) as data:
                for number in data.row_groups(Predicate(self.filters.allowed(), file.bounds)):
                    rows = data.footer.metadata.row_group(number).num_rows
                    yield *data.footer.owners(number), rows

    def iter_batches(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yield all chosen rows, file by file; see `rows`."""
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
            limits = ([function(times) for times in each if len(times)] for each in times_of_files)
            ends += itertools.islice((int(function(each)) for each in limits if each), 1)
        return ends

    def last_rows(self, columns: Sequence[str] = COLUMNS, key_range: KeyRange = ALL) -> pa.Table:
        """Return each account's last row of all files, in the order of a file.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """
        rows = (part for file in self.files for part in self.rows(file, columns, key_range))
        return merge_last_rows(map(last_rows, rows), columns)

    def read(self, key_range: KeyRange = ALL) -> pd.DataFrame:
        """Return the rows and openings as a table, of all accounts or of a slice.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """

        def read(some: Scan) -> list[Part]:
            tables = (rows for file in some.files for rows in some.rows(file, key_range=key_range))
            return list(sort_parts(tables))

        def lasts(files: tuple[File, ...]) -> Iterator[Part]:
            parts = replace(self, files=files).each(lambda some: some.last_rows(COLUMNS, key_range))
            return sort_parts([merge_last_rows(parts)])

        rows = itertools.chain(*self.each(read))
        table = merge([*lasts(self.openings), *rows, *lasts(self.later)])
        note_evidence(table, self.evidence)
        if self.start is not None:
            table.attrs[ATTRS_KEY][START_KEY] = iso_text(self.start)
        return table

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return the parts that identify a scan; file systems have no stable token."""
        return self.store.uri, self.filters, self.files, self.evidence


@contextlib.contextmanager
def opened(store: Store, file: File) -> Iterator[DataFile]:
    """Open a file of rows, which must match its notes, or if it is final its current ones.

    Parameters
    ----------
    store, file
        The archive's files, and which one.

    Raises
    ------
    SnapshotGoneError
        If it was replaced since.
    ArchiveError
        If it is damaged.
    """
    try:
        with contextlib.closing(_open(store, file)) as data:
            yield data
    except (pa.ArrowException, OSError) as error:
        check_not_replaced(store, file.name, file.notes)
        raise ArchiveDamagedError(
            f"{store.uri}/{file.name} can't be read: {error}; verify the archive to see what is "
            "wrong"
        ) from error


def _open(store: Store, file: File) -> DataFile:
    notes: Any = file.notes
    while True:
        try:
            source = store.open(file.name)
            return DataFile(source, check_footer(source, notes))
        except (pa.ArrowException, OSError):
            now = notes_now(store, file.name)
            if not file.is_final or now in ((), notes):
                raise
            notes = now


def interval_of(start: Instant | None, end: Instant | None) -> Span:
    """Return an interval in microseconds, without bounds all time; ValueError if it is empty."""
    begin, stop = (EVER[n] if x is None else x for n, x in enumerate(to_bounds(start, end)))
    if begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    return begin, stop


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError if these are not some of a table's columns, each once."""
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} must be a list of at least one, each once")


def read_frame(scan: Scan, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a scan as a table: see `Archive.read`."""
    if scan.openings or set(columns) == set(COLUMNS):
        return scan.read()[list(columns)]
    batches = scan.each(lambda some: list(some.iter_batches(columns)))
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    return to_columns(pa.Table.from_batches(itertools.chain(*batches), schema))


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
    period = pd.DatetimeIndex([_begin(scan)]).repeat(len(table))
    return table.set_axis(period.rename("period"), axis=0)


def _begin(scan: Scan) -> pd.Timestamp:
    """Return when the period of the first file begins."""
    begin = scan.files[0].begin if scan.files else 0
    return pd.Timestamp(from_microseconds(begin)).as_unit("us")


class LruCache:
    """A cache that keeps the last used entries; safe for threads.

    Parameters
    ----------
    most
        Maximum size, in the unit of its user: entries, rows or bytes. The newest entry is always
        kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size, self._lock = most, 0, threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return the entry of a key, else make it; `make` returns the entry and its size.

        The least recently used entries are dropped while all are too large.
        """
        entry = self.peek(key)
        if entry is None:
            entry, size = make()
            with self._lock:
                self._size += size - self._entries.pop(key, (None, 0))[1]
                self._entries[key] = entry, size
                while len(self._entries) > 1 and self._size > self._most:
                    self._size -= self._entries.popitem(last=False)[1][1]
        return entry

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return the entry of a key, or `None`."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key, (None, 0))[0]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of an archive. It pickles, and is equal where the archive held the same.

    Attributes
    ----------
    store
        The archive's files.
    manifest
        Its manifest.
    version
        The identity of the state: a digest of the manifest.
    """

    store: Store = field(compare=False)
    manifest: Manifest = field(compare=False)
    version: str

    @property
    def evidence(self) -> Evidence:
        """The evidence for the rows, whether or not the file under way is in its place by now."""
        evidence, pending = self.manifest.evidence, self.manifest.pending
        if pending is None:
            return evidence
        agreed = joined(span for span, _ in pending.evidence.agreed)
        return replace(
            evidence.without_agreements(between(agreed, *EVER)),
            set_aside=tuple(dict.fromkeys([*evidence.set_aside, *pending.evidence.set_aside])),
            disputed=(*evidence.disputed, *pending.evidence.disputed),
        )

    @property
    def known(self) -> Known:
        """The intervals that are complete."""
        return tuple(self.evidence.complete)

    def with_evidence(self, evidence: Evidence) -> Snapshot:
        """Return this state with other evidence for its rows."""
        return replace(self, manifest=replace(self.manifest, evidence=evidence))

    def files(self, start: int = EVER[0], end: int = EVER[1]) -> list[File]:
        """Return the files that may have rows in [start, end) that is covered, in time order."""
        answered = self.evidence.answered
        files, known = [], self.known
        for period in self.manifest.files:
            begin, stop = layout.period_bounds(period, self.manifest.partition)
            spans = tuple(clipped(answered, max(begin, start), min(stop, end)))
            if spans:
                name = self.manifest.changes_file(period)
                is_final = all(any(a <= c and d <= b for a, b in known) for c, d in spans)
                notes = self.manifest.entries(name)
                files.append(File(name, notes, begin, stop, spans, is_final=is_final))
        return files

    def files_since(self, start: int, end: int) -> list[File]:
        """Return the files of [start, end), and those needed for the balances before it.

        The first one may be a checkpoint: it has the last row before its `stop` of each account.
        """
        stop = max((at for at in self.manifest.checkpoints if at <= start), default=None)
        if stop is None:
            return self.files(end=end)
        name, note = layout.checkpoint_file(stop), self.manifest.checkpoints[stop]
        held = File(name, (note,), note.first, stop, ((note.first, stop),))
        return [held, *self.files(stop, end)]

    def scan(
        self,
        filters: Filters = Filters(),
        start: Instant | None = None,
        end: Instant | None = None,
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
        return Scan(
            self.store,
            filters,
            tuple(self.files(begin, stop)),
            # What is not known before `start` says which openings may have changed since.
            evidence.within(EVER[0] if opening else begin, stop),
            begin if evidence.answers else None,
            tuple(self.files_since(begin, begin)) if opening else (),
        )

    def around(self, scan: Scan, start: int, end: int) -> Scan:
        """Return a scan of the rows in [start, end), and of each account of the ones around them.

        These are its last row before `start`, and its last row of all, if that is behind `end`: so
        every account that has a row at any time is there.
        """
        ends = [
            replace(file, spans=tuple(clipped(file.spans, end, EVER[1])))
            for file in self.files_since(EVER[1], EVER[1])
        ]
        return replace(
            scan,
            files=tuple(self.files(start, end)),
            openings=tuple(self.files_since(start, start)),
            later=tuple(file for file in ends if file.spans),
        )

    def interval(self, start: Instant | None, end: Instant | None, *, partial: bool) -> Span:
        """Return an interval in microseconds; by default from the first complete one to the last.

        With `partial` it may be turned round, and then holds nothing.

        Raises
        ------
        IncompleteError
            If nothing is complete in what was asked for, unless `partial`.
        ValueError
            If `start` is not before `end`.
        """
        first, last = bounds_of(self.evidence.answered if partial else self.evidence.complete)
        begin, stop = to_bounds(start, end)
        begin, stop = first if begin is None else begin, last if stop is None else stop
        if begin < stop or partial:
            return begin, stop
        if start is not None and end is not None:
            raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
        said = "nothing is known to be complete"
        if first < last:
            said = f"only {range_text(first, last)} is complete, which was not asked for"
        raise IncompleteError(f"{self.store.uri}: {said}; {TAKE}")

    def check_complete(self, start: int, end: int, evidence: Evidence) -> None:
        """Raise IncompleteError where a row in [start, end) may be missing, with the gaps."""
        gaps = evidence.incomplete(start, end)
        if not gaps:
            return
        first, last = evidence.bounds
        why = "is unproven: the node may have forgotten rows, or a bad row was set aside"
        if evidence.missing(*gaps[0]):
            why = "is missing; `export --fill-gaps` asks for it"
        if evidence.answers and gaps[0][1] <= first:
            why = f"is missing: the archive begins at {moment_text(first)}"
        if evidence.answers and gaps[0][0] >= last:
            why = (
                f"is missing: the archive ends at {moment_text(last)}, where the next export "
                "continues"
            )
        raise IncompleteError(f"{self.store.uri}: {spans_text(gaps)} {why}; {TAKE}")

    def last_rows(
        self,
        filters: Filters = Filters(),
        moment: int = EVER[1],
        columns: Sequence[str] = COLUMNS,
    ) -> pa.Table:
        """Return the last row of each account up to a moment, in the order of files."""
        files = tuple(self.files_since(moment, moment + 1))
        parts = Scan(self.store, filters, files, Evidence()).each(lambda x: x.last_rows(columns))
        return merge_last_rows(parts, columns)

    def ids(self, filters: Filters = Filters()) -> dict[str, set[str]]:
        """Return the ids of the accounts that filters select, by column."""
        accounts = self.last_rows(filters, columns=FILE_KEY)
        return {name: {*accounts[name].unique().to_pylist()} for name in ACCOUNT_KEY}

    def find(self, narrowed: Filters, **words: Any) -> Filters:  # noqa: ANN401 - of make_filters
        """Return filters for the accounts that these and earlier ones select: see `Archive.select`.

        Raises
        ------
        ValueError
            If a filter stands for nothing that there is.
        ArchiveError
            If the archive is bound to other accounts.
        """
        ids = self.ids(narrowed)
        wanted = make_filters(**words, held=ids)
        self.manifest.query.check_holds(wanted)
        for name, values in wanted.allowed().items():
            if lacking := [value for value in values if value not in ids[name]]:
                word = name.removesuffix("_id").replace("_", " ")
                there = list_text(sorted(ids[name] - {NO_MARKET}), _NAMED) or "none"
                raise ValueError(f"no row has the {word} {lacking[0]!r}; there is {there}")
        both = narrowed.intersection(wanted)
        assert both is not None  # noqa: S101 - each id that is wanted is among the narrowed ones
        return both


def read_snapshot(store: Store) -> Snapshot:
    """Return the current state of an archive.

    The manifest is read each time, but decoded only if its bytes differ from the last ones: unlike
    times and sizes, bytes can't mislead.

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
    """Return what a function reads of the current state; if that is replaced meanwhile, retry."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(SnapshotGoneError):
            return read(read_snapshot(store))
    return read(read_snapshot(store))
