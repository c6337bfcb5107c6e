"""One load under way: its steps as they come, and what can be told of it at any moment.

Windows are settled side by side. They are cut near the earliest unsettled moment, wide enough for a
page by the density seen last, so that what waits for its turn stays small. A step settles the first
part of its window and hands back the rest; the parts always tile the whole, so all steps together
are its rows whatever the cuts, the page size and the number of workers.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from balance_analysis.errors import IncompleteError, RequestError, logger
from balance_analysis.known import KNOWN_KEY, known_json
from balance_analysis.load.evidence import Evidence
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, Report, reporting
from balance_analysis.node.client import Client, check_client
from balance_analysis.node.walk import LONGEST_WINDOW, Step, Window, filter_parameters
from balance_analysis.rows import BadRow, has_repeats
from balance_analysis.spans import EVER, Span, between
from balance_analysis.text import iso_text

FILL: Final = 0.9
"""How full a window's one page should be: fuller ones leave rests, emptier ones cost requests."""

RECENT_STEPS: Final = 16
"""Steps whose density tells how wide the next window should be."""

GROWTH: Final = 16
"""How much wider than what these covered a window may be."""

CALM: Final = 16
"""Steps answered in time after which a page may be larger again."""

QUEUED: Final = 2
"""Windows a worker that are handed out, so that none waits while a step is taken care of."""

AHEAD: Final = 4
"""Steps a worker that may be settled ahead of the earliest unsettled moment."""

_NOT_TOLD: Final = "it is not known what the node may have forgotten"


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
    evidence: Evidence = field(default_factory=Evidence)
    cost: dict[str, int | float] = field(default_factory=dict)
    restart: int | None = None
    """Where a row is known to stand: an answer that restarts there must begin there."""

    def run(self, client: Client, progress: bool | Report | None) -> Iterator[Step]:
        """Yield the steps of what is not settled yet, and find out what they prove.

        Each node that answers is asked what it may have forgotten before its rows are used, and
        again when all have come.
        """
        check_client(client)
        began = time.monotonic()
        client.dead.clear()
        with NodePool(client, self.request.on_bad_rows) as pool:
            try:
                for step in self.steps(pool, progress):
                    if step.source not in self.evidence.retention_starts:
                        self._ask_retention(pool.noted_retention_start, step.source)
                    yield step
                for source in self.evidence.answered.keys() & {*client.base_urls}:
                    self._ask_retention(pool.retention_start, source)
            finally:
                self._count(pool, time.monotonic() - began)
        logger.info("%d rows in %d requests", self.rows, self.cost["requests"])
        if gaps := self.evidence.gaps(*self.bounds()):
            logger.warning("%s", gaps)

    def steps(self, pool: NodePool, progress: bool | Report | None = False) -> Iterator[Step]:
        """Yield the steps of what is not settled yet, as they come, without repeated rows.

        A step counts as settled when the next one is asked for.
        """
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
                self.evidence.add(whole)
                yield whole
                self._add(whole)
                report(self.share(), self.rows)

    def in_time_order(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield its steps in time order; those that come early wait."""
        waiting: dict[int, Step] = {}
        front = None
        for step in steps:
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
        return [
            Window(start, end, self.request.page_size, begins_with_row=start == self.restart)
            for start, end in between(self.settled, *self.interval)
        ]

    def share(self) -> float:
        """Return how much of the interval is settled, 0 to 1."""
        if self.interval is None:
            return 0.0
        start, end = self.interval
        return sum(b - a for a, b in self.settled) / max(end - start, 1)

    def bounds(self) -> Span:
        """Return the interval; a bound that the caller left open lies where knowledge does."""
        start, end = self.interval or (self.request.end, self.request.end)
        if self.request.start is None:
            start = max(start, min(self.evidence.retention_starts.values(), default=start))
        known_until = self.evidence.known_until
        if self.request.is_until_now and known_until is not None and start < known_until:
            end = known_until
        return start, end

    def describe(self) -> dict[str, Any]:
        """Return what a table's attrs tell of its load; all of it is JSON."""
        (start, end), latest = self.bounds(), self.evidence.latest_block
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
            "block_height": latest.height,
            "block_time": latest.time and iso_text(latest.time),
            KNOWN_KEY: known_json(self.evidence.proven()),
            "quarantined": [{"row": bad.raw, "reason": bad.reason} for bad in self.bad_rows],
        }

    def _add(self, step: Step) -> None:
        self.settled.append((step.start, step.end))
        self.rows += step.num_rows
        if step.bad_rows:
            self.bad_rows = [*dict.fromkeys([*self.bad_rows, *step.bad_rows])]
        self.nodes[step.address] = self.nodes.get(step.address, 0) + 1

    def _ask_retention(self, ask: Callable[[str, int, int], int], source: str) -> None:
        """Ask a node what it may have forgotten; when it is asked again, it may be more."""
        starts, (start, end) = self.evidence.retention_starts, self.interval or EVER
        try:
            starts[source] = ask(source, starts.get(source, start), end)
        except (RequestError, IncompleteError) as error:
            told = "its earlier answer is believed" if source in starts else _NOT_TOLD
            starts.setdefault(source, end)
            logger.warning("%s; so %s", error, told)

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
    recent: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
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
