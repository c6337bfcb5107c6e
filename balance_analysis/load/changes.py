"""Load balance changes: as one table, as a stream of batches, or page by page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, logger
from balance_analysis.filters import FilterKeywords, make_filters, take_names, takes, takes_filters
from balance_analysis.labels import Names, note_names
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadKeywords, Report, check_positive, make_request
from balance_analysis.load.stream import Load
from balance_analysis.node.client import BALANCE_CHANGES, Client
from balance_analysis.node.decode import decode_page, raise_bad_row
from balance_analysis.node.walk import PageRequest
from balance_analysis.presentation import facts_html, rows_html
from balance_analysis.rows import PART
from balance_analysis.schema import ATTRS_KEY, Instant

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.merge import Part


_SHOWN: Final = 10
"""How many rows of a page a notebook shows."""


@takes(LoadKeywords, make_request, make_filters)
def load_balance_changes(
    client: Client,
    *,
    progress: bool | Report | None = None,
    **options: Unpack[LoadKeywords],
) -> pd.DataFrame:
    """Load all balance changes in [start, end), complete or not at all.

    The interval is walked by time, without cursors, so nothing is lost on nodes whose cursors lose
    rows. A window has no opening row: what an account held before its first row is not in it.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    start, end
        The interval, start inclusive, end exclusive: datetimes, dates or text, of ISO 8601 or such
        as "7d" (ago), "now-1h" and "now"; UTC where no time zone is given. `start=None` begins at
        the oldest row that the node holds, looked for from 2020 on. `end=None` is now, fixed before
        the first request.
    asset_id, party_ids, market_ids, account_types
        Which accounts; all where nothing is given. AND across the four, OR within a list. Ids
        have 64 hex digits (other ones of assets are `id:ID`), or are `network` for accounts without
        a party. Account types as `ACCOUNT_TYPE_GENERAL` or `general`; one that is newer than this
        release as `new:NAME`.
    assets
        Symbols and decimals of assets, as for `read_assets`: `asset_id` may be a symbol then, and
        the table's attrs have them.
    page_size
        Rows a request.
    workers
        Requests at once. The result doesn't depend on it.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which leaves it out and keeps it, raw and with the reason, in the table's attrs.
    progress
        `True` for a progress bar on stderr, `False` for none, `None` for one where stderr is a
        terminal or this is a notebook; or a function that gets the share of the interval that is
        settled, 0 to 1, and the rows so far, after each step.

    Returns
    -------
    pandas.DataFrame
        A table: columns asset_id, account_type, party_id, market_id (category), timestamp
        (datetime64[us, UTC]), balance (decimal128(38, 0)[pyarrow], in the asset's smallest unit),
        sorted by these in order; (account, timestamp) unique. `attrs["balance_analysis"]` tells,
        as JSON: source, interval, filters, rows, requests, retries, bytes, seconds (throttled ones
        too), the node's last block at the answer that knew least, `known` (the intervals in which
        every change is in the table, as pairs of ISO 8601), and quarantined rows.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses, after the retries.
    DecodeError
        If an answer or a row is not what the interface describes.
    IncompleteError
        If the answers don't add up to one complete list.
    CheckError
        If two rows of one account and time differ.
    ValueError
        If start is not before end, or a filter is malformed.

    Notes
    -----
    What is known ends at the node's last block, and begins at the oldest row of any account that it
    remembers, asked before its rows are used and again after the load. Where that is short of a
    start or an end that was given, one warning says so, on stderr unless the program sets up
    logging; rows that came all the same stay. A bound that was left open lies where what is known
    does. For what stays undetectable behind one
    address, see `Client`. A node that fails before it is asked again is believed what it said.

    An error of a load holds what is complete of it, and pickles; `error.resume()` goes on.
    """
    names = take_names(options)
    return PartialLoad(client, Load(make_request(**options)), names=names).finish(progress)


@dataclass(slots=True)
class PartialLoad:
    """What is complete of a load: the rows of the settled spans, sorted up to the first gap."""

    client: Client
    load: Load
    batches: list[pa.RecordBatch] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    names: Names = Names()  # noqa: RUF009 - immutable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the node's user and password: errors, which hold this, go far."""
        client = self.client.without_users()
        return PartialLoad, (client, self.load, self.batches, self.parts, self.names)

    def finish(self, progress: bool | Report | None = None) -> pd.DataFrame:
        """Load what is missing and return the whole table."""
        try:
            for step in self.load.run(self.client, progress):
                self.batches += step.batches
                self._sort(at_least=PART)
        except BalanceAnalysisError as error:
            error.partial = self
            error.add_note("What has come is kept: error.resume() loads what is missing.")
            raise
        from balance_analysis.merge import merge  # noqa: PLC0415 - pandas is heavy

        self._sort(at_least=0)
        table = merge(self.parts)
        table.attrs[ATTRS_KEY] |= note_names(self.load.describe(), self.names)
        return table

    def _sort(self, *, at_least: int) -> None:
        """Sort the rows before the first gap, if they are enough; no earlier ones will come."""
        if _count(self.batches) < at_least:
            return
        from balance_analysis.merge import sort_parts  # noqa: PLC0415 - pandas is heavy

        # Spans don't overlap: in their order, the rows of each account are by time.
        self.batches.sort(key=_begin)
        gaps = self.load.missing()
        whole = bisect_left(self.batches, gaps[0].start, key=_begin) if gaps else None
        ready = self.batches[:whole]
        if _count(ready) >= at_least:
            self.batches = self.batches[len(ready) :]
            self.parts += sort_parts(pa.Table.from_batches([batch]) for batch in ready)

    def resume(self, client: Client | None = None) -> pd.DataFrame:
        """Load what is missing, from the same node or another, and return the whole table."""
        client, load = client or self.client, deepcopy(self.load)
        return PartialLoad(client, load, [*self.batches], [*self.parts], self.names).finish()


@takes(LoadKeywords, make_request, make_filters)
def iter_balance_changes(
    client: Client,
    *,
    progress: bool | Report | None = None,
    **options: Unpack[LoadKeywords],
) -> Iterator[pa.RecordBatch]:
    """Load all balance changes in [start, end) as a stream, for what doesn't fit in memory.

    Few batches wait at any time: when they are not taken, no more requests are sent.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`.
    page_size, workers, progress
        As for `load_balance_changes`.
    on_bad_rows
        "raise" (DecodeError), or "quarantine", which leaves a bad row out and logs it.

    Yields
    ------
    pyarrow.RecordBatch
        Rows in time order, none empty: asset_id, account_type, party_id, market_id (dictionary of
        string), timestamp (timestamp[us, UTC]), balance (decimal128(38, 0), in the asset's smallest
        unit). All rows before the first of the next batch have been yielded.

    Raises
    ------
    ValueError, TypeError
        If an argument is malformed; at the call, not at the first batch.
    RequestError, DecodeError, IncompleteError, CheckError
        As `load_balance_changes`; all batches before are complete.
    """
    return _batches(client, Load(make_request(**options)), progress)


def _begin(batch: pa.RecordBatch) -> int:
    moment: int = batch["timestamp"][0].value
    return moment


def _count(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _batches(
    client: Client, load: Load, progress: bool | Report | None
) -> Iterator[pa.RecordBatch]:
    for step in load.in_time_order(load.run(client, progress)):
        for bad in step.bad_rows:
            logger.warning("left out a bad row: %s; the row is %s", bad.reason, bad.raw)
        yield from step.batches


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
    request = make_request(start, end, page_size=size, **filters)

    def pages() -> Iterator[Page]:
        bounds = NodePool(client, "raise").interval(request)
        cursor = before if backward else after
        first_page = PageRequest(request.filters, *bounds, size, newest_first, cursor, backward)
        yield from _follow(client, first_page)

    return pages()


def _follow(client: Client, request: PageRequest) -> Iterator[Page]:
    """Yield pages from a cursor on, in one direction, until the node says that it has no more."""
    from balance_analysis.frame import to_frame  # noqa: PLC0415 - pandas is heavy

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
