"""Look through the list of balance changes as the interface offers it, page by page.

On real nodes following cursors loses rows. `load_balance_changes` doesn't follow them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Unpack

import pandas as pd
import pyarrow as pa

from balance_analysis.errors import IncompleteError
from balance_analysis.filters import FilterKeywords, make_filters, takes_filters
from balance_analysis.frame import to_frame
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import check_positive, make_request
from balance_analysis.node.client import BALANCE_CHANGES, Client
from balance_analysis.node.decode import decode_page, raise_bad_row
from balance_analysis.node.wire import PageRequest
from balance_analysis.presentation import facts_html, rows_html
from balance_analysis.schema import Instant

_SHOWN: Final = 10
"""How many rows of a page a notebook shows."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of balance changes.

    Attributes
    ----------
    table
        The page's rows: a table's columns and dtypes, but in the order in which the node sent them.
    start_cursor, end_cursor
        Cursors of the first and last row; empty for an empty page.
    has_next_page, has_previous_page
        Whether rows follow or precede in the list's order, as the node says.
    """

    table: pd.DataFrame
    start_cursor: str
    end_cursor: str
    has_next_page: bool
    has_previous_page: bool

    def _repr_html_(self) -> str:
        facts = {
            "previous page": self.has_previous_page,
            "next page": self.has_next_page,
            "start cursor": self.start_cursor or None,
            "end cursor": self.end_cursor or None,
        }
        rows = [
            (asset, name.removeprefix("ACCOUNT_TYPE_"), *others)
            for asset, name, *others in self.table[:_SHOWN].itertuples(index=False, name=None)
        ]
        cut = f"; the first {_SHOWN}" if len(self.table) > _SHOWN else ""
        title = f"{len(self.table):,} balance changes, as the node sent them{cut}"
        return facts_html("Page of a node", facts.items()) + rows_html(
            title, [*self.table.columns], rows, cut=True
        )


@takes_filters
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
    **filters: Unpack[FilterKeywords],
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
    start, end, asset_id, party_ids, market_ids, account_types, assets
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
    accounts = make_filters(**filters)
    request = make_request(start, end, accounts, page_size=size, workers=1, on_bad_rows="raise")

    def pages() -> Iterator[Page]:
        bounds = NodePool(client, "raise").interval(request)
        cursor = before if backward else after
        yield from _follow(
            client, PageRequest(accounts, *bounds, size, newest_first, cursor, backward)
        )

    return pages()


def _follow(client: Client, request: PageRequest) -> Iterator[Page]:
    """Yield pages from a cursor on, in one direction, until the node says that it has no more."""
    seen = {request.cursor}
    while True:
        page = client.get(BALANCE_CHANGES, request.parameters(), decode_page).value
        raise_bad_row(page.bad_rows)
        info, table = page.info, to_frame(pa.Table.from_batches([page.rows]), sort=False)
        cursors = info.start_cursor, info.end_cursor
        yield Page(table, *cursors, info.has_next_page, info.has_previous_page)
        if not (info.has_previous_page if request.backward else info.has_next_page):
            return
        cursor = info.start_cursor if request.backward else info.end_cursor
        if not cursor:
            raise IncompleteError(f"page {len(seen)} announces another but gives no cursor to it")
        if cursor in seen:
            raise IncompleteError(f"cursor {cursor!r} came back on page {len(seen)}")
        seen.add(cursor)
        request = replace(request, cursor=cursor)
