"""Run tasks on an executor, here or elsewhere: of an export each period is one.

Tasks run side by side and end in any order. What they leave is taken in time order, by one process,
so that the archive is, at every moment, the one that it would have made alone. A task holds all
that it needs, and touches nothing of the archive but a file that is named by its content: to run it
twice, or to kill it in the middle, changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import merge_rows, read_noted
from balance_analysis.archive.datafile import NO_ROWS, encode_rows
from balance_analysis.archive.manifest import FileEntry, check_seen
from balance_analysis.archive.store import Store
from balance_analysis.errors import logger
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical, last_block, within
from balance_analysis.schema import ARROW_SCHEMA

_LOOK: Final = 60.0
"""After so many seconds without news a cluster is looked at."""

_PACKAGES: Final = ("balance-analysis", "pyarrow")
"""What makes the files: workers must have the driver's versions."""

LoadElsewhere = Callable[[int, int], tuple[Sequence[Step], int]]
"""Returns the steps of [start, end), and how many requests were sent; it pickles."""

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
        "__import__('importlib').import_module('balance_analysis.ingest.executor') and "
        f"{{name: __import__('importlib.metadata').metadata.version(name) for name in {_PACKAGES}}}"
    )
    for worker, found in cluster.run(eval, look, on_error="return").items():
        if found != own:
            wanted = " and ".join(f"{name} {version}" for name, version in own.items())
            raise ValueError(f"the worker {worker} has {found!r}: install {wanted} there")


@dataclass(frozen=True, slots=True)
class LoadedPeriod:
    """What came of a period's share of a span; it pickles, and is small where its file is staged.

    Attributes
    ----------
    start, end
        Which share: all of [start, end), microseconds.
    note
        What the period's file is going to be; `None` where there is no row in the share, neither a
        new one nor one that the archive holds.
    content
        The file; `None` where it is staged in the archive under the name of its content.
    added
        How many rows more the file has then.
    changed, absent
        The rows that the archive holds and that came with another balance, or did not come again.
    last
        The rows of the last block that came.
    steps
        What was asked, without the rows.
    requests
        How many were sent elsewhere.
    """

    start: int
    end: int
    note: FileEntry | None = None
    content: bytes | None = None
    added: int = 0
    changed: pa.Table = field(default_factory=lambda: NO_ROWS)
    absent: pa.Table = field(default_factory=lambda: NO_ROWS)
    last: pa.Table = field(default_factory=lambda: NO_ROWS)
    steps: tuple[Step, ...] = ()
    requests: int = 0


def make_period(known: pa.Table, steps: Sequence[Step], start: int, end: int) -> LoadedPeriod:
    """Return what becomes of a period's known rows with those of steps in [start, end)."""
    bare = tuple(replace(step, batches=()).between(start, end) for step in steps)
    new = pa.Table.from_batches([each for step in steps for each in step.batches], ARROW_SCHEMA)
    new = within(new, start, end)
    if not new.num_rows and not within(known, start, end).num_rows:
        return LoadedPeriod(start, end, steps=bare)
    merged = merge_rows(known, new, start, end)
    changed, absent = merged.changed, merged.absent
    content, note = encode_rows(merged.rows)
    added = merged.added.num_rows
    last = canonical(last_block(new)[1])
    return LoadedPeriod(start, end, note, content, added, changed, absent, last, bare)


@dataclass(frozen=True, slots=True)
class PeriodTask:
    """A period's share of a span, [start, end), which any process can load.

    Attributes
    ----------
    period
        Which.
    load
        Loads it.
    store
        The archive.
    mark
        A file of the archive that only this run has written.
    file, note
        The name of the period's file, and what it must be; `None` where the archive has none.
    """

    period: str
    start: int
    end: int
    load: LoadElsewhere
    store: Store
    mark: str
    file: str
    note: FileEntry | None

    def __str__(self) -> str:
        return f"the period {self.period}"


def load_period(task: PeriodTask) -> LoadedPeriod:
    """Return what came of a task, whose file is staged.

    Raises
    ------
    ArchiveError
        If the archive is not the one that the run writes to, or its file is not what is noted.
    RequestError, DecodeError, IncompleteError, CheckError
        As what loads it.
    OSError
        If the file can't be written.
    """
    store = task.store
    check_seen(store, task.mark)
    known = read_noted(store, task.file, task.note)
    steps, requests = task.load(task.start, task.end)
    part = make_period(known, steps, task.start, steps[-1].end)
    if part.note is not None and part.content is not None and part.note != task.note:
        store.write(layout.staged_file(part.note.sha256), part.content)
    return replace(part, content=None, requests=requests)
