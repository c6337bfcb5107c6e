"""Fill an archive from network history segments: a run like an export, by the same machinery.

Segments are taken in the order of their blocks, and each period is committed as soon as it is
complete. What an archive has imported it knows by content, so the next run takes what is new.
"""

from __future__ import annotations

import contextlib
import functools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from balance_analysis import defaults
from balance_analysis.archive import network
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.archive.manifest import ArchiveSpec
from balance_analysis.archive.runs import Kind, Run, RunWriter
from balance_analysis.archive.store import Store, Stored
from balance_analysis.errors import NetworkMismatchError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import Filters, make_filters, take_names, takes
from balance_analysis.ingest.fill import FillKeywords, fill
from balance_analysis.labels import Names
from balance_analysis.load.request import OnBadRows, check_on_bad_rows
from balance_analysis.node.walk import Step
from balance_analysis.rows import accounts_in, last_block, within
from balance_analysis.schema import NetworkLimits
from balance_analysis.segments.chain import Stretch, find_stretches, missing_blocks, source_text
from balance_analysis.segments.content import read_blocks, read_segment_assets, read_segment_limits
from balance_analysis.segments.segment import Segment, heights_text
from balance_analysis.segments.table import iter_rows
from balance_analysis.spans import Span
from balance_analysis.text import moment_text


@takes(FillKeywords, fill, make_filters)
def import_segments(
    archive: Stored | PathLike,
    paths: PathLike | Iterable[PathLike],
    *,
    on_bad_rows: OnBadRows = defaults.ON_BAD_ROWS,
    **options: Unpack[FillKeywords],
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
        If a segment is damaged or lacks a table. What was complete before is committed. The blocks
        of the first and last segments that follow each other are read before anything is.
    IncompleteError
        If a segment lacks a block, or names another one before it than there is.
    NetworkMismatchError
        If the segments are of two chains, or of another one than the archive.
    CheckError
        If two segments differ in a block, or one has two rows of one account and block.
    ArchiveLockedError, ArchiveError
        As `export`.
    ValueError
        If `partition` or `on_bad_rows` is none of those above, or a filter is none.
    FileNotFoundError
        If a path names nothing.
    OSError
        If a file can't be written.
    """
    check_on_bad_rows(on_bad_rows)
    stretches = find_stretches(paths)
    last = stretches[-1].segments[-1]
    given = take_names(options)
    options["assets"] = read_segment_assets(last).updated(given.assets)

    def source(store: Store, about: ArchiveSpec) -> _Segments:
        return _Segments(
            store=store,
            about=about,
            names=given,
            stretches=stretches,
            limits=read_segment_limits(last, stretches[-1].source),
            on_bad_rows=on_bad_rows,
            run=RunWriter(Run(source=stretches[-1].source, block_height=last.last)),
        )

    return fill(archive, source, **options)


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """Loads rows from segments: of each span those that follow each other."""

    parts: Mapping[Span, Sequence[Segment]]
    filters: Filters
    on_bad_rows: OnBadRows

    def __call__(self, start: int, end: int) -> tuple[list[Step], int]:
        """Load all of [start, end), which lies in one of the spans; no request is sent."""
        return list(self.steps(start, end)), 0

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Yield what segments tell of [start, end), each up to its last block, the last one all."""
        part = next(part for (a, b), part in self.parts.items() if a <= start and end <= b)
        first, last = (
            min(bisect_left(part, moment, key=_last_time), len(part) - 1)
            for moment in (start, end - 1)
        )
        segments = part[first : last + 1]
        with contextlib.closing(iter_rows(segments, self.filters, self.on_bad_rows)) as found:
            for segment, rows in found:
                stop = end if segment is segments[-1] else int(rows.times[-1]) + 1
                source = source_text(segment.chain, segment.begin, segment.last)
                yield Step(
                    start, stop, (rows.rows,), rows.bad_rows, 0, 0, None, source, source,
                    block_height=segment.last,
                )  # fmt: skip
                start = stop


@functools.lru_cache(maxsize=8)
def _blocks_of(segment: Segment) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return heights and times of a segment's own blocks."""
    blocks = read_blocks(segment)
    return blocks.heights[blocks.since :], blocks.times[blocks.since :]


def _first_time(segment: Segment) -> int:
    return int(_blocks_of(segment)[1][0])


def _last_time(segment: Segment) -> int:
    return int(_blocks_of(segment)[1][-1])


@dataclass(slots=True, kw_only=True)
class _Segments:
    """Segments as a source of rows.

    Attributes
    ----------
    imported
        The segments that the archive holds, by the digest of their content.
    load
        Loads those that it doesn't hold.
    waiting
        Those whose blocks are not kept yet, as their rows are not committed.
    """

    store: Store
    about: ArchiveSpec
    names: Names
    stretches: list[Stretch]
    limits: list[NetworkLimits]
    on_bad_rows: OnBadRows
    run: RunWriter
    imported: dict[str, network.Imported] = field(default_factory=dict)
    load: SegmentLoad = field(init=False)
    waiting: deque[Segment] = field(default_factory=deque)

    kind: ClassVar[Kind] = "import"

    @property
    def last(self) -> Segment:
        """The last segment, which tells of the network as it was then."""
        return self.stretches[-1].segments[-1]

    def spans(self, state: Coverage) -> list[Span]:
        """Return the spans of segments that the archive doesn't hold."""
        self.imported = network.read_imported(self.store)
        parts = self._new(state)
        self.load = SegmentLoad(
            {self._span_of(part): part for part in parts}, self.about.filters, self.on_bad_rows
        )
        self.waiting.extend(chain.from_iterable(parts))
        return list(self.load.parts)

    @contextlib.contextmanager
    def opened(self, writer: Writer, spans: Sequence[Span]) -> Iterator[None]:
        """Check that the archive is of the segments' network; keep their assets and limits."""
        for span in spans:
            _check_network(writer, self.load.parts[span], span)
        yield
        self._keep_names()
        self._keep_limits(writer)
        if gaps := missing_blocks(self.stretches):
            logger.warning("no segment has the blocks %s", heights_text(gaps))

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Read the segments of a span."""
        return self.load.steps(start, end)

    def elsewhere(self, width: int) -> tuple[SegmentLoad, None]:
        """Return what reads a part of a span."""
        return self.load, None

    def note_committed(self, until: int) -> None:
        """Keep the blocks whose rows are committed, and note the segments that are imported."""
        parts, noted = [], []
        while self.waiting and _last_time(self.waiting[0]) < until:
            segment = self.waiting.popleft()
            heights, times = _blocks_of(segment)
            first, begin, end = int(heights[0]), int(times[0]), int(times[-1]) + 1
            held = segment.digest, segment.chain, first, segment.last, begin, end
            noted.append(network.Imported(*held))
            parts.append((heights, times))
        if noted:
            heights, times = map(np.concatenate, zip(*parts, strict=True))
            network.keep_blocks(self.store, self.about.partition, heights, times, noted)
            self.imported.update({each.digest: each for each in noted})

    def _new(self, state: Coverage) -> list[list[Segment]]:
        """Return the segments that the archive doesn't hold, those together that follow each other.

        Raises
        ------
        NetworkMismatchError
            If it holds others, of another chain.
        """
        for each in self.imported.values():
            if each.chain != self.last.chain:
                raise NetworkMismatchError(
                    f"{self.store.uri} has blocks of the chain {each.chain!r}, and {self.last} is "
                    f"of {self.last.chain!r}: import it into another archive"
                )

        def is_held(segment: Segment) -> bool:
            held = self.imported.get(segment.digest)
            return held is not None and not state.missing(held.begin, held.end)

        return [
            list(part)
            for stretch in self.stretches
            for held, part in groupby(stretch.segments, is_held)
            if not held
        ]

    def _span_of(self, segments: Sequence[Segment]) -> Span:
        """Return the span of segments, up to neighbours that the archive holds."""
        first, last = _first_time(segments[0]), _last_time(segments[-1]) + 1
        low, high = segments[0].begin, segments[-1].last
        ends = [x.end for x in self.imported.values() if x.last == low - 1]
        begins = [x.begin for x in self.imported.values() if x.first == high + 1]
        return max([x for x in ends if x <= first], default=first), min(
            [x for x in begins if x >= last], default=last
        )

    def _keep_names(self) -> None:
        kept, told = network.read_archive_names(self.store).assets, read_segment_assets(self.last)
        newest = max((each.last for each in self.imported.values()), default=0)
        both = kept.updated(told) if self.last.last >= newest else told.updated(kept)
        network.write_archive_names(self.store, Names(both).updated(self.names))

    def _keep_limits(self, writer: Writer) -> None:
        times = np.array([each.fetched_at.value // 1000 for each in self.limits], np.int64)
        heights = network.heights_at(network.read_blocks(self.store), times).to_pylist()
        changes = [replace(x, block_height=y) for x, y in zip(self.limits, heights, strict=True)]
        with self.run.noting_damage(writer.about.limits):
            writer.keep_timeline(changes, _last_time(self.last))


def _check_network(writer: Writer, segments: Sequence[Segment], span: Span) -> None:
    """Raise if an archive's last block of the same time is none of the segments'.

    Rows of nodes don't tell their chain; that all accounts of a block are others does.

    Raises
    ------
    NetworkMismatchError
        If it is so.
    """
    start, end = span
    files = writer.state.files.items()
    periods = [period for period, x in files if x.first < end and x.last >= start]
    rows = within(writer.rows_of(periods[-1]), start, end) if periods else NO_ROWS
    if not rows.num_rows:
        return
    last, block = last_block(rows)
    place = bisect_right(segments, last, key=_first_time)
    segment = segments[max(place - 1, 0)]
    [(_, part)] = iter_rows([segment], writer.about.filters)
    if {*accounts_in(block)}.isdisjoint(accounts_in(within(part.rows, last, last + 1))):
        raise NetworkMismatchError(
            f"the archive has rows of {moment_text(last)}, and {segment} has none of these "
            "accounts at that moment: it is of another network"
        )
