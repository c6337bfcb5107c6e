"""Collect rows in sorted parts and merge them into one table with little extra memory.

A part takes no more memory than its rows in the table. The table is filled block by block, and the
memory of a block's rows is released before the next block.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.int128 import take, to_balances, words_of
from balance_analysis.analysis.steps import map_parallel
from balance_analysis.table.frame import categories_of, frame_from, to_frame
from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    PART,
    account_heads,
    account_numbers,
    gathered,
    sorted_codes,
)

_PIECE: Final = 1 << 13
"""Rows per piece of a part; a piece's memory is released at once."""

_BLOCKS: Final = 64
"""Maximum number of blocks in which a table is filled; a block is no smaller than a piece."""

_ROW: Final = np.dtype([("timestamp", np.int64), ("balance", np.int64, 2)])


@dataclass(frozen=True, slots=True)
class Part:
    """Rows in the table's order.

    Attributes
    ----------
    accounts
        Each account's ids, and its number of `rows`.
    pieces
        Each row's time (in microseconds) and balance.
    """

    accounts: pa.Table
    pieces: list[NDArray[np.void]]

    def between(self, begin: int, end: int) -> Iterator[NDArray[np.void]]:
        """Yield the rows from place `begin` to `end`, without a copy."""
        for number in range(begin // _PIECE, -(-end // _PIECE)):
            first = number * _PIECE
            yield self.pieces[number][max(begin - first, 0) : end - first]


def sort_parts(tables: Iterable[pa.Table]) -> Iterator[Part]:
    """Yield tables' rows in parts; each account's rows must come in time order."""
    return map(_sorted, gathered(tables, PART))


def _sorted(waiting: list[pa.Table]) -> Part:
    """Return the waiting tables as a part, and empty the list."""
    rows = pa.concat_tables(waiting)
    waiting.clear()
    ids = rows.select(ACCOUNT_KEY).unify_dictionaries()
    heads = account_heads(ids)
    sizes = np.diff(heads, append=rows.num_rows)
    groups = ids.take(pa.array(heads)).append_column("rows", pa.array(sizes))
    order, accounts = _in_order(groups)
    places = _places(heads[order], sizes[order])
    times = rows["timestamp"].cast(pa.int64()).to_numpy()
    words = words_of(rows["balance"])
    pieces = []
    for begin in range(0, len(places), _PIECE):
        rows_taken = places[begin : begin + _PIECE]
        # An allocator keeps freed memory for a while; a memory map is released at once.
        piece = np.frombuffer(mmap.mmap(-1, len(rows_taken) * _ROW.itemsize), _ROW)
        piece["timestamp"] = times.take(rows_taken)
        piece["balance"] = take(words, rows_taken)
        pieces.append(piece.view(np.void))
    del rows, times, words
    pa.default_memory_pool().release_unused()
    return Part(accounts, pieces)


def merge(parts: list[Part]) -> pd.DataFrame:
    """Return the rows of some parts as a table, without attrs.

    Parameters
    ----------
    parts
        Parts in which each account's rows follow in time order. The list is emptied.
    """
    if not parts:
        return to_frame(ARROW_SCHEMA.empty_table())
    groups = pa.concat_tables(part.accounts for part in parts)
    order, accounts = _in_order(groups)
    counts = accounts["rows"].to_numpy()
    blocks = deque(_blocks(parts, groups["rows"].to_numpy(), order))
    parts.clear()
    del groups, order
    times, words = np.empty(counts.sum(), np.int64), np.empty((counts.sum(), 2), np.int64)

    def fill(_: int) -> None:
        begin, begins, sizes, pieces = blocks.popleft()
        rows = np.concatenate(pieces).take(_places(begins, sizes)).view(_ROW)
        times[begin : begin + len(rows)] = rows["timestamp"]
        words[begin : begin + len(rows)] = rows["balance"]

    map_parallel(fill, range(len(blocks)))
    ids = (categories_of(accounts[name].chunk(0), counts) for name in ACCOUNT_KEY)
    return frame_from(ids, times, pa.array(to_balances(words)))


def _blocks(
    parts: list[Part], sizes: NDArray[np.int64], order: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], list[NDArray[np.void]]]]:
    """Yield each block's place in the table, its accounts' places and sizes, and its pieces.

    Parameters
    ----------
    parts
        Sorted rows.
    sizes
        The number of rows of each account of each part.
    order
        The order of these accounts in the table.
    """
    of_part = np.repeat(np.arange(len(parts)), [part.accounts.num_rows for part in parts])
    ends = np.cumsum(sizes[order])
    room = max(_PIECE, -(-int(ends[-1]) // _BLOCKS))
    done, begin = np.zeros(len(parts), np.int64), 0
    for block in np.split(order, np.flatnonzero(np.diff(ends // room)) + 1):
        # A block takes from each part the rows after those of the blocks before it.
        accounts = np.sort(block)
        counts = np.bincount(of_part[accounts], sizes[accounts], len(parts)).astype(np.int64)
        pieces = [
            piece
            for part in np.flatnonzero(counts)
            for piece in parts[part].between(done[part], done[part] + counts[part])
        ]
        begins = np.cumsum(sizes[accounts]) - sizes[accounts]
        yield begin, begins[np.searchsorted(accounts, block)], sizes[block], pieces
        done += counts
        begin += int(counts.sum())


def _in_order(groups: pa.Table) -> tuple[NDArray[np.int64], pa.Table]:
    """Return the table's order of the parts' accounts, and each account with its number of rows.

    `groups` has the accounts of all parts, each with its number of rows in a part.
    """
    codes, ids = zip(*(sorted_codes(groups[name]) for name in ACCOUNT_KEY), strict=True)
    numbers = account_numbers(codes, [len(distinct) for distinct in ids])
    order = np.argsort(numbers, kind="stable")
    firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    sizes = np.add.reduceat(groups["rows"].to_numpy()[order], firsts)
    heads = order[firsts]
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(code[heads]), distinct)
        for code, distinct in zip(codes, ids, strict=True)
    ]
    return order, pa.table([*columns, sizes], [*ACCOUNT_KEY, "rows"])


def _places(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
    """Return the places of the rows of groups that begin at `begins`, one group after the other."""
    total = int(sizes.sum())
    narrow = np.int32 if total <= np.iinfo(np.int32).max else np.int64
    shifts = begins - np.cumsum(sizes) + sizes
    places: NDArray[Any] = np.arange(total, dtype=narrow)
    places += np.repeat(shifts.astype(narrow), sizes)
    return places
