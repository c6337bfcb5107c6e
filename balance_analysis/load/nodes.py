"""Which of the client's nodes is asked, and in which turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from balance_analysis.errors import IncompleteError, RequestError, logger
from balance_analysis.filters import Filters
from balance_analysis.load.evidence import NodeState, retention_start
from balance_analysis.load.request import LoadRequest, OnBadRows
from balance_analysis.node.client import (
    BALANCE_CHANGES,
    NETWORK_LIMITS,
    ONCE,
    Client,
    Retry,
    check_client,
)
from balance_analysis.node.decode import DecodedPage, decode_page, raise_bad_row
from balance_analysis.node.exchange import Answer
from balance_analysis.node.stats import RequestStats
from balance_analysis.node.walk import Ask, PageRequest, Step, Window, find_oldest, take_step
from balance_analysis.spans import EVER, Span

FRESH: Final = 3
"""Connections over which a node is asked for its oldest row: behind one address may be several."""


_decoding = threading.Lock()

T = TypeVar("T")

_LAST: Final = (True, 0, 0.0)
"""What stands for a node that takes no connection, where others tell how well they answer."""


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


def started(function: Callable[..., T], *args: object) -> Future[T]:
    """Call a function beside this thread, and return what its result comes in.

    Where nobody waits for it any more, it doesn't keep the program from ending.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _decode(body: bytes) -> DecodedPage:
    # Decoding holds the interpreter: threads that fight for it take longer than threads in a queue.
    with _decoding:
        return decode_page(body)


class NodePool:
    """A client's nodes, for one piece of work; safe to share.

    `stats` counts what was sent and received. For each node `heads` has the time of the last block
    that it held, if it says so, and `sources` the address that answered: another one after a
    redirect.
    """

    def __init__(
        self, client: Client, on_bad_rows: OnBadRows, stats: RequestStats | None = None
    ) -> None:
        check_client(client)
        self.client = client
        self.stats: RequestStats = stats or RequestStats()
        self.heads: dict[str, int] = {}
        self.sources: dict[str, str] = {url: url for url in client.base_urls}
        self._raises = on_bad_rows == "raise"
        self._order = client.order
        self._failed: set[str] = set()
        self._retention_starts: dict[str, int] = {}
        self._stopped = threading.Event()
        self._lock, self._asking_retention = threading.Lock(), threading.Lock()

    def __enter__(self) -> NodePool:
        return self

    def __exit__(self, *_: object) -> None:
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
            self._note_head(base_url, answer)
            self.sources[base_url] = answer.source
            latest = answer.block_height, answer.block_time
            state.latest_block = state.latest_block.or_less(*latest)
            state.incomplete += answer.incomplete
        if raises:
            raise_bad_row(answer.value.bad_rows)
        return answer.value

    def _note_head(self, base_url: str, answer: Answer[Any]) -> None:
        if answer.block_time is not None:
            self.heads[base_url] = max(answer.block_time, self.heads.get(base_url, 0))

    def settle(self, parts: Sequence[Filters], window: Window, interval: Span) -> Step:
        """Settle the first part of a window, all of it by one node.

        It goes to a node that reaches back far enough and doesn't lag, if there is one. What a node
        that lags doesn't know is left as the rest, where another may know it.

        Raises
        ------
        RequestError, IncompleteError
            What the last node failed with, if all did.
        """
        steps: list[Step] = []
        nodes = self._nodes_for(window.start, interval)
        for step in answers(nodes, lambda url: self._step(url, parts, window), self._demote):
            steps.append(step)
            if step.known_end == step.end or not self._may_be_behind(step, steps):
                break
            if step.known_end > step.start:
                known = step.between(step.start, step.known_end)
                rest = replace(window, start=known.end, begins_with_row=False)
                return replace(known, rest=rest)
        return max(steps, key=lambda step: (step.known_end, step.head or 0))

    def _step(self, base_url: str, parts: Sequence[Filters], window: Window) -> Step:
        ask, state = self.to(base_url)
        step = take_step(ask, parts, window)
        self._failed.discard(base_url)
        return replace(
            step,
            source=base_url,
            address=self.sources[base_url],
            head=state.latest_block.time,
            block_height=state.latest_block.height,
            incomplete=state.within(step.start, step.end),
        )

    def _may_be_behind(self, step: Step, steps: Sequence[Step]) -> bool:
        """Whether a node that didn't answer yet may know more than one that lags."""
        left = {*self._order} - {each.source for each in steps} - self._failed - self.client.dead
        return any(self.heads.get(each, EVER[1]) > (step.head or 0) for each in left)

    def _nodes_for(self, moment: int, interval: Span) -> Iterator[str]:
        """Yield the nodes that may know what follows a moment, best first, then the others."""
        order = tuple(self._order)
        others = []
        for base_url in order:
            if len(order) == 1 or self._may_know(base_url, moment, interval):
                yield base_url
            else:
                others.append(base_url)
        yield from sorted(others, key=lambda each: self._unfitness(each, moment))

    def _may_know(self, base_url: str, moment: int, interval: Span) -> bool:
        if self._has_failed(base_url) or self.heads.get(base_url, EVER[1]) <= moment:
            return False
        try:
            return self.noted_retention_start(base_url, *interval) <= moment
        except (RequestError, IncompleteError) as error:
            self._demote(base_url, error)
            return False

    def _unfitness(self, base_url: str, moment: int) -> tuple[bool, int, int]:
        """Return how little a node can help with what follows a moment; the least is the best.

        Those that answer come first; of these, the one that remembers what is nearest to the
        moment, and then the one that is least behind. One that didn't say so may know it all.
        """
        retention = self._retention_starts.get(base_url, EVER[1])
        head = self.heads.get(base_url, EVER[1])
        return self._has_failed(base_url), max(moment, retention), -head

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

    def noted_retention_start(self, base_url: str, start: int, end: int) -> int:
        """Return what `retention_start` found of the interval when a node was first asked."""
        with self._asking_retention:
            if base_url not in self._retention_starts:
                self._retention_starts[base_url] = self.retention_start(base_url, start, end)
            return self._retention_starts[base_url]

    def retention_start(self, base_url: str, start: int, end: int) -> int:
        """Return from when on a node has forgotten nothing of [start, end), as of now."""
        find = partial(retention_start, start=start, end=end)
        return max(self.over_connections(base_url, find))

    def best_retention_start(self, start: int, end: int) -> int:
        """Return the same of the best node that answers."""
        order = tuple(self._order)
        return next(answers(order, lambda url: self.retention_start(url, start, end), self._demote))

    def over_connections(
        self,
        base_url: str,
        find: Callable[[Ask, NodeState], T],
        connections: Sequence[Client] = (),
    ) -> list[T]:
        """Return what a function finds out from a node over each of several connections, at once.

        Behind its address there may be several nodes. By default the connections are new ones.
        """
        with ExitStack() as stack:
            fresh = [
                stack.enter_context(self.client.fresh()) for _ in range(FRESH) if not connections
            ]
            asked = [started(find, *self.to(base_url, each)) for each in connections or fresh]
            return [each.result() for each in asked]

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
        self._note_head(base_url, answer)
        return False, max(0, end - (answer.block_time or end)), answer.seconds
