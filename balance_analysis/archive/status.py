"""The status and the coverage of an archive; `table.evidence` decides what is complete."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import pandas as pd

from balance_analysis.archive.datafile import FILE_KEY
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.manifest import BoundQuery, lost_files
from balance_analysis.archive.runs import Run, iter_reports
from balance_analysis.archive.snapshot import Snapshot
from balance_analysis.table import moments
from balance_analysis.table.evidence import STATES, Evidence
from balance_analysis.table.text import (
    Record,
    count_text,
    duration_text,
    list_text,
    spans_text,
    without_credentials,
)

_MOMENT: Final = "datetime64[us, UTC]"
_COVERAGE: Final[dict[str, Any]] = {
    "start": _MOMENT,
    "end": _MOMENT,
    "state": pd.CategoricalDtype([*STATES]),
    "source": "str",
    "block_height": "Int64",
    "first_block_height": "Int64",
    "asked_at": _MOMENT,
    "first_asked_at": _MOMENT,
    "confirmed_by": "str",
}


@dataclass(frozen=True, slots=True)
class ArchiveStatus(Record):
    """An archive's status. As text it is an overview for the terminal.

    Attributes
    ----------
    uri
        The archive's address.
    query
        The accounts that the archive is bound to, and the period of a file.
    complete, confirmed, missing, unproven
        Intervals, [start, end) in UTC. In complete ones every row is known; in their confirmed
        parts a source of another origin has the same rows. No node answered for missing ones. In
        unproven ones a node may have forgotten rows, or a bad row was set aside.
    confirmed_by
        The sources of another origin that have the same rows.
    disputed
        The moments at which a source has other rows.
    rows
        Number of balance changes.
    accounts
        Number of accounts with a row; `None` if not counted, or if files are lost.
    files, checkpoints, size
        Number of files of rows and of checkpoints, and the total size of both (in bytes).
    asked_at, source, block_height
        When a node was last asked, which one, and its last block then; `None` if unknown.
    limits
        Number of distinct snapshots of the network's limits.
    lost
        Files that are missing or don't have the size that was written.
    last_run
        The last run; `None` before the first.
    writing
        The process that is writing now, as "process 12 on host, since ..."; `None` if there is
        none, or if an object store has no lock.
    is_interrupted
        Whether the last run was interrupted; the next run recovers the archive. Without a lock, a
        running one looks the same.
    now
        The moment for which `age` is computed (UTC).
    """

    uri: str
    query: BoundQuery
    complete: tuple[moments.Interval, ...]
    confirmed: tuple[moments.Interval, ...]
    confirmed_by: tuple[str, ...]
    disputed: tuple[moments.Interval, ...]
    missing: tuple[moments.Interval, ...]
    unproven: tuple[moments.Interval, ...]
    rows: int
    accounts: int | None
    files: int
    checkpoints: int
    size: int
    asked_at: dt.datetime | None
    source: str | None
    block_height: int | None
    limits: int
    lost: tuple[str, ...]
    last_run: Run | None
    writing: str | None
    is_interrupted: bool
    now: dt.datetime

    @property
    def age(self) -> dt.timedelta | None:
        """Time since the end of the last complete interval; `None` if nothing is complete."""
        return self.now - self.complete[-1][1] if self.complete else None

    def is_older_than(self, max_age: moments.Duration) -> bool:
        """Return whether `age` exceeds `max_age`, such as "2h", or nothing is complete."""
        age = self.age
        return age is None or age > moments.to_duration(max_age)

    def _title(self) -> str:
        return "Status of an archive"

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        query, size = content.pop("query"), content.pop("size")
        age = None if self.age is None else self.age.total_seconds()
        bound = {"query": query["filters"], "partition": query["partition"]}
        return {**content, **bound, "bytes": size, "age_seconds": age}

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "archive", self.uri
        yield "holds", str(self.query)
        yield "complete", spans_text(self.complete) or "nothing"
        by = f" by {list_text(self.confirmed_by)}" if self.confirmed_by else ""
        yield "confirmed", (spans_text(self.confirmed) or "nothing") + by
        if self.age is not None:
            yield "age", f"{duration_text(self.age)} at {moments.moment_text(self.now, 'seconds')}"
        if self.disputed:
            yield "disputed", spans_text(self.disputed)
        yield "missing", spans_text(self.missing) or "none"
        yield "unproven", spans_text(self.unproven) or "none"
        accounts = "" if self.accounts is None else f" of {count_text(self.accounts, 'account')}"
        yield "rows", f"{self.rows:,}{accounts}"
        checkpoints = count_text(self.checkpoints, "checkpoint")
        files = f"{count_text(self.files, 'file')} ({self.query.partition}s with rows)"
        yield "files", f"{files}, {checkpoints}, {self.size / 1000:,.1f} kB"
        yield "last asked", _last_asked(self)
        yield "limits", count_text(self.limits, "distinct snapshot")
        yield "last run", _last_run(self)
        if self.writing is not None:
            yield "writing", self.writing
        if self.is_interrupted:
            yield "interrupted", "the last run did not end; the next run recovers the archive"
        if self.lost:
            yield "damaged", f"{list_text(self.lost)}: missing or truncated"


def read_status(
    snapshot: Snapshot, *, now: dt.datetime | None = None, count_accounts: bool = True
) -> ArchiveStatus:
    """Return an archive's status: see `Archive.status`."""
    store, manifest, evidence = snapshot.store, snapshot.manifest, snapshot.evidence
    lost = lost_files(store, manifest)
    accounts = None if lost or not count_accounts else snapshot.last_rows(columns=FILE_KEY).num_rows
    # An answer of a rebuilt manifest has no time.
    answers = (answer for answer in evidence.answers if answer.asked[1])
    last = max(answers, key=lambda answer: answer.asked[1], default=None)
    last_run, writing = next(iter_reports(store), None), writer_of(store)
    is_open = manifest.pending is not None
    is_open |= last_run is not None and last_run.outcome == "incomplete"
    entries = [*manifest.files.values(), *manifest.checkpoints.values()]
    return ArchiveStatus(
        uri=without_credentials(store.uri),
        query=manifest.query,
        complete=moments.to_intervals(evidence.complete),
        confirmed=moments.to_intervals(evidence.confirmed),
        confirmed_by=tuple(
            sorted({without_credentials(node.name) for _, node in evidence.confirmations()})
        ),
        disputed=moments.to_intervals(moments.joined(span for span, _ in evidence.disputed)),
        missing=moments.to_intervals(evidence.missing(*evidence.bounds)),
        unproven=moments.to_intervals(evidence.unproven),
        rows=sum(entry.rows for entry in manifest.files.values()),
        accounts=accounts,
        files=len(manifest.files),
        checkpoints=len(manifest.checkpoints),
        size=sum(entry.size for entry in entries),
        asked_at=None if last is None else moments.from_microseconds(last.asked[1]),
        source=None if last is None else last.node.name,
        block_height=None if last is None or last.heights is None else last.heights[1],
        limits=0 if manifest.limits is None else manifest.limits.rows,
        lost=tuple(lost),
        last_run=last_run,
        writing=writing,
        is_interrupted=is_open and writing is None,
        now=dt.datetime.now(dt.UTC) if now is None else moments.to_utc(now),
    )


def coverage_frame(evidence: Evidence) -> pd.DataFrame:
    """Return a row for each stretch of time, missing ones included: see `Archive.coverage`."""
    rows: list[tuple[object, ...]] = []
    for span, state, answer, node in evidence.stretches():
        details: tuple[object, ...] = (None,) * 6
        if answer is not None:
            (low, high), (first, last) = answer.heights or (None, None), answer.asked
            other = node and without_credentials(node.name)
            when = (last, first) if last else (None, None)
            details = without_credentials(answer.node.name), high, low, *when, other
        rows.append((*span, state, *details))
    numbers = {name: "Int64" for name, kind in _COVERAGE.items() if kind == _MOMENT}
    return pd.DataFrame(rows, columns=[*_COVERAGE]).astype(numbers).astype(_COVERAGE)


def _last_run(status: ArchiveStatus) -> str:
    run = status.last_run
    if run is None:
        return "none"
    began = moments.moment_text(run.started, "seconds")
    if run.outcome == "incomplete":
        return f"{began}, {'interrupted' if status.is_interrupted else 'under way'}"
    error = f" ({run.error})" if run.error else ""
    return f"{began}, {run.outcome}, {count_text(run.rows, 'new row')}{error}"


def _last_asked(status: ArchiveStatus) -> str:
    if status.asked_at is None:
        return "never"
    height = "" if status.block_height is None else f" at block {status.block_height:,}"
    return f"{moments.moment_text(status.asked_at)}, {status.source}{height}"
