"""Rows of one node, or of several of a network, with the evidence that none is missing.

Windows are settled side by side. They are cut near the earliest unsettled moment, wide enough for a
page by the density seen last, so that what waits for its turn stays small. A step settles the first
part of its window and hands back the rest; the parts always tile the whole, so all steps together
are its rows whatever the cuts, the page size and the number of workers.

Each window is asked of the address that seems to know most of it. What is proven of a step shows in
its own answer; what that leaves open is asked for when all rows have come: see `node.reach`.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Final, TypeVar

import pyarrow as pa
import requests

from balance_analysis import defaults
from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError, logger
from balance_analysis.load.request import OnBadRows, check_on_bad_rows, check_positive
from balance_analysis.node.client import Client, RequestStats, Retry, check_client
from balance_analysis.node.reach import Asker, ask_reach, origin_of, quiet_since, started
from balance_analysis.node.walk import (
    LONGEST_WINDOW,
    Step,
    Window,
    find_oldest,
    is_refusal,
    take_step,
)
from balance_analysis.table.evidence import Answer, Evidence, Node, Reach, least
from balance_analysis.table.filters import Filters
from balance_analysis.table.rows import has_repeats
from balance_analysis.table.spans import EVER, Span, between, between_all, clipped, joined, overlap
from balance_analysis.table.text import moment_text

FILL: Final = 0.9
"""How full a window's one page should be: fuller ones leave rests, emptier ones cost requests."""

RECENT_STEPS: Final = 16
"""Steps by whose density the width of the next window is chosen."""

GROWTH: Final = 16
"""How much wider than what these covered a window may be."""

QUEUED: Final = 2
"""Windows a worker that are handed out, so that none waits while a step is taken care of."""

AHEAD: Final = 4
"""Steps a worker that may be settled ahead of the earliest unsettled moment."""

RESTING: Final = 10.0
"""Seconds after which a chain rests if no block has followed its last one."""

_LAG: Final = 60_000_000
"""Microseconds that an address may be behind another without a warning."""

_UNRANKED: Final = (EVER[1], 0, 0)

T = TypeVar("T")


class NodeSource:
    """Rows of one node, or of several nodes of a network, with the evidence for them.

    Parameters
    ----------
    client
        The node, or several.
    filters
        Which accounts.
    page_size, workers, on_bad_rows
        As for `load_balance_changes`.
    stats
        Where to count requests.

    Attributes
    ----------
    client, filters, stats
        What is asked, and what that cost.
    taken
        The steps that were yielded, without their rows.
    """

    def __init__(
        self,
        client: Client,
        filters: Filters = Filters(),
        *,
        page_size: int = defaults.PAGE_SIZE,
        workers: int = defaults.WORKERS,
        on_bad_rows: OnBadRows = "raise",
        stats: RequestStats | None = None,
    ) -> None:
        check_client(client)
        check_positive("page_size", page_size)
        check_positive("workers", workers)
        check_on_bad_rows(on_bad_rows)
        self.client: Client = client
        self.filters: Filters = filters
        self.stats: RequestStats = stats or RequestStats()
        self._page_size, self._workers = page_size, workers
        self._is_strict = on_bad_rows == "raise"
        self._parts = filters.parts()
        self.taken: list[Step] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self._addresses = {url: _Address(url, client.session) for url in client.base_urls}
        self._asked_of: Span | None = None
        self._proven: list[list[Span]] = [[] for _ in self._parts]
        """What answers prove of each part of the filters."""
        self._quiet: list[Answer] = []
        """Answers that prove that a stretch of a part has no row."""
        self._rested = EVER[0]
        """Where the last block ends of a chain that rests."""
        self._lock = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """The addresses; those that took no connection when they were last asked come last."""
        return sorted(self._addresses, key=lambda url: self._addresses[url].is_dead)

    @property
    def height(self) -> int | None:
        """The last block of the node that knew least when it was asked for one of these steps."""
        return least(*(step.block_height for step in self.taken))

    @property
    def incomplete(self) -> list[Span]:
        """Stretches of these steps for which nodes say that they may lack rows."""
        return joined(span for step in self.taken for span in step.incomplete)

    def keep(self, urls: Iterable[str]) -> None:
        """Ask no other addresses from now on."""
        self._addresses = {url: self._addresses[url] for url in urls}

    def interval(self, start: int | None, end: int) -> Span:
        """Return [start, end); without a start from the oldest row of these accounts on.

        Of several addresses the oldest that one remembers. Where there is no row it is empty.
        """
        if start is not None:
            return start, end

        def oldest(address: _Address) -> int | None:
            ask = self._asker(address)
            return least(*(find_oldest(ask, end, filters=part) for part in self._parts))

        answers = self._answers(self._alive(), oldest)
        return min((each for each in answers if each is not None), default=end), end

    def reaches(self, start: int, end: int) -> list[Reach]:
        """Return the reach of each address that answers.

        It is asked once for all stretches that lie in one that was asked for.
        """
        if self._asked_of is None or not self._asked_of[0] <= start <= end <= self._asked_of[1]:
            self._ask_all(start, end)
        return [each.reach for each in self._addresses.values() if each.reach is not None]

    def rows(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield all rows in [start, end), step by step, in time order.

        A step's rows are complete up to its `known_end`, as far as `evidence` proves it.

        Parameters
        ----------
        start, end
            Microseconds. Stretches that `rows` was called for must not overlap.

        Raises
        ------
        RequestError, IncompleteError
            What the last node failed with, if all did.
        DecodeError, CheckError
            If an answer or a row is not what the interface describes, or two rows differ.
        """
        if start >= end:
            return
        stopped = threading.Event()
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="balance_analysis")
        running: dict[Future[Step], Window] = {}
        ready, todo = dict[int, Future[Step]](), [Window(start, end, self._page_size)]
        queued = QUEUED * self._workers if self._workers > 1 else 1
        try:
            if len(self._addresses) > 1:
                self.reaches(start, end)
            front = start
            while front < end:
                while len(running) < queued:
                    window = self._next(todo, running.values(), ready)
                    if window is None:
                        break
                    running[pool.submit(self._fetch_step, window, stopped)] = window
                while front in ready:  # only now, so that requests go on while the caller works
                    step = ready.pop(front).result()
                    yield self._taken(step)
                    front = step.end
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ready[running.pop(future).start] = future
                    if future.exception() is None:
                        step = future.result()
                        if step.rest is not None:
                            heapq.heappush(todo, step.rest)
                        self._page_size = min(self._page_size, step.page_size)
                        self._recent.append((step.end - step.start, step.num_rows))
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def known_rows(
        self, start: int, end: int, before: int | None = None
    ) -> Generator[Step, None, None]:
        """Yield the rows of [start, end) up to the last block that a node names, step by step.

        That block is left out, as a node may still add rows to it, unless the chain rests: it is
        older than `before`, microseconds, and still the last one `RESTING` seconds later. By
        default it is wanted only if the stretch ends right behind it.
        """
        known = start
        with contextlib.closing(self.rows(start, end)) as steps:
            for step in steps:
                known = step.known_end
                yield step.between(step.start, known)
                if known < step.end:
                    # No node holds a later block: further answers would be as empty.
                    break
        is_wanted = known < end if before is not None else known == end - 1
        if is_wanted and known == max(self._heads(), default=end):
            last = self.last_block(end if before is None else before)
            if last is not None:
                yield last

    def _next(
        self, todo: list[Window], running: Iterable[Window], ready: Iterable[int]
    ) -> Window | None:
        """Take the next window to ask for; `None` while enough steps are ready before their turn.

        Parameters
        ----------
        todo
            Windows that are left, as a heap.
        running
            Those that are asked for.
        ready
            Where the steps begin that are settled and not yet yielded.
        """
        if not todo:
            return None
        front = min([todo[0].start, *(window.start for window in running)])
        if todo[0].start > front and sum(at > front for at in ready) >= AHEAD * self._workers:
            return None
        width = LONGEST_WINDOW if self._workers == 1 else _width(self._recent, self._page_size)
        window, rest = heapq.heappop(todo).cut(width, self._page_size)
        if rest is not None:
            heapq.heappush(todo, rest)
        return window

    def last_block(self, before: int) -> Step | None:
        """Return the last block as a step if the chain rests, else `None`.

        The last block that a node names may be unfinished. It is whole if it is old, and still the
        last one `RESTING` seconds later.

        Parameters
        ----------
        before
            Only a last block before this moment, microseconds, is old enough to wait for.
        """
        head = max(self._heads(), default=before)
        if head >= before:
            return None
        self.client.sleep(RESTING)
        best = next(each for each in self._addresses.values() if each.head == head)
        try:
            step = self._step(best, Window(head, head + 1, self._page_size))
        except (RequestError, IncompleteError) as error:
            logger.info("%s; its last block is left out", error)
            return None
        if step.head != head or step.incomplete or step.end != head + 1:
            return None
        self._rested = head + 1
        return self._taken(replace(step, knows=head + 1))

    def evidence(self) -> Evidence:
        """Return the evidence for all steps that were yielded.

        What their answers leave open is asked for.
        """
        answered = joined((step.start, step.known_end) for step in self.taken)
        open_ = {
            (part, gap)
            for part, proven in enumerate(self._proven)
            for span in answered
            for gap in between(proven, *span)
        }
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(self._prove_quiet, sorted(open_)))
        reached = reduce(overlap, self._proven, answered)
        evidence = self._evidence(reached)
        for answer in self._quiet:
            for part in overlap([answer.span], reached):
                quiet = Evidence(self.filters, (replace(answer, span=part),))
                evidence = evidence.updated(quiet)
        return evidence

    def answered(self) -> Evidence:
        """Return the evidence for all steps without asking: none of it is proven yet."""
        return self._evidence([])

    def _evidence(self, reached: list[Span]) -> Evidence:
        """Return the evidence for the steps; some stretches are proven."""
        answers = (answer for step in self.taken for answer in _answers_of(step, reached))
        bad = dict.fromkeys(each for step in self.taken for each in step.set_aside)
        return Evidence(self.filters).updated(Evidence(self.filters, tuple(answers), tuple(bad)))

    def _prove_quiet(self, gap: tuple[int, Span]) -> None:
        """Ask whether a stretch in which no row of a part came has none."""
        part, (start, end) = gap
        for address in self._candidates(start):
            if (part, (start, end)) in address.answered:
                continue
            ask, asked, is_silent = self._asker(address), _now(), address.is_silent
            try:
                since = quiet_since(ask, self._parts[part], start, end, is_silent=is_silent)
            except (RequestError, IncompleteError) as error:
                logger.warning("%s; so it is not known what the node may have forgotten", error)
                continue
            address.answered.add((part, (start, end)))
            # The last block of an idle chain is complete.
            needed = end - 1 if end == self._rested else end
            knows = ask.head is not None and ask.head >= needed
            if since < end and (knows or is_silent):
                heights = _heights(ask.height)
                answer = Answer((since, end), address.node, (asked, asked), heights)
                with self._lock:
                    self._proven[part].append((since, end))
                    self._quiet.append(answer)
                end = since
            if start == end:
                return

    def _taken(self, step: Step) -> Step:
        """Remove the repeated rows of a step, record it as taken, and return it."""
        step = _without_repeats(step)
        for proven, (since, until, newest) in zip(self._proven, step.proofs, strict=True):
            known = min(until, newest if step.head is None else step.knows)
            if since < known:
                proven.append((since, known))
        self.taken.append(replace(step, batches=(), rest=None, proofs=()))
        return step

    def _ask_all(self, start: int, end: int) -> None:
        """Ask all addresses for their reach, and rank them: best reach first, then speed.

        An address that fails is asked again before it is used.
        """
        is_single = len(self._addresses) == 1
        retry: dict[str, Any] = {} if is_single else {"attempts": 1}

        def ask(address: _Address) -> Reach:
            reach = ask_reach(self._asker(address, **retry), start, end)
            self._note_head(address, reach.end)
            return reach

        asked = {started(ask, address): address for address in self._alive()}
        self._asked_of = start, end
        for address in self._addresses.values():
            address.reach, address.rank = None, _UNRANKED
        for turn, future in enumerate(as_completed(asked)):
            address = asked[future]
            try:
                address.reach = reach = future.result()
            except (RequestError, IncompleteError) as error:
                if is_single and not is_refusal(error):
                    raise
                if isinstance(error, RequestError) and error.refused:
                    address.failure = error
                logger.warning("%s; so it is not known what the node may have forgotten", error)
            else:
                address.rank = reach.start, -min(reach.end, end), turn
        ends = {each.url: each.reach.end for each in asked.values() if each.reach is not None}
        for url, known in ends.items():
            if known + _LAG < min(max(ends.values()), end) and not self._addresses[url].is_lagging:
                self._addresses[url].is_lagging = True
                logger.warning("%s lags: it knows nothing after %s", url, moment_text(known))

    def _asker(self, address: _Address, *, is_strict: bool = False, **retry: Any) -> Asker:  # noqa: ANN401 - as of `Retry`
        # An address that takes no connection is not waited for while there are others.
        is_last = all(x.is_dead for x in self._addresses.values() if x is not address)
        how = Retry(refusals=is_last, **retry)
        return Asker(self.client, address.url, self.stats, how, is_strict)

    def _heads(self) -> list[int]:
        return [each.head for each in self._addresses.values() if each.head is not None]

    def _note_head(self, address: _Address, head: int | None) -> None:
        with self._lock:
            if head is not None:
                address.head = max(head, head if address.head is None else address.head)

    def _fetch_step(self, window: Window, stopped: threading.Event) -> Step:
        """Settle the first part of a window, all of it by one address.

        It goes to an address that reaches back far enough and doesn't lag, if there is one. What an
        address that lags doesn't know is left as the rest, where another one may know it.

        Raises
        ------
        RequestError, IncompleteError
            What the last address failed with, if all did.
        """
        steps, left = list[Step](), self._candidates(window.start)
        for step in self._answers([*left], lambda each: self._step(each, window, stopped)):
            steps.append(step)
            left = [x for x in left if x.url != step.node.name and x.failure is None]
            may_know = max((EVER[1] if x.head is None else x.head for x in left), default=0)
            if step.known_end == step.end or may_know <= step.known_end:
                break
            if step.known_end > step.start:
                known = step.between(step.start, step.known_end)
                rest = replace(window, start=known.end, begins_with_row=False)
                return replace(known, rest=rest)
        return max(steps, key=lambda step: (step.known_end, step.head or 0))

    def _step(
        self, address: _Address, window: Window, stopped: threading.Event | None = None
    ) -> Step:
        while True:
            ask = self._asker(address, is_strict=self._is_strict, stopped=stopped)
            beyond = LONGEST_WINDOW if address.is_silent else window.beyond
            asked, wider = _now(), replace(window, beyond=beyond)
            step = take_step(ask, self._parts, wider)
            if ask.head is not None or address.is_silent:
                break
            # Ask again: without a last block, only a later row shows that an answer is complete.
            address.is_silent = True
        address.failure = None
        self._note_head(address, ask.head)
        knows, proofs = ask.head, step.proofs
        if knows is None:
            newest = max(proof[-1] for proof in proofs)
            knows = step.end if step.rest or newest >= step.end else newest
        if ask.origins is not None or ask.incomplete:
            # A served archive forgets nothing: it says what it lacks.
            proofs = ((step.start, step.end, step.end),) * len(self._parts)
        return replace(
            step,
            proofs=proofs,
            node=address.node if ask.origins is None else Node(address.url, ask.origins),
            asked=asked,
            head=ask.head,
            block_height=ask.height,
            knows=knows,
            incomplete=tuple(sorted({*clipped(ask.incomplete, step.start, step.end)})),
        )

    def _candidates(self, moment: int) -> list[_Address]:
        """Return the addresses, best first for what follows a moment.

        Those that answer come first; of these the ones that remember what is nearest to the moment,
        and then those that are least behind.
        """

        def unfitness(address: _Address) -> tuple[Any, ...]:
            reach, has_failed = address.reach, address.failure is not None
            if reach is None or has_failed:
                return True, has_failed, 0, address.rank
            known = min((address.head or reach.end) - 1, moment)
            return False, max(moment, reach.start), -known, address.rank

        return sorted(self._addresses.values(), key=unfitness)

    def _alive(self) -> list[_Address]:
        """Return the addresses that take connections; all if none does."""
        addresses = self._addresses.values()
        return [each for each in addresses if not each.is_dead] or [*addresses]

    def _answers(self, addresses: list[_Address], ask: Callable[[_Address], T]) -> Iterator[T]:
        """Yield what addresses answer, in turn; a caller that is content asks no more.

        Raises
        ------
        RequestError, IncompleteError
            What the last address failed with, if all did.
        """
        failures: list[BalanceAnalysisError] = []
        for address in addresses:
            try:
                yield ask(address)
            except (RequestError, IncompleteError) as error:
                if len(self._addresses) > 1 and address.failure is None:
                    logger.warning("%s; going on with another address", error)
                address.failure = error
                failures.append(error)
        if len(failures) == len(addresses):
            raise failures[-1]


@dataclass
class _Address:
    """One address, and what is known of it.

    Attributes
    ----------
    url, session
        How it is asked.
    reach, rank
        From when to when it seems to know all rows; the best one ranks lowest.
    head
        The newest last block that it has named, or its newest row if it names none.
    is_silent
        Whether it names no last block.
    is_lagging
        Whether a warning has said that it lags.
    failure
        What it failed with, if it has not answered since.
    answered
        The stretches for which it said whether a part of the filters has rows there.
    """

    url: str
    session: requests.Session
    reach: Reach | None = None
    rank: tuple[int, int, int] = _UNRANKED
    head: int | None = None
    is_silent: bool = False
    is_lagging: bool = False
    failure: Exception | None = None
    answered: set[tuple[int, Span]] = field(default_factory=set)

    @property
    def is_dead(self) -> bool:
        """Whether it took no connection when it was last asked."""
        return isinstance(self.failure, RequestError) and self.failure.refused

    @cached_property
    def node(self) -> Node:
        """What evidence calls it."""
        return Node(self.url, origin_of(self.url, self.session))


def _answers_of(step: Step, reached: list[Span]) -> Iterator[Answer]:
    """Yield a step as answers; some stretches are proven."""
    proven = between_all(clipped(reached, step.start, step.known_end), step.incomplete)
    asked, heights = (step.asked, step.asked), _heights(step.block_height)
    for spans, is_reached in (proven, True), (between(proven, step.start, step.known_end), False):
        for span in spans:
            yield Answer(span, step.node, asked, heights, is_reached)


def _heights(height: int | None) -> tuple[int, int] | None:
    return None if height is None else (height, height)


def _now() -> int:
    return time.time_ns() // 1000


def _without_repeats(step: Step) -> Step:
    """Return a step in which identical rows occur once.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ.
    """
    if not any(map(has_repeats, step.batches)):
        return step
    from balance_analysis.analysis.checks import merge_duplicates  # noqa: PLC0415 - pandas is heavy
    from balance_analysis.table.frame import to_arrow, to_frame  # noqa: PLC0415

    merged = to_arrow(merge_duplicates(to_frame(pa.Table.from_batches(step.batches))))
    return replace(step, batches=(merged.sort_by("timestamp").combine_chunks().to_batches()[0],))


def _width(recent: Iterable[tuple[int, int]], page_size: int) -> int:
    """Return how wide a window is that fills a page, by steps of (microseconds, rows)."""
    span, rows = (sum(numbers) for numbers in zip((0, 0), *recent, strict=True))
    if not rows:  # quiet: one request shows where it ends
        return LONGEST_WINDOW
    wanted = span * page_size * FILL / rows
    return int(min(max(wanted, 1), GROWTH * span, LONGEST_WINDOW))
