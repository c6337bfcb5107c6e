"""What the tables of a segment hold: accounts, blocks, rows, the ledger's flows, assets, limits.

Rows are balances joined with accounts, each on one of the segment's blocks. Flows are what the
ledger moved: they are read to be compared with, and never kept.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.assets import Assets, read_assets
from balance_analysis.errors import CheckError, DecodeError, IncompleteError, logger
from balance_analysis.filters import Filters
from balance_analysis.rows import BadRow, are_balances, balance_fault, has_repeats
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    FIRST_MOMENT,
    LAST_MOMENT,
    LIMIT_FLAGS,
    LIMIT_MOMENTS,
    NAMED_ASSETS,
    NETWORK_PARTY,
    TYPES_BY_NUMBER,
    NetworkLimits,
)
from balance_analysis.segments.segment import (
    ACCOUNTS,
    ASSETS,
    BALANCES,
    BLOCKS,
    LEDGER,
    LIMITS,
    Segment,
    heights_text,
)
from balance_analysis.text import list_text

_NAMES: Final = (NAMED_ASSETS[0], None, None, NETWORK_PARTY, *NAMED_ASSETS[1:])
_WELL_KNOWN: Final = {f"{number:02x}": name for number, name in enumerate(_NAMES) if name}
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00$"
_COLUMNS: Final = ("account_id", "vega_time", "balance")
_IDS: Final = ("asset_id", "type", "party_id", "market_id")
"""The columns of accounts that are the columns of `ACCOUNT_KEY`."""

_VALUES: Final = {"t": True, "f": False}
_NOT_SET: Final = pd.Timestamp(0, tz="UTC")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts by their ids.

    Attributes
    ----------
    places
        Where each stands, by its id.
    keys
        Each column of `ACCOUNT_KEY`.
    wanted
        Which of them are asked for.
    """

    places: dict[str, int]
    keys: tuple[pa.DictionaryArray, ...]
    wanted: NDArray[np.bool_]

    def find(self, ids: pa.StringArray) -> NDArray[np.int64]:
        """Return the places of accounts; -1 where there is none of that id."""
        encoded = ids.dictionary_encode()
        places = [self.places.get(each, -1) for each in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(places, np.int64)[encoded.indices.to_numpy()])


def read_accounts(segment: Segment, filters: Filters = Filters()) -> Accounts:  # noqa: B008 - frozen
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
    heights, texts = segment.table(BLOCKS, ("height", "vega_time")).columns
    if not pc.all(pc.match_substring_regex(heights, r"^[0-9]{1,18}$"), min_count=0).as_py():
        raise DecodeError(f"{segment}: a block has no height")
    numbers = heights.cast(pa.int64()).to_numpy()
    order = np.argsort(numbers, kind="stable")
    found, texts = numbers[order], texts.take(pa.array(order))
    _check_heights(segment, found, texts)
    times = _moments(texts, f"{segment}: a block's time")
    if np.any(np.diff(times) <= 0):
        raise DecodeError(f"{segment}: the times of its blocks don't ascend")
    since = min(int(np.searchsorted(found, segment.begin)), len(found) - 1)
    return Blocks(found, times, texts, since)


def _check_heights(segment: Segment, found: NDArray[np.int64], texts: pa.StringArray) -> None:
    """Raise unless these are the heights of a segment's blocks, ascending."""
    wanted = segment.last - segment.first + 1
    ends = (found[0] - segment.first, segment.last - found[-1]) if len(found) else (1, 1)
    is_whole = ends in {(0, 0), (0, 1)} and bool(np.all(np.diff(found) > 0))
    if is_whole and (len(found) == wanted or _are_of(segment, texts)):
        return
    inside = found[(found >= segment.first) & (found <= segment.last)]
    edges = [segment.first - 1, *np.unique(inside).tolist(), segment.last + 1]
    missing = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    raise IncompleteError(
        f"{segment} has {len(found)} blocks, not {wanted} from {segment.first} to {segment.last}; "
        f"missing: {heights_text(missing) or 'none'}"
    )


def _are_of(segment: Segment, moments: pa.StringArray) -> bool:
    """Whether everything in a segment that has a time since the first of some has one of them."""
    for name in (BALANCES, LEDGER, ACCOUNTS):
        [found] = segment.table(name, ("vega_time",)).columns
        since = found.filter(pc.greater_equal(found, pc.min(moments)))
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
    """What a segment has of its blocks: their rows, of `ARROW_SCHEMA` and in time order.

    The table can't hold `bad_rows`. The times of the blocks ascend, in microseconds.
    """

    rows: pa.RecordBatch
    bad_rows: tuple[BadRow, ...]
    times: NDArray[np.int64]


def read_rows(segment: Segment, accounts: Accounts) -> SegmentRows:
    """Return the rows of a segment, as a node lists them for its blocks.

    Parameters
    ----------
    accounts
        Those of this segment or of a later one.

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
    rows, bad = _join(segment.table(BALANCES, _COLUMNS), blocks, accounts)
    if has_repeats(rows):
        raise CheckError(f"{segment} has two rows of one account in one block")
    bad_rows = tuple(_bad_rows(bad, blocks, accounts))
    return SegmentRows(rows, bad_rows, blocks.times[blocks.since :])


def read_flows(segment: Segment, accounts: Accounts) -> pa.RecordBatch:
    """Return what each entry of a segment's ledger gave to and took from accounts.

    Returns
    -------
    pyarrow.RecordBatch
        `ARROW_SCHEMA`, where `balance` is the flow, negative where it was taken: two rows an entry,
        of the accounts that are wanted, in time order.

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
    """Return what accounts have in blocks as rows, in time order, and what of it can be none.

    The rows are of the accounts that are wanted, and in the blocks that are taken of the segment.
    """
    ids, moments, balances = table.columns
    account, block = accounts.find(ids), pc.index_in(moments, value_set=blocks.texts)
    is_good = pc.and_(pc.and_(are_balances(balances), block.is_valid()), pa.array(account >= 0))
    height = pc.fill_null(block, -1).to_numpy()
    order = np.flatnonzero(is_good.to_numpy(zero_copy_only=False))
    order = order[accounts.wanted[account[order]] & (height[order] >= blocks.since)]
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


def read_segment_assets(segment: Segment) -> Assets:
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
                **_fields(row),
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


def _fields(row: dict[str, str]) -> dict[str, Any]:
    """Return the fields of limits that a row has."""
    flags = {name: _VALUES[row[name]] for name in LIMIT_FLAGS}
    return flags | {name: _moment(row[name]) for name in LIMIT_MOMENTS}


def _moment(text: str) -> pd.Timestamp | None:
    """Return a moment; `None` where it is not set."""
    try:
        moment = pd.to_datetime(text, utc=True, format="ISO8601").as_unit("ns") if text else None
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment in UTC between 1678 and 2262") from error
    return None if moment == _NOT_SET else moment
