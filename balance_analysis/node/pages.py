"""Walk the cursor-paged list of balance changes, one page at a time, as the interface offers it.

This is the interface as it stands, for looking around: on real nodes following cursors loses rows.
`load.load_balance_changes` doesn't follow them and loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from balance_analysis.errors import IncompleteError
from balance_analysis.frame import to_frame
from balance_analysis.node.client import BALANCE_CHANGES
from balance_analysis.node.decode import decode_page, raise_bad_row
from balance_analysis.node.query import page_parameters
from balance_analysis.notebook import facts_html, rows_html

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from balance_analysis.filters import Filters
    from balance_analysis.node.client import Client
    from balance_analysis.node.decode import DecodedPage

_SHOWN: Final = 5
"""How many rows of each end of a page a notebook shows."""


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
        count = len(self.table)
        ends = [self.table] if count <= 2 * _SHOWN else [self.table[:_SHOWN], self.table[-_SHOWN:]]
        shown = "as the node sent them"
        if len(ends) > 1:
            shown += f"; the first and the last {_SHOWN}"
        rows = [
            (asset, name.removeprefix("ACCOUNT_TYPE_"), *others)
            for end in ends
            for asset, name, *others in end.itertuples(index=False, name=None)
        ]
        title = f"{count:,} balance changes, {shown}"
        return facts_html("Page of a node", facts.items()) + rows_html(
            title, [*self.table.columns], rows, cut=True
        )


def follow_pages(
    client: Client,
    filters: Filters,
    *,
    start: int,
    end: int,
    size: int,
    backward: bool,
    cursor: str | None,
    newest_first: bool,
) -> Iterator[Page]:
    """Yield pages from a cursor on, in one direction, until the node says that there are no more.

    Parameters
    ----------
    client
        The node.
    filters
        The accounts asked for.
    start, end
        The range in microseconds.
    size
        Rows a page.
    backward
        Whether to page with last/before instead of first/after.
    cursor
        Where to begin; `None` for the end of the list that the direction begins at.
    newest_first
        The list's order.

    Raises
    ------
    IncompleteError
        If another page is announced but the cursor to it is missing or came before.
    DecodeError
        If a row is bad.
    """
    seen = {cursor}
    while True:
        parameters = page_parameters(
            filters,
            start=start,
            end=end,
            first=None if backward else size,
            after=None if backward else cursor,
            last=size if backward else None,
            before=cursor if backward else None,
            newest_first=newest_first,
        )
        page = client.get(BALANCE_CHANGES, parameters, decode_page).value
        raise_bad_row(page.bad_rows)
        yield _page(page)
        if not (page.has_previous_page if backward else page.has_next_page):
            return
        cursor = page.start_cursor if backward else page.end_cursor
        if not cursor:
            raise IncompleteError(f"page {len(seen)} announces another but gives no cursor to it")
        if cursor in seen:
            raise IncompleteError(f"cursor {cursor!r} came back on page {len(seen)}")
        seen.add(cursor)


def _page(page: DecodedPage) -> Page:
    return Page(
        table=to_frame(pa.Table.from_batches([page.rows]), sort=False),
        start_cursor=page.start_cursor,
        end_cursor=page.end_cursor,
        has_next_page=page.has_next_page,
        has_previous_page=page.has_previous_page,
    )
