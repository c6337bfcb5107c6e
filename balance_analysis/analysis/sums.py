"""Exact sums of balances over groups of accounts at points, and how many of them are known."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import Grid, check_cells, count_before
from balance_analysis.analysis.history import History
from balance_analysis.analysis.steps import ALWAYS, NEVER, Steps, check_fits, map_blocks, name_of
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import moment_text

RESULT_COLUMNS: Final = frozenset(
    (
        *("accounts", "active", "after", "average", "before", "change", "change_percent"),
        *("changes", "close", "closing", "cumulative_share", "depth", "drawdown", "drawdown_at"),
        *("end", "first_seen", "high", "inflow", "internal", "known", "last_seen", "low"),
        *("maximum", "maximum_at", "minimum", "minimum_at", "net", "open", "opening", "outflow"),
        *("peak", "peak_at", "rows", "share", "start", "state", "total", "unknown", "zero_share"),
    )
)
"""What results have beside ids: no column of one's own by which accounts are grouped."""

_BITS: Final = 128
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Sums:
    """The known balances of groups of accounts at points, group by group, points ascending.

    Attributes
    ----------
    groups, times
        The group and time, microseconds, of each sum.
    total
        The sum, NA where no balance is known.
    known, unknown
        Of how many accounts of the group the balance is known at that time, and of how many not.
    """

    groups: NDArray[np.int64]
    times: NDArray[np.int64]
    total: pd.arrays.ArrowExtensionArray
    known: NDArray[np.int64]
    unknown: NDArray[np.int64]


def sum_at(steps: Steps, groups: Groups, points: NDArray[np.int64]) -> Sums:
    """Return the sums of all groups at some points, ascending."""
    height = len(points)
    check_cells(len(groups), height)

    def place(group: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        reached = count_before(points, times)
        return np.where(reached < height, group * height + reached, _NOWHERE)

    owners = np.repeat(np.arange(len(groups)), height)
    return _sum_cells(steps, groups, owners, np.tile(points, len(groups)), place)


def change_points(
    steps: Steps, groups: Groups, grid: Grid, *, from_start: bool, with_events: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return at which times in a grid's interval groups have rows, each once, and at its start.

    Parameters
    ----------
    from_start
        Whether there is a point at the start as well, for each group.
    with_events
        Whether there are points where openings begin and balances cease to be known, too.

    Returns
    -------
    tuple of numpy.ndarray
        The group and the time, microseconds, of each point, group by group, times ascending.
    """
    numbers, times = steps.numbers[steps.is_row], steps.row_times
    if with_events:
        numbers, times, _, _ = events(steps)
    owners = groups.numbers[numbers]
    begin, stop = (int(grid.edges[0]), int(grid.edges[-1])) if len(grid) else (0, 0)
    is_inside = (begin <= times) & (times < stop)
    owners, times = owners[is_inside], times[is_inside]
    if from_start:
        owners = np.append(owners, np.arange(len(groups)))
        times = np.append(times, np.full(len(groups), begin))
    return distinct_points(owners, times)


def distinct_points(
    owners: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return groups and times, each pair once, group by group, times ascending."""
    pairs = pairs_of(owners, times)
    return pairs.split(distinct(pairs.keys(owners, times)))


@dataclass(frozen=True, slots=True)
class Pairs:
    """How a group and a time are one number, which sorts as these do.

    Attributes
    ----------
    first, span
        The earliest time but `ALWAYS`, microseconds, and how many numbers a group has.
    moments
        All times, ascending, where a number for each microsecond would be too large.
    """

    first: int
    span: int
    moments: NDArray[np.int64] | None

    def keys(self, owners: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of groups and times; another time counts as the next there is."""
        if self.moments is not None:
            return owners * self.span + np.searchsorted(self.moments, times)
        slots = np.clip(times, self.first, self.first + self.span - 2) - (self.first - 1)
        slots[times == ALWAYS] = 0
        return owners * self.span + slots

    def split(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the groups and the times of numbers."""
        owners, slots = np.divmod(keys, self.span)
        if self.moments is not None:
            return owners, self.moments[slots]
        times = slots + (self.first - 1)
        times[slots == 0] = ALWAYS
        times[slots == self.span - 1] = NEVER
        return owners, times


def pairs_of(owners: NDArray[np.int64], times: NDArray[np.int64]) -> Pairs:
    """Return how some groups and times are numbers."""
    real = times[(times > ALWAYS) & (times < NEVER)]
    first, last = (int(real.min()), int(real.max())) if len(real) else (0, 0)
    span = last - first + 3
    if (int(owners.max(initial=0)) + 1) * span < NEVER:
        return Pairs(first, span, None)
    moments = distinct(times)
    return Pairs(first, len(moments) + 1, moments)


def places_of(
    points: tuple[NDArray[np.int64], NDArray[np.int64]],
    wanted: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the place of each wanted group and time among points, as `distinct_points` are."""
    pairs = pairs_of(*points)
    return np.searchsorted(pairs.keys(*points), pairs.keys(*wanted))


def sum_at_changes(
    steps: Steps, groups: Groups, owners: NDArray[np.int64], times: NDArray[np.int64]
) -> Sums:
    """Return the sums of groups at points of their own, as `change_points` returns them.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    pairs = pairs_of(owners, times)
    keys = pairs.keys(owners, times)

    def place(group: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.searchsorted(keys, pairs.keys(group, times))
        return np.where(np.append(owners, _NOWHERE)[found] == group, found, _NOWHERE)

    return _sum_cells(steps, groups, owners, times, place)


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values, ascending: numpy's own way takes five times as long."""
    ordered = np.sort(values)
    found: NDArray[np.int64] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def _sum_cells(
    steps: Steps,
    groups: Groups,
    owners: NDArray[np.int64],
    times: NDArray[np.int64],
    place: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]],
) -> Sums:
    """Return the sums at cells of a group and a time each, group by group, times ascending.

    Parameters
    ----------
    steps, groups
        The accounts.
    owners, times
        The group and the time of each cell.
    place
        Returns for rows of these groups and times the first cell of the group that is not before
        the row; `_NOWHERE` where all are.
    """
    # Whatever the order in which digits are added up, in the end each account has added one.
    width = int128.ROOM - len(steps).bit_length()
    added = [np.zeros(len(owners), np.int64) for _ in range(-(-_BITS // width))]
    appeared = np.zeros(len(owners), np.int64)
    lock = threading.Lock()

    def add(first: int, block: Steps) -> None:
        numbers, times, words, is_known = events(block)
        cells = place(groups.numbers[first + numbers], times)
        is_last = np.append((cells[1:] != cells[:-1]) | (numbers[1:] != numbers[:-1]), True)
        rows = np.flatnonzero(is_last[: len(cells)] & (cells >= 0))
        heads = np.flatnonzero(np.diff(numbers[rows], prepend=-1))
        changes = [
            _differences(digit, heads)
            for digit in int128.digits_of(int128.take(words, rows), width)
        ]
        with lock:
            if is_known is None:
                np.add.at(appeared, cells[rows[heads]], 1)
            else:
                np.add.at(appeared, cells[rows], _differences(is_known[rows], heads))
            for total, change in zip(added, changes, strict=False):
                np.add.at(total, cells[rows], change)

    map_blocks(add, steps)
    begins = np.flatnonzero(np.diff(owners, prepend=-1))
    known = int128.running(appeared, begins)
    words, too_large = int128.compose([int128.running(digit, begins) for digit in added], width)

    def name(cell: int) -> str:
        group = name_of(groups.ids, int(owners[cell]))
        return f"the total of {group} at {moment_text(int(times[cell]))}"

    check_fits(too_large, name)
    return Sums(
        owners, times, int128.to_balances(words, known > 0), known, groups.sizes[owners] - known
    )


def events(
    steps: Steps,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the account, time and words of each step, and whether its balance is known, 1 or 0.

    Where a balance ceases to be known there is a step to 0. `None` where each step is known.
    """
    if steps.valid_until is None:
        return steps.numbers, steps.times, steps.words, None
    ends = np.flatnonzero(steps.valid_until < NEVER)
    is_known = np.insert(np.ones(len(steps.times), np.int64), ends + 1, 0)
    numbers = np.insert(steps.numbers, ends + 1, steps.numbers[ends])
    times = np.insert(steps.times, ends + 1, steps.valid_until[ends])
    return numbers, times, np.insert(steps.words, ends + 1, 0, axis=0), is_known


def _differences(values: NDArray[np.int64], heads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return by how much each value differs from the one before; a head's from nothing."""
    change = values.copy()
    change[1:] -= values[:-1]
    change[heads] = values[heads]
    return change


@dataclass(frozen=True, slots=True)
class Groups:
    """Accounts that have the same ids in some columns.

    Attributes
    ----------
    ids
        Those columns, one row a group, sorted.
    numbers
        The group of each account.
    """

    ids: pd.DataFrame
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.ids)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many accounts each group has."""
        return np.bincount(self.numbers, minlength=len(self))


def make_groups(history: History, by: str | Sequence[str]) -> Groups:
    """Return the groups of accounts that are the same in some columns.

    Parameters
    ----------
    history
        The accounts, and which columns they have.
    by
        Names of these columns. NA is a value, behind the others. As amounts of different assets
        never mix, "asset_id" comes first where it is not among them.

    Raises
    ------
    TypeError, ValueError
        If `by` has another name, one twice, or one of `RESULT_COLUMNS`, or an account has two
        values.
    """
    names = group_names(by, history.columns)
    accounts = history.tell(names)
    ids = [accounts[name].array for name in names]
    codes = [np.where(x.codes < 0, len(x.categories), x.codes) for x in ids]
    keys = account_numbers(codes, [len(x.categories) + 1 for x in ids])
    if np.all(keys[1:] > keys[:-1]):
        return Groups(accounts[names], np.arange(len(keys)))
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return Groups(accounts[names].iloc[firsts], numbers)


def group_names(by: str | Sequence[str], known: Sequence[str] = ACCOUNT_KEY) -> list[str]:
    """Return the columns that make a group, of those that are known: see `make_groups`."""
    if not isinstance(by, Iterable):
        raise TypeError(f"by must name columns of {known}, not {by!r}")
    names = [by] if isinstance(by, str) else list(by)
    unknown = [str(name) for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        near = [x for name in unknown for x in difflib.get_close_matches(name, known, 1)]
        hint = "a table may have others: table['desk'] = table['party_id'].map(desks)"
        if near:
            hint = f"did you mean {' and '.join(map(repr, near))}?"
        raise ValueError(f"by must name columns of {[*known]}, each once, not {names}; {hint}")
    if taken := RESULT_COLUMNS.intersection(names):
        raise ValueError(f"by={sorted(taken)}: a result has a column of that name; rename your own")
    return names if "asset_id" in names else ["asset_id", *names]
