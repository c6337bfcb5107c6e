"""Rows of one node, or of several of a network, with the evidence that none is missing.

Windows are settled side by side. They are cut near the earliest unsettled moment, wide enough for a
page by the density seen last, so that what waits for its turn stays small. A step settles the first
part of its window and hands back the rest; the parts always tile the whole, so all steps together
are its rows whatever the cuts, the page size and the number of workers.

Each window is asked of an address whose reach holds it. A step is proven if the reach of its node
held it before it was asked, and still does when all rows have come.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.errors import IncompleteError, RequestError, logger
from balance_analysis.evidence import Answer, Evidence, Node, Reach, between_all, least
from balance_analysis.filters import Filters
from balance_analysis.load.request import OnBadRows, check_on_bad_rows, check_positive
from balance_analysis.node.client import ONCE, Client, Retry, check_client
from balance_analysis.node.reach import Asker, ask_reach, origin_of, started
from balance_analysis.node.stats import RequestStats
from balance_analysis.node.walk import (
    LONGEST_WINDOW,
    Step,
    Window,
    find_oldest,
    is_refusal,
    take_step,
)
from balance_analysis.rows import has_repeats
from balance_analysis.spans import EVER, Span, between, clipped, joined
from balance_analysis.text import moment_text

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
        filters: Filters = Filters(),  # noqa: B008 - frozen
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
        client.dead.clear()
        self.client: Client = client
        self.filters: Filters = filters
        self.stats: RequestStats = stats or RequestStats()
        self._page_size, self._workers = page_size, workers
        self._is_strict = on_bad_rows == "raise"
        self._parts = filters.parts()
        self.taken: list[Step] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self._order = list(client.base_urls)
        self._origins: dict[str, frozenset[str]] = {}
        self._reaches: dict[str, Reach] = {}
        self._looked: Span | None = None
        self._oldest: int | None = None
        """The time of the oldest row that any look has shown; `None` if a look failed."""
        self._heads: dict[str, int] = {}
        self._failed: set[str] = set()
        self._lagging: set[str] = set()
        self._lock, self._looking = threading.Lock(), threading.RLock()

    @property
    def height(self) -> int | None:
        """The last block of the node that knew least when it was asked for one of these steps."""
        return least(*(step.block_height for step in self.taken))

    @property
    def incomplete(self) -> list[Span]:
        """Stretches of these steps of which nodes say that they may lack rows."""
        return joined(span for step in self.taken for span in step.incomplete)

    def use(self, client: Client) -> None:
        """Ask the addresses of another client from now on."""
        self.client, self._order = client, list(client.base_urls)
        self._heads = {url: head for url, head in self._heads.items() if url in self._order}

    def interval(self, start: int | None, end: int) -> Span:
        """Return [start, end); without a start from the oldest row that any address remembers.

        Where there is no row it is empty.
        """
        if start is not None:
            return start, end

        def oldest(url: str) -> int | None:
            return find_oldest(Asker(self.client, url, self.stats), end)

        found = [each for each in self._answers(self._alive(), oldest) if each is not None]
        return min(found, default=end), end

    def reaches(self, start: int, end: int) -> dict[str, Reach]:
        """Return the reach of each address that answers, best first.

        It is asked once for all stretches that lie in one that was asked for.
        """
        with self._looking:
            if self._looked is None or not self._looked[0] <= start <= end <= self._looked[1]:
                self._look_at_all(start, end)
        return {url: self._reaches[url] for url in self._order if url in self._reaches}

    def rows(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield all rows in [start, end), step by step, in time order.

        A step's rows are complete up to its `known_end`, if its node's reach holds it.

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
        queued = QUEUED * self._workers if self._workers > 1 else 1
        failure: BaseException | None = None
        try:
            ready, todo = self._first(Window(start, end, self._page_size), pool, stopped)
            while todo or running or ready or failure:
                while failure is None and len(running) < queued:
                    if not (window := self._next(todo, running.values(), ready)):
                        break
                    running[pool.submit(self._settle, window, stopped)] = window
                while start in ready:  # now that the next ones are asked for
                    yield self._taken(ready[start])
                    start = ready.pop(start).end
                if failure is not None:
                    raise failure
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    if (error := future.exception()) is not None:
                        failure = error
                        continue
                    step = future.result()
                    ready[step.start] = step
                    if step.rest is not None:
                        heapq.heappush(todo, step.rest)
                    self._page_size = min(self._page_size, step.page_size)
                    self._recent.append((step.end - step.start, step.num_rows))
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

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
        url = max(self._heads, key=self._heads.__getitem__, default="")
        head = self._heads.get(url, before)
        if head >= before:
            return None
        self.client.sleep(RESTING)
        try:
            step = self._step(url, Window(head, head + 1, self._page_size))
        except (RequestError, IncompleteError) as error:
            logger.info("%s; its last block is left out", error)
            return None
        if step.head != head or step.incomplete or step.end != head + 1:
            return None
        return self._taken(replace(step, head=head + 1))

    def evidence(self) -> Evidence:
        """Return the evidence for all steps that were yielded.

        Each address that answered is asked for its reach again, once a call. One that doesn't
        answer any more proves nothing.
        """
        spans: dict[str, list[Span]] = {}
        for step in self.taken:
            spans.setdefault(step.source, []).append((step.start, step.end))
        after: dict[str, Reach] = {}
        for url, taken in spans.items():
            try:
                after[url] = self._look(url, min(taken)[0], max(end for _, end in taken))[0]
            except (RequestError, IncompleteError) as error:
                logger.warning("%s; so it is not known what the node may have forgotten", error)
        return self._evidence(after)

    def answered(self, start: int, end: int) -> Evidence:
        """Return the evidence for [start, end) without asking: none of it is proven yet."""
        return self._evidence({}, start, end).within(start, end)

    def ask(self, url: str, start: int, end: int) -> Step:
        """Return how one address answers the first part of [start, end), without counting it."""
        return self._step(url, Window(start, end, self._page_size))

    def reach(self, url: str, start: int, end: int) -> Reach:
        """Return how much of [start, end) one address knows."""
        return self._look(url, start, end)[0]

    def _evidence(
        self, after: Mapping[str, Reach], start: int = EVER[0], end: int = EVER[1]
    ) -> Evidence:
        """Return the evidence for the steps that [start, end) touches."""
        steps = [step for step in self.taken if step.start < end and step.end > start]
        answers = (answer for step in steps for answer in _answers_of(step, after))
        bad = (each for step in steps for each in step.set_aside)
        found = Evidence(self.filters, tuple(answers), tuple(dict.fromkeys(bad)))
        return Evidence(self.filters) | found

    def _taken(self, step: Step) -> Step:
        """Return a step, each row once, after it is noted among those that were taken."""
        step = _without_repeats(step)
        self.taken.append(replace(step, batches=(), rest=None))
        return step

    def _first(
        self, window: Window, pool: ThreadPoolExecutor, stopped: threading.Event
    ) -> tuple[dict[int, Step], list[Window]]:
        """Return the first step, if it isn't settled like the others, and what is left to ask for.

        A single node that names its last block with each answer isn't asked for its reach before:
        what it has forgotten shows when all rows have come. All others are asked, and what lies
        before all their rows is a step without a request.
        """
        if len(self._order) == 1 and self._looked is None:
            near, rest = window.cut(LONGEST_WINDOW, window.page_size)
            step = pool.submit(self._step, self._order[0], near, stopped).result()
            if step.head is not None and step.reach is not None:
                self._page_size = min(self._page_size, step.page_size)
                # An answer without a last block, of another node behind the address, knows no more.
                reach = Reach(step.reach.node, EVER[0], step.head, step.block_height)
                self._reaches[step.source] = reach
                rest = rest if step.rest is None else replace(step.rest, end=window.end)
                return {step.start: replace(step, reach=reach)}, [rest] if rest else []
        reaches = self.reaches(window.start, window.end)
        if self._oldest is None or self._oldest <= window.start or not reaches:
            return {}, [window]
        url, reach = next(iter(reaches.items()))
        step = Step(window.start, min(self._oldest, window.end), source=url, reach=reach)
        step = replace(step, asked=_now(), block_height=reach.height)
        left = [replace(window, start=step.end)] if step.end < window.end else []
        return {step.start: step}, left

    def _look_at_all(self, start: int, end: int) -> None:
        """Ask all addresses for their reach, and put them in order: best reach first, then speed.

        An address that fails is asked again before it is used.
        """
        is_single = len(self._order) == 1
        retry = Retry() if is_single else ONCE
        began = time.monotonic()

        def look(url: str) -> tuple[tuple[Reach, int], float]:
            return self._look(url, start, end, retry), time.monotonic() - began

        looks = {url: started(look, url) for url in self._alive()}
        self._looked, self._reaches = None, {}
        oldests: list[int] = []
        ranks: dict[str, tuple[int, int, float]] = {}
        for url, future in looks.items():
            try:
                (reach, oldest), seconds = future.result()
            except (RequestError, IncompleteError) as error:
                if is_single and not (isinstance(error, RequestError) and is_refusal(error)):
                    raise
                logger.warning("%s; so it is not known what the node may have forgotten", error)
                continue
            self._reaches[url] = reach
            ranks[url] = reach.start, -min(reach.end, end), seconds
            oldests.append(oldest)
        self._oldest = min(oldests) if len(oldests) == len(looks) else None
        self._looked = start, end
        self._order.sort(key=lambda url: ranks.get(url, (EVER[1], 0, 0.0)))
        best = max((reach.end for reach in self._reaches.values()), default=end)
        for url, reach in self._reaches.items():
            if reach.end + _LAG < min(best, end):
                self._warn_of_lag(url, reach.end)

    def _look(
        self, url: str, start: int, end: int, retry: Retry | None = None
    ) -> tuple[Reach, int]:
        """Return the reach of an address, and the earliest start that a connection has shown."""
        node = Node(url, self._origin(url))
        reach, oldest = ask_reach(self.client, node, (start, end), self.stats, retry or Retry())
        self._note_head(url, reach.end)
        return reach, oldest

    def _reach_of(self, url: str) -> Reach:
        """Return what an address was known to reach before; nothing if that can't be found out."""
        with self._looking:
            if url not in self._reaches and len(self._order) > 1 and self._looked is not None:
                self._reaches[url] = self._look(url, *self._looked)[0]
        nothing = Reach(Node(url, self._origin(url)), EVER[1], EVER[1])
        return self._reaches.get(url, nothing)

    def _origin(self, url: str) -> frozenset[str]:
        if url not in self._origins:
            self._origins[url] = origin_of(url, self.client.session)
        return self._origins[url]

    def _note_head(self, url: str, head: int | None) -> None:
        with self._lock:
            if head is not None:
                self._heads[url] = max(head, self._heads.get(url, head))

    def _settle(self, window: Window, stopped: threading.Event) -> Step:
        """Settle the first part of a window, all of it by one address.

        It goes to an address that reaches back far enough and doesn't lag, if there is one. What an
        address that lags doesn't know is left as the rest, where another one may know it.

        Raises
        ------
        RequestError, IncompleteError
            What the last address failed with, if all did.
        """
        steps: list[Step] = []
        urls = self._candidates(window.start)
        for step in self._answers(urls, lambda url: self._step(url, window, stopped)):
            steps.append(step)
            if step.known_end == step.end or not self._may_be_behind(step, steps):
                break
            if step.known_end > step.start:
                known = step.between(step.start, step.known_end)
                rest = replace(window, start=known.end, begins_with_row=False)
                return replace(known, rest=rest)
        return max(steps, key=lambda step: (step.known_end, step.head or 0))

    def _step(self, url: str, window: Window, stopped: threading.Event | None = None) -> Step:
        reach = self._reach_of(url)
        ask = Asker(self.client, url, self.stats, Retry(stopped=stopped), self._is_strict)
        asked = _now()
        step = take_step(ask, self._parts, window)
        self._failed.discard(url)
        self._note_head(url, ask.head)
        if ask.origins is not None:
            reach = replace(reach, node=Node(url, ask.origins))
        return replace(
            step,
            source=url,
            head=ask.head,
            block_height=ask.height,
            incomplete=tuple(sorted({*clipped(ask.incomplete, step.start, step.end)})),
            reach=reach,
            asked=asked,
        )

    def _candidates(self, moment: int) -> list[str]:
        """Return the addresses, best first for what follows a moment.

        Those that answer come first; of these the ones that remember what is nearest to the moment,
        and then those that are least behind.
        """

        def unfitness(url: str) -> tuple[bool, int, int]:
            reach = self._reaches.get(url)
            if reach is None or self._has_failed(url):
                return True, self._has_failed(url), 0
            return False, max(moment, reach.start), -min(self._heads[url] - 1, moment)

        return sorted(self._order, key=unfitness)

    def _has_failed(self, url: str) -> bool:
        return url in self._failed or url in self.client.dead

    def _alive(self) -> list[str]:
        """Return the addresses that take connections; all if none does."""
        return [url for url in self._order if url not in self.client.dead] or [*self._order]

    def _may_be_behind(self, step: Step, steps: list[Step]) -> bool:
        """Whether another address may know more; one that lags far behind it is named once."""
        left = {*self._order} - {each.source for each in steps}
        heads = [self._heads.get(url, EVER[1]) for url in left if not self._has_failed(url)]
        ahead = max(heads, default=0)
        if EVER[1] > ahead > step.known_end + _LAG:
            self._warn_of_lag(step.source, self._heads[step.source])
        return ahead > step.known_end

    def _warn_of_lag(self, url: str, end: int) -> None:
        """Name an address that lags behind another one, once."""
        if url not in self._lagging:
            self._lagging.add(url)
            logger.warning("%s lags: it knows nothing after %s", url, moment_text(end))

    def _answers(self, urls: Iterable[str], ask: Callable[[str], T]) -> Iterator[T]:
        """Yield what addresses answer, in turn; a caller that is content asks no more."""
        failure: Exception | None = None
        any_answered = False
        for url in urls:
            try:
                answer = ask(url)
            except (RequestError, IncompleteError) as error:
                failure = error
                if len(self._order) > 1 and url not in self._failed:
                    logger.warning("%s; going on with another address", error)
                self._failed.add(url)
            else:
                any_answered = True
                yield answer
        if not any_answered:
            raise failure or AssertionError("a client has at least one node")


def _answers_of(step: Step, after: Mapping[str, Reach]) -> Iterator[Answer]:
    """Yield the answers that a step is, by what its node reached before and reaches after it."""
    if step.reach is None:
        raise AssertionError("a step of a source has its node's reach")
    stop, reached = step.known_end, list[Span]()
    if step.source in after:
        common = step.reach & after[step.source]
        if step.head is None:
            stop = min(stop, common.end)
        reached = between_all(clipped([(step.start, stop)], common.start, stop), step.incomplete)
    heights = None if step.block_height is None else (step.block_height, step.block_height)
    asked = step.asked, step.asked
    for spans, is_reached in (reached, True), (between(reached, step.start, stop), False):
        for span in spans:
            yield Answer(span, step.reach.node, asked, heights, is_reached)


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
    return replace(step, batches=tuple(map(_merged, step.batches)))


def _merged(batch: pa.RecordBatch) -> pa.RecordBatch:
    from balance_analysis.analysis.checks import merge_duplicates  # noqa: PLC0415 - pandas is heavy
    from balance_analysis.frame import to_arrow, to_frame  # noqa: PLC0415

    merged = to_arrow(merge_duplicates(to_frame(pa.Table.from_batches([batch]))))
    return merged.sort_by("timestamp").combine_chunks().to_batches()[0]


def _width(recent: Iterable[tuple[int, int]], page_size: int) -> int:
    """Return how wide a window is that fills a page, by steps of (microseconds, rows)."""
    span, rows = (sum(numbers) for numbers in zip((0, 0), *recent, strict=True))
    if not rows:  # quiet: one request shows where it ends
        return LONGEST_WINDOW
    wanted = span * page_size * FILL / rows
    return int(min(max(wanted, 1), GROWTH * span, LONGEST_WINDOW))
