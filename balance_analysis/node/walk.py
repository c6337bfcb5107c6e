"""Walk an interval by time, one request a step, so that no row is lost.

Following cursors loses rows on real nodes: a cursor carries a block's time but no account, and the
next page starts after the whole block. Here no cursor is followed. A step asks for a window
[start, end), oldest first. If more rows follow, it drops the rows of the page's last block, which
may be cut, and the next step restarts at that block's time: its answer must begin there. Only a
block that fills a whole page stops the walk: `complete_block` completes it or fails.

The walk depends on a function that asks, not on a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.filters import Filters
from balance_analysis.node.window import (
    EARLIEST,
    LONGEST_WINDOW,
    Ask,
    Listing,
    Window,
    ask_less,
    check_restart,
    fetch,
    is_refusal,
    moment,
)
from balance_analysis.rows import Account, BadRow, accounts_in, within
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import clipped
from balance_analysis.text import range_text

USUAL_MAXIMUM: Final = 5_000
"""The largest page of the releases that have a maximum."""

LARGEST_PAGE: Final = 1_000_000
"""A page that holds any block, for the releases that have none."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step settled: all rows in [start, end), and what is left of its window.

    `batches` are in `ARROW_SCHEMA`, in time order within a batch. `page_size` was answered in time,
    `accepted` is the largest that was not refused. The node is `source` as it was asked, and
    `address` as what answered, after redirects; `head`, microseconds, and `block_height` are its
    last block, of its answers the one that knew least; of `incomplete` it says itself that it may
    lack rows.
    """

    start: int
    end: int
    batches: tuple[pa.RecordBatch, ...]
    bad_rows: tuple[BadRow, ...]
    page_size: int
    accepted: int
    rest: Window | None
    source: str = ""
    address: str = ""
    head: int | None = None
    block_height: int | None = None
    incomplete: tuple[tuple[int, int], ...] = ()

    @property
    def num_rows(self) -> int:
        """How many rows the batches have together."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def known_end(self) -> int:
        """Up to where the node could know the rows: its last block, if that is before the end."""
        return self.end if self.head is None else max(self.start, min(self.end, self.head))

    def between(self, start: int, end: int) -> Step:
        """Return what this step settled in [start, end), of its bounds at most."""
        start, end = max(start, self.start), min(end, self.end)
        if (start, end) == (self.start, self.end):
            return self
        kept = within(pa.Table.from_batches(self.batches, ARROW_SCHEMA), start, end)
        return replace(
            self,
            start=start,
            end=end,
            batches=tuple(kept.to_batches()),
            bad_rows=tuple(x for x in self.bad_rows if x.time is None or start <= x.time < end),
            rest=None,
            incomplete=tuple(clipped(self.incomplete, start, end)),
        )


def take_step(ask: Ask, parts: Sequence[Filters], window: Window) -> Step:
    """Settle the first part of a window.

    `parts` are filters that together are what the caller asked for.

    Raises
    ------
    IncompleteError
        If the answers are not the list that was asked for, or a block can't be shown to be whole.
    RequestError
        If the node refuses even a page of one row.
    """
    reached, asked, accepted = ask_less(
        lambda less: [_reach(ask, filters, less) for filters in parts],
        window,
        get_one=lambda one: fetch(ask, parts[0], one),
    )
    end = min(listing_end for listing_end, _ in reached)
    listings = [listing.between(window.start, end) for _, listing in reached]
    if window.begins_with_row:
        check_restart(listings, window.start)
    restarts = any(listing.more and listing_end == end for listing_end, listing in reached)
    rest = replace(window, start=end, begins_with_row=restarts)
    return Step(
        window.start,
        end,
        tuple(listing.rows for listing in listings if listing.rows.num_rows),
        tuple(bad for listing in listings for bad in listing.bad_rows),
        asked.page_size,
        accepted,
        rest if end < window.end else None,
    )


def _reach(ask: Ask, filters: Filters, window: Window) -> tuple[int, Listing]:
    """Return how far one request came, and what it brought up to there.

    `more` of the listing tells that a row stands exactly where it ends.
    """
    listing = fetch(ask, filters, window)
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
        _check_nothing_before(ask, filters, replace(window, end=first))
    return last + 1, complete_block(ask, filters, last, window.page_size)


def _check_nothing_before(ask: Ask, filters: Filters, window: Window) -> None:
    """Check that a page of one block began at the window's first row: its order can't show it."""
    if len(fetch(ask, filters, window).times):
        raise IncompleteError(
            f"rows stand in {range_text(window.start, window.end)}, but the answer began later: "
            "the node ignores the order that was asked for"
        )


def find_oldest(ask: Ask, parts: Sequence[Filters], end: int) -> int | None:
    """Return the time of the oldest row before `end` in microseconds; `None` where there is none.

    It is looked for from 2020 on, in windows: a node may refuse, or never answer, a request
    without a range.
    """
    start = EARLIEST
    while start < end:
        window = Window(start, min(end, start + LONGEST_WINDOW), page_size=1)
        listings = [fetch(ask, filters, window) for filters in parts]
        firsts = [listing.span[0] for listing in listings if len(listing.times)]
        if firsts:
            return min(firsts)
        if any(listing.more or listing.bad_rows for listing in listings):
            return window.start
        start = window.end
    return None


def complete_block(ask: Ask, filters: Filters, block: int, page_size: int) -> Listing:
    """Return all rows of one block, by its microseconds and a page size that the node accepts.

    The walk can't restart inside a block, since all its rows have one time. So the block is asked
    for alone, in every way that can show that all its rows were sent:

    1. with a larger page: older releases have no maximum;
    2. from both ends: where the oldest and the newest page share a row, nothing lies between them;
    3. by cursors, once in each order: a server whose cursors are right gives the same rows twice;
    4. in halves of the caller's own lists, each completed the same way.

    If none does, the rows that are known are not passed off as all. All known account types, one
    after the other, don't do: a row of a type that a newer node has would be in none of the
    answers.

    Raises
    ------
    IncompleteError
        If it can't be shown that all rows were sent.
    """
    window = Window(block, block + 1, page_size)
    for size in _page_sizes(page_size):
        larger = replace(window, page_size=size)
        try:
            listing = fetch(ask, filters, larger)
        except RequestError as error:
            if not (is_refusal(error) or error.timed_out):
                raise
            continue
        return complete_block(ask, filters, block, size) if listing.more else listing
    return _complete(ask, filters, window)


def _page_sizes(accepted: int) -> Iterator[int]:
    """Yield sizes above one that the node has accepted, in the order in which to try them."""
    size = USUAL_MAXIMUM if accepted < USUAL_MAXIMUM else LARGEST_PAGE
    while size > max(accepted, USUAL_MAXIMUM if size > USUAL_MAXIMUM else 0):
        yield size
        size //= 2


def _complete(ask: Ask, filters: Filters, window: Window) -> Listing:
    oldest = fetch(ask, filters, window)
    if not oldest.more:
        return oldest
    for way in (_from_both_ends, _by_cursors, _by_halves):
        whole = way(ask, filters, window, oldest)
        if whole is not None:
            return whole
    raise IncompleteError(
        f"the block at {moment(window.start)} holds more rows than the {window.page_size} of one "
        "page, and this node offers no way to get them all; name the account types, parties or "
        "markets that are wanted, or ask another node"
    )


def _from_both_ends(ask: Ask, filters: Filters, window: Window, oldest: Listing) -> Listing | None:
    newest = fetch(ask, filters, window, newest_first=True)
    ascending, descending = _accounts([oldest]), _accounts([newest])[::-1]
    if not descending or descending[0] not in ascending:
        return None
    meeting = ascending.index(descending[0])
    shared = ascending[meeting:]
    beyond = descending[len(shared) :]
    # A server that orders alike from both ends would share rows too, but not run on beyond them.
    if descending[: len(shared)] != shared or set(beyond) & set(ascending):
        return None
    return _joined([oldest, newest])


def _by_cursors(ask: Ask, filters: Filters, window: Window, _: Listing) -> Listing | None:
    forwards = list(_follow(ask, filters, window, newest_first=False))
    backwards = list(_follow(ask, filters, window, newest_first=True))
    ids = _accounts(forwards)
    pages = [*forwards, *backwards]
    if forwards[-1].more or backwards[-1].more or len(ids) != len(set(ids)):
        return None
    if not all(page.sent for page in pages):
        return None
    return _joined(forwards) if sorted(ids) == sorted(_accounts(backwards)) else None


def _follow(ask: Ask, filters: Filters, window: Window, *, newest_first: bool) -> Iterator[Listing]:
    """Yield pages by cursor; where a cursor leads nowhere, the last one still announces more."""
    after, seen = None, set[str]()
    while True:
        try:
            listing = fetch(ask, filters, window, newest_first=newest_first, after=after)
        except RequestError as error:
            if after is None or not is_refusal(error):
                raise
            return
        yield listing
        after = listing.end_cursor
        if not (listing.more and after and after not in seen and listing.sent):
            return
        seen.add(after)


def _by_halves(ask: Ask, filters: Filters, window: Window, oldest: Listing) -> Listing | None:
    halves = filters.halves()
    if not halves:
        return None
    whole = _joined([_complete(ask, half, window) for half in halves])
    return whole if set(_accounts([oldest])) <= set(_accounts([whole])) else None


def _accounts(listings: Iterable[Listing]) -> list[Account]:
    """Return the accounts of rows, as they came."""
    return [account for listing in listings for account in accounts_in(listing.rows)]


def _joined(listings: list[Listing]) -> Listing:
    """Return the rows of one block's listings; what came twice stays, for the table's check."""
    rows = pa.concat_batches([listing.rows for listing in listings])
    times = pa.concat_arrays([listing.times for listing in listings])
    bad = dict.fromkeys(bad for listing in listings for bad in listing.bad_rows)
    sent = sum(listing.sent for listing in listings)
    return Listing(rows, times, tuple(bad), more=False, end_cursor="", sent=sent)
