"""Mend an archive: ask a node again for the periods whose files are damaged.

Rows of a damaged file are not trusted. Its period is asked for again, all of it that was answered
before, and its file is replaced whole. Where that gives the very bytes that were written once,
nothing else changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, merge_rows
from balance_analysis.archive.datafile import (
    NO_ROWS,
    Footer,
    decode_rows,
    encode_rows,
    entry_of,
    read_footer,
)
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import FileEntry, Manifest, parse, read_manifest, to_bytes
from balance_analysis.archive.runs import Run, RunWriter, iter_reports
from balance_analysis.archive.sidecars import parse_limits
from balance_analysis.archive.snapshot import interval_of
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, NetworkMismatchError, logger
from balance_analysis.files.atomic import DAMAGES, PathLike
from balance_analysis.fill.export import has_rows
from balance_analysis.load.source import NodeSource
from balance_analysis.node.client import Client, RequestStats, check_client
from balance_analysis.proof.verify import VerifyReport, find_wrong_rows, verify
from balance_analysis.table.evidence import Answer, Evidence, Node, Verdicts
from balance_analysis.table.rows import canonical, within
from balance_analysis.table.schema import ARROW_SCHEMA, Instant
from balance_analysis.table.spans import Span, between_all, clipped, joined, overlap
from balance_analysis.table.text import spans_text


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did.

    Attributes
    ----------
    periods
        Those that were asked for again and are whole now.
    changed
        Those of them whose rows are others now than the manifest said.
    bad_rows
        How many rows that the table can't hold were kept aside.
    is_rebuilt
        Whether the manifest was lost or damaged, and is made again from the files: all of it is
        unproven.
    left
        What is wrong with the archive still; strangers are never deleted.
    """

    periods: tuple[str, ...]
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
    unproven, until `export` fills gaps, and what a node has ever disputed is disputed again. Files
    that are no part of the archive stay.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        The archive, or its path.
    start, end
        Ask again for the periods in this interval too, sound or not: for what differs from a node.
        A sound file keeps its rows at a moment at which the node sends a bad row.
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
    wanted = [] if start is None and end is None else [interval_of(start, end)]
    store, changed = to_store(archive), list[str]()
    run = RunWriter(store, Run(kind="repair"), stats=RequestStats())
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": defaults.ON_BAD_ROWS}
    with contextlib.suppress(ArchiveDamagedError):
        read_manifest(store)  # only an archive gets a lock
    with one_writer(store):
        is_rebuilt, writer = _rebuild(store), Writer(store)
        with run.reported(writer, on_report):
            writer.recover()
            left = verify(store)
            damaged = {period for problem in left.problems for period in problem.periods}
            evidence, partition = writer.manifest.evidence, writer.manifest.partition
            spans = overlap(evidence.answered, wanted)
            named = (layout.periods_between(*span, partition) for span in spans)
            periods = sorted(damaged.union(*named))
            for period in periods:
                source = NodeSource(client, evidence.filters, stats=run.stats, **sizes)
                if _mend(period, source, writer, run, damaged):
                    changed.append(period)
            if periods or left.problems:
                # All files up to the first gap are sound by now.
                writer.amend(replace(writer.manifest, checkpoints={}))
                writer.checkpoint()
                left = verify(store)
    return Repaired(tuple(periods), tuple(changed), run.record.bad_rows, is_rebuilt, left)


def _mend(
    period: str, source: NodeSource, writer: Writer, run: RunWriter, damaged: set[str]
) -> bool:
    """Ask for all that was answered of a period, and put it in place; return whether it is other.

    Raises
    ------
    ArchiveError
        If the node can't know all that the period had.
    NetworkMismatchError
        If it isn't of the archive's network.
    """
    manifest, bounds = writer.manifest, layout.period_bounds(period, writer.manifest.partition)
    spans, note = overlap(manifest.evidence.answered, [bounds]), manifest.files.get(period)
    run.asks(spans)
    steps = [step for span in spans for step in source.known_rows(*span)]
    run.sets_aside(bad for step in steps for bad in step.bad_rows)
    run.record.source, run.record.block_height = source.client.base_url, source.height
    batches = [batch for step in steps for batch in step.batches]
    held = NO_ROWS if period in damaged else writer.rows_of(period)
    # A row that the node sends spoilt is no reason to lose a sound one.
    doubtful = [aside.span for step in steps for aside in step.set_aside]
    kept = [within(held, *span) for span in joined(doubtful)]
    rows = canonical(pa.Table.from_batches(batches, ARROW_SCHEMA))
    rows = merge_rows(pa.concat_tables([NO_ROWS, *kept]), rows, *bounds).rows
    content, new = encode_rows(rows) if rows.num_rows else (b"", None)
    if new == note:
        if new is not None:
            writer.store.write(manifest.changes_file(period), content)
    else:
        conflicts = merge_rows(held, rows, *bounds).conflicts
        proof, url = source.evidence(), source.client.base_url
        stays = f"{writer.store.uri}: {period} stays as it is: {url}"
        had = [] if note is None else [(note.first, note.last + 1)]
        needed = overlap([*manifest.evidence.complete, *had], spans)
        if lost := between_all(needed, proof.reached):
            raise ArchiveError(
                f"{stays} doesn't vouch for {spans_text(lost)}: it may have forgotten rows, "
                "doesn't hold all of it yet, or says itself that it may lack rows; ask a node that "
                "reaches over it, or put back a copy of the file"
            )
        is_known = _extent(new) == _extent(note) or conflicts.num_rows < held.num_rows
        if not (new and (is_known or _knows_another(source, writer, {*damaged, period}))):
            raise NetworkMismatchError(
                f"{stays} sends no row that the archive holds: it is of another network, or has "
                "lost rows"
            )
        run.replaces(canonical(conflicts))
        logger.warning("%s now has other rows than before", manifest.changes_file(period))
        evidence = manifest.evidence.updated(proof).without_agreements([bounds])
        writer.put(period, (content, new), evidence)
    run.commits(spans)
    return new != note


def _knows_another(source: NodeSource, writer: Writer, wrong: set[str]) -> bool:
    """Return whether the node has a row of the archive's sound files; see `has_rows`."""
    sound, files = Writer(writer.store), writer.manifest.files.items()
    others = {period: note for period, note in files if period not in wrong}
    sound.manifest = replace(writer.manifest, files=others)
    return bool(others) and has_rows(source, sound, source.urls[0])


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
    where = f"{store.uri}/{layout.MANIFEST}"
    logger.warning("%s is damaged; it is made again, and nothing is proven", where)
    files, spans = dict[str, FileEntry](), list[Span]()
    for name in store.names(layout.CHANGES):
        if (period := layout.period_named(name, query.partition)) is not None:
            bounds = layout.period_bounds(period, query.partition)
            try:
                files[period] = _sound_entry(store.read(name) or b"", bounds)
                spans.append(bounds)
            except (pa.ArrowException, OSError, ValueError, LookupError) as error:
                logger.warning("%s/%s is left out: it %s", store.uri, name, error)
    if old is not None:
        store.write(f"{layout.QUARANTINE}{layout.MANIFEST}", old)
    ends = [moment for note in files.values() for moment in (note.first, note.last + 1)]
    known = clipped(joined(spans), min(ends, default=0), max(ends, default=0))
    answers = (Answer(span, Node("unknown"), (0, 0), reached=False) for span in known)
    evidence = Evidence(query.filters, tuple(answers), disputed=_disputes_in(store))
    limits, content = None, store.read(layout.LIMITS)
    with contextlib.suppress(*DAMAGES):
        limits = content and entry_of(content, parse_limits(content)["first_seen"])
    manifest = Manifest(query.partition, evidence, files, limits=limits or None)
    store.write(layout.MANIFEST, to_bytes(manifest))
    return True


def _disputes_in(store: Store) -> Verdicts:
    """Return what the files that `confirm` wrote of differences say: which node disputes when."""
    verdicts: Verdicts = ()
    for name in store.names(layout.DISPUTES):
        try:
            content = msgspec.json.decode(store.read(name) or b"")
            verdicts += msgspec.convert(content["disputed"], Verdicts)
        except (ValueError, LookupError, TypeError) as error:
            logger.warning(
                "%s/%s can't be read, so it disputes nothing: %s", store.uri, name, error
            )
    return tuple(dict.fromkeys(verdicts))


def _sound_entry(content: bytes, bounds: Span) -> FileEntry:
    """Return the entry of a period's file; one of several errors if it isn't as it was written."""
    rows = decode_rows(content)
    again, _ = encode_rows(rows)
    footers = [read_footer(pa.BufferReader(each)) for each in (content, again)]
    # The same rows give the same bytes, unless another release of pyarrow wrote them. Checksums
    # alone don't show all damage: they leave out headers and indexes.
    writers = {Footer(each).metadata.created_by for each in footers}
    if again != content and len(writers) == 1:
        raise ValueError("is not what was written")
    entry = entry_of(content, rows["timestamp"])
    if wrong := find_wrong_rows(canonical(rows, sort=False), entry, bounds, [bounds]):
        raise ValueError(wrong)
    return entry
