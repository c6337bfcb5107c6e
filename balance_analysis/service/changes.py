"""The list of balance changes: one page of an archive, found file by file until it is full.

`parameters` reads what is asked, `coverage` what the archive holds and may lack, `reader` its rows;
`listing` brings them in order and writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from starlette.responses import Response

from balance_analysis.archive.datafile import Predicate
from balance_analysis.archive.scan import File, LruCache
from balance_analysis.archive.snapshot import Snapshot, with_snapshot
from balance_analysis.errors import ArchiveError
from balance_analysis.explorer.source import go_on
from balance_analysis.filters import Filters
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.service.coverage import (
    block_headers,
    headers_of,
    parts_of,
    unavailable,
)
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.service.listing import (
    ListedRows,
    Place,
    ServedPage,
    encode_cursor,
    foreign,
    in_order,
    render,
)
from balance_analysis.service.parameters import AFTER, BEFORE, ChangesQuery, read_parameters
from balance_analysis.service.reader import Nearest, Reader
from balance_analysis.spans import EVER, Span

if TYPE_CHECKING:
    from balance_analysis.archives import Archive


_AHEAD: Final = 8
"""The most files that are read at once for one page."""


class Changes:
    """The balance changes of an archive, for any number of threads.

    Parameters
    ----------
    archive
        The archive; an export may go on meanwhile.
    strict_coverage
        Whether to refuse a request that reaches outside of what the archive vouches for, rather
        than to answer it with a warning.
    cache
        Where to keep what was read last, in bytes; by default one of its own.
    """

    def __init__(
        self, archive: Archive, *, strict_coverage: bool = False, cache: LruCache | None = None
    ) -> None:
        self._store, self._reader = archive.store, Reader(archive.store, cache=cache)
        self._strict = strict_coverage

    def answer(
        self,
        items: Sequence[tuple[str, str]],
        *,
        check: Callable[[], None] = go_on,
        pool: Executor | None = None,
    ) -> Response:
        """Return one page.

        Parameters
        ----------
        items
            Names and values of the query, decoded, in its order.
        check
            Called now and then; raises once nobody waits for the page.
        pool
            Where files are read side by side; `None` reads one after the other.

        Raises
        ------
        RefusedError
            If the request is wrong, reaches outside of the coverage though that is refused, or the
            archive can't be read.
        """

        def read(snapshot: Snapshot) -> Response:
            check()
            return self._answer(items, Finder(snapshot, self._reader, check, pool))

        try:
            return with_snapshot(self._store, read)
        except (ArchiveError, OSError) as error:
            raise unavailable(error) from error

    def _answer(self, items: Sequence[tuple[str, str]], finder: Finder) -> Response:
        query = read_parameters(items, is_known_type=finder.has_account_type)
        lacking = headers_of(finder.snapshot, query)
        if lacking and self._strict:
            words = lacking["Warning"].partition('"')[2].rstrip('"')
            raise RefusedError(
                f"the archive does not vouch for all of this: {words}", code=Code.OUT_OF_RANGE
            )
        body = render(finder.page(query))
        headers = block_headers(finder.snapshot) | lacking
        return Response(body, media_type="application/json", headers=headers)


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds rows in one state of an archive.

    Attributes
    ----------
    snapshot
        The state.
    reader
        Of its files.
    check
        Called now and then; raises once nobody waits for the page.
    pool
        Where files are read side by side.
    """

    snapshot: Snapshot
    reader: Reader
    check: Callable[[], None]
    pool: Executor | None

    def page(self, query: ChangesQuery) -> ServedPage:
        """Return one page of the rows that are asked for.

        Raises
        ------
        RefusedError
            If the cursor marks no row of the archive.
        SnapshotGoneError
            If a file was replaced meanwhile.
        """
        cursor, filters = query.cursor, query.filters
        start = EVER[0] if query.start is None else query.start
        span = start, EVER[1] if query.end is None else query.end
        descending = query.newest_first != query.backward
        found = self._walk(filters, span, cursor, count=query.size + 1, descending=descending)
        beyond, near = np.arange(len(found)), False
        if cursor is not None:
            near = bool(found.at(cursor).any())
            beyond = np.flatnonzero(found.beyond(cursor, descending=descending))
            if not near:  # it may be of a row that the filters or the period leave out
                block = cursor.time, cursor.time + 1
                held = self._walk(Filters(), block, cursor, count=1, descending=True)
                if not held.at(cursor).any():
                    raise foreign(BEFORE if query.backward else AFTER, encode_cursor(cursor))
                behind = self._walk(filters, span, cursor, count=1, descending=not descending)
                near = bool(behind.beyond(cursor, descending=not descending).any())
        nearest = beyond[::-1] if descending else beyond
        chosen, more = nearest[: query.size], len(nearest) > query.size
        near = near and len(chosen) > 0
        if query.backward:
            return ServedPage(found.take(chosen[::-1]), has_next=near, has_previous=more)
        return ServedPage(found.take(chosen), has_next=more, has_previous=near)

    def has_account_type(self, name: str) -> bool:
        """Return whether any row is of this account type."""
        filters = Filters(account_types=(name,))
        return len(self._walk(filters, EVER, None, count=1, descending=True)) > 0

    def _walk(
        self,
        filters: Filters | None,
        span: Span,
        cursor: Place | None,
        *,
        count: int,
        descending: bool,
    ) -> ListedRows:
        """Return rows from the cursor, or an end of a span, on: so many at least, whole blocks.

        The cursor's block is there besides.
        """
        gathered, number, ahead = [ARROW_SCHEMA.empty_table()], 0, 1
        if filters is None:
            return in_order(gathered[0])
        block, (start, end) = None, span
        if cursor is not None:
            block = cursor.time
            start, end = (start, min(end, block + 1)) if descending else (max(start, block), end)
        parts = parts_of(self.snapshot, start, end, descending=descending)

        allowed = filters.allowed()

        def read(nearest: Nearest, part: tuple[File, Span]) -> pa.Table:
            file, span = part
            return self.reader.rows(file, Predicate(allowed, (span,)), nearest, self.check)

        while number < count and (batch := list(islice(parts, ahead))):
            self.check()
            nearest = Nearest(count - number, descending, block)
            # Where files give little, several are read at once.
            side_by_side = self.pool.map if self.pool and len(batch) > 1 else map
            for rows in side_by_side(partial(read, nearest), batch):
                gathered.append(rows)
                number += nearest.found(rows)
            ahead = min(2 * ahead, _AHEAD)
        return in_order(pa.concat_tables(gathered))
