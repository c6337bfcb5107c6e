"""Settle a block that holds at least a whole page of rows, or fail and name it.

The walk can't restart inside a block, since all its rows have one time. So the block is asked for
alone, in every way that can show that all its rows were sent:

1. with a larger page: older releases have no maximum;
2. from both ends: where the oldest and the newest page share a row, nothing lies between them;
3. by cursors, once in each order: a server whose cursors are right gives the same rows twice;
4. in halves of the caller's own lists, each settled the same way.

If none does, the rows that are known are not passed off as all. All known account types, one after
the other, don't do: a row of a type that a newer node has would be in none of the answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.node.window import Ask, Listing, Window, fetch, is_refusal, moment
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from balance_analysis.filters import Filters

USUAL_MAXIMUM: Final = 5_000
"""The largest page of the releases that have a maximum."""

LARGEST_PAGE: Final = 1_000_000
"""A page that holds any block, for the releases that have none."""

Account = tuple[str, ...]


def settle_block(ask: Ask, filters: Filters, block: int, page_size: int) -> Listing:
    """Return all rows of one block, by its microseconds and a page size that the node accepts.

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
        return settle_block(ask, filters, block, size) if listing.more else listing
    return _settle(ask, filters, window)


def _page_sizes(accepted: int) -> Iterator[int]:
    """Yield sizes above one that the node has accepted, in the order in which to try them."""
    size = USUAL_MAXIMUM if accepted < USUAL_MAXIMUM else LARGEST_PAGE
    while size > max(accepted, USUAL_MAXIMUM if size > USUAL_MAXIMUM else 0):
        yield size
        size //= 2


def _settle(ask: Ask, filters: Filters, window: Window) -> Listing:
    oldest = fetch(ask, filters, window)
    if not oldest.more:
        return oldest
    for way in (_from_both_ends, _by_cursors, _by_halves):
        settled = way(ask, filters, window, oldest)
        if settled is not None:
            return settled
    raise IncompleteError(
        f"the block at {moment(window.start)} holds more rows than one page of "
        f"{window.page_size}, and this node can't be made to show them all; name the account "
        "types, parties or markets that are wanted, or ask another node"
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
    settled = _joined([_settle(ask, half, window) for half in halves])
    return settled if set(_accounts([oldest])) <= set(_accounts([settled])) else None


def _accounts(listings: Iterable[Listing]) -> list[Account]:
    """Return the accounts of rows, as they came."""
    return [
        account
        for listing in listings
        for account in zip(*(listing.rows[name].to_pylist() for name in ACCOUNT_KEY), strict=True)
    ]


def _joined(listings: list[Listing]) -> Listing:
    """Return the rows of one block's listings; what came twice stays, for the table's check."""
    rows = pa.Table.from_batches([listing.rows for listing in listings], ARROW_SCHEMA)
    times = pa.chunked_array([listing.times for listing in listings], pa.int64())
    bad = dict.fromkeys(bad for listing in listings for bad in listing.bad_rows)
    batches = rows.unify_dictionaries().combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], ARROW_SCHEMA)
    sent = sum(listing.sent for listing in listings)
    return Listing(batch, times.combine_chunks(), tuple(bad), more=False, end_cursor="", sent=sent)
