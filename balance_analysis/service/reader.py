"""Read from an archive's files the rows that a page may need, and no more than it must.

Rows stand by party in a file, so a party's rows are in one row group or two. Rows of all accounts
are all over the file: it is read whole, and the few files read last are kept, since whoever asks
for one page will ask for the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from balance_analysis.archive.accounts import times_of
from balance_analysis.archive.datafile import DataFile, Footer, Predicate
from balance_analysis.archive.scan import File, LruCache, opened
from balance_analysis.archive.store import Store
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import Span

_FOOTER_BYTES: Final = 30_000
"""What a footer takes, about."""

_FEW: Final = 2
"""So many row groups are read at once, whole: looking first would take longer."""

_AT_ONCE: Final = 32
"""Row groups that are in memory at once: half a million rows."""

_WHOLE_AT_ONCE: Final = 4
"""Files that are read whole at once: each takes three times its rows' memory."""

KEPT_BYTES: Final = 200_000_000
KEPT_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Nearest:
    """Which rows a page may need: those nearest to its side, whole blocks.

    Attributes
    ----------
    count
        How many at least.
    descending
        Whether the page's side is the newest.
    block
        The time of the block at that side whose rows don't count: the cursor's.
    """

    count: int
    descending: bool
    block: int | None = None

    def among(self, rows: pa.Table) -> pa.Table:
        """Return these of rows in any order."""
        times = times_of(rows)
        others = times if self.block is None else times[times != self.block]
        if len(others) <= self.count:
            return rows
        place = len(others) - self.count if self.descending else self.count - 1
        bound = np.partition(others, place)[place]
        return rows.filter(pa.array(times >= bound if self.descending else times <= bound))

    def within(self, rows: pa.Table, span: Span) -> pa.Table:
        """Return these of the rows of a span, of rows in time order."""
        times = times_of(rows)
        low, high = np.searchsorted(times, span)
        if self.descending:
            edge = high if self.block is None else min(high, np.searchsorted(times, self.block))
            if edge - low > self.count:
                low = np.searchsorted(times, times[edge - self.count])
        else:
            behind = low if self.block is None else np.searchsorted(times, self.block, side="right")
            edge = max(low, behind)
            if high - edge > self.count:
                high = np.searchsorted(times, times[edge + self.count - 1], side="right")
        return rows.slice(low, high - low)

    def found(self, rows: pa.Table) -> int:
        """Return how many of some rows count."""
        if self.block is None:
            return int(rows.num_rows)
        return int(np.count_nonzero(times_of(rows) != self.block))


class Reader:
    """Reads rows, from any number of threads.

    Parameters
    ----------
    store
        The archive's files.
    cache
        Where to keep what was read last, in bytes; by default one of its own.
    kept_rows
        Files of more rows are not read whole and kept, but read anew for each page, in parts.
    """

    def __init__(
        self, store: Store, *, cache: LruCache | None = None, kept_rows: int = KEPT_ROWS
    ) -> None:
        self._store, self._kept_rows = store, kept_rows
        self._kept = LruCache(KEPT_BYTES) if cache is None else cache
        # So that many who ask for the same file at once read it once.
        self._turns = [threading.Lock() for _ in range(_WHOLE_AT_ONCE)]

    def rows(
        self, file: File, predicate: Predicate, nearest: Nearest, check: Callable[[], None]
    ) -> pa.Table:
        """Return the rows of a file that a page may need, in any order.

        Parameters
        ----------
        file, predicate
            Which file, and which rows of it: of one span.
        nearest
            How many of these.
        check
            Called now and then; raises where it has taken too long.

        Raises
        ------
        SnapshotGoneError
            If the file was replaced since.
        ArchiveError
            If it is damaged.
        """
        is_small = max(note.rows for note in file.notes) <= self._kept_rows
        if is_small and predicate.spans and not predicate.allowed:
            return nearest.within(self._whole(file), predicate.spans[0])
        with opened(self._store, file, self._parse) as data:
            return _part(data, predicate, nearest, check)

    def _parse(self, content: bytes) -> Footer:
        footer: Footer = self._kept.get(content, lambda: (Footer(content), _FOOTER_BYTES))
        return footer

    def _whole(self, file: File) -> pa.Table:
        """Return all rows of a file in time order."""

        def read() -> tuple[pa.Table, int]:
            with opened(self._store, file, self._parse) as data:
                rows = data.read(use_threads=True).cast(ARROW_SCHEMA).unify_dictionaries()
            rows = rows.take(pa.array(np.argsort(times_of(rows)))).combine_chunks()
            return rows, rows.nbytes

        with self._turns[hash(file.name) % len(self._turns)]:
            return self._kept.get((file.name, file.notes), read)


def _part(
    data: DataFile, predicate: Predicate, nearest: Nearest, check: Callable[[], None]
) -> pa.Table:
    groups = data.row_groups(predicate)
    if predicate.allowed and len(groups) > _FEW:
        check()
        groups = data.matching(groups, predicate)
    is_large = len(groups) > _FEW
    found = ARROW_SCHEMA.empty_table()
    for rows in data.rows(predicate, groups=groups, at_once=_AT_ONCE, use_threads=is_large):
        check()
        found = nearest.among(pa.concat_tables([found, rows]) if found.num_rows else rows)
    return found
