"""Load a span on an executor: a period is a task, and only one process commits.

Tasks run side by side and end in any order. What they leave is taken in time order, so that the
archive is, at every moment, the one that a single process would have made. A task holds all that it
needs, and touches nothing of the archive but a file that is named by its content: to run it twice,
or to kill it in the middle, changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from balance_analysis.archive import layout
from balance_analysis.archive.commit import read_noted
from balance_analysis.archive.manifest import check_seen
from balance_analysis.ingest.periods import LoadedPeriod, load_rows, make_period
from balance_analysis.load.request import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.store import Store
    from balance_analysis.ingest.executor import Pool
    from balance_analysis.ingest.periods import SpanWriter
    from balance_analysis.load.request import LoadRequest, Report
    from balance_analysis.node.client import Client

_AHEAD: Final = 8
"""How many times as many parts as are loaded at once may be done before their turn has come."""

logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class PeriodTask:
    """A period's share of a span, which any process can load.

    Attributes
    ----------
    period
        Which.
    client
        The node or nodes, with the task's share of the request rate. It is only ever copied.
    request
        What to ask for, all of it within the period.
    store
        The archive.
    mark
        A file of the archive that only this run has written.
    file, note
        The name of the period's file, and what it must be; `None` where the archive has none.
    finished
        As of `Run`.
    """

    period: str
    client: Client
    request: LoadRequest
    store: Store
    mark: str
    file: str
    note: FileNote | None
    finished: tuple[str, int] | None

    def __str__(self) -> str:
        return f"the period {self.period}"


def load_period(task: PeriodTask) -> LoadedPeriod:
    """Return what came of a task, whose file is staged.

    Raises
    ------
    ArchiveError
        If the archive is not the one that the run writes to, or its file is not what is noted.
    RequestError, DecodeError, IncompleteError, CheckError
        As `load_balance_changes`.
    OSError
        If the file can't be written.
    """
    store, start = task.store, task.request.start or 0
    check_seen(store, task.mark)
    known = read_noted(store, task.file, task.note)
    if task.client.max_requests_per_second is not None:
        # For the last request of the task before, and for the driver's own before it commits.
        time.sleep(2 / task.client.max_requests_per_second)
    with copy(task.client) as client:
        steps, rows, requests = load_rows(client, task.request, task.finished)
    part, content = make_period(known, rows, start, steps[-1].end)
    if part.note is not None and part.note != task.note:
        store.write(layout.staged_file(part.note.sha256), content)
    return replace(part, steps=tuple(steps), requests=requests)


def load_on_executor(
    pool: Pool,
    client: Client,
    request: LoadRequest,
    span: SpanWriter,
    progress: bool | Report | None,
) -> None:
    """Load a span on an executor, period by period, and let it be taken here."""
    # A cluster may grow meanwhile: where there is a rate to keep, no task waits for that.
    at_once = pool.width if client.max_requests_per_second is not None else 2 * pool.width
    tasks = _tasks(client.share(pool.width), request, span)
    start, rows, requests = span.front, 0, 0
    with (
        reporting(progress) as report,
        contextlib.closing(pool.map(load_period, tasks, at_once, ahead=_AHEAD)) as parts,
    ):
        for part in parts:
            span.run.requests += part.requests
            if part.start != span.front:
                # A node that lags ended the part before early.
                break
            span.take(part, partial(_move, span.store, part.note))
            rows, requests = rows + part.added, requests + part.requests
            report((part.end - start) / (request.end - start), rows)
    logger.info("%d new rows in %d requests", rows, requests)


def _move(store: Store, note: FileNote | None, name: str) -> None:
    if note is not None:
        store.move(layout.staged_file(note.sha256), name)


def _tasks(client: Client, request: LoadRequest, span: SpanWriter) -> Iterator[PeriodTask]:
    """Yield a task for each period, when there is room for it."""
    writer, start = span.writer, span.front
    partition = writer.about.partition
    mark = f"{layout.RUNS}{span.run.id}.json"
    for period in layout.periods_between(start, request.end, partition):
        begin, stop = layout.bounds_of(period, partition)
        share = replace(request, start=max(begin, start), end=min(stop, request.end))
        file, note = layout.changes_file(period, partition), writer.state.files.get(period)
        yield PeriodTask(period, client, share, span.store, mark, file, note, span.run.finished)
