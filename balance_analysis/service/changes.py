"""Answer requests for balance changes: a page of an archive, and where it may lack rows.

Files are searched one by one until the page is full. Files are sorted by party, so a party's rows
are in one row group or two. A request for all accounts reads whole files; the files read last are
cached, since a client that requests one page will request the next. `parameters` reads the request,
`listing` writes the rows.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa
from starlette.responses import Response

from balance_analysis.archive.datafile import NO_ROWS, Predicate, times_of
from balance_analysis.archive.snapshot import FileSlice, LruCache, Snapshot, opened, with_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.service.listing import ListedRow, Place, cursor_error, in_order, render
from balance_analysis.service.parameters import AFTER, BEFORE, ChangesQuery, read_parameters
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import EVER, Span, clipped

_FEW: Final = 2
"""Number of row groups to read without searching them first: the search would take longer."""

KEPT_ROWS: Final = 1_000_000
"""Maximum rows of a file to read whole and cache; a larger one is read in parts for each page."""

_reading: Final = threading.Lock()
"""Held to read a file whole: one at a time, since it takes three times its rows' memory."""


def _nearest(rows: pa.Table, count: int, block: int, *, descending: bool) -> pa.Table:
    """Return the rows that a page may need: the nearest to its start, in whole blocks.

    Parameters
    ----------
    rows
        The rows of the page's filters and interval.
    count
        Minimum number of rows.
    block
        Time (in microseconds) of the cursor's block, whose rows don't count; without a cursor, a
        moment beyond all rows.
    descending
        Whether the page starts with its newest rows.
    """
    times = times_of(rows)
    counted = times[times != block]
    if len(counted) <= count:
        return rows
    place = len(counted) - count if descending else count - 1
    edge = np.partition(counted, place)[place]
    return rows.filter(pa.array(times >= edge if descending else times <= edge))


@dataclass(frozen=True, slots=True)
class Finder:
    """Find pages' rows in one state of an archive.

    Attributes
    ----------
    snapshot
        The state.
    cache
        Cache of the rows of the files read last.
    check
        Called now and then; raises once the request has taken too long.
    """

    snapshot: Snapshot
    cache: LruCache
    check: Callable[[], None]

    def page(self, query: ChangesQuery) -> bytes:
        """Return the requested page, as the body of an answer.

        Raises
        ------
        HTTPException
            If the cursor marks no row of the archive.
        SnapshotGoneError
            If a file was replaced in the meantime.
        """
        cursor, filters = query.cursor, query.filters
        start = EVER[0] if query.start is None else query.start
        span = start, EVER[1] if query.end is None else query.end
        descending = query.newest_first != query.backward
        near, beyond = self._walk(filters, span, cursor, query.size + 1, descending=descending)
        if cursor is not None and not near:  # it may mark a row that the filters exclude
            block = cursor[0], cursor[0] + 1
            if not self._walk(Filters(), block, cursor, 1, descending=True)[0]:
                raise cursor_error(BEFORE if query.backward else AFTER)
            near = bool(self._walk(filters, span, cursor, 1, descending=not descending)[1])
        rows, more = beyond[: query.size], len(beyond) > query.size
        near = near and len(rows) > 0
        if query.backward:
            return render(rows[::-1], has_next=near, has_previous=more)
        return render(rows, has_next=more, has_previous=near)

    def has_account_type(self, name: str) -> bool:
        """Return whether any row has this account type."""
        return bool(self._walk(Filters(account_types=(name,)), EVER, None, 1, descending=True)[1])

    def _walk(
        self,
        filters: Filters | None,
        span: Span,
        cursor: Place | None,
        count: int,
        *,
        descending: bool,
    ) -> tuple[bool, list[ListedRow]]:
        """Return whether the cursor's row exists, and the next `count` rows or more beyond it.

        Without a cursor, the rows begin at the newest or oldest end of the span. Blocks are whole.
        """
        if filters is None:
            return False, []
        parts, number = [NO_ROWS], 0
        block, (start, end) = EVER[descending], span
        if cursor is not None:
            block = cursor[0]
            start, end = (start, min(end, block + 1)) if descending else (max(start, block), end)
        for file, spans in self._files(start, end)[:: -1 if descending else 1]:
            self.check()
            near = partial(_nearest, count=count - number, block=block, descending=descending)
            parts.append(self._rows(file, Predicate(filters.allowed(), spans), near))
            number += int(np.count_nonzero(times_of(parts[-1]) != block))
            if number >= count:
                break
        listed = in_order(pa.concat_tables(parts))
        if cursor is None:
            return False, listed[::-1] if descending else listed
        place = bisect.bisect_left(listed, cursor, key=lambda row: row[:2])
        exists = place < len(listed) and listed[place][:2] == cursor
        return exists, listed[:place][::-1] if descending else listed[place + exists :]

    def _files(self, start: int, end: int) -> list[tuple[FileSlice, tuple[Span, ...]]]:
        """Return the files that may have rows in [start, end), each with the spans it covers."""
        files = _files_of(self.snapshot)
        low = bisect.bisect_right(files, start, key=lambda file: file.stop)
        high = bisect.bisect_left(files, end, key=lambda file: file.begin)
        pairs = ((file, tuple(clipped(file.spans, start, end))) for file in files[low:high])
        return [(file, spans) for file, spans in pairs if spans]

    def _rows(
        self, file: FileSlice, predicate: Predicate, near: Callable[[pa.Table], pa.Table]
    ) -> pa.Table:
        """Return a file's rows that a page may need, in any order: those that `near` keeps.

        Raises
        ------
        SnapshotGoneError
            If the file was replaced in the meantime.
        ArchiveError
            If the file is damaged.
        """
        is_small = file.most_rows <= KEPT_ROWS
        if is_small and not predicate.allowed:
            return near(predicate.select(self._whole(file)))
        rows = NO_ROWS
        with opened(self.snapshot.store, file) as data:
            groups = data.row_groups(predicate)
            if predicate.allowed and len(groups) > _FEW:
                self.check()
                groups = data.matching(groups, predicate)
            for part in data.rows(predicate, groups=groups, use_threads=len(groups) > _FEW):
                self.check()
                rows = near(pa.concat_tables([rows, part]))
        return rows

    def _whole(self, file: FileSlice) -> pa.Table:
        """Return all rows of a file, from the cache if it has them."""

        def read() -> tuple[pa.Table, int]:
            with opened(self.snapshot.store, file) as data:
                rows = data.read(use_threads=True)
            return rows, rows.nbytes

        key = file.name, file.entries
        rows: pa.Table | None = self.cache.peek(key)
        if rows is None:
            with _reading:
                rows = self.cache.get(key, read)
        return rows


@lru_cache(maxsize=4)
def _files_of(snapshot: Snapshot) -> list[FileSlice]:
    return snapshot.files()


_MOST: Final = 50
"""Maximum number of stretches in a header."""

_ALWAYS: Final = -(2**63) // 1000 + 1, 2**63 // 1000
"""All microseconds that 64 bits of nanoseconds hold."""


def answer_changes(
    store: Store, cache: LruCache, items: Sequence[tuple[str, str]], check: Callable[[], None]
) -> Response:
    """Return one page of the balance changes of an archive.

    Parameters
    ----------
    store, cache
        The archive's files, and a cache for their rows. An export may run at the same time.
    items
        Names and values of the query, decoded, in its order.
    check
        Called now and then; raises once the request has taken too long.

    Raises
    ------
    HTTPException
        If the request is wrong.
    ArchiveError, OSError
        If the archive can't be read.
    """

    def read(snapshot: Snapshot) -> Response:
        check()
        finder = Finder(snapshot, cache, check)
        query = read_parameters(items, is_known_type=finder.has_account_type)
        headers = evidence_headers(snapshot.evidence)
        if spans := [*clipped(_incomplete(snapshot.evidence, query), *_ALWAYS)]:
            # If there are too many, send one stretch that covers them all.
            shown = spans if len(spans) <= _MOST else [(spans[0][0], spans[-1][1])]
            headers["X-Incomplete"] = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in shown)
        return Response(finder.page(query), media_type="application/json", headers=headers)

    return with_snapshot(store, read)


def evidence_headers(evidence: Evidence) -> dict[str, str]:
    """Return the headers with the end of the archive's answers and the origins of its rows.

    `X-Block-Timestamp` is the end of the last answer, in nanoseconds, and `X-Block-Height` the last
    block of the node that gave it. `X-Origins` has the origins of all answers: compared with one of
    these, the service is no second source.
    """
    headers = {"X-Origins": ", ".join(sorted({x for y in evidence.answers for x in y.node.origin}))}
    for newest in evidence.answers[-1:]:
        headers["X-Block-Timestamp"] = str(newest.span[1] * 1000)
        if newest.heights is not None:
            headers["X-Block-Height"] = str(newest.heights[1])
    return headers


def _incomplete(evidence: Evidence, query: ChangesQuery) -> list[Span]:
    """Return the stretches in which an answer may lack rows.

    An open bound is that of the archive's coverage: such a request asks for the rows that there
    are. If the other bound lies beyond the coverage, an open bound is infinite.
    """
    if query.filters is None:
        return []
    for first, last in (evidence.bounds, _ALWAYS):
        start = first if query.start is None else query.start
        end = last if query.end is None else query.end
        if start < end:
            break
    if not evidence.filters.covers(query.filters):
        return [(start, end)] if start < end else []
    return evidence.narrow(query.filters).incomplete(start, end)
