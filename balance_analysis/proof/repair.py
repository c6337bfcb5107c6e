"""Mend an archive: ask a node again for the periods whose files are damaged.

Rows of a damaged file are not trusted. Its period is asked for again, all of it that was answered
before, and its file is replaced whole. Where that gives the very bytes that were written once,
nothing else changes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, merge_rows, moments_of
from balance_analysis.archive.datafile import Footer, decode_rows, encode_rows, read_footer
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    Query,
    parse,
    read_manifest,
    to_bytes,
)
from balance_analysis.archive.runs import Run, RunWriter, iter_reports, keep_bad_rows, reported
from balance_analysis.archive.snapshot import File
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, NetworkMismatchError, logger
from balance_analysis.evidence import Answer, Evidence, Node, between_all
from balance_analysis.files.atomic import PathLike
from balance_analysis.load.source import NodeSource
from balance_analysis.node.client import Client, check_client
from balance_analysis.proof.compare import interval_of, steps_of
from balance_analysis.proof.verify import VerifyReport, check_file, verify_store
from balance_analysis.rows import canonical, within
from balance_analysis.schema import ARROW_SCHEMA, Instant
from balance_analysis.spans import Span, overlap
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
        Those of them whose file was replaced.
    changed
        Those of these whose rows are others now than the manifest said.
    bad_rows
        How many rows that the table can't hold were kept aside.
    is_rebuilt
        Whether the manifest was lost or damaged, and is made again from the files: all of it is
        unproven.
    left
        What is wrong with the archive still; strangers are never deleted.
    """

    periods: tuple[str, ...]
    rewritten: tuple[str, ...]
    changed: tuple[str, ...]
    bad_rows: int
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

    The periods of files that are damaged, missing or wrong are asked for again. Checkpoints are
    made again from sound files, and a manifest that is lost or damaged from the files: then all is
    unproven, until `export` fills gaps. Files that are no part of the archive stay.

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
        stays as it is, and so do later ones. Also if no run's report says which accounts an archive
        without a manifest is bound to.
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
    wanted = None if start is None and end is None else interval_of(start, end)
    store, run = to_store(archive), RunWriter(Run(kind="repair"))
    sizes: Any = {"page_size": page_size, "workers": workers}
    with contextlib.suppress(ArchiveDamagedError):
        read_manifest(store)  # what is no archive gets no lock
    with one_writer(store):
        is_rebuilt = _rebuild(store)
        writer = Writer(store)
        with reported(store, writer, run, on_report):
            writer.recover()
            found = left = verify_store(store, is_writer=True)
            damaged = {period for problem in found.problems for period in problem.periods}
            repairing = _Repair(client, store, writer, run, sizes, damaged)
            periods = repairing.mend_all(wanted)
            if periods or found.problems:
                # All files up to the first gap are sound by now.
                writer.amend(replace(writer.manifest, checkpoints={}))
                writer.checkpoint()
                left = verify_store(store, is_writer=True)
    changed, rewritten = tuple(repairing.changed), tuple(repairing.rewritten)
    return Repaired(tuple(periods), rewritten, changed, run.record.bad_rows, is_rebuilt, left)


@dataclass(slots=True)
class _Repair:
    """Periods that are asked for again.

    Attributes
    ----------
    sizes
        The page size and the number of workers.
    damaged
        Periods whose files are wrong.
    rewritten, changed
        Those whose file was replaced, and those that have other rows now.
    """

    client: Client
    store: Store
    writer: Writer
    run: RunWriter
    sizes: Any
    damaged: set[str]
    rewritten: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def mend_all(self, wanted: Span | None) -> list[str]:
        """Ask for all periods again that are wrong or wanted, and return them in time order."""
        manifest = self.writer.manifest
        spans = overlap(manifest.evidence.answered, [wanted] if wanted else [])
        names = (layout.periods_between(*span, manifest.partition) for span in spans)
        periods = sorted(self.damaged.union(*names))
        for period in periods:
            self._mend(period)
        return periods

    def _mend(self, period: str) -> None:
        """Ask for all of a period again that was answered, and put its rows in place."""
        manifest, source = self.writer.manifest, self._source()
        note, bounds = manifest.files.get(period), layout.period_bounds(period, manifest.partition)
        spans = overlap(manifest.evidence.answered, [bounds])
        batches: list[pa.RecordBatch] = []
        for span in spans:
            self.run.asks(*span)
            for step in steps_of(source, *span):
                batches += step.batches
                self.run.sets_aside(step.bad_rows)
        self.run.record.source, self.run.record.block_height = self.client.base_url, source.height
        rows = canonical(pa.Table.from_batches(batches, ARROW_SCHEMA))
        content, new = encode_rows(rows) if rows.num_rows else (b"", None)
        is_same = note == new
        if not is_same:
            proof = source.evidence()
            self._check(period, spans, new, proof, source.incomplete)
        if self.run.bad_rows:
            keep_bad_rows(self.store, self.run)
        if new is not None and not is_same:
            self._replace(period, rows, (content, new), proof)
        elif new is not None and period in self.damaged:
            self.store.write(manifest.changes_file(period), content)
        if period in self.damaged or not is_same:
            self.rewritten.append(period)
        for span in spans:
            self.run.commits(*span)

    def _source(self) -> NodeSource:
        filters = self.writer.manifest.evidence.filters
        on_bad_rows: Any = defaults.ON_BAD_ROWS
        stats = self.run.stats
        return NodeSource(self.client, filters, on_bad_rows=on_bad_rows, stats=stats, **self.sizes)

    def _replace(
        self, period: str, rows: pa.Table, made: tuple[bytes, FileEntry], proof: Evidence
    ) -> None:
        """Replace a period's file by one of other rows, and what is proven of it."""
        manifest = self.writer.manifest
        bounds = layout.period_bounds(period, manifest.partition)
        others = [bounds]
        if period not in self.damaged:
            merged = merge_rows(self.writer.rows_of(period), rows, *bounds)
            if merged.conflicts.num_rows:
                self.run.replaces(canonical(merged.conflicts))
            others = moments_of(pa.concat_tables([merged.added, merged.conflicts]))
        evidence = (manifest.evidence | proof).without_agreement(others)
        self.changed.append(period)
        logger.warning("%s now has other rows than before", manifest.changes_file(period))
        self.writer.put(period, made, evidence)

    def _check(
        self,
        period: str,
        spans: list[Span],
        new: FileEntry | None,
        proof: Evidence,
        incomplete: list[Span],
    ) -> None:
        """Raise if the node can't know all that a period had, or isn't of the archive's network."""
        manifest = self.writer.manifest
        note = manifest.files.get(period)
        held = [] if note is None else [(note.first, note.last + 1)]
        needed = [*overlap(manifest.evidence.complete, spans), *overlap(held, spans)]
        lost = between_all(needed, replace(proof, set_aside=()).complete)
        if lost:
            begin = lost[0][0]
            ends = [end for _, end in proof.answered]
            if begin >= max(ends, default=begin):
                raise self._refusal(period, "doesn't hold all of it yet")
            if overlap(incomplete, lost):
                raise self._refusal(period, "says itself that it may lack rows of it")
            raise ArchiveError(
                f"{self.store.uri}: {period} can't be asked for again: {self.client.base_url} may "
                f"have forgotten rows before {moment_text(lost[-1][1])}; ask a node that remembers "
                "more, or put back a copy of the file"
            )
        if note is not None and new is None:
            why = f"sends none of its {note.rows} rows; it is of another network, or has lost them"
            raise self._refusal(period, why, NetworkMismatchError)
        if _extent(new) != _extent(note) and not self._knows_neighbour(period):
            why = "sends no row that the archive holds; it may be of another network"
            raise self._refusal(period, why, NetworkMismatchError)

    def _knows_neighbour(self, period: str) -> bool:
        """Return whether the node has a last row of the sound files next to a period."""
        files, partition = self.writer.manifest.files, self.writer.manifest.partition
        begin, _ = layout.period_bounds(period, partition)
        sound = files.keys() - self.damaged - {period}
        others = sorted(sound, key=lambda x: abs(files[x].last - begin))
        for other in others[:_NEIGHBOURS]:
            last = files[other].last
            steps = self._source().rows(last, last + 1)
            new = pa.Table.from_batches([x for step in steps for x in step.batches], ARROW_SCHEMA)
            known = within(self.writer.rows_of(other), last, last + 1)
            if merge_rows(known, new, last, last + 1).absent.num_rows < known.num_rows:
                return True
        return False

    def _refusal(
        self, period: str, why: str, kind: type[ArchiveError] = ArchiveError
    ) -> ArchiveError:
        return kind(f"{self.store.uri}: {period} stays as it is: {self.client.base_url} {why}")


def _extent(note: FileEntry | None) -> tuple[int, int, int] | None:
    return None if note is None else (note.rows, note.first, note.last)


def _rebuild(store: Store) -> bool:
    """Write the manifest again from the files if it is lost or damaged; return whether it was.

    The rows are kept. That none are missing can't be known from them, so all is unproven. Files
    that are damaged are left out. The old manifest is kept aside.
    """
    old = store.read(layout.MANIFEST)
    try:
        parse(store, old)
    except ArchiveDamagedError as error:
        query = next((run.query for run in iter_reports(store) if run.query is not None), None)
        if query is None:
            raise ArchiveDamagedError(
                f"{store.uri}: no run's report says which accounts it is bound to, so its manifest "
                "can't be made again; put back a copy of it"
            ) from error
    else:
        return False
    logger.warning(
        "%s/%s is damaged; it is made again from the files, and none of it is proven",
        store.uri,
        layout.MANIFEST,
    )
    files = dict(_sound_files(store, query))
    if old is not None:
        store.write(f"{layout.QUARANTINE}{layout.MANIFEST}", old)
    evidence = Evidence(query.filters)
    for span in _spans(files, query):
        answer = Answer(span, Node("unknown"), (0, 0), reached=False)
        evidence |= Evidence(query.filters, (answer,))
    store.write(layout.MANIFEST, to_bytes(Manifest(query.partition, evidence, files)))
    return True


def _sound_files(store: Store, query: Query) -> Iterator[tuple[str, FileEntry]]:
    for name in store.names(layout.CHANGES):
        period = layout.period_named(name, query.partition)
        if period is None:
            continue
        bounds, note = layout.period_bounds(period, query.partition), _note(store.read(name) or b"")
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


def _spans(files: dict[str, FileEntry], query: Query) -> list[Span]:
    """Return the stretches of time of the files, those of neighbouring periods as one."""
    spans: list[Span] = []
    reached = None
    for period, note in files.items():
        begin, stop = layout.period_bounds(period, query.partition)
        start = spans.pop()[0] if reached == begin else note.first
        spans.append((start, note.last + 1))
        reached = stop
    return spans
