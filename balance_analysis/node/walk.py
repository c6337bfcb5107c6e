"""Walk an interval by time, one request a step, so that no row is lost.

Following cursors loses rows on real nodes: a cursor carries a block's time but no account, and the
next page starts after the whole block. Here no cursor is followed. A step asks for a window
[start, end), oldest first. If more rows follow, it drops the rows of the page's last block, which
may be cut, and the next step restarts at that block's time: its answer must begin there. Only a
block that fills a whole page stops the walk: `block` settles it or fails.

The walk depends on a function that asks, not on a client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import IncompleteError
from balance_analysis.node.block import settle_block
from balance_analysis.node.window import (
    EARLIEST,
    LONGEST_WINDOW,
    Ask,
    Listing,
    Window,
    ask_less,
    fetch,
    moment,
)
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import clipped
from balance_analysis.text import range_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from balance_analysis.filters import Filters
    from balance_analysis.node.decode import BadRow


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

    def until(self, end: int) -> Step:
        """Return what this step settled before a moment; nothing is left of its window."""
        rows = pa.Table.from_batches(self.batches, ARROW_SCHEMA)
        kept = rows.filter(pc.less(rows["timestamp"].cast(pa.int64()), end))
        bad = tuple(each for each in self.bad_rows if each.time is None or each.time < end)
        batches = tuple(kept.to_batches())
        incomplete = tuple(clipped(self.incomplete, self.start, end))
        return replace(
            self, end=end, batches=batches, bad_rows=bad, rest=None, incomplete=incomplete
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
        _check_restart(window, listings)
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
    return last + 1, settle_block(ask, filters, last, window.page_size)


def _check_nothing_before(ask: Ask, filters: Filters, window: Window) -> None:
    """Check that a page of one block began at the window's first row: its order can't show it."""
    if len(fetch(ask, filters, window).times):
        raise IncompleteError(
            f"rows stand in {range_text(window.start, window.end)}, but the answer began later: "
            "the node ignores the order that was asked for"
        )


def _check_restart(window: Window, listings: list[Listing]) -> None:
    firsts = [listing.span[0] for listing in listings if len(listing.times)]
    if not firsts or min(firsts) != window.start:
        found = f"at {moment(min(firsts))}" if firsts else "nowhere"
        raise IncompleteError(
            f"a row stands at {moment(window.start)}, but the answer that restarts there begins "
            f"{found}: the node has lost or withheld rows, or is of another network"
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
