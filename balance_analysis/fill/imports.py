"""Fill an archive from network history segments: a run like an export, by the same machinery.

Segments are taken in the order of their blocks. The evidence names the blocks that an archive
holds, so the next run takes what is new.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, Unpack

import numpy as np

from balance_analysis import defaults
from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import Query
from balance_analysis.archive.runs import Run, RunWriter
from balance_analysis.archive.store import Store, Stored
from balance_analysis.errors import NetworkMismatchError, logger
from balance_analysis.evidence import Answer, Evidence, Node, SetAside
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill.fill import FillKeywords, Job, fill
from balance_analysis.filters import make_filters, take_names, takes
from balance_analysis.labels import Names
from balance_analysis.load.request import OnBadRows, check_on_bad_rows
from balance_analysis.node.walk import Step
from balance_analysis.segments.rows import (
    Blocks,
    iter_rows,
    read_blocks,
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
from balance_analysis.spans import Span, clipped

_ORIGIN: Final = "segments:"


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
    changes = read_segment_limits(last, stretches[-1].source)
    given = take_names(options)
    options["assets"] = read_segment_assets(last).updated(given.assets)

    def job(store: Store, query: Query, run: RunWriter) -> Job:
        run.record.source, run.record.block_height = stretches[-1].source, last.last
        source = _Segments(store, query, stretches, on_bad_rows)

        def finish(writer: Writer) -> None:
            source.keep_names(given)
            with run.noting_damage(layout.LIMITS):
                writer.keep_timeline(changes, _span_of(last)[1] - 1)
            if gaps := missing_blocks(stretches):
                logger.warning("no segment has the blocks %s", heights_text(gaps))

        return Job(source, source.plan, finish)

    return fill(archive, job, "import", **options)


@functools.lru_cache(maxsize=8)
def _span_of(segment: Segment) -> Span:
    return span_of([segment])


@functools.lru_cache(maxsize=8)
def _blocks_of(segment: Segment) -> Blocks:
    return read_blocks(segment)


def _heights_in(segment: Segment, span: Span) -> tuple[int, int] | None:
    """Return the first and the last block of a segment in a span, if there is one."""
    blocks = _blocks_of(segment)
    begin, end = np.searchsorted(blocks.times, span)
    # The first and the last block may have no row: it has the time of the block before.
    reached = [segment.first - 1, *blocks.heights[:-1].tolist(), segment.last]
    return (reached[begin] + 1, reached[end]) if begin < end else None


@dataclass(slots=True)
class _Segments:
    """Segments as a source of rows.

    Attributes
    ----------
    parts
        The segments that the archive doesn't hold, neighbours together, by their stretches.
    newest
        The highest block that the archive holds from segments; 0 for none.
    found
        The evidence for the rows so far.
    """

    store: Store
    query: Query
    stretches: list[Stretch]
    on_bad_rows: OnBadRows
    parts: dict[Span, list[Segment]] = field(default_factory=dict)
    newest: int = 0
    found: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.found = Evidence(self.query.filters)

    @property
    def chain(self) -> str:
        """The chain id of all segments."""
        return self.stretches[0].segments[0].chain

    @property
    def node(self) -> Node:
        """What the evidence calls them."""
        return Node(f"segments {self.chain}", frozenset({f"{_ORIGIN}{self.chain}"}))

    def plan(self, writer: Writer) -> list[Span]:
        """Return the stretches of segments that the archive doesn't hold.

        Raises
        ------
        NetworkMismatchError
            If it holds others, of another chain.
        """
        evidence = writer.manifest.evidence
        origins = {x for answer in evidence.answers for x in answer.node.origin}
        for other in sorted(x for x in origins - self.node.origin if x.startswith(_ORIGIN)):
            raise NetworkMismatchError(
                f"{self.store.uri} has blocks of the chain {other.removeprefix(_ORIGIN)!r}, and "
                f"{self.stretches[0].segments[0]} is of {self.chain!r}: import it into another "
                "archive"
            )
        self.newest = max((heights[1] for *_, heights in self._held(evidence)), default=0)
        self.parts = self._not_held(evidence)
        return list(self.parts)

    def _held(self, evidence: Evidence) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Yield the answers of segments: start, end, and the first and the last block."""
        for answer in evidence.answers:
            if answer.node == self.node and answer.heights is not None:
                yield (*answer.span, answer.heights)

    def _not_held(self, evidence: Evidence) -> dict[Span, list[Segment]]:
        """Return the segments that an archive doesn't hold, neighbours together.

        A segment is held if an answer names its blocks, and all of its time is complete. A stretch
        reaches up to the neighbouring blocks that the archive holds: no block lies between.
        """
        held = [*self._held(evidence)]

        def is_held(segment: Segment) -> bool:
            is_named = any(a <= segment.first and segment.last <= b for *_, (a, b) in held)
            return is_named and not evidence.incomplete(*_span_of(segment))

        parts: dict[Span, list[Segment]] = {}
        for stretch in self.stretches:
            for is_done, group in groupby(stretch.segments, is_held):
                if is_done:
                    continue
                part = list(group)
                begin, end = span_of(part)
                before = [x for _, x, (_, b) in held if b == part[0].first - 1 and x <= begin]
                after = [x for x, _, (a, _) in held if a == part[-1].last + 1 and x >= end]
                parts[max(before, default=begin), min(after, default=end)] = part
        return parts

    def rows(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield the rows of a stretch of the plan, segment by segment."""
        part = self.parts.get((start, end), [])
        is_first = self._is_first(part)
        with contextlib.closing(iter_rows(part, self.query.filters, self.on_bad_rows)) as found:
            for segment, rows in found:
                stop = end if segment is part[-1] else int(rows.times[-1]) + 1
                whole = Step(start, stop, (rows.rows,), rows.bad_rows)
                periods = layout.periods_between(start, stop, self.query.partition)
                bounds = (layout.period_bounds(period, self.query.partition) for period in periods)
                for span in clipped(bounds, start, stop):
                    yield self._take(whole.between(*span), segment, is_first=is_first)
                    is_first = False
                start = stop

    def _take(self, step: Step, segment: Segment, *, is_first: bool) -> Step:
        """Return a step of a segment and one period, and note the evidence for it.

        It names its own blocks alone: of what an interrupted run leaves, the evidence says no more.
        """
        span, asked = (step.start, step.end), time.time_ns() // 1000
        heights = _heights_in(segment, span)
        answer = Answer(span, self.node, (asked, asked), heights)
        bad = (
            SetAside(span if x.time is None else (x.time, x.time + 1), x.account)
            for x in step.bad_rows
        )
        new = Evidence(self.query.filters, (answer,), tuple(bad), from_first_block=is_first)
        self.found |= new
        return replace(step, source=self.node.name, block_height=segment.last)

    def _is_first(self, part: list[Segment]) -> bool:
        """Whether segments begin with the network's first block."""
        return (
            bool(part)
            and part[0] is self.stretches[0].segments[0]
            and (self.stretches[0].is_from_first)
        )

    def answered(self, start: int, end: int) -> Evidence:
        """Return the evidence for the rows so far in [start, end)."""
        return self.found.within(start, end)

    def evidence(self) -> Evidence:
        """Return the same: segments forget nothing."""
        return self.found

    def keep_names(self, given: Names) -> None:
        """Keep the assets as the newest segment has them, and the names that the caller gave."""
        last = self.stretches[-1].segments[-1]
        kept, named = sidecars.read_archive_names(self.store).assets, read_segment_assets(last)
        both = kept.updated(named) if last.last >= self.newest else named.updated(kept)
        sidecars.write_archive_names(self.store, Names(both).updated(given))
