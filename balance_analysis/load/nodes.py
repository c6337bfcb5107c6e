"""Which of the client's nodes is asked, in which turn, and what each says of itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.filters import Filters
from balance_analysis.load.request import LoadRequest, OnBadRows
from balance_analysis.node.client import (
    BALANCE_CHANGES,
    NETWORK_LIMITS,
    Client,
    check_client,
)
from balance_analysis.node.decode import DecodedPage, decode_page, raise_bad_row
from balance_analysis.node.exchange import Answer, RequestStats
from balance_analysis.node.retry import ONCE, Retry
from balance_analysis.node.walk import Step, find_oldest, take_step
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW, Ask, Window, fetch
from balance_analysis.node.wire import PageRequest
from balance_analysis.spans import Span, clipped

FRESH: Final = 3
"""Connections over which a node is asked for its oldest row: behind one address may be several."""

logger: logging.Logger = logging.getLogger("balance_analysis")

_decoding = threading.Lock()

T = TypeVar("T")

_OUTSIDE: Final = 416
"""The status of a range that an archive, served strictly, doesn't vouch for."""

_ENDLESS: Final = 1 << 62
_LAST: Final = (True, 0, 0.0)


def answers(
    base_urls: Iterable[str],
    ask: Callable[[str], T],
    failed: Callable[[str, Exception], object],
) -> Iterator[T]:
    """Yield what nodes answer, best first; a caller that is content asks no more.

    `failed` is called with a node that failed, and how.

    Raises
    ------
    RequestError, IncompleteError
        What the last node failed with, if all did.
    """
    failure: Exception | None = None
    any_answered = False
    for base_url in base_urls:
        try:
            answer = ask(base_url)
        except (RequestError, IncompleteError) as error:
            failure = error
            failed(base_url, error)
        else:
            any_answered = True
            yield answer
    if not any_answered:
        raise failure or AssertionError("a client has at least one node")


def _decode(body: bytes) -> DecodedPage:
    # Decoding holds the interpreter: threads that fight for it take longer than threads in a queue.
    with _decoding:
        return decode_page(body)


@dataclass(slots=True)
class LatestBlock:
    """The last block that a node was seen to hold: its number and its microseconds, if it says."""

    height: int | None = None
    time: int | None = None

    def advance(self, answer: Answer[Any]) -> None:
        """Take over what an answer says, if it is later."""
        if answer.block_height is not None:
            self.height = max(answer.block_height, self.height or 0)
        if answer.block_time is not None:
            self.time = max(answer.block_time, self.time or 0)

    def or_less(self, height: int | None, time: int | None) -> LatestBlock:
        """Return the lesser one of this and another."""
        return LatestBlock(_least(self.height, height), _least(self.time, time))

    def lags(self, moment: int) -> bool:
        """Whether the node is known not to hold everything before a moment."""
        return self.time is not None and self.time < moment


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


@dataclass(slots=True)
class NodeState:
    """What a node says of itself: its last block, and stretches of which it may lack rows.

    Of several answers, the one that knew least is believed.
    """

    head: LatestBlock = field(default_factory=LatestBlock)
    incomplete: list[Span] = field(default_factory=list)

    def within(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the incomplete parts of [start, end)."""
        return tuple(sorted({*clipped(self.incomplete, start, end)}))


class NodePool:
    """A client's nodes, for one piece of work; safe to share.

    `tally` counts what was sent and received; `heads` has for each node the last block that it
    held, `sources` the address that answered: another one after a redirect.
    """

    def __init__(self, client: Client, on_bad_rows: OnBadRows) -> None:
        check_client(client)
        self.client = client
        self.stats: RequestStats = RequestStats()
        self.heads = {base_url: LatestBlock() for base_url in client.base_urls}
        self.sources: dict[str, str] = {base_url: base_url for base_url in client.base_urls}
        self._raises = on_bad_rows == "raise"
        self._order = client.order
        self._failed: set[str] = set()
        self._reach: dict[str, int] = {}
        self._stopped = threading.Event()
        self._lock, self._reaching = threading.Lock(), threading.Lock()

    def stop(self) -> None:
        """Let no further question be sent."""
        self._stopped.set()

    def to(self, base_url: str, client: Client | None = None) -> tuple[Ask, NodeState]:
        """Return the function that asks one node, and what the node says of itself meanwhile.

        Over connections of another client's, bad rows are all right.
        """
        state, raises = NodeState(), self._raises and client is None
        return partial(self._ask, client or self.client, base_url, state, raises), state

    def _ask(
        self, client: Client, base_url: str, state: NodeState, raises: bool, request: PageRequest
    ) -> DecodedPage:
        if self._stopped.is_set():
            raise CancelledError
        answer = client.get(
            BALANCE_CHANGES,
            request.parameters(),
            _decode,
            base_url=base_url,
            stats=self.stats,
            retry=Retry(timeouts=request.page_size == 1, stopped=self._stopped),
        )
        with self._lock:
            self.heads[base_url].advance(answer)
            self.sources[base_url] = answer.source
            state.head = state.head.or_less(answer.block_height, answer.block_time)
            state.incomplete += answer.incomplete
        if raises:
            raise_bad_row(answer.value.bad_rows)
        return answer.value

    def settle(self, parts: Sequence[Filters], window: Window, interval: Span) -> Step:
        """Settle the first part of a window, all of it by one node.

        It goes to a node that reaches back far enough and doesn't lag, if there is one. What a node
        that lags doesn't know is left as the rest, where another may know it.

        Raises
        ------
        RequestError, IncompleteError
            What the last node failed with, if all did.
        """
        best: Step | None = None
        asked: set[str] = set()
        nodes = self._nodes_for(window.start, interval)
        for step in answers(nodes, lambda url: self._step(url, parts, window), self._demote):
            asked.add(step.source)
            if best is None or (step.known_end, step.head or 0) > (best.known_end, best.head or 0):
                best = step
            if step.known_end == step.end or not self._may_be_behind(step, asked):
                break
            if step.known_end > step.start:
                known = step.between(step.start, step.known_end)
                rest = replace(window, start=known.end, begins_with_row=False)
                return replace(known, rest=rest)
        if best is None:
            raise AssertionError("a node answered or all failed")
        return best

    def _step(self, base_url: str, parts: Sequence[Filters], window: Window) -> Step:
        ask, state = self.to(base_url)
        step = take_step(ask, parts, window)
        self._failed.discard(base_url)
        return replace(
            step,
            source=base_url,
            address=self.sources[base_url],
            head=state.head.time,
            block_height=state.head.height,
            incomplete=state.within(step.start, step.end),
        )

    def _may_be_behind(self, step: Step, asked: set[str]) -> bool:
        """Whether a node that wasn't asked may know more than one that lags."""
        left = {*self._order} - asked - self._failed - self.client.dead
        others = [self.heads[each].time for each in left]
        return any(time is None or time > (step.head or 0) for time in others)

    def _nodes_for(self, moment: int, interval: Span) -> Iterator[str]:
        """Yield the nodes that may know what follows a moment, best first, then the others."""
        order = tuple(self._order)
        others = []
        for base_url in order:
            if len(order) == 1 or self._may_know(base_url, moment, interval):
                yield base_url
            else:
                others.append(base_url)
        yield from sorted(others, key=lambda each: self._lack(each, moment))

    def _may_know(self, base_url: str, moment: int, interval: Span) -> bool:
        if self._has_failed(base_url) or self.heads[base_url].lags(moment + 1):
            return False
        try:
            return self.reach(base_url, interval) <= moment
        except (RequestError, IncompleteError) as error:
            self._demote(base_url, error)
            return False

    def _lack(self, base_url: str, moment: int) -> tuple[bool, int, int]:
        """Return how little a node can help with what follows a moment, the least first."""
        head = self.heads[base_url].time
        reach = max(moment, self._reach.get(base_url, _ENDLESS))
        return self._has_failed(base_url), reach, -(_ENDLESS if head is None else head)

    def _has_failed(self, base_url: str) -> bool:
        return base_url in self._failed or base_url in self.client.dead

    def _alive(self) -> list[str]:
        """Return the nodes, best first, without those that take no connection, if any does."""
        alive = [base_url for base_url in self._order if base_url not in self.client.dead]
        return alive or [*self._order]

    def _demote(self, base_url: str, error: Exception) -> None:
        with self._lock:
            self._failed.add(base_url)
            if len(self._order) > 1 and self._order[0] == base_url:
                self._order.append(self._order.pop(0))
                logger.warning("%s; going on with %s", error, self._order[0])

    def interval(self, request: LoadRequest) -> Span:
        """Return the bounds with a start: the time of the oldest row that any node remembers.

        Where there is no row it is the end.

        Of several nodes, the best is found first: the one that answers fastest of those that hold
        the end of the interval, or come nearest to it.
        """
        self.nodes(request.end)
        if request.start is not None:
            return request.start, request.end
        parts = request.filters.parts()
        end = request.end
        found = answers(
            self._alive(), lambda url: find_oldest(self.to(url)[0], parts, end), self._demote
        )
        return min((time for time in found if time is not None), default=end), end

    def reach(self, base_url: str, interval: Span) -> int:
        """Return from when on a node has forgotten nothing of an interval; it is asked once."""
        with self._reaching:
            if base_url not in self._reach:
                self._reach[base_url] = self.remembered_by(base_url, *interval)
            return self._reach[base_url]

    def remembered_by(self, base_url: str, start: int, end: int) -> int:
        """Return from when on a node has forgotten nothing of [start, end), as of now.

        Behind its address there may be several: it is asked over several connections, and the
        latest answer is believed.
        """

        def ask(_: int) -> int:
            with self.client.fresh() as client:
                return remembered(*self.to(base_url, client), start, end)

        with ThreadPoolExecutor(FRESH) as threads:
            return max(threads.map(ask, range(FRESH)))

    def remembered(self, start: int, end: int) -> int:
        """Return from when on the best node that answers has forgotten nothing of [start, end)."""
        return self._of_best(lambda url: self.remembered_by(url, start, end))

    def _of_best(self, ask: Callable[[str], T]) -> T:
        return next(answers(tuple(self._order), ask, self._demote))

    def nodes(self, end: int) -> tuple[str, ...]:
        """Return the nodes, best first; several are tried out for an interval that ends there."""
        if len(self._order) > 1:
            ranks = dict.fromkeys(self._order, _LAST)
            ranks |= {base_url: self._try(base_url, end) for base_url in self._alive()}
            self._order.sort(key=ranks.__getitem__)
            logger.info("asking %s first", self._order[0])
        return tuple(self._order)

    def _try(self, base_url: str, end: int) -> tuple[bool, int, float]:
        """Return whether a node fails, how far it lags behind, and how long it takes to answer."""
        began = time.monotonic()
        try:
            answer = self.client.get(
                NETWORK_LIMITS, [], len, base_url=base_url, stats=self.stats, retry=ONCE
            )
        except RequestError as error:
            # Limits may be missing before the first block; the node answers all the same.
            return error.status is None or error.retryable, 0, time.monotonic() - began
        self.heads[base_url].advance(answer)
        return False, max(0, end - (answer.block_time or end)), answer.seconds


def remembered(ask: Ask, state: NodeState, start: int, end: int) -> int:
    """Return from when on whoever is asked has forgotten nothing of [start, end).

    That is `start` where there is a row of any account at or before it, else the time of the oldest
    one. An archive forgets nothing: it says, or refuses, what it doesn't vouch for.
    """
    try:
        if start >= EARLIEST:
            window = Window(max(EARLIEST, start + 1 - LONGEST_WINDOW), start + 1, page_size=1)
            if len(fetch(ask, Filters(), window).times) or state.incomplete:
                return start
        oldest = find_oldest(ask, [Filters()], end)
    except RequestError as error:
        if error.status == _OUTSIDE:
            return start
        raise
    if state.incomplete:
        return start
    return end if oldest is None else max(start, oldest)
