"""Walk an interval by time, one request per step, so that no row is lost.

Following cursors loses rows on real nodes: a cursor carries a block's time but no account, and the
next page starts after the whole block. So the walk follows no cursor. A step asks for a window
[start, end), oldest first. If more rows follow, it drops the rows of the page's last block, which
may be cut, and the next step restarts at that block's time: its answer must list them again. Only a
block that fills a whole page stops the walk: `complete_block` completes it or fails.

The start that is sent lies one microsecond before the window, so that a server that treats it as
exclusive loses nothing; a server that treats the end as inclusive sends too many rows. Rows outside
the window are dropped here. IncompleteError is raised for rows that neither reading of the range
explains, rows out of order and rows that the filters exclude.

An answer proves more than its rows. Nodes forget their oldest blocks first, so a node that lists a
row has forgotten nothing since: see `Step.proofs`.

The walk depends on a function that asks, not on a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis import errors
from balance_analysis.node.client import Parameters
from balance_analysis.node.decode import DecodedPage
from balance_analysis.table import moments
from balance_analysis.table.evidence import Node, SetAside, as_set_aside
from balance_analysis.table.filters import Filters
from balance_analysis.table.schema import BadRow, accounts_in, within
from balance_analysis.table.text import count_text

EARLIEST: Final = moments.to_microseconds("2020-01-01")
"""The earliest start of a range: nodes refuse an earlier one."""

LONGEST_WINDOW: Final = 364 * 86_400 * 1_000_000
"""Maximum width of a range (in microseconds): nodes refuse more than a year."""

HALVINGS: Final = 5
"""How often to halve a window whose answer takes too long before giving up."""

_TURNS: Final = 8
"""How often to ask for a row older than the oldest one so far."""

_BEYOND: Final = 32
"""A request extends beyond its window's end by the window's width divided by this."""

USUAL_MAXIMUM: Final = 5_000
"""The largest page of the releases that have a maximum."""

LARGEST_PAGE: Final = 1_000_000
"""A page size that holds any block, for the releases without a maximum."""

FILTER_NAMES: Final = {
    "asset_id": "filter.assetId",
    "party_id": "filter.partyIds",
    "market_id": "filter.marketIds",
    "account_type": "filter.accountTypes",
}
"""The wire's name of each column's filter."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for one page of a range (in microseconds), from a cursor or from an end."""

    filters: Filters
    start: int
    end: int
    page_size: int
    newest_first: bool = False
    cursor: str | None = None
    backward: bool = False

    def parameters(self) -> Parameters:
        """Return the wire's parameters, always with both bounds.

        Without a range, a node scans its whole table and may never answer.
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
    """Return filters as the wire's repeated keys."""
    allowed = filters.allowed().items()
    return [(FILTER_NAMES[name], value) for name, values in allowed for value in values]


Ask = Callable[[PageRequest], DecodedPage]


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A slice [start, end) of the interval (in microseconds) that is still to be requested.

    `page_size` is smaller than the caller's if the node can't send such large pages. The
    `cut_rows`, which an earlier answer listed for its first block, must come again. The request
    extends `beyond` microseconds past the end: a row there proves that the window is complete.
    """

    start: int
    end: int
    page_size: int
    cut_rows: frozenset[object] = frozenset()
    beyond: int = 0

    def cut(self, width: int, page_size: int) -> tuple[Window, Window | None]:
        """Return the first `width` microseconds, in pages of `page_size`, and the rest, if any."""
        end = min(self.end, self.start + width)
        near = replace(self, end=end, page_size=page_size)
        if end == self.end:
            return near, None
        # One or two rows beyond are enough.
        near = replace(near, beyond=width // _BEYOND)
        return near, replace(self, start=end, cut_rows=frozenset())


class Proof(NamedTuple):
    """The range that an answer lists fully, and the answer's newest row (in microseconds)."""

    start: int
    end: int
    newest: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of one window, oldest or newest first.

    `times` are the times of all rows, bad ones too; `more` is whether the window holds further
    rows; `sent` are the times of all rows of the answer, also of those outside the window.
    """

    rows: pa.RecordBatch
    times: NDArray[np.int64]
    bad_rows: tuple[BadRow, ...]
    more: bool
    sent: NDArray[np.int64]

    @property
    def span(self) -> tuple[int, int]:
        """The times of the first and the last row."""
        return int(self.times[0]), int(self.times[-1])

    def between(self, start: int, end: int, *, more: bool = False) -> Listing:
        """Return the rows in [start, end), and bad rows without a time: they may lie there."""
        times = self.times[(self.times >= start) & (self.times < end)]
        bad = tuple(bad for bad in self.bad_rows if bad.time is None or start <= bad.time < end)
        return Listing(within(self.rows, start, end), times, bad, more, self.sent)

    def rows_at(self, time: int) -> Iterator[object]:
        """Yield the rows at a time, bad ones too, as values to compare."""
        rows = within(self.rows, time, time + 1)
        yield from zip(accounts_in(rows), rows["balance"].to_pylist(), strict=True)
        yield from (bad for bad in self.bad_rows if bad.time == time)

    def proof(self, start: int, reached: int, end: int) -> Proof:
        """Return what the answer, which has all rows up to `reached`, proves about a step."""
        if not len(self.sent):  # it proves nothing
            return Proof(end, end, start)
        beyond = int(np.searchsorted(self.sent, end))
        until = int(self.sent[beyond]) if beyond < len(self.sent) else reached
        return Proof(max(start, int(self.sent[0])), until, int(self.sent[-1]))


def fetch(ask: Ask, filters: Filters, window: Window, *, newest_first: bool = False) -> Listing:
    """Return one page of a window, after checking its order, range and accounts.

    Raises
    ------
    IncompleteError
        If a check fails.
    """
    bound = window.start if window.start == EARLIEST else window.start - 1
    end = max(window.end, min(window.end + window.beyond, window.start + LONGEST_WINDOW))
    request = PageRequest(filters, bound, end, window.page_size, newest_first)
    listing = _ask_checked(ask, request, window)
    if listing.more and not len(listing.times) and not newest_first:
        # The block just before the window filled the page, so this node's start is inclusive.
        listing = _ask_checked(ask, replace(request, start=window.start), window)
    sent = listing.sent
    if end > window.end and len(sent) and window.end <= sent[0] == sent[-1]:
        # A single block beyond the window doesn't show that the node keeps the order.
        return fetch(ask, filters, replace(window, beyond=0), newest_first=newest_first)
    return listing


def is_refusal(error: errors.BalanceAnalysisError) -> bool:
    """Return whether the node refused permanently, rather than for the moment."""
    return (
        isinstance(error, errors.RequestError) and error.status is not None and not error.retryable
    )


def _ask_checked(ask: Ask, request: PageRequest, window: Window) -> Listing:
    page = ask(request)
    times = page.times
    _check_order(times, request)
    _check_filters(page.rows, request.filters)
    # Some servers say that no page follows a full one.
    more = page.info.has_next_page or len(times) >= request.page_size
    if len(times):
        # Times are in order, so a row beyond the window's far side proves that the window is
        # complete.
        more &= bool(times[-1] >= window.start if request.newest_first else times[-1] < window.end)
    listing = Listing(page.rows, times, page.bad_rows, more, times)
    return listing.between(window.start, window.end, more=more)


def _check_order(times: NDArray[np.int64], request: PageRequest) -> None:
    if not len(times):
        return
    times = times[::-1] if request.newest_first else times
    if np.any(times[1:] < times[:-1]):
        raise errors.IncompleteError(
            f"rows came out of order in {moments.range_text(request.start, request.end)}, so it "
            "is unknown whether all were sent"
        )
    oldest, newest = int(times[0]), int(times[-1])
    if oldest < request.start or newest > request.end:
        raise errors.IncompleteError(
            f"the node was asked for {moments.range_text(request.start, request.end)} and sent "
            f"rows from {_on_wire(oldest)} to {_on_wire(newest)}: it ignores or misreads the range"
        )


def _check_filters(rows: pa.RecordBatch, filters: Filters) -> None:
    for name, values in filters.allowed().items():
        others = set(rows[name].dictionary.to_pylist()) - set(values)
        if others:
            raise errors.IncompleteError(
                f"the node sent rows of {name} {min(others)!r}, which was not asked for: it "
                f"ignores or misreads that filter; load without it and filter the table"
            )


def _check_restart(listings: Sequence[Listing], window: Window) -> None:
    """Raise IncompleteError unless the answers list all rows cut from the previous one."""
    lost = window.cut_rows.difference(*(part.rows_at(window.start) for part in listings))
    if lost:
        raise errors.IncompleteError(
            f"one answer has {count_text(len(lost), 'row')} at {_on_wire(window.start)}, but the "
            "next one, which begins there, lacks them: the node has lost or withheld rows, or "
            "belongs to another network"
        )


def _on_wire(microseconds: int) -> str:
    """Return a moment as text for a message, with the wire's nanoseconds."""
    return f"{moments.moment_text(microseconds)} ({microseconds * 1000} ns)"


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step: all rows in [start, end), and the rest of its window.

    Attributes
    ----------
    batches
        Rows in `ARROW_SCHEMA`, in time order within a batch.
    page_size
        The page size that the node answered in time.
    rest
        The rest of the window, or `None`.
    proofs
        What the answer to each part of the filters proves.
    node, asked
        The node that was asked, and when (in microseconds).
    head, block_height
        The time (in microseconds) and height of the node's last block, the lowest of several
        answers; `None` if an answer names none.
    knows
        The end of what the node could know: its last block, or its newest row.
    incomplete
        Stretches for which the node says that it may lack rows.
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
    knows: int = moments.EVER[1]
    incomplete: tuple[moments.Span, ...] = ()

    @property
    def num_rows(self) -> int:
        """The number of rows in all batches."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def known_end(self) -> int:
        """The end of the rows that the node could know, in [start, end]."""
        return max(self.start, min(self.end, self.knows))

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """The bad rows, as evidence records them."""
        return as_set_aside(self.bad_rows, (self.start, self.end))

    def between(self, start: int, end: int) -> Step:
        """Return this step's part in [start, end); the bounds are clipped to the step's."""
        start, end = max(start, self.start), min(end, self.end)
        batches = (within(batch, start, end) for batch in self.batches)
        return replace(
            self,
            start=start,
            end=end,
            batches=tuple(batch for batch in batches if batch.num_rows),
            bad_rows=tuple(x for x in self.bad_rows if x.time is None or start <= x.time < end),
            rest=self.rest if end == self.end else None,
            incomplete=tuple(moments.clipped(self.incomplete, start, end)),
        )


def take_step(ask: Ask, parts: Sequence[Filters], window: Window) -> Step:
    """Return a step with all rows of the first part of a window.

    The part is smaller if the node won't send as much. `parts` are filters that together make up
    what the caller asked for.

    Raises
    ------
    IncompleteError
        If the answers don't match the request, or a block can't be shown to be complete.
    RequestError
        If the node refuses even a page of one row, is too slow for a small part of the window, or
        can't answer at the moment.
    """
    reached, asked = list[tuple[int, Listing]](), window
    for filters in parts:
        listing, asked = fetch_less(ask, filters, asked)
        reached.append(_whole_blocks(ask, filters, asked, listing))
    end = min(listing_end for listing_end, _ in reached)
    listings = [listing.between(window.start, end) for _, listing in reached]
    _check_restart(listings, window)
    cut_rows = frozenset[object]().union(*(listing.rows_at(end) for _, listing in reached))
    rest = replace(window, start=end, cut_rows=cut_rows)
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
    """Return the first page of a window, or of a smaller one if the node won't send as much.

    Also return the window that was requested.
    """
    halvings, is_size_at_fault = 0, False
    while True:
        try:
            return fetch(ask, filters, window, newest_first=newest_first), window
        except errors.RequestError as error:
            smaller = max(1, window.page_size // 2)
            if error.timed_out and halvings < HALVINGS:
                halvings += 1
                # Half the window and half the page are less to find and to send. A page of the
                # newest rows has no need of a smaller window.
                width = window.end - window.start
                width = width if newest_first else max(1, width // 2)
                window, _ = window.cut(width, smaller)
                continue
            if window.page_size == 1 or not is_refusal(error):
                raise
            if not (is_size_at_fault or isinstance(error, errors.TooLargeError)):
                # If even a page of one row is refused, this raises: the size wasn't the reason.
                fetch(ask, filters, replace(window, page_size=1))
            is_size_at_fault = True
            window = replace(window, page_size=smaller)


def _whole_blocks(
    ask: Ask, filters: Filters, window: Window, listing: Listing
) -> tuple[int, Listing]:
    """Return the moment up to which a page of a window has all rows, and the page."""
    if not listing.more:
        return window.end, listing
    if not len(listing.times):
        raise errors.IncompleteError(
            f"the node announced more rows in {moments.range_text(window.start, window.end)} but "
            "sent none"
        )
    first, last = listing.span
    if first < last:
        return last, listing
    if window.start < first:
        _check_nothing_before(ask, filters, replace(window, end=first, beyond=0))
    return last + 1, complete_block(ask, filters, last, window.page_size)


def _check_nothing_before(ask: Ask, filters: Filters, window: Window) -> None:
    """Check that no row precedes a page of a single block, whose order can't show that."""
    listing, _ = fetch_less(ask, filters, window)
    if len(listing.times):
        raise errors.IncompleteError(
            f"there are rows in {moments.range_text(window.start, window.end)}, but the answer "
            "began later: the node ignores the requested order"
        )


def find_oldest(
    ask: Ask, end: int, start: int = EARLIEST, filters: Filters = Filters()
) -> int | None:
    """Return the time of some accounts' oldest row in [start, end), or `None` if there is no row.

    Times are in microseconds. The search goes window by window, by default from 2020 on: a node may
    refuse, or never answer, a request without a range. It ends when nothing before the row is sent:
    another node at the same address may hold older rows.

    Raises
    ------
    IncompleteError
        If each answer has an older row, as from a node that sends the newest ones first.
    """
    while start < end:
        stop = oldest = min(end, start + LONGEST_WINDOW)
        for _ in range(_TURNS):
            listing = fetch(ask, filters, Window(start, oldest, page_size=1))
            if not len(listing.times):
                break
            oldest = listing.span[0]
        else:
            raise errors.IncompleteError(
                f"the node was asked for its oldest row, and sent {_TURNS}, each older than the "
                "one before: it seems to ignore the requested order"
            )
        if listing.more or listing.bad_rows:
            return start
        if oldest < stop:
            return oldest
        start = stop
    return None


def find_newest(ask: Ask, start: int, end: int, page_size: int) -> Listing:
    """Return the newest rows in [start, end), at most a page, searching a year at a time."""
    while True:
        window = Window(max(start, end - LONGEST_WINDOW), end, page_size)
        listing, window = fetch_less(ask, Filters(), window, newest_first=True)
        end, page_size = window.start, window.page_size
        if len(listing.times) or listing.bad_rows or end == start:
            return listing


def complete_block(ask: Ask, filters: Filters, block: int, page_size: int) -> Listing:
    """Return all rows of the block at a time (in microseconds).

    The walk can't restart inside a block, since all its rows have the same time. So the block is
    requested alone, in every way that can show that all its rows were sent:

    1. with larger pages than `page_size`, if the node accepts them: older releases have no maximum;
    2. from both ends: if the oldest and the newest page share a row, nothing lies between them;
    3. in halves of the caller's own lists, each completed the same way.

    The block isn't requested type by type: a newer node may have account types that this release
    doesn't know.

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
        except errors.RequestError as error:
            if not (is_refusal(error) or error.timed_out):
                raise
            break
        window = larger
    if not listing.more:
        return listing
    whole = _from_both_ends(ask, filters, window, listing)
    whole = whole or _by_halves(ask, filters, window, listing)
    if whole is None:
        raise errors.IncompleteError(
            f"the block at {_on_wire(block)} holds more rows than the {window.page_size} of one "
            "page, and this node offers no way to get them all; name the account types, parties or "
            "markets that you want, or ask another node"
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
    # A server with the same order from both ends would share rows too, but send none beyond them.
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
    """Return the rows of one block's listings; repeated rows stay, for the table's check."""
    rows = pa.concat_batches([listing.rows for listing in listings])
    times = np.concatenate([listing.times for listing in listings])
    bad = dict.fromkeys(bad for listing in listings for bad in listing.bad_rows)
    return Listing(rows, times, tuple(bad), more=False, sent=times)
