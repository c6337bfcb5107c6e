"""Send the questions of one load, to the best of the client's nodes, and count what they cost."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.node.client import BALANCE_CHANGES, NETWORK_LIMITS, Client, Tally
from balance_analysis.node.decode import DecodedPage, decode_page, raise_bad_row
from balance_analysis.node.query import Filters, page_parameters
from balance_analysis.node.walk import Step, find_oldest, take_step
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW, Window, fetch
from balance_analysis.spans import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from balance_analysis.load.request import LoadRequest, OnBadRows
    from balance_analysis.node.exchange import Answer
    from balance_analysis.node.window import Ask, Question
    from balance_analysis.spans import Span

logger = logging.getLogger("balance_analysis")

_decoding = threading.Lock()

T = TypeVar("T")

_OUTSIDE = 416
"""The status of a range that an archive, served strictly, doesn't vouch for."""


def _decode(body: bytes) -> DecodedPage:
    # Decoding holds the interpreter: threads that fight for it take longer than threads in a queue.
    with _decoding:
        return decode_page(body)


@dataclass(slots=True)
class Head:
    """The last block that a node was seen to hold.

    Attributes
    ----------
    height
        Its number; `None` where the node doesn't say.
    time
        Its time in microseconds since 1970; `None` where the node doesn't say.
    """

    height: int | None = None
    time: int | None = None

    def advance(self, answer: Answer[Any]) -> None:
        """Take over what an answer says, if it is later."""
        if answer.block_height is not None:
            self.height = max(answer.block_height, self.height or 0)
        if answer.block_time is not None:
            self.time = max(answer.block_time, self.time or 0)

    def lags(self, moment: int) -> bool:
        """Whether the node is known not to hold everything before a moment."""
        return self.time is not None and self.time < moment


@dataclass(slots=True)
class Seen:
    """What a node said of its answers to one step.

    Attributes
    ----------
    heads
        The time of its last block, microseconds, at each answer.
    incomplete
        Stretches of which it may lack rows.
    """

    heads: list[int] = field(default_factory=list)
    incomplete: list[Span] = field(default_factory=list)

    def within(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the incomplete parts of [start, end)."""
        return tuple(sorted({*clipped(self.incomplete, start, end)}))


class Asking:
    """The questions of one load: which node gets them, what they cost; safe to share.

    Parameters
    ----------
    client
        The node or nodes.
    on_bad_rows
        Whether a bad row raises.

    Attributes
    ----------
    tally
        What was sent and received.
    heads
        For each node that answered, the last block that it held.
    sources
        For each node, the address that answered: another one after a redirect.
    """

    def __init__(self, client: Client, on_bad_rows: OnBadRows) -> None:
        self.client = client
        self.tally = Tally()
        self.heads = {base_url: Head() for base_url in client.base_urls}
        self.sources = {base_url: base_url for base_url in client.base_urls}
        self._on_bad_rows = on_bad_rows
        self._order = list(client.base_urls)
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Let no further question be sent."""
        self._stopped.set()

    def to(self, base_url: str, seen: Seen | None = None) -> Ask:
        """Return the function that asks one node, and notes what it says of its answers."""
        return lambda question: self._ask(base_url, question, Seen() if seen is None else seen)

    def _ask(self, base_url: str, question: Question, seen: Seen) -> DecodedPage:
        if self._stopped.is_set():
            raise CancelledError
        answer = self.client.get(
            BALANCE_CHANGES,
            page_parameters(
                question.filters,
                start=question.start,
                end=question.end,
                first=question.page_size,
                after=question.after,
                newest_first=question.newest_first,
            ),
            _decode,
            base_url=base_url,
            tally=self.tally,
            retry_timeouts=question.page_size == 1,
            stopped=self._stopped,
        )
        with self._lock:
            self.heads[base_url].advance(answer)
            self.sources[base_url] = answer.source
        if answer.block_time is not None:
            seen.heads.append(answer.block_time)
        seen.incomplete += answer.incomplete
        if self._on_bad_rows == "raise":
            raise_bad_row(answer.value.bad_rows)
        return answer.value

    def settle(self, parts: Sequence[Filters], window: Window) -> Step:
        """Settle the first part of a window, all of it by one node.

        A node that fails, or is known to lag behind what it was asked for, is left for another.

        Raises
        ------
        BalanceAnalysisError
            What the last node failed with, if all did.
        """
        behind: list[tuple[int, Step]] = []
        failure: RequestError | IncompleteError | None = None
        for base_url in tuple(self._order):
            seen = Seen()
            try:
                step = take_step(self.to(base_url, seen), parts, window)
            except (RequestError, IncompleteError) as error:
                failure = error
                self._demote(base_url, str(error))
                continue
            incomplete = seen.within(step.start, step.end)
            head_seen = min(seen.heads, default=None)
            step = replace(
                step, source=self.sources[base_url], head=head_seen, incomplete=incomplete
            )
            head = self.heads[base_url]
            if not head.lags(step.end) or not self._may_be_behind(head):
                return step
            behind.append((head.time or 0, step))
        if behind:
            return max(behind, key=lambda pair: pair[0])[1]
        raise failure or AssertionError("a client has at least one node")

    def _may_be_behind(self, head: Head) -> bool:
        others = [other for other in self.heads.values() if other is not head]
        return any(other.time is None or other.time > (head.time or 0) for other in others)

    def _demote(self, base_url: str, reason: str) -> None:
        with self._lock:
            if len(self._order) > 1 and self._order[0] == base_url:
                self._order.append(self._order.pop(0))
                logger.warning("%s; going on with %s", reason, self._order[0])

    def interval(self, request: LoadRequest) -> tuple[int, int]:
        """Return the bounds with a start: the oldest row's time, or the end where there is no row.

        Of several nodes, the best is found first: the one that answers fastest of those that hold
        the end of the interval, or come nearest to it.
        """
        self.nodes(request.end)
        if request.start is not None:
            return request.start, request.end
        oldest = self._oldest(request)
        return (request.end if oldest is None else oldest), request.end

    def remembered(self, start: int, end: int) -> int:
        """Return from when on the best node has forgotten nothing of [start, end).

        That is `start` where it holds an older row of any account, else the time of its oldest one.
        A node that refuses what it doesn't vouch for remembers all that it answers.
        """
        try:
            return self._of_best(lambda ask: _remembered(ask, start, end))
        except RequestError as error:
            if error.status == _OUTSIDE:
                return start
            raise

    def block_at(self, moment: int, parts: Sequence[Filters]) -> tuple[bool, list[pa.RecordBatch]]:
        """Return whether the best node holds rows of a block, and one of them unless it is bad."""
        window = Window(moment, moment + 1, page_size=1)
        found = self._of_best(lambda ask: [fetch(ask, part, window) for part in parts])
        rows = [listing.rows for listing in found if listing.rows.num_rows]
        return any(len(listing.times) for listing in found), rows

    def _of_best(self, ask_node: Callable[[Ask], T]) -> T:
        """Return what the best node that answers says."""
        failure: RequestError | None = None
        for base_url in tuple(self._order):
            try:
                return ask_node(self.to(base_url))
            except RequestError as error:
                failure = error
                self._demote(base_url, str(error))
        raise failure or AssertionError("a client has at least one node")

    def _oldest(self, request: LoadRequest) -> int | None:
        parts = request.filters.parts()
        return self._of_best(lambda ask: find_oldest(ask, parts, request.end))

    def nodes(self, end: int) -> tuple[str, ...]:
        """Return the nodes, best first; several are tried out for an interval that ends there."""
        if len(self._order) > 1:
            ranks = {base_url: self._try(base_url, end) for base_url in self._order}
            self._order.sort(key=ranks.__getitem__)
            logger.info("asking %s first", self._order[0])
        return tuple(self._order)

    def _try(self, base_url: str, end: int) -> tuple[bool, int, float]:
        """Return whether a node fails, how far it lags behind, and how long it takes to answer."""
        began = time.monotonic()
        try:
            answer = self.client.get(
                NETWORK_LIMITS, [], len, base_url=base_url, tally=self.tally, attempts=1
            )
        except RequestError as error:
            # Limits may be missing before the first block; the node answers all the same.
            return error.status is None or error.retryable, 0, time.monotonic() - began
        self.heads[base_url].advance(answer)
        lag = 0 if answer.block_time is None else max(0, end - answer.block_time)
        return False, lag, answer.seconds


def _remembered(ask: Ask, start: int, end: int) -> int:
    if start > EARLIEST:
        window = Window(max(EARLIEST, start - LONGEST_WINDOW), start, page_size=1)
        if len(fetch(ask, Filters(), window).times):
            return start
    oldest = find_oldest(ask, [Filters()], end)
    return end if oldest is None else max(start, oldest)
