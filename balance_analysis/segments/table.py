"""Read segments into a table."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, Literal, Unpack

import pandas as pd
import pyarrow as pa

from balance_analysis.assets import note_assets, read_assets
from balance_analysis.errors import IncompleteError
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import FilterKeywords, Filters, make_filters, takes_filters
from balance_analysis.frame import to_frame
from balance_analysis.known import note_known
from balance_analysis.row_counts import note_rows
from balance_analysis.schema import ARROW_SCHEMA, ATTRS_KEY
from balance_analysis.segments.chain import gaps_text, missing_blocks, put_in_order
from balance_analysis.segments.rows import SegmentRows, raise_bad_row, read_accounts, read_rows
from balance_analysis.segments.segment import Segment, find_segments
from balance_analysis.segments.state import read_segment_assets
from balance_analysis.text import iso_text

logger: logging.Logger = logging.getLogger("balance_analysis")

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
    stretches = put_in_order(find_segments(paths))
    last = stretches[-1].segments[-1]
    assets = read_segment_assets(last).updated(read_assets(filters.get("assets") or {}))
    filters["assets"] = assets
    wanted = make_filters(**filters)
    batches, known, bad_rows = [], [], []
    for stretch in stretches:
        parts = []
        for segment, part in iter_rows(stretch.segments, wanted):
            if on_bad_rows == "raise":
                raise_bad_row(segment, part.bad_rows)
            parts.append(part)
        known.append((int(parts[0].times[0]), int(parts[-1].times[-1]) + 1))
        batches += [part.rows for part in parts]
        bad_rows += [bad for part in parts for bad in part.bad_rows]
    if gaps := missing_blocks(stretches):
        logger.warning(
            "no segment has the blocks %s: what changed there is unknown", gaps_text(gaps)
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
    table.attrs[ATTRS_KEY] = note_assets(metadata, assets)
    note_known(table, known, nothing_before=stretches[0].is_from_first)
    note_rows(table)
    return table


def iter_rows(
    segments: Sequence[Segment], filters: Filters, *, threads: int = THREADS
) -> Generator[tuple[Segment, SegmentRows]]:
    """Yield segments of one stretch with their rows, in order, reading a few ahead.

    Raises
    ------
    IncompleteError, DecodeError, CheckError
        As `read_rows`; IncompleteError as well where a segment doesn't begin after the one before.
    """
    # Those of the last one are of all: accounts are never taken away.
    accounts = read_accounts(segments[-1], filters)
    before: int | None = None
    with ThreadPoolExecutor(threads, thread_name_prefix="balance_analysis") as pool:
        waiting: deque[tuple[Segment, Future[SegmentRows]]] = deque()
        todo = iter(segments)
        try:
            while True:
                for segment in islice(todo, 2 * threads - len(waiting)):
                    waiting.append((segment, pool.submit(read_rows, segment, accounts)))
                if not waiting:
                    return
                segment, future = waiting.popleft()
                part = future.result()
                if before is not None and part.times[0] <= before:
                    raise IncompleteError(f"{segment} begins before the one ends that it follows")
                before = int(part.times[-1])
                yield segment, part
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
