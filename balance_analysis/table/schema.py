"""The table of balance changes in Arrow, and the network limits: columns, types, units and order.

`frame` declares the same for pandas. A table is ordered by account, then time. Each distinct id is
sorted once, in a dictionary; rows are then sorted by numbers. This module avoids importing pandas,
which takes as long as loading thirty pages. pyarrow imports pandas to convert lists or numpy
arrays, so columns are made from buffers.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.table.moments import to_microseconds
from balance_analysis.table.text import Record

if TYPE_CHECKING:
    import pandas as pd

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)

Ints = NDArray[np.int64]
"""Whole numbers: moments (in microseconds), positions, counts, or amounts as words."""

Mask = NDArray[np.bool_]
"""Flags, such as one for each row."""

ACCOUNT_KEY: Final = ["asset_id", "account_type", "party_id", "market_id"]
"""The columns that identify an account; a list, because pandas takes a tuple as one column."""
COLUMNS: Final = (*ACCOUNT_KEY, "timestamp", "balance")

ATTRS_KEY: Final = "balance_analysis"
"""The key of this package's metadata in a table's `attrs`."""

BALANCE_DIGITS: Final = 38
"""Maximum digits of a 128-bit decimal in Parquet, Arrow and every engine that reads them."""
_BALANCE: Final = rf"-?[0-9]{{1,{BALANCE_DIGITS}}}"

NETWORK_PARTY: Final = "network"
NAMED_ASSETS: Final = (
    *("VOTE", "XYZalpha", "XYZbeta", "XYZdelta", "XYZepsilon", "XYZgamma"),
    *("fBTC", "fDAI", "fEURO", "fUSDC"),
)
"""The assets whose ids are names instead of hex digits, in the order of their numbers."""

EXTERNAL: Final = "ACCOUNT_TYPE_EXTERNAL"

TYPE_PREFIX: Final = "ACCOUNT_TYPE_"

_TYPES: Final = (
    # from the interface document, v0.71
    "UNSPECIFIED INSURANCE SETTLEMENT MARGIN GENERAL FEES_INFRASTRUCTURE FEES_LIQUIDITY FEES_MAKER "
    "BOND EXTERNAL GLOBAL_INSURANCE GLOBAL_REWARD PENDING_TRANSFERS REWARD_MAKER_PAID_FEES "
    "REWARD_MAKER_RECEIVED_FEES REWARD_LP_RECEIVED_FEES REWARD_MARKET_PROPOSERS "
    # from later releases, up to v0.79
    "HOLDING LP_LIQUIDITY_FEES LIQUIDITY_FEES_BONUS_DISTRIBUTION NETWORK_TREASURY VESTING_REWARDS "
    "VESTED_REWARDS REWARD_AVERAGE_POSITION REWARD_RELATIVE_RETURN REWARD_RETURN_VOLATILITY "
    "REWARD_VALIDATOR_RANKING PENDING_FEE_REFERRAL_REWARD ORDER_MARGIN REWARD_REALISED_RETURN "
    "BUY_BACK_FEES REWARD_AVERAGE_NOTIONAL REWARD_ELIGIBLE_ENTITIES LOCKED_FOR_STAKING"
)

ACCOUNT_TYPES: Final = tuple(TYPE_PREFIX + name for name in _TYPES.split())
"""The names of all account types that this release knows."""

_UNUSED_NUMBER: Final = 8
TYPES_BY_NUMBER: Final = {
    index + (index >= _UNUSED_NUMBER): name for index, name in enumerate(ACCOUNT_TYPES)
}
"""The account types by their numbers on nodes; the number 8 is unused."""

ID_TYPE = pa.dictionary(pa.int32(), pa.string())

ARROW_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, ID_TYPE, nullable=False) for name in ACCOUNT_KEY),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("balance", pa.decimal128(BALANCE_DIGITS, 0), nullable=False),
    ]
)

FIRST_MOMENT: Final = to_microseconds("2015-01-01")
LAST_MOMENT: Final = to_microseconds("2100-01-01")
"""A time outside [FIRST_MOMENT, LAST_MOMENT) is in another unit (both in microseconds)."""

PART: Final = 1 << 17
"""Minimum number of rows that are sorted together; the last part may have fewer."""

_MAX_NUMBER: Final = 1 << 62
"""The largest number of an account, or of an account and a time; it leaves room in 64 bits."""

_KEY_BITS: Final = 64

Account = tuple[str, ...]
"""An account's four ids, in the order of `ACCOUNT_KEY`."""

RECORD: Final = np.dtype([("account", "V32"), ("timestamp", "<i8"), ("balance", "V16")])
"""A row as bytes that depend only on the row; see `to_records`."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the table can't hold: its raw text, and the reason.

    Its time (in microseconds) and its account are `None` if unreadable.
    """

    raw: str
    reason: str
    time: int | None
    account: Account | None = None


def are_balances(texts: pa.StringArray) -> pa.BooleanArray:
    """Return a mask of the texts that are integers of at most 38 digits."""
    # Arrow's cast wraps silently past 38 digits (apache/arrow#49817) and accepts "1e5".
    digits = pc.ascii_is_decimal(texts)
    is_short = to_numbers(pc.binary_length(texts)) <= BALANCE_DIGITS
    if is_short.all() and pc.all(digits, min_count=0).as_py():
        return digits
    return pc.match_substring_regex(texts, rf"\A{_BALANCE}\z")


def balance_fault(text: str) -> str:
    """Return why a text isn't a balance; empty if it is one."""
    if re.fullmatch(_BALANCE, text):
        return ""
    return f"balance {text!r} is not an integer of at most {BALANCE_DIGITS} digits"


def to_numbers(column: pa.Array) -> NDArray[Any]:
    """Return integers without missing values as a numpy array, without a copy."""
    return np.from_dlpack(column)


def from_numbers(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type with the same width, without a copy."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def within(rows: Any, start: int, end: int) -> Any:  # noqa: ANN401 - a table or a batch
    """Return the rows of a table or a batch in [start, end) (in microseconds).

    Adjacent rows are returned as a slice, not as a copy.
    """
    times = _times(rows["timestamp"])
    places = np.flatnonzero((times >= start) & (times < end))
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
    if last - first + 1 == len(places):
        return rows.slice(first, len(places))
    return rows.take(from_numbers(places, pa.int64()))


def gathered(parts: Iterable[_Rows], least: int) -> Iterator[list[_Rows]]:
    """Yield lists of tables or batches with at least `least` rows each, and then the rest."""
    waiting, size = list[_Rows](), 0
    for part in parts:
        waiting.append(part)
        size += part.num_rows
        if size >= least:
            yield waiting
            waiting, size = [], 0
    if size:
        yield waiting


def last_block(rows: pa.Table) -> tuple[int, pa.Table]:
    """Return the latest time (in microseconds; 0 without rows) and all rows at that time."""
    last = pc.max(rows["timestamp"].cast(pa.int64())).as_py() or 0
    return last, within(rows, last, last + 1)


def accounts_in(rows: pa.Table | pa.RecordBatch) -> list[Account]:
    """Return each row's account."""
    return list(zip(*(rows[name].to_pylist() for name in ACCOUNT_KEY), strict=True))


def canonical(rows: pa.Table, *, sort: bool = True) -> pa.Table:
    """Return rows in one form, independent of their order, chunks and dictionaries.

    Parameters
    ----------
    rows
        The columns of `ARROW_SCHEMA`; ids may be plain strings.
    sort
        Whether to sort the rows into the table's order. Otherwise they keep their order.

    Returns
    -------
    pyarrow.Table
        `ARROW_SCHEMA`, one chunk per column; dictionaries sorted, without unused values.
    """
    codes, values = zip(*(sorted_codes(rows[name]) for name in ACCOUNT_KEY), strict=True)
    order = None
    if sort:
        accounts = account_numbers(codes, [len(distinct) for distinct in values])
        order = by_account_and_time(accounts, _times(rows["timestamp"]))
    columns = []
    for code, distinct in zip(codes, values, strict=True):
        indices = from_numbers(code if order is None else code[order], pa.int32())
        columns.append(pa.DictionaryArray.from_arrays(indices, distinct))
    for name in COLUMNS[len(ACCOUNT_KEY) :]:
        column = _one_chunk(rows[name])
        columns.append(column if order is None else column.take(from_numbers(order, pa.int64())))
    return pa.table(columns, schema=ARROW_SCHEMA)


def account_numbers(codes: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int]) -> Ints:
    """Return one number per row: equal for the same account, and ordered as accounts are."""
    numbers, room = codes[0].astype(np.int64), sizes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        step, width = (code, size) if room * size <= _MAX_NUMBER else _ranks(code)
        if room * width > _MAX_NUMBER:
            numbers, room = _ranks(numbers)
        numbers *= width
        numbers += step
        room *= width
    return numbers


def number_ids(ids: pd.DataFrame) -> Ints:
    """Return a number for each row of `ids`; the numbers sort as the rows do, NA last."""
    columns = [ids[name].array for name in ids]
    codes = [np.where(x.codes < 0, len(x.categories), x.codes) for x in columns]
    return account_numbers(codes, [len(x.categories) + 1 for x in columns])


def distinct_ids(ids: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Return the distinct rows of `ids`, sorted, and each row's place among them."""
    keys = number_ids(ids)
    if np.all(keys[1:] > keys[:-1]):
        return ids, np.arange(len(keys))
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return ids.iloc[firsts], numbers


def _ranks(numbers: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], int]:
    """Return each number's rank among the distinct numbers, and how many of these there are."""
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks, len(distinct)


def account_heads(rows: pa.Table) -> Ints:
    """Return the positions of rows whose account differs from the row before.

    All chunks must share one dictionary per column of ids.
    """
    columns = [rows[name].chunks for name in ACCOUNT_KEY if rows.num_rows]
    codes = [np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) for chunks in columns]
    return np.flatnonzero(are_heads(codes)) if codes else np.empty(0, np.int64)


def are_heads(codes: Sequence[NDArray[np.integer[Any]]]) -> Mask:
    """Return a mask of the rows that differ from the row before in any column."""
    is_head = np.zeros(len(codes[0]), bool)
    is_head[:1] = True
    for code in codes:  # a tenth of the time of `logical_or.reduce`
        is_head[1:] |= code[1:] != code[:-1]
    return is_head


def to_records(rows: pa.Table) -> Callable[[Ints], NDArray[np.void]]:
    """Return a function that returns rows at given positions as bytes that depend only on the row.

    A row has 56 bytes: the SHA-256 of the account, the microseconds (8 bytes, little-endian) and
    the balance (16 bytes, little-endian, two's complement). The account is hashed as its ids in the
    order of `ACCOUNT_KEY`, each in UTF-8 after its length (4 bytes, little-endian).
    """
    ids = rows.select(ACCOUNT_KEY).unify_dictionaries()
    heads = account_heads(ids)
    accounts = ids.take(from_numbers(heads, pa.int64()))
    names = [accounts[name].cast(pa.string()).to_pylist() for name in ACCOUNT_KEY]
    digests = np.frombuffer(b"".join(map(_account_digest, *names)), "V32")
    numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=rows.num_rows))
    times, balances = _times(rows["timestamp"]), _one_chunk(rows["balance"])
    balance_bytes = np.frombuffer(balances.buffers()[1], "V16")[balances.offset :]

    def take_records(places: Ints) -> NDArray[np.void]:
        records = np.empty(len(places), RECORD)
        records["account"] = digests.take(numbers.take(places))
        records["timestamp"] = times.take(places)
        records["balance"] = balance_bytes.take(places)
        return records

    return take_records


@functools.lru_cache(maxsize=1 << 16)
def _account_digest(*ids: str) -> bytes:
    """Return an account's SHA-256, cached because accounts recur in every file."""
    texts = [account_id.encode() for account_id in ids]
    return hashlib.sha256(
        b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    ).digest()


def has_repeats(rows: pa.RecordBatch) -> bool:
    """Whether two rows of a batch have the same account and timestamp."""
    codes = [to_numbers(rows[name].indices) for name in ACCOUNT_KEY]
    numbers = account_numbers(codes, [len(rows[name].dictionary) for name in ACCOUNT_KEY])
    times = _times(rows["timestamp"])
    order = by_account_and_time(numbers, times)
    return not are_heads([numbers[order], times[order]]).all()


def by_account_and_time(accounts: Ints, times: Ints) -> Ints:
    """Return the order that sorts rows by account, then time; equal rows keep their order.

    Numpy sorts numbers several times faster than it finds their order (argsort). So each number
    carries its position in its lowest bits. If it has no bits to spare, its own lowest bits are
    dropped; a stable argsort, fast on almost sorted numbers, then finishes the order.
    """
    least, count = int(times.min(initial=_MAX_NUMBER)), len(times).bit_length()
    room = int(times.max(initial=least)) - least + 1
    if (int(accounts.max(initial=0)) + 1) * room > _MAX_NUMBER:
        return np.lexsort((times, accounts))
    numbers = accounts * room + (times - least)
    if np.all(numbers[1:] >= numbers[:-1]):
        return np.arange(len(numbers))
    dropped = max(int(numbers.max()).bit_length() + count - _KEY_BITS, 0)
    keys = numbers.view(np.uint64) >> np.uint64(dropped) << np.uint64(count)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << count) - 1)).view(np.int64)
    return order.take(np.argsort(numbers.take(order), kind="stable")) if dropped else order


def sorted_codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.StringArray]:
    """Return a column of ids as codes into its sorted distinct values."""
    encoded = _one_chunk(column.cast(ID_TYPE))
    indices = to_numbers(encoded.indices)
    used = np.flatnonzero(np.bincount(indices, minlength=len(encoded.dictionary)))
    distinct = encoded.dictionary.take(from_numbers(used, pa.int64()))
    order = to_numbers(pc.sort_indices(distinct))
    rank = np.empty(len(encoded.dictionary), np.int32)
    rank[used[order]] = np.arange(len(order), dtype=np.int32)
    return rank[indices], distinct.take(from_numbers(order, pa.uint64()))


def _times(column: pa.Array | pa.ChunkedArray) -> Ints:
    numbers = column.cast(pa.int64())
    return to_numbers(_one_chunk(numbers) if isinstance(numbers, pa.ChunkedArray) else numbers)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with one dictionary if it has ids."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


@dataclass(frozen=True, slots=True)
class NetworkLimits(Record):
    """A snapshot of the network's limits.

    Attributes
    ----------
    can_propose_market, can_propose_asset
        Whether the network accepts such proposals now.
    propose_market_enabled, propose_asset_enabled
        Whether such proposals are switched on at all.
    genesis_loaded
        Whether the network's genesis state has been loaded.
    propose_market_enabled_from, propose_asset_enabled_from
        Since when (UTC with nanoseconds); `None` if not set. Nodes fill the market's date from the
        asset's; it is kept as sent.
    extra
        Fields that the interface document doesn't list, with their names and values as sent.
    fetched_at
        When the node was asked (UTC).
    source
        Base address of the node.
    block_height
        The node's last block; `None` if unknown.
    """

    can_propose_market: bool
    can_propose_asset: bool
    propose_market_enabled: bool
    propose_asset_enabled: bool
    genesis_loaded: bool
    propose_market_enabled_from: pd.Timestamp | None
    propose_asset_enabled_from: pd.Timestamp | None
    fetched_at: pd.Timestamp
    source: str
    block_height: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def _title(self) -> str:
        return "Network limits"

    def _facts(self) -> Iterator[tuple[str, object]]:
        height = "unknown" if self.block_height is None else self.block_height
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        del facts["extra"]
        yield from (facts | {"block_height": height}).items()
        for name, value in self.extra.items():
            yield re.sub("(?<=[a-z0-9])[A-Z]", r"_\g<0>", name).lower(), value


LIMIT_FLAGS: Final = tuple(each.name for each in fields(NetworkLimits) if each.type == "bool")

LIMIT_MOMENTS: Final = ("propose_market_enabled_from", "propose_asset_enabled_from")
