"""Sums of balances over groups of accounts, which never mix assets and count what is unknown.

Exact sums stand on changes: by how much each row of an account changes what its group holds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import (
    Groups,
    Options,
    Units,
    door,
    each_account,
    grid_of,
    group_names,
    in_units,
    is_by_party,
    join_ids,
    make_groups,
)
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_times,
)
from balance_analysis.analysis.history import AccountSlices, History, Source, open_history
from balance_analysis.analysis.steps import (
    ALWAYS,
    NEVER,
    Columns,
    Steps,
    check_fits,
    join,
    map_blocks,
    map_parallel,
    name_of,
    take_ids,
)
from balance_analysis.rows import are_heads, by_account_and_time
from balance_analysis.schema import ACCOUNT_KEY, Instant
from balance_analysis.text import moment_text

_DIGITS: Final = 4
"""Digits of a cell's sum: see `int128.add_to_cells`."""

T = TypeVar("T")

AT_ONCE: Final = 1 << 18
"""Changes of groups that are added up at once, about."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What groups of accounts hold at some moments, group by group, moments ascending.

    Attributes
    ----------
    ids, sizes
        The ids of each group, and how many accounts it has.
    columns
        Of each sum: `groups`, `times` (microseconds), `words` (the sum of the balances that are
        known), and `known`, the number of accounts of the group whose balance is known at that
        time. At changes also `is_row`, whether an account of the group has a row at that time, and
        `gained`, the words of what the accounts whose balance is known before and after gained.
    """

    ids: pd.DataFrame
    sizes: NDArray[np.int64]
    columns: Columns

    @property
    def total(self) -> pd.arrays.ArrowExtensionArray:
        """The sums as amounts, NA where no balance is known."""
        return int128.to_balances(self.columns["words"], self.columns["known"] > 0)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """The number of accounts of the group whose balance is not known at that time."""
        unknown: NDArray[np.int64] = self.sizes[self.columns["groups"]] - self.columns["known"]
        return unknown

    def frame(self, zone: dt.tzinfo) -> pd.DataFrame:
        """Return the sums as the columns of `totals`."""
        columns = {
            **take_ids(self.ids, self.columns["groups"]),
            "timestamp": to_times(self.columns["times"], zone),
            "total": self.total,
            "known": self.columns["known"].astype(np.int64),
            "unknown": self.unknown,
        }
        return pd.DataFrame(columns, copy=False)

    def check_fit(self, too_large: NDArray[np.bool_]) -> Sums:
        """Return the sums, or raise OverflowError for the first that has more than 38 digits."""

        def name(cell: int) -> str:
            group = name_of(self.ids, int(self.columns["groups"][cell]))
            return f"the total of {group} at {moment_text(int(self.columns['times'][cell]))}"

        check_fits(too_large, name)
        return self


def sum_at(steps: Steps, groups: Groups, points: NDArray[np.int64]) -> Sums:
    """Return the sums of all groups at some points, ascending."""
    check_cells(len(groups), len(points))
    height = len(points) + 1  # what comes later changes one more cell, which nobody sees
    cells, lock = np.zeros((_DIGITS + 1, len(groups) * height), np.int64), Lock()

    def add(first: int, block: Steps) -> None:
        own = Groups(groups.ids, groups.numbers[first : first + len(block)])
        changes = changes_of(block, own).columns
        places = count_before(points, changes["times"])
        places += changes["groups"] * np.int64(height)
        with lock:
            int128.add_to_cells(cells[:-1], places, changes["words"])
            np.add.at(cells[-1], places, changes["known"].astype(np.int64))

    map_blocks(add, steps)
    levels = cells.reshape(len(cells), len(groups), height).cumsum(axis=2)[:, :, :-1]
    *digits, known = levels.reshape(len(cells), len(groups) * len(points))
    return _of_points(groups.ids, groups.sizes, points, digits, known)


def _of_points(
    ids: pd.DataFrame,
    sizes: NDArray[np.int64],
    points: NDArray[np.int64],
    digits: Sequence[NDArray[np.int64]],
    known: NDArray[np.int64],
) -> Sums:
    """Return sums of all groups at some points, whose words are given as digits."""
    words, too_large = int128.compose(digits, int128.CELL_DIGIT)
    groups, times = np.repeat(np.arange(len(ids)), len(points)), np.tile(points, len(ids))
    columns = {"groups": groups, "times": times, "words": words, "known": known}
    return Sums(ids, sizes, columns).check_fit(too_large)


def join_at(parts: Sequence[Sums], points: NDArray[np.int64]) -> Sums:
    """Return the sums at some points over the accounts of all parts."""
    if len(parts) == 1:
        return parts[0]
    ids, numbers = join_ids([part.ids for part in parts])
    sizes = np.zeros(len(ids), np.int64)
    digits = np.zeros((_DIGITS, len(ids) * len(points)), np.int64)
    known = np.zeros(len(ids) * len(points), np.int64)
    for part, own in zip(parts, numbers, strict=True):
        sizes[own] += part.sizes
        cells = np.add.outer(own * len(points), np.arange(len(points))).ravel()
        int128.add_to_cells(digits, cells, part.columns["words"])
        known[cells] += part.columns["known"]
    return _of_points(ids, sizes, points, [*digits], known)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes the sums of groups of accounts, in no order.

    Attributes
    ----------
    ids, sizes
        The ids of each group, and how many accounts it has.
    columns
        Of each change: `groups`, `times`, by which `words` the sum of the known balances changes,
        by how many accounts more are `known`, and `is_row`, whether it is a row of the table.
    """

    ids: pd.DataFrame
    sizes: NDArray[np.int64]
    columns: Columns

    def sums(self, wanted: Callable[[Columns], NDArray[np.bool_]] | None = None) -> Sums:
        """Return the sums of all groups behind their changes, maybe only those that are wanted.

        The changes are gone then, so that they don't stay in memory beside the sums.
        """

        def part(first: int, sums: Sums) -> Columns:
            columns = sums.columns
            columns["groups"] += np.int32(first)
            chosen = slice(None) if wanted is None else wanted(columns)
            return {name: column[chosen] for name, column in columns.items()}

        parts = self.parts(part)
        self.columns.clear()
        return Sums(self.ids, self.sizes, join(parts))

    def parts(self, function: Callable[[int, Sums], T], *, gained: bool = False) -> list[T]:
        """Return what a function makes of the sums of some groups after the other.

        It gets the number of the first of these groups, and their sums.

        Raises
        ------
        OverflowError
            If a sum has more than 38 digits.
        """
        groups = self.columns["groups"]
        counts = np.bincount(groups, minlength=len(self.ids))
        cuts = np.flatnonzero(np.diff(np.cumsum(counts) // AT_ONCE)) + 1
        is_sorted = bool(np.all(groups[1:] >= groups[:-1]))

        def part(bounds: tuple[int, int]) -> T:
            low, high = bounds
            if is_sorted:
                chosen: Any = slice(*np.searchsorted(groups, bounds).tolist())
            else:
                chosen = np.flatnonzero((groups >= low) & (groups < high))
            columns = {name: column[chosen] for name, column in self.columns.items()}
            columns["groups"] = columns["groups"].astype(np.int64) - low
            ids, sizes = self.ids.iloc[low:high], self.sizes[low:high]
            return function(low, _sum_up(Changes(ids, sizes, columns), gained=gained))

        return map_parallel(part, [*pairwise([0, *cuts.tolist(), len(self.ids)])])


_CHANGE: Final = ("groups", "times", "words", "known", "is_row")


def _sum_up(changes: Changes, *, gained: bool) -> Sums:
    """Return the sums behind changes, whose groups are int64, taking the changes along."""
    groups, times, words, known, is_row = (changes.columns.pop(name) for name in _CHANGE)
    order, starts = runs_of(groups, times)
    groups, times = groups.take(order[starts]), times.take(order[starts])
    ends = np.append(starts[1:], len(order))[: len(starts)]
    heads = np.flatnonzero(np.diff(groups, prepend=-1))
    begins = np.repeat(starts[heads], np.diff(heads, append=len(starts)))
    words, known = int128.take(words, order), known.take(order)
    # Whatever the order of the changes, in the end each account has added one balance.
    levels, too_large = int128.difference(int128.running_sums(words), begins, ends)
    counts = np.append(0, np.cumsum(known, dtype=np.int64))
    columns: Columns = {
        "groups": groups.astype(np.int32),
        "times": times,
        "words": levels,
        "known": (counts[ends] - counts[begins]).astype(np.int32),
        "is_row": int128.sum_runs(is_row.take(order), starts) > 0,
    }
    if gained:
        words[known != 0] = 0
        columns["gained"], _ = int128.sum_words(words, starts)
    return Sums(changes.ids, changes.sizes, columns).check_fit(too_large)


def changes_of(
    steps: Steps,
    groups: Groups,
    begin: int = ALWAYS,
    stop: int = NEVER,
    *,
    also: int | None = None,
) -> Changes:
    """Return what changes the sums of groups in [begin, stop), and a change of nothing at `also`.

    What changed before `begin` has changed there.
    """
    owners, fresh, words = groups.numbers.astype(np.int32), steps.starts_known, steps.words.copy()
    _, too_large = int128.subtract(steps.words[1:], steps.words[:-1], out=words[1:])
    # A delta that leaves 38 digits is two changes, one balance less and another one more.
    torn = np.flatnonzero(too_large & ~fresh[1:])
    fresh = fresh.copy() if len(torn) else fresh
    fresh[torn + 1] = True
    words[fresh] = steps.words[fresh]
    rows = (owners[steps.numbers], steps.times, words, fresh.astype(np.int8), steps.is_row)
    columns: Columns = dict(zip(_CHANGE, rows, strict=True))
    gone, at = torn, steps.times[torn + 1]
    if steps.valid_until is not None:
        ends = np.flatnonzero(steps.valid_until < steps.nexts)
        gone, at = np.append(gone, ends), np.append(at, steps.valid_until[ends])
    if len(gone):
        less, _ = int128.subtract(np.zeros((len(gone), 2), np.int64), steps.words[gone])
        columns = join([columns, _no_rows(owners[steps.numbers[gone]], at, less, -1)])
    if begin != ALWAYS:
        columns["is_row"] = columns["is_row"] & (columns["times"] >= begin)
        columns["times"] = np.maximum(columns["times"], begin)
    if stop != NEVER and not np.all(is_inside := columns["times"] < stop):
        columns = {name: column[is_inside] for name, column in columns.items()}
    if also is not None:
        every = np.arange(len(groups), dtype=np.int32)
        columns = join([columns, _no_rows(every, also, np.zeros((len(every), 2), np.int64), 0)])
    return Changes(groups.ids, groups.sizes, columns)


def _no_rows(
    groups: NDArray[np.int32],
    times: NDArray[np.int64] | int,
    words: NDArray[np.int64],
    known: int,
) -> Columns:
    """Return the columns of changes that are no rows."""
    same = (np.broadcast_to(x, len(groups)) for x in (np.int64(times), np.int8(known), False))
    at, more, is_row = same
    return {"groups": groups, "times": at, "words": words, "known": more, "is_row": is_row}


def join_changes(parts: Sequence[Changes]) -> Changes:
    """Return the changes of the groups of all parts, from which they are taken."""
    if len(parts) == 1:
        return parts[0]
    ids, numbers = join_ids([part.ids for part in parts])
    sizes = np.zeros(len(ids), np.int64)
    for part, own in zip(parts, numbers, strict=True):
        sizes[own] += part.sizes
        part.columns["groups"] = own.astype(np.int32)[part.columns["groups"]]
    return Changes(ids, sizes, join([part.columns for part in parts]))


def runs_of(
    owners: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of some rows by two numbers, and where in it a new pair of these begins."""
    order = by_account_and_time(owners, at)
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
    into: Columns = {}
    for what, column in columns.items():
        rows = int128.take(column, order) if column.ndim > 1 else column.take(order)
        if column.ndim > 1:
            into[what], too_large = int128.sum_words(rows, starts)
            check_fits(too_large, name)
        elif what in _EXTREMES:
            into[what] = _EXTREMES[what].reduceat(rows, starts) if len(starts) else rows
        else:
            into[what] = int128.sum_runs(rows, starts)
    return into


_EXTREMES: Final = {"first_seen": np.minimum, "last_seen": np.maximum}


def _added_up(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield `totals` of an archive: what the slices have of a group adds up."""
    if is_by_party(options) and not options["share"]:
        yield from each_account(slices, function, options)
        return
    yield _totals(slices.outline, lambda *how: [*slices.map(partial(_part, *how))], **options)


@door(_added_up)
def totals(
    source: Source,
    *,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | Grid | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    share: bool = False,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return the sum of the balances of groups of accounts, on a grid or at every change.

    It is over the accounts that have a row: of one that was quiet since the start of a table
    without openings it knows nothing.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    by
        The columns that make a group, within each asset: those of `ACCOUNT_KEY`, and others
        that the table has and that have one value for each account, such as
        `table["desk"] = table["party_id"].map(desks)`. Accounts without a value are a group of NA.
    freq
        The distance of the points: any frequency of pandas; `None` for each time at which a group
        has a row.
    start, end
        The interval, half-open; without a time zone in `tz`. The grid is that of `balance_series`.
        Without `freq`, there is a point at `start` as well, if it is given.
    share
        Whether to add which part of its asset each group holds.
    units
        As for `balance_at`.
    tz
        The time zone in which days are days, and of the result's timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each group and point, sorted: `asset_id` and the columns of `by` (category of
        str), `timestamp` (datetime64[us, tz]) and

        - `total`: the sum of the balances that are known (decimal128(38, 0), in the asset's
          smallest unit), NA where none is
        - `known`, `unknown`: of how many accounts of the group the balance is known at that time,
          and of how many it isn't, so that they are missing in `total` (int64).
        - `share`, if asked for: `total` as a part of all known balances of the asset at that time
          (float64, the exact quotient, rounded once; NaN where one of both is unknown or all hold
          nothing).

    Raises
    ------
    OverflowError
        If a total has more than 38 digits.
    ValueError
        If `by` names other columns, `start` is not before `end`, `freq` or `tz` is unknown, or the
        result doesn't fit into memory.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-02"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> totals(table, by="asset_id").drop(columns="asset_id")
                      timestamp  total  known  unknown
    0 2023-04-01 00:00:00+00:00      5      1        1
    1 2023-04-02 00:00:00+00:00      6      2        0
    2 2023-04-03 00:00:00+00:00      8      2        0
    """
    history = open_history(source)
    history.warn_of_quiet()
    how: Any = {"by": by, "freq": freq, "start": start, "end": end, "share": share, "tz": tz}
    return _totals(
        history,
        lambda grid, names, is_changing: [_part(grid, names, is_changing, history)],
        units=units,
        **how,
    )


def _totals(
    history: History,
    parts_of: Callable[[Grid, str | Sequence[str], bool], Sequence[Any]],
    *,
    by: str | Sequence[str],
    freq: Frequency | Grid | None,
    start: Instant | None,
    share: bool,
    units: Units | None,
    **bounds: Any,  # noqa: ANN401 - end and tz
) -> pd.DataFrame:
    """Return `totals` of what `parts_of` returns for slices of accounts: see `_part`."""
    grid = history.grid(freq, start=start, **bounds)

    def is_wanted(columns: Columns) -> NDArray[np.bool_]:
        is_row: NDArray[np.bool_] = columns["is_row"]
        return is_row if start is None else is_row | (columns["times"] == grid.edges[0])

    def added(names: str | Sequence[str]) -> pd.DataFrame:
        parts = parts_of(grid, names, freq is None)
        if freq is None:
            return join_changes(parts).sums(is_wanted).frame(grid.zone)
        return join_at(parts, grid.points).frame(grid.zone)

    result = added(by)
    if share:
        keys = ["asset_id", "timestamp"]
        wholes = added("asset_id")[[*keys, "total"]]
        whole = result[keys].merge(wholes, "left", keys)["total"]
        result["share"] = int128.quotients(
            _integers(result["total"]), (each or 0 for each in _integers(whole))
        )
    return in_units(result, units, history.attrs)


def _part(grid: Grid, by: str | Sequence[str], is_changing: bool, history: History) -> Any:  # noqa: ANN401
    """Return the sums of a history's groups at a grid's points, or their changes in it."""
    steps, groups = history.at_points(grid).known_steps(), make_groups(history, by)
    if not is_changing:
        return sum_at(steps, groups, grid.points)
    begin, stop = (int(grid.edges[0]), int(grid.edges[-1])) if len(grid) else (0, 0)
    return changes_of(steps, groups, begin, stop, also=begin)


def _integers(amounts: pd.Series[Any]) -> list[int | None]:
    return [None if amount is None else int(amount) for amount in pa.array(amounts).to_pylist()]


def each_holder(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results that belong to one holder each, as its accounts in all slices make it."""
    if is_by_party(options):
        yield from each_account(slices, function, options)
        return
    names = group_names(options["by"])
    grid = grid_of(slices, options) if "start" in options else None
    # A series also has what is held where what is known ends.
    at = grid if "layout" in options else None
    parts = [*slices.map(partial(_changes_at, at, names), grid)]
    yield function(holders_in(slices.outline, join_changes(parts).sums()), **options)


def _changes_at(grid: Grid | None, by: Sequence[str], history: History) -> Changes:
    """Return what changes holders, maybe as far as it is known at the points of a grid."""
    history = history if grid is None else history.at_points(grid)
    return changes_of(history.known_steps(), make_groups(history, by))


def merged(history: History, by: str | Sequence[str]) -> History:
    """Return a history in which accounts that are the same in some columns are one holder.

    A holder has what its accounts have together: it is known as long as the balance of every one of
    them is. A row of it is a moment at which one of them has a row. What they move among themselves
    in one block cancels.

    Parameters
    ----------
    history
        What is known of accounts.
    by
        The columns that make a holder, such as "party_id": those of `ACCOUNT_KEY`, and others that
        the table has. Accounts of different assets are never one. With all of `ACCOUNT_KEY`, the
        history stays as it is.

    Raises
    ------
    OverflowError
        If what a holder has needs more than 38 digits.
    TypeError, ValueError
        See `make_groups`.
    """
    if by in (ACCOUNT_KEY, tuple(ACCOUNT_KEY)):
        return history
    names = group_names(by, history.columns)
    if {*names} == {*history.accounts}:
        return history
    history.warn_of_quiet()
    groups = make_groups(history, names)
    held = holders_in(history, changes_of(history.known_steps(), groups).sums())
    lost = history.is_changed
    changed = None if lost is None else np.bincount(groups.numbers, lost, len(groups)) > 0
    return replace(held, is_changed=changed)


def holders_in(history: History, sums: Sums) -> History:
    """Return a history of holders that have what the sums of their accounts at all changes say."""
    steps = holding(sums)
    if steps.valid_until is None:  # what the history knows was looked at before
        steps = replace(steps, valid_until=np.full(len(steps.times), NEVER))
    rows = pd.DataFrame(
        {
            **take_ids(steps.accounts, steps.numbers[steps.is_row]),
            "timestamp": to_times(steps.row_times),
            "balance": int128.to_balances(steps.words[steps.is_row]),
        }
    )
    return replace(history, rows=rows, steps=steps, given=rows)


def holding(sums: Sums) -> Steps:
    """Return what groups hold as steps, each known while the balance of every account is.

    A group that is never known has a step that never comes.
    """
    groups, times, is_known = sums.columns["groups"], sums.columns["times"], sums.unknown == 0
    ends = np.append(np.where(is_known[1:], NEVER, times[1:]), NEVER)[: len(times)]
    ends[:-1][groups[1:] != groups[:-1]] = NEVER
    sizes = np.bincount(groups[is_known], minlength=len(sums.ids))
    never = np.flatnonzero(sizes == 0)
    places = np.searchsorted(groups[is_known], never)

    def kept(column: NDArray[Any], nothing: int) -> NDArray[Any]:
        own = column[is_known]
        return np.insert(own, places, nothing, axis=0) if len(never) else own

    valid_until = kept(ends, NEVER)
    return Steps(
        sums.ids.reset_index(drop=True),
        np.append(0, np.cumsum(np.maximum(sizes, 1))),
        kept(times, NEVER),
        kept(sums.columns["words"], 0),
        kept(sums.columns["is_row"], 0),
        valid_until if np.any(valid_until != NEVER) else None,
    )
