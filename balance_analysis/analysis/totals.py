"""Sum balances over groups of accounts, within each asset, and count unknown balances.

Sums are computed exactly from changes: the amount by which each row changes its group's sum.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import door, int128
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
    MAX_TIME,
    Columns,
    Steps,
    even,
    events,
    join,
    map_blocks,
    map_parallel,
    take_ids,
    with_amounts,
)
from balance_analysis.table.moments import Moment
from balance_analysis.table.schema import Ints, are_heads, by_account_and_time

_DIGITS: Final = 4
"""Digits per sum of a cell: see `int128.add_to_cells`."""

T = TypeVar("T")

AT_ONCE: Final = 1 << 18
"""Approximate number of changes summed at once."""


def frame_of(sums: door.Cells, zone: dt.tzinfo) -> pd.DataFrame:
    """Return the ids and the time of each sum."""
    ids, times = take_ids(sums.ids, sums.columns["groups"]), to_times(sums.columns["times"], zone)
    return pd.DataFrame({**ids, "timestamp": times}, copy=False)


def totals_of(sums: door.Cells, zone: dt.tzinfo) -> pd.DataFrame:
    """Return sums as the columns of `totals`."""
    known = sums.columns["known"].astype(np.int64)
    frame = with_amounts(frame_of(sums, zone), total=(sums.columns["words"], known > 0))
    return frame.assign(known=known, unknown=unknown_in(sums))


def unknown_in(sums: door.Cells) -> Ints:
    """Return the number of accounts whose balance is unknown, for each sum."""
    sizes: Ints = sums.by_group["sizes"][sums.columns["groups"]]
    return sizes - sums.columns["known"]


def sum_at(steps: Steps, groups: door.Groups, points: Ints) -> door.Cells:
    """Return the sums of all groups at some points, ascending: see `_sums_at`."""
    return _sums_at(points, _cells_at(steps, groups, points))


def _cells_at(steps: Steps, groups: door.Groups, points: Ints) -> door.Cells:
    """Return the change of each group's sum up to each point, since the point before.

    `levels` has the digits of the amounts, and the change of the number of known accounts.
    """
    check_cells(len(groups), len(points))
    height = len(points) + 1  # one more cell, unused, for later changes
    cells, lock = np.zeros((_DIGITS + 1, len(groups) * height), np.int64), Lock()

    def add(first: int, block: Steps) -> None:
        changes = _changes(groups, first, block.needed_at(points))
        places = count_before(points, changes["times"])
        places += changes["groups"] * np.int64(height)
        with lock:
            int128.add_to_cells(cells[:-1], places, changes["words"])
            np.add.at(cells[-1], places, changes["known"].astype(np.int64))

    map_blocks(add, steps)
    levels = cells.reshape(len(cells), len(groups), height).swapaxes(0, 1)
    return door.Cells(groups.ids, {"sizes": groups.sizes, "levels": levels}, {})


def _sums_at(points: Ints, cells: door.Cells) -> door.Cells:
    """Return the sums of all groups at some points from the cells of `_cells_at`.

    Returns
    -------
    Cells
        For each sum, by group, then point, `times` (in microseconds), `words` (the sum of the known
        balances) and `known` (the number of the group's accounts whose balance is known); for each
        group `sizes`, the number of its accounts.
    """
    levels = cells.by_group["levels"].swapaxes(0, 1).cumsum(axis=2)[:, :, :-1]
    *digits, known = levels.reshape(len(levels), -1)
    words = int128.compose(digits, int128.CELL_DIGIT)
    groups = np.repeat(np.arange(len(cells.ids)), len(points))
    times = np.tile(points, len(cells.ids))
    columns = {"groups": groups, "times": times, "words": words, "known": known}
    return door.Cells(cells.ids, {"sizes": cells.by_group["sizes"]}, columns)


def changes_of(steps: Steps, groups: door.Groups) -> door.Cells:
    """Return the changes of groups' sums, in any order.

    Returns
    -------
    Cells
        For each change `times` (in microseconds), `words` (the change of the sum of the known
        balances), `known` (the change of the number of known accounts) and `is_row` (whether it is
        a row of the table); for each group `sizes`, the number of its accounts.
    """
    columns = join(map_blocks(partial(_changes, groups), steps))
    return door.Cells(groups.ids, {"sizes": groups.sizes}, columns)


def _changes(groups: door.Groups, first: int, steps: Steps) -> Columns:
    """Return the changes of a block of accounts that begins with `first`: see `changes_of`."""
    jumps = events(steps)
    words, known = jumps["words"], jumps["known"]
    change = np.empty_like(words)
    int128.subtract(words[1:], words[:-1], out=change[1:])
    heads, more = np.flatnonzero(are_heads([jumps["numbers"]])), known.copy()
    more[1:] -= known[:-1]
    change[heads], more[heads] = words[heads], 1
    return {
        "groups": groups.numbers[first + jumps["numbers"]].astype(np.int32),
        "times": jumps["times"],
        "words": change,
        "known": more,
        "is_row": jumps["is_row"],
    }


def map_sums(
    function: Callable[[int, door.Cells], T], changes: door.Cells, *, gained: bool = False
) -> list[T]:
    """Return a function's results for the sums at all changes, in batches of groups.

    The function takes the number of a batch's first group, and its sums: see `_sums_at`. They also
    have `is_row` (whether an account of the group has a row at that time) and, with `gained`,
    `gained` (the words of the joint gain of the accounts whose balance is known before and after).
    The changes are consumed, so that they don't stay in memory beside the results.
    """
    groups, ids, sizes = changes.columns["groups"], changes.ids, changes.by_group["sizes"]
    ends = np.cumsum(np.bincount(groups, minlength=len(ids)))
    batches = even(ends, AT_ONCE)
    lengths = [high - low for low, high in batches]
    batch_of = np.repeat(np.arange(len(batches), dtype=np.uint16), lengths)
    order = np.argsort(batch_of[groups], kind="stable")  # fast for 16 bits
    starts = np.append(0, ends)

    def part(bounds: tuple[int, int]) -> T:
        low, high = bounds
        rows = order[starts[low] : starts[high]]
        columns = _sum_up(changes.columns, rows, low, gained=gained)
        return function(low, door.Cells(ids.iloc[low:high], {"sizes": sizes[low:high]}, columns))

    results = map_parallel(part, batches)
    changes.columns.clear()
    return results


def _sum_up(changes: Columns, rows: Ints, first: int, *, gained: bool) -> Columns:
    """Return the sums after each change in some rows, with groups numbered from `first`."""
    groups, times = (changes[name].take(rows) for name in ("groups", "times"))
    groups = groups.astype(np.int64) - first
    order, starts = runs_of(groups, times)
    groups, times, rows = groups[order[starts]], times[order[starts]], rows.take(order)
    ends = np.append(starts[1:], len(order))[: len(starts)]
    heads = np.flatnonzero(np.diff(groups, prepend=-1))
    begins = np.repeat(starts[heads], np.diff(heads, append=len(starts)))
    words, known = int128.take(changes["words"], rows), changes["known"].take(rows)
    columns: Columns = {
        "groups": groups.astype(np.int32),
        "times": times,
        "words": int128.sum_words(words, begins, ends),
        "known": int128.sum_runs(known, begins, ends).astype(np.int32),
        "is_row": int128.sum_runs(changes["is_row"].take(rows), starts) > 0,
    }
    if gained:
        gains = columns["words"].copy()
        int128.subtract(columns["words"][1:], columns["words"][:-1], out=gains[1:])
        gains[heads] = columns["words"][heads]
        # A balance that becomes known isn't a gain, and one that ceases to be known isn't a loss.
        turns = np.flatnonzero(known)
        runs = np.searchsorted(starts, turns, "right") - 1
        firsts = np.flatnonzero(np.diff(runs, prepend=-1))
        turned = int128.sum_words(words.take(turns, axis=0), firsts)
        gains[runs[firsts]] = int128.subtract(gains[runs[firsts]], turned)
        columns["gained"] = gains
    return columns


def _all_sums(changes: door.Cells, *, rows_alone: bool = False) -> door.Cells:
    """Return the sums at all changes, or only at rows."""

    def part(first: int, sums: door.Cells) -> Columns:
        sums.columns["groups"] += np.int32(first)
        chosen = sums.columns["is_row"] if rows_alone else slice(None)
        return {name: column[chosen] for name, column in sums.columns.items()}

    return replace(changes, columns=join(map_sums(part, changes)))


def runs_of(owners: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the order of rows by owner and time, and where in it each new pair begins."""
    order = by_account_and_time(owners, at)
    return order, np.flatnonzero(are_heads([owners.take(order), at.take(order)]))


@door.any_source
def totals(
    source: AccountSlices,
    *,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | Grid | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    share: bool = False,
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return the sums of balances over groups of accounts, on a grid or at every change.

    A sum includes the accounts that have a row. A table without openings has no row of an account
    that hasn't changed since the table's start.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    by
        The columns to group by, within each asset: those of `ACCOUNT_KEY`, and any other columns of
        the table with one value per account, such as
        `table["desk"] = table["party_id"].map(desks)`. Accounts without a value form the group NA.
    freq
        The distance between points, as in `balance_series`; `None` for each time at which a group
        has a row.
    start, end
        The interval, half-open; in `tz` if without a time zone. The grid is that of
        `balance_series`. Without `freq`, `start` is a point too if you pass it.
    share
        Whether to add each group's share of its asset.
    tz
        The time zone of days and of the result's timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each group and point, sorted: `asset_id` and the columns of `by` (category of
        str), `timestamp` (datetime64[us, tz]) and

        - `total`: the sum of the known balances (decimal128(38, 0), in the asset's smallest unit),
          NA if all are unknown
        - `known`, `unknown`: the number of the group's accounts whose balance is known at that
          time, and of those whose balance is unknown and left out of `total` (int64).
        - `share`, if you pass `share=True`: `total` as a fraction of the asset's known balances at
          that time (float64, the exact quotient, rounded once; NaN if either is unknown or nobody
          holds anything).

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
    source.warn_about_missing_accounts()
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)

    def sums_by(by: str | Sequence[str]) -> Iterator[door.Cells]:
        names = door.group_names(by, source.outline.columns)
        if freq is None:
            part = partial(_changes_in, grid, names, start is not None)
            finish = partial(_all_sums, rows_alone=True)
        else:
            part, finish = partial(_on_grid, grid, names), partial(_sums_at, grid.points)
        return door.each_group(source, names, grid, part, lambda cells: finish(*cells))

    keys, wholes = ["asset_id", "timestamp"], None
    if share:
        sums = next(sums_by("asset_id"))
        amounts = pd.Series(int128.integers_of(sums.columns["words"]), dtype=object)
        wholes = frame_of(sums, grid.zone).assign(whole=amounts)
    for sums in sums_by(by):
        result = totals_of(sums, grid.zone)
        if wholes is not None:
            whole = result[keys].merge(wholes, "left", keys)["whole"]
            result["share"] = int128.quotients(door.to_integers(result)["total"], whole)
        yield result


def _on_grid(grid: Grid, by: Sequence[str], history: History) -> list[door.Cells]:
    """Return the changes of the sums of a history's groups at a grid's points: see `_cells_at`."""
    return [_cells_at(history.at_points(grid), door.make_groups(history, by), grid.points)]


def _changes_in(
    grid: Grid, by: Sequence[str], has_start: bool, history: History
) -> list[door.Cells]:
    """Return the changes of the sums of a history's groups within a grid.

    Earlier changes are moved to the beginning of the grid. With `has_start`, each group has a row
    there.
    """
    groups = door.make_groups(history, by)
    changes = changes_of(history.at_points(grid), groups)
    (begin, stop), columns = grid.span, changes.columns
    columns["is_row"] = columns["is_row"] & (columns["times"] >= begin)
    columns["times"] = np.maximum(columns["times"], begin)
    is_inside = columns["times"] < stop
    columns = {name: column[is_inside] for name, column in columns.items()}
    if has_start:
        starts: Columns = {
            "groups": np.arange(len(groups), dtype=np.int32),
            "times": np.full(len(groups), begin),
            "words": np.zeros((len(groups), 2), np.int64),
            "known": np.zeros(len(groups), np.int8),
            "is_row": np.ones(len(groups), bool),
        }
        columns = join([columns, starts])
    return [replace(changes, columns=columns)]


def each_holder(
    source: AccountSlices,
    by: str | Sequence[str],
    function: Callable[[History], T],
    grid: Grid | None = None,
) -> Iterator[T]:
    """Yield a function's results for histories of holders: see `merged`.

    All accounts of a holder are in one history. With a grid, a point of it at the end of a known
    interval has the balance held until then.
    """
    outline = source.outline
    names = door.group_names(by, outline.columns)
    if {*names} == {*outline.accounts}:
        yield from source.map(function, grid, per_point=True)
        return
    source.warn_about_missing_accounts()
    part = partial(_changes_of_holders, names, grid)
    yield from door.each_group(
        source, names, grid, part, lambda cells: function(_holders_in(outline, cells[0]))
    )


def _changes_of_holders(by: Sequence[str], grid: Grid | None, history: History) -> list[door.Cells]:
    """Return the changes of holders' sums, for the points of a grid if given."""
    groups = door.make_groups(history, by)
    steps = history.known_steps() if grid is None else history.at_points(grid)
    return [changes_of(steps, groups)]


def merged(history: History, by: str | Sequence[str]) -> History:
    """Merge accounts that share their values in some columns into one holder each.

    A holder's balance is the sum of its accounts' balances, known while all of them are. It has a
    row wherever one of its accounts has one. Transfers between its accounts in one block cancel.

    Parameters
    ----------
    history
        The accounts.
    by
        The columns that identify a holder, such as "party_id": those of `ACCOUNT_KEY`, and others
        of the table. Accounts of different assets are never merged. With all of `ACCOUNT_KEY`, the
        history is returned as it is.

    Raises
    ------
    TypeError, ValueError
        See `group_names` and `make_groups`.
    """
    return next(each_holder(history, by, lambda holders: holders))


def _holders_in(history: History, changes: door.Cells) -> History:
    """Return a history of holders from the changes of their sums."""
    steps = holding(_all_sums(changes))
    if steps.valid_until is None:  # known intervals were applied to the accounts already
        steps = replace(steps, valid_until=np.full(len(steps.times), MAX_TIME))
    accounts = changes.ids.reset_index(drop=True)
    ids = take_ids(accounts, steps.numbers[steps.is_row])
    rows = pd.DataFrame({**ids, "timestamp": to_times(steps.row_times)})
    is_changed = np.zeros(len(accounts), bool)  # the steps of changed accounts are unknown already
    return replace(
        history, rows=rows, accounts=accounts, steps=steps, frame=rows, is_changed=is_changed
    )


def holding(sums: door.Cells) -> Steps:
    """Return groups' sums as steps, each known while the balances of all its accounts are.

    A group that is never known has one step, at `MAX_TIME`.
    """
    groups, times, is_known = sums.columns["groups"], sums.columns["times"], unknown_in(sums) == 0
    ends = np.append(np.where(is_known[1:], MAX_TIME, times[1:]), MAX_TIME)[: len(times)]
    ends[:-1][groups[1:] != groups[:-1]] = MAX_TIME
    chosen = np.flatnonzero(is_known)
    owners = groups.take(chosen)
    sizes = np.bincount(owners, minlength=len(sums.ids))
    never = np.flatnonzero(sizes == 0)
    places = np.searchsorted(owners, never)

    def select(column: NDArray[Any], missing: int) -> NDArray[Any]:
        known = int128.take(column, chosen) if column.ndim > 1 else column.take(chosen)
        return np.insert(known, places, missing, axis=0) if len(never) else known

    valid_until = select(ends, MAX_TIME)
    return Steps(
        np.append(0, np.cumsum(np.maximum(sizes, 1))),
        select(times, MAX_TIME),
        select(sums.columns["words"], 0),
        select(sums.columns["is_row"], 0),
        valid_until if np.any(valid_until != MAX_TIME) else None,
    )
