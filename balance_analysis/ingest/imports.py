"""Fill an archive from network history segments: a run like an export, by the same machinery.

Segments are taken in the order of their blocks, and each period is committed as soon as it is
complete. The coverage names the blocks that an archive holds, so the next run takes what is new.
"""

from __future__ import annotations

import contextlib
import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, Unpack

import numpy as np

from balance_analysis import defaults
from balance_analysis.archive import layout, network
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.archive.manifest import ArchiveSpec
from balance_analysis.archive.runs import Kind, Run
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
from balance_analysis.segments.rows import (
    Blocks,
    iter_rows,
    read_blocks,
    read_segment_assets,
    read_segment_limits,
)
from balance_analysis.segments.segment import (
    Segment,
    Stretch,
    blocks_of,
    find_stretches,
    heights_text,
    missing_blocks,
    source_text,
)
from balance_analysis.spans import Span, clipped
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

    Segments whose blocks it has already are left out. Where the archive has rows of the same time
    from nodes, the two are compared, as an export compares what it asks for again; an export goes
    on where the segments end.

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
        If two different segments share a block, or one has two rows of one account and block.
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
            run=Run(source=stretches[-1].source, block_height=last.last),
        )

    return fill(archive, source, **options)


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """Loads rows from segments: of each span those that follow each other."""

    parts: Mapping[Span, Sequence[Segment]]
    filters: Filters
    partition: layout.Partition
    on_bad_rows: OnBadRows

    def __call__(self, start: int, end: int) -> tuple[list[Step], int]:
        """Load all of [start, end), which lies in one of the spans; no request is sent."""
        return list(self.steps(start, end)), 0

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Yield the rows of [start, end) in steps, each of one segment and one period.

        A step ends behind its segment's last block, the last one at the end. It names its own
        blocks as the source: of what an interrupted run leaves, the coverage says no more.
        """
        part = next(part for (a, b), part in self.parts.items() if a <= start and end <= b)
        first, last = (
            min(bisect_left(part, moment, key=_last_time), len(part) - 1)
            for moment in (start, end - 1)
        )
        segments = part[first : last + 1]
        with contextlib.closing(iter_rows(segments, self.filters, self.on_bad_rows)) as found:
            for segment, rows in found:
                stop = end if segment is segments[-1] else int(rows.times[-1]) + 1
                whole = Step(start, stop, (rows.rows,), rows.bad_rows, 0, 0, None)
                periods = layout.periods_between(start, stop, self.partition)
                bounds = (layout.period_bounds(each, self.partition) for each in periods)
                for span in clipped(bounds, start, stop):
                    begin, height = _heights_in(segment, span)
                    source = source_text(segment.chain, begin, height)
                    yield replace(
                        whole.between(*span), source=source, address=source, block_height=height
                    )
                start = stop


@functools.lru_cache(maxsize=8)
def _blocks_of(segment: Segment) -> Blocks:
    return read_blocks(segment)


def _first_time(segment: Segment) -> int:
    return int(_blocks_of(segment).times[0])


def _last_time(segment: Segment) -> int:
    return int(_blocks_of(segment).times[-1])


def _heights_in(segment: Segment, span: Span) -> tuple[int, int]:
    """Return the first and the last block of a segment in a span; first = last + 1 for none."""
    blocks = _blocks_of(segment)
    begin, end = np.searchsorted(blocks.times, span)
    # The first and the last block may have no row: it has the time of the block before.
    reached = [segment.first - 1, *blocks.heights[:-1].tolist(), segment.last]
    return reached[begin] + 1, reached[end]


@dataclass(slots=True, kw_only=True)
class _Segments:
    """Segments as a source of rows.

    Attributes
    ----------
    load
        Loads the segments that the archive doesn't hold.
    newest
        The highest block that the archive holds from segments; 0 for none.
    """

    store: Store
    about: ArchiveSpec
    names: Names
    stretches: list[Stretch]
    limits: list[NetworkLimits]
    on_bad_rows: OnBadRows
    run: Run
    load: SegmentLoad = field(init=False)
    newest: int = 0

    kind: ClassVar[Kind] = "import"

    @property
    def last(self) -> Segment:
        """The last segment, which has the network's state as it was then."""
        return self.stretches[-1].segments[-1]

    def spans(self, state: Coverage) -> list[Span]:
        """Return the spans of segments that the archive doesn't hold.

        Raises
        ------
        NetworkMismatchError
            If it holds others, of another chain.
        """
        held = [each for x in state.intervals if (each := blocks_of(x.source))]
        for chain, *_ in held:
            if chain != self.last.chain:
                raise NetworkMismatchError(
                    f"{self.store.uri} has blocks of the chain {chain!r}, and {self.last} is "
                    f"of {self.last.chain!r}: import it into another archive"
                )
        self.newest = max((last for *_, last in held), default=0)
        parts = _not_held(self.stretches, state)
        self.load = SegmentLoad(parts, self.about.filters, self.about.partition, self.on_bad_rows)
        return list(parts)

    @contextlib.contextmanager
    def opened(self, writer: Writer, spans: Sequence[Span]) -> Iterator[None]:
        """Check that the archive is of the segments' network; keep their assets and limits."""
        for span in spans:
            _check_network(writer, self.load.parts[span], span)
        yield
        self._keep_names()
        with self.run.noting_damage(writer.about.limits):
            writer.keep_timeline(self.limits, _last_time(self.last))
        if gaps := missing_blocks(self.stretches):
            logger.warning("no segment has the blocks %s", heights_text(gaps))

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Read the segments of a span."""
        return self.load.steps(start, end)

    def elsewhere(self, width: int) -> tuple[SegmentLoad, None]:
        """Return what reads a part of a span."""
        return self.load, None

    def _keep_names(self) -> None:
        kept, told = network.read_archive_names(self.store).assets, read_segment_assets(self.last)
        both = kept.updated(told) if self.last.last >= self.newest else told.updated(kept)
        network.write_archive_names(self.store, Names(both).updated(self.names))


def _not_held(stretches: Iterable[Stretch], state: Coverage) -> dict[Span, list[Segment]]:
    """Return the segments that an archive doesn't hold, neighbours together, by their spans.

    A segment is held if an interval names its blocks, and all of its time is proven. A span reaches
    up to the neighbouring blocks where the archive holds these: no block lies between.
    """
    held = [
        (*blocks[1:], *each.span)
        for each in state.intervals
        if each.proven and (blocks := blocks_of(each.source))
    ]

    def is_held(segment: Segment) -> bool:
        is_named = any(a <= segment.first and segment.last <= b for a, b, *_ in held)
        return is_named and not state.missing(_first_time(segment), _last_time(segment) + 1)

    parts: dict[Span, list[Segment]] = {}
    for stretch in stretches:
        for is_done, group in groupby(stretch.segments, is_held):
            if is_done:
                continue
            part = list(group)
            first, last = _first_time(part[0]), _last_time(part[-1]) + 1
            before = [stop for _, b, _, stop in held if b == part[0].first - 1]
            after = [start for a, _, start, _ in held if a == part[-1].last + 1]
            known = state.known()
            begins = [b for a, b in known if b <= first and any(a < x <= b for x in before)]
            ends = [a for a, b in known if a >= last and any(a <= x < b for x in after)]
            parts[max(begins, default=first), min(ends, default=last)] = part
    return parts


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
