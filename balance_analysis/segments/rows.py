"""The rows of a segment: its balances joined with its accounts, each on one of its blocks."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.errors import CheckError, DecodeError, IncompleteError
from balance_analysis.filters import Filters
from balance_analysis.rows import BadRow, has_repeats
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    BALANCE_DIGITS,
    FIRST_MOMENT,
    ID_TYPE,
    INTERFACE_ACCOUNT_TYPES,
    LAST_MOMENT,
    LATER_ACCOUNT_TYPES,
    NAMED_ASSETS,
    NETWORK_PARTY,
)
from balance_analysis.segments.segment import ACCOUNTS, BALANCES, BLOCKS, LEDGER, Segment
from balance_analysis.text import list_text

logger: logging.Logger = logging.getLogger("balance_analysis")

_NAMES: Final = (NAMED_ASSETS[0], None, None, NETWORK_PARTY, *NAMED_ASSETS[1:])
_WELL_KNOWN: Final = {f"{number:02x}": name for number, name in enumerate(_NAMES) if name}
_NOT_USED: Final = 8
"""There is no account type of this number."""

_TYPES: Final = {
    **dict(enumerate(INTERFACE_ACCOUNT_TYPES[:_NOT_USED])),
    **dict(enumerate(INTERFACE_ACCOUNT_TYPES[_NOT_USED:] + LATER_ACCOUNT_TYPES, _NOT_USED + 1)),
}
_BALANCE: Final = rf"^-?[0-9]{{1,{BALANCE_DIGITS}}}$"
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00$"
_AT_ONCE: Final = 1000
_COLUMNS: Final = ("account_id", "vega_time", "balance")
_IDS: Final = ("asset_id", "type", "party_id", "market_id")
"""The columns of accounts that are the columns of `ACCOUNT_KEY`."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts by their ids.

    Attributes
    ----------
    ids
        As text.
    places
        Where each stands, by its id.
    keys
        Each column of `ACCOUNT_KEY`, as codes into distinct values.
    filters, wanted
        Which of them are asked for.
    """

    ids: pa.StringArray
    places: dict[str, int]
    keys: tuple[tuple[NDArray[np.int32], pa.StringArray], ...]
    filters: Filters
    wanted: NDArray[np.bool_]

    def find(self, ids: pa.Array) -> NDArray[np.int64]:
        """Return the places of accounts; -1 where there is none of that id."""
        if len(ids) > len(self.ids) // 4:
            # A table of all ids is made of them each time, which few rows are not worth.
            found = pc.fill_null(pc.index_in(ids, value_set=self.ids), -1).to_numpy()
        else:
            encoded = ids.dictionary_encode()
            places = [self.places.get(each, -1) for each in encoded.dictionary.to_pylist()]
            found = np.array(places, np.int64)[encoded.indices.to_numpy()]
        return np.asarray(found, np.int64)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """What a segment has of its blocks.

    Attributes
    ----------
    rows
        `ARROW_SCHEMA`, in time order.
    bad_rows
        Those that the table can't hold.
    heights, times
        Its blocks, ascending; times in microseconds.
    """

    rows: pa.RecordBatch
    bad_rows: tuple[BadRow, ...]
    heights: NDArray[np.int64]
    times: NDArray[np.int64]


def read_accounts(segment: Segment, filters: Filters = Filters()) -> Accounts:  # noqa: B008 - frozen
    """Return all accounts that there were up to a segment's last block.

    Raises
    ------
    DecodeError
        If the table is damaged.
    """
    table = segment.table(ACCOUNTS, ("id", *_IDS)).combine_chunks()
    keys = [_texts(segment, name, table[name]) for name in _IDS]
    wanted = np.ones(table.num_rows, bool)
    for name, values in filters.allowed().items():
        codes, distinct = keys[ACCOUNT_KEY.index(name)]
        is_in = pc.is_in(distinct, pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
        wanted &= is_in[codes]
    ids = one_chunk(table["id"])
    places = {each: place for place, each in enumerate(ids.to_pylist())}
    return Accounts(ids, places, tuple(keys), filters, wanted)


def _texts(
    segment: Segment, name: str, column: pa.ChunkedArray
) -> tuple[NDArray[np.int32], pa.StringArray]:
    """Return a column of accounts with ids and types spelt as the interface spells them."""
    encoded = one_chunk(column).dictionary_encode()
    spell = _type_text if name == "type" else id_text
    try:
        spelt = [spell(text) for text in encoded.dictionary.to_pylist()]
    except ValueError as error:
        raise DecodeError(f"{segment}: an account's {name} is {error}") from error
    if name == "party_id":
        spelt = [text or NETWORK_PARTY for text in spelt]
    if name == "type" and (new := [text for text in spelt if text.isdecimal()]):
        logger.warning("%s has account types without a name: %s", segment, list_text(new))
    return encoded.indices.to_numpy(), pa.array(spelt, pa.string())


def id_text(text: str) -> str:
    """Return an id, as PostgreSQL prints bytes, as the interface spells it."""
    digits = text.removeprefix("\\x")
    if not re.fullmatch(r"(\\x([0-9a-f]{2})*)?", text, re.ASCII):
        raise ValueError(f"{text!r}, which is no id")
    return _WELL_KNOWN.get(digits, digits)


def _type_text(text: str) -> str:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r}, which is no number of an account type")
    return _TYPES.get(int(text), str(int(text)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a segment, ascending: heights, times in microseconds, and these as text.

    Those from the place `since` on are taken of it.
    """

    heights: NDArray[np.int64]
    times: NDArray[np.int64]
    texts: pa.StringArray
    since: int


def read_blocks(segment: Segment) -> Blocks:
    """Return all blocks of a segment.

    A block of the same microsecond as the one before it has no row in the table.

    Raises
    ------
    IncompleteError
        If a block is missing for another reason, or there is one too much.
    DecodeError
        If the table is damaged.
    """
    table = segment.table(BLOCKS, ("height", "vega_time"))
    heights, texts = (one_chunk(table[name]) for name in table.column_names)
    if not pc.all(pc.match_substring_regex(heights, r"^[0-9]{1,18}$"), min_count=0).as_py():
        raise DecodeError(f"{segment}: a block has no height")
    numbers = heights.cast(pa.int64()).to_numpy()
    order = np.argsort(numbers, kind="stable")
    found = numbers[order]
    lacks = segment.last - segment.first + 1 - len(found)
    ends = (found[0] - segment.first, segment.last - found[-1]) if len(found) else (1, 1)
    is_whole = ends in {(0, 0), (0, 1)} and bool(np.all(np.diff(found) > 0))
    if not is_whole or (lacks and not _are_of(segment, texts)):
        raise IncompleteError(
            f"{segment} has {len(found)} blocks, not {lacks + len(found)} from {segment.first} to "
            f"{segment.last}; missing: {_missing(segment, found)}"
        )
    texts = texts.take(pa.array(order))
    times = moments_of(texts, f"{segment}: a block's time")
    if np.any(np.diff(times) <= 0):
        raise DecodeError(f"{segment}: the times of its blocks don't ascend")
    since = min(int(np.searchsorted(found, segment.begin)), len(found) - 1)
    return Blocks(found, times, texts, since)


def _are_of(segment: Segment, moments: pa.StringArray) -> bool:
    """Whether everything in a segment that has a time since the first of some has one of them."""
    for name in (BALANCES, LEDGER, ACCOUNTS):
        told = one_chunk(segment.table(name, ("vega_time",))["vega_time"])
        since = told.filter(pc.greater_equal(told, pc.min(moments)))
        if not pc.all(pc.is_in(since, moments), min_count=0).as_py():
            return False
    return True


def _missing(segment: Segment, heights: NDArray[np.int64]) -> str:
    """Return which heights of a segment are not there, as text."""
    inside = heights[(heights >= segment.first) & (heights <= segment.last)]
    edges = [segment.first - 1, *np.unique(inside).tolist(), segment.last + 1]
    gaps = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    return list_text([f"{a}" if a == b else f"{a} to {b}" for a, b in gaps]) or "none"


def moments_of(texts: pa.StringArray, what: str) -> NDArray[np.int64]:
    """Return moments, as PostgreSQL prints them in UTC, in microseconds.

    Raises
    ------
    DecodeError
        If one is none, or not between 2015 and 2100.
    """
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


def read_rows(segment: Segment, accounts: Accounts) -> SegmentRows:
    """Return the rows of a segment, as a node lists them for its blocks.

    Parameters
    ----------
    accounts
        Those of this segment or of a later one. Where these lack one, the segment's own are read.

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
    table = segment.table(BALANCES, _COLUMNS).combine_chunks()
    ids, moments, balances = (one_chunk(table[name]) for name in _COLUMNS)
    account = accounts.find(ids)
    if np.any(account < 0):
        accounts = read_accounts(segment, accounts.filters)
        account = accounts.find(ids)
    block = pc.index_in(moments, value_set=blocks.texts)
    is_whole = are_balances(balances)
    is_good = pc.and_(pc.and_(is_whole, block.is_valid()), pa.array(account >= 0))
    bad_rows = tuple(_bad_rows(table.filter(pc.invert(is_good)), blocks, accounts))
    if bad_rows:
        block, balances = block.filter(is_good), balances.filter(is_good)
        account = account[is_good.to_numpy(zero_copy_only=False)]
    places, heights = account, block.to_numpy()
    kept = accounts.wanted[places] & (heights >= blocks.since)
    order = np.flatnonzero(kept)
    if np.any(np.diff(heights[order]) < 0):
        order = order[np.argsort(heights[order], kind="stable")]
    rows = batch_of(accounts, places[order], blocks.times[heights[order]], balances, order)
    if has_repeats(rows):
        raise CheckError(f"{segment} has two rows of one account in one block")
    since = slice(blocks.since, None)
    return SegmentRows(rows, bad_rows, blocks.heights[since], blocks.times[since])


def batch_of(
    accounts: Accounts,
    places: NDArray[np.int64],
    times: NDArray[np.int64],
    amounts: pa.Array,
    order: NDArray[np.int64],
) -> pa.RecordBatch:
    """Return the rows of accounts at times; `order` is where their amounts stand."""
    keys = [_ids(codes[places], distinct) for codes, distinct in accounts.keys]
    balances = amounts.take(pa.array(order)).cast(pa.decimal128(BALANCE_DIGITS, 0))
    moments = pa.array(times).cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([*keys, moments, balances], schema=ARROW_SCHEMA)


def _ids(codes: NDArray[np.int32], distinct: pa.StringArray) -> pa.DictionaryArray:
    """Return ids by their codes, with those alone that are in use: a network has many more."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(distinct)))
    ranks = np.zeros(len(distinct), np.int32)
    ranks[used] = np.arange(len(used), dtype=np.int32)
    ids = pa.DictionaryArray.from_arrays(pa.array(ranks[codes]), distinct.take(pa.array(used)))
    return ids.cast(ID_TYPE)


def are_balances(texts: pa.StringArray) -> pa.BooleanArray:
    """Return which texts are integers of at most 38 digits."""
    # Arrow's cast wraps silently past 38 digits (apache/arrow#49817) and takes "1e5".
    digits = pc.and_(
        pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), BALANCE_DIGITS)
    )
    if pc.all(digits, min_count=0).as_py():
        return digits
    return pc.match_substring_regex(texts, _BALANCE)


def _bad_rows(rows: pa.Table, blocks: Blocks, accounts: Accounts) -> Iterator[BadRow]:
    """Yield bad rows with what is wrong with each."""
    times = dict(zip(blocks.texts.to_pylist(), blocks.times.tolist(), strict=True))
    for row in chain.from_iterable(batch.to_pylist() for batch in rows.to_batches(_AT_ONCE)):
        balance, text = row["balance"], row["vega_time"]
        time = times.get(text)
        if time is None:
            reason = f"vega_time {text!r} is that of none of the segment's blocks"
        elif row["account_id"] not in accounts.places:
            reason = f"the table accounts has no {row['account_id']!r}"
        elif re.fullmatch(r"-?[0-9]+", balance, re.ASCII):
            reason = f"balance {balance!r} has more than {BALANCE_DIGITS} digits"
        else:
            reason = f"balance {balance!r} is not an integer"
        yield BadRow(json.dumps(row), reason, time)


def raise_bad_row(segment: Segment, bad_rows: Sequence[BadRow]) -> None:
    """Raise DecodeError for the first bad row of a segment."""
    for bad in bad_rows:
        raise DecodeError(f"{segment} has a bad row: {bad.reason}; it is {bad.raw}", row=bad.raw)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
