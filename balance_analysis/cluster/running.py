"""Run tasks somewhere else, in order, a few of them ahead of what is taken."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from distributed import Client

S = TypeVar("S")
T = TypeVar("T")

_LOCAL: Final = 4
"""The most threads that are used without a cluster: each holds a task's rows."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Where tasks run.

    Attributes
    ----------
    executor
        Takes them.
    width
        How many it may run at once.
    """

    executor: Executor
    width: int

    def map(self, function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield what a function makes of each item, in their order.

        So many tasks are under way that all workers are busy, and no more: what is done waits in
        memory. When one fails, the others are cancelled.

        Raises
        ------
        Exception
            The task's own, as it was raised, with a note of the item.
        """
        waiting = iter(items)
        running: deque[tuple[S, Future[T]]] = deque()

        def submit(count: int) -> None:
            for item in itertools.islice(waiting, count):
                running.append((item, self.executor.submit(function, item)))

        try:
            submit(2 * self.width)
            while running:
                item, future = running.popleft()
                try:
                    done = future.result()
                except Exception as error:
                    error.add_note(f"in the task of {item}")
                    raise
                submit(1)
                yield done
        finally:
            for _, future in running:
                future.cancel()


@contextlib.contextmanager
def running(client: Client | Executor | None) -> Iterator[Runner]:
    """Give what runs tasks.

    Parameters
    ----------
    client
        A client of a cluster or an executor; `None` stands for the client that the caller has made,
        and where there is none for threads, which end with the context.

    Raises
    ------
    TypeError
        If it is something else.
    """
    client = _current() if client is None else client
    if client is None:
        width = min(os.cpu_count() or 1, _LOCAL)
        with ThreadPoolExecutor(width, "balance-analysis") as pool:
            yield Runner(pool, width)
    elif isinstance(client, Executor):
        yield Runner(client, os.cpu_count() or 1)
    elif hasattr(client, "get_executor"):
        # Each call is a task of its own: a result that is still there may be that of older files.
        threads = sum(client.nthreads().values())
        yield Runner(client.get_executor(pure=False), max(threads, 1))
    else:
        raise TypeError(
            f"client must be a distributed.Client or an executor of concurrent.futures, not "
            f"{client!r}"
        )


def _current() -> Any:  # noqa: ANN401 - a Client, of a package that may not be there
    """Return the client that the caller has made, if there is one."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].Client.current()
    except ValueError:
        return None
