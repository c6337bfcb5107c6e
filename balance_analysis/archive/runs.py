"""Record what a run does: return the record to the caller, and write it as the run's report.

A report is written as "incomplete" when the run begins, and again when it ends, so a killed run
leaves an incomplete one. The run's bad rows are in another file of the same name.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import BoundQuery, Manifest
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError, ArchiveLockedError, logger
from balance_analysis.table.moments import (
    Interval,
    Span,
    from_microseconds,
    iso_text,
    joined,
    to_intervals,
)
from balance_analysis.table.schema import BadRow, NetworkLimits
from balance_analysis.table.text import Record, list_text, spans_text, without_credentials

if TYPE_CHECKING:
    from balance_analysis.node.client import RequestStats

Kind = Literal["export", "import", "repair"]
Outcome = Literal["incomplete", "complete", "nothing new", "partial", "failed"]
MOST_CONFLICTS: Final = 100
"""Maximum conflicting rows in a report; the archive holds the newer ones."""

KEPT: Final = 400
"""Number of reports to keep, the newest ones."""

_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
_REPORT: Final = re.compile(rf"{layout.RUNS}\d{{8}}T\d{{6}}\.\d{{6}}Z-[0-9a-f]{{6}}\.json")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(slots=True)
class Run(Record):
    """The record of one run: what it did to an archive.

    Attributes
    ----------
    id
        The name of the run's report in `_runs`, and of its bad rows in `_quarantine`. Ids sort by
        time.
    started, ended
        When the run began and ended (UTC); `ended` is `None` while it runs, or if it was killed.
    kind
        "export", "import" or "repair".
    outcome
        "incomplete" while it runs; then "complete"; "nothing new" if the archive already held all
        rows; "partial" if the run failed or was interrupted, but committed something; "failed" if
        it committed nothing.
    error
        Why the run failed.
    spans
        The intervals that it asked for: pairs of start and end, datetimes in UTC.
    committed
        The intervals that it committed, as `spans`.
    rows
        Number of rows that the archive didn't hold.
    conflicts
        Number of the archive's rows that were received again with another balance, which replaced
        the old one, or weren't received again.
    conflicting_rows
        These rows as they were before, at most `MOST_CONFLICTS`; balances and moments as text.
    bad_rows
        Number of rows that the table can't hold; they are set aside.
    damaged
        Files of the archive that are missing or damaged.
    requests, seconds
        Number of requests, and duration.
    source, block_height
        The node, and its last block.
    coverage_end
        The end of the archive's last covered interval (UTC); `None` if nothing is covered.
    lagging
        Whether no node has all rows up to the archive's end yet.
    query
        The accounts that the archive is bound to, and the period of a file.
    """

    id: str = field(default_factory=lambda: f"{_now():{_STAMP}}-{secrets.token_hex(3)}")
    started: dt.datetime = field(default_factory=_now)
    kind: Kind = "export"
    ended: dt.datetime | None = None
    outcome: Outcome = "incomplete"
    error: str | None = None
    spans: list[Interval] = field(default_factory=list)
    committed: list[Interval] = field(default_factory=list)
    rows: int = 0
    conflicts: int = 0
    conflicting_rows: list[dict[str, str]] = field(default_factory=list)
    bad_rows: int = 0
    damaged: list[str] = field(default_factory=list)
    requests: int = 0
    seconds: float = 0.0
    source: str = ""
    block_height: int | None = None
    coverage_end: dt.datetime | None = None
    lagging: bool = False
    query: BoundQuery | None = None

    @property
    def is_success(self) -> bool:
        """Whether the run did everything that it was asked to do."""
        return self.outcome in {"complete", "nothing new"}

    def _title(self) -> str:
        return "A repair" if self.kind == "repair" else f"An {self.kind}"

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield "run", self.id
        yield "outcome", self.outcome
        yield "asked for", spans_text(self.spans) or "nothing"
        yield "committed", spans_text(self.committed) or "nothing"
        yield "new rows", self.rows
        yield "conflicts", self.conflicts
        yield "bad rows", self.bad_rows
        yield "damaged files", list_text(self.damaged) or "none"
        yield "requests", self.requests
        yield "node", self.source or "unknown"
        yield "block height", "unknown" if self.block_height is None else self.block_height
        yield "started", self.started


@dataclass(slots=True)
class RunWriter:
    """Keep a run's record up to date, and write its files.

    Attributes
    ----------
    store
        The archive's files.
    record
        The run's record.
    stats
        Statistics of the run's requests, or `None` if it sends no requests.
    bad_rows
        The rows that were set aside.
    limits
        The network's limits, or `None` if the node has none.
    """

    store: Store
    record: Run
    stats: RequestStats | None = None
    bad_rows: dict[BadRow, None] = field(default_factory=dict)
    limits: NetworkLimits | None = None

    def note_asked(self, spans: Iterable[Span]) -> None:
        """Record stretches that the run asks for."""
        self.record.spans += to_intervals(spans)

    def note_committed(self, spans: Iterable[Span]) -> None:
        """Record stretches that the run has committed."""
        self.record.committed = joined([*self.record.committed, *to_intervals(spans)])

    def note_conflicts(self, rows: pa.Table) -> None:
        """Record rows of the archive that the node sent with another balance, or didn't send."""
        self.record.conflicts += rows.num_rows
        room = MOST_CONFLICTS - len(self.record.conflicting_rows)
        self.record.conflicting_rows += [
            {**row, "timestamp": row["timestamp"].isoformat(), "balance": str(row["balance"])}
            for row in rows.slice(0, room).to_pylist()
        ]

    def note_requests(self) -> None:
        """Record how many requests were sent."""
        self.record.requests = self.stats.requests if self.stats else 0

    def write_bad_rows(self, rows: Iterable[BadRow]) -> None:
        """Write rows that the table can't hold to a file: JSON lines with raw row and reason."""
        self.bad_rows |= dict.fromkeys(rows)
        if self.record.bad_rows == len(self.bad_rows):
            return
        self.record.bad_rows = len(self.bad_rows)
        lines = [
            {
                "row": bad.raw,
                "reason": bad.reason,
                "timestamp": None if bad.time is None else iso_text(bad.time, "microseconds"),
            }
            for bad in self.bad_rows
        ]
        name = f"{layout.QUARANTINE}{self.record.id}.jsonl"
        self.store.write(name, msgspec.json.Encoder().encode_lines(lines))

    @contextlib.contextmanager
    def noting_damage(self, name: str) -> Iterator[None]:
        """Record an ArchiveError in the block as a damaged file, without failing the run."""
        try:
            yield
        except ArchiveError as error:
            self.record.damaged.append(name)
            logger.warning("%s", error)

    @contextlib.contextmanager
    def reported(self, writer: Writer, on_report: Callable[[Run], object] | None) -> Iterator[None]:
        """Write the run's report when the block begins and when it ends.

        Parameters
        ----------
        writer
            The archive's writer.
        on_report
            Called with the record when the run begins, and when it has succeeded or failed.

        Raises
        ------
        OSError
            If the report can't be written, unless the run failed anyway.
        """
        run, report = self.record, on_report or (lambda _: None)
        run.query, before = writer.manifest.query, writer.manifest.evidence
        self._write(writer.manifest)
        report(run)
        try:
            yield
        except BaseException as error:
            run.outcome = "partial" if writer.manifest.evidence != before else "failed"
            text = str(error) or type(error).__name__
            is_stopped = isinstance(error, KeyboardInterrupt)
            run.error = "interrupted" if is_stopped else without_credentials(" ".join(text.split()))
            try:
                self._end(writer.manifest)
            except (OSError, ArchiveLockedError) as other:
                logger.warning("the run's report can't be written: %s", other)
            raise
        else:
            has_news = run.rows or run.conflicts or run.bad_rows or run.kind == "repair"
            run.outcome = "complete" if has_news else "nothing new"
            self._end(writer.manifest)
        finally:
            report(run)

    def _end(self, manifest: Manifest) -> None:
        """Write the final report, and delete the oldest runs' reports."""
        self.record.ended = _now()
        seconds = (self.record.ended - self.record.started).total_seconds()
        self.record.seconds = round(seconds, 3)
        self._write(manifest)
        try:
            for name in _report_names(self.store)[KEPT:]:
                self.store.delete(name)
        except (OSError, ArchiveError) as error:
            logger.warning("the reports of old runs can't be deleted: %s", error)

    def _write(self, manifest: Manifest) -> None:
        run, evidence = self.record, manifest.evidence
        self.note_requests()
        run.coverage_end = from_microseconds(evidence.bounds[1]) if evidence.answers else None
        self.store.write(f"{layout.RUNS}{run.id}.json", f"{run.to_json()}\n".encode())


def iter_reports(store: Store) -> Iterator[Run]:
    """Yield an archive's runs from their reports, newest first; skip damaged reports."""
    for name in _report_names(store):
        try:
            report = msgspec.json.decode(store.read(name) or b"", type=Run)
        except (ValueError, RecursionError, ArchiveError, OSError) as error:
            logger.warning("%s/%s is damaged (%s): remove it", store.uri, name, error)
        else:
            yield report


def last_success(store: Store) -> Run | None:
    """Return the last successful export, or `None`."""
    return next((x for x in iter_reports(store) if x.kind == "export" and x.is_success), None)


def _report_names(store: Store) -> list[str]:
    return sorted(filter(_REPORT.fullmatch, store.names(layout.RUNS)), reverse=True)
