"""Spread the loading of a span over an executor: a period is a task, and only one process commits.

Tasks run side by side and end in any order. What they leave is taken in time order, so that the
archive is, at every moment, the one that a single process would have made.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from balance_analysis.archive import layout
from balance_analysis.archive.filling import keeping
from balance_analysis.archive.tasks import Task, load_part
from balance_analysis.load.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from balance_analysis.archive.filling import Filling, Part
    from balance_analysis.archive.store import Store
    from balance_analysis.load.progress import Report
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client

logger = logging.getLogger("balance_analysis")

AHEAD: Final = 8
"""How many times as many tasks as run at once may be done before the next one to be taken is."""

S = TypeVar("S")
T = TypeVar("T")


class Executor(Protocol):
    """What runs a function elsewhere, as the executors of `concurrent.futures` do."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:  # noqa: ANN401
        """Run a function, and return what its result comes in."""


@dataclass(frozen=True, slots=True)
class Pool:
    """An executor, and how much of it there is.

    Attributes
    ----------
    executor
        What takes the tasks.
    width
        How many it runs at once.
    """

    executor: Executor
    width: int

    @classmethod
    def of(cls, executor: Any) -> Pool:  # noqa: ANN401 - a Client is of a package that may not be there
        """Return the pool of an executor, or of a `distributed.Client`.

        Raises
        ------
        TypeError
            If it is neither.
        """
        if hasattr(executor, "get_executor"):
            # Each call is a task of its own: a result that is still there is of another run.
            executor = executor.get_executor(pure=False)
        if not hasattr(executor, "submit"):
            raise TypeError(
                "executor must be one of concurrent.futures, or a distributed.Client, "
                f"not {executor!r}"
            )
        return cls(executor, max(1, _width(executor)))

    def run_in_order(
        self, function: Callable[[S], T], items: Iterable[S], at_once: int
    ) -> Generator[tuple[S, T]]:
        """Yield each item and what a function makes of it elsewhere, in their order.

        Parameters
        ----------
        at_once
            How many tasks may be on their way at a time.

        Raises
        ------
        Exception
            What a task failed with, with a note of the item; the others are cancelled.
        """
        waiting = iter(items)
        running: deque[tuple[S, Future[T]]] = deque()
        try:
            while True:
                under_way = [future for _, future in running if not future.done()]
                has_room = len(under_way) < at_once and len(running) < AHEAD * at_once
                if has_room and (item := next(waiting, None)) is not None:
                    running.append((item, self._submit(function, item)))
                    continue
                if not running:
                    return
                item, future = running[0]
                if not future.done():
                    wait(under_way, return_when=FIRST_COMPLETED)
                    continue
                running.popleft()
                yield item, _result(item, future)
        finally:
            for _, future in running:
                future.cancel()

    def _submit(self, function: Callable[[S], T], item: S) -> Future[T]:
        """Submit; an executor that takes no more fails the task, when its turn has come."""
        try:
            return self.executor.submit(function, item)
        except Exception as error:  # noqa: BLE001 - it is raised in its turn
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed


def _result(item: object, future: Future[T]) -> T:
    try:
        return future.result()
    except Exception as error:
        error.add_note(f"in {item}")
        logger.warning("%s can't be completed", item)
        raise


def _width(executor: Any) -> int:  # noqa: ANN401 - each kind tells it in its own way
    cluster = getattr(executor, "_client", None)
    if cluster is not None and hasattr(cluster, "nthreads"):
        return sum(cluster.nthreads().values())
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


def fill_elsewhere(
    pool: Pool,
    client: Client,
    request: LoadRequest,
    filling: Filling,
    progress: bool | Report | None,
) -> None:
    """Load a span on an executor, and commit it here, period by period."""
    # A cluster may grow meanwhile: where there is a rate to keep, no task waits for that.
    at_once = pool.width if client.max_requests_per_second is not None else 2 * pool.width
    tasks = _tasks(client.share(pool.width), request, filling)
    store, start = filling.store, filling.front
    end, rows = start, 0
    with (
        reporting(progress) as report,
        keeping(filling.finish),
        contextlib.closing(pool.run_in_order(load_part, tasks, at_once)) as parts,
    ):
        for task, part in parts:
            filling.run.requests += part.requests
            filling.note(part.incomplete, part.bad_rows)
            filling.take(part, partial(_move, store, part))
            end, rows = part.end, rows + part.added
            report((end - start) / (request.end - start), rows)
            if end < task.request.end:
                break
        filling.tell_end(end, request.end)


def _move(store: Store, part: Part, name: str) -> None:
    if part.note is not None:
        store.move(layout.staged_file(part.note.sha256), name)


def _tasks(client: Client, request: LoadRequest, filling: Filling) -> Iterator[Task]:
    """Yield a task for each period, when there is room for it."""
    writer, start = filling.writer, filling.front
    partition = writer.about.partition
    mark = f"{layout.RUNS}{filling.run.id}.json"
    for period in layout.periods_between(start, request.end, partition):
        begin, stop = layout.bounds_of(period, partition)
        share = replace(request, start=max(begin, start), end=min(stop, request.end))
        file = layout.changes_file(period, partition)
        note = writer.state.files.get(period)
        yield Task(period, client, share, filling.store, mark, file, note)
