"""Settle windows side by side.

Windows are cut near the earliest unsettled moment, wide enough for a page by the density seen
last, so that what waits for its turn stays small. A step settles the first part of its window
and hands back the rest; the parts always tile the whole, so all steps together are its rows
whatever the cuts, the page size and the number of workers.
"""

from __future__ import annotations

import heapq
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

from balance_analysis.node.window import LONGEST_WINDOW, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from balance_analysis.node.walk import Step

FILL: Final = 0.9
"""How full a window's one page should be: fuller ones leave rests, emptier ones cost requests."""

REMEMBERED: Final = 4
"""Steps whose density tells how wide the next window should be."""

GROWTH: Final = 16
"""How much wider than what these covered a window may be."""

CALM: Final = 16
"""Steps answered in time after which a page may be larger again."""

QUEUED: Final = 2
"""Windows a worker that are handed out, so that none waits while a step is taken care of."""

AHEAD: Final = 4
"""Steps a worker that may be settled ahead of the earliest unsettled moment."""


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
    recent: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
    width, pages = LONGEST_WINDOW, _PageSize(max((window.page_size for window in todo), default=1))
    queued = workers if workers == 1 else QUEUED * workers
    pool = ThreadPoolExecutor(workers, thread_name_prefix="balance_analysis")
    try:
        while todo or running:
            while todo and len(running) < queued:
                front = min([todo[0].start, *(window.start for window in running.values())])
                ahead = {start for start in ahead if start > front}
                if todo[0].start != front and len(ahead) >= AHEAD * workers:
                    break
                window, rest = heapq.heappop(todo).cut(width, pages.now)
                if rest is not None:
                    heapq.heappush(todo, rest)
                running[pool.submit(settle, window)] = window
            done = wait(running, return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda future: future.exception() is not None):
                del running[future]
                step = future.result()
                ahead.add(step.start)
                pages.learn(step)
                if step.rest is not None:
                    heapq.heappush(todo, step.rest)
                recent.append((step.end - step.start, step.num_rows))
                if workers > 1:
                    width = _width(recent, pages.now)
                yield step
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
    """The page size to ask for: down at once where it was too much, up again when all is calm."""

    def __init__(self, largest: int) -> None:
        self.now = self._largest = largest
        self._calm = 0

    def learn(self, step: Step) -> None:
        """Take over what a step saw."""
        self._largest = min(self._largest, step.accepted)
        self._calm = self._calm + 1 if step.page_size >= self.now else 0
        self.now = min(self.now, step.page_size, self._largest)
        if self._calm >= CALM:
            self._calm, self.now = 0, min(2 * self.now, self._largest)
