"""Fill an archive from network history segments, as an export fills it from a node.

Segments are imported in the order of their blocks. The archive's evidence names the blocks that it
holds, so the next run imports only new ones.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Writer, merge_rows
from balance_analysis.archive.datafile import NO_ROWS, times_of
from balance_analysis.archive.manifest import BoundQuery
from balance_analysis.archive.runs import Run, RunWriter
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import NetworkMismatchError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill import ON_BAD_ROWS
from balance_analysis.fill.fill import Source, bind, fill
from balance_analysis.load.arguments import OnBadRows, OnProgress
from balance_analysis.node.walk import Step
from balance_analysis.segments.rows import (
    iter_rows,
    read_segment_assets,
    read_segment_limits,
    span_of,
)
from balance_analysis.segments.segment import (
    Segment,
    Stretch,
    find_stretches,
    heights_text,
    missing_blocks,
)
from balance_analysis.table.evidence import Evidence, check_on_bad_rows
from balance_analysis.table.moments import Span, bounds_of, gaps_in, overlap, range_text
from balance_analysis.table.names import Asset, AssetsLike, LabelsLike, Names, read_names
from balance_analysis.table.schema import within


def import_segments(
    archive: Stored | PathLike,
    paths: PathLike | Iterable[PathLike],
    *,
    on_bad_rows: OnBadRows = ON_BAD_ROWS,
    partition: layout.Partition | None = None,
    progress: bool | OnProgress | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Run:
    """Import network history segments into an archive; the first run creates it.

    Segments that the archive already holds are left out. If it has nodes' rows of the same time,
    the segments' rows are compared with them, as an export compares the rows that it asks for
    again. A later export continues where the segments end.

    Parameters
    ----------
    archive
        An Archive, or its path. It is bound to the filters and the partition of its first run.
    paths
        The segments: zips, unpacked segments, folders of these, and patterns such as
        `history/*.zip`, in any order. An unpacked segment has no checksum, so a table that lost
        whole rows at its end isn't noticed.
    asset_id, party_ids, market_ids, account_types
        The accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`. They override those in the segments.
    labels
        Your own names, as for `export`.
    partition
        The period of a file: a "day" in UTC, a "month" or an "hour"; by default the archive's, or a
        day for a new one.
    on_bad_rows
        How to treat a row that the table can't hold: "raise" (DecodeError), or "quarantine", which
        sets it aside with the reason.
    progress
        As for `load_balance_changes`.
    dry_run
        Write nothing. The result's `spans` are the plan.
    on_report
        As for `export`.

    Returns
    -------
    Run
        The run's record.

    Raises
    ------
    DecodeError
        If a segment is damaged or lacks a table. Segments before it stay imported, unless it is
        the first or the last of consecutive segments, whose blocks are read first.
    IncompleteError
        If a segment lacks its first or last block, two blocks in a row, or a block that it has
        rows of, or if it names another predecessor than the segment before it. If it lacks a
        single block without rows, the time between the block's neighbours stays unproven.
    NetworkMismatchError
        If the segments are from two chains, or from another one than the archive.
    CheckError
        If two different segments share a block, or one has two rows of one account and block.
    ArchiveLockedError, ArchiveError
        As `export`.
    ValueError
        If `partition` or `on_bad_rows` has another value, or a filter is malformed.
    FileNotFoundError
        If a path doesn't exist.
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
        The assets of the newest segment, and the caller's names.
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
        """Return the stretches of segments that the archive doesn't hold.

        A segment is held if answers of segments that name its blocks cover its time, and its time
        is complete. If a node's answer has replaced its own, the rows are compared. The time of a
        segment or a stretch extends to the neighbouring blocks that the archive holds: there is no
        block between them.

        Raises
        ------
        NetworkMismatchError
            If the archive holds blocks of another chain.
        """
        evidence = writer.manifest.evidence
        for other in evidence.chains:
            if other != self._last.chain:
                raise NetworkMismatchError(
                    f"{self.store.uri} has blocks of the chain {other!r}, and "
                    f"{self.stretches[0].segments[0]} is of {self._last.chain!r}: import it into "
                    "another archive"
                )
        held, whole = self._held(evidence), evidence.reached

        def extended(part: list[Segment], begin: int, end: int) -> Span:
            before = [span for span, (_, b) in held if b == part[0].first - 1]
            after = [span for span, (a, _) in held if a == part[-1].last + 1]
            # A node's answer may have replaced the end of earlier segments. Time reached directly
            # before or after these blocks is whole. Rows set aside there stay so, because these
            # segments don't have them.
            ends = [b for a, b in whole if b <= begin and overlap([(a, b)], before)]
            begins = [a for a, b in whole if a >= end and overlap([(a, b)], after)]
            return max(ends, default=begin), min(begins, default=end)

        def is_held(segment: Segment) -> bool:
            named = [span for span, (a, b) in held if a <= segment.first and segment.last <= b]
            if not named or gaps_in(named, *(span := span_of([segment]))):
                return False
            # A killed import may lack the time up to the next segment's first block.
            return not evidence.incomplete(*extended([segment], *span))

        groups = (group for each in self.stretches for group in groupby(each.segments, is_held))
        for part in ([*segments] for is_done, segments in groups if not is_done):
            self._parts[extended(part, *span_of(part))] = part
        return [*self._parts]

    def check(self, writer: Writer) -> bool:
        """Return whether the segments have any of the archive's rows.

        Raises
        ------
        NetworkMismatchError
            If the archive has rows in the segments' time, and the segments have none of them.
        """
        absent = list[Span]()
        for period, file in reversed(writer.manifest.files.items()):
            near = overlap(self._parts, [(file.first, file.last + 1)])
            rows = writer.rows_of(period) if near else NO_ROWS
            for (start, end), part in self._parts.items():
                if not (old := within(rows, start, end)).num_rows:
                    continue
                # Compare the segment that should have the last of these rows.
                moment = int(times_of(old).max())
                at = bisect.bisect_left(part[:-1], moment, key=lambda x: span_of([x])[1] - 1)
                begin = span_of([part[at - 1]])[1] if at else start
                [sent] = iter_rows([part[at]], self.query.filters)
                old, new = within(old, begin, moment + 1), pa.Table.from_batches([sent.rows])
                if merge_rows(old, new, begin, moment + 1).absent.num_rows < old.num_rows:
                    return True
                # A bad row may stand for one of the archive's.
                absent += [] if sent.bad_rows else [(moment, moment + 1)]
        if absent:
            raise NetworkMismatchError(
                f"{self.store.uri} has rows from {range_text(*bounds_of(sorted(absent)))}, and the "
                "segments have none of them: they are of another network"
            )
        return False

    def _held(self, evidence: Evidence) -> list[tuple[Span, tuple[int, int]]]:
        """Return the stretches that segments answered for, with their first and last blocks."""
        answers = (answer for answer in evidence.answers if answer.node == self._node)
        return [(answer.span, answer.heights) for answer in answers if answer.heights is not None]

    def steps(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield the rows of a planned stretch: one step for each segment and period."""
        part, filters, partition = self._parts[start, end], self.query.filters, self.query.partition
        with contextlib.closing(iter_rows(part, filters, self.on_bad_rows)) as parts:
            for rows in parts:
                stop = end if rows.blocks.segment is part[-1] else rows.blocks.span[1]
                whole = Step(start, stop, (rows.rows,), rows.bad_rows)
                for period in layout.periods_between(start, stop, partition):
                    step = whole.between(*layout.period_bounds(period, partition))
                    span = step.start, step.end
                    proof = rows.blocks.evidence(filters, span, step.bad_rows)
                    self._evidence = self._evidence.updated(proof)
                    yield step
                start = stop

    def evidence(self) -> Evidence:
        """Return the evidence for the rows so far."""
        return self._evidence

    def finish(self, writer: Writer) -> None:
        """Write the newest assets, the caller's names and the limits."""
        held = self._held(writer.manifest.evidence)
        newest = max((last for _, (_, last) in held), default=0)
        kept, new = sidecars.read_archive_names(self.store).assets, self.assets
        both = {**kept, **new} if self._last.last >= newest else {**new, **kept}
        sidecars.write_archive_names(self.store, Names(both).updated(self.given))
        with self.run.noting_damage(layout.LIMITS):
            writer.keep_limits(*self._changes, until=span_of([self._last])[1] - 1)
        if gaps := missing_blocks(self.stretches):
            logger.warning("no segment has the blocks %s", heights_text(gaps))
