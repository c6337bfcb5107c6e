"""Accounts as step functions, on which every reconstruction is computed.

An account's rows are one step function: each balance holds from its row until the account's next
row. `history` reads them from a table. This module evaluates them at points, cuts them into pieces
at the edges of periods, chooses the steps that suffice for a drawing, and processes them in blocks
of accounts: a block fits into a processor's cache, and all processors share the work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import count_before
from balance_analysis.table.moments import moment_text
from balance_analysis.table.schema import Ints, Mask

Columns = dict[str, "NDArray[Any]"]

MIN_TIME: Final = np.iinfo(np.int64).min
"""The time of an opening balance without a time; numpy reads this number as NaT."""

MAX_TIME: Final = np.iinfo(np.int64).max
"""A time after all others: that of a balance that is never known."""

BLOCK: Final = 1 << 17
"""Rows and cells per block: arrays of a megabyte."""

_POINTS: Final = 4
"""Points kept per column of pixels: the first, the last, the lowest and the highest."""

_is_alone: ContextVar[bool] = ContextVar("is_alone", default=False)


@dataclass(frozen=True)
class Steps:
    """Accounts as step functions: rows sorted by account, then time, at least one per account.

    Attributes
    ----------
    bounds
        The position of each account's first row, and the number of rows.
    times
        The time since which each balance holds (in microseconds since 1970-01-01 UTC).
    words
        The balances.
    is_row
        A mask of the rows that are changes of the table; the others are opening balances.
    valid_until
        The time until which each balance is known, if that is before the account's next row (in
        microseconds), else `MAX_TIME`. `None` if it is `MAX_TIME` for all.
    """

    bounds: Ints
    times: Ints
    words: Ints
    is_row: Mask
    valid_until: Ints | None = None

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self.bounds) - 1

    @property
    def heads(self) -> Ints:
        """The position of each account's first row."""
        return self.bounds[:-1]

    @cached_property
    def is_head(self) -> Mask:
        """A mask of each account's first row."""
        mask = np.zeros(len(self.times), bool)
        mask[self.heads] = True
        return mask

    @cached_property
    def starts_known(self) -> Mask:
        """A mask of the rows without a known balance before: first rows, and those after a gap."""
        if self.valid_until is None:
            return self.is_head
        mask = self.is_head.copy()
        mask[1:] |= self.valid_until[:-1] < self.times[1:]
        return mask

    @cached_property
    def numbers(self) -> Ints:
        """Each row's account, by its number."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    @property
    def nexts(self) -> Ints:
        """The time of the account's next row, for each row; `MAX_TIME` for the last one."""
        nexts = np.append(self.times[1:], MAX_TIME)
        nexts[self.bounds[1:] - 1] = MAX_TIME
        return nexts

    @property
    def row_times(self) -> Ints:
        """The times of the rows that aren't opening balances."""
        return self.times if self.is_row.all() else self.times[self.is_row]

    @property
    def extent(self) -> Ints:
        """The first and the last of `row_times`; empty if there are none."""
        ends = np.append(self.heads, self.bounds[1:] - 1)
        times = self.times[ends] if self.is_row.all() else self.row_times
        return np.array([times.min(), times.max()]) if len(times) else times

    def are_unknown(self, points: Ints) -> Mask:
        """Return a mask of the accounts whose balance is unknown at one of some points."""
        is_unknown: Mask = self.times[self.heads] > points[0]
        if self.valid_until is not None:
            is_unknown = np.any(~as_of(self, points)[1].reshape(len(self), len(points)), axis=1)
        return is_unknown

    def part(self, first: int, stop: int) -> Steps:
        """Return the accounts with numbers in [first, stop)."""
        rows = slice(self.bounds[first], self.bounds[stop])
        return self._of(self.bounds[first : stop + 1] - self.bounds[first], rows)

    def select(self, is_wanted: Mask) -> Steps:
        """Return some of the accounts."""
        sizes = np.diff(self.bounds)
        bounds = np.append(0, np.cumsum(sizes[is_wanted]))
        return self._of(bounds, np.repeat(is_wanted, sizes))

    def needed_at(self, points: Ints) -> Steps:
        """Return steps with the same balances at some points, dropping rows if few are needed."""
        if len(self.times) < 2 * len(self) * (len(points) + 1):
            return self
        reached = count_before(points, self.times)
        is_last = np.ones(len(reached), bool)
        is_last[:-1] = (reached[1:] != reached[:-1]) | self.is_head[1:]
        return self._of(np.append(0, np.cumsum(is_last))[self.bounds], is_last)

    def _of(self, bounds: Ints, rows: slice | Mask) -> Steps:
        until = None if self.valid_until is None else self.valid_until[rows]
        times, words, is_row = self.times[rows], self.words[rows], self.is_row[rows]
        return Steps(bounds, times, words, is_row, until)


S = TypeVar("S")
T = TypeVar("T")


def map_blocks(function: Callable[[int, Steps], T], steps: Steps, *, points: int = 0) -> list[T]:
    """Return a function's result for each block of accounts, in order.

    The function takes the number of the block's first account, and the block. `points` is the
    number of cells that each account has besides its rows. Without accounts, there is one empty
    block.
    """
    ends = steps.bounds[1:] + points * np.arange(1, len(steps) + 1)
    return map_parallel(lambda block: function(block[0], steps.part(*block)), even(ends, BLOCK))


def even(ends: Ints, size: int) -> list[tuple[int, int]]:
    """Return (begin, stop) of parts of about equal size, given where each item ends."""
    cuts = np.flatnonzero(np.diff(ends // size)) + 1
    return [*pairwise([0, *cuts.tolist(), len(ends)])]


def map_parallel(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return a function's result for each item, computed on all processors."""
    if len(items) < 2 or _is_alone.get():  # noqa: PLR2004 - one item needs no pool
        return [function(item) for item in items]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def name_of(ids: pd.DataFrame, number: int) -> str:
    """Return the ids of an account or a group for a message."""
    return ", ".join(f"{name}={ids[name].iloc[number]!r}" for name in ids)


def take_ids(ids: pd.DataFrame, places: NDArray[np.integer[Any]]) -> dict[str, pd.Categorical]:
    """Return the columns of ids at some places."""
    return {str(name): ids[name].array[places] for name in ids}


def repeat_ids(ids: pd.DataFrame, count: int) -> dict[str, pd.Categorical]:
    """Return the columns of ids with each row repeated `count` times."""
    return {
        name: pd.Categorical.from_codes(np.repeat(column.codes, count), dtype=column.dtype)
        for name, column in ((str(name), ids[name].array) for name in ids)
    }


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Compute blocks in this thread only, because other tasks use the other processors."""
    token = _is_alone.set(True)
    try:
        yield
    finally:
        _is_alone.reset(token)


def join(parts: Sequence[Columns]) -> Columns:
    """Concatenate the columns of parts, consuming them, so that few are in memory twice."""
    if len(parts) == 1:
        return parts[0]
    names = [*parts[0]]
    columns = map_parallel(lambda x: int128.joined([part.pop(x) for part in parts]), names)
    return dict(zip(names, columns, strict=True))


def spread(column: Ints, cells: Ints, count: int) -> Ints:
    """Expand a column of some cells to all cells, with 0 in the others."""
    whole = np.zeros((count, *column.shape[1:]), np.int64)
    whole[cells] = column
    return whole


def step_deltas(steps: Steps, *, out: Ints | None = None) -> Ints:
    """Return each row's delta, 0 if unknown; write to `out` if given."""
    words = np.empty_like(steps.words) if out is None else out
    int128.subtract(steps.words[1:], steps.words[:-1], out=words[1:])
    unknown = steps.heads if steps.valid_until is None else np.flatnonzero(steps.starts_known)
    words[unknown] = 0
    return words


def with_amounts(frame: pd.DataFrame, **amounts: tuple[Ints, Mask | None]) -> pd.DataFrame:
    """Add amounts, given as words and a mask of those known, to a frame of ids and times.

    Raises
    ------
    OverflowError
        If a known amount has more than 38 digits; the message has its ids and its time.
    """

    def name(column: str, row: int) -> str:
        times: Any = frame.get("timestamp", frame.get("start"))
        when = "" if times is None else f" at {moment_text(times.iloc[row])}"
        return f"the {column} of {name_of(frame.select_dtypes('category'), row)}{when}"

    columns = {n: int128.to_balances(*each, partial(name, n)) for n, each in amounts.items()}
    return frame.assign(**columns)


def events(steps: Steps) -> Columns:
    """Return the steps, and a step to 0 at each moment at which a balance ceases to be known.

    Returns
    -------
    dict
        For each step `numbers` (the account's number), `times` (in microseconds), `words`, `known`
        (int8, 0 where the balance ceases to be known, else 1) and `is_row`.
    """
    columns: Columns = {
        "numbers": steps.numbers,
        "times": steps.times,
        "words": steps.words,
        "known": np.ones(len(steps.times), np.int8),
        "is_row": steps.is_row,
    }
    if steps.valid_until is not None:
        ends = np.flatnonzero(steps.valid_until < steps.nexts)
        new = {"numbers": steps.numbers[ends], "times": steps.valid_until[ends]}
        for name, column in columns.items():
            columns[name] = np.insert(column, ends + 1, new.get(name, 0), axis=0)
    return columns


def as_of(steps: Steps, points: Ints, reached: Ints | None = None) -> tuple[Ints, Mask]:
    """Return the row that holds for each account at each point, and whether its balance is known.

    Results are ordered by account, then point. If the balance is unknown, the row is the last one
    up to the point, or the account's first one. Points are in microseconds, ascending; `reached` is
    the number of points before each row, if already computed.
    """
    reached = count_before(points, steps.times) if reached is None else reached
    is_tail = np.append(steps.is_head[1:], True)[: len(reached)]
    is_held = is_tail.copy()  # most rows are followed by another one before the next point
    is_held[steps.heads] = True
    is_held[:-1] |= reached[1:] != reached[:-1]
    held = np.flatnonzero(is_held)
    ends = np.where(is_tail[held], len(points), np.append(reached[held[1:]], 0)[: len(held)])
    lengths = np.diff(ends, prepend=0)
    lengths[1:][is_tail[held[:-1]]] += len(points)
    rows = np.repeat(held, lengths)
    is_known = (np.arange(len(points)) >= reached[steps.heads][:, None]).ravel()
    if steps.valid_until is not None:
        is_known &= np.tile(points, len(steps)) < steps.valid_until[rows]
    return rows, is_known


@dataclass(frozen=True, slots=True)
class Pieces:
    """Step functions cut at the edges of periods: one piece or more per account and period.

    Attributes
    ----------
    starts
        The position of the first piece of each account and period, ordered by account.
    words
        The balance of each piece. An unknown piece has that of the next one, or an arbitrary one if
        it is the period's last.
    times, ends
        When each piece begins and ends (in microseconds).
    known_for
        How long each piece's balance is known (in microseconds).
    is_known
        Whether the balance is known at the beginning of the first piece, for each account and
        period. At the beginning of the others it always is.
    """

    starts: Ints
    words: Ints
    times: Ints
    ends: Ints
    known_for: Ints
    is_known: Mask

    @property
    def known_lengths(self) -> Ints:
        """How long the balance is known, for each account and period (in microseconds)."""
        return int128.sum_runs(self.known_for, self.starts)

    def averages(self) -> Ints:
        """Return the words of the average over the known part of each account and period."""
        lengths = np.maximum(self.known_lengths, 1)
        # A sum of digits times lengths is less than a digit times the known part.
        width = int128.ROOM - int(lengths.max(initial=0)).bit_length()
        digits = int128.digits_of(self.words, width)
        sums = [int128.sum_runs(digit * self.known_for, self.starts) for digit in digits]
        return int128.compose(int128.divide(sums, width, lengths), width)


def cut(steps: Steps, edges: Ints) -> Pieces:
    """Cut steps into the periods between edges (in microseconds, ascending)."""
    begins, stops, accounts = edges[:-1], edges[1:], len(steps)
    reached = count_before(begins, steps.times)
    held, is_known = as_of(steps, begins, reached)
    inner = np.flatnonzero((reached > 0) & (steps.times < np.append(edges, MAX_TIME)[reached]))
    cells = steps.numbers[inner] * len(begins) + reached[inner] - 1
    within = np.bincount(cells, minlength=len(held))
    starts = np.arange(len(held)) + np.cumsum(within) - within
    rows = np.empty(len(held) + len(inner), np.int64)
    rows[starts], rows[np.arange(1, len(inner) + 1) + cells] = held, inner
    stale = starts[~is_known & (within > 0)]
    rows[stale] = rows[stale + 1]
    times = steps.times[rows]
    times[starts] = np.tile(begins, accounts)
    ends = np.append(times[1:], MAX_TIME)[: len(times)]
    ends[starts + within] = np.tile(stops, accounts)
    valid_until = ends if steps.valid_until is None else steps.valid_until[rows]
    known_for = np.clip(valid_until, times, ends) - times
    known_for[starts[~is_known]] = 0
    words = int128.take(steps.words, rows)
    return Pieces(starts, words, times, ends, known_for, is_known)


def sort_keys(words: Ints) -> NDArray[np.float64]:
    """Return floats that sort as the amounts do; only their order has a meaning."""
    # Negative amounts are complemented first, or those near zero would all become 0.
    sign = words[:, -1] >> 63
    keys = (words[:, -1] ^ sign).astype(float)
    for column in reversed(words.T[:-1]):
        keys = keys * 2.0**64 + (column ^ sign).view(np.uint64)
    return np.where(sign < 0, -1 - keys, keys)


def downsample(
    times: Ints, *levels: NDArray[np.number[Any]], columns: int, starts_known: Mask
) -> Ints:
    """Return the points to draw for one or several step functions with steps at the same times.

    Parameters
    ----------
    times
        The time of each step, ascending.
    levels
        For each function, the level from each step on.
    columns
        The number of columns of pixels, into which the time is divided.
    starts_known
        A mask of the steps that are unknown or follow an unknown one: columns are divided there
        too, so that each side of a gap keeps its own points.

    Returns
    -------
    numpy.ndarray
        Places, ascending: each column's first and last one, and the first place of each function's
        lowest and highest level in it. All places if there are few.
    """
    count = len(times)
    if count <= _POINTS * columns:
        return np.arange(count)
    first, length = int(times[0]), int(times[-1] - times[0])
    begins = [first - (-column * length // columns) for column in range(columns)]
    heads = np.searchsorted(times, begins)
    heads = np.unique(np.append(heads, np.flatnonzero(starts_known)))
    lengths = np.diff(heads, append=count)
    column = np.repeat(np.arange(len(heads)), lengths)
    is_kept = np.zeros(count, bool)
    is_kept[heads] = True
    is_kept[np.append(heads[1:], count) - 1] = True
    for values in levels:
        for extreme in (np.minimum, np.maximum):
            hits = np.flatnonzero(values == np.repeat(extreme.reduceat(values, heads), lengths))
            is_kept[hits[np.diff(column[hits], prepend=-1) != 0]] = True
    return np.flatnonzero(is_kept)


def starts_of_known(is_known: Mask) -> Mask:
    """Return a mask of the steps that are unknown or follow an unknown one: see `downsample`."""
    starts_known = ~is_known
    starts_known[1:] |= ~is_known[:-1]
    return starts_known


def thinned(times: Ints, is_known: Mask, *words: Ints, columns: int) -> Ints:
    """Return the places of the steps to draw, given amounts as words: see `downsample`."""
    starts_known = starts_of_known(is_known)
    return downsample(times, *map(sort_keys, words), columns=columns, starts_known=starts_known)


def levels_in(steps: Steps, start: int, end: int, *, since: int) -> tuple[Ints, Ints, Mask, bool]:
    """Return an account's steps in [start, end), and the one before; `steps` may be empty.

    Returns
    -------
    tuple
        The time of each step (in microseconds, at least `since`, where the rows begin); the words
        from then on; whether they are known; and whether the first step comes from an opening.
    """
    changes = events(steps)
    times, words, is_known = changes["times"], changes["words"], changes["known"] > 0
    low = max(int(np.searchsorted(times, start, side="right")) - 1, 0)
    part = slice(low, int(np.searchsorted(times, end)))
    is_opening = not changes["is_row"][part][:1].all() and low == 0
    return np.maximum(times[part], since), words[part], is_known[part], is_opening


def first_and_last(heads: Ints, times: Ints, edges: Ints) -> Mask:
    """Return a mask of the rows that are an account's first or last one between two edges.

    These rows alone give the same balances at the edges and just before them, and the same net
    changes between them, as all rows.

    Parameters
    ----------
    heads
        The position of each account's first row.
    times
        The rows' times (in microseconds), ascending within each account.
    edges
        Ascending. The time before the first and that from the last one on are periods too.
    """
    periods = count_before(edges - 1, times)
    is_end = np.ones(len(times) + 1, bool)
    is_end[1:-1] = periods[1:] != periods[:-1]
    is_end[heads] = True
    is_chosen: Mask = is_end[:-1] | is_end[1:]
    return is_chosen
