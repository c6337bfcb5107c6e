"""Repair an archive: ask a node again for the periods whose files are damaged.

A damaged file's rows aren't trusted: all answered parts of its period are asked for again, and the
whole file is replaced; a copy of the old one is kept. If the new file has the same bytes as the
original one, nothing else changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from balance_analysis import errors
from balance_analysis.archive import datafile, layout
from balance_analysis.archive.commit import Writer, merge_rows
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import FileEntry, Manifest, parse, read_manifest, to_bytes
from balance_analysis.archive.runs import Run, RunWriter, iter_reports
from balance_analysis.archive.sidecars import parse_limits
from balance_analysis.archive.snapshot import interval_of
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.files.atomic import DAMAGE_ERRORS, PathLike
from balance_analysis.fill import ON_BAD_ROWS
from balance_analysis.fill.export import has_rows
from balance_analysis.load import PAGE_SIZE, WORKERS
from balance_analysis.load.nodes import NodeSource
from balance_analysis.node.client import Client, RequestStats, check_client
from balance_analysis.proof.verify import VerifyReport, find_wrong_rows, verify
from balance_analysis.table import moments
from balance_analysis.table.evidence import Answer, Evidence, Node
from balance_analysis.table.schema import ARROW_SCHEMA, canonical, within
from balance_analysis.table.text import list_text, spans_text


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair.

    Attributes
    ----------
    periods
        Periods that were asked for again and are whole now.
    changed
        The periods that have other rows than before.
    bad_rows
        Number of rows that the table can't hold; they were set aside.
    is_rebuilt
        Whether the manifest was lost or damaged, and was rebuilt from the files; everything is then
        unproven.
    left
        The archive's remaining problems; files that aren't part of it are never deleted.
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
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
    page_size: int = PAGE_SIZE,
    workers: int = WORKERS,
    on_report: Callable[[Run], object] | None = None,
) -> Repaired:
    """Repair the problems that `Archive.verify` finds, with a node's help.

    Periods whose files are damaged, missing or wrong are asked for again. Checkpoints are rebuilt
    from sound files. A lost or damaged manifest is rebuilt from the files: everything is then
    unproven until `export` fills gaps, and all disputes ever recorded are open again. Files that
    aren't part of the archive stay, and `_quarantine/` keeps each file that is replaced.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        The archive, or its path.
    start, end
        Ask again for all periods in this interval too, even sound ones, for example where rows
        differ from a node's. A sound file keeps its rows at moments at which the node sends a bad
        row.
    page_size, workers
        As for `load_balance_changes`.
    on_report
        As for `export`.

    Returns
    -------
    Repaired
        The repaired periods, and the remaining problems.

    Raises
    ------
    ArchiveError
        If there is no archive; if its manifest is lost, and no run's report names the accounts that
        it is bound to; or if the node is of another network (NetworkMismatchError).
    ArchiveLockedError
        If another run is writing to the archive.
    IncompleteError
        If the node has forgotten rows of a period, or doesn't have all of it yet. The period's file
        then stays as it is, and all others are repaired first.
    RequestError, DecodeError, CheckError
        As `load_balance_changes`. Periods that were repaired before stay repaired.
    ValueError
        If `start` is not before `end`.
    OSError
        If a file can't be written.
    """
    check_client(client)
    wanted = [] if start is None and end is None else [interval_of(start, end)]
    store, changed, unproven = to_store(archive), list[str](), dict[str, errors.IncompleteError]()
    run = RunWriter(store, Run(kind="repair"), stats=RequestStats())
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": ON_BAD_ROWS}
    with contextlib.suppress(errors.ArchiveDamagedError):
        read_manifest(store)  # raises before a folder that isn't an archive gets a lock
    with one_writer(store):
        is_rebuilt, writer = _rebuild(store), Writer(store)
        with run.reported(writer, on_report):
            writer.recover()
            left = verify(store)
            damaged = {period for problem in left.problems for period in problem.periods}
            evidence, partition = writer.manifest.evidence, writer.manifest.partition
            spans = moments.overlap(evidence.answered, wanted)
            requested = (layout.periods_between(*span, partition) for span in spans)
            periods = sorted(damaged.union(*requested))
            for period in periods:
                source = NodeSource(client, evidence.filters, stats=run.stats, **sizes)
                try:
                    if _repair_period(period, source, writer, run, damaged):
                        changed.append(period)
                except errors.IncompleteError as error:
                    unproven[period] = error
            if unproven:
                (_, fault), *others = unproven.items()
                names = list_text([name for name, _ in others])
                also = f"; also left as they were: {names}" if others else ""
                raise errors.IncompleteError(f"{fault}{also}")
            if periods or left.problems:
                # All files up to the first gap are sound now.
                writer.write_manifest(replace(writer.manifest, checkpoints={}))
                writer.write_checkpoints()
                left = verify(store)
    return Repaired(tuple(periods), tuple(changed), run.record.bad_rows, is_rebuilt, left)


def _repair_period(
    period: str, source: NodeSource, writer: Writer, run: RunWriter, damaged: set[str]
) -> bool:
    """Ask again for a period's answered parts, and replace its file; return whether it changed.

    Raises
    ------
    IncompleteError
        If the node may lack rows that the period had.
    NetworkMismatchError
        If the node isn't of the archive's network.
    """
    manifest, bounds = writer.manifest, layout.period_bounds(period, writer.manifest.partition)
    spans, entry = moments.overlap(manifest.evidence.answered, [bounds]), manifest.files.get(period)
    run.note_asked(spans)
    steps = [step for span in spans for step in source.known_rows(*span)]
    run.write_bad_rows(bad for step in steps for bad in step.bad_rows)
    run.record.source, run.record.block_height = source.client.base_url, source.height
    batches = [batch for step in steps for batch in step.batches]
    old_rows = datafile.NO_ROWS if period in damaged else writer.rows_of(period)
    # Keep sound rows where the node sends bad ones.
    doubtful = [aside.span for step in steps for aside in step.set_aside]
    kept_rows = [within(old_rows, *span) for span in moments.joined(doubtful)]
    rows = canonical(pa.Table.from_batches(batches, ARROW_SCHEMA))
    rows = merge_rows(pa.concat_tables([datafile.NO_ROWS, *kept_rows]), rows, *bounds).rows
    content, new_entry = datafile.encode_rows(rows) if rows.num_rows else (b"", None)
    if new_entry == entry:
        if new_entry is not None:
            writer.keep_copy(period, content)
            writer.store.write(manifest.changes_file(period), content)
    else:
        conflicts = merge_rows(old_rows, rows, *bounds).conflicts
        proof, url = source.evidence(), source.client.base_url
        stays = f"{writer.store.uri}: {period} stays as it is: {url}"
        had = [] if entry is None else [(entry.first, entry.last + 1)]
        needed = moments.overlap([*manifest.evidence.complete, *had], spans)
        if lost := moments.without(needed, proof.reached):
            raise errors.IncompleteError(
                f"{stays} can't prove {spans_text(lost)}: it may have forgotten rows, doesn't "
                "have all of them yet, or says that it may lack rows; ask a node that "
                "reaches over this time, or restore a backup of the file"
            )
        is_known = _extent(new_entry) == _extent(entry) or conflicts.num_rows < old_rows.num_rows
        if not (new_entry and (is_known or _knows_another(source, writer, {*damaged, period}))):
            raise errors.NetworkMismatchError(
                f"{stays} sends no row that the archive holds: it is of another network, or has "
                "lost rows"
            )
        run.note_conflicts(canonical(conflicts))
        errors.logger.warning("%s now has other rows than before", manifest.changes_file(period))
        evidence = manifest.evidence.updated(proof).without_agreements([bounds])
        writer.put(period, (content, new_entry), evidence, is_losing=True)
    run.note_committed(spans)
    return new_entry != entry


def _knows_another(source: NodeSource, writer: Writer, wrong: set[str]) -> bool:
    """Return whether the node has a row from the archive's sound files: see `has_rows`."""
    sound, files = Writer(writer.store), writer.manifest.files.items()
    others = {period: entry for period, entry in files if period not in wrong}
    sound.manifest = replace(writer.manifest, files=others)
    return bool(others) and has_rows(source, sound, source.urls[0])


def _extent(entry: FileEntry | None) -> tuple[int, int, int] | None:
    return None if entry is None else (entry.rows, entry.first, entry.last)


def _rebuild(store: Store) -> bool:
    """Rebuild the manifest from the files if it is lost or damaged; return whether it was.

    Rows stay, but can't show that none is missing, so everything is unproven, as is the time
    without rows that run reports list. Damaged files are left out. The old manifest moves to
    quarantine.
    """
    old = store.read(layout.MANIFEST)
    try:
        parse(store, old)
    except errors.ArchiveDamagedError as error:
        runs = [*iter_reports(store)]
        query = next((run.query for run in runs if run.query is not None), None)
        if query is None:
            raise errors.ArchiveDamagedError(
                f"{store.uri}: no run's report names the accounts that it is bound to, so its "
                "manifest can't be rebuilt; restore a backup of it"
            ) from error
    else:
        return False
    where = f"{store.uri}/{layout.MANIFEST}"
    errors.logger.warning("%s is missing or damaged; rebuilding it with everything unproven", where)
    files, spans, damaged = dict[str, FileEntry](), list[moments.Span](), list[moments.Span]()
    for name in store.names(layout.CHANGES):
        if (period := layout.period_named(name, query.partition)) is not None:
            bounds = layout.period_bounds(period, query.partition)
            try:
                files[period] = _sound_entry(store.read(name) or b"", bounds)
                spans.append(bounds)
            except (pa.ArrowException, OSError, ValueError, LookupError) as error:
                errors.logger.warning("%s/%s is left out: %s", store.uri, name, error)
                damaged.append(bounds)
    if old is not None:
        store.write(f"{layout.QUARANTINE}{layout.MANIFEST}", old)
    ends = [moment for entry in files.values() for moment in (entry.first, entry.last + 1)]
    known = [*moments.clipped(moments.joined(spans), min(ends, default=0), max(ends, default=0))]
    committed = moments.to_spans(span for run in runs for span in run.committed)
    known += moments.without(committed, damaged)
    answers = (Answer(x, Node("unknown"), (0, 0), reached=False) for x in moments.joined(known))
    evidence = Evidence(query.filters, tuple(answers))
    limits, content = None, store.read(layout.LIMITS)
    with contextlib.suppress(*DAMAGE_ERRORS):
        limits = content and datafile.entry_of(content, parse_limits(content)["first_seen"])
    manifest = Manifest(query.partition, evidence, files, limits=limits or None)
    store.write(layout.MANIFEST, to_bytes(manifest))
    return True


def _sound_entry(content: bytes, bounds: moments.Span) -> FileEntry:
    """Return the entry of a period's file; ValueError or one of pyarrow's errors if damaged."""
    rows = datafile.decode_rows(content)
    encoded, _ = datafile.encode_rows(rows)
    footers = [datafile.read_footer(pa.BufferReader(data)) for data in (content, encoded)]
    # The same rows give the same bytes, unless another release of pyarrow wrote them. Checksums
    # alone don't show all damage: they don't cover headers and indexes.
    releases = {datafile.Footer(footer).metadata.created_by for footer in footers}
    if encoded != content and len(releases) == 1:
        raise ValueError("it isn't what was written")
    entry = datafile.entry_of(content, rows["timestamp"])
    if fault := find_wrong_rows(canonical(rows, sort=False), entry, bounds, [bounds]):
        raise ValueError(fault)
    return entry
