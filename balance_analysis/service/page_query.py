"""Find the rows of one page: from the page's side on, file by file, until it is full."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from balance_analysis.schema import ACCOUNT_TYPES, ARROW_SCHEMA
from balance_analysis.service.row_groups import Wanted
from balance_analysis.service.sorting import Listed, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from balance_analysis.service.catalog import Held
    from balance_analysis.service.cursors import Place
    from balance_analysis.service.parameters import Filters, Paging
    from balance_analysis.service.row_groups import Allowed, Reader
    from balance_analysis.spans import Span

AHEAD: Final = 8
"""The most files that are read at once for one page."""

_BEFORE: Final = -(2**62)
_AFTER: Final = 2**62


class UnknownPlaceError(Exception):
    """No row of the archive stands where the cursor says."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list of rows that was asked for.

    Attributes
    ----------
    rows
        In the order of the page.
    has_next, has_previous
        Whether the list is known to go on after, or before, these rows. An empty page knows
        neither; the side that the page was not counted towards is known only with a cursor.
    """

    rows: Listed
    has_next: bool
    has_previous: bool


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds rows in an archive at one moment.

    Attributes
    ----------
    held
        The archive.
    reader
        Of its files.
    check
        Called now and then; raises where it has taken too long.
    """

    held: Held
    reader: Reader
    check: Callable[[], None]

    def page(self, filters: Filters, paging: Paging) -> Page:
        """Return one page of the rows that pass all filters.

        Raises
        ------
        UnknownPlaceError
            If the cursor marks no row of the archive.
        StaleError
            If a file has been replaced meanwhile.
        """
        allowed, cursor = allowed_by(filters), paging.cursor
        span = _or(filters.start, _BEFORE), _or(filters.end, _AFTER)
        descending = paging.newest_first != paging.backward
        found = self._walk(
            allowed,
            _from(span, cursor, descending=descending),
            cursor,
            count=paging.size + 1,
            descending=descending,
        )
        beyond, is_listed = np.arange(len(found)), False
        if cursor is not None:
            is_listed = bool(found.at(cursor).any())
            beyond = np.flatnonzero(found.beyond(cursor, descending=descending))
            if not is_listed:
                self._check_known(cursor)
        nearest = beyond[::-1] if descending else beyond
        chosen, more = nearest[: paging.size], len(nearest) > paging.size
        near = cursor is not None and len(chosen) > 0
        if cursor is not None and near and not is_listed:
            near = self._any_behind(allowed, span, cursor, descending=descending)
        if paging.backward:
            return Page(found.take(chosen[::-1]), has_next=near, has_previous=more)
        return Page(found.take(chosen), has_next=more, has_previous=near)

    def has_account_type(self, name: str) -> bool:
        """Return whether any row is of this account type."""
        allowed = {"account_type": [name]}
        return len(self._walk(allowed, (_BEFORE, _AFTER), None, count=1, descending=True)) > 0

    def _walk(
        self,
        allowed: Allowed | None,
        span: Span,
        cursor: Place | None,
        *,
        count: int,
        descending: bool,
    ) -> Listed:
        """Return rows from one end of a span on: so many at least, besides the cursor's block."""
        gathered, number, ahead = [ARROW_SCHEMA.empty_table()], 0, 1
        whole = None if cursor is None else cursor.time
        parts = iter(self.held.parts(*span, descending=descending) if allowed is not None else ())
        while number < count and (batch := list(islice(parts, ahead))):
            self.check()
            wanted = Wanted(allowed or {}, count - number, descending, whole)
            # Where files give little, several are read at once.
            for rows in self.reader.rows_of_several(batch, wanted, self.check):
                gathered.append(rows)
                number += wanted.found(rows)
            ahead = min(2 * ahead, AHEAD)
        return in_order(pa.concat_tables(gathered))

    def _check_known(self, cursor: Place) -> None:
        """Check that the archive has the row that a cursor marks, whatever the filters."""
        block = cursor.time, cursor.time + 1
        if not self._walk({}, block, cursor, count=1, descending=True).at(cursor).any():
            raise UnknownPlaceError

    def _any_behind(
        self, allowed: Allowed | None, span: Span, cursor: Place, *, descending: bool
    ) -> bool:
        """Whether the list has a row on the other side of a cursor that is not of the list."""
        there = _from(span, cursor, descending=not descending)
        found = self._walk(allowed, there, cursor, count=1, descending=not descending)
        return bool(found.beyond(cursor, descending=not descending).any())


def allowed_by(filters: Filters) -> Allowed | None:
    """Return the ids that filters let pass; `None` where no row can."""
    types = list(filters.account_types)
    if types:
        # Nodes match no row with the default value, whatever they hold.
        types = [name for name in types if name != ACCOUNT_TYPES[0]]
        if not types:
            return None
    given = {
        "asset_id": [] if filters.asset_id is None else [filters.asset_id],
        "party_id": _spellings(filters.party_ids),
        "market_id": _spellings(filters.market_ids),
        "account_type": types,
    }
    return {name: values for name, values in given.items() if values}


def _spellings(ids: tuple[str, ...]) -> list[str]:
    """Return ids as they came and in lower case, which is how nodes write them."""
    return sorted({spelling for value in ids for spelling in (value, value.lower())})


def _from(span: Span, cursor: Place | None, *, descending: bool) -> Span:
    """Return the part of a span from a cursor's block on."""
    if cursor is None:
        return span
    if descending:
        return span[0], min(span[1], cursor.time + 1)
    return max(span[0], cursor.time), span[1]


def _or(moment: int | None, otherwise: int) -> int:
    return otherwise if moment is None else moment
