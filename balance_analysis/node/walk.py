"""Walk an interval by time, one request a step, so that no row is lost.

Following cursors loses rows on real nodes: a cursor carries a block's time but no account, and the
next page starts after the whole block. Here no cursor is followed. A step asks for a window
[start, end), oldest first. If more rows follow, it drops the rows of the page's last block, which
may be cut, and the next step restarts at that block's time: its answer must begin there. Only a
block that fills a whole page stops the walk: `complete_block` completes it or fails.

The bound that is sent lies one microsecond before the window, so that a server whose start were
exclusive loses nothing; one whose end were inclusive sends a row too many. Rows outside the window
are dropped here; rows that no such reading of the range explains, rows out of order and rows that
the filters exclude raise.

An answer proves more than its rows. Nodes forget their oldest blocks first, so one that lists a row
has forgotten nothing since: see `Step.proofs`.

The walk depends on a function that asks, not on a client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.errors import (
    BalanceAnalysisError,
    IncompleteError,
    RequestError,
    TooLargeError,
)
from balance_analysis.node.client import Parameters
from balance_analysis.node.decode import DecodedPage
from balance_analysis.table.evidence import Node, SetAside, set_aside
from balance_analysis.table.filters import Filters
from balance_analysis.table.rows import BadRow, accounts_in, within
from balance_analysis.table.schema import to_microseconds
from balance_analysis.table.spans import EVER, Span, clipped
from balance_analysis.table.text import moment_text, range_text

EARLIEST: Final = to_microseconds("2020-01-01")
"""Nodes refuse a range that begins earlier, and at most `LONGEST_WINDOW` is asked for at once."""

LONGEST_WINDOW: Final = 364 * 86_400 * 1_000_000

HALVINGS: Final = 5
"""How often a window whose answer takes too long is halved before it is given up."""

_BEYOND: Final = 32
"""Part of a window's width that is asked for beyond its end."""

USUAL_MAXIMUM: Final = 5_000
"""The largest page of the releases that have a maximum."""

LARGEST_PAGE: Final = 1_000_000
"""A page that holds any block, for the releases that have none."""

FILTER_NAMES: Final = {
    "asset_id": "filter.assetId",
    "party_id": "filter.partyIds",
    "market_id": "filter.marketIds",
    "account_type": "filter.accountTypes",
}
"""What the wire calls the filter of each column."""


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
    `begins_with_row`, a row is known to stand at `start`, so that the answer must begin there. The
    node is asked for what comes `beyond` the end too, microseconds: a row there proves more.
    """

    start: int
    end: int
    page_size: int
    begins_with_row: bool = False
    beyond: int = 0

    def cut(self, width: int, page_size: int) -> tuple[Window, Window | None]:
        """Return the first `width` microseconds, in pages of `page_size`, and the rest."""
        end = min(self.end, self.start + width)
        near = replace(self, end=end, page_size=page_size)
        if end == self.end:
            return near, None
        # A row or two are enough.
        near = replace(near, beyond=width // _BEYOND)
        return near, replace(self, start=end, begins_with_row=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of one window, oldest or newest first.

    `times` are of every row, bad ones too; `more` is whether the window holds rows beyond these;
    `sent` are the times of all rows of the answer, also those outside of the window.
    """

    rows: pa.RecordBatch
    times: NDArray[np.int64]
    bad_rows: tuple[BadRow, ...]
    more: bool
    sent: NDArray[np.int64]

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last row's time."""
        return int(self.times[0]), int(self.times[-1])

    def between(self, start: int, end: int, *, more: bool = False) -> Listing:
        """Return what stands in [start, end); a bad row without a time may, so it is kept."""
        times = self.times[(self.times >= start) & (self.times < end)]
        bad = tuple(bad for bad in self.bad_rows if bad.time is None or start <= bad.time < end)
        return Listing(within(self.rows, start, end), times, bad, more, self.sent)

    def proof(self, start: int, reached: int, end: int) -> Proof:
        """Return what the answer proves, of a step [start, end) that it reached beyond or not."""
        if not len(self.sent):
            return end, end, start
        beyond = int(np.searchsorted(self.sent, end))
        until = int(self.sent[beyond]) if beyond < len(self.sent) else reached
        return max(start, int(self.sent[0])), until, int(self.sent[-1])


def fetch(ask: Ask, filters: Filters, window: Window, *, newest_first: bool = False) -> Listing:
    """Return one page of a window, checked: in order, inside the window, of the accounts asked for.

    Raises
    ------
    IncompleteError
        If it is not.
    """
    bound = window.start if window.start == EARLIEST else window.start - 1
    end = max(window.end, min(window.end + window.beyond, window.start + LONGEST_WINDOW))
    request = PageRequest(filters, bound, end, window.page_size, newest_first)
    listing = _ask_checked(ask, request, window)
    if listing.more and not len(listing.times) and not newest_first:
        # The block right before the window filled the page; so this node's start is inclusive.
        listing = _ask_checked(ask, replace(request, start=window.start), window)
    sent = listing.sent
    if end > window.end and len(sent) and window.end <= sent[0] == sent[-1]:
        # One block beyond the window doesn't show that the node keeps the order.
        return fetch(ask, filters, replace(window, beyond=0), newest_first=newest_first)
    return listing


def is_refusal(error: BalanceAnalysisError) -> bool:
    """Whether the node answered that it won't, rather than that it can't just now."""
    return isinstance(error, RequestError) and error.status is not None and not error.retryable


def _ask_checked(ask: Ask, request: PageRequest, window: Window) -> Listing:
    page = ask(request)
    times = page.times
    _check_order(times, request)
    _check_filters(page.rows, request.filters)
    more = page.info.has_next_page
    if len(times):
        # Times are in order, so a row beyond the window's far side proves that its rows are all
        # here.
        more &= bool(times[-1] >= window.start if request.newest_first else times[-1] < window.end)
    listing = Listing(page.rows, times, page.bad_rows, more, times)
    return listing.between(window.start, window.end, more=more)


def _check_order(times: NDArray[np.int64], request: PageRequest) -> None:
    if not len(times):
        return
    times = times[::-1] if request.newest_first else times
    if np.any(times[1:] < times[:-1]):
        raise IncompleteError(
            f"rows came out of order in {range_text(request.start, request.end)}, so nobody can "
            "know whether all were sent"
        )
    oldest, newest = int(times[0]), int(times[-1])
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


def _check_restart(listings: Sequence[Listing], at: int) -> None:
    """Raise IncompleteError unless answers begin with a row that is known to stand there."""
    first = min((each.span[0] for each in listings if len(each.times)), default=None)
    if first != at:
        raise IncompleteError(
            f"a row stands at {moment(at)}, but the answer that should begin with it "
            f"{'is empty' if first is None else f'begins at {moment(first)}'}: the node has lost "
            "or withheld rows, or is of another network"
        )


def moment(microseconds: int) -> str:
    """Return a moment as text for a message, with the nanoseconds that the wire has."""
    return f"{moment_text(microseconds)} ({microseconds * 1000} ns)"


Proof = tuple[int, int, int]
"""Since when and up to where an answer lists all rows, and its newest row; microseconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step settled: all rows in [start, end), and what is left of its window.

    Attributes
    ----------
    batches
        Rows in `ARROW_SCHEMA`, in time order within a batch.
    page_size
        It was answered in time.
    proofs
        What the answer to each part of the filters proves.
    node, asked
        Who was asked, and when.
    head, block_height
        The node's last block: its microseconds and number. Of several answers, the least; `None` if
        one of them names none.
    knows
        Up to where the node could know the rows: its last block, or its newest row.
    incomplete
        Stretches for which the node itself says that it may lack rows.
    """

    start: int
    end: int
    batches: tuple[pa.RecordBatch, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    page_size: int = 0
    rest: Window | None = None
    proofs: tuple[Proof, ...] = ()
    node: Node = Node("")
    asked: int = 0
    head: int | None = None
    block_height: int | None = None
    knows: int = EVER[1]
    incomplete: tuple[Span, ...] = ()

    @property
    def num_rows(self) -> int:
        """How many rows the batches have together."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def known_end(self) -> int:
        """Up to where in [start, end] the node could know the rows."""
        return max(self.start, min(self.end, self.knows))

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """The bad rows as evidence names them."""
        return set_aside(self.bad_rows, (self.start, self.end))

    def between(self, start: int, end: int) -> Step:
        """Return what this step settled in [start, end), of its bounds at most."""
        start, end = max(start, self.start), min(end, self.end)
        kept = (within(batch, start, end) for batch in self.batches)
        return replace(
            self,
            start=start,
            end=end,
            batches=tuple(batch for batch in kept if batch.num_rows),
            bad_rows=tuple(x for x in self.bad_rows if x.time is None or start <= x.time < end),
            rest=self.rest if end == self.end else None,
            incomplete=tuple(clipped(self.incomplete, start, end)),
        )


def take_step(ask: Ask, parts: Sequence[Filters], window: Window) -> Step:
    """Settle the first part of a window; less of it where the node won't send so much.

    `parts` are filters that together are what the caller asked for.

    Raises
    ------
    IncompleteError
        If the answers are not the list that was asked for, or a block can't be shown to be whole.
    RequestError
        If the node refuses even a page of one row, is too slow for a small part of the window, or
        can't answer just now.
    """
    reached, asked = list[tuple[int, Listing]](), window
    for filters in parts:
        listing, asked = fetch_less(ask, filters, asked)
        reached.append(_whole_blocks(ask, filters, asked, listing))
    end = min(listing_end for listing_end, _ in reached)
    listings = [listing.between(window.start, end) for _, listing in reached]
    if window.begins_with_row:
        _check_restart(listings, window.start)
    restarts = any(listing.more and listing_end == end for listing_end, listing in reached)
    rest = replace(window, start=end, begins_with_row=restarts)
    return Step(
        window.start,
        end,
        tuple(listing.rows for listing in listings if listing.rows.num_rows),
        tuple(bad for listing in listings for bad in listing.bad_rows),
        asked.page_size,
        rest if end < window.end else None,
        tuple(listing.proof(window.start, listing_end, end) for listing_end, listing in reached),
    )


def fetch_less(
    ask: Ask, filters: Filters, window: Window, *, newest_first: bool = False
) -> tuple[Listing, Window]:
    """Return the first page of a window, or of less of it where the node won't send so much.

    With it comes the window that was asked for.
    """
    halvings, is_size_at_fault = 0, False
    while True:
        try:
            return fetch(ask, filters, window, newest_first=newest_first), window
        except RequestError as error:
            smaller = max(1, window.page_size // 2)
            if error.timed_out and halvings < HALVINGS:
                halvings += 1
                # Half the window and half the page: less to find and to send.
                width = window.end - window.start
                width = width if newest_first else max(1, width // 2)
                window, _ = window.cut(width, smaller)
                continue
            if window.page_size == 1 or not is_refusal(error):
                raise
            if not (is_size_at_fault or isinstance(error, TooLargeError)):
                # If even a page of one row is refused, its size was not the reason.
                fetch(ask, filters, replace(window, page_size=1))
            is_size_at_fault = True
            window = replace(window, page_size=smaller)


def _whole_blocks(
    ask: Ask, filters: Filters, window: Window, listing: Listing
) -> tuple[int, Listing]:
    """Return up to where a page of a window has all rows, and the page.

    `more` of the listing says that a row stands exactly where it ends.
    """
    if not listing.more:
        return window.end, listing
    if not len(listing.times):
        raise IncompleteError(
            f"the node announced more rows in {range_text(window.start, window.end)} but sent none"
        )
    first, last = listing.span
    if first < last:
        return last, listing
    if window.start < first:
        _check_nothing_before(ask, filters, replace(window, end=first, beyond=0))
    return last + 1, complete_block(ask, filters, last, window.page_size)


def _check_nothing_before(ask: Ask, filters: Filters, window: Window) -> None:
    """Check that a page of one block began at the window's first row: its order can't show it."""
    listing, _ = fetch_less(ask, filters, window)
    if len(listing.times):
        raise IncompleteError(
            f"rows stand in {range_text(window.start, window.end)}, but the answer began later: "
            "the node ignores the order that was asked for"
        )


def find_oldest(
    ask: Ask, end: int, start: int = EARLIEST, filters: Filters = Filters()
) -> int | None:
    """Return the time of the oldest row of some accounts in [start, end); `None` without one.

    Times are in microseconds; by default it is looked for from 2020 on, window by window: a node
    may refuse, or never answer, a request without a range.
    """
    while start < end:
        window = Window(start, min(end, start + LONGEST_WINDOW), page_size=1)
        listing = fetch(ask, filters, window)
        if len(listing.times):
            return listing.span[0]
        if listing.more or listing.bad_rows:
            return window.start
        start = window.end
    return None


def complete_block(ask: Ask, filters: Filters, block: int, page_size: int) -> Listing:
    """Return all rows of one block, by its microseconds and a page size that the node accepts.

    The walk can't restart inside a block, since all its rows have one time. So the block is asked
    for alone, in every way that can show that all its rows were sent:

    1. with a larger page: older releases have no maximum;
    2. from both ends: where the oldest and the newest page share a row, nothing lies between them;
    3. in halves of the caller's own lists, each completed the same way.

    If none does, IncompleteError is raised. The block isn't asked for type by type: a newer node
    may have account types that this release doesn't know.

    Raises
    ------
    IncompleteError
        If it can't be shown that all rows were sent.
    """
    listing, window = fetch_less(ask, filters, Window(block, block + 1, page_size))
    while listing.more and window.page_size < LARGEST_PAGE:
        larger = replace(window, page_size=window.page_size * 2)
        try:
            listing = fetch(ask, filters, larger)
        except RequestError as error:
            if not (is_refusal(error) or error.timed_out):
                raise
            break
        window = larger
    if not listing.more:
        return listing
    whole = _from_both_ends(ask, filters, window, listing)
    whole = whole or _by_halves(ask, filters, window, listing)
    if whole is None:
        raise IncompleteError(
            f"the block at {moment(block)} holds more rows than the {window.page_size} of one "
            "page, and this node offers no way to get them all; name the account types, parties or "
            "markets that are wanted, or ask another node"
        )
    return whole


def _from_both_ends(ask: Ask, filters: Filters, window: Window, oldest: Listing) -> Listing | None:
    newest, _ = fetch_less(ask, filters, window, newest_first=True)
    ascending, descending = accounts_in(oldest.rows), accounts_in(newest.rows)[::-1]
    if not descending or descending[0] not in ascending:
        return None
    meeting = ascending.index(descending[0])
    shared = ascending[meeting:]
    beyond = descending[len(shared) :]
    # A server that orders alike from both ends would share rows too, but not run on beyond them.
    if descending[: len(shared)] != shared or set(beyond) & set(ascending):
        return None
    return _joined([oldest, newest])


def _by_halves(ask: Ask, filters: Filters, window: Window, oldest: Listing) -> Listing | None:
    halves = filters.halves()
    if not halves:
        return None
    whole = _joined([complete_block(ask, half, window.start, window.page_size) for half in halves])
    return whole if {*accounts_in(oldest.rows)} <= {*accounts_in(whole.rows)} else None


def _joined(listings: list[Listing]) -> Listing:
    """Return the rows of one block's listings; what came twice stays, for the table's check."""
    rows = pa.concat_batches([listing.rows for listing in listings])
    times = np.concatenate([listing.times for listing in listings])
    bad = dict.fromkeys(bad for listing in listings for bad in listing.bad_rows)
    return Listing(rows, times, tuple(bad), more=False, sent=times)
