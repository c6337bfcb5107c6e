"""Spread the loading of a span over an executor: a period is a task, and only one process commits.

Tasks run side by side and end in any order. What they leave is taken in time order, so that the
archive is, at every moment, the one that a single process would have made.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from balance_analysis.archive import layout
from balance_analysis.ingest.periods import keeping
from balance_analysis.ingest.tasks import Task, load_part
from balance_analysis.load.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.store import Store
    from balance_analysis.ingest.executor import Pool
    from balance_analysis.ingest.periods import Filling, Part
    from balance_analysis.load.progress import Report
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client

logger = logging.getLogger("balance_analysis")


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
    end, rows, requests = start, 0, 0
    with (
        reporting(progress) as report,
        keeping(filling, filling.finish),
        contextlib.closing(pool.run_in_order(load_part, tasks, at_once)) as parts,
    ):
        for task, part in parts:
            filling.run.requests += part.requests
            filling.note(part)
            filling.take(part, partial(_move, store, part))
            end, rows, requests = part.end, rows + part.added, requests + part.requests
            report((end - start) / (request.end - start), rows)
            if end < task.request.end:
                break
        logger.info("%d new rows in %d requests", rows, requests)
    filling.tell(request.end)


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
        yield Task(period, client, share, filling.store, mark, file, note, filling.run.finished)
