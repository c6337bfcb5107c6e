"""Segments as an export takes rows: in steps, each of which settles a stretch of time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive.commit import within
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.errors import NetworkMismatchError
from balance_analysis.ingest.continuity import accounts_of
from balance_analysis.node.walk import Step
from balance_analysis.segments.chain import source_text
from balance_analysis.segments.rows import raise_bad_row, read_blocks
from balance_analysis.segments.table import iter_rows
from balance_analysis.text import moment_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from balance_analysis.archive.commit import Writer
    from balance_analysis.filters import Filters
    from balance_analysis.ingest.periods import Loaded
    from balance_analysis.load.request import OnBadRows
    from balance_analysis.segments.rows import SegmentRows
    from balance_analysis.segments.segment import Segment
    from balance_analysis.spans import Span


def bounds_of(segments: Sequence[Segment]) -> Span:
    """Return the time of the first block of segments, and that behind their last one."""
    first, last = read_blocks(segments[0]), read_blocks(segments[-1])
    return int(first.times[first.since]), int(last.times[-1]) + 1


def step_of(segment: Segment, part: SegmentRows, start: int, end: int) -> Step:
    """Return a segment's rows as what settles [start, end)."""
    source = source_text(segment.chain, segment.begin, segment.last)
    return Step(
        start, end, (part.rows,), part.bad_rows, 0, 0, None, source, source,
        block_height=segment.last,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SegmentsLoad:
    """Loads rows from segments, each of which settles what lies between two of the `edges`."""

    segments: tuple[Segment, ...]
    edges: tuple[int, ...]
    filters: Filters
    on_bad_rows: OnBadRows

    def __call__(self, start: int, end: int) -> Loaded:
        """Load all of [start, end)."""
        places = [x for x, (a, b) in enumerate(pairwise(self.edges)) if a < end and b > start]
        steps, rows = list[Step](), [NO_ROWS]
        chosen = [self.segments[place] for place in places]
        for place, (segment, part) in zip(places, iter_rows(chosen, self.filters), strict=True):
            if self.on_bad_rows == "raise":
                raise_bad_row(segment, part.bad_rows)
            begin, stop = max(start, self.edges[place]), min(end, self.edges[place + 1])
            steps.append(replace(step_of(segment, part, begin, stop), batches=()))
            rows.append(pa.Table.from_batches([part.rows]))
        return steps, pa.concat_tables(rows), 0


def check_network(
    writer: Writer, segments: Sequence[Segment], filters: Filters, span: Span
) -> None:
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
    rows = [within(writer.rows_of(period), start, end) for period in periods[-1:]]
    if not rows or not rows[0].num_rows:
        return
    last = pc.max(rows[0]["timestamp"].cast(pa.int64())).as_py()
    place = bisect_right(segments, last, key=lambda each: int(read_blocks(each).times[0]))
    segment = segments[max(place - 1, 0)]
    [(_, part)] = iter_rows([segment], filters)
    found = within(pa.Table.from_batches([part.rows]), last, last + 1)
    if not accounts_of(found) & accounts_of(within(rows[0], last, last + 1)):
        raise NetworkMismatchError(
            f"the archive has rows of {moment_text(last)}, and {segment} none of these "
            "accounts then: it is of another network"
        )
