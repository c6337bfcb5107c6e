"""Rows in Arrow: their order, their accounts, and repeated rows.

The order of a table is by account, then time. Ids are sorted once each, as the few distinct values
of a dictionary; rows are then sorted by numbers. None of it imports pandas, which takes as long as
loading thirty pages: pyarrow would import it to convert lists or arrays of numpy.
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

from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    BALANCE_DIGITS,
    COLUMNS,
    ID_TYPE,
)

PART: Final = 1 << 17
"""Minimum number of rows that are sorted together; the last part may have fewer."""

_ROOM: Final = 1 << 62
"""The largest account number, with room to spare in 64 bits."""

_WORD: Final = 64

Account = tuple[str, ...]
"""The four ids of an account, as `ACCOUNT_KEY` has them."""

RECORD: Final = np.dtype([("account", "V32"), ("timestamp", "<i8"), ("balance", "V16")])
"""A row in bytes that depend on nothing but the row; see `to_records`."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the table can't hold: raw, and why.

    Its microseconds and the four ids of its account are `None` where they can't be read.
    """

    raw: str
    reason: str
    time: int | None
    account: Account | None = None


def are_balances(texts: pa.StringArray) -> pa.BooleanArray:
    """Return which texts are integers of at most 38 digits."""
    # Arrow's cast wraps silently past 38 digits (apache/arrow#49817) and takes "1e5".
    digits = pc.ascii_is_decimal(texts)
    is_short = to_numbers(pc.binary_length(texts)) <= BALANCE_DIGITS
    if is_short.all() and pc.all(digits, min_count=0).as_py():
        return digits
    return pc.match_substring_regex(texts, rf"\A-?[0-9]{{1,{BALANCE_DIGITS}}}\z")


def balance_fault(text: str) -> str:
    """Return what is wrong with a text as a balance; empty if it is one."""
    if not re.fullmatch(r"-?[0-9]+", text, re.ASCII):
        return f"balance {text!r} is not an integer"
    if len(text.removeprefix("-")) > BALANCE_DIGITS:
        return f"balance {text!r} has more than {BALANCE_DIGITS} digits"
    return ""


def to_numbers(column: pa.Array) -> NDArray[Any]:
    """Return integers, none missing, as numpy has them; they are not copied."""
    return np.from_dlpack(column)


def from_numbers(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type that is as wide; they are not copied."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def within(rows: Any, start: int, end: int) -> Any:  # noqa: ANN401 - a table or a batch
    """Return the rows of a table, or of a batch, in [start, end), microseconds.

    Rows that stand together are a slice, not a copy.
    """
    times = _times(rows["timestamp"])
    places = np.flatnonzero((times >= start) & (times < end))
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
    if last - first + 1 == len(places):
        return rows.slice(first, len(places))
    return rows.take(from_numbers(places, pa.int64()))


def last_block(rows: pa.Table) -> tuple[int, pa.Table]:
    """Return the time of the last row, 0 where there is none, and all rows of that time."""
    last = pc.max(rows["timestamp"].cast(pa.int64())).as_py() or 0
    return last, within(rows, last, last + 1)


def accounts_in(rows: pa.Table | pa.RecordBatch) -> list[Account]:
    """Return the account of each row."""
    return list(zip(*(rows[name].to_pylist() for name in ACCOUNT_KEY), strict=True))


def canonical(rows: pa.Table, *, sort: bool = True) -> pa.Table:
    """Return rows in one form, whatever order, chunks and dictionaries they came in.

    Parameters
    ----------
    rows
        The columns of `ARROW_SCHEMA`; ids may be plain strings.
    sort
        Whether to bring the rows into the table's order. Without, they stand as they came.

    Returns
    -------
    pyarrow.Table
        `ARROW_SCHEMA`, one chunk a column; dictionaries sorted, all values in use.
    """
    codes, values = zip(*(sorted_codes(rows[name]) for name in ACCOUNT_KEY), strict=True)
    order = None
    if sort:
        accounts = account_numbers(codes, [len(distinct) for distinct in values])
        order = by_account_and_time(accounts, _times(rows["timestamp"]))
    done = []
    for code, distinct in zip(codes, values, strict=True):
        indices = from_numbers(code if order is None else code[order], pa.int32())
        done.append(pa.DictionaryArray.from_arrays(indices, distinct))
    for name in COLUMNS[len(ACCOUNT_KEY) :]:
        column = _one_chunk(rows[name])
        done.append(column if order is None else column.take(from_numbers(order, pa.int64())))
    return pa.table(done, schema=ARROW_SCHEMA)


def account_numbers(
    codes: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int]
) -> NDArray[np.int64]:
    """Return one number per row that is the same for the same account, and sorts as accounts do."""
    numbers, room = codes[0].astype(np.int64), max(sizes[0], 1)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        step, width = (code, max(size, 1)) if room * size <= _ROOM else _ranks(code)
        if room * width > _ROOM:
            numbers, room = _ranks(numbers)
        numbers *= width
        numbers += step
        room *= width
    return numbers


def _ranks(numbers: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], int]:
    """Return numbers as places in their order, and how many distinct ones there are."""
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks, len(distinct)


def account_heads(rows: pa.Table) -> NDArray[np.int64]:
    """Return the places of rows of another account than the row before.

    Ids have one dictionary in all chunks.
    """
    chunks = [rows[name].chunks for name in ACCOUNT_KEY if rows.num_rows]
    codes = [np.concatenate([chunk.indices.to_numpy() for chunk in each]) for each in chunks]
    return np.flatnonzero(are_heads(codes)) if codes else np.empty(0, np.int64)


def are_heads(codes: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.bool_]:
    """Return which rows differ from the row before in one of some columns."""
    is_head = np.ones(len(codes[0]), bool)
    is_head[1:] = np.logical_or.reduce([code[1:] != code[:-1] for code in codes])
    return is_head


def to_records(rows: pa.Table) -> Callable[[NDArray[np.int64]], NDArray[np.void]]:
    """Return a function that returns rows, by their places, as bytes that depend on nothing else.

    A row has 56 bytes: the SHA-256 of the account, the microseconds (8 bytes, the lowest first) and
    the balance (16 bytes, the lowest first, in two's complement). An account's bytes are its ids in
    the order of `ACCOUNT_KEY`, each in UTF-8 after its length in 4 bytes, the lowest first.
    """
    ids = rows.select(ACCOUNT_KEY).unify_dictionaries()
    heads = account_heads(ids)
    accounts = ids.take(from_numbers(heads, pa.int64()))
    names = [accounts[name].cast(pa.string()).to_pylist() for name in ACCOUNT_KEY]
    digests = np.frombuffer(b"".join(map(_account_digest, *names)), "V32")
    numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=rows.num_rows))
    times, balances = _times(rows["timestamp"]), _one_chunk(rows["balance"])
    held = np.frombuffer(balances.buffers()[1], "V16")[balances.offset :]

    def records(places: NDArray[np.int64]) -> NDArray[np.void]:
        made = np.empty(len(places), RECORD)
        made["account"] = digests.take(numbers.take(places))
        made["timestamp"] = times.take(places)
        made["balance"] = held.take(places)
        return made

    return records


@functools.lru_cache(maxsize=1 << 16)
def _account_digest(*ids: str) -> bytes:
    """Return the SHA-256 of an account, which comes again in every file."""
    texts = [each.encode() for each in ids]
    return hashlib.sha256(
        b"".join(len(each).to_bytes(4, "little") + each for each in texts)
    ).digest()


def has_repeats(rows: pa.RecordBatch) -> bool:
    """Whether two rows of a batch have one account and one timestamp."""
    codes = [to_numbers(rows[name].indices) for name in ACCOUNT_KEY]
    numbers = account_numbers(codes, [len(rows[name].dictionary) for name in ACCOUNT_KEY])
    times = _times(rows["timestamp"])
    order = by_account_and_time(numbers, times)
    return not are_heads([numbers[order], times[order]]).all()


def by_account_and_time(accounts: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of some rows by account, then time; equal ones stay.

    Numpy sorts numbers several times as fast as it finds their order. So each number carries its
    place in the lowest bits, if need be instead of its own lowest ones: for these, little is left
    to do for numpy's usual sort, which makes use of what is in order.
    """
    least, count = int(times.min(initial=_ROOM)), len(times).bit_length()
    room = int(times.max(initial=least)) - least + 1
    if (int(accounts.max(initial=0)) + 1) * room > _ROOM:
        return np.lexsort((times, accounts))
    numbers = accounts * room + (times - least)
    if np.all(numbers[1:] >= numbers[:-1]):
        return np.arange(len(numbers))
    dropped = max(int(numbers.max()).bit_length() + count - _WORD, 0)
    keys = numbers.view(np.uint64) >> np.uint64(dropped) << np.uint64(count)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << count) - 1)).view(np.int64)
    return order.take(np.argsort(numbers.take(order), kind="stable")) if dropped else order


def sorted_codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.StringArray]:
    """Return a column of ids as codes into its sorted distinct values."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = _one_chunk(column.cast(ID_TYPE))
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
    """Return a column as one array; ids get one dictionary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
