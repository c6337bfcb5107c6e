"""Groups of accounts, and exact sums of what they hold: how many are known, and how many aren't."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import check_cells, count_before, to_times
from balance_analysis.analysis.history import History
from balance_analysis.analysis.steps import (
    ALWAYS,
    NEVER,
    Columns,
    Steps,
    check_fits,
    name_of,
    take_ids,
)
from balance_analysis.rows import account_numbers, are_heads
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


_AT_ONCE: Final = 1 << 21
"""Sums of slices that are put together at once, about."""


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
    ids, numbers = distinct_ids(history.tell(names))
    return Groups(ids, numbers)


def distinct_ids(ids: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the distinct rows of columns of ids, sorted, and the place of each row among them."""
    keys = numbers_of_ids(ids)
    if np.all(keys[1:] > keys[:-1]):
        return ids, np.arange(len(keys))
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return ids.iloc[firsts], numbers


def numbers_of_ids(ids: pd.DataFrame) -> NDArray[np.int64]:
    """Return a number for each row of columns of ids that sorts as these do, NA last."""
    columns = [ids[name].array for name in ids]
    codes = [np.where(x.codes < 0, len(x.categories), x.codes) for x in columns]
    return account_numbers(codes, [len(x.categories) + 1 for x in columns])


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


@dataclass(frozen=True, slots=True)
class Sums:
    """What groups of accounts hold at some moments, group by group, moments ascending.

    Attributes
    ----------
    ids, sizes
        The ids of each group, and how many accounts it has.
    groups, times
        The group and the time, microseconds, of each sum.
    words
        The sum of the balances that are known.
    known
        The number of accounts of the group whose balance is known at that time.
    is_row
        Whether an account of the group has a row at that time.
    """

    ids: pd.DataFrame
    sizes: NDArray[np.int64]
    groups: NDArray[np.int64]
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    known: NDArray[np.int64]
    is_row: NDArray[np.bool_]

    @property
    def total(self) -> pd.arrays.ArrowExtensionArray:
        """The sums as amounts, NA where no balance is known."""
        return int128.to_balances(self.words, self.known > 0)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """The number of accounts of the group whose balance is not known at that time."""
        unknown: NDArray[np.int64] = self.sizes[self.groups] - self.known
        return unknown

    def take(self, chosen: NDArray[Any] | slice) -> Sums:
        """Return some of the sums."""
        return replace(
            self,
            groups=self.groups[chosen],
            times=self.times[chosen],
            words=self.words[chosen],
            known=self.known[chosen],
            is_row=self.is_row[chosen],
        )

    def frame(self, zone: dt.tzinfo) -> pd.DataFrame:
        """Return the sums as the columns of `totals`."""
        columns = {
            **take_ids(self.ids, self.groups),
            "timestamp": to_times(self.times, zone),
            "total": self.total,
            "known": self.known,
            "unknown": self.unknown,
        }
        return pd.DataFrame(columns, copy=False)

    def name(self, cell: int) -> str:
        """Return how a sum is called in a message."""
        group = name_of(self.ids, int(self.groups[cell]))
        return f"the total of {group} at {moment_text(int(self.times[cell]))}"


def sum_at(steps: Steps, groups: Groups, points: NDArray[np.int64]) -> Sums:
    """Return the sums of all groups at some points, ascending; `is_row` has no meaning."""
    height = len(points)
    check_cells(len(groups), height)
    sums = _sum(steps, groups, lambda times: count_before(points, times), height)
    # Each sum holds up to the next one of its group.
    cells = sums.groups * height + sums.times
    place = np.zeros(len(groups) * height, np.int64)
    place[cells] = 1
    place = np.cumsum(place) - 1
    owners = np.repeat(np.arange(len(groups)), height)
    is_there = place >= 0
    is_there[is_there] = sums.groups[place[is_there]] == owners[is_there]
    place[~is_there] = 0
    words, known = np.zeros((len(place), 2), np.int64), np.zeros(len(place), np.int64)
    if len(cells):
        words = np.where(is_there[:, None], int128.take(sums.words, place), 0)
        known = np.where(is_there, sums.known[place], 0)
    times = np.tile(points, len(groups))
    return Sums(groups.ids, groups.sizes, owners, times, words, known, np.zeros(len(place), bool))


def sum_at_changes(
    steps: Steps, groups: Groups, begin: int = ALWAYS, stop: int = NEVER, *, also: int | None = None
) -> Sums:
    """Return the sums of groups wherever they may change in [begin, stop), and at `also`.

    What changed before `begin` has changed there.
    """
    return _sum(steps, groups, lambda times: np.maximum(times, begin), stop, also)


def _sum(
    steps: Steps,
    groups: Groups,
    place: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    stop: int,
    also: int | None = None,
) -> Sums:
    """Return the sums of groups behind the changes that come to the same place, if before `stop`.

    `place` returns the places of moments, ascending as they are, which are the times of the sums.
    At the place `also` each group has one.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    numbers, times, words, is_known = events(steps)
    at = place(times)
    is_row = np.zeros(len(at), bool)
    is_row[slice(None) if is_known is None else is_known > 0] = steps.is_row
    is_row &= at == times
    is_last = np.ones(len(at), bool)
    is_last[:-1] = (at[1:] != at[:-1]) | (numbers[1:] != numbers[:-1])
    rows = np.flatnonzero(is_last & (at < stop))
    heads = np.flatnonzero(np.diff(numbers[rows], prepend=-1))
    more = np.arange(0 if also is None else len(groups))
    owners = np.append(groups.numbers[numbers[rows]], more)
    at = np.append(at[rows], np.full(len(more), also or 0))
    order, starts = runs_of(owners, at)
    owners, at = owners[order], at[order]
    lasts = np.append(starts[1:], len(order))[: len(starts)] - 1
    begins = np.flatnonzero(np.diff(owners, prepend=-1))

    def level(values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over accounts of the last value of each."""
        change = values.copy()
        change[1:] -= values[:-1]
        change[heads] = values[heads]
        change = np.append(change, 0 * more)
        return int128.running(change.take(order), begins).take(lasts)

    # Whatever the order in which digits are added up, in the end each account has added one.
    width = int128.ROOM - len(steps).bit_length()
    digits = [level(x) for x in int128.digits_of(int128.take(words, rows), width)]
    totals, too_large = int128.compose(digits, width)
    has_balance = np.ones(len(rows), np.int64) if is_known is None else is_known[rows]
    sums = Sums(
        groups.ids,
        groups.sizes,
        owners[lasts],
        at[lasts],
        totals,
        level(has_balance),
        int128.sum_runs(np.append(is_row[rows], more < 0)[order], starts) > 0,
    )
    check_fits(too_large, sums.name)
    return sums


def runs_of(
    owners: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of some rows by two numbers, and where in it a new pair of these begins."""
    order = np.lexsort((at, owners))
    first, second = owners.take(order), at.take(order)
    return order, np.flatnonzero(are_heads([first, second]))


def add_up(
    columns: Columns,
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    name: Callable[[int], str],
) -> Columns:
    """Return what columns of rows add up to from each start to the next; times are the extremes.

    Parameters
    ----------
    columns
        Amounts as words, counts, and the times `first_seen` and `last_seen`.
    order, starts
        See `runs_of`.
    name
        Returns how a sum that is too large is called in a message.
    """
    found: Columns = {}
    for what, column in columns.items():
        rows = int128.take(column, order) if column.ndim > 1 else column.take(order)
        if column.ndim > 1:
            found[what], too_large = int128.sum_words(rows, starts)
            check_fits(too_large, name)
        elif what in _EXTREMES:
            found[what] = _EXTREMES[what].reduceat(rows, starts) if len(starts) else rows
        else:
            found[what] = int128.sum_runs(rows, starts)
    return found


_EXTREMES: Final = {"first_seen": np.minimum, "last_seen": np.maximum}


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


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values, ascending: numpy's own way takes five times as long."""
    ordered = np.sort(values)
    found: NDArray[np.int64] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def join_ids(parts: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, list[NDArray[np.int64]]]:
    """Return the groups of all parts by their ids, sorted, and the numbers of each part's."""
    if len(parts) == 1:
        return parts[0], [np.arange(len(parts[0]))]
    ids, numbers = distinct_ids(concatenated(parts, [*map(str, parts[0])]))
    return ids, np.split(numbers, np.cumsum([len(part) for part in parts[:-1]]))


def join_sums(
    parts: Sequence[Sums], *, changing: bool, wanted: Callable[[Sums], NDArray[np.bool_] | slice]
) -> Sums:
    """Return the sums over the accounts of all parts.

    Parameters
    ----------
    parts
        Sums of different accounts.
    changing
        Whether sums hold until the next one of the group; else all parts have the same times.
    wanted
        Returns which of the joined sums to keep.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    if len(parts) == 1:
        return parts[0].take(wanted(parts[0]))
    ids, numbers = join_ids([part.ids for part in parts])
    sizes = np.zeros(len(ids), np.int64)
    for part, own in zip(parts, numbers, strict=True):
        sizes[own] += part.sizes
    owners = [own[part.groups] for own, part in zip(numbers, parts, strict=True)]
    counts = np.sum([np.bincount(own, minlength=len(ids)) for own in owners], axis=0)
    # Some groups after the other, so that not all is held several times.
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // _AT_ONCE)) + 1
    joined = []
    for low, high in pairwise([0, *cuts.tolist(), len(ids)]):
        found = []
        for part, own in zip(parts, owners, strict=True):
            begin, stop = np.searchsorted(own, [low, high])
            some = replace(part.take(slice(begin, stop)), groups=own[begin:stop])
            found.append(_differences(some) if changing else some)
        sums = _join([replace(some, ids=ids, sizes=sizes) for some in found], changing=changing)
        joined.append(sums.take(wanted(sums)))
    return _concatenated(joined)


def _concatenated(parts: Sequence[Sums]) -> Sums:
    """Return sums of the same groups one after the other."""
    columns = ("groups", "times", "words", "known", "is_row")
    arrays: Any = {name: np.concatenate([getattr(x, name) for x in parts]) for name in columns}
    return replace(parts[0], **arrays)


def _join(parts: Sequence[Sums], *, changing: bool) -> Sums:
    """Return sums of the same groups added up, those that change from their differences."""
    sums = _concatenated(parts)
    order, starts = runs_of(sums.groups, sums.times)
    first = sums.take(order[starts])
    columns: Columns = {"words": sums.words, "known": sums.known, "is_row": sums.is_row}
    added = add_up(columns, order, starts, first.name)
    if changing:
        begins = np.flatnonzero(np.diff(first.groups, prepend=-1))
        added["words"], too_large = int128.running_sums(added["words"], begins)
        check_fits(too_large, first.name)
        added["known"] = int128.running(added["known"], begins)
    return replace(first, words=added["words"], known=added["known"], is_row=added["is_row"] > 0)


def _differences(sums: Sums) -> Sums:
    """Return by how much sums differ from the one before; the first of a group from nothing."""
    heads = np.flatnonzero(np.diff(sums.groups, prepend=-1))
    words, known = np.roll(sums.words, 1, axis=0), np.roll(sums.known, 1)
    words[heads], known[heads] = 0, 0
    change, too_large = int128.subtract(sums.words, words)
    check_fits(too_large, lambda cell: f"a change of {sums.name(cell)}")
    return replace(sums, words=change, known=sums.known - known)


def concatenated(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; ids in `names` have the categories of all."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)
