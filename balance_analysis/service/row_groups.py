"""Read from a day's file the rows that a page may need, and no more than it must.

A row group whose statistics show that it has no such row is not read; of several that may have one,
the filtered columns are read first. Rows stand by party in a file, so a party's rows are in one row
group or two. Rows of all accounts are all over the file: it is read whole, and the few files read
last are kept, since whoever asks for one page will ask for the next.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive.datafile import (
    is_within,
    iter_bounds,
    mask_of,
    may_have,
    open_rows,
    read_groups,
    times_of,
)
from balance_analysis.errors import ArchiveError
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from balance_analysis.archive.store import Store
    from balance_analysis.service.catalog import File
    from balance_analysis.spans import Span

_FOOTERS: Final = 2000
"""Footers that are kept, some 30 KB each."""

_FEW: Final = 2
"""So many row groups are read at once, whole: looking first would take longer."""

_AT_ONCE: Final = 32
"""Row groups that are in memory at once: half a million rows."""

_THREADS: Final = 4

_KEPT_BYTES: Final = 96_000_000
KEPT_ROWS: Final = 1_000_000

_BOUNDING: Final = (*ACCOUNT_KEY, "timestamp")

Allowed = dict[str, list[str]]
"""For each column that is filtered, the values that are asked for."""


class StaleError(Exception):
    """A file is not what the coverage said: it has been replaced since, or is damaged."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows a page may need.

    Attributes
    ----------
    allowed
        By which ids.
    count
        How many at least, of those nearest to the page's side.
    descending
        Whether the page's side is the newest.
    whole
        A moment whose rows are wanted all, besides the count: the cursor's block.
    """

    allowed: Allowed
    count: int
    descending: bool
    whole: int | None = None

    def nearest(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are needed at least, whole blocks, in any order."""
        if rows.num_rows <= self.count:
            return rows
        times = times_of(rows)
        is_whole = times == self.whole if self.whole is not None else np.zeros(len(times), bool)
        others = times[~is_whole]
        if len(others) <= self.count:
            return rows
        if self.descending:
            bound = np.partition(others, -self.count)[-self.count]
            return rows.filter(pa.array(is_whole | (times >= bound)))
        bound = np.partition(others, self.count - 1)[self.count - 1]
        return rows.filter(pa.array(is_whole | (times <= bound)))

    def nearest_within(self, rows: pa.Table, span: Span) -> pa.Table:
        """Return the same of rows in time order in a span, which begins with the whole block."""
        times = times_of(rows)
        low, high = np.searchsorted(times, span)
        count = self.count
        if self.whole is not None:
            count += int(np.diff(np.searchsorted(times[low:high], (self.whole, self.whole + 1)))[0])
        if high - low > count:
            if self.descending:
                low = np.searchsorted(times, times[high - count])
            else:
                high = np.searchsorted(times, times[low + count - 1], side="right")
        return rows.slice(low, high - low)

    def found(self, rows: pa.Table) -> int:
        """Return how many of some rows count."""
        if self.whole is None:
            return int(rows.num_rows)
        return int(np.count_nonzero(times_of(rows) != self.whole))


@dataclass(frozen=True, slots=True)
class _Footer:
    """Where a file's row groups are, and the least and greatest value of each column in each."""

    metadata: pq.FileMetaData
    bounds: list[dict[str, tuple[Any, Any]]]

    def may_have(self, span: Span, allowed: Allowed) -> list[int]:
        return [
            number
            for number, bounds in enumerate(self.bounds)
            if may_have(bounds.items(), span, allowed)
        ]


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="reading")


class Reader:
    """Reads rows, from any number of threads.

    Parameters
    ----------
    store
        The archive's files.
    kept_rows
        Files of more rows are not read whole and kept, but read anew for each page, in parts.
    """

    def __init__(self, store: Store, *, kept_rows: int = KEPT_ROWS) -> None:
        self._store, self._kept_rows = store, kept_rows
        self._lock = threading.Lock()
        self._footers: OrderedDict[str, _Footer] = OrderedDict()
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._pool = _new_pool()
        # So that many who ask for the same file at once read it once, and few files are read whole
        # at the same time: each takes three times its rows' memory.
        self._turns = [threading.Lock() for _ in range(_THREADS)]

    def rows(self, file: File, span: Span, wanted: Wanted, check: Callable[[], None]) -> pa.Table:
        """Return the rows of a file in a span that a page may need, in any order.

        Parameters
        ----------
        file
            Which file.
        span
            Half-open, microseconds.
        wanted
            Which rows, and how many.
        check
            Called now and then; raises where it has taken too long.

        Raises
        ------
        StaleError
            If the file is not what the coverage said.
        """
        try:
            if not wanted.allowed and max(note.rows for note in file.notes) <= self._kept_rows:
                return wanted.nearest_within(self._whole(file), span)
            return self._part(file, span, wanted, check)
        except (pa.ArrowException, OSError, ArchiveError) as error:
            raise StaleError(f"{file.period}: {error}") from error

    def rows_of_several(
        self, parts: Sequence[tuple[File, Span]], wanted: Wanted, check: Callable[[], None]
    ) -> list[pa.Table]:
        """Return the same of several files, read side by side.

        Raises
        ------
        StaleError
            If one of them is not what the coverage said.
        """
        read = partial(self._rows_of, wanted=wanted, check=check)
        return list((self._pool.map if len(parts) > 1 else map)(read, parts))

    def _rows_of(
        self, part: tuple[File, Span], *, wanted: Wanted, check: Callable[[], None]
    ) -> pa.Table:
        return self.rows(*part, wanted, check)

    def close(self) -> None:
        """Let go of threads and of what is kept; who reads again starts anew."""
        with self._lock:
            pool, self._pool = self._pool, _new_pool()
            self._kept.clear()
            self._footers.clear()
        pool.shutdown(wait=False, cancel_futures=True)

    def _whole(self, file: File) -> pa.Table:
        """Return all rows of a file in time order."""
        with self._store.open(file.name) as source:
            size = source.size()
        digest = next((note.sha256 for note in file.notes if note.size == size), None)
        if digest is None:
            raise StaleError(f"{file.period}: {size} bytes, not {[n.size for n in file.notes]}")
        with self._turns[hash(digest) % len(self._turns)]:
            with self._lock:
                if digest in self._kept:
                    self._kept.move_to_end(digest)
                    return self._kept[digest]
            content = self._store.read(file.name)
            digest = hashlib.sha256(content or b"").hexdigest()
            if content is None or digest not in {note.sha256 for note in file.notes}:
                raise StaleError(f"{file.period}: the content is another")
            rows = _in_time_order(pq.read_table(pa.BufferReader(content)))
            with self._lock:
                self._kept[digest] = rows
                while sum(kept.nbytes for kept in self._kept.values()) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
            return rows

    def _part(self, file: File, span: Span, wanted: Wanted, check: Callable[[], None]) -> pa.Table:
        with self._store.open(file.name) as source:
            parquet, digest = open_rows(source, file.notes, self._known)
            return _select(parquet, self._footer(digest, parquet.metadata), span, wanted, check)

    def _known(self, digest: str) -> pq.FileMetaData | None:
        footer = self._footers.get(digest)
        return footer and footer.metadata

    def _footer(self, digest: str, metadata: pq.FileMetaData) -> _Footer:
        footer = self._footers.get(digest) or _read_footer(metadata)
        with self._lock:
            self._footers[digest] = footer
            while len(self._footers) > _FOOTERS:
                self._footers.popitem(last=False)
        return footer


def _read_footer(metadata: pq.FileMetaData) -> _Footer:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return _Footer(metadata, [dict(iter_bounds(group, _BOUNDING)) for group in groups])


def _select(
    parquet: pq.ParquetFile,
    footer: _Footer,
    span: Span,
    wanted: Wanted,
    check: Callable[[], None],
) -> pa.Table:
    groups = footer.may_have(span, wanted.allowed)
    if wanted.allowed and len(groups) > _FEW:
        groups = _looked_into(parquet, groups, wanted.allowed, check)
    found: list[pa.Table] = []
    for begin in range(0, len(groups), _AT_ONCE):
        check()
        numbers = groups[begin : begin + _AT_ONCE]
        rows = read_groups(parquet, numbers, use_threads=len(groups) > _FEW)
        rows = rows.filter(pa.array(mask_of(rows, wanted.allowed) & is_within(rows, span)))
        found = [wanted.nearest(pa.concat_tables([*found, rows]) if found else rows)]
    return found[0] if found else ARROW_SCHEMA.empty_table()


def _in_time_order(rows: pa.Table) -> pa.Table:
    rows = rows.cast(ARROW_SCHEMA).unify_dictionaries()
    return rows.take(pa.array(np.argsort(times_of(rows)))).combine_chunks()


def _looked_into(
    parquet: pq.ParquetFile, groups: Sequence[int], allowed: Allowed, check: Callable[[], None]
) -> list[int]:
    """Return the row groups that have a row by the filters, whenever it be."""
    check()
    rows = read_groups(parquet, groups, list(allowed), use_threads=True)
    ends = np.cumsum([parquet.metadata.row_group(number).num_rows for number in groups])
    counts = np.append(0, np.cumsum(mask_of(rows, allowed)))[np.append(0, ends)]
    return [number for number, count in zip(groups, np.diff(counts), strict=True) if count]
