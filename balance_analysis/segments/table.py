"""Segments as a table of balance changes, or as a report on what they hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, Unpack

import pandas as pd
import pyarrow as pa

from balance_analysis.errors import DecodeError, IncompleteError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import (
    FilterKeywords,
    Filters,
    make_filters,
    take_names,
    takes_filters,
)
from balance_analysis.frame import to_frame
from balance_analysis.known import note_known, note_rows
from balance_analysis.labels import Names, note_names
from balance_analysis.presentation import Record
from balance_analysis.schema import ARROW_SCHEMA, ATTRS_KEY
from balance_analysis.segments import content
from balance_analysis.segments.chain import Stretch, find_stretches, missing_blocks
from balance_analysis.segments.segment import Segment, heights_text
from balance_analysis.text import count_text, iso_text, list_text, moment_text

THREADS: Final = 2
"""How many segments are read at once."""


@takes_filters
def read_segments(
    paths: PathLike | Iterable[PathLike],
    *,
    on_bad_rows: Literal["raise", "quarantine"] = "raise",
    **filters: Unpack[FilterKeywords],
) -> pd.DataFrame:
    """Read balance changes from network history segments, proven to be complete.

    Parameters
    ----------
    paths
        The segments: zips, unpacked ones, folders of such, and patterns such as `history/*.zip`.
        They may overlap, if they agree.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which leaves it out and keeps it, raw and with the reason, in the table's attrs.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`, over those that the segments tell.
    labels
        Own names, as for `load_balance_changes`.

    Returns
    -------
    pandas.DataFrame
        The table, with the rows that a node lists for these blocks. Its attrs tell, as JSON:
        `source`, `start`, `end`, `rows`, `block_height` (the last one), `known` (from the first
        block of each stretch of segments through its last), the assets, and quarantined rows. Where
        segments begin with the network's first block, no account held anything before, and
        functions go by that: a balance before an account's first row is 0 then, not unknown.

    Raises
    ------
    DecodeError
        If a segment is damaged, lacks a table, or has a bad row.
    IncompleteError
        If a segment lacks a block, or names another one before it than there is.
    NetworkMismatchError
        If the segments are of two chains.
    CheckError
        If two segments differ in a block, or one has two rows of one account and block.
    FileNotFoundError
        If a path names nothing.
    ValueError
        If a filter is malformed.
    """
    stretches = find_stretches(paths)
    last = stretches[-1].segments[-1]
    names = Names(content.read_segment_assets(last)).updated(take_names(filters))
    filters["assets"] = names.assets
    wanted = make_filters(**filters)
    batches, known, bad_rows = [], [], []
    for stretch in stretches:
        parts = [part for _, part in iter_rows(stretch.segments, wanted, on_bad_rows)]
        known.append((int(parts[0].times[0]), int(parts[-1].times[-1]) + 1))
        batches += [part.rows for part in parts]
        bad_rows += [bad for part in parts for bad in part.bad_rows]
    if gaps := missing_blocks(stretches):
        logger.warning(
            "no segment has the blocks %s: what changed there is unknown", heights_text(gaps)
        )
    table = to_frame(pa.Table.from_batches(batches, ARROW_SCHEMA))
    metadata: dict[str, Any] = {
        "source": ", ".join(stretch.source for stretch in stretches),
        "start": iso_text(known[0][0]),
        "end": iso_text(known[-1][1]),
        "rows": len(table),
        "block_height": last.last,
        "quarantined": [{"row": bad.raw, "reason": bad.reason} for bad in bad_rows],
    }
    table.attrs[ATTRS_KEY] = note_names(metadata, names)
    note_known(table, known, nothing_before=stretches[0].is_from_first)
    note_rows(table)
    return table


def iter_rows(
    segments: Sequence[Segment],
    filters: Filters,
    on_bad_rows: Literal["raise", "quarantine"] = "quarantine",
) -> Generator[tuple[Segment, content.SegmentRows]]:
    """Yield segments of one stretch with their rows, in order, reading a few ahead.

    Raises
    ------
    IncompleteError, DecodeError, CheckError
        As `read_rows`; IncompleteError as well where a segment doesn't begin after the one before,
        and DecodeError for a bad row where these are to raise.
    """
    # Those of the last one are of all: accounts are never taken away.
    accounts = content.read_accounts(segments[-1], filters)
    before: int | None = None
    with ThreadPoolExecutor(THREADS, thread_name_prefix="balance_analysis") as pool:
        todo = (pool.submit(content.read_rows, each, accounts) for each in segments)
        waiting: deque[Future[content.SegmentRows]] = deque()
        try:
            for segment in segments:
                waiting.extend(islice(todo, 2 * THREADS - len(waiting)))
                part = waiting.popleft().result()
                if before is not None and part.times[0] <= before:
                    raise IncompleteError(
                        f"{segment} begins before the segment ends that stands before it"
                    )
                before = int(part.times[-1])
                for bad in part.bad_rows if on_bad_rows == "raise" else ():
                    raise DecodeError(
                        f"{segment} has a bad row: {bad.reason}; it is {bad.raw}", row=bad.raw
                    )
                yield segment, part
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class SegmentsReport(Record):
    """What segments hold. As text it is for the terminal.

    Attributes
    ----------
    chain
        The network's chain id.
    segments
        How many there are.
    stretches
        Blocks that follow each other: the first and the last height, and their times in UTC.
    missing
        The heights that are in none, between the stretches: the first and the last of each gap.
    is_from_first
        Whether they begin with the network's first block, before which there was nothing.
    accounts, assets, limits
        As of the last block: how many accounts, which assets by symbol, and how many changes of the
        network's limits.
    """

    chain: str
    segments: int
    stretches: tuple[tuple[int, int, str, str], ...]
    missing: tuple[tuple[int, int], ...]
    is_from_first: bool
    accounts: int
    assets: tuple[str, ...]
    limits: int

    def _title(self) -> str:
        return f"{count_text(self.segments, 'segment')} of {self.chain}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "chain", f"{self.chain}, {count_text(self.segments, 'segment')}"
        for first, last, begin, end in self.stretches:
            yield "blocks", f"{first:,} to {last:,}, {begin} to {end}"
        yield "missing", heights_text([*self.missing]) or "none in between"
        before = "nothing: they begin with the first block" if self.is_from_first else "unknown"
        yield "before", before
        assets = f"{count_text(len(self.assets), 'asset')} ({list_text(self.assets, 5)})"
        changes = f"{count_text(self.limits, 'change')} of the network's limits"
        yield "at last", f"{count_text(self.accounts, 'account')}, {assets}, {changes}"
        yield "ids", "The content ids of segments (Qm...) are not checked."


def diagnose_segments(paths: PathLike | Iterable[PathLike]) -> SegmentsReport:
    """Tell what network history segments hold, and what is missing, without reading their rows.

    Parameters
    ----------
    paths
        As for `read_segments`.

    Raises
    ------
    DecodeError, IncompleteError, NetworkMismatchError, CheckError, FileNotFoundError
        As `read_segments`; what is wrong with rows is found where these are read.
    """
    stretches = find_stretches(paths)
    last = stretches[-1].segments[-1]
    assets = content.read_segment_assets(last)
    return SegmentsReport(
        last.chain,
        sum(len(stretch.segments) for stretch in stretches),
        tuple(_bounds(stretch) for stretch in stretches),
        tuple(missing_blocks(stretches)),
        stretches[0].is_from_first,
        len(content.read_accounts(last).places),
        tuple(assets.labels(assets).values()),
        len(content.read_segment_limits(last, stretches[-1].source)),
    )


def _bounds(stretch: Stretch) -> tuple[int, int, str, str]:
    first, last = (content.read_blocks(stretch.segments[place]) for place in (0, -1))
    begin = int(first.times[first.since])
    return stretch.first, stretch.last, moment_text(begin), moment_text(int(last.times[-1]))
