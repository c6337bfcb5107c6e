"""Run tasks side by side, here or elsewhere, and take what they make in order."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

logger = logging.getLogger("balance_analysis")

AHEAD: Final = 8
"""How many times as many tasks as run at once may be done before the next one to be taken is."""

_LOOK: Final = 5.0
"""After so many seconds without news a cluster is looked at."""

_REMIND: Final = 60.0
"""So many seconds apart it is told again that nobody works."""

_PACKAGES: Final = ("balance-analysis", "pyarrow")
"""What makes the files: workers must have the driver's versions."""

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
    workers
        Where its tasks run on a cluster: returns how many threads each worker has.
    """

    executor: Executor
    width: int
    workers: Callable[[], dict[str, int]] | None = None

    @classmethod
    def of(cls, executor: Any) -> Pool:  # noqa: ANN401 - a Client is of a package that may not be there
        """Return the pool of an executor, or of a `distributed.Client`.

        Raises
        ------
        TypeError
            If it is neither.
        ValueError
            If a worker of the cluster can't do the work: it has not the same packages.
        """
        cluster = getattr(executor, "_client", executor)
        if hasattr(executor, "get_executor"):
            executor = _OnCluster(executor)
        if not hasattr(executor, "submit"):
            raise TypeError(
                "an executor of concurrent.futures or a distributed.Client is wanted, "
                f"not {executor!r}"
            )
        if not hasattr(cluster, "nthreads"):
            return cls(executor, getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
        check_workers(cluster)
        return cls(executor, max(1, sum(cluster.nthreads().values())), cluster.nthreads)

    def map(self, function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield what a function makes of each item elsewhere, in their order.

        So many tasks are under way that all are busy, and no more: what is done waits in memory.

        Raises
        ------
        Exception
            As `run_in_order`.
        """
        at_once = 2 * self.width
        for _, result in self.run_in_order(function, items, at_once, most=at_once):
            yield result

    def run_in_order(
        self,
        function: Callable[[S], T],
        items: Iterable[S],
        at_once: int,
        *,
        most: int | None = None,
    ) -> Generator[tuple[S, T]]:
        """Yield each item and what a function makes of it elsewhere, in their order.

        Parameters
        ----------
        at_once
            How many tasks may be on their way at a time.
        most
            How many may be on their way or wait to be taken; `AHEAD` times as many by default.

        Raises
        ------
        Exception
            What a task failed with, with a note of the item; the others are cancelled.
        """
        most = AHEAD * at_once if most is None else most
        waiting = iter(items)
        running: deque[tuple[S, Future[T]]] = deque()
        watch = _Watch(self.workers)
        try:
            while True:
                under_way = [future for _, future in running if not future.done()]
                has_room = len(under_way) < at_once and len(running) < most
                if has_room and (item := next(waiting, None)) is not None:
                    running.append((item, self._submit(function, item)))
                    continue
                if not running:
                    return
                item, future = running[0]
                if not future.done():
                    if not wait(under_way, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                        watch.look()
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


@dataclass(frozen=True, slots=True)
class _OnCluster:
    """The executor of a cluster.

    Dask's own loses a result if its worker dies while it is handed over.
    """

    client: Any

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:  # noqa: ANN401
        done: Future[Any] = Future()
        # Each call is a task of its own: a result that is still there is of another run.
        task = self.client.submit(fn, *args, pure=False)
        task.add_done_callback(partial(_hand_over, done))
        done.add_done_callback(lambda each: task.cancel() if each.cancelled() else None)
        return done


def _hand_over(done: Future[Any], task: Any) -> None:  # noqa: ANN401 - a distributed.Future
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(task.result())
    except (CancelledError, asyncio.CancelledError):
        done.set_exception(CancelledError())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
        done.set_exception(error)


def _result(item: object, future: Future[T]) -> T:
    try:
        return future.result()
    except Exception as error:
        if isinstance(error, CancelledError) and not str(error):
            error.args = ("the task was cancelled, or the cluster was lost that worked on it",)
        error.add_note(f"in the task of {item}")
        raise


@dataclass(slots=True)
class _Watch:
    """Tells, now and then, that a cluster has nobody who works."""

    workers: Callable[[], dict[str, int]] | None
    told: float = field(default=float("-inf"))

    def look(self) -> None:
        if self.workers is None or time.monotonic() - self.told < _REMIND:
            return
        try:
            is_idle = not self.workers()
        except Exception as error:  # noqa: BLE001 - a cluster that is lost ends its tasks itself
            logger.debug("the cluster can't be asked for its workers: %s", error)
            return
        if is_idle:
            self.told = time.monotonic()
            logger.warning("the cluster has no workers: waiting for one to join")


def check_workers(cluster: Any) -> None:  # noqa: ANN401 - a distributed.Client
    """Raise if a worker lacks this package, or has another version of it or of pyarrow.

    Raises
    ------
    ValueError
        With the worker and what it has.
    """
    own = {name: importlib.metadata.version(name) for name in _PACKAGES}
    # As an expression: a worker without the package can't read a function of it.
    look = (
        "__import__('importlib').import_module('balance_analysis.ingest.tasks') and "
        f"{{name: __import__('importlib.metadata').metadata.version(name) for name in {_PACKAGES}}}"
    )
    for worker, found in cluster.run(eval, look, on_error="return").items():
        if found != own:
            has = f"fails with {found!r}" if isinstance(found, Exception) else f"has {_told(found)}"
            raise ValueError(f"the worker {worker} {has}: install {_told(own)} there")


def _told(versions: dict[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in versions.items())
