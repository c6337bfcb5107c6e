"""Read segments' tables: balance changes, flows of the ledger, assets, limits.

A row is a balance with the ids of its account, at the time of one of the segment's blocks. Flows
are the ledger's entries, read only to compare them with balance changes.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.errors import CheckError, DecodeError, IncompleteError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.segments.segment import (
    ACCOUNTS,
    ASSETS,
    BALANCES,
    BLOCKS,
    FIRST_BLOCK,
    LEDGER,
    LIMITS,
    Segment,
    find_stretches,
    heights_text,
    missing_blocks,
)
from balance_analysis.table import schema
from balance_analysis.table.evidence import (
    Answer,
    Evidence,
    SetAside,
    as_set_aside,
    check_on_bad_rows,
)
from balance_analysis.table.filters import Filters, make_filters
from balance_analysis.table.frame import to_frame
from balance_analysis.table.known import note_evidence, note_rows
from balance_analysis.table.moments import EVER, Span
from balance_analysis.table.names import (
    Asset,
    AssetsLike,
    LabelsLike,
    Names,
    note_names,
    read_assets,
    read_names,
)
from balance_analysis.table.text import list_text, spans_text

_NAMES: Final = (schema.NAMED_ASSETS[0], None, None, schema.NETWORK_PARTY, *schema.NAMED_ASSETS[1:])
_WELL_KNOWN: Final = {f"{number:02x}": name for number, name in enumerate(_NAMES) if name}
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00$"
_COLUMNS: Final = ("account_id", "vega_time", "balance")
_IDS: Final = ("asset_id", "type", "party_id", "market_id")
"""The accounts' columns, in the order of `ACCOUNT_KEY`."""

_THREADS: Final = 2
"""Number of segments to read at once."""

_FLAGS: Final = {"t": True, "f": False}
_NOT_SET: Final = pd.Timestamp(0, tz="UTC")


def read_segments(
    paths: PathLike | Iterable[PathLike],
    *,
    on_bad_rows: Literal["raise", "quarantine"] = "raise",
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> pd.DataFrame:
    """Read balance changes from network history segments, proven to be complete.

    Parameters
    ----------
    paths
        The segments: zips, unpacked segments, folders of these, and patterns such as
        `history/*.zip`. An unpacked segment has no checksum, so a table that lost whole rows at
        its end isn't noticed. The same segment may be given twice; others must not share blocks.
    on_bad_rows
        How to treat a row that the table can't hold: "raise" (DecodeError), or "quarantine", which
        leaves it out and keeps it, raw and with the reason, in the table's attrs.
    asset_id, party_ids, market_ids, account_types
        The accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`. They override those in the segments.
    labels
        Your own names, as for `load_balance_changes`.

    Returns
    -------
    pandas.DataFrame
        The table, with the rows that a node lists for these blocks. Its attrs have, as JSON:
        `source`, `start`, `end`, `rows`, `block_height` (of the last block), `known`, the evidence
        for it, the assets, and quarantined rows. Each stretch of segments is known from its first
        block through its last, except the moments of quarantined rows, and the time between the
        neighbours of a block that the segment doesn't list: the block may be lost, or have had the
        time of the one before it. If the segments begin with the network's first block, no account
        held anything before: a balance before an account's first row is then 0, not unknown.

    Raises
    ------
    DecodeError
        If a segment is damaged, lacks a table, or has a bad row.
    IncompleteError
        If a segment lacks its first or last block, two blocks in a row, or a block that it has
        rows of, or if it names another predecessor than the segment before it.
    NetworkMismatchError
        If the segments are from two chains.
    CheckError
        If two different segments share a block, or one has two rows of one account and block.
    FileNotFoundError
        If a path doesn't exist.
    ValueError
        If a filter or `on_bad_rows` is malformed.
    """
    check_on_bad_rows(on_bad_rows)
    stretches = find_stretches(paths)
    segments = [segment for stretch in stretches for segment in stretch.segments]
    last = segments[-1]
    names = Names(read_segment_assets(last)).updated(read_names(assets, labels))
    ids = (asset_id, party_ids, market_ids, account_types)
    wanted = make_filters(*ids, names=lambda: names)
    parts = [*iter_rows(segments, wanted, on_bad_rows)]
    evidence = evidence_of(((part.blocks, part.bad_rows) for part in parts), wanted)
    if gaps := missing_blocks(stretches):
        logger.warning("no segment has the blocks %s: their time is missing", heights_text(gaps))
    table = to_frame(pa.Table.from_batches([part.rows for part in parts], schema.ARROW_SCHEMA))
    metadata: dict[str, Any] = {
        "source": ", ".join(stretch.source for stretch in stretches),
        "rows": len(table),
        "block_height": last.last,
        "quarantined": [
            {"row": bad.raw, "reason": bad.reason} for part in parts for bad in part.bad_rows
        ],
    }
    table.attrs[schema.ATTRS_KEY] = note_names(metadata, names)
    note_evidence(table, evidence, *evidence.bounds)
    note_rows(table)
    return table


def iter_rows(
    segments: Sequence[Segment],
    filters: Filters,
    on_bad_rows: Literal["raise", "quarantine"] = "quarantine",
) -> Generator[SegmentRows]:
    """Yield the rows of segments in the order of their blocks, reading a few segments ahead.

    Raises
    ------
    IncompleteError, DecodeError, CheckError
        As `read_rows`. Also IncompleteError if a segment begins before the previous one ends, and
        DecodeError for a bad row if `on_bad_rows` is "raise".
    """
    # The last segment has all accounts: none is ever removed.
    accounts = read_accounts(segments[-1], filters)
    end = EVER[0]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="balance_analysis") as pool:
        todo = (pool.submit(read_rows, each, accounts) for each in segments)
        waiting: deque[Future[SegmentRows]] = deque()
        try:
            for segment in segments:
                waiting.extend(islice(todo, 2 * _THREADS - len(waiting)))
                part = waiting.popleft().result()
                if part.blocks.span[0] < end:
                    raise IncompleteError(f"{segment} begins before the previous one ends")
                end = part.blocks.span[1]
                if part.bad_rows and on_bad_rows == "raise":
                    bad = part.bad_rows[0]
                    raise DecodeError(
                        f"{segment} has a bad row: {bad.reason}; the row is {bad.raw}", row=bad.raw
                    )
                yield part
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Accounts:
    """A network's accounts.

    Attributes
    ----------
    places
        Each account's position in the columns, by the id that balances and the ledger use.
    keys
        The columns of `ACCOUNT_KEY`.
    wanted
        A mask of the accounts that the filters select.
    """

    places: dict[str, int]
    keys: tuple[pa.DictionaryArray, ...]
    wanted: NDArray[np.bool_]

    def find(self, ids: pa.StringArray) -> NDArray[np.int64]:
        """Return the accounts' positions; -1 for an unknown id."""
        encoded = ids.dictionary_encode()
        places = [self.places.get(text, -1) for text in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(places, np.int64)[encoded.indices.to_numpy()])


def read_accounts(segment: Segment, filters: Filters = Filters()) -> Accounts:
    """Return all accounts that existed at a segment's last block.

    Raises
    ------
    DecodeError
        If the table is damaged.
    """
    table = segment.table(ACCOUNTS, ("id", *_IDS))
    keys = tuple(_spelt(segment, name, table[name]) for name in _IDS)
    wanted = np.ones(table.num_rows, bool)
    for name, values in filters.allowed().items():
        texts = keys[schema.ACCOUNT_KEY.index(name)].cast(pa.string())
        wanted &= pc.is_in(texts, pa.array(values)).to_numpy(zero_copy_only=False)
    places = {text: place for place, text in enumerate(table["id"].to_pylist())}
    return Accounts(places, keys, wanted)


def _spelt(segment: Segment, name: str, column: pa.StringArray) -> pa.DictionaryArray:
    """Return a column of accounts with ids and types spelt as the interface spells them."""
    encoded = column.dictionary_encode()
    try:
        spelt = [_spell(name, text) for text in encoded.dictionary.to_pylist()]
    except ValueError as error:
        raise DecodeError(f"{segment}: an account's {name} is {error}") from error
    if name == "type" and (new := [text for text in spelt if text.isdecimal()]):
        logger.warning("%s has account types without a name: %s", segment, list_text(new))
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(spelt, pa.string()))


def _spell(name: str, text: str) -> str:
    """Return an account's type or one of its ids as the interface spells it."""
    if name != "type":
        spelt = _id_text(text)
        if name == "asset_id" and not spelt:
            raise ValueError("empty")
        return spelt or (schema.NETWORK_PARTY if name == "party_id" else "")
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r}, which is not an account type's number")
    return schema.TYPES_BY_NUMBER.get(int(text), str(int(text)))


def _id_text(text: str) -> str:
    """Return an id, given as PostgreSQL prints bytes, as the interface spells it."""
    digits = text.removeprefix("\\x")
    if not re.fullmatch(r"(\\x([0-9a-f]{2})*)?", text, re.ASCII):
        raise ValueError(f"{text!r}, which is not an id")
    return _WELL_KNOWN.get(digits, digits)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A segment's blocks, ascending: heights, times (in microseconds), and times as text.

    Blocks at the same microsecond as the previous block, and lost ones, aren't among them.
    """

    segment: Segment
    heights: NDArray[np.int64]
    times: NDArray[np.int64]
    texts: pa.StringArray

    @property
    def span(self) -> Span:
        """The time of the first block, and the moment after the last one."""
        return int(self.times[0]), int(self.times[-1]) + 1

    @property
    def unproven(self) -> list[Span]:
        """The time between the neighbours of each unlisted block, which may be lost."""
        [before] = np.nonzero(np.diff(self.heights) > 1)
        spans = zip(self.times[before].tolist(), self.times[before + 1].tolist(), strict=True)
        return [(a + 1, b) for a, b in spans if a + 1 < b]

    def evidence(
        self, filters: Filters, span: Span, bad_rows: Sequence[schema.BadRow] = ()
    ) -> Evidence:
        """Return the evidence for all rows in a stretch of time without other blocks.

        Segments forget nothing. The answer names the stretch's own blocks only, as an interrupted
        import may keep no more.
        """
        begin, end = np.searchsorted(self.times, span)
        reached = [self.segment.first - 1, *self.heights.tolist()]
        heights = (reached[begin] + 1, reached[end]) if begin < end else None
        now = time.time_ns() // 1000
        return Evidence(
            filters,
            (Answer(span, self.segment.node, (now, now), heights),),
            (*map(SetAside, self.unproven), *as_set_aside(bad_rows, self.span)),
            from_first_block=self.segment.first <= FIRST_BLOCK,
        ).within(*span)


def read_blocks(segment: Segment) -> Blocks:
    """Return the blocks that a segment lists.

    Nodes don't list a block at the same microsecond as the previous one.

    Raises
    ------
    IncompleteError
        If the segment doesn't list its first or last block, two blocks in a row, or a block of
        which other tables have rows, or if it lists a block twice or one of another segment.
    DecodeError
        If the table is damaged.
    """
    heights, texts = segment.table(BLOCKS, ("height", "vega_time")).columns
    if not pc.all(pc.match_substring_regex(heights, r"^[0-9]{1,18}$"), min_count=0).as_py():
        raise DecodeError(f"{segment}: a block has no height")
    numbers = heights.cast(pa.int64()).to_numpy()
    order = np.argsort(numbers, kind="stable")
    numbers, texts = numbers[order], texts.take(pa.array(order))
    _check_heights(segment, numbers, texts)
    times = _moments(texts, f"{segment}: a block's time")
    if np.any(np.diff(times) <= 0):
        raise DecodeError(f"{segment}: the times of its blocks don't ascend")
    return Blocks(segment, numbers, times, texts)


def span_of(segments: Sequence[Segment]) -> Span:
    """Return the time of the segments' first block, and the moment after their last one.

    Raises
    ------
    IncompleteError, DecodeError
        As `read_blocks`.
    """
    spans = [read_blocks(each).span for each in dict.fromkeys((segments[0], segments[-1]))]
    return spans[0][0], spans[-1][1]


def evidence_of(
    parts: Iterable[tuple[Blocks, Sequence[schema.BadRow]]], filters: Filters = Filters()
) -> Evidence:
    """Return the evidence for some accounts' rows, given segments' blocks and bad rows in order."""
    evidence, last, end = Evidence(filters.sorted()), -1, 0
    for blocks, bad_rows in parts:
        start = end if blocks.segment.first == last + 1 else blocks.span[0]
        last, end = blocks.segment.last, blocks.span[1]
        evidence = evidence.updated(blocks.evidence(evidence.filters, (start, end), bad_rows))
    return evidence


def _check_heights(segment: Segment, heights: NDArray[np.int64], texts: pa.StringArray) -> None:
    """Raise IncompleteError unless a segment's ascending heights are those of its blocks."""
    wanted = segment.last - segment.first + 1
    ends = (heights[0] - segment.first, segment.last - heights[-1]) if len(heights) else (1, 1)
    is_whole = ends == (0, 0) and bool(np.all(np.isin(np.diff(heights), (1, 2))))
    if is_whole and (len(heights) == wanted or _has_no_others(segment, texts)):
        return
    inside = heights[(heights >= segment.first) & (heights <= segment.last)]
    edges = [segment.first - 1, *np.unique(inside).tolist(), segment.last + 1]
    missing = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    raise IncompleteError(
        f"{segment} has {len(heights)} blocks, not {wanted} from {segment.first} to "
        f"{segment.last}; missing: {heights_text(missing) or 'none'}"
    )


def _has_no_others(segment: Segment, moments: pa.StringArray) -> bool:
    """Return whether all rows of a segment, from its first block on, are at these moments."""
    for name in (BALANCES, LEDGER, ACCOUNTS):
        [times] = segment.table(name, ("vega_time",)).columns
        since = times.filter(pc.greater_equal(times, pc.min(moments)))
        if not pc.all(pc.is_in(since, moments), min_count=0).as_py():
            return False
    return True


def _moments(texts: pa.StringArray, what: str) -> NDArray[np.int64]:
    """Return moments (in microseconds), given as PostgreSQL prints them in UTC."""
    is_moment = pc.match_substring_regex(texts, _TIME)
    times = np.zeros(0, np.int64)
    with contextlib.suppress(pa.ArrowInvalid):
        if pc.all(is_moment, min_count=0).as_py():
            times = texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    if len(times) != len(texts):
        bad = texts.filter(pc.invert(is_moment)) or texts
        raise DecodeError(f"{what} is {bad[0].as_py()!r}, which is not a moment in UTC")
    if np.any((times < schema.FIRST_MOMENT) | (times >= schema.LAST_MOMENT)):
        raise DecodeError(f"{what} is not between 2015 and 2100")
    return times


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A segment's rows in `ARROW_SCHEMA`, in time order, the bad rows, and the blocks."""

    rows: pa.RecordBatch
    bad_rows: tuple[schema.BadRow, ...]
    blocks: Blocks


def read_rows(segment: Segment, accounts: Accounts) -> SegmentRows:
    """Return a segment's rows, as a node lists them for its blocks.

    Parameters
    ----------
    accounts
        The accounts of this segment or of a later one.

    Raises
    ------
    IncompleteError
        If a block is missing.
    DecodeError
        If a table is missing or damaged. Bad rows don't raise.
    CheckError
        If it has two rows of one account and block.
    """
    blocks = read_blocks(segment)
    if spans := blocks.unproven:
        logger.warning(
            "%s lacks a block that may have been lost: %s is unproven", segment, spans_text(spans)
        )
    rows, bad = _join(segment.table(BALANCES, _COLUMNS), blocks, accounts)
    if schema.has_repeats(rows):
        raise CheckError(f"{segment} has two rows of one account in one block")
    return SegmentRows(rows, tuple(_bad_rows(bad, blocks, accounts)), blocks)


def read_flows(segment: Segment, accounts: Accounts) -> pa.RecordBatch:
    """Return the flows of a segment's ledger.

    Returns
    -------
    pyarrow.RecordBatch
        `ARROW_SCHEMA`, in time order. Each entry has two rows, except those of unwanted accounts:
        `balance` is the flow, positive for the receiver and negative for the giver.

    Raises
    ------
    DecodeError
        If the ledger is damaged, names an unknown account, or has too many digits.
    IncompleteError
        If a block is missing.
    """
    columns = ("account_to_id", "account_from_id", "vega_time", "quantity")
    receivers, givers, moments, received = segment.table(LEDGER, columns).columns
    given = pc.binary_join_element_wise("-", received, "")
    entries = [
        pa.RecordBatch.from_arrays([receivers, moments, received], _COLUMNS),
        pa.RecordBatch.from_arrays([givers, moments, given], _COLUMNS),
    ]
    flows, bad = _join(pa.concat_batches(entries), read_blocks(segment), accounts)
    for row in bad.slice(0, 1).to_pylist():
        raise DecodeError(f"{segment}: an entry of the ledger can't be read: {row}", row=str(row))
    return flows


def _join(
    table: pa.RecordBatch, blocks: Blocks, accounts: Accounts
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return good lines as rows of the wanted accounts, in time order, and bad lines."""
    ids, moments, balances = table.columns
    account, block = accounts.find(ids), pc.index_in(moments, value_set=blocks.texts)
    is_placed = pc.and_(block.is_valid(), pa.array(account >= 0))
    is_good = pc.and_(is_placed, schema.are_balances(balances))
    height = pc.fill_null(block, -1).to_numpy()
    order = np.flatnonzero(is_good.to_numpy(zero_copy_only=False))
    order = order[accounts.wanted[account[order]]]
    order = order[np.argsort(height[order], kind="stable")]
    places = pa.array(account[order])
    # Keep only the ids in use: a network has many more.
    keys = [key.take(places).cast(pa.string()).dictionary_encode() for key in accounts.keys]
    times = pa.array(blocks.times[height[order]]).cast(schema.ARROW_SCHEMA.field("timestamp").type)
    amounts = balances.take(pa.array(order)).cast(schema.ARROW_SCHEMA.field("balance").type)
    rows = pa.RecordBatch.from_arrays([*keys, times, amounts], schema=schema.ARROW_SCHEMA)
    return rows, table.filter(pc.invert(is_good))


def _bad_rows(rows: pa.RecordBatch, blocks: Blocks, accounts: Accounts) -> Iterator[schema.BadRow]:
    """Yield bad rows with the reason."""
    times = dict(zip(blocks.texts.to_pylist(), blocks.times.tolist(), strict=True))
    for row in rows.to_pylist():
        time = times.get(row["vega_time"])
        if time is None:
            reason = f"no block of the segment has the vega_time {row['vega_time']!r}"
        elif row["account_id"] not in accounts.places:
            reason = f"the table of accounts has no {row['account_id']!r}"
        else:
            reason = schema.balance_fault(row["balance"])
        yield schema.BadRow(json.dumps(row), reason, time)


def read_segment_assets(segment: Segment) -> dict[str, Asset]:
    """Return each asset's version at a segment's last block.

    Raises
    ------
    DecodeError
        If their table is damaged.
    """
    versions = _versions(segment, ASSETS, ("id", "symbol", "name", "decimals"))
    try:
        return read_assets(
            {
                _id_text(row.pop("id")): row | {"decimals": int(row["decimals"])}
                for _, row in versions
            }
        )
    except ValueError as error:
        raise DecodeError(f"{segment}: the table of assets is damaged: {error}") from error


def read_segment_limits(segment: Segment, source: str) -> list[schema.NetworkLimits]:
    """Return each version of the network's limits, in time order.

    Raises
    ------
    DecodeError
        If their table is damaged.
    """
    versions = _versions(segment, LIMITS, (*schema.LIMIT_FLAGS, *schema.LIMIT_MOMENTS))
    try:
        return [
            schema.NetworkLimits(
                **{name: _limit(name, text) for name, text in row.items()},
                fetched_at=pd.Timestamp(time, unit="us", tz="UTC"),
                source=source,
            )
            for time, row in versions
        ]
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{segment}: the table of network limits is damaged: {error}") from error


def _versions(
    segment: Segment, name: str, columns: Sequence[str]
) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a table of versions, each with its time, in time order."""
    table = segment.table(name, ("vega_time", *columns))
    times = _moments(table["vega_time"], f"{segment}: a vega_time of {name}").tolist()
    rows = table.select(columns).to_pylist()
    return sorted(zip(times, rows, strict=True), key=lambda version: version[0])


def _limit(name: str, text: str) -> Any:  # noqa: ANN401 - a flag, or a moment
    """Return a field of the limits; `None` for a moment that isn't set."""
    if name in schema.LIMIT_FLAGS:
        return _FLAGS[text]
    try:
        moment = pd.to_datetime(text, utc=True, format="ISO8601").as_unit("ns") if text else None
    except ValueError as error:
        raise ValueError(f"{text!r} is not a moment in UTC between 1678 and 2262") from error
    return None if moment == _NOT_SET else moment
