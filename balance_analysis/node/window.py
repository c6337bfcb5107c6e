"""One request for one window, and the checks that its answer must stand.

The bound that is sent lies one microsecond before the window, so that a server whose start were
exclusive loses nothing; one whose end were inclusive sends a row too many. Rows outside the window
are dropped here; rows that no such reading of the range explains, rows out of order and rows that
the filters exclude raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import IncompleteError, RequestError, TooLargeError
from balance_analysis.filters import Filters
from balance_analysis.node.decode import DecodedPage
from balance_analysis.node.exchange import Parameters
from balance_analysis.rows import BadRow, inside, within
from balance_analysis.schema import to_microseconds
from balance_analysis.text import moment_text, range_text

EARLIEST: Final = to_microseconds("2020-01-01")
"""Nodes refuse a range that begins earlier, and at most `LONGEST_WINDOW` is asked for at once."""

LONGEST_WINDOW: Final = 364 * 86_400 * 1_000_000

HALVINGS: Final = 5
"""How often a window whose answer takes too long is halved before it is given up."""

FILTER_NAMES: Final = {
    "asset_id": "filter.assetId",
    "party_id": "filter.partyIds",
    "market_id": "filter.marketIds",
    "account_type": "filter.accountTypes",
}
"""What the wire calls the filter of each column."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of balance changes in a range of microseconds, from a cursor on or from an end."""

    filters: Filters
    start: int
    end: int
    page_size: int
    newest_first: bool = False
    cursor: str | None = None
    backward: bool = False

    def parameters(self) -> Parameters:
        """Return the wire's parameters; both bounds are always sent.

        A node that is asked without a range scans its whole table and may never answer.
        """
        size, cursor = ("last", "before") if self.backward else ("first", "after")
        return [
            *filter_parameters(self.filters),
            (f"pagination.{size}", str(self.page_size)),
            *([] if self.cursor is None else [(f"pagination.{cursor}", self.cursor)]),
            ("pagination.newestFirst", "true" if self.newest_first else "false"),
            ("dateRange.startTimestamp", str(self.start * 1000)),
            ("dateRange.endTimestamp", str(self.end * 1000)),
        ]


def filter_parameters(filters: Filters) -> Parameters:
    """Return the filters as the wire's repeated keys."""
    allowed = filters.allowed().items()
    return [(FILTER_NAMES[name], value) for name, values in allowed for value in values]


Ask = Callable[[PageRequest], "DecodedPage"]


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A slice [start, end) of the interval that is still to be asked for, in microseconds.

    `page_size` is smaller than the caller's where the node can't send so much. Where
    `begins_with_row`, a row is known to stand at `start`, so that the answer must begin there.
    """

    start: int
    end: int
    page_size: int
    begins_with_row: bool = False

    def cut(self, width: int, page_size: int) -> tuple[Window, Window | None]:
        """Return the first `width` microseconds, in pages of `page_size`, and the rest."""
        end = min(self.end, self.start + width)
        near = replace(self, end=end, page_size=page_size)
        far = replace(self, start=end, begins_with_row=False)
        return near, (far if end < self.end else None)

    def half(self, *, newest_first: bool = False) -> Window:
        """Return the half that comes first, and half the page: less to find and to send."""
        width, size = max(1, (self.end - self.start) // 2), max(1, self.page_size // 2)
        if newest_first:
            return replace(self, start=self.end - width, page_size=size)
        return replace(self, end=self.start + width, page_size=size)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of one window, oldest or newest first, up to `end_cursor`.

    `times` are of every row, bad ones too; `sent` counts those outside the window as well; `more`
    tells whether the window holds rows beyond these.
    """

    rows: pa.RecordBatch
    times: pa.Int64Array
    bad_rows: tuple[BadRow, ...]
    more: bool
    end_cursor: str
    sent: int

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last row's time."""
        return self.times[0].as_py(), self.times[-1].as_py()

    def between(self, start: int, end: int, *, more: bool = False) -> Listing:
        """Return what stands in [start, end); a bad row without a time may, so it is kept."""
        if not len(self.times) or start <= min(self.span) <= max(self.span) < end:
            return replace(self, more=more)
        rows = within(self.rows, start, end)
        times = self.times.filter(inside(self.times, start, end))
        bad = tuple(bad for bad in self.bad_rows if bad.time is None or start <= bad.time < end)
        return Listing(rows, times, bad, more, self.end_cursor, self.sent)


def fetch(
    ask: Ask,
    filters: Filters,
    window: Window,
    *,
    newest_first: bool = False,
    after: str | None = None,
) -> Listing:
    """Return one page of a window, checked: in order, inside the window, of the accounts asked for.

    Raises
    ------
    IncompleteError
        If it is not.
    """
    bound = window.start if window.start == EARLIEST else window.start - 1
    request = PageRequest(filters, bound, window.end, window.page_size, newest_first, after)
    listing = _ask_checked(ask, request, window)
    if listing.more and not len(listing.times) and not newest_first and after is None:
        # The block right before the window filled the page; so this node's start is inclusive.
        listing = _ask_checked(ask, replace(request, start=window.start), window)
    return listing


def ask_less(
    get: Callable[[Window], T],
    window: Window,
    *,
    get_one: Callable[[Window], object] | None = None,
    newest_first: bool = False,
) -> tuple[T, Window, int]:
    """Ask for a window; for less of it where the node can't or won't send so much, or is too slow.

    `get` asks for the first page of a window, `get_one` for a page of one row, by default alike.
    Return what `get` returned, for what window, and the largest page that was not refused.

    Raises
    ------
    RequestError
        If the node refuses even a page of one row, is too slow for a small part of the window, or
        can't answer just now.
    """
    accepted, halvings, is_size_at_fault = window.page_size, 0, False
    while True:
        try:
            return get(window), window, accepted
        except RequestError as error:
            if error.timed_out and halvings < HALVINGS:
                halvings += 1
                window = window.half(newest_first=newest_first)
                continue
            if window.page_size == 1 or not is_refusal(error):
                raise
            if not (is_size_at_fault or isinstance(error, TooLargeError)):
                # If even a page of one row is refused, its size was not the reason.
                (get_one or get)(replace(window, page_size=1))
            is_size_at_fault = True
            accepted = window.page_size // 2
            window = replace(window, page_size=accepted)


def is_refusal(error: RequestError) -> bool:
    """Whether the node answered that it won't, rather than that it can't just now."""
    return error.status is not None and not error.retryable


def _ask_checked(ask: Ask, request: PageRequest, window: Window) -> Listing:
    page = ask(request)
    times, sent = page.times, page.rows.num_rows + len(page.bad_rows)
    _check_order(times, request)
    _check_filters(page.rows, request.filters)
    more = page.info.has_next_page
    if len(times):
        # Times are in order, so a row beyond the window's far side proves that its rows are all
        # here.
        last = times[-1].as_py()
        more &= last >= window.start if request.newest_first else last < window.end
    listing = Listing(page.rows, times, page.bad_rows, more, page.info.end_cursor, sent)
    return listing.between(window.start, window.end, more=more)


def _check_order(times: pa.Int64Array, request: PageRequest) -> None:
    if not len(times):
        return
    older, newer = (times[1:], times[:-1]) if request.newest_first else (times[:-1], times[1:])
    if not pc.all(pc.less_equal(older, newer), min_count=0).as_py():
        raise IncompleteError(
            f"rows came out of order in {range_text(request.start, request.end)}, so nobody can "
            "tell whether all were sent"
        )
    oldest, newest = sorted((times[0].as_py(), times[-1].as_py()))
    if oldest < request.start or newest > request.end:
        raise IncompleteError(
            f"the node was asked for {range_text(request.start, request.end)} and sent rows from "
            f"{moment(oldest)} to {moment(newest)}: it ignores or misreads the range"
        )


def _check_filters(rows: pa.RecordBatch, filters: Filters) -> None:
    for name, values in filters.allowed().items():
        strangers = set(rows[name].dictionary.to_pylist()) - set(values)
        if strangers:
            raise IncompleteError(
                f"the node sent rows of {name} {min(strangers)!r}, which was not asked for: it "
                f"ignores or misreads that filter; load without it and select from the table"
            )


def check_restart(listings: Sequence[Listing], at: int, *, newest_first: bool = False) -> None:
    """Raise IncompleteError unless answers begin with a row that is known to stand there."""
    nearest = max if newest_first else min
    first = nearest((each.span[0] for each in listings if len(each.times)), default=None)
    if first != at:
        raise IncompleteError(
            f"a row stands at {moment(at)}, but the answer that should begin with it "
            f"{'is empty' if first is None else f'begins at {moment(first)}'}: the node has lost "
            "or withheld rows, or is of another network"
        )


def moment(microseconds: int) -> str:
    """Return a moment as text for a message, with the nanoseconds that the wire has."""
    return f"{moment_text(microseconds)} ({microseconds * 1000} ns)"
