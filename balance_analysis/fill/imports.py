"""Fill an archive from network history segments: a run like an export, by the same machinery.

Segments are taken in the order of their blocks. The evidence names the blocks that an archive
holds, so the next run takes what is new.
"""

from __future__ import annotations

import bisect
import contextlib
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from balance_analysis import defaults
from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Writer, merge_rows
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.archive.manifest import BoundQuery
from balance_analysis.archive.runs import Run, RunWriter
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import NetworkMismatchError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill.fill import Source, bind, fill
from balance_analysis.load.request import OnBadRows, Report, check_on_bad_rows
from balance_analysis.node.walk import Step
from balance_analysis.segments.rows import (
    Blocks,
    iter_rows,
    read_segment_assets,
    read_segment_limits,
    span_of,
)
from balance_analysis.segments.segment import (
    FIRST_BLOCK,
    Segment,
    Stretch,
    find_stretches,
    heights_text,
    missing_blocks,
)
from balance_analysis.table.evidence import Answer, Evidence
from balance_analysis.table.names import Asset, AssetsLike, LabelsLike, Names, read_names
from balance_analysis.table.rows import last_block, within
from balance_analysis.table.spans import EVER, Span, between, bounds_of, overlap
from balance_analysis.table.text import range_text


def import_segments(
    archive: Stored | PathLike,
    paths: PathLike | Iterable[PathLike],
    *,
    on_bad_rows: OnBadRows = defaults.ON_BAD_ROWS,
    partition: layout.Partition | None = None,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Run:
    """Bring network history segments into an archive; the first run makes it.

    Segments whose rows it has already are left out. Where the archive has rows of the same time
    from nodes, the two are compared, as an export compares what it asks for again; an export goes
    on where the segments end.

    Parameters
    ----------
    archive
        Where to: an Archive, or its path. It is bound to the filters and the partition of its first
        run.
    paths
        The segments: zips, unpacked ones, folders of such, and patterns such as `history/*.zip`.
        An unpacked one has no checksum: whole rows that are cut off can't be noticed.
        Their order doesn't matter.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`; they win over those in the segments.
    labels
        Own names, as for `export`.
    partition
        What a file holds: a "day" in UTC, a "month" or an "hour"; by default as the archive has it,
        a day for a new one.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which keeps it aside with the reason.
    progress
        As for `load_balance_changes`.
    dry_run
        Write nothing: `spans` of the result are what would be imported.
    on_report
        As for `export`.

    Returns
    -------
    Run
        What was done.

    Raises
    ------
    DecodeError
        If a segment is damaged or lacks a table. What was complete before is committed. The blocks
        of the first and last segments that follow each other are read before anything is.
    IncompleteError
        If a segment lacks its first or last block, two in a row, or one that it has rows of, or
        names another segment before it than there is. What lies between the neighbours of a single
        block without a row stays unproven.
    NetworkMismatchError
        If the segments are of two chains, or of another one than the archive.
    CheckError
        If two different segments share a block, or one has two rows of one account and block.
    ArchiveLockedError, ArchiveError
        As `export`.
    ValueError
        If `partition` or `on_bad_rows` has another value, or a filter is malformed.
    FileNotFoundError
        If a path names nothing.
    OSError
        If a file can't be written.
    """
    check_on_bad_rows(on_bad_rows)
    store, stretches, names = to_store(archive), find_stretches(paths), read_names(assets, labels)
    newest = read_segment_assets(stretches[-1].segments[-1])
    known, ids = Names(newest).updated(names), (asset_id, party_ids, market_ids, account_types)
    query = bind(store, partition, known, ids)
    run = RunWriter(store, Run(kind="import"))
    source = _Segments(store, query, run, stretches, newest, names, on_bad_rows)
    return fill(store, query, source, run, progress=progress, dry_run=dry_run, on_report=on_report)


@dataclass
class _Segments(Source):
    """Segments as a source of rows.

    Attributes
    ----------
    store, query, run
        The archive, and the run.
    stretches
        The segments.
    assets, given
        The assets of the newest segment, and the names that the caller gave.
    on_bad_rows
        As for `import_segments`.
    """

    store: Store
    query: BoundQuery
    run: RunWriter
    stretches: list[Stretch]
    assets: dict[str, Asset]
    given: Names
    on_bad_rows: OnBadRows

    def __post_init__(self) -> None:
        last = self.stretches[-1]
        self._last, self._node = last.segments[-1], last.segments[-1].node
        self._changes = read_segment_limits(self._last, last.source)
        self._parts: dict[Span, list[Segment]] = {}
        self._evidence = Evidence(self.query.filters)
        self.run.record.source, self.run.record.block_height = last.source, self._last.last

    def plan(self, writer: Writer) -> list[Span]:
        """Return the stretches of segments that the archive doesn't hold, neighbours together.

        A segment is held if answers of segments that name its blocks have all of its time, and it
        is complete: a node's rows that took the place of its own are compared. A stretch reaches up
        to the neighbouring blocks that the archive holds: no block lies between.

        Raises
        ------
        NetworkMismatchError
            If it holds others, of another chain.
        """
        evidence = writer.manifest.evidence
        for other in evidence.chains:
            if other != self._last.chain:
                raise NetworkMismatchError(
                    f"{self.store.uri} has blocks of the chain {other!r}, and "
                    f"{self.stretches[0].segments[0]} is of {self._last.chain!r}: import it into "
                    "another archive"
                )
        held = self._held(evidence)

        def is_held(segment: Segment) -> bool:
            named = [span for span, (a, b) in held if a <= segment.first and segment.last <= b]
            span = span_of([segment]) if named else EVER
            return not between(named, *span) and not evidence.incomplete(*span)

        for stretch in self.stretches:
            for is_done, group in groupby(stretch.segments, is_held):
                part = [] if is_done else [*group]
                if part:
                    begin, end = span_of(part)
                    before = [span for span, (_, b) in held if b == part[0].first - 1]
                    after = [span for span, (a, _) in held if a == part[-1].last + 1]
                    # A node's answer may have replaced the end of earlier segments. What is
                    # reached directly before or after these blocks is whole; rows set aside there
                    # stay so, because these segments don't have them.
                    whole = evidence.reached
                    ends = [b for a, b in whole if b <= begin and overlap([(a, b)], before)]
                    begins = [a for a, b in whole if a >= end and overlap([(a, b)], after)]
                    self._parts[max(ends, default=begin), min(begins, default=end)] = part
        return [*self._parts]

    def check(self, writer: Writer) -> bool:
        """Return whether the segments have any of the archive's rows; False if there are none.

        Raises
        ------
        NetworkMismatchError
            If the archive has rows in the segments' time, and the segments have none of them.
        """
        absent = list[Span]()
        for period, file in reversed(writer.manifest.files.items()):
            for (start, end), part in self._parts.items():
                first, last = max(start, file.first), min(end, file.last + 1)
                known = within(writer.rows_of(period), first, last) if first < last else NO_ROWS
                if not known.num_rows:
                    continue
                # Compare the segment that should have the last of these rows.
                moment, _ = last_block(known)
                at = bisect.bisect_left(part[:-1], moment, key=lambda x: span_of([x])[1] - 1)
                begin = span_of([part[at - 1]])[1] if at else start
                [(_, rows)] = iter_rows([part[at]], self.query.filters)
                known = within(known, begin, moment + 1)
                new = pa.Table.from_batches([rows.rows])
                if merge_rows(known, new, begin, moment + 1).absent.num_rows < known.num_rows:
                    return True
                # A bad row may stand for one of the archive's.
                absent += [] if rows.bad_rows else [(moment, moment + 1)]
        if absent:
            raise NetworkMismatchError(
                f"{self.store.uri} has rows from {range_text(*bounds_of(sorted(absent)))}, and the "
                "segments have none of them: they are of another network"
            )
        return False

    def _held(self, evidence: Evidence) -> list[tuple[Span, tuple[int, int]]]:
        """Return the stretches that segments answered for, with their first and last blocks."""
        answers = (each for each in evidence.answers if each.node == self._node)
        return [(each.span, each.heights) for each in answers if each.heights is not None]

    def steps(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield the rows of a stretch of the plan, a segment and a period at a time.

        Each step's answer names its own blocks alone: of what an interrupted run leaves, the
        evidence says no more.
        """
        part, now = self._parts[start, end], time.time_ns() // 1000
        filters, partition = self.query.filters, self.query.partition
        with contextlib.closing(iter_rows(part, filters, self.on_bad_rows)) as parts:
            for segment, rows in parts:
                stop = end if segment is part[-1] else rows.blocks.span[1]
                whole = Step(start, stop, (rows.rows,), rows.bad_rows)
                for period in layout.periods_between(start, stop, partition):
                    step = whole.between(*layout.period_bounds(period, partition))
                    span = step.start, step.end
                    heights = _heights_in(segment, rows.blocks, span)
                    proof = Evidence(
                        filters,
                        (Answer(span, self._node, (now, now), heights),),
                        (*step.set_aside, *rows.blocks.set_aside),
                        from_first_block=segment.first <= FIRST_BLOCK,
                    ).within(*span)
                    self._evidence = self._evidence.updated(proof)
                    yield step
                start = stop

    def evidence(self) -> Evidence:
        """Return the evidence for the rows so far: segments forget nothing."""
        return self._evidence

    def finish(self, writer: Writer) -> None:
        """Keep the assets as the newest segment has them, the names that are given, the limits."""
        held = self._held(writer.manifest.evidence)
        newest = max((last for _, (_, last) in held), default=0)
        kept, new = sidecars.read_archive_names(self.store).assets, self.assets
        both = {**kept, **new} if self._last.last >= newest else {**new, **kept}
        sidecars.write_archive_names(self.store, Names(both).updated(self.given))
        with self.run.noting_damage(layout.LIMITS):
            writer.keep_timeline(self._changes, span_of([self._last])[1] - 1)
        if gaps := missing_blocks(self.stretches):
            logger.warning("no segment has the blocks %s", heights_text(gaps))


def _heights_in(segment: Segment, blocks: Blocks, span: Span) -> tuple[int, int] | None:
    """Return the first and the last block of a segment in a span, if there is one."""
    begin, end = np.searchsorted(blocks.times, span)
    reached = [segment.first - 1, *blocks.heights.tolist()]
    return (reached[begin] + 1, reached[end]) if begin < end else None
