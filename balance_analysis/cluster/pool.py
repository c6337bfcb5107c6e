"""Run tasks on an executor, here or elsewhere, and take their results in order."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from balance_analysis.errors import logger

_LOOK: Final = 60.0
"""After so many seconds without news a cluster is looked at."""

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

    executor: Any
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
        # Dask's own executor loses a result if its worker dies while it is handed over.
        executor = getattr(executor, "_client", executor)
        if not hasattr(executor, "submit"):
            raise TypeError(
                "an executor of concurrent.futures or a distributed.Client is wanted, "
                f"not {executor!r}"
            )
        if not hasattr(executor, "nthreads"):
            width = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
            return cls(executor, width)
        _check_workers(executor)
        return cls(executor, max(1, sum(executor.nthreads().values())), executor.nthreads)

    def map(
        self,
        function: Callable[[S], T],
        items: Iterable[S | None],
        at_once: int | None = None,
        *,
        ahead: int = 1,
    ) -> Generator[T]:
        """Yield what a function makes of each item elsewhere, in their order.

        Parameters
        ----------
        items
            `None` among them says that the next one waits for results to be taken.
        at_once
            How many tasks may be on their way at a time; by default so many that all are busy.
        ahead
            How many times as many may be on their way or wait, in memory, to be taken.

        Raises
        ------
        Exception
            What a task failed with, with a note of the item; the others are cancelled.
        """
        at_once = 2 * self.width if at_once is None else at_once
        waiting, ended = iter(items), queue.SimpleQueue[Any]()
        running: deque[tuple[S, Any]] = deque()
        done: set[Any] = set()
        try:
            while True:
                has_room = len(running) - len(done) < at_once and len(running) < ahead * at_once
                if has_room and (item := next(waiting, None)) is not None:
                    running.append((item, self._submit(function, item)))
                    running[-1][1].add_done_callback(ended.put)
                elif not running:
                    return
                elif running[0][1] in done:
                    item, future = running.popleft()
                    done.remove(future)
                    yield _result(item, future)
                else:
                    try:
                        done.add(ended.get(timeout=_LOOK))
                    except queue.Empty:
                        self._look()
        finally:
            for _, future in running:
                future.cancel()

    def _submit(self, function: Callable[[S], T], item: S) -> Any:  # noqa: ANN401 - or a distributed.Future
        """Submit; an executor that takes no more fails the task, when its turn has come."""
        # Of a cluster each call is a task of its own: a result that is there is of another run.
        options = {} if self.workers is None else {"pure": False}
        try:
            return self.executor.submit(function, item, **options)
        except Exception as error:  # noqa: BLE001 - it is raised in its turn
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _look(self) -> None:
        """Tell that a cluster has nobody who works; one that is lost ends its tasks itself."""
        with contextlib.suppress(Exception):
            if self.workers is not None and not self.workers():
                logger.warning("the cluster has no workers: waiting for one to join")


def _result(item: object, future: Any) -> Any:  # noqa: ANN401 - or a distributed.Future
    try:
        return future.result()
    except (CancelledError, asyncio.CancelledError) as error:
        lost = CancelledError("the task was cancelled, or the cluster was lost that worked on it")
        lost.add_note(f"in the task of {item}")
        raise lost from error
    except Exception as error:
        error.add_note(f"in the task of {item}")
        raise


def _check_workers(cluster: Any) -> None:  # noqa: ANN401 - a distributed.Client
    """Raise if a worker lacks this package, or has another version of it or of pyarrow."""
    own = {name: importlib.metadata.version(name) for name in _PACKAGES}
    # As an expression: a worker without the package can't read a function of it.
    look = (
        "__import__('importlib').import_module('balance_analysis.cluster.pool') and "
        f"{{name: __import__('importlib.metadata').metadata.version(name) for name in {_PACKAGES}}}"
    )
    for worker, found in cluster.run(eval, look, on_error="return").items():
        if found != own:
            wanted = " and ".join(f"{name} {version}" for name, version in own.items())
            raise ValueError(f"the worker {worker} has {found!r}: install {wanted} there")
