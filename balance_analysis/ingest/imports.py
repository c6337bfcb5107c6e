"""Fill an archive from network history segments: a run like an export, by the same machinery.

Segments are taken in the order of their blocks, and each period is committed as soon as it is
complete. What an archive has imported it knows by content, so the next run takes what is new.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Unpack

import numpy as np

from balance_analysis import defaults
from balance_analysis.archive import manifest
from balance_analysis.archive.archive import to_archive
from balance_analysis.archive.blocks import (
    Imported,
    heights_at,
    keep_blocks,
    read_blocks,
    read_imported,
)
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.runs import Run, reported
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.assets import Assets, read_assets
from balance_analysis.errors import ArchiveError, NetworkMismatchError
from balance_analysis.filters import FilterKeywords, takes_filters
from balance_analysis.ingest.executor import Pool, load_on_executor, take_parts
from balance_analysis.ingest.periods import SpanWriter
from balance_analysis.ingest.segments import SegmentsLoad, bounds_of, check_network, step_of
from balance_analysis.load.request import OnBadRows, reporting
from balance_analysis.segments.chain import (
    Stretch,
    gaps_text,
    missing_blocks,
    put_in_order,
)
from balance_analysis.segments.rows import raise_bad_row
from balance_analysis.segments.rows import read_blocks as read_segment_blocks
from balance_analysis.segments.segment import Segment, find_segments
from balance_analysis.segments.state import read_segment_assets, read_segment_limits
from balance_analysis.segments.table import iter_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distributed import Client as Cluster
    from numpy.typing import NDArray

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.layout import Partition
    from balance_analysis.archive.runs import RunReport
    from balance_analysis.archive.store import Store
    from balance_analysis.files.atomic import PathLike
    from balance_analysis.ingest.executor import Executor
    from balance_analysis.load.request import Report
    from balance_analysis.node.walk import Step
    from balance_analysis.schema import NetworkLimits
    from balance_analysis.segments.rows import SegmentRows
    from balance_analysis.spans import Span

logger: logging.Logger = logging.getLogger("balance_analysis")


@takes_filters
def import_segments(
    archive: Archive | PathLike,
    paths: PathLike | Iterable[PathLike],
    *,
    partition: Partition | None = None,
    on_bad_rows: OnBadRows = defaults.ON_BAD_ROWS,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[RunReport], object] | None = None,
    executor: Executor | Cluster | None = None,
    **filters: Unpack[FilterKeywords],
) -> Run:
    """Bring network history segments into an archive; the first run makes it.

    What is imported already is left out. Where the archive has rows of the same time from nodes,
    the two are compared, as an export compares what it asks for again; an export goes on where the
    segments end.

    Parameters
    ----------
    archive
        Where to: an Archive, or its path. It is bound to the filters and the partition of its first
        run.
    paths
        The segments: zips, unpacked ones, folders of such, and patterns such as `history/*.zip`.
        Their order doesn't matter.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`, over those that the segments tell.
    partition
        What a file holds: a "day" in UTC, a "month" or an "hour"; by default as the archive has it,
        a day for a new one.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which keeps it aside with the reason.
    progress
        As for `load_balance_changes`.
    dry_run
        Write nothing: `spans` of the result tell what would be imported.
    on_report, executor
        As for `export`; each worker must reach the segments under the same path.

    Returns
    -------
    Run
        What was done.

    Raises
    ------
    DecodeError
        If a segment is damaged or lacks a table. What was complete before is committed.
    IncompleteError
        If a segment lacks a block, or names another one before it than there is.
    NetworkMismatchError
        If the segments are of two chains, or of another one than the archive.
    CheckError
        If two segments differ in a block, or one has two rows of one account and block.
    ArchiveLockedError, ArchiveError
        As `export`.
    FileNotFoundError
        If a path names nothing.
    OSError
        If a file can't be written.
    """
    store = to_archive(archive).store
    pool = None if executor is None else Pool.of(executor)
    stretches = put_in_order(find_segments(paths))
    last = stretches[-1].segments[-1]
    given = read_assets(filters.get("assets") or {})
    filters["assets"] = read_segment_assets(last).updated(given)
    wanted = manifest.make_archive_filters(store, filters).sorted()
    about = manifest.About(wanted, manifest.partition_of(store, partition))
    importing = _Import(store, about, given, stretches, on_bad_rows, pool, progress)
    if dry_run:
        importing.plan()
    else:
        importing.fill(on_report)
    return importing.run


@dataclass(frozen=True, slots=True)
class _Import:
    """One import: what is taken, and how."""

    store: Store
    about: manifest.About
    assets: Assets
    stretches: list[Stretch]
    on_bad_rows: OnBadRows
    pool: Pool | None
    progress: bool | Report | None
    run: Run = field(default_factory=Run)

    @property
    def last(self) -> Segment:
        """The last segment, which tells of the network as it was then."""
        return self.stretches[-1].segments[-1]

    def plan(self) -> None:
        """Note what would be imported."""
        is_new = manifest.check_bound(self.store, self.about)
        imported = {} if is_new else read_imported(self.store)
        state = Coverage() if is_new else read_snapshot(self.store).coverage
        for part in self._new(imported, state):
            self.run.asks(*bounds_of(part))

    def fill(self, on_report: Callable[[RunReport], object] | None) -> None:
        """Import them."""
        # Before anything is written, as what is damaged is refused.
        limits = read_segment_limits(self.last, self.stretches[-1].source)
        self.run.source, self.run.block_height = self.stretches[-1].source, self.last.last
        with one_writer(self.store):
            if manifest.check_bound(self.store, self.about):
                manifest.write_about(self.store, self.about)
            writer = Writer(self.store)
            with (
                reported(self.store, writer, self.run, on_report, kind="import"),
                reporting(self.progress) as report,
            ):
                writer.recover()
                imported = read_imported(self.store)
                parts = self._new(imported, writer.state)
                total, done = sum(map(len, parts)), 0
                for part in parts:
                    _Part(self, writer, imported, part).fill(
                        lambda count: report((done + count) / total, self.run.rows)  # noqa: B023
                    )
                    done += len(part)
                writer.checkpoint()
                self._keep_assets(imported)
                self._keep_limits(writer, limits)
                lost = manifest.lost_files(self.store, writer.about, writer.state)
                self.run.damaged += [name for name in lost if name not in self.run.damaged]
        if gaps := missing_blocks(self.stretches):
            logger.warning("no segment has the blocks %s", gaps_text(gaps))

    def _new(self, imported: Mapping[str, Imported], state: Coverage) -> list[list[Segment]]:
        """Return the segments that the archive doesn't hold, those together that follow each other.

        Raises
        ------
        NetworkMismatchError
            If it holds others, of another chain.
        """
        for each in imported.values():
            if each.chain != self.last.chain:
                raise NetworkMismatchError(
                    f"{self.store.uri} has blocks of the chain {each.chain!r}, and {self.last} is "
                    f"of {self.last.chain!r}: import it into another archive"
                )

        def is_held(segment: Segment) -> bool:
            held = imported.get(segment.digest)
            return held is not None and not state.missing(held.begin, held.end)

        return [
            list(part)
            for stretch in self.stretches
            for held, part in groupby(stretch.segments, is_held)
            if not held
        ]

    def _keep_assets(self, imported: Mapping[str, Imported]) -> None:
        kept, told = manifest.read_archive_assets(self.store), read_segment_assets(self.last)
        newest = max((each.last for each in imported.values()), default=0)
        both = kept.updated(told) if self.last.last >= newest else told.updated(kept)
        if both.updated(self.assets) != kept:
            manifest.write_archive_assets(self.store, both.updated(self.assets))

    def _keep_limits(self, writer: Writer, limits: list[NetworkLimits]) -> None:
        """Note the limits; what is wrong with their file doesn't fail a run."""
        times = np.array([each.fetched_at.value // 1000 for each in limits], np.int64)
        heights = heights_at(read_blocks(self.store), times).to_pylist()
        changes = [replace(x, block_height=y) for x, y in zip(limits, heights, strict=True)]
        try:
            until = int(read_segment_blocks(self.last).times[-1])
            writer.keep_timeline(changes, until)
        except ArchiveError as error:
            self.run.damaged.append(writer.about.limits)
            logger.warning("%s", error)


@dataclass(slots=True)
class _Part:
    """Segments of which each follows the other, on their way into the archive.

    Attributes
    ----------
    imported
        The segments that the archive holds; these are added.
    waiting
        Those whose blocks are not kept yet, as their rows are not committed.
    """

    whole: _Import
    writer: Writer
    imported: dict[str, Imported]
    segments: list[Segment]
    waiting: list[tuple[Segment, NDArray[np.int64], NDArray[np.int64]]] = field(
        default_factory=list
    )

    def fill(self, report: Callable[[int], None]) -> None:
        """Commit their rows, period by period, and keep their blocks."""
        whole, run = self.whole, self.whole.run
        start, end = self._bounds(*bounds_of(self.segments))
        check_network(self.writer, self.segments, whole.about.filters, (start, end))
        run.asks(start, end)
        span = SpanWriter(whole.store, self.writer, run, None, start)
        try:
            with span.finishing():
                if whole.pool is None:
                    self._read(span, end, report)
                else:
                    self._read_on(whole.pool, span, end)
        finally:
            self._keep_blocks(span.committed)

    def _bounds(self, first: int, last: int) -> Span:
        """Return the bounds: those of neighbours where the archive holds them."""
        low, high = self.segments[0].begin, self.segments[-1].last
        ends = [x.end for x in self.imported.values() if x.last == low - 1]
        begins = [x.begin for x in self.imported.values() if x.first == high + 1]
        return max([x for x in ends if x <= first], default=first), min(
            [x for x in begins if x >= last], default=last
        )

    def _read(self, span: SpanWriter, end: int, report: Callable[[int], None]) -> None:
        """Read them here."""
        filters = self.whole.about.filters
        with contextlib.closing(iter_rows(self.segments, filters)) as rows:
            for count, step in enumerate(self._steps(rows, span.front, end), 1):
                span.add(step)
                self._keep_blocks(span.committed)
                report(count)

    def _steps(
        self, rows: Iterable[tuple[Segment, SegmentRows]], start: int, end: int
    ) -> Iterator[Step]:
        for segment, part in rows:
            if self.whole.on_bad_rows == "raise":
                raise_bad_row(segment, part.bad_rows)
            self.waiting.append((segment, part.heights, part.times))
            stop = end if segment is self.segments[-1] else int(part.times[-1]) + 1
            yield step_of(segment, part, start, stop)
            start = stop

    def _read_on(self, pool: Pool, span: SpanWriter, end: int) -> None:
        """Read them on an executor, period by period."""
        whole = self.whole
        for segment in self.segments:
            blocks = read_segment_blocks(segment)
            since = slice(blocks.since, None)
            self.waiting.append((segment, blocks.heights[since], blocks.times[since]))
        stops = [*(int(times[-1]) + 1 for _, _, times in self.waiting[:-1]), end]
        load = SegmentsLoad(
            tuple(self.segments), (span.front, *stops), whole.about.filters, whole.on_bad_rows
        )
        with contextlib.closing(load_on_executor(pool, load, [(span, end)])) as parts:
            take_parts(parts, span, end, whole.progress)

    def _keep_blocks(self, committed: int) -> None:
        """Keep the blocks whose rows are committed, and note the segments that are imported."""
        done = [each for each in self.waiting if each[2][-1] < committed]
        if not done:
            return
        self.waiting = self.waiting[len(done) :]
        noted = [
            Imported(x.digest, x.chain, int(heights[0]), x.last, int(times[0]), int(times[-1]) + 1)
            for x, heights, times in done
        ]
        heights, times = (np.concatenate([each[place] for each in done]) for place in (1, 2))
        keep_blocks(self.whole.store, self.writer.about.partition, heights, times, noted)
        self.imported.update({each.digest: each for each in noted})
