"""Rows in Arrow: their order, their accounts, and repeated rows.

A table is ordered by account, then time. Each distinct id is sorted once, in a dictionary; rows are
then sorted by numbers. This module avoids importing pandas, which takes as long as loading thirty
pages. pyarrow imports pandas to convert lists or numpy arrays, so columns are made from buffers.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.table import schema

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
    is_short = to_numbers(pc.binary_length(texts)) <= schema.BALANCE_DIGITS
    if is_short.all() and pc.all(digits, min_count=0).as_py():
        return digits
    return pc.match_substring_regex(texts, rf"\A-?[0-9]{{1,{schema.BALANCE_DIGITS}}}\z")


def balance_fault(text: str) -> str:
    """Return why a text isn't a balance; empty if it is one."""
    if not re.fullmatch(r"-?[0-9]+", text, re.ASCII):
        return f"balance {text!r} is not an integer"
    if len(text.removeprefix("-")) > schema.BALANCE_DIGITS:
        return f"balance {text!r} has more than {schema.BALANCE_DIGITS} digits"
    return ""


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


def last_block(rows: pa.Table) -> tuple[int, pa.Table]:
    """Return the latest time (in microseconds; 0 without rows) and all rows at that time."""
    last = pc.max(rows["timestamp"].cast(pa.int64())).as_py() or 0
    return last, within(rows, last, last + 1)


def accounts_in(rows: pa.Table | pa.RecordBatch) -> list[Account]:
    """Return each row's account."""
    return list(zip(*(rows[name].to_pylist() for name in schema.ACCOUNT_KEY), strict=True))


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
    codes, values = zip(*(sorted_codes(rows[name]) for name in schema.ACCOUNT_KEY), strict=True)
    order = None
    if sort:
        accounts = account_numbers(codes, [len(distinct) for distinct in values])
        order = by_account_and_time(accounts, _times(rows["timestamp"]))
    columns = []
    for code, distinct in zip(codes, values, strict=True):
        indices = from_numbers(code if order is None else code[order], pa.int32())
        columns.append(pa.DictionaryArray.from_arrays(indices, distinct))
    for name in schema.COLUMNS[len(schema.ACCOUNT_KEY) :]:
        column = _one_chunk(rows[name])
        columns.append(column if order is None else column.take(from_numbers(order, pa.int64())))
    return pa.table(columns, schema=schema.ARROW_SCHEMA)


def account_numbers(
    codes: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int]
) -> NDArray[np.int64]:
    """Return one number per row: equal for the same account, and ordered as accounts are."""
    numbers, room = codes[0].astype(np.int64), max(sizes[0], 1)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        step, width = (code, max(size, 1)) if room * size <= _MAX_NUMBER else _ranks(code)
        if room * width > _MAX_NUMBER:
            numbers, room = _ranks(numbers)
        numbers *= width
        numbers += step
        room *= width
    return numbers


def _ranks(numbers: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], int]:
    """Return each number's rank among the distinct ones, and how many distinct ones there are."""
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks, len(distinct)


def account_heads(rows: pa.Table) -> NDArray[np.int64]:
    """Return the positions of rows whose account differs from the row before.

    All chunks must share one dictionary per column of ids.
    """
    columns = [rows[name].chunks for name in schema.ACCOUNT_KEY if rows.num_rows]
    codes = [np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) for chunks in columns]
    return np.flatnonzero(are_heads(codes)) if codes else np.empty(0, np.int64)


def are_heads(codes: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that differ from the row before in any column."""
    is_head = np.ones(len(codes[0]), bool)
    is_head[1:] = np.logical_or.reduce([code[1:] != code[:-1] for code in codes])
    return is_head


def to_records(rows: pa.Table) -> Callable[[NDArray[np.int64]], NDArray[np.void]]:
    """Return a function that returns rows at given positions as bytes that depend only on the row.

    A row has 56 bytes: the SHA-256 of the account, the microseconds (8 bytes, little-endian) and
    the balance (16 bytes, little-endian, two's complement). The account is hashed as its ids in the
    order of `ACCOUNT_KEY`, each in UTF-8 after its length (4 bytes, little-endian).
    """
    ids = rows.select(schema.ACCOUNT_KEY).unify_dictionaries()
    heads = account_heads(ids)
    accounts = ids.take(from_numbers(heads, pa.int64()))
    names = [accounts[name].cast(pa.string()).to_pylist() for name in schema.ACCOUNT_KEY]
    digests = np.frombuffer(b"".join(map(_account_digest, *names)), "V32")
    numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=rows.num_rows))
    times, balances = _times(rows["timestamp"]), _one_chunk(rows["balance"])
    balance_bytes = np.frombuffer(balances.buffers()[1], "V16")[balances.offset :]

    def take_records(places: NDArray[np.int64]) -> NDArray[np.void]:
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
    codes = [to_numbers(rows[name].indices) for name in schema.ACCOUNT_KEY]
    numbers = account_numbers(codes, [len(rows[name].dictionary) for name in schema.ACCOUNT_KEY])
    times = _times(rows["timestamp"])
    order = by_account_and_time(numbers, times)
    return not are_heads([numbers[order], times[order]]).all()


def by_account_and_time(accounts: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
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
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = _one_chunk(column.cast(schema.ID_TYPE))
    indices = to_numbers(encoded.indices)
    used = np.flatnonzero(np.bincount(indices, minlength=len(encoded.dictionary)))
    distinct = encoded.dictionary.take(from_numbers(used, pa.int64()))
    order = to_numbers(pc.sort_indices(distinct))
    rank = np.empty(len(encoded.dictionary), np.int32)
    rank[used[order]] = np.arange(len(order), dtype=np.int32)
    return rank[indices], distinct.take(from_numbers(order, pa.uint64()))


def _times(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    numbers = column.cast(pa.int64())
    return to_numbers(_one_chunk(numbers) if isinstance(numbers, pa.ChunkedArray) else numbers)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with one dictionary if it has ids."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
