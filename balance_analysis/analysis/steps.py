"""Step functions: what every reconstruction is computed on.

An account's rows are one step function: each balance holds from its row on, until the account's
next row. `history` makes them of a table. Here they are looked at as of some points, cut into
pieces at the edges of periods, and worked on in blocks of accounts: each is small enough for a
processor's cache, and all processors take part.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis.checks import sorted_ids
from balance_analysis.analysis.grid import count_before
from balance_analysis.analysis.int128 import subtract, sum_runs, take
from balance_analysis.table.schema import BALANCE_DIGITS
from balance_analysis.table.text import moment_text

Columns = dict[str, "NDArray[Any]"]

ALWAYS: Final = np.iinfo(np.int64).min
"""When an opening balance without a time began; numpy reads this number as NaT."""

NEVER: Final = np.iinfo(np.int64).max
"""When the balance begins of an account that nothing is known of."""

BLOCK: Final = 1 << 17
"""How many rows and cells a block has: arrays of a megabyte."""

_is_alone: ContextVar[bool] = ContextVar("is_alone", default=False)


@dataclass(frozen=True)
class Steps:
    """Accounts as step functions: rows sorted by account, then time, at least one an account.

    Attributes
    ----------
    accounts
        `ACCOUNT_KEY` of each account (category of str, categories sorted and all in use), sorted.
    bounds
        The position of each account's first row, and behind the last one's last row.
    times
        From when on each balance holds, microseconds since 1970-01-01 UTC.
    words
        The balances.
    is_row
        Which of them are rows of the table; the others are opening balances.
    valid_until
        Until when each balance is known, before the account's next row, microseconds; `NEVER`
        where it doesn't, and `None` where none does.
    """

    accounts: pd.DataFrame
    bounds: NDArray[np.int64]
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    is_row: NDArray[np.bool_]
    valid_until: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self.bounds) - 1

    @property
    def heads(self) -> NDArray[np.int64]:
        """The position of each account's first row."""
        return self.bounds[:-1]

    @cached_property
    def is_head(self) -> NDArray[np.bool_]:
        """Which rows are an account's first."""
        mask = np.zeros(len(self.times), bool)
        mask[self.heads] = True
        return mask

    @cached_property
    def starts_known(self) -> NDArray[np.bool_]:
        """Which rows follow on nothing that is known: first ones, and those behind a gap."""
        if self.valid_until is None:
            return self.is_head
        fresh = self.is_head.copy()
        fresh[1:] |= self.valid_until[:-1] < self.times[1:]
        return fresh

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The account of each row, as its place among the accounts."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    @property
    def nexts(self) -> NDArray[np.int64]:
        """When the account's next row is, of each row; of the last one `NEVER`."""
        nexts = np.append(self.times[1:], NEVER)
        nexts[self.bounds[1:] - 1] = NEVER
        return nexts

    @property
    def row_times(self) -> NDArray[np.int64]:
        """The times of the table's rows."""
        return self.times[self.is_row]

    @property
    def extent(self) -> NDArray[np.int64]:
        """When the table's first and its last row are; nothing where it has none."""
        times = self.row_times
        return times[[times.argmin(), times.argmax()]] if len(times) else times

    def name(self, number: int) -> str:
        """Return how an account is called in a message."""
        return name_of(self.accounts, number)

    def name_row(self, row: int) -> str:
        """Return the account and the time of a row, for a message."""
        return f"{self.name(int(self.numbers[row]))} at {moment_text(int(self.times[row]))}"

    def part(self, first: int, stop: int) -> Steps:
        """Return the accounts from one number to before another."""
        rows = slice(self.bounds[first], self.bounds[stop])
        bounds = self.bounds[first : stop + 1] - self.bounds[first]
        return self._of(self.accounts.iloc[first:stop], bounds, rows)

    def select(self, is_wanted: NDArray[np.bool_]) -> Steps:
        """Return some of the accounts."""
        sizes = np.diff(self.bounds)
        ids = {name: sorted_ids(self.accounts[name].array[is_wanted]) for name in self.accounts}
        bounds = np.append(0, np.cumsum(sizes[is_wanted]))
        return self._of(pd.DataFrame(ids), bounds, np.repeat(is_wanted, sizes))

    def _of(
        self, accounts: pd.DataFrame, bounds: NDArray[np.int64], rows: slice | NDArray[np.bool_]
    ) -> Steps:
        until = None if self.valid_until is None else self.valid_until[rows]
        times, words, is_row = self.times[rows], self.words[rows], self.is_row[rows]
        return Steps(accounts, bounds, times, words, is_row, until)


S = TypeVar("S")
T = TypeVar("T")


def map_blocks(function: Callable[[int, Steps], T], steps: Steps, *, points: int = 0) -> list[T]:
    """Return what a function makes of each block of accounts, in their order.

    It gets the number of the block's first account, and the block. `points` is how many cells each
    account has beside its rows. Of no accounts there is one block of none.
    """
    ends = steps.bounds[1:] + points * np.arange(1, len(steps) + 1)
    return map_parallel(lambda block: function(block[0], steps.part(*block)), even(ends, BLOCK))


def even(ends: NDArray[np.int64], size: int) -> list[tuple[int, int]]:
    """Return where parts of about equal size begin and stop, given where each item ends."""
    cuts = np.flatnonzero(np.diff(ends // size)) + 1
    return [*pairwise([0, *cuts.tolist(), len(ends)])]


def map_parallel(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return what a function makes of each item, worked out by all processors."""
    if len(items) < 2 or _is_alone.get():  # noqa: PLR2004 - one needs no second processor
        return [function(item) for item in items]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def name_of(ids: pd.DataFrame, number: int) -> str:
    """Return how an account or a group is called in a message, by its ids."""
    return ", ".join(f"{name}={ids[name].iloc[number]!r}" for name in ids)


def take_ids(ids: pd.DataFrame, places: NDArray[np.integer[Any]]) -> dict[str, pd.Categorical]:
    """Return columns of ids at some places."""
    return {str(name): ids[name].array[places] for name in ids}


def repeat_ids(ids: pd.DataFrame, count: int) -> dict[str, pd.Categorical]:
    """Return columns of ids, each row `count` times."""
    return take_ids(ids, np.repeat(np.arange(len(ids)), count))


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Let this thread alone work out blocks: where others have the other processors."""
    token = _is_alone.set(True)
    try:
        yield
    finally:
        _is_alone.reset(token)


def join(parts: Sequence[Columns]) -> Columns:
    """Return columns one after the other, taking them from the parts, to hold few of them twice."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def spread(column: NDArray[np.int64], cells: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return a column of some cells as one of all cells, 0 in the others."""
    whole = np.zeros((count, *column.shape[1:]), np.int64)
    whole[cells] = column
    return whole


def step_deltas(steps: Steps, *, out: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the delta of each row, in `out` if it is given; where it is unknown 0.

    Raises
    ------
    OverflowError
        If a delta has more than 38 digits.
    """
    words = np.empty_like(steps.words) if out is None else out
    too_large = subtract(steps.words[1:], steps.words[:-1], out=words[1:])[1]
    fresh = steps.heads if steps.valid_until is None else np.flatnonzero(steps.starts_known)
    too_large[fresh[1:] - 1] = False
    check_fits(too_large, lambda row: f"the delta of {steps.name_row(row + 1)}")
    words[fresh] = 0
    return words


def check_fits(too_large: NDArray[np.bool_], name: Callable[[int], str]) -> None:
    """Raise OverflowError for the first amount of more than 38 digits; `name` names its place."""
    if too_large.any():
        raise OverflowError(
            f"{name(int(too_large.argmax()))} has more than {BALANCE_DIGITS} digits, which no "
            "column of amounts holds"
        )


def events(steps: Steps, is_last: NDArray[np.bool_] | None = None) -> Columns:
    """Return each step, and a step to 0 where a balance ceases to be known.

    Parameters
    ----------
    steps
        The accounts.
    is_last
        Balances that are 0 for no time at all, when the next one comes; by default none.

    Returns
    -------
    dict
        Of each step the account's place in `numbers`, `times` (microseconds), `words`, `known`
        (int8, 1, or 0 where the balance ceases to be known), and `is_row`.
    """
    ends, at = np.empty(0, np.int64), np.empty(0, np.int64)
    if steps.valid_until is not None:
        ends = np.flatnonzero(steps.valid_until < steps.nexts)
        at = steps.valid_until[ends]
    if is_last is not None and is_last.any():
        more = np.flatnonzero(is_last)
        ends, at = np.append(ends, more), np.append(at, steps.times[more + 1])
    columns: Columns = {
        "numbers": steps.numbers,
        "times": steps.times,
        "words": steps.words,
        "known": np.ones(len(steps.times), np.int8),
        "is_row": steps.is_row,
    }
    if len(ends):
        new = {"numbers": steps.numbers[ends], "times": at}
        for name, column in columns.items():
            columns[name] = np.insert(column, ends + 1, new.get(name, 0), axis=0)
    return columns


def as_of(steps: Steps, points: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return which row holds for each account as of each of some points, account by account.

    Also returned is whether the balance is known; where it is not, the row is the account's first
    one, or one that held before. Points are microseconds, ascending.
    """
    begins = count_before(points, steps.times)
    ends, firsts = np.append(begins[1:], len(points))[: len(begins)], begins[steps.heads]
    begins[steps.heads], ends[steps.bounds[1:] - 1] = 0, len(points)
    rows = np.repeat(np.arange(len(begins)), ends - begins)
    is_known: NDArray[np.bool_] = (np.arange(len(points)) >= firsts[:, None]).ravel()
    if steps.valid_until is not None:
        is_known &= np.tile(points, len(steps)) < steps.valid_until[rows]
    return rows, is_known


@dataclass(frozen=True, slots=True)
class Pieces:
    """Step functions cut at the edges of periods: for each account and period one piece or more.

    Attributes
    ----------
    steps
        What was cut.
    starts
        Where the pieces of each account and period begin, account by account.
    rows, words
        The row of the steps that holds in each piece, and its balance; in an unknown piece those of
        the next one, or any where there is no next one.
    times, ends
        When each piece begins and ends.
    known_for
        For how long of its length each piece is known, in microseconds.
    is_known
        Whether the balance is known when the first piece begins, for each account and period. When
        the others begin, it always is.
    """

    steps: Steps
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    words: NDArray[np.int64]
    times: NDArray[np.int64]
    ends: NDArray[np.int64]
    known_for: NDArray[np.int64]
    is_known: NDArray[np.bool_]

    @property
    def known_lengths(self) -> NDArray[np.int64]:
        """For how long the balance is known, for each account and period, in microseconds."""
        return sum_runs(self.known_for, self.starts)


def cut(steps: Steps, edges: NDArray[np.int64]) -> Pieces:
    """Return steps cut into the periods between edges, microseconds, ascending."""
    begins, stops, accounts = edges[:-1], edges[1:], len(steps)
    held, is_known = as_of(steps, begins)
    reached = count_before(begins, steps.times)
    inner = np.flatnonzero((reached > 0) & (steps.times < np.append(edges, NEVER)[reached]))
    cells = steps.numbers[inner] * len(begins) + reached[inner] - 1
    within = np.bincount(cells, minlength=len(held))
    starts = np.arange(len(held)) + np.cumsum(within) - within
    rows = np.empty(len(held) + len(inner), np.int64)
    rows[starts], rows[np.arange(1, len(inner) + 1) + cells] = held, inner
    stale = starts[~is_known & (within > 0)]
    rows[stale] = rows[stale + 1]
    times = steps.times[rows]
    times[starts] = np.tile(begins, accounts)
    ends = np.append(times[1:], NEVER)[: len(times)]
    ends[starts + within] = np.tile(stops, accounts)
    valid_until = ends if steps.valid_until is None else steps.valid_until[rows]
    known_for = np.clip(valid_until, times, ends) - times
    known_for[starts[~is_known]] = 0
    return Pieces(steps, starts, rows, take(steps.words, rows), times, ends, known_for, is_known)
