"""One load under way: its steps as they come, and what can be told of it at any moment.

Windows are settled side by side. They are cut near the earliest unsettled moment, wide enough for a
page by the density seen last, so that what waits for its turn stays small. A step settles the first
part of its window and hands back the rest; the parts always tile the whole, so all steps together
are its rows whatever the cuts, the page size and the number of workers.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.known import KNOWN_KEY, known_json
from balance_analysis.load.nodes import LatestBlock, NodePool
from balance_analysis.load.request import (
    LoadRequest,
    Report,
    reporting,
)
from balance_analysis.node.client import Client
from balance_analysis.node.walk import Step
from balance_analysis.node.window import LONGEST_WINDOW, Window
from balance_analysis.node.wire import filter_parameters
from balance_analysis.rows import BadRow, has_repeats
from balance_analysis.spans import Span, between, clipped, joined
from balance_analysis.text import iso_text, moment_text, spans_text

logger: logging.Logger = logging.getLogger("balance_analysis")

FILL: Final = 0.9
"""How full a window's one page should be: fuller ones leave rests, emptier ones cost requests."""

REMEMBERED: Final = 16
"""Steps whose density tells how wide the next window should be."""

GROWTH: Final = 16
"""How much wider than what these covered a window may be."""

CALM: Final = 16
"""Steps answered in time after which a page may be larger again."""

QUEUED: Final = 2
"""Windows a worker that are handed out, so that none waits while a step is taken care of."""

AHEAD: Final = 4
"""Steps a worker that may be settled ahead of the earliest unsettled moment."""


@dataclass(slots=True)
class Load:
    """A load: what was asked, and what is settled of it; moments are in microseconds.

    It pickles between its runs, and `run` goes on where it stands.
    """

    request: LoadRequest
    interval: Span | None = None
    """`None` until the oldest row has been found."""
    settled: list[Span] = field(default_factory=list)
    rows: int = 0
    bad_rows: list[BadRow] = field(default_factory=list)
    """Those of the settled spans, each once."""
    nodes: dict[str, int] = field(default_factory=dict)
    """How many steps each settled."""
    answered: dict[str, list[Span]] = field(default_factory=dict)
    remembered: dict[str, int] = field(default_factory=dict)
    """From when on each node that answered has forgotten nothing."""
    incomplete: list[Span] = field(default_factory=list)
    """Of which nodes say themselves that they may lack rows."""
    known_until: int | None = None
    """Where what is known ends before the interval does."""
    cost: dict[str, int | float] = field(default_factory=dict)
    head: LatestBlock = field(default_factory=LatestBlock)
    """The last block that nodes held: of the answers, the one that knew least."""
    restart: int | None = None
    """Where a row is known to stand: an answer that restarts there must begin there."""
    is_part: bool = False
    """Whether whoever put it together to a larger load tells of both."""

    def run(self, client: Client, progress: bool | Report | None) -> Iterator[Step]:
        """Yield the steps of what is not settled yet, as they come, without repeated rows.

        A step counts as settled when the next one is asked for.
        """
        pool, began = NodePool(client, self.request.on_bad_rows), time.monotonic()
        if not self.is_part:
            client.dead.clear()
        try:
            interval = self.interval = self.interval or pool.interval(self.request)
            parts = self.request.filters.parts()
            steps = settle_windows(
                lambda window: pool.settle(parts, window, interval),
                self.missing(),
                self.request.workers,
            )
            with reporting(progress) as report:
                for step in steps:
                    whole = replace(step, batches=tuple(map(_without_repeats, step.batches)))
                    self._note(whole)
                    if not self.is_part:
                        self._remember(pool, step.source)
                    yield whole
                    self._add(whole)
                    report(self.share(), self.rows)
            if not self.is_part:
                self._remember_again(pool)
        finally:
            pool.stop()
            self._count(pool, time.monotonic() - began)
        if self.is_part:
            return
        logger.info("%d rows in %d requests", self.rows, self.cost["requests"])
        if lacks := self.lacks():
            logger.warning("%s", lacks)

    def run_in_time_order(self, client: Client, progress: bool | Report | None) -> Iterator[Step]:
        """Yield the same steps in time order; those that come early wait."""
        waiting: dict[int, Step] = {}
        front = None
        for step in self.run(client, progress):
            front = self.missing()[0].start if front is None else front
            waiting[step.start] = step
            while front in waiting:
                ready = waiting.pop(front)
                front = ready.end
                yield ready

    def missing(self) -> list[Window]:
        """Return the windows that are not settled."""
        if self.interval is None:
            return []
        start, end = self.interval
        windows = []
        for settled_start, settled_end in [*sorted(self.settled), (end, end)]:
            if start < settled_start:
                begins = start == self.restart
                windows.append(Window(start, settled_start, self.request.page_size, begins))
            start = max(start, settled_end)
        return windows

    def share(self) -> float:
        """Return how much of the interval is settled, 0 to 1."""
        if self.interval is None:
            return 0.0
        start, end = self.interval
        return sum(b - a for a, b in self.settled) / max(end - start, 1)

    def known(self) -> list[Span]:
        """Return the spans in which every row that there was is among those that came.

        A node knows what it answered from the oldest row that it remembers on, but for what it says
        it may lack. Where an answer ended too early, nothing after it is known.
        """
        end = self.request.end if self.known_until is None else self.known_until
        spans = [
            span
            for source, answered in self.answered.items()
            for span in clipped(answered, self.remembered.get(source, end), end)
        ]
        return [part for span in joined(spans) for part in between(self.incomplete, *span)]

    def asked(self) -> Span:
        """Return the interval; a bound that the caller left open lies where knowledge does."""
        start, end = self.interval or (self.request.end, self.request.end)
        if self.request.start is None:
            start = max(start, min(self.remembered.values(), default=start))
        if self.request.is_until_now and self.known_until is not None and start < self.known_until:
            end = self.known_until
        return start, end

    def lacks(self) -> str:
        """Return what of the interval is not known, and why, as text; empty if all is known."""
        (start, end), known = self.asked(), self.known()
        if not between(known, start, end):
            return ""
        reasons, told = [], [*known, *self.incomplete]
        if self.known_until is not None and self.known_until < end:
            last = min(self.known_until, self.head.time or self.known_until)
            reasons.append(f"the node knows blocks up to {moment_text(last)} only")
            told.append((self.known_until, end))
        if said := list(clipped(self.incomplete, start, end)):
            reasons.append(f"the node says that it may lack rows of {spans_text(said)}")
        if forgotten := between(told, start, end):
            reasons.append(f"the node may have forgotten rows of {spans_text(forgotten)}")
        what = f"only {spans_text(known)}" if known else "nothing"
        return f"of {spans_text([(start, end)])} {what} is known: {'; '.join(reasons)}"

    def describe(self) -> dict[str, Any]:
        """Return what a table's attrs tell of its load; all of it is JSON."""
        start, end = self.asked()
        seconds = self.cost["seconds"]
        return {
            "source": max(self.nodes, key=self.nodes.__getitem__, default=None),
            "steps_by_node": dict(self.nodes),
            "start": iso_text(start),
            "end": iso_text(end),
            "filters": [list(pair) for pair in filter_parameters(self.request.filters)],
            "rows": self.rows,
            **self.cost,
            "rows_per_second": round(self.rows / seconds, 1) if seconds else 0.0,
            "block_height": self.head.height,
            "block_time": self.head.time and iso_text(self.head.time),
            KNOWN_KEY: known_json(self.known()),
            "quarantined": [{"row": bad.raw, "reason": bad.reason} for bad in self.bad_rows],
        }

    def _add(self, step: Step) -> None:
        self.settled.append((step.start, step.end))
        self.rows += step.num_rows
        if step.bad_rows:
            self.bad_rows = [*dict.fromkeys([*self.bad_rows, *step.bad_rows])]
        self.nodes[step.address] = self.nodes.get(step.address, 0) + 1

    def _note(self, step: Step) -> None:
        """Note what the node could know of a step."""
        answered = [*self.answered.get(step.source, ()), (step.start, step.end)]
        self.answered[step.source] = joined(answered)
        self.incomplete = joined([*self.incomplete, *step.incomplete])
        self.head = self.head.or_less(step.block_height, step.head)
        if step.known_end < step.end:
            self.known_until = min(step.known_end, self.known_until or step.known_end)

    def _remember(self, pool: NodePool, source: str) -> None:
        """Ask a node for its oldest row when its first rows come, before they are used."""
        if source in self.remembered or self.interval is None:
            return
        try:
            self.remembered[source] = pool.reach(source, self.interval)
        except (RequestError, IncompleteError) as error:
            self.remembered[source] = self.interval[1]
            logger.warning("%s; so what the node may have forgotten is not known", error)

    def _remember_again(self, pool: NodePool) -> None:
        """Ask each node again: it may have forgotten more meanwhile. One that is gone, can't be."""
        for source in self.answered.keys() & {*pool.client.base_urls}:
            start, end = self.remembered[source], self.request.end
            try:
                self.remembered[source] = pool.remembered_by(source, start, end)
            except (RequestError, IncompleteError) as error:
                logger.warning("%s; so it is believed what it remembered before", error)

    def _count(self, pool: NodePool, seconds: float) -> None:
        spent = {**pool.stats.as_json(), "seconds": round(seconds, 3)}
        self.cost = {name: self.cost.get(name, 0) + value for name, value in spent.items()}


def _without_repeats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which identical rows stand once.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ.
    """
    if not has_repeats(batch):
        return batch
    from balance_analysis.analysis.checks import merge_duplicates  # noqa: PLC0415 - pandas is heavy
    from balance_analysis.frame import to_arrow, to_frame  # noqa: PLC0415

    merged = to_arrow(merge_duplicates(to_frame(pa.Table.from_batches([batch]))))
    return merged.sort_by("timestamp").combine_chunks().to_batches()[0]


def settle_windows(
    settle: Callable[[Window], Step], windows: Iterable[Window], workers: int
) -> Iterator[Step]:
    """Yield the steps that settle windows, as they come.

    `settle` settles the first part of a window. When it raises, what others have under way is
    given up.
    """
    todo = sorted(windows)
    running: dict[Future[Step], Window] = {}
    ahead: set[int] = set()
    settled: list[Step] = []
    recent: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
    width, pages = LONGEST_WINDOW, _PageSize(max((window.page_size for window in todo), default=1))
    queued = workers if workers == 1 else QUEUED * workers
    pool = ThreadPoolExecutor(workers, thread_name_prefix="balance_analysis")
    try:
        while todo or running or settled:
            while todo and len(running) < queued:
                front = min([todo[0].start, *(window.start for window in running.values())])
                ahead = {start for start in ahead if start > front}
                if todo[0].start != front and len(ahead) >= AHEAD * workers:
                    break
                window, rest = heapq.heappop(todo).cut(width, pages.now)
                if rest is not None:
                    heapq.heappush(todo, rest)
                running[pool.submit(settle, window)] = window
            yield from settled  # now that the next ones are asked for
            done = wait(running, return_when=FIRST_COMPLETED).done
            failed = [future for future in done if future.exception() is not None]
            settled = []
            for future in done.difference(failed):
                settled.append(step := future.result())
                ahead.add(step.start)
                pages.learn(step, running[future].page_size)
                if step.rest is not None:
                    heapq.heappush(todo, step.rest)
                recent.append((step.end - step.start, step.num_rows))
                if workers > 1:
                    width = _width(recent, pages.now)
            if failed:
                yield from settled
                failed[0].result()
            for future in done:
                del running[future]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _width(recent: Iterable[tuple[int, int]], page_size: int) -> int:
    """Return how wide a window is that fills a page, by steps of (microseconds, rows)."""
    span, rows = map(sum, zip(*recent, strict=True))
    if not rows:  # quiet: one request shows where it ends
        return LONGEST_WINDOW
    wanted = span * page_size * FILL / rows
    return int(min(max(wanted, 1), GROWTH * span, LONGEST_WINDOW))


class _PageSize:
    """The page size to ask for: down at once where it was too much, up again when all is calm.

    Each time that it was too much, the calm before the next try is twice as long, so it settles.
    """

    def __init__(self, largest: int) -> None:
        self.now = self._largest = largest
        self._calm, self._wanted = 0, CALM

    def learn(self, step: Step, asked: int) -> None:
        """Take over what a step saw that was asked for pages of a size."""
        if step.accepted < asked:
            self._largest = min(self._largest, step.accepted)
        self._calm += step.page_size == asked
        if step.page_size < min(asked, self.now):
            self.now, self._calm, self._wanted = step.page_size, 0, 2 * self._wanted
        elif self._calm >= self._wanted:
            self._calm, self.now = 0, 2 * self.now
        self.now = min(self.now, self._largest)
