"""Read the tables of segments: rows of balance changes, flows of the ledger, assets, limits.

A row is a balance joined with its account, on one of the segment's blocks. Flows are the ledger's
entries: they are read for comparison, and never kept.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
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
    LEDGER,
    LIMITS,
    Segment,
    Stretch,
    find_stretches,
    heights_text,
    missing_blocks,
)
from balance_analysis.table.evidence import Answer, Evidence, SetAside, set_aside
from balance_analysis.table.filters import Filters, make_filters
from balance_analysis.table.frame import to_frame
from balance_analysis.table.known import note_evidence, note_rows
from balance_analysis.table.names import (
    Asset,
    AssetsLike,
    LabelsLike,
    Names,
    note_names,
    read_assets,
    read_names,
)
from balance_analysis.table.rows import BadRow, are_balances, balance_fault, has_repeats
from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    FIRST_MOMENT,
    LAST_MOMENT,
    LIMIT_FLAGS,
    LIMIT_MOMENTS,
    NAMED_ASSETS,
    NETWORK_PARTY,
    TYPES_BY_NUMBER,
    NetworkLimits,
)
from balance_analysis.table.spans import EVER, Span
from balance_analysis.table.text import iso_text, list_text, spans_text

_NAMES: Final = (NAMED_ASSETS[0], None, None, NETWORK_PARTY, *NAMED_ASSETS[1:])
_WELL_KNOWN: Final = {f"{number:02x}": name for number, name in enumerate(_NAMES) if name}
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00$"
_COLUMNS: Final = ("account_id", "vega_time", "balance")
_IDS: Final = ("asset_id", "type", "party_id", "market_id")
"""The columns of accounts that are the columns of `ACCOUNT_KEY`."""

_THREADS: Final = 2
"""How many segments are read at once."""

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
        The segments: zips, unpacked ones, folders of such, and patterns such as `history/*.zip`.
        An unpacked one has no checksum: whole rows that are cut off can't be noticed.
        The same one may be given twice; others must not share blocks.
    on_bad_rows
        What happens to a row that the table can't hold: "raise" (DecodeError), or "quarantine",
        which leaves it out and keeps it, raw and with the reason, in the table's attrs.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    assets
        Symbols and decimals of assets, as for `read_assets`; they win over those in the segments.
    labels
        Own names, as for `load_balance_changes`.

    Returns
    -------
    pandas.DataFrame
        The table, with the rows that a node lists for these blocks. Its attrs have, as JSON:
        `source`, `start`, `end`, `rows`, `block_height` (the last one), `known` (from the first
        block of each stretch of segments through its last, but for the moments of quarantined
        rows, and of blocks without a row), the evidence for it, the assets, and quarantined rows.
        A single block without a row may have the time of the one before it, or be lost: what is
        between its neighbours is not known. Where segments begin with the network's first block,
        no account held anything before, and functions go by that: a balance before an account's
        first row is 0 then, not unknown.

    Raises
    ------
    DecodeError
        If a segment is damaged, lacks a table, or has a bad row.
    IncompleteError
        If a segment lacks its first or last block, two in a row, or one that it has rows of, or
        names another segment before it than there is.
    NetworkMismatchError
        If the segments are of two chains.
    CheckError
        If two different segments share a block, or one has two rows of one account and block.
    FileNotFoundError
        If a path names nothing.
    ValueError
        If a filter is malformed.
    """
    stretches = find_stretches(paths)
    last = stretches[-1].segments[-1]
    names = Names(read_segment_assets(last)).updated(read_names(assets, labels))
    wanted = make_filters(
        asset_id=asset_id,
        party_ids=party_ids,
        market_ids=market_ids,
        account_types=account_types,
        names=lambda: names,
    )
    read = (iter_rows(each.segments, wanted, on_bad_rows) for each in stretches)
    parts = [part for _, part in chain.from_iterable(read)]
    bad = [each for part in parts for each in set_aside(part.bad_rows, part.blocks.span)]
    evidence = evidence_of(stretches, [part.blocks for part in parts], wanted)
    evidence = replace(evidence, set_aside=(*evidence.set_aside, *bad))
    if gaps := missing_blocks(stretches):
        logger.warning(
            "no segment has the blocks %s: what changed there is unknown", heights_text(gaps)
        )
    table = to_frame(pa.Table.from_batches([part.rows for part in parts], ARROW_SCHEMA))
    metadata: dict[str, Any] = {
        "source": ", ".join(stretch.source for stretch in stretches),
        "start": iso_text(evidence.bounds[0]),
        "end": iso_text(evidence.bounds[1]),
        "rows": len(table),
        "block_height": last.last,
        "quarantined": [
            {"row": bad.raw, "reason": bad.reason} for part in parts for bad in part.bad_rows
        ],
    }
    table.attrs[ATTRS_KEY] = note_names(metadata, names)
    note_evidence(table, evidence)
    note_rows(table)
    return table


def iter_rows(
    segments: Sequence[Segment],
    filters: Filters,
    on_bad_rows: Literal["raise", "quarantine"] = "quarantine",
) -> Generator[tuple[Segment, SegmentRows]]:
    """Yield segments of one stretch with their rows, in order, reading a few ahead.

    Raises
    ------
    IncompleteError, DecodeError, CheckError
        As `read_rows`; IncompleteError as well where a segment doesn't begin after the one before,
        and DecodeError for a bad row where these are to raise.
    """
    # Those of the last one are of all: accounts are never taken away.
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
                    raise IncompleteError(f"{segment} begins before the segment before it ends")
                end = part.blocks.span[1]
                for bad in part.bad_rows if on_bad_rows == "raise" else ():
                    raise DecodeError(
                        f"{segment} has a bad row: {bad.reason}; it is {bad.raw}", row=bad.raw
                    )
                yield segment, part
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts by their ids.

    Attributes
    ----------
    places
        The place of each account in the columns, by its id.
    keys
        The columns of `ACCOUNT_KEY`.
    wanted
        Whether the filters let each account through.
    """

    places: dict[str, int]
    keys: tuple[pa.DictionaryArray, ...]
    wanted: NDArray[np.bool_]

    def find(self, ids: pa.StringArray) -> NDArray[np.int64]:
        """Return the places of accounts; -1 where there is none of that id."""
        encoded = ids.dictionary_encode()
        places = [self.places.get(each, -1) for each in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(places, np.int64)[encoded.indices.to_numpy()])


def read_accounts(segment: Segment, filters: Filters = Filters()) -> Accounts:
    """Return all accounts that there were up to a segment's last block.

    Raises
    ------
    DecodeError
        If the table is damaged.
    """
    table = segment.table(ACCOUNTS, ("id", *_IDS))
    keys = tuple(_spelt(segment, name, table[name]) for name in _IDS)
    wanted = np.ones(table.num_rows, bool)
    for name, values in filters.allowed().items():
        texts = keys[ACCOUNT_KEY.index(name)].cast(pa.string())
        wanted &= pc.is_in(texts, pa.array(values)).to_numpy(zero_copy_only=False)
    places = {each: place for place, each in enumerate(table["id"].to_pylist())}
    return Accounts(places, keys, wanted)


def _spelt(segment: Segment, name: str, column: pa.StringArray) -> pa.DictionaryArray:
    """Return a column of accounts with ids and types spelt as the interface spells them."""
    encoded = column.dictionary_encode()
    spell = _type_text if name == "type" else _id_text
    try:
        spelt = [spell(text) for text in encoded.dictionary.to_pylist()]
        if name == "asset_id" and "" in spelt:
            raise ValueError("empty")  # noqa: TRY301 - as the others
    except ValueError as error:
        raise DecodeError(f"{segment}: an account's {name} is {error}") from error
    if name == "party_id":
        spelt = [text or NETWORK_PARTY for text in spelt]
    if name == "type" and (new := [text for text in spelt if text.isdecimal()]):
        logger.warning("%s has account types without a name: %s", segment, list_text(new))
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(spelt, pa.string()))


def _id_text(text: str) -> str:
    """Return an id, as PostgreSQL prints bytes, as the interface spells it."""
    digits = text.removeprefix("\\x")
    if not re.fullmatch(r"(\\x([0-9a-f]{2})*)?", text, re.ASCII):
        raise ValueError(f"{text!r}, which is no id")
    return _WELL_KNOWN.get(digits, digits)


def _type_text(text: str) -> str:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r}, which is no number of an account type")
    return TYPES_BY_NUMBER.get(int(text), str(int(text)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a segment, ascending: heights, times in microseconds, and these as text."""

    heights: NDArray[np.int64]
    times: NDArray[np.int64]
    texts: pa.StringArray

    @property
    def span(self) -> Span:
        """Their time: [first block, behind the last one)."""
        return int(self.times[0]), int(self.times[-1]) + 1

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """Where a block that has no row may lie, unless it shares the time of the one before."""
        [before] = np.nonzero(np.diff(self.heights) > 1)
        spans = zip(self.times[before].tolist(), self.times[before + 1].tolist(), strict=True)
        return tuple(SetAside((a + 1, b)) for a, b in spans if a + 1 < b)


def read_blocks(segment: Segment) -> Blocks:
    """Return all blocks of a segment, less those of the same microsecond as the one before.

    Such a block has no row in the table. Neither has one that was lost: see `Blocks.set_aside`.

    Raises
    ------
    IncompleteError
        If more than one block in a row is missing, or the first or the last one, or one that other
        tables have rows of; or if there is one too many.
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
    return Blocks(numbers, times, texts)


def span_of(segments: Sequence[Segment]) -> Span:
    """Return the time of segments of one stretch: [first block, behind the last one).

    Raises
    ------
    IncompleteError, DecodeError
        As `read_blocks`.
    """
    return read_blocks(segments[0]).span[0], read_blocks(segments[-1]).span[1]


def evidence_of(
    stretches: Sequence[Stretch], blocks: Iterable[Blocks], filters: Filters = Filters()
) -> Evidence:
    """Return the evidence for all rows of some accounts in segments, whose blocks are given.

    Segments forget nothing.
    """
    rest, now = iter(blocks), time.time_ns() // 1000
    answers, doubts = list[Answer](), list[SetAside]()
    for each in stretches:
        parts = [*islice(rest, len(each.segments))]
        span, heights = (parts[0].span[0], parts[-1].span[1]), (each.first, each.last)
        answers.append(Answer(span, each.segments[0].node, (now, now), heights))
        doubts += [doubt for part in parts for doubt in part.set_aside]
    is_first = stretches[0].is_from_first
    return Evidence(filters.sorted(), tuple(answers), tuple(doubts), from_first_block=is_first)


def _check_heights(segment: Segment, heights: NDArray[np.int64], texts: pa.StringArray) -> None:
    """Raise unless these are the heights of a segment's blocks, ascending."""
    wanted = segment.last - segment.first + 1
    ends = (heights[0] - segment.first, segment.last - heights[-1]) if len(heights) else (1, 1)
    is_whole = ends == (0, 0) and bool(np.all(np.isin(np.diff(heights), (1, 2))))
    if is_whole and (len(heights) == wanted or _are_of(segment, texts)):
        return
    inside = heights[(heights >= segment.first) & (heights <= segment.last)]
    edges = [segment.first - 1, *np.unique(inside).tolist(), segment.last + 1]
    missing = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    raise IncompleteError(
        f"{segment} has {len(heights)} blocks, not {wanted} from {segment.first} to "
        f"{segment.last}; missing: {heights_text(missing) or 'none'}"
    )


def _are_of(segment: Segment, moments: pa.StringArray) -> bool:
    """Return whether all times in a segment's tables, from the first moment on, are among these."""
    for name in (BALANCES, LEDGER, ACCOUNTS):
        [times] = segment.table(name, ("vega_time",)).columns
        since = times.filter(pc.greater_equal(times, pc.min(moments)))
        if not pc.all(pc.is_in(since, moments), min_count=0).as_py():
            return False
    return True


def _moments(texts: pa.StringArray, what: str) -> NDArray[np.int64]:
    """Return moments, as PostgreSQL prints them in UTC, in microseconds."""
    is_moment = pc.match_substring_regex(texts, _TIME)
    times = np.zeros(0, np.int64)
    with contextlib.suppress(pa.ArrowInvalid):
        if pc.all(is_moment, min_count=0).as_py():
            times = texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    if len(times) != len(texts):
        bad = texts.filter(pc.invert(is_moment)) or texts
        raise DecodeError(f"{what} is {bad[0].as_py()!r}, which is no moment in UTC")
    if np.any((times < FIRST_MOMENT) | (times >= LAST_MOMENT)):
        raise DecodeError(f"{what} is not between 2015 and 2100")
    return times


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """The rows of a segment, of `ARROW_SCHEMA` and in time order, and its blocks.

    `bad_rows` are those that a table can't hold.
    """

    rows: pa.RecordBatch
    bad_rows: tuple[BadRow, ...]
    blocks: Blocks


def read_rows(segment: Segment, accounts: Accounts) -> SegmentRows:
    """Return the rows of a segment, as a node lists them for its blocks.

    Parameters
    ----------
    accounts
        Accounts of this segment or of a later one.

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
    if spans := [doubt.span for doubt in blocks.set_aside]:
        logger.warning(
            "%s lacks a block that may have been lost: %s is unproven",
            segment,
            spans_text(spans),
        )
    rows, bad = _join(segment.table(BALANCES, _COLUMNS), blocks, accounts)
    if has_repeats(rows):
        raise CheckError(f"{segment} has two rows of one account in one block")
    bad_rows = tuple(_bad_rows(bad, blocks, accounts))
    return SegmentRows(rows, bad_rows, blocks)


def read_flows(segment: Segment, accounts: Accounts) -> pa.RecordBatch:
    """Return the flows of a segment's ledger: what each entry gave to and took from accounts.

    Returns
    -------
    pyarrow.RecordBatch
        `ARROW_SCHEMA`, where `balance` is the flow, negative where it was taken. An entry has two
        rows, less those of unwanted accounts. In time order.

    Raises
    ------
    DecodeError
        If the ledger is damaged, names an account that there isn't, or has too many digits.
    IncompleteError
        If a block is missing.
    """
    columns = ("account_to_id", "account_from_id", "vega_time", "quantity")
    to, giver, moments, given = segment.table(LEDGER, columns).columns
    taken = pc.binary_join_element_wise("-", given, "")
    entries = [
        pa.RecordBatch.from_arrays([to, moments, given], _COLUMNS),
        pa.RecordBatch.from_arrays([giver, moments, taken], _COLUMNS),
    ]
    flows, bad = _join(pa.concat_batches(entries), read_blocks(segment), accounts)
    for row in bad.slice(0, 1).to_pylist():
        raise DecodeError(f"{segment}: an entry of the ledger can't be read: {row}", row=str(row))
    return flows


def _join(
    table: pa.RecordBatch, blocks: Blocks, accounts: Accounts
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return good lines as rows of the accounts that are wanted, in time order, and bad lines."""
    ids, moments, balances = table.columns
    account, block = accounts.find(ids), pc.index_in(moments, value_set=blocks.texts)
    is_good = pc.and_(pc.and_(are_balances(balances), block.is_valid()), pa.array(account >= 0))
    height = pc.fill_null(block, -1).to_numpy()
    order = np.flatnonzero(is_good.to_numpy(zero_copy_only=False))
    order = order[accounts.wanted[account[order]]]
    order = order[np.argsort(height[order], kind="stable")]
    places = pa.array(account[order])
    # With ids in use alone: a network has many more.
    keys = [key.take(places).cast(pa.string()).dictionary_encode() for key in accounts.keys]
    times = pa.array(blocks.times[height[order]]).cast(ARROW_SCHEMA.field("timestamp").type)
    amounts = balances.take(pa.array(order)).cast(ARROW_SCHEMA.field("balance").type)
    rows = pa.RecordBatch.from_arrays([*keys, times, amounts], schema=ARROW_SCHEMA)
    return rows, table.filter(pc.invert(is_good))


def _bad_rows(rows: pa.RecordBatch, blocks: Blocks, accounts: Accounts) -> Iterator[BadRow]:
    """Yield bad rows with what is wrong with each."""
    times = dict(zip(blocks.texts.to_pylist(), blocks.times.tolist(), strict=True))
    for row in rows.to_pylist():
        time = times.get(row["vega_time"])
        if time is None:
            reason = f"vega_time {row['vega_time']!r} is that of none of the segment's blocks"
        elif row["account_id"] not in accounts.places:
            reason = f"the table accounts has no {row['account_id']!r}"
        else:
            reason = balance_fault(row["balance"])
        yield BadRow(json.dumps(row), reason, time)


def read_segment_assets(segment: Segment) -> dict[str, Asset]:
    """Return the assets, each as it is in a segment's last block.

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


def read_segment_limits(segment: Segment, source: str) -> list[NetworkLimits]:
    """Return the network's limits from each of their changes on, in time order.

    Raises
    ------
    DecodeError
        If their table is damaged.
    """
    versions = _versions(segment, LIMITS, (*LIMIT_FLAGS, *LIMIT_MOMENTS))
    try:
        return [
            NetworkLimits(
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
    """Return a field of limits; `None` for a moment that is not set."""
    if name in LIMIT_FLAGS:
        return _FLAGS[text]
    try:
        moment = pd.to_datetime(text, utc=True, format="ISO8601").as_unit("ns") if text else None
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment in UTC between 1678 and 2262") from error
    return None if moment == _NOT_SET else moment
