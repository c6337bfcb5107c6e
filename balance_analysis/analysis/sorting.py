"""Rows of a typed frame in any order, brought into a table's by all processors.

Rows are dealt out to heaps of neighbouring accounts, a hand of them after the other, and then each
heap is sorted. A hand and a heap are small enough for a processor's cache: there, numpy finds a row
by its place in a fifth of the time.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.steps import ALWAYS, BLOCK, map_parallel
from balance_analysis.rows import account_numbers, by_account_and_time
from balance_analysis.schema import ACCOUNT_KEY

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAP_BITS: Final = 8
_ROOM: Final = 1 << 62


Hand = tuple["NDArray[np.int64]", list["NDArray[np.int64]"]]
"""Where each heap begins, and the accounts, times and words of some rows, heap by heap."""


def sort_rows(table: pd.DataFrame) -> pd.DataFrame | None:
    """Return the rows of a typed frame in a table's order, those of one account and time as found.

    `None` if the frame has no rows, lacks a value, or has too many ids to number its accounts.
    """
    ids = [_with_sorted_categories(table[name].array) for name in ACCOUNT_KEY]
    codes, sizes = [x.codes for x in ids], [len(x.categories) for x in ids]
    balances, times = pa.array(table["balance"]), microseconds(table)
    lacks = balances.null_count or any(code.min(initial=0) < 0 for code in codes)
    if not len(table) or lacks or times.min() == ALWAYS or math.prod(sizes) > _ROOM:
        return None
    words = int128.words_of(balances)
    shift = max((math.prod(sizes) - 1).bit_length() - _HEAP_BITS, 0)

    def deal(start: int) -> Hand:
        here = slice(start, start + BLOCK)
        accounts = account_numbers([code[here] for code in codes], sizes)
        return _deal(accounts >> np.int64(shift), accounts, times[here], words[here])

    hands = map_parallel(deal, range(0, len(times), BLOCK))
    begins = np.sum([bounds for bounds, _ in hands], axis=0)
    codes, times = [np.empty_like(code) for code in codes], np.empty_like(times)
    words = int128.make_room(*words.shape)

    def sort(heaps: tuple[int, int]) -> None:
        here = slice(*begins[list(heaps)])
        accounts, times[here], words[here] = _sort(hands, heaps)
        heads = np.flatnonzero(np.diff(accounts, prepend=-1))
        numbers, counts = accounts[heads], np.diff(heads, append=len(accounts))
        for code, size in zip(reversed(codes), reversed(sizes), strict=True):
            numbers, own = np.divmod(numbers, size)
            code[here] = np.repeat(own.astype(code.dtype), counts)

    edges = np.searchsorted(begins, np.append(np.arange(0, len(times), BLOCK), len(times)))
    map_parallel(sort, list(pairwise(np.unique(edges).tolist())))
    columns = zip(ACCOUNT_KEY, codes, ids, strict=True)
    return pd.DataFrame(
        {
            **{
                name: pd.Categorical.from_codes(code, dtype=x.dtype, validate=False)
                for name, code, x in columns
            },
            "timestamp": to_times(times),
            "balance": int128.to_balances(words),
        },
        copy=False,
    )


def _with_sorted_categories(ids: pd.Categorical) -> pd.Categorical:
    if ids.categories.is_monotonic_increasing and ids.categories.dtype == "str":
        return ids
    return ids.set_categories(pd.Index(sorted(ids.categories), dtype="str"))


def _deal(heaps: NDArray[np.int64], *columns: NDArray[np.int64]) -> Hand:
    """Return some rows heap by heap."""
    heaps = heaps.astype(np.uint8)
    order = np.argsort(heaps, kind="stable")
    counts = np.bincount(heaps, minlength=1 << _HEAP_BITS)
    return np.append(0, np.cumsum(counts)), [_take(column, order) for column in columns]


def _sort(hands: list[Hand], heaps: tuple[int, int]) -> list[NDArray[np.int64]]:
    """Return the accounts, times and words of all rows of some heaps, sorted."""
    first, stop = heaps
    accounts, times, words = (
        np.concatenate([columns[place][bounds[first] : bounds[stop]] for bounds, columns in hands])
        for place in range(3)
    )
    order = by_account_and_time(accounts, times)
    return [_take(column, order) for column in (accounts, times, words)]


def _take(column: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    return column.take(order) if column.ndim == 1 else int128.take(column, order)
