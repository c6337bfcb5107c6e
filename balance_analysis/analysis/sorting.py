"""Rows of a typed frame in any order, brought into a table's by all processors.

Rows are dealt out to heaps of neighbouring accounts, a hand of them after the other, and then each
heap is sorted. A hand and a heap are small enough for a processor's cache: there, numpy finds a row
by its place in a fifth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.int128 import make_room
from balance_analysis.analysis.steps import ALWAYS, BLOCK, map_parallel
from balance_analysis.rows import account_numbers, by_account_and_time
from balance_analysis.schema import ACCOUNT_KEY

_HEAP_BITS: Final = 8
_ROOM: Final = 1 << 62


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
    codes, times, words = _sort(codes, sizes, times, int128.words_of(balances))
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


def _sort(
    codes: Sequence[NDArray[np.signedinteger[Any]]],
    sizes: Sequence[int],
    times: NDArray[np.int64],
    words: NDArray[np.int64],
) -> tuple[list[NDArray[np.signedinteger[Any]]], NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns of rows, sorted."""
    count = len(times)
    shift = max((math.prod(sizes) - 1).bit_length() - _HEAP_BITS, 0)
    dealt = [make_room(count), make_room(count), make_room(count, 2)]

    def deal(start: int) -> NDArray[np.int64]:
        here = slice(start, start + BLOCK)
        accounts = account_numbers([code[here] for code in codes], sizes)
        heaps = (accounts >> np.int64(shift)).astype(np.uint8)
        order = np.argsort(heaps, kind="stable")
        for column, target in zip((accounts, times[here], words[here]), dealt, strict=True):
            int128.take(column, order, out=target[here])
        counts = np.bincount(heaps, minlength=1 << _HEAP_BITS)
        return start + np.append(0, np.cumsum(counts))

    starts = range(0, count, BLOCK)
    bounds = np.array(map_parallel(deal, starts))
    begins = np.sum(bounds, axis=0) - sum(starts)
    sorted_codes = [make_room(count, dtype=code.dtype) for code in codes]
    sorted_times, sorted_words = make_room(count), make_room(count, 2)

    def sort(heaps: tuple[int, int]) -> None:
        pieces = [slice(*piece) for piece in bounds[:, list(heaps)].tolist()]
        here = slice(*begins[list(heaps)])
        accounts, times, words = (
            np.concatenate([column[piece] for piece in pieces]) for column in dealt
        )
        order = by_account_and_time(accounts, times)
        _write_codes(accounts.take(order), sizes, [code[here] for code in sorted_codes])
        int128.take(times, order, out=sorted_times[here])
        int128.take(words, order, out=sorted_words[here])

    edges = np.searchsorted(begins, np.append(starts, count))
    map_parallel(sort, list(pairwise(np.unique(edges).tolist())))
    return sorted_codes, sorted_times, sorted_words


def _write_codes(
    accounts: NDArray[np.int64],
    sizes: Sequence[int],
    targets: Sequence[NDArray[np.signedinteger[Any]]],
) -> None:
    """Write of which codes account numbers, sorted, are made: see `account_numbers`."""
    heads = np.flatnonzero(np.diff(accounts, prepend=-1))
    numbers, counts = accounts[heads], np.diff(heads, append=len(accounts))
    for target, size in zip(reversed(targets), reversed(sizes), strict=True):
        numbers, ranks = np.divmod(numbers, size)
        target[:] = np.repeat(ranks.astype(target.dtype), counts)
