"""Mend an archive: export the periods again whose files are damaged.

What a damaged file still holds is not trusted: its period is asked for anew, all of what the
coverage says was asked for, and its file is replaced whole. Where that gives the very bytes that
were written once, nothing else changes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import (
    Coverage,
    FileEntry,
    Interval,
    LimitsNote,
    contradictions,
    to_json,
)
from balance_analysis.archive.datafile import NO_ROWS, Footer, decode_rows, encode_rows, read_footer
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import read_about
from balance_analysis.archive.runs import Run, RunWriter, iter_reports, reported
from balance_analysis.archive.scan import File
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.archive.status import VerifyReport
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, NetworkMismatchError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.ingest.continuity import Continuity, ask_latest_block, load_steps
from balance_analysis.ingest.executor import LoadedPeriod, make_period
from balance_analysis.ingest.span import SpanWriter
from balance_analysis.load.request import LoadRequest, make_request
from balance_analysis.maintenance.verify import check_file, verify_store
from balance_analysis.node.client import Client, check_client
from balance_analysis.node.walk import Step
from balance_analysis.rows import BadRow
from balance_analysis.schema import Instant
from balance_analysis.spans import Span, clipped, joined
from balance_analysis.text import moment_text

_NEIGHBOURS: Final = 3
"""How many sound files are compared with a node, to see whether it is of the same network."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did.

    Attributes
    ----------
    periods
        Those that were asked for again and are whole now.
    rewritten
        Those of them whose file was put in its place anew.
    changed
        Those of these whose rows are others now than the coverage said.
    bad_rows
        Rows that the table can't hold, kept aside.
    is_rebuilt
        Whether the coverage was lost, or contradicted itself, and is made anew from the files:
        unproven, all of it.
    left
        What is wrong with the archive still; strangers are never deleted.
    """

    periods: tuple[str, ...]
    rewritten: tuple[str, ...]
    changed: tuple[str, ...]
    bad_rows: tuple[BadRow, ...]
    is_rebuilt: bool
    left: VerifyReport


def repair(
    client: Client,
    archive: Stored | PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    page_size: int = defaults.PAGE_SIZE,
    workers: int = defaults.WORKERS,
    on_report: Callable[[Run], object] | None = None,
) -> Repaired:
    """Mend what `Archive.verify` finds wrong, with the help of a node.

    The periods of files that are damaged, missing or wrong are asked for again; checkpoints are
    made anew from sound files, a lost timeline of the limits from the reports of the runs, and a
    coverage that is lost or contradicts itself from the files: then all is unproven, until `export`
    fills gaps. Files that are no part of the archive stay.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        The archive, or its path.
    start, end
        Ask again for the periods in this interval too, sound or not: for what differs from a node.
    page_size, workers
        As for `load_balance_changes`.
    on_report
        As for `export`.

    Returns
    -------
    Repaired
        What was mended, and what is left.

    Raises
    ------
    ArchiveError
        If there is no archive, or the node has forgotten, doesn't hold yet, or is of another
        network than (NetworkMismatchError), what would have to be asked for: then the period's file
        stays as it is, and so do later ones.
    ArchiveLockedError
        If another run is writing to the archive.
    RequestError, DecodeError, IncompleteError, CheckError
        As `load_balance_changes`. What was mended before stays.
    ValueError
        If `start` is not before `end`.
    OSError
        If a file can't be written.
    """
    check_client(client)
    store, run = to_store(archive), RunWriter()
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": defaults.ON_BAD_ROWS}
    request = make_request(start, end, filters=read_about(store).filters, **sizes)
    wanted = (0, 0) if start is None and end is None else (request.start or 0, request.end)
    with one_writer(store):
        is_rebuilt = _rebuild_coverage(store)
        writer = Writer(store)
        with reported(store, writer, run, on_report, kind="repair"):
            writer.recover()
            found = left = verify_store(store, is_writer=True)
            if any(problem.kind == "limits" for problem in found.problems):
                _restore_limits(store, writer)
            damaged = {period for problem in found.problems for period in problem.periods}
            repairing = _Repair(client, store, writer, run, request, damaged)
            periods = repairing.mend_all(wanted)
            if periods or found.problems:
                # All files up to the first gap are sound by now.
                writer.amend(replace(writer.state, checkpoints={}))
                writer.checkpoint()
                left = verify_store(store, is_writer=True)
    return Repaired(
        tuple(periods),
        tuple(repairing.rewritten),
        tuple(repairing.changed),
        tuple(run.bad_rows),
        is_rebuilt,
        left,
    )


def _restore_limits(store: Store, writer: Writer) -> None:
    """Make the timeline of the limits anew from what the runs have reported."""
    runs = sorted(iter_reports(store), key=lambda report: report.id)
    known = writer.state.snapshots
    writer.restore_limits([report.limits for report in runs if report.limits is not None])
    if writer.state.snapshots < known:
        held = writer.state.snapshots
        logger.warning("the reports of the runs hold only %s of the %s snapshots", held, known)


@dataclass(slots=True)
class _Repair:
    """Periods being asked for again.

    Attributes
    ----------
    damaged
        Those whose files are wrong.
    rewritten, changed
        Those whose file was put in its place anew, and those that came out otherwise.
    """

    client: Client
    store: Store
    writer: Writer
    run: RunWriter
    request: LoadRequest
    damaged: set[str]
    rewritten: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def mend_all(self, wanted: Span) -> list[str]:
        """Ask for all periods again that are wrong or wanted, and return them in time order."""
        covered = (interval.span for interval in self.writer.state.intervals)
        partition = self.writer.about.partition
        periods = self.damaged.union(
            *(layout.periods_between(*span, partition) for span in clipped(covered, *wanted))
        )
        if periods:
            # What the archive holds ends with a last block only where that is finished.
            self.run.finished = ask_latest_block(self.client, self.run)
            with closing(Continuity(self.client, self.request, self.run.stats)) as continuity:
                for period in sorted(periods):
                    self._mend(period, continuity)
        return sorted(periods)

    def _mend(self, period: str, continuity: Continuity) -> None:
        """Ask for a period again, all that is covered of it, and put its rows in place."""
        name = layout.changes_file(period, self.writer.about.partition)
        note, spans = self.writer.state.files.get(period), self._covered(period)
        part = self._load(period, spans)
        if part.note != note:
            self._check_node(period, part, continuity)
            self.changed.append(period)
            logger.warning("%s now has other rows than before", name)
            span = (part.start, part.end)
            SpanWriter(self.store, self.writer, self.run, continuity, *span).take(part)
        elif period in self.damaged and part.content is not None:
            self.store.write(name, part.content)
        if part.note != note or period in self.damaged:
            self.rewritten.append(period)
        for each in spans:
            self.run.commits(*each)
        logger.info("%s is whole again", name)

    def _load(self, period: str, spans: list[Span]) -> LoadedPeriod:
        """Return what a node says now of a period."""
        steps: list[Step] = []
        proven = self._covered(period, is_proven=True)
        for start, end in spans:
            request = replace(self.request, start=start, end=end)
            found = list(load_steps(self.client, request, self.run))
            self.run.asks(start, end)
            if found[-1].end < end:
                raise self._refusal(period, "doesn't hold all of it yet")
            if any([*clipped(proven, *span)] for step in found for span in step.incomplete):
                raise self._refusal(period, "says itself that it may lack rows of it")
            self.run.sets_aside(bad for step in found for bad in step.bad_rows)
            steps += found
        # What a wrong file holds is not trusted: these are all of its rows, and none is new.
        return replace(make_period(NO_ROWS, steps, spans[0][0], spans[-1][1]), added=0)

    def _check_node(self, period: str, part: LoadedPeriod, continuity: Continuity) -> None:
        """Raise if the node has forgotten rows of a period, or has none that the archive holds."""
        note, files = self.writer.state.files.get(period), self.writer.state.files
        noted = [] if note is None else [*clipped(self._covered(period), note.first, part.end)]
        needed = [start for start, _ in [*self._covered(period, is_proven=True), *noted]]
        for source in {step.source for step in part.steps}:
            retention_start = continuity.retention_start(source, part.start, part.end)
            if min(needed, default=part.end) < retention_start:
                raise ArchiveError(
                    f"{self.store.uri}: {period} can't be asked for again: {source} may have "
                    f"forgotten rows before {moment_text(retention_start)}; ask a node that "
                    "remembers more, or put back a copy of the file"
                )
        if part.note is None and note is not None:
            why = f"sends none of its {note.rows} rows; it is of another network, or has lost them"
            raise self._refusal(period, why, NetworkMismatchError)
        if _extent(part.note) == _extent(note):
            return
        near = sorted(
            files.keys() - self.damaged - {period}, key=lambda x: abs(files[x].last - part.start)
        )
        if not any(continuity.has(self.writer.rows_of(each)) for each in near[:_NEIGHBOURS]):
            why = "sends no row that the archive holds; it may be of another network"
            raise self._refusal(period, why, NetworkMismatchError)

    def _refusal(
        self, period: str, why: str, kind: type[ArchiveError] = ArchiveError
    ) -> ArchiveError:
        node = self.client.base_urls[0]
        return kind(f"{self.store.uri}: {period} stays as it is: {node} {why}")

    def _covered(self, period: str, *, is_proven: bool = False) -> list[Span]:
        """Return what of a period is covered, or proven to be complete."""
        intervals, partition = self.writer.state.intervals, self.writer.about.partition
        spans = (each.span for each in intervals if each.proven or not is_proven)
        return joined(clipped(spans, *layout.period_bounds(period, partition)))


def _extent(note: FileEntry | None) -> tuple[int, int, int] | None:
    return None if note is None else (note.rows, note.first, note.last)


def _rebuild_coverage(store: Store) -> bool:
    """Write the coverage anew where it can't be read or contradicts itself; return whether it was.

    The rows are kept. That none are missing can't be known from them, so all is unproven. Files
    that are damaged are left out. What was there of the old coverage is kept aside.
    """
    partition = read_about(store).partition
    try:
        wrong = next(contradictions(read_snapshot(store).coverage, partition), None)
    except ArchiveDamagedError as error:
        wrong = str(error).partition(": put back")[0]
    if wrong is None:
        return False
    logger.warning("%s; the coverage is rebuilt from the files, and none of it is proven", wrong)
    files = dict(_sound_files(store, partition))
    old = store.read(layout.COVERAGE)
    if old is not None:
        store.write(f"{layout.QUARANTINE}{layout.COVERAGE}", old)
    # What the file of the limits is, if there is one, is noted when the archive is recovered.
    state = Coverage(tuple(_intervals(files, partition)), files, limits=LimitsNote(0))
    store.write(layout.COVERAGE, to_json(state))
    return True


def _sound_files(store: Store, partition: Partition) -> Iterator[tuple[str, FileEntry]]:
    for name in store.names(layout.CHANGES):
        period = layout.period_named(name, partition)
        if period is None:
            continue
        bounds, note = layout.period_bounds(period, partition), _note(store.read(name) or b"")
        wrong = "can't be read"
        if note is not None:
            wrong = check_file(store, File(name, (note,), *bounds, (bounds,))).wrong
            if not wrong:
                yield period, note
                continue
        logger.warning("%s/%s is left out: it %s", store.uri, name, wrong)


def _note(content: bytes) -> FileEntry | None:
    """Return what a file is; `None` where it can't be read, or is not what was written."""
    try:
        again, note = encode_rows(decode_rows(content))
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None
    # The same rows give the same bytes, unless another release wrote them, of pyarrow or of this
    # package. Its checksums alone don't tell all: they leave out headers and indexes.
    if again != content and (not note.rows or _writer_of(again) == _writer_of(content)):
        return None
    footer = hashlib.sha256(read_footer(pa.BufferReader(content))).hexdigest()
    digest = hashlib.sha256(content).hexdigest()
    return replace(note, size=len(content), sha256=digest, footer=footer)


def _writer_of(content: bytes) -> str:
    told = Footer(read_footer(pa.BufferReader(content))).metadata
    codecs = {told.row_group(0).column(at).compression for at in range(told.num_columns)}
    return f"{told.created_by} {sorted(codecs)}"


def _intervals(files: dict[str, FileEntry], partition: Partition) -> list[Interval]:
    """Return what the files reach over, those of neighbouring periods as one."""
    asked_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    intervals: list[Interval] = []
    reached = None
    for period, note in files.items():
        begin, stop = layout.period_bounds(period, partition)
        start = intervals.pop().start if reached == begin else note.first
        intervals.append(Interval(start, note.last + 1, False, "unknown", None, asked_at))
        reached = stop
    return intervals
