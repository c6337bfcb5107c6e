"""Sums of balances over groups of accounts, which never mix assets and count what is unknown.

Exact sums stand on changes: by how much each row of an account changes what its group holds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import (
    Cells,
    Groups,
    Units,
    door,
    each_group,
    group_names,
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
from balance_analysis.analysis.history import AccountSlices, History
from balance_analysis.analysis.steps import (
    NEVER,
    Columns,
    Steps,
    check_fits,
    even,
    events,
    join,
    map_blocks,
    map_parallel,
    name_of,
    take_ids,
)
from balance_analysis.table.rows import are_heads, by_account_and_time
from balance_analysis.table.schema import Instant
from balance_analysis.table.text import moment_text

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
    return _sums_at(points, _cells_at(steps, groups, points))


def _cells_at(steps: Steps, groups: Groups, points: NDArray[np.int64]) -> Cells:
    """Return by how much the sums of groups change up to each point since the one before.

    `levels` has the digits of amounts, and of how many accounts more the balance is known.
    """
    check_cells(len(groups), len(points))
    height = len(points) + 1  # what comes later changes one more cell, which nobody sees
    cells, lock = np.zeros((_DIGITS + 1, len(groups) * height), np.int64), Lock()

    def add(first: int, block: Steps) -> None:
        changes = _changes(groups, first, block)
        places = count_before(points, changes["times"])
        places += changes["groups"] * np.int64(height)
        with lock:
            int128.add_to_cells(cells[:-1], places, changes["words"])
            np.add.at(cells[-1], places, changes["known"].astype(np.int64))

    map_blocks(add, steps)
    levels = cells.reshape(len(cells), len(groups), height).swapaxes(0, 1)
    return Cells(groups.ids, {"sizes": groups.sizes, "levels": levels}, {})


def _sums_at(points: NDArray[np.int64], cells: Cells) -> Sums:
    """Return the sums of all groups at some points, given by how much they change up to each."""
    levels = cells.by_group["levels"].swapaxes(0, 1).cumsum(axis=2)[:, :, :-1]
    *digits, known = levels.reshape(len(levels), -1)
    words, too_large = int128.compose(digits, int128.CELL_DIGIT)
    groups = np.repeat(np.arange(len(cells.ids)), len(points))
    times = np.tile(points, len(cells.ids))
    columns = {"groups": groups, "times": times, "words": words, "known": known}
    return Sums(cells.ids, cells.by_group["sizes"], columns).check_fit(too_large)


def changes_of(steps: Steps, groups: Groups) -> Cells:
    """Return what changes the sums of groups, in no order.

    Returns
    -------
    Cells
        Of each change: `times`, by which `words` the sum of the known balances changes, by how many
        accounts more are `known`, and `is_row`, whether it is a row of the table. Of each group
        `sizes`, the number of its accounts.
    """
    columns = join(map_blocks(partial(_changes, groups), steps))
    return Cells(groups.ids, {"sizes": groups.sizes}, columns)


def _changes(groups: Groups, first: int, steps: Steps) -> Columns:
    """Return what a block of accounts, of which `first` is the first, changes: see `changes_of`."""
    # A delta that leaves 38 digits is two changes, one balance less and another one more.
    _, too_large = int128.subtract(steps.words[1:], steps.words[:-1])
    is_torn = np.append(too_large & ~steps.starts_known[1:], False)[: len(steps.times)]
    moves = events(steps, is_torn)
    is_head, words, known = are_heads([moves["numbers"]]), moves["words"], moves["known"]
    change, more = words.copy(), known.copy()
    int128.subtract(words[1:], words[:-1], out=change[1:])
    more[1:] -= known[:-1]
    change[is_head], more[is_head] = words[is_head], 1
    return {
        "groups": groups.numbers[first + moves["numbers"]].astype(np.int32),
        "times": moves["times"],
        "words": change,
        "known": more,
        "is_row": moves["is_row"],
    }


def map_sums(
    function: Callable[[int, Sums], T], changes: Cells, *, gained: bool = False
) -> list[T]:
    """Return what a function makes of the sums of some groups after the other, at all changes.

    It gets the number of the first of these groups, and their sums. With `gained`, these have the
    words of what the accounts whose balance is known before and after gained together. The changes
    are gone then, so that they don't stay in memory beside the results.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    groups, ids = changes.columns["groups"], changes.ids
    counts = np.bincount(groups, minlength=len(ids))
    is_sorted = bool(np.all(groups[1:] >= groups[:-1]))

    def part(bounds: tuple[int, int]) -> T:
        low, high = bounds
        if is_sorted:
            chosen: Any = slice(*np.searchsorted(groups, bounds).tolist())
        else:
            chosen = np.flatnonzero((groups >= low) & (groups < high))
        columns = {name: column[chosen] for name, column in changes.columns.items()}
        columns["groups"] = columns["groups"].astype(np.int64) - low
        own = Cells(ids.iloc[low:high], {"sizes": changes.by_group["sizes"][low:high]}, columns)
        return function(low, _sum_up(own, gained=gained))

    results = map_parallel(part, even(np.cumsum(counts), AT_ONCE))
    changes.columns.clear()
    return results


def _sum_up(changes: Cells, *, gained: bool) -> Sums:
    """Return the sums behind changes, taking the changes along."""
    names = ("groups", "times", "words", "known", "is_row")
    groups, times, words, known, is_row = (changes.columns.pop(name) for name in names)
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
    return Sums(changes.ids, changes.by_group["sizes"], columns).check_fit(too_large)


def _all_sums(changes: Cells, *, rows_alone: bool = False) -> Sums:
    """Return the sums at all changes, or at rows alone."""

    def part(first: int, sums: Sums) -> Columns:
        sums.columns["groups"] += np.int32(first)
        chosen = sums.columns["is_row"] if rows_alone else slice(None)
        return {name: column[chosen] for name, column in sums.columns.items()}

    return Sums(changes.ids, changes.by_group["sizes"], join(map_sums(part, changes)))


def runs_of(
    owners: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of some rows by two numbers, and where in it a new pair of these begins."""
    order = by_account_and_time(owners, at)
    first, second = owners.take(order), at.take(order)
    return order, np.flatnonzero(are_heads([first, second]))


@door
def totals(
    source: AccountSlices,
    *,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | Grid | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    share: bool = False,
    tz: Zone | None = None,
    units: Units | None = None,
) -> Iterator[pd.DataFrame]:
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
    source.warn_of_quiet()
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)

    def added(by: str | Sequence[str]) -> Iterator[pd.DataFrame]:
        names = group_names(by, source.outline.columns)
        if freq is None:
            part = partial(_changes_in, grid, names, start is not None)
            finish = partial(_all_sums, rows_alone=True)
        else:
            part, finish = partial(_on_grid, grid, names), partial(_sums_at, grid.points)
        return each_group(source, names, grid, part, lambda cells: finish(*cells).frame(grid.zone))

    keys = ["asset_id", "timestamp"]
    wholes = next(added("asset_id"))[[*keys, "total"]] if share else None
    for result in added(by):
        if wholes is not None:
            whole = result[keys].merge(wholes, "left", keys)["total"]
            result["share"] = int128.quotients(
                _integers(result["total"]), (each or 0 for each in _integers(whole))
            )
        yield result


def _on_grid(grid: Grid, by: str | Sequence[str], history: History) -> list[Cells]:
    """Return by how much the sums of a history's groups change up to each point of a grid."""
    return [_cells_at(history.at_points(grid), make_groups(history, by), grid.points)]


def _changes_in(
    grid: Grid, by: str | Sequence[str], has_start: bool, history: History
) -> list[Cells]:
    """Return what changes the sums of a history's groups in a grid.

    What changed before it begins has changed then. With `has_start`, each group has a row there.
    """
    groups = make_groups(history, by)
    changes = changes_of(history.at_points(grid), groups)
    begin, stop = (int(grid.edges[0]), int(grid.edges[-1])) if len(grid) else (0, 0)
    columns = changes.columns
    columns["is_row"] = columns["is_row"] & (columns["times"] >= begin)
    columns["times"] = np.maximum(columns["times"], begin)
    is_inside = columns["times"] < stop
    columns = {name: column[is_inside] for name, column in columns.items()}
    if has_start:
        every: Columns = {
            "groups": np.arange(len(groups), dtype=np.int32),
            "times": np.full(len(groups), begin),
            "words": np.zeros((len(groups), 2), np.int64),
            "known": np.zeros(len(groups), np.int8),
            "is_row": np.ones(len(groups), bool),
        }
        columns = join([columns, every])
    return [replace(changes, columns=columns)]


def _integers(amounts: pd.Series[Any]) -> list[int | None]:
    return [None if amount is None else int(amount) for amount in pa.array(amounts).to_pylist()]


def each_holder(
    source: AccountSlices,
    by: str | Sequence[str],
    function: Callable[[History], T],
    grid: Grid | None = None,
    *,
    at_points: bool = False,
) -> Iterator[T]:
    """Yield what a function makes of a history of holders: see `merged`.

    A holder's accounts are all in one history. With `at_points`, it also has what is held where
    what is known ends, at the points of the grid.
    """
    outline = source.outline
    names = group_names(by, outline.columns)
    if {*names} == {*outline.accounts}:
        yield from source.map(function, grid, per_point=True)
        return
    source.warn_of_quiet()
    part = partial(_changes_of_holders, names, grid if at_points else None)
    yield from each_group(
        source, names, grid, part, lambda cells: function(_holders_in(outline, cells[0]))
    )


def _changes_of_holders(by: Sequence[str], grid: Grid | None, history: History) -> list[Cells]:
    """Return what changes holders, maybe as far as it is known at the points of a grid."""
    groups = make_groups(history, by)
    changes = changes_of(history.known_steps() if grid is None else history.at_points(grid), groups)
    changed = groups.numbers[history.is_changed]
    changes.by_group["changed"] = np.bincount(changed, minlength=len(groups))
    return [changes]


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
    return next(each_holder(history, by, lambda holders: holders))


def _holders_in(history: History, changes: Cells) -> History:
    """Return a history of holders that have what their accounts have together."""
    is_changed, steps = changes.by_group["changed"] > 0, holding(_all_sums(changes))
    if steps.valid_until is None:  # what the history knows was looked at before
        steps = replace(steps, valid_until=np.full(len(steps.times), NEVER))
    rows = pd.DataFrame(
        {
            **take_ids(steps.accounts, steps.numbers[steps.is_row]),
            "timestamp": to_times(steps.row_times),
            "balance": int128.to_balances(steps.words[steps.is_row]),
        }
    )
    return replace(history, rows=rows, steps=steps, given=rows, is_changed=is_changed)


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
