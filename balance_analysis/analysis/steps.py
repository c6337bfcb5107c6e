"""The table as step functions: what every reconstruction starts from.

An account's rows are one step function: each balance holds from its row on, until the account's
next row. `make_steps` sorts and checks the rows and puts the opening balances before them; what is
computed account by account then runs over `blocks` of accounts: each is small enough for a
processor's cache, and all processors take part.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.checks import (
    account_numbers,
    microseconds,
    to_table,
)
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.int128 import integers_of, subtract, words_from, words_of
from balance_analysis.errors import CheckError
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, to_amounts
from balance_analysis.schema import ACCOUNT_KEY, BALANCE_DIGITS, COLUMNS, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Grid

Columns = dict[str, "NDArray[Any]"]

ALWAYS: Final = np.iinfo(np.int64).min
"""When an opening balance without a time began; numpy reads this number as NaT."""

NEVER: Final = np.iinfo(np.int64).max
"""When the balance begins of an account that nothing is known of."""

_is_alone: ContextVar[bool] = ContextVar("is_alone", default=False)

_BLOCK: Final = 1 << 17
"""How many rows and cells a block has: arrays of a megabyte."""

Account = tuple[str, ...]


@dataclass(frozen=True, slots=True)
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
    ceases
        When each balance ceases to be known before the account's next row, microseconds; `NEVER`
        where it doesn't, and `None` where none does.
    """

    accounts: pd.DataFrame
    bounds: NDArray[np.int64]
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    is_row: NDArray[np.bool_]
    ceases: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self.bounds) - 1

    @property
    def heads(self) -> NDArray[np.int64]:
        """The position of each account's first row."""
        return self.bounds[:-1]

    @property
    def is_head(self) -> NDArray[np.bool_]:
        """Which rows are an account's first."""
        mask = np.zeros(len(self.times), bool)
        mask[self.heads] = True
        return mask

    @property
    def is_fresh(self) -> NDArray[np.bool_]:
        """Which rows follow on nothing that is known: first ones, and those behind a gap."""
        fresh = self.is_head
        if self.ceases is not None:
            fresh[1:] |= self.ceases[:-1] < self.times[1:]
        return fresh

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The account of each row, as its place among the accounts."""
        numbers: NDArray[np.int64] = np.cumsum(self.is_head, dtype=np.int64)
        numbers -= 1
        return numbers

    @property
    def row_times(self) -> NDArray[np.int64]:
        """The times of the table's rows."""
        return self.times[self.is_row]

    @property
    def extent(self) -> NDArray[np.int64]:
        """The times of some rows of the table, its first and its last one among them."""
        firsts = np.minimum(self.heads + ~self.is_row[self.heads], self.bounds[1:] - 1)
        edges = np.append(firsts, self.bounds[1:] - 1)
        times: NDArray[np.int64] = self.times[edges[self.is_row[edges]]]
        return times

    def repeat_keys(self, count: int) -> dict[str, pd.Categorical]:
        """Return `ACCOUNT_KEY` of each account so many times, as columns."""
        ids = {name: self.accounts[name].array for name in ACCOUNT_KEY}
        return {
            name: pd.Categorical.from_codes(
                np.repeat(column.codes, count), dtype=column.dtype, validate=False
            )
            for name, column in ids.items()
        }

    def keys(self, numbers: NDArray[np.integer[Any]]) -> dict[str, pd.Categorical]:
        """Return `ACCOUNT_KEY` of accounts by their numbers, as columns."""
        return {name: self.accounts[name].array[numbers] for name in ACCOUNT_KEY}

    def name(self, number: int) -> str:
        """Return how an account is called in a message."""
        return ", ".join(f"{name}={self.accounts[name].iloc[number]!r}" for name in ACCOUNT_KEY)

    def tuples(self) -> list[Account]:
        """Return each account's four ids."""
        return list(self.accounts.astype("str").itertuples(index=False, name=None))

    def part(self, first: int, stop: int) -> Steps:
        """Return the accounts from one number to before another."""
        rows = slice(self.bounds[first], self.bounds[stop])
        return Steps(
            self.accounts.iloc[first:stop],
            self.bounds[first : stop + 1] - self.bounds[first],
            self.times[rows],
            self.words[rows],
            self.is_row[rows],
            None if self.ceases is None else self.ceases[rows],
        )

    def blocks(self, points: int = 0) -> Iterator[tuple[int, Steps]]:
        """Yield some accounts after the other, each time with the number of the first.

        Parameters
        ----------
        points
            How many cells each account has beside its rows.
        """
        if not len(self):
            yield 0, self
        sizes = self.bounds + points * np.arange(len(self.bounds))
        first = 0
        while first < len(self):
            stop = int(np.searchsorted(sizes, sizes[first] + _BLOCK, side="right")) - 1
            stop = max(stop, first + 1)
            yield first, self.part(first, stop)
            first = stop


S = TypeVar("S")
T = TypeVar("T")


def map_blocks(function: Callable[[int, Steps], T], steps: Steps, *, points: int = 0) -> list[T]:
    """Return what a function makes of each block of accounts, in their order.

    Parameters
    ----------
    function
        Gets the number of the block's first account, and the block.
    steps
        All accounts. Of none there is one block of none.
    points
        How many cells each account has beside its rows.
    """
    return _map(lambda block: function(*block), list(steps.blocks(points)))


def _map(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return what a function makes of each item, worked out by all processors."""
    if len(items) < 2 or _is_alone.get():  # noqa: PLR2004 - one needs no second processor
        return [function(item) for item in items]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Let this thread alone work out blocks: where others have the other processors."""
    token = _is_alone.set(True)
    try:
        yield
    finally:
        _is_alone.reset(token)


def join(parts: Sequence[Columns]) -> Columns:
    """Return the columns of blocks one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def make_steps(table: pd.DataFrame, opening: pd.DataFrame | None = None) -> Steps:
    """Return a table as step functions.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order; identical duplicates count once.
    opening
        What accounts held before their first row: see `balance_at`.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance, or an opening balance
        contradicts the rows.
    TypeError, ValueError
        If `table` is no table, or `opening` no frame of opening balances.
    """
    return open_table(table, opening)[1]


def open_table(table: pd.DataFrame, opening: pd.DataFrame | None) -> tuple[pd.DataFrame, Steps]:
    """Return a table as `frame.to_frame` makes it, and as step functions: see `make_steps`.

    At no cost if it is such a table already.
    """
    heads = _find_heads(table)
    if heads is None:
        table = to_table(table)
        heads = np.flatnonzero(np.diff(account_numbers(table), prepend=-1))
    rows = table[list(COLUMNS)].reset_index(drop=True)
    rows.attrs = {}
    ids = {name: _sorted_ids(rows[name].array, heads) for name in ACCOUNT_KEY}
    rows = rows.assign(**{n: column for n, column in ids.items() if column is not rows[n].array})
    steps = Steps(
        pd.DataFrame({name: column[heads] for name, column in ids.items()}),
        np.append(heads, len(rows)),
        microseconds(rows),
        words_of(pa.array(rows["balance"])),
        np.ones(len(rows), bool),
    )
    return rows, steps if opening is None else _open(steps, _read_opening(opening))


def _find_heads(table: pd.DataFrame) -> NDArray[np.int64] | None:
    """Return the position of each account's first row.

    `None` if a frame is not typed, lacks a value, is not in a table's order or has duplicates.
    """
    if not _is_typed(table) or pa.array(table["balance"]).null_count:
        return None
    columns, times = [table[name].array for name in ACCOUNT_KEY], microseconds(table)
    codes = [column.codes for column in columns]

    def scan(start: int) -> NDArray[np.int64] | None:
        here, before = slice(start, start + _BLOCK), slice(start - 1, start + _BLOCK - 1)
        begins = np.zeros(len(times[here]), bool)
        for code in codes:
            begins |= code[here] != code[before][: len(begins)]
        is_later = times[here] > times[before][: len(begins)]
        return start + np.flatnonzero(begins) if np.all(begins | is_later) else None

    found = _map(scan, range(1, len(times), _BLOCK))
    if any(part is None for part in found):
        return None
    heads = np.concatenate([np.arange(min(len(times), 1)), *found])
    if np.any(times[heads] == ALWAYS) or any(np.any(code[heads] < 0) for code in codes):
        return None
    return heads if _is_ascending([_sorted_ids(c, heads)[heads] for c in columns]) else None


def _is_typed(table: pd.DataFrame) -> bool:
    if not isinstance(table, pd.DataFrame) or not table.columns.is_unique:
        return False
    dtypes = table.dtypes.to_dict()
    return (
        all(isinstance(dtypes.get(name), pd.CategoricalDtype) for name in ACCOUNT_KEY)
        and dtypes.get("timestamp") == TIMESTAMP_DTYPE
        and dtypes.get("balance") == BALANCE_DTYPE
    )


def _sorted_ids(ids: pd.Categorical, heads: NDArray[np.int64]) -> pd.Categorical:
    """Return ids with categories that are sorted and all in use."""
    categories = ids.categories
    is_used = np.zeros(len(categories), bool)
    is_used[ids.codes[heads]] = True
    if is_used.all() and categories.is_monotonic_increasing and categories.dtype == "str":
        return ids
    return ids.set_categories(pd.Index(sorted(categories[is_used]), dtype="str"))


def _is_ascending(columns: Sequence[pd.Categorical]) -> bool:
    """Whether accounts are in order, none twice; their categories must be sorted."""
    is_less = np.zeros(max(len(columns[0]) - 1, 0), bool)
    tied = ~is_less
    for column in columns:
        is_less |= tied & (column.codes[:-1] < column.codes[1:])
        tied &= column.codes[:-1] == column.codes[1:]
    return bool(is_less.all())


def check_opening(opening: pd.DataFrame) -> pd.DataFrame:
    """Return the accounts of opening balances, as text, if they are such.

    Raises
    ------
    TypeError, ValueError
        If it is no frame, lacks a column or an id, or has an account twice.
    """
    if not isinstance(opening, pd.DataFrame):
        raise TypeError(f"opening must be a pandas DataFrame, not {type(opening).__name__}")
    missing = [name for name in (*ACCOUNT_KEY, "balance") if name not in opening]
    if missing:
        raise ValueError(
            f"opening has no column {', '.join(missing)}; balance_at makes such frames"
        )
    keys = opening[list(ACCOUNT_KEY)].astype("str")
    if keys.isna().to_numpy().any():
        raise ValueError("opening has an account with a missing id; no market is '', not missing")
    if keys.duplicated().any():
        twice = keys.loc[keys.duplicated()].iloc[0].to_dict()
        raise ValueError(f"opening has more than one balance of the account {twice}")
    return keys


def _read_opening(opening: pd.DataFrame) -> dict[Account, tuple[int, int | None]]:
    """Return for each account its opening balance and from when on; `None` is unknown."""
    keys = check_opening(opening)
    balances = to_amounts(opening["balance"], may_lack=True).to_pylist()
    times = np.full(len(opening), ALWAYS)
    if "since" in opening:
        since = pd.to_datetime(opening["since"], utc=True)
        times = since.to_numpy(dtype="M8[us]").view(np.int64)
    return {
        account: (time, None if balance is None else int(balance))
        for account, time, balance in zip(
            keys.itertuples(index=False, name=None), times.tolist(), balances, strict=True
        )
    }


def _open(steps: Steps, opening: Mapping[Account, tuple[int, int | None]]) -> Steps:
    """Return steps with opening balances before them."""
    before = _before(steps, opening)
    known = steps.tuples()
    accounts = sorted({*known, *before})
    place = {account: number for number, account in enumerate(accounts)}
    counts = np.zeros(len(accounts), np.int64)
    counts[[place[account] for account in known]] = np.diff(steps.bounds)
    opened = np.sort(np.array([place[account] for account in before], np.int64))
    counts[opened] += 1
    bounds = np.append(0, np.cumsum(counts))
    is_row = np.ones(bounds[-1], bool)
    is_row[bounds[opened]] = False
    times, words = np.empty(len(is_row), np.int64), np.empty((len(is_row), 2), np.int64)
    times[is_row], words[is_row] = steps.times, steps.words
    if len(opened):
        states = [before[accounts[number]] for number in opened]
        times[~is_row] = [time for time, _ in states]
        words[~is_row] = words_from([balance for _, balance in states])
    ids = zip(ACCOUNT_KEY, zip(*accounts, strict=True), strict=True) if accounts else ()
    frame = pd.DataFrame({name: pd.Categorical(pd.Index(x, dtype="str")) for name, x in ids})
    return Steps(frame if accounts else steps.accounts, bounds, times, words, is_row)


def _before(
    steps: Steps, opening: Mapping[Account, tuple[int, int | None]]
) -> dict[Account, tuple[int, int]]:
    """Return the rows that opening balances add: time and balance of each account that has one."""
    places = {account: number for number, account in enumerate(steps.tuples())}
    added = {}
    for account, (time, balance) in opening.items():
        number = places.get(account)
        if number is None:
            added[account] = (NEVER, 0) if balance is None else (time, balance)
        elif balance is not None:
            if time < steps.times[steps.bounds[number]]:
                added[account] = (time, balance)
            else:
                _check_agrees(steps, number, time, balance)
    return added


def _check_agrees(steps: Steps, number: int, time: int, balance: int) -> None:
    """Raise if an opening balance from within an account's rows is none of them."""
    first, stop = steps.bounds[number : number + 2]
    row = int(first + np.searchsorted(steps.times[first:stop], time))
    there = row < stop and steps.times[row] == time
    if there and integers_of(steps.words[row : row + 1]) == [balance]:
        return
    held = integers_of(steps.words[row : row + 1])[0] if there else "no row"
    raise CheckError(
        f"opening has {balance} for {steps.name(number)} since {from_microseconds(time)}, where "
        f"the table has {held}: an opening is what was before the account's first row, so one of "
        "the two is wrong or rows are missing"
    )


def period_columns(steps: Steps, grid: Grid) -> dict[str, Any]:
    """Return `ACCOUNT_KEY`, `start` and `end` of each account and period."""
    return {
        **steps.repeat_keys(len(grid)),
        "start": to_times(np.tile(grid.edges[:-1], len(steps)), grid.zone),
        "end": to_times(np.tile(grid.edges[1:], len(steps)), grid.zone),
    }


def step_deltas(steps: Steps, *, out: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the delta of each row, in `out` if it is given; where it is unknown 0.

    Raises
    ------
    OverflowError
        If a delta has more than 38 digits.
    """
    words = np.empty_like(steps.words) if out is None else out
    too_large = subtract(steps.words[1:], steps.words[:-1], out=words[1:])[1]

    def name(row: int) -> str:
        moment = from_microseconds(int(steps.times[row + 1]))
        return f"the delta of {steps.name(int(steps.numbers[row + 1]))} at {moment}"

    fresh = np.flatnonzero(steps.is_fresh) if steps.ceases is not None else steps.heads
    too_large[fresh[1:] - 1] = False
    check_fits(too_large, name)
    words[fresh] = 0
    return words


def check_fits(too_large: NDArray[np.bool_], name: Callable[[int], str]) -> None:
    """Raise if an amount has more than 38 digits; `name` tells what it is, by its place.

    Raises
    ------
    OverflowError
        With the first one's name.
    """
    if too_large.any():
        raise_overflow(name(int(too_large.argmax())))


def raise_overflow(what: str) -> NoReturn:
    """Raise because of an amount that doesn't fit."""
    raise OverflowError(
        f"{what} has more than {BALANCE_DIGITS} digits, which no column of amounts holds"
    )
