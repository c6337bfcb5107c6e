"""Look through the list of balance changes as the interface offers it, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balance_analysis.load.request import check_positive, make_request
from balance_analysis.load.session import Asking
from balance_analysis.node.pages import Page, follow_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from balance_analysis.node.client import Client
    from balance_analysis.schema import Instant


def iter_pages(
    client: Client,
    *,
    first: int | None = None,
    after: str | None = None,
    last: int | None = None,
    before: str | None = None,
    newest_first: bool = True,
    start: Instant | None = None,
    end: Instant | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
) -> Iterator[Page]:
    """Page through the list of balance changes by its cursors, lazily, in either direction.

    This is the interface's own paging, for looking around. On real nodes it loses rows, silently:
    `load_balance_changes` is the way to all rows.

    Parameters
    ----------
    client
        The node.
    first, after
        Forward: rows a page (1000 where neither `first` nor `last` is given), and the cursor of the
        row to begin after.
    last, before
        Backward: rows a page, and the cursor of the row to begin before; without it, from the end
        of the list. Pages come last to first; the rows in each keep the list's order.
    newest_first
        The list's order.
    start, end, asset_id, party_ids, market_ids, account_types
        As for `load_balance_changes`. A real node takes at most 365 days without a cursor.

    Yields
    ------
    Page
        `table` (rows in the node's order), `start_cursor`, `end_cursor`, `has_next_page`,
        `has_previous_page`.

    Raises
    ------
    ValueError
        If directions are mixed, or an argument is malformed; at the call, not at the first page.
    IncompleteError
        If another page is announced but the cursor to it is missing or came before.
    RequestError, DecodeError
        As for `load_balance_changes`.
    """
    if last is not None and first is not None:
        raise ValueError("give first (forward) or last (backward), not both")
    backward = last is not None or before is not None
    if backward and after is not None:
        raise ValueError("after goes with first, before with last")
    if first is not None and before is not None:
        raise ValueError("before goes with last, after with first")
    size = next((number for number in (first, last) if number is not None), 1000)
    check_positive("last" if backward else "first", size)
    request = make_request(
        start=start,
        end=end,
        asset_id=asset_id,
        party_ids=party_ids,
        market_ids=market_ids,
        account_types=account_types,
        page_size=size,
        workers=1,
        on_bad_rows="raise",
    )

    def pages() -> Iterator[Page]:
        beginning, ending = Asking(client, "raise").interval(request)
        yield from follow_pages(
            client,
            request.filters,
            start=beginning,
            end=ending,
            size=size,
            backward=backward,
            cursor=before if backward else after,
            newest_first=newest_first,
        )

    return pages()
