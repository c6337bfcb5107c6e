"""Load one period's share of a span in whatever process, and leave its file for the one writer.

A task holds all that it needs, and touches nothing of the archive but a file that is named by its
content: to run it twice, or to kill it in the middle, changes nothing.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import read_noted, within
from balance_analysis.archive.manifest import check_seen
from balance_analysis.ingest.periods import Part, answered_by, make_part, until_behind
from balance_analysis.load.stream import Load
from balance_analysis.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.store import Store
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client
    from balance_analysis.node.walk import Step


@dataclass(frozen=True, slots=True)
class Task:
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
    file
        The name of the period's file.
    note
        What that file must be; `None` where the archive has none.
    finished
        A node's last block that is finished, as of the run.
    """

    period: str
    client: Client
    request: LoadRequest
    store: Store
    mark: str
    file: str
    note: FileNote | None
    finished: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"the period {self.period}"


def load_part(task: Task) -> Part:
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
    store, request = task.store, task.request
    check_seen(store, task.mark)
    known = read_noted(store, task.file, task.note)
    start = end = request.start or 0
    batches: list[pa.RecordBatch] = []
    steps: list[Step] = []
    load = Load(request, is_part=True)
    if task.client.max_requests_per_second is not None:
        # For the last request of the task before, and for the driver's own before it commits.
        time.sleep(2 / task.client.max_requests_per_second)
    with copy(task.client) as client:
        for step in until_behind(load.run_in_time_order(client, progress=False), task.finished):
            batches += step.batches
            steps.append(replace(step, batches=()))
            end = step.end
    new = within(pa.Table.from_batches(batches, ARROW_SCHEMA), start, end)
    part, content = make_part(known, new, start, end)
    if part.note is not None and part.note != task.note:
        store.write(layout.staged_file(part.note.sha256), content)
    return replace(
        part,
        answered=answered_by(steps),
        incomplete=tuple(span for step in steps for span in step.incomplete),
        bad_rows=tuple(bad for step in steps for bad in step.bad_rows),
        requests=int(load.cost["requests"]),
    )
