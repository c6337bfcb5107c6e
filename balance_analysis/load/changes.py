"""Load balance changes as a table, a Parquet file, a stream of batches, or page by page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from balance_analysis.errors import IncompleteError, logger
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.load import PAGE_SIZE, WORKERS
from balance_analysis.load.arguments import (
    OnBadRows,
    OnProgress,
    check_positive,
    make_bounds,
    reporting,
)
from balance_analysis.load.nodes import NodeSource
from balance_analysis.node.client import BALANCE_CHANGES, Client
from balance_analysis.node.decode import decode_page, raise_bad_row
from balance_analysis.node.walk import PageRequest, Step, filter_parameters
from balance_analysis.table import schema
from balance_analysis.table.evidence import Evidence, least
from balance_analysis.table.filters import make_filters
from balance_analysis.table.known import evidence_json, note_rows
from balance_analysis.table.moments import Moment, Span, clipped, iso_text, moment_text, without
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, note_names, read_names
from balance_analysis.table.text import count_text, html_table, spans_text

if TYPE_CHECKING:
    import pandas as pd


_SHOWN: Final = 10
"""Number of a page's rows that a notebook shows."""

_BUFFER_ROWS: Final = 1 << 14
"""Minimum buffered rows before superseded ones are dropped."""

ROW_GROUP: Final = 1 << 17
"""Minimum rows of a file that are sorted and written together."""


def load_balance_changes(
    client: Client,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    opening: bool = False,
    page_size: int = PAGE_SIZE,
    workers: int = WORKERS,
    on_bad_rows: OnBadRows = "raise",
    progress: bool | OnProgress | None = None,
) -> pd.DataFrame:
    """Load all balance changes in [start, end), or raise.

    The load walks the interval by time, without cursors, so it loses nothing on nodes whose cursors
    lose rows. The table doesn't have an account's balance before its first row, unless `opening`
    adds it.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    start, end
        The interval, start inclusive, end exclusive: datetimes, dates or text, either ISO 8601 or
        relative such as "7d" (ago), "now-1h" and "now"; UTC if there is no time zone. `start=None`
        begins at the oldest row of these accounts that the node holds, searched from 2020 on.
        `end=None` is now, fixed before the first request.
    asset_id, party_ids, market_ids, account_types
        The accounts; all by default. AND across the four, OR within a list. Ids have 64 hex digits
        (write other asset ids as `id:ID`), or are `network` for accounts without a party. Write
        account types as `ACCOUNT_TYPE_GENERAL` or `general`, and one that is newer than this
        release as `new:NAME`.
    assets, labels
        Symbols and decimals of assets, as for `read_assets`, and your own names of parties and
        markets, as for `read_labels`. Filters may use them, and the table's attrs keep them.
    opening
        Whether to add openings: the last row of each account before `start`, under its own
        timestamp. The load then requests all of the node's rows before `start`, and keeps each
        account's last one. `known` reaches back to the oldest opening: if a gap follows an opening,
        the balance may have changed within it. An account without an opening has no row before
        `start`, or the node has forgotten it: sums then warn that it may be left out.
    page_size
        Rows per request.
    workers
        Number of concurrent requests. The result doesn't depend on it.
    on_bad_rows
        How to treat a row that the table can't hold: "raise" (DecodeError), or "quarantine", which
        leaves it out and keeps it, raw and with the reason, in the table's attrs.
    progress
        `True` for a progress bar on stderr, `False` for none, `None` for one if stderr is a
        terminal or this is a notebook; or a function called after each step with the loaded share
        of the interval, 0 to 1, and the rows so far.

    Returns
    -------
    pandas.DataFrame
        A table: columns asset_id, account_type, party_id, market_id (category), timestamp
        (datetime64[us, UTC]), balance (decimal128(38, 0)[pyarrow], in the asset's smallest unit),
        sorted by these in order; (account, timestamp) unique. `attrs["balance_analysis"]` has,
        as JSON: source, `start` and `end`, filters, rows, requests, retries, bytes, seconds,
        `throttled_seconds`, the lowest last block that an answer named, `known` (intervals for
        which the node sent every change, as pairs of ISO 8601), `evidence` (from which they
        follow), and quarantined rows. Rows before `start` are openings.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses, after the retries.
    DecodeError
        If an answer or a row isn't what the interface describes.
    IncompleteError
        If the answers don't add up to a complete list, a node uses one value of a filter's list, or
        one of several nodes has a row that the load lacks.
    NetworkMismatchError
        If several nodes are of different networks.
    CheckError
        If two rows of one account and time differ.
    ValueError
        If `start` isn't before `end`, or a filter is malformed.

    Notes
    -----
    Nodes forget their oldest blocks first, so an answer that lists a row proves that the node has
    forgotten nothing since. The known interval starts at the first row received, or at `start` if
    one more request shows an earlier row, of these accounts or of another in the same answer. It
    ends at the node's last block, or at its newest row if it names none. If it is shorter than the
    interval you requested, one warning says so, on stderr unless the program configures logging;
    the rows are kept. Bounds that you leave open become the known interval's.
    """
    ids, names = (asset_id, party_ids, market_ids, account_types), read_names(assets, labels)
    filters = make_filters(*ids, names=lambda: names)
    source = NodeSource(client, filters, page_size, workers, on_bad_rows)
    load = _Load(source, names, (start, end), progress, opening=opening)
    from balance_analysis.load.merge import merge, sort_parts  # noqa: PLC0415 - pandas is heavy

    table = merge([*sort_parts(pa.Table.from_batches([batch]) for batch in load.batches())])
    table.attrs[schema.ATTRS_KEY] = load.describe()
    note_rows(table)
    return table


def load_to_parquet(
    client: Client,
    path: PathLike,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    opening: bool = False,
    page_size: int = PAGE_SIZE,
    workers: int = WORKERS,
    on_bad_rows: OnBadRows = "raise",
    progress: bool | OnProgress | None = None,
) -> dict[str, Any]:
    """Load all balance changes in [start, end) into a Parquet file, in bounded memory.

    Openings come first, then the rows in time order, one row group after the other; inside a row
    group, rows are in the table's order.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`.
    opening, page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`.
    path
        The file; an existing one is replaced once the load is complete. `read_parquet` reads it
        as a table. A load that fails or is interrupted leaves no file, and can't be resumed as an
        archive's `export` can.

    Returns
    -------
    dict
        The facts about the load, as in the `attrs` of a loaded table.

    Raises
    ------
    RequestError, DecodeError, IncompleteError, NetworkMismatchError, CheckError, ValueError
        As `load_balance_changes`; ValueError also if the file would lie in an archive.
    OSError
        If the file can't be written.
    """
    ids, names = (asset_id, party_ids, market_ids, account_types), read_names(assets, labels)
    filters = make_filters(*ids, names=lambda: names)
    source = NodeSource(client, filters, page_size, workers, on_bad_rows)
    load = _Load(source, names, (start, end), progress, opening=opening)
    target = check_output(path)
    with replacing(target) as temporary, parquet_writer(temporary, schema.ARROW_SCHEMA) as writer:
        for batches in schema.gathered(load.batches(), ROW_GROUP):
            writer.write_table(schema.canonical(pa.Table.from_batches(batches)))
            # The allocator keeps freed memory, more with each row group.
            pa.default_memory_pool().release_unused()
        description = load.describe()
        writer.add_key_value_metadata(make_note({"load": description}))
    return description


def iter_balance_changes(
    client: Client,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
    page_size: int = PAGE_SIZE,
    workers: int = WORKERS,
    on_bad_rows: OnBadRows = "raise",
    progress: bool | OnProgress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Load all balance changes in [start, end) as a stream, for more rows than fit in memory.

    Few batches are buffered: if the caller stops taking them, no more requests are sent.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`.
    page_size, workers, progress
        As for `load_balance_changes`.
    on_bad_rows
        "raise" (DecodeError), or "quarantine", which leaves a bad row out and logs it.

    Yields
    ------
    pyarrow.RecordBatch
        Rows in time order, never empty: asset_id, account_type, party_id, market_id (dictionary of
        string), timestamp (timestamp[us, UTC]), balance (decimal128(38, 0), in the asset's smallest
        unit). All rows before the first of the next batch have been yielded.

    Raises
    ------
    ValueError, TypeError
        If an argument is malformed; raised by the call, not at the first batch.
    RequestError, DecodeError, IncompleteError, NetworkMismatchError, CheckError
        As for `load_balance_changes`; the batches before the error are complete.
    """
    ids, names = (asset_id, party_ids, market_ids, account_types), read_names(assets, labels)
    filters = make_filters(*ids, names=lambda: names)
    source = NodeSource(client, filters, page_size, workers, on_bad_rows)
    return _Load(source, names, (start, end), progress, is_logging=True).batches()


@dataclass
class _Load:
    """A load's steps and, once all have come, the evidence for them.

    Attributes
    ----------
    source, names
        The source of rows, and the names that the caller gave.
    bounds
        The start and the end that the caller gave; without an end, the time that the node doesn't
        know yet isn't missing.
    progress
        As for `load_balance_changes`.
    opening
        Whether the last row of each account before the start comes first.
    is_logging
        Whether to log each bad row.
    interval
        The loaded interval, once all steps have come; open bounds become those of the evidence.
    rows, seconds
        The number of rows so far, and the time they took.
    evidence
        The evidence for the rows, once all have come.
    """

    source: NodeSource
    names: Names
    bounds: tuple[Moment | None, Moment | None]
    progress: bool | OnProgress | None
    opening: bool = False
    is_logging: bool = False
    rows: int = 0
    seconds: float = 0.0
    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.start, self.end = make_bounds(*self.bounds)
        self.interval: Span = (self.end, self.end)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in time order; then collect the evidence, and warn if it has gaps."""
        began = time.monotonic()
        start, end = self.interval = self.source.interval(self.start, self.end)
        has_openings = self.opening and self.start is not None
        since = self.source.interval(None, start)[0] if has_openings else start
        with reporting(self.progress) as report:
            for step in chain(self._openings(since, start), self.source.rows(start, end)):
                for bad in step.bad_rows if self.is_logging else ():
                    logger.warning("left out a bad row: %s; the row is %s", bad.reason, bad.raw)
                yield from step.batches
                self.rows += step.num_rows
                report((step.end - since) / (end - since), self.rows)
        self.evidence = self.source.evidence()
        if self.source.lost:
            url, moment = next(iter(self.source.lost.items()))
            raise IncompleteError(
                f"{url} has a row at {moment_text(moment)} that the load lacks: another node has "
                "forgotten it since the load began; load again, or from this node alone"
            )
        self.seconds += time.monotonic() - began
        logger.info("%d rows in %d requests", self.rows, self.source.stats.requests)
        reached = next((first for first, _ in self.evidence.reached), start)
        start = reached if self.start is None else start
        if self.bounds[1] is None and self.evidence.answers:
            end = max(start, self.evidence.bounds[1])
        self.interval = start, end
        since = min(start, reached)
        if self.evidence.incomplete(since, end):
            logger.warning("the load is %s", self._completeness_text(since, end))

    def _openings(self, since: int, start: int) -> Iterator[Step]:
        """Yield the steps of [since, start) without rows, then one with each account's last row."""
        if since == start:
            return
        last, waiting = schema.ARROW_SCHEMA.empty_table(), list[pa.RecordBatch]()
        for step in self.source.rows(since, start):
            waiting += step.batches
            if sum(batch.num_rows for batch in waiting) >= max(_BUFFER_ROWS, last.num_rows):
                last, waiting = _last_rows(last, waiting), []
            yield replace(step, batches=())
        yield Step(start, start, tuple(_last_rows(last, waiting).to_batches()))

    @property
    def head(self) -> int | None:
        """The lowest last block's time (in microseconds), or `None` if unknown."""
        return least(*(step.head for step in self.source.taken))

    def describe(self) -> dict[str, Any]:
        """Return the facts about the load for a table's attrs, as JSON types."""
        taken = self.source.taken
        steps = Counter(step.node.name for step in taken if step.page_size)
        bad_rows = dict.fromkeys(bad for step in taken for bad in step.bad_rows)
        description = {
            "source": max(steps, key=steps.__getitem__, default=None),
            "steps_by_node": dict(steps),
            "start": iso_text(self.interval[0]),
            "end": iso_text(self.interval[1]),
            "filters": [list(pair) for pair in filter_parameters(self.source.filters)],
            "rows": self.rows,
            **self.source.stats.as_json(),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds, 1) if self.seconds else 0.0,
            "block_height": self.source.height,
            "block_time": self.head and iso_text(self.head),
            **evidence_json(self.evidence),
            "quarantined": [{"row": bad.raw, "reason": bad.reason} for bad in bad_rows],
        }
        return note_names(description, self.names)

    def _completeness_text(self, start: int, end: int) -> str:
        """Return which part of [start, end) is complete, and why the rest isn't."""
        evidence, head, reasons = self.evidence, self.head, list[str]()
        if missing := evidence.missing(start, end):
            until = moment_text(missing[0][0] if head is None else min(missing[0][0], head))
            silent = f"the node names no last block, and its newest row is of {until}"
            reasons.append(silent if head is None else f"the node knows blocks only up to {until}")
        if lacking := [*clipped(self.source.incomplete, start, end)]:
            reasons.append(f"the node says that it may lack rows of {spans_text(lacking)}")
        unreached = clipped(without(evidence.answered, evidence.reached), start, end)
        if forgotten := without(unreached, lacking):
            reasons.append(f"the node may have forgotten rows of {spans_text(forgotten)}")
        if evidence.set_aside:
            reasons.append(f"{count_text(len(evidence.set_aside), 'bad row')} set aside")
        interval, complete = spans_text([(start, end)]), [*clipped(evidence.complete, start, end)]
        part = f"complete only for {spans_text(complete)}, not for all"
        part = part if complete else "complete for any part"
        return f"{'' if complete else 'not '}known to be {part} of {interval}: {'; '.join(reasons)}"


def _last_rows(rows: pa.Table, batches: list[pa.RecordBatch]) -> pa.Table:
    """Return each account's last row."""
    newer = pa.Table.from_batches(batches, schema.ARROW_SCHEMA)
    rows = schema.canonical(pa.concat_tables([rows, newer]))
    heads = schema.account_heads(rows.select(schema.ACCOUNT_KEY))
    return rows.take(pa.array(np.append(heads[1:], rows.num_rows)[: len(heads)] - 1))


@dataclass(frozen=True, slots=True)
class Page:
    """A page of balance changes.

    Attributes
    ----------
    table
        The page's rows: a table's columns and dtypes, but in the order in which the node sent them.
    start_cursor, end_cursor
        Cursors of the first and last row; empty for an empty page.
    has_next_page, has_previous_page
        Whether rows follow or precede in the list's order, as the node says.
    """

    table: pd.DataFrame
    start_cursor: str
    end_cursor: str
    has_next_page: bool
    has_previous_page: bool

    def _repr_html_(self) -> str:
        facts = {
            "previous page": self.has_previous_page,
            "next page": self.has_next_page,
            "start cursor": self.start_cursor or None,
            "end cursor": self.end_cursor or None,
        }
        title = f"Page of a node: {count_text(len(self.table), 'balance change')}, in its order"
        shown = self.table.to_html(index=False, max_rows=_SHOWN, border=0)
        return html_table(title, facts.items()) + shown


def iter_pages(
    client: Client,
    *,
    first: int | None = None,
    after: str | None = None,
    last: int | None = None,
    before: str | None = None,
    newest_first: bool = True,
    start: Moment | None = None,
    end: Moment | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Iterator[Page]:
    """Page through the list of balance changes by its cursors, lazily, in either direction.

    This is the interface's own paging, for a quick look. On real nodes it silently loses rows: use
    `load_balance_changes` to get all rows.

    Parameters
    ----------
    client
        The node.
    first, after
        Forward: rows per page (1000 if you give neither `first` nor `last`), and the cursor of the
        row to begin after.
    last, before
        Backward: rows per page, and the cursor of the row to begin before; without a cursor, from
        the end of the list. Pages come last to first; the rows in each keep the list's order.
    newest_first
        The list's order.
    start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`. A real node takes at most 365 days without a cursor.

    Yields
    ------
    Page
        `table` (rows in the node's order), `start_cursor`, `end_cursor`, `has_next_page`,
        `has_previous_page`.

    Raises
    ------
    ValueError
        If directions are mixed, or an argument is malformed; raised by the call, not at the first
        page.
    IncompleteError
        If the node announces another page, but its cursor is missing or repeated.
    RequestError, DecodeError
        As for `load_balance_changes`.
    """
    backward = last is not None or before is not None
    if backward and (first is not None or after is not None):
        raise ValueError("give first and after (forward), or last and before (backward)")
    limit = last if backward else first
    size = 1000 if limit is None else limit
    check_positive("last" if backward else "first", size)
    since, until = make_bounds(start, end)
    ids, names = (asset_id, party_ids, market_ids, account_types), read_names(assets, labels)
    filters, cursor = make_filters(*ids, names=lambda: names), before if backward else after
    # `_follow` finds the start when the first page is requested.
    request = PageRequest(filters, 0, until, size, newest_first, cursor, backward)
    return _follow(client, request, since)


def _follow(client: Client, request: PageRequest, start: int | None) -> Iterator[Page]:
    """Yield pages from a cursor on, in one direction, until the node announces no more."""
    from balance_analysis.table.frame import to_frame  # noqa: PLC0415 - pandas is heavy

    seen = {request.cursor}
    request = replace(request, start=NodeSource(client).interval(start, request.end)[0])
    while True:
        page = client.get(BALANCE_CHANGES, request.parameters(), decode_page).value
        raise_bad_row(page.bad_rows)
        info, table = page.info, to_frame(pa.Table.from_batches([page.rows]), sort=False)
        cursors = info.start_cursor, info.end_cursor
        yield Page(table, *cursors, info.has_next_page, info.has_previous_page)
        if not (info.has_previous_page if request.backward else info.has_next_page):
            return
        cursor = info.start_cursor if request.backward else info.end_cursor
        if not cursor:
            raise IncompleteError(f"page {len(seen)} announces another but gives no cursor to it")
        if cursor in seen:
            raise IncompleteError(f"cursor {cursor!r} came back on page {len(seen)}")
        seen.add(cursor)
        request = replace(request, cursor=cursor)
