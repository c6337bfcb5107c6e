"""Load rows from one node, or several of a network, with evidence of which stretches are complete.

Windows are loaded in parallel. Each is cut near the earliest unfinished moment, as wide as a page
at the recent density of rows, so that few finished steps wait for their turn. A step covers the
first part of its window and returns the rest. The parts always tile the whole interval, so the
steps together have all its rows, whatever the cuts, the page size and the number of workers.

Each window goes to the address that seems to know most of it. A step's own answer proves part of
it; further requests prove the rest once all rows have come: see `node.reach`.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import replace
from functools import reduce
from itertools import permutations
from typing import Any, Final, TypeVar

import pyarrow as pa

from balance_analysis.errors import IncompleteError, NetworkMismatchError, RequestError, logger
from balance_analysis.load import PAGE_SIZE, WORKERS
from balance_analysis.load.arguments import OnBadRows, check_positive
from balance_analysis.node import walk
from balance_analysis.node.client import Client, RequestStats, Retry, check_client
from balance_analysis.node.reach import Address, Asker, ask_reach, call_in_thread, quiet_since
from balance_analysis.table.evidence import Answer, Evidence, Node, Reach, check_on_bad_rows, least
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import (
    EVER,
    Span,
    clipped,
    gaps_in,
    joined,
    moment_text,
    overlap,
    without,
)
from balance_analysis.table.schema import accounts_in, has_repeats, last_block

FILL: Final = 0.9
"""Target share of a page that a window fills: more overfills pages, less costs requests."""

RECENT_STEPS: Final = 16
"""Number of recent steps whose density determines the next window's width."""

GROWTH: Final = 16
"""Maximum width of a window, as a multiple of what the recent steps covered."""

QUEUED: Final = 2
"""Windows queued per worker, so that none idles while a step is processed."""

AHEAD: Final = 4
"""Steps per worker that may finish ahead of the earliest unfinished moment."""

IDLE: Final = 10.0
"""Seconds without a new block after which a chain counts as idle."""

_LAG: Final = 60_000_000
"""How far an address may lag behind another without a warning (in microseconds)."""

_SAMPLE: Final = 200
"""Rows among which to find the newest block, or two values of a list."""

T = TypeVar("T")


class NodeSource:
    """Load rows from one node, or several of a network, with the evidence for them.

    Parameters
    ----------
    client
        The node, or several.
    filters
        The accounts.
    page_size, workers, on_bad_rows
        As for `load_balance_changes`.
    stats
        Counts to add to.

    Attributes
    ----------
    client, filters, stats
        As passed.
    taken
        The yielded steps, without their rows.
    """

    def __init__(
        self,
        client: Client,
        filters: Filters = Filters(),
        page_size: int = PAGE_SIZE,
        workers: int = WORKERS,
        on_bad_rows: OnBadRows = "raise",
        *,
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
        self.taken: list[walk.Step] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self._addresses = {url: Address(url, client.session) for url in client.base_urls}
        self._queried: Span | None = None
        self._compared: set[str] = set()
        """Addresses that have the rows of another one, or of the archive."""
        self._proven: list[list[Span]] = [[] for _ in self._parts]
        """The stretches that answers prove, for each part of the filters."""
        self._quiet: list[Answer] = []
        """Answers that prove that one part of the filters has no row in a stretch."""
        self.lost: dict[str, int] = {}
        """By address, if there are several, the time of a row that another one's answer lacked."""
        self._idle_end = EVER[0]
        """End of the last block of an idle chain."""
        lists = {name for name, values in filters.allowed().items() if values[1:]}
        self._unread = {url: {*lists} for url in client.base_urls}
        """By address, the filters' lists that it hasn't yet been seen to use."""
        self._lock = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """The addresses; those that refused the last connection come last."""
        return sorted(self._addresses, key=lambda url: self._addresses[url].is_dead)

    @property
    def height(self) -> int | None:
        """The lowest last block that nodes named in the yielded steps, or `None` if unknown."""
        return least(*(step.block_height for step in self.taken))

    @property
    def incomplete(self) -> list[Span]:
        """Stretches of the yielded steps for which nodes say that they may lack rows."""
        return joined(span for step in self.taken for span in step.incomplete)

    def keep(self, urls: Iterable[str]) -> None:
        """Use only these addresses from now on."""
        self._addresses = {url: self._addresses[url] for url in urls}

    def alone(self, url: str, filters: Filters) -> NodeSource:
        """Return a source of one of the addresses; it sets bad rows aside."""
        options: Any = {"workers": 1, "on_bad_rows": "quarantine", "stats": self.stats}
        single = NodeSource(self.client, filters, **options)
        single.keep([url])
        return single

    def has_any(self, rows: pa.Table, moment: int, owner: str) -> bool:
        """Return whether the node has a row, of any balance, of one of these accounts at a moment.

        `owner` names who has `rows`. False if it isn't proven that the node knows the moment.

        Raises
        ------
        NetworkMismatchError
            If they prove that, but the node has none of the owner's rows.
        """
        accounts = {*accounts_in(rows)}
        for step in self.rows(moment, moment + 1):
            # A bad row may be any account's.
            if step.bad_rows or any(accounts & {*accounts_in(batch)} for batch in step.batches):
                return True
        if self.evidence().incomplete(moment, moment + 1):
            return False
        raise NetworkMismatchError(
            f"{self.urls[0]} has none of the rows of {owner} from {moment_text(moment)}: one of "
            "them is of another network, or has lost rows; use only one of them"
        )

    def interval(self, start: int | None, end: int) -> Span:
        """Return [start, end); without a start, it begins with these accounts' oldest row.

        That is the oldest row of any address. Without a row the interval is empty.
        """
        if start is not None:
            return start, end

        def oldest(address: Address) -> int | None:
            ask = self._asker(address)
            return least(*(walk.find_oldest(ask, end, filters=part) for part in self._parts))

        answers = self._answers(self._alive(), oldest)
        return min((time for time in answers if time is not None), default=end), end

    def reaches(self, start: int, end: int) -> list[Reach]:
        """Return the reach of each address that answers.

        Cached: intervals inside one already queried reuse its result.

        Raises
        ------
        NetworkMismatchError
            If one of several addresses lacks rows of another within the reach of both.
        """
        if self._queried is None or not self._queried[0] <= start <= end <= self._queried[1]:
            self._ask_all(start, end)
            self._compare()
        return [x.reach for x in self._addresses.values() if x.reach is not None]

    def rows(self, start: int, end: int) -> Generator[walk.Step, None, None]:
        """Yield all rows in [start, end), step by step, in time order.

        A step's rows are complete up to its `known_end` where `evidence` proves it.

        Parameters
        ----------
        start, end
            The interval (in microseconds). Intervals of separate calls must not overlap.

        Raises
        ------
        RequestError, IncompleteError
            The last node's error, if all failed.
        NetworkMismatchError
            If the nodes are of different networks: see `reaches`.
        DecodeError, CheckError
            If an answer or a row isn't what the interface describes, or two rows of one account
            and time differ.
        """
        if start >= end:
            return
        stopped = threading.Event()
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="balance_analysis")
        running: dict[Future[walk.Step], walk.Window] = {}
        ready, todo = dict[int, Future[walk.Step]](), [walk.Window(start, end, self._page_size)]
        try:
            if len(self._addresses) > 1:
                self.reaches(start, end)
            front = start
            while front < end:
                while window := self._next_window(todo, running.values(), ready):
                    running[pool.submit(self._fetch_step, window, stopped)] = window
                while front in ready:  # only now, so that requests continue while the caller works
                    step = ready.pop(front).result()
                    yield self._take(step)
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
    ) -> Generator[walk.Step, None, None]:
        """Yield the rows of [start, end) up to the last block that a node names, step by step.

        That block is left out, since a node may still add rows to it, unless it is older than
        `before` (in microseconds) and proves to be complete: see `_last_block`. By default it is
        included only if the interval ends right after it.
        """
        known = start
        with contextlib.closing(self.rows(start, end)) as steps:
            for step in steps:
                known = step.known_end
                yield step.between(step.start, known)
                if known < step.end:
                    # No node has a later block, so further answers would be empty.
                    break
        needs_last = known == end - 1 if before is None else known < min(end, before)
        heads = (x.head for x in self._addresses.values() if x.head is not None)
        if needs_last and known == max(heads, default=end):
            yield from self._last_block(known)

    def _next_window(
        self, todo: list[walk.Window], running: Collection[walk.Window], ready: Iterable[int]
    ) -> walk.Window | None:
        """Take the next window to load; `None` if enough steps run, or are finished ahead.

        Parameters
        ----------
        todo
            Windows that are left, as a heap.
        running
            Windows being loaded.
        ready
            The starts of the steps that are finished but not yet yielded.
        """
        queued = QUEUED * self._workers if self._workers > 1 else 1
        if not todo or len(running) >= queued:
            return None
        front = min([todo[0].start, *(window.start for window in running)])
        if todo[0].start > front and sum(begin > front for begin in ready) >= AHEAD * self._workers:
            return None
        width = walk.LONGEST_WINDOW if self._workers == 1 else _width(self._recent, self._page_size)
        window, rest = heapq.heappop(todo).cut(width, self._page_size)
        if rest is not None:
            heapq.heappush(todo, rest)
        return window

    def _last_block(self, head: int) -> Iterator[walk.Step]:
        """Yield the last block, at `head` (in microseconds), as a step once it is complete.

        The last block that a node names may be unfinished. `IDLE` seconds later it is complete: it
        is still the last one because the chain is idle, or a later one has followed.
        """
        self.client.sleep(IDLE)
        best = next(x for x in self._addresses.values() if x.head == head)
        try:
            step = self._step(best, walk.Window(head, head + 1, self._page_size))
        except (RequestError, IncompleteError) as error:
            logger.info("%s; its last block is left out", error)
            return
        if step.head is None or step.head < head or step.end == head or step.incomplete:
            return
        if step.head == head:
            self._idle_end = head + 1
            step = replace(step, knows=head + 1)
        yield self._take(step)

    def evidence(self) -> Evidence:
        """Return the evidence for all yielded steps.

        Send further requests for the stretches that their answers don't prove.

        Raises
        ------
        IncompleteError
            If a node seems to use one value of a filter's list.
        """
        answered = joined((step.start, step.known_end) for step in self.taken)
        unproven = {
            (part, gap)
            for part, proven in enumerate(self._proven)
            for span in answered
            for gap in gaps_in(proven, *span)
        }
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(self._prove_empty, sorted(unproven)))
        if not self._check_lists():
            return self.answered()
        reached = reduce(overlap, self._proven, answered)
        evidence = self._evidence(reached)
        for answer in self._quiet:
            parts = (replace(answer, span=part) for part in overlap([answer.span], reached))
            evidence = evidence.updated(Evidence(self.filters, tuple(parts)))
        return evidence

    def answered(self) -> Evidence:
        """Return the evidence for all yielded steps, unproven, without further requests."""
        return self._evidence([])

    def _evidence(self, reached: list[Span]) -> Evidence:
        """Return the evidence for the yielded steps; `reached` are the proven stretches."""
        answers = (answer for step in self.taken for answer in _answers_of(step, reached))
        bad = dict.fromkeys(row for step in self.taken for row in step.set_aside)
        return Evidence(self.filters).updated(Evidence(self.filters, (*answers,), (*bad,)))

    def _prove_empty(self, gap: tuple[int, Span]) -> None:
        """Prove by further requests that a part of the filters has no row in a stretch."""
        part, (start, end) = gap
        for address in self._candidates(start):
            if (part, (start, end)) in address.probed:
                continue
            ask, asked, is_silent = self._asker(address), time.time_ns(), address.is_silent
            try:
                since, held = quiet_since(ask, self._parts[part], start, end, is_silent=is_silent)
            except (RequestError, IncompleteError) as error:
                logger.warning("%s; so it is unknown whether the node has forgotten rows", error)
                continue
            address.probed.add((part, (start, end)))
            if held > start and not is_silent and len(self._addresses) > 1:
                self.lost[address.url] = held
            # The last block of an idle chain is complete.
            needed = end - 1 if end == self._idle_end else end
            knows = ask.head is not None and ask.head >= needed
            if since < end and (knows or is_silent):
                answer = _answer((since, end), address.node, asked // 1000, ask.height)
                with self._lock:
                    self._proven[part].append((since, end))
                    self._quiet.append(answer)
                end = since
            if start == end:
                return

    def _check_lists(self) -> bool:
        """Check once that each address that answered uses the lists, unless its rows show it.

        Return whether each could be asked.
        """
        asked, is_checked = {step.node.name for step in self.taken}, True
        for address in self._addresses.values():
            lists = self._unread[address.url]
            if not lists or not (address.url in asked or address.probed):
                continue
            ask, misread = self._asker(address), list[str]()
            start, end = self.taken[0].start, max(step.known_end for step in self.taken)
            try:
                sample = walk.find_newest(ask, start, end, _SAMPLE)
                misread = [x for x in sorted(lists) if ask.reads_list(x, sample) is False]
            except (RequestError, IncompleteError) as error:
                logger.warning("%s; so it is unknown whether the node uses whole lists", error)
                is_checked = False
                continue
            if misread:
                raise IncompleteError(
                    f"{address.url} was asked for two values of {misread[0]} that it has, and sent "
                    "rows of one: it seems to use one value of a list; load each value alone"
                )
            lists.clear()
        return is_checked

    def _take(self, step: walk.Step) -> walk.Step:
        """Return a step without repeated rows, and record it as taken."""
        step = _without_repeats(step)
        for proven, (since, until, newest) in zip(self._proven, step.proofs, strict=True):
            known = min(until, newest if step.head is None else step.knows)
            if since < known:
                proven.append((since, known))
        self.taken.append(replace(step, batches=(), rest=None, proofs=()))
        return step

    def _ask_all(self, start: int, end: int) -> None:
        """Find all addresses' reach, and rank them: best reach first, then speed.

        An address that fails is tried again later, after the others.
        """
        is_single = len(self._addresses) == 1
        retry: dict[str, Any] = {} if is_single else {"attempts": 1}

        futures = {
            call_in_thread(ask_reach, self._asker(address, **retry), start, end): address
            for address in self._alive()
        }
        self._queried = start, end
        for address in self._addresses.values():
            address.reach, address.rank = None, Address.rank
        for turn, future in enumerate(as_completed(futures)):
            address = futures[future]
            try:
                address.reach = reach = future.result()
            except (RequestError, IncompleteError) as error:
                if is_single and not walk.is_refusal(error):
                    raise
                if isinstance(error, RequestError) and error.refused:
                    address.failure = error
                logger.warning("%s; so it is unknown whether the node has forgotten rows", error)
            else:
                self._note_head(address, reach.end)
                address.rank = reach.start, -min(reach.end, end), turn
        ends = {x.url: x.reach.end for x in futures.values() if x.reach is not None}
        for url, known in ends.items():
            if known + _LAG < min(max(ends.values()), end) and not self._addresses[url].is_lagging:
                self._addresses[url].is_lagging = True
                logger.warning("%s lags: it knows nothing after %s", url, moment_text(known))

    def _compare(self) -> None:
        """Compare two addresses, once a run, by the newest block that one lists and both know.

        Raises
        ------
        NetworkMismatchError
            If two addresses are of different networks.
        """
        for one, other in permutations(self._addresses.values(), 2):
            if one.reach is None or other.reach is None or {one.url, other.url} <= self._compared:
                continue
            start = max(one.reach.start, other.reach.start)
            end = min(one.reach.end, other.reach.end)
            if start < end:
                with contextlib.suppress(RequestError, IncompleteError):
                    newest = walk.find_newest(self._asker(one, attempts=1), start, end, _SAMPLE)
                    moment, rows = last_block(pa.Table.from_batches([newest.rows]))
                    node = self.alone(other.url, Filters())
                    if rows.num_rows and node.has_any(rows, moment, one.url):
                        self._compared |= {one.url, other.url}

    def _asker(self, address: Address, *, is_strict: bool = False, **retry: Any) -> Asker:  # noqa: ANN401 - arguments of `Retry`
        # Don't repeat refused connections while there are other addresses.
        is_last = all(x.is_dead for x in self._addresses.values() if x is not address)
        policy = Retry(refusals=is_last, **retry)
        return Asker(self.client, address.url, self.stats, policy, is_strict)

    def _note_head(self, address: Address, head: int | None) -> None:
        with self._lock:
            if head is not None:
                address.head = max(head, head if address.head is None else address.head)

    def _fetch_step(self, window: walk.Window, stopped: threading.Event) -> walk.Step:
        """Return a step with the first part of a window, from one address.

        Prefer an address that reaches back far enough and doesn't lag. If an address lags and
        another one may know more, the time that the first doesn't know becomes the rest.

        Raises
        ------
        RequestError, IncompleteError
            The last address's error, if all failed.
        """
        steps, left = list[walk.Step](), self._candidates(window.start)
        for step in self._answers([*left], lambda address: self._step(address, window, stopped)):
            steps.append(step)
            left = [x for x in left if x.url != step.node.name and x.failure is None]
            may_know = max((EVER[1] if x.head is None else x.head for x in left), default=0)
            if step.known_end == step.end or may_know <= step.known_end:
                break
            if step.known_end > step.start:
                known = step.between(step.start, step.known_end)
                rest = replace(window, start=known.end, cut_rows=frozenset())
                return replace(known, rest=rest)
        return max(steps, key=lambda step: (step.known_end, step.head or 0))

    def _step(
        self, address: Address, window: walk.Window, stopped: threading.Event | None = None
    ) -> walk.Step:
        while True:
            ask = self._asker(address, is_strict=self._is_strict, stopped=stopped)
            beyond = walk.LONGEST_WINDOW if address.is_silent else window.beyond
            asked, wider = time.time_ns() // 1000, replace(window, beyond=beyond)
            step = walk.take_step(ask, self._parts, wider)
            if ask.head is not None or address.is_silent:
                break
            # Ask again: if no last block is named, only a later row proves an answer complete.
            address.is_silent = True
        address.failure = None
        self._unread[address.url] -= ask.varied
        self._note_head(address, ask.head)
        knows, proofs = ask.head, step.proofs
        if knows is None:
            newest = max(proof.newest for proof in proofs)
            knows = step.end if step.rest or newest >= step.end else newest
        if ask.origins is not None or ask.incomplete:
            # A served archive forgets nothing, and names the stretches that it lacks.
            proofs = (walk.Proof(step.start, step.end, step.end),) * len(self._parts)
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

    def _candidates(self, moment: int) -> list[Address]:
        """Return the addresses, best first for rows from a moment on.

        Addresses that answer come first, ordered by how little of the history after the moment they
        lack, and then by how little they lag.
        """

        def unfitness(address: Address) -> tuple[Any, ...]:
            reach, has_failed = address.reach, address.failure is not None
            if reach is None or has_failed:
                return True, has_failed, 0, address.rank
            known = min((address.head or reach.end) - 1, moment)
            return False, max(moment, reach.start), -known, address.rank

        return sorted(self._addresses.values(), key=unfitness)

    def _alive(self) -> list[Address]:
        """Return the addresses that accept connections, or all if there are none."""
        addresses = self._addresses.values()
        return [x for x in addresses if not x.is_dead] or [*addresses]

    def _answers(self, addresses: list[Address], ask: Callable[[Address], T]) -> Iterator[T]:
        """Yield the addresses' answers in turn, until the caller has enough.

        Raises
        ------
        RequestError, IncompleteError
            The last address's error, if all failed.
        """
        failures: list[RequestError | IncompleteError] = []
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


def _answers_of(step: walk.Step, reached: list[Span]) -> Iterator[Answer]:
    """Yield a step as answers; `reached` are the proven stretches."""
    proven = without(clipped(reached, step.start, step.known_end), step.incomplete)
    for spans, is_reached in (proven, True), (gaps_in(proven, step.start, step.known_end), False):
        for span in spans:
            yield _answer(span, step.node, step.asked, step.block_height, is_reached=is_reached)


def _answer(
    span: Span, node: Node, asked: int, height: int | None, *, is_reached: bool = True
) -> Answer:
    heights = None if height is None else (height, height)
    return Answer(span, node, (asked, asked), heights, is_reached)


def _without_repeats(step: walk.Step) -> walk.Step:
    """Return a step with identical rows once.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ.
    """
    if not any(map(has_repeats, step.batches)):
        return step
    from balance_analysis.table.frame import merge_duplicates, to_arrow, to_frame  # noqa: PLC0415

    merged = to_arrow(merge_duplicates(to_frame(pa.Table.from_batches(step.batches))))
    return replace(step, batches=(merged.sort_by("timestamp").combine_chunks().to_batches()[0],))


def _width(recent: Iterable[tuple[int, int]], page_size: int) -> int:
    """Return the width of a window that fills a page, from recent steps' (microseconds, rows)."""
    span, rows = (sum(numbers) for numbers in zip((0, 0), *recent, strict=True))
    if not rows:  # one request shows where the quiet stretch ends
        return walk.LONGEST_WINDOW
    width = span * page_size * FILL / rows
    return int(min(max(width, 1), GROWTH * span, walk.LONGEST_WINDOW))
