"""The list of balance changes: one page of an archive, and where rows of it may be missing.

The rows of a page are looked for file by file until it is full. Rows stand by party in a file, so a
party's rows are in one row group or two. Rows of all accounts are all over the file: it is read
whole, and the few files read last are kept, since whoever asks for one page will ask for the next.
`parameters` reads what is asked, `listing` writes the rows.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from starlette.responses import Response

from balance_analysis.archive.datafile import DataFile, Footer, Predicate, times_of
from balance_analysis.archive.snapshot import File, LruCache, Snapshot, opened, with_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.evidence import Evidence
from balance_analysis.filters import Filters
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.service import listing
from balance_analysis.service.parameters import AFTER, BEFORE, ChangesQuery, read_parameters
from balance_analysis.spans import EVER, Span, clipped

_FOOTER_BYTES: Final = 30_000
"""The approximate size of a footer."""

_FEW: Final = 2
"""Row groups that are read whole at once: looking first would take longer."""

_AT_ONCE: Final = 32
"""Row groups that are in memory at once: half a million rows."""

KEPT_ROWS: Final = 1_000_000
"""Rows of a file that is read whole, and kept."""


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
        The time of the block at that side whose rows don't count: the cursor's; without one a
        moment beyond all rows.
    """

    count: int
    descending: bool
    block: int

    def within(self, rows: pa.Table, span: Span) -> pa.Table:
        """Return these of the rows of a span, of rows in time order."""
        times = times_of(rows)
        low, high = np.searchsorted(times, span)
        if self.descending:
            edge = min(high, np.searchsorted(times, self.block))
            if edge - low > self.count:
                low = np.searchsorted(times, times[edge - self.count])
        else:
            edge = max(low, np.searchsorted(times, self.block, side="right"))
            if high - edge > self.count:
                high = np.searchsorted(times, times[edge + self.count - 1], side="right")
        return rows.slice(low, high - low)

    def count_of(self, rows: pa.Table) -> int:
        """Return how many of some rows count."""
        return int(np.count_nonzero(times_of(rows) != self.block))


class Reader:
    """Reads row files of an archive, for any number of threads.

    Parameters
    ----------
    store
        The archive's files.
    kept
        Where to keep footers, and the rows of the files read last, in bytes.
    kept_rows
        The rows of a file that is kept whole; a larger one is read for each page, in parts.
    """

    def __init__(self, store: Store, kept: LruCache, *, kept_rows: int = KEPT_ROWS) -> None:
        self._store, self._kept, self._kept_rows = store, kept, kept_rows
        # One file is read whole at a time, and once: it takes three times its rows' memory.
        self._reading = threading.Lock()

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
            return _read_groups(data, predicate, nearest, check)

    def _parse(self, content: bytes) -> Footer:
        footer: Footer = self._kept.get(content, lambda: (Footer(content), _FOOTER_BYTES))
        return footer

    def _whole(self, file: File) -> pa.Table:
        """Return all rows of a file in time order."""

        def read() -> tuple[pa.Table, int]:
            with opened(self._store, file, self._parse) as data:
                rows = _by_time(data.read(use_threads=True).cast(ARROW_SCHEMA))
            return rows, rows.nbytes

        key = file.name, file.notes
        rows: pa.Table | None = self._kept.peek(key)
        if rows is None:
            with self._reading:
                rows = self._kept.get(key, read)
        return rows


def _by_time(rows: pa.Table) -> pa.Table:
    rows = rows.unify_dictionaries().take(pa.array(np.argsort(times_of(rows))))
    return rows.combine_chunks()


def _read_groups(
    data: DataFile, predicate: Predicate, nearest: Nearest, check: Callable[[], None]
) -> pa.Table:
    groups = data.row_groups(predicate)
    if predicate.allowed and len(groups) > _FEW:
        check()
        groups = data.matching(groups, predicate)
    is_large = len(groups) > _FEW
    latest = ARROW_SCHEMA.empty_table()
    for rows in data.rows(predicate, groups=groups, at_once=_AT_ONCE, use_threads=is_large):
        check()
        known = pa.concat_tables([latest, rows]) if latest.num_rows else rows
        latest = nearest.within(_by_time(known), EVER)
    return latest


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds the rows of pages in one state of an archive.

    Attributes
    ----------
    snapshot
        The state.
    reader
        Of its files.
    check
        Called now and then; raises once nobody waits for the page.
    """

    snapshot: Snapshot
    reader: Reader
    check: Callable[[], None]

    def page(self, query: ChangesQuery) -> bytes:
        """Return one page of the rows that are asked for, as the body of an answer.

        Raises
        ------
        HTTPException
            If the cursor marks no row of the archive.
        SnapshotGoneError
            If a file was replaced meanwhile.
        """
        cursor, filters = query.cursor, query.filters
        start = EVER[0] if query.start is None else query.start
        span = start, EVER[1] if query.end is None else query.end
        descending = query.newest_first != query.backward
        listed = self._walk(filters, span, cursor, count=query.size + 1, descending=descending)
        beyond, near = np.arange(len(listed)), False
        if cursor is not None:
            near = bool(listed.at(cursor).any())
            beyond = np.flatnonzero(listed.beyond(cursor, descending=descending))
            if not near:  # it may be of a row that the filters or the period leave out
                block = cursor.time, cursor.time + 1
                held = self._walk(Filters(), block, cursor, count=1, descending=True)
                if not held.at(cursor).any():
                    raise listing.foreign(BEFORE if query.backward else AFTER)
                behind = self._walk(filters, span, cursor, count=1, descending=not descending)
                near = bool(behind.beyond(cursor, descending=not descending).any())
        nearest = beyond[::-1] if descending else beyond
        chosen, more = nearest[: query.size], len(nearest) > query.size
        near = near and len(chosen) > 0
        if query.backward:
            return listing.render(listed.take(chosen[::-1]), has_next=near, has_previous=more)
        return listing.render(listed.take(chosen), has_next=more, has_previous=near)

    def has_account_type(self, name: str) -> bool:
        """Return whether any row is of this account type."""
        filters = Filters(account_types=(name,))
        return len(self._walk(filters, EVER, None, count=1, descending=True)) > 0

    def _walk(
        self,
        filters: Filters | None,
        span: Span,
        cursor: listing.Place | None,
        *,
        count: int,
        descending: bool,
    ) -> listing.ListedRows:
        """Return at least `count` rows from the cursor or an end of a span on, as whole blocks.

        The cursor's block is there besides.
        """
        parts, number = [ARROW_SCHEMA.empty_table()], 0
        if filters is None:
            return listing.in_order(parts[0])
        block, (start, end) = EVER[descending], span
        if cursor is not None:
            block = cursor.time
            start, end = (start, min(end, block + 1)) if descending else (max(start, block), end)
        for file, within in self._files(start, end, descending=descending):
            self.check()
            nearest = Nearest(count - number, descending, block)
            predicate = Predicate(filters.allowed(), (within,))
            parts.append(self.reader.rows(file, predicate, nearest, self.check))
            number += nearest.count_of(parts[-1])
            if number >= count:
                break
        return listing.in_order(pa.concat_tables(parts))

    def _files(self, start: int, end: int, *, descending: bool) -> Iterator[tuple[File, Span]]:
        """Yield the files that may have rows in the covered parts of [start, end), in time order.

        Each comes with the span of it that is asked for.
        """
        files, step = _files_of(self.snapshot), -1 if descending else 1
        low = bisect.bisect_right(files, start, key=lambda file: file.stop)
        high = bisect.bisect_left(files, end, key=lambda file: file.begin)
        for file in files[low:high][::step]:
            for begin, stop in clipped(file.spans[::step], start, end):
                if any(note.first < stop and note.last >= begin for note in file.notes):
                    yield file, (begin, stop)


@lru_cache(maxsize=4)
def _files_of(snapshot: Snapshot) -> list[File]:
    return snapshot.files()


_MOST: Final = 50
"""Stretches that a header has room for."""

_ALWAYS: Final = -(2**63) // 1000 + 1, 2**63 // 1000
"""All microseconds that 64 bits of nanoseconds hold."""


def answer_changes(
    store: Store,
    reader: Reader,
    items: Sequence[tuple[str, str]],
    check: Callable[[], None] = lambda: None,
) -> Response:
    """Return one page of the balance changes of an archive.

    Parameters
    ----------
    store, reader
        The archive's files, and their reader; an export may go on meanwhile.
    items
        Names and values of the query, decoded, in its order.
    check
        Called now and then; raises once nobody waits for the page.

    Raises
    ------
    HTTPException
        If the request is wrong.
    ArchiveError, OSError
        If the archive can't be read.
    """

    def read(snapshot: Snapshot) -> Response:
        check()
        finder = Finder(snapshot, reader, check)
        query = read_parameters(items, is_known_type=finder.has_account_type)
        headers = evidence_headers(snapshot.evidence)
        if spans := _incomplete(snapshot.evidence, query):
            # Where they are very many, one stretch that holds them all.
            shown = spans if len(spans) <= _MOST else [(spans[0][0], spans[-1][1])]
            headers["X-Incomplete"] = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in shown)
        return Response(finder.page(query), media_type="application/json", headers=headers)

    return with_snapshot(store, read)


def evidence_headers(evidence: Evidence) -> dict[str, str]:
    """Return the headers that say up to where the archive answers, and where its rows are from.

    `X-Block-Timestamp` is where its answers end, in nanoseconds, and `X-Block-Height` the last
    block that the node held which gave the last of them. `X-Origins` has the origins of all
    answers: whoever compares this service with them has no second source.
    """
    headers = {"X-Origins": ", ".join(sorted({x for y in evidence.answers for x in y.node.origin}))}
    for newest in evidence.answers[-1:]:
        headers["X-Block-Timestamp"] = str(newest.span[1] * 1000)
        if newest.heights is not None:
            headers["X-Block-Height"] = str(newest.heights[1])
    return headers


def _incomplete(evidence: Evidence, query: ChangesQuery) -> list[Span]:
    """Return the stretches in which an answer may lack rows.

    A side without a bound ends where the archive's coverage does: whoever doesn't say how far back
    to go asks for what there is. Where the other bound lies beyond that, it has no end.
    """
    if query.filters is None:
        return []
    start, end = (
        bound if given is None else given
        for given, bound in zip((query.start, query.end), evidence.bounds, strict=True)
    )
    if start >= end:
        start, end = (
            bound if given is None else given
            for given, bound in zip((query.start, query.end), _ALWAYS, strict=True)
        )
    held, asked = evidence.filters.allowed(), query.filters.allowed()
    if not all(asked.get(name) and {*asked[name]} <= {*held[name]} for name in held):
        return [(start, end)] if start < end else []
    spans = evidence.narrow(query.filters).incomplete(start, end)
    # Careful clients send a bound that lies one before, as some server's start may be exclusive.
    is_margin = start + 1 < end and spans[:1] == [(start, start + 1)]
    return spans[1:] if is_margin else spans
