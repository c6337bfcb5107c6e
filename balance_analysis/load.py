"""Load from a node: windows, walk and decode make one checked table; also pages and limits.

The interval is cut into windows that several workers settle side by side. A step settles the first
part of its window and hands back the rest; the windows always tile [start, end), so the rows of
all steps are the interval's rows whatever the cuts, the page size and the number of workers.
"""

from __future__ import annotations

import datetime as dt
import heapq
import logging
import threading
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.checks import merge_duplicates
from balance_analysis.node.client import BALANCE_CHANGES, NETWORK_LIMITS, Answer, Client
from balance_analysis.node.decode import (
    BadRow,
    DecodedPage,
    decode_limits,
    decode_page,
    network_limits,
    raise_bad_row,
)
from balance_analysis.node.pages import Page, follow_pages
from balance_analysis.node.query import Filters, make_filters, page_parameters
from balance_analysis.node.walk import Step, find_oldest, take_step
from balance_analysis.node.window import LONGEST_WINDOW, Question, Window
from balance_analysis.schema import (
    ARROW_SCHEMA,
    ATTRS_KEY,
    Instant,
    NetworkLimits,
    from_microseconds,
    to_frame,
    to_microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_FILL: Final = 0.75
"""How full a window cut for several workers should be: room for bursts without a second request."""
_GROWTH: Final = 16
_AHEAD: Final = 4
"""Steps a worker that may be settled ahead of the earliest one that is not."""

logger = logging.getLogger("balance_analysis")

OnBadRows = Literal["raise", "quarantine"]


def load_balance_changes(
    client: Client,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    page_size: int = 5000,
    workers: int = 4,
    on_bad_rows: OnBadRows = "raise",
    progress: Callable[[float, int], None] | None = None,
) -> pd.DataFrame:
    """Load all balance changes in [start, end), complete or not at all.

    The interval is walked by time, without cursors, so nothing is lost on nodes whose cursors lose
    rows. A window has no opening row: what an account held before its first row is not in it.

    Parameters
    ----------
    client
        The node.
    start, end
        The interval, start inclusive, end exclusive: datetimes, dates or ISO 8601 text, UTC where
        no time zone is given. `start=None` begins at the oldest row that the node holds, looked for
        from 2020 on. `end=None` is now, fixed before the first request.
    asset_id, party_ids, market_ids, account_types
        Which accounts; all where nothing is given. AND across the four, OR within a list. Ids
        have 64 hex digits (an asset's may differ), or are `network` for accounts without a
        party. Account types as `ACCOUNT_TYPE_GENERAL` or `general`; one that is newer than this
        release as `new:NAME`.
    page_size
        Rows a request.
    workers
        Requests at once. The result doesn't depend on it.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which leaves it out and keeps it, raw and with the reason, in the table's attrs.
    progress
        Called after each step with the share of the interval that is settled, 0 to 1, and the rows
        so far.

    Returns
    -------
    pandas.DataFrame
        A table: columns asset_id, account_type, party_id, market_id (category), timestamp
        (datetime64[us, UTC]), balance (decimal128(38, 0)[pyarrow], in the asset's smallest unit),
        sorted by these in order; (account, timestamp) unique. `attrs["balance_analysis"]` tells
        source, interval, filters, requests, rows, the node's last block, and quarantined rows.

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
    """
    filters = make_filters(
        asset_id=asset_id, party_ids=party_ids, market_ids=market_ids, account_types=account_types
    )
    check_positive("page_size", page_size)
    check_positive("workers", workers)
    if on_bad_rows not in ("raise", "quarantine"):
        raise ValueError(f'on_bad_rows must be "raise" or "quarantine", not {on_bad_rows!r}')
    bounds = _bounds(start, end)
    asking = _Asking(client, on_bad_rows)
    first, last = _interval(asking, filters, bounds)
    batches: list[pa.RecordBatch] = []
    bad_rows: dict[BadRow, None] = {}
    rows = 0
    for step in _steps(asking, filters.parts(), Window(first, last, page_size), workers):
        batches += step.batches
        bad_rows |= dict.fromkeys(step.bad_rows)
        rows += sum(batch.num_rows for batch in step.batches)
        if progress is not None:
            progress((step.end - first) / (last - first), rows)
    table = merge_duplicates(to_frame(pa.Table.from_batches(batches, ARROW_SCHEMA)))
    table.attrs[ATTRS_KEY] = {
        "source": client.base_url,
        "start": from_microseconds(first).isoformat(),
        "end": from_microseconds(last).isoformat(),
        "filters": filters.parameters(),
        "requests": asking.requests,
        "rows": len(table),
        "block_height": asking.block_height,
        "block_time": None
        if asking.block_time is None
        else from_microseconds(asking.block_time).isoformat(),
        "quarantined": [{"row": bad.raw, "reason": bad.reason} for bad in bad_rows],
    }
    logger.info("%d rows in %d requests from %s", len(table), asking.requests, client.base_url)
    return table


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
    filters = make_filters(
        asset_id=asset_id, party_ids=party_ids, market_ids=market_ids, account_types=account_types
    )
    bounds = _bounds(start, end)

    def pages() -> Iterator[Page]:
        beginning, ending = _interval(_Asking(client, "raise"), filters, bounds)
        yield from follow_pages(
            client,
            filters,
            start=beginning,
            end=ending,
            size=size,
            backward=backward,
            cursor=before if backward else after,
            newest_first=newest_first,
        )

    return pages()


def load_network_limits(client: Client) -> NetworkLimits:
    """Load the network's limits as they are now.

    Returns
    -------
    NetworkLimits
        With the moment of asking, the source, and the node's last block.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses; before a network's first block a node answers 404.
    DecodeError
        If the answer is not what the interface describes.
    """
    fetched_at = pd.Timestamp.now("UTC")
    answer = client.get(NETWORK_LIMITS, [], decode_limits)
    return network_limits(
        answer.value,
        fetched_at=fetched_at,
        source=client.base_url,
        block_height=answer.block_height,
    )


def check_positive(name: str, number: int) -> None:
    """Raise unless a number is a whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a whole number, not {number!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")


@dataclass(slots=True)
class _Asking:
    """Sends the requests of one load and counts them; safe to share between threads."""

    client: Client
    on_bad_rows: OnBadRows
    requests: int = 0
    block_height: int | None = None
    block_time: int | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, question: Question) -> DecodedPage:
        if self.stopped.is_set():
            raise CancelledError
        parameters = page_parameters(
            question.filters,
            start=question.start,
            end=question.end,
            first=question.page_size,
            after=question.after,
            newest_first=question.newest_first,
        )
        answer = self.client.get(BALANCE_CHANGES, parameters, decode_page)
        self._count(answer)
        if self.on_bad_rows == "raise":
            raise_bad_row(answer.value.bad_rows)
        return answer.value

    def _count(self, answer: Answer[DecodedPage]) -> None:
        with self._lock:
            self.requests += 1
            if answer.block_height is not None:
                self.block_height = max(answer.block_height, self.block_height or 0)
            if answer.block_time is not None:
                self.block_time = max(answer.block_time, self.block_time or 0)


def _bounds(start: Instant | None, end: Instant | None) -> tuple[int | None, int]:
    """Return the bounds in microseconds; the end is fixed here, before the first request."""
    last = to_microseconds(dt.datetime.now(dt.UTC) if end is None else end)
    first = None if start is None else to_microseconds(start)
    if first is not None and first >= last:
        raise ValueError(
            f"start must be before end, but {from_microseconds(first).isoformat()} is not before "
            f"{from_microseconds(last).isoformat()}"
        )
    return first, last


def _interval(asking: _Asking, filters: Filters, bounds: tuple[int | None, int]) -> tuple[int, int]:
    """Return the bounds with a start: the oldest row's time, or the end where there is no row."""
    first, last = bounds
    if first is None:
        first = find_oldest(asking, filters.parts(), last)
    return (last if first is None else first), last


def _steps(asking: _Asking, parts: list[Filters], whole: Window, workers: int) -> Iterator[Step]:
    """Yield the steps that settle a window, in time order.

    Windows are cut near the earliest unsettled moment, wide enough for most of a page by the
    density seen last, so that what waits for its turn stays small.
    """
    todo, done = [whole], dict[int, Step]()
    running: set[Future[Step]] = set()
    front, width, page_size = whole.start, LONGEST_WINDOW, whole.page_size
    pool = ThreadPoolExecutor(workers, thread_name_prefix="balance_analysis")
    try:
        while front < whole.end:
            while todo and len(running) < workers and _is_near(todo[0], front, done, workers):
                window, rest = heapq.heappop(todo).cut(width, page_size)
                if rest is not None:
                    heapq.heappush(todo, rest)
                running.add(pool.submit(take_step, asking, parts, window))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for step in (future.result() for future in finished):
                done[step.start] = step
                page_size = min(page_size, step.page_size)
                if step.rest is not None:
                    heapq.heappush(todo, step.rest)
                if workers > 1:
                    width = _next_width(step)
            while front in done:
                step = done.pop(front)
                front = step.end
                yield step
    finally:
        asking.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _is_near(window: Window, front: int, done: dict[int, Step], workers: int) -> bool:
    return window.start == front or len(done) < _AHEAD * workers


def _next_width(step: Step) -> int:
    span = step.end - step.start
    rows = sum(batch.num_rows for batch in step.batches)
    wanted = span * step.page_size * _FILL / max(rows, 1)
    return int(min(max(wanted, 1), _GROWTH * span, LONGEST_WINDOW))
