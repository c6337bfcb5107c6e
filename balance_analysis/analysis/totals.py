"""Sums of balances over groups of accounts, which keep assets apart and tell what is unknown."""

from __future__ import annotations

import datetime as dt
import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import (
    Options,
    add_up,
    added_up,
    concatenated,
    door,
    each_account,
    ids_in,
    is_by_party,
)
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_times,
)
from balance_analysis.analysis.history import History, Slices, Source, open_history
from balance_analysis.analysis.steps import (
    ALWAYS,
    NEVER,
    Steps,
    check_fits,
    map_blocks,
    name_of,
    take_ids,
)
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY, Instant
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


def _added_up(
    slices: Slices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield `totals` of an archive: at each change of a group, the changes of slices add up."""
    if options["share"]:  # a part of what accounts in other slices hold
        yield function(slices.whole(), **options)
        return
    if options["freq"] is not None or is_by_party(options):
        yield from added_up(slices, function, options)
        return
    outline = slices.outline
    grid = outline.grid(None, **{name: options[name] for name in ("start", "end", "tz")})
    added = add_up([*slices.map(partial(_changes, by=options["by"], grid=grid))])
    names = ids_in(added)
    heads = np.flatnonzero(~added.duplicated(names))
    is_wanted = added["rows"].to_numpy() > 0
    is_wanted[heads] |= options["start"] is not None
    words, too_large = int128.running_sums(int128.words_of(pa.array(added["total"])), heads)

    def name(row: int) -> str:
        at = moment_text(added["timestamp"].iloc[row])
        return f"the total of {name_of(added[names], row)} at {at}"

    check_fits(too_large & is_wanted, name)
    groups = added.groupby(names, observed=True)
    known, accounts = (groups[what].cumsum().to_numpy() for what in ("known", "accounts"))
    total = int128.to_balances(words, known > 0)
    found = added[[*names, "timestamp"]].assign(total=total, known=known, unknown=accounts - known)
    found = found[is_wanted].reset_index(drop=True)
    yield in_units(found, options["units"], outline.attrs)


def _changes(history: History, by: str | Sequence[str], grid: Grid) -> pd.DataFrame:
    """Return by how much the totals of groups change, and when, from nothing on.

    Returns
    -------
    pandas.DataFrame
        Of each group and moment the ids, `timestamp`, and by how much these change: `total`, where
        what is unknown is 0; `known`, of how many accounts the balance is known; `accounts`, which
        all come at the grid's start; and `rows`, 1 where the group has a row.
    """
    steps, groups = history.at_points(grid).known_steps(), make_groups(history, by)
    points = change_points(steps, groups, grid, from_start=True, with_events=True)
    sums = sum_at_changes(steps, groups, *points)
    heads = np.flatnonzero(np.diff(sums.groups, prepend=-1))
    rows = change_points(steps, groups, grid, from_start=False)
    has_row = pd.MultiIndex.from_arrays(points).isin(pd.MultiIndex.from_arrays(rows))
    words = np.where((sums.known > 0)[:, None], int128.words_of(pa.array(sums.total)), 0)
    before = [np.roll(each, 1, axis=0) for each in (words, sums.known)]
    for each in before:
        each[heads] = 0
    change, too_large = int128.subtract(words, before[0])
    found = sums_frame(groups, sums, grid.zone).drop(columns="unknown")
    check_fits(too_large, lambda row: f"a change of {name_of(groups.ids, int(sums.groups[row]))}")
    return found.assign(
        total=int128.to_balances(change),
        known=sums.known - before[1],
        accounts=np.bincount(heads, groups.sizes, len(found)).astype(np.int64),
        rows=has_row.astype(np.int64),
    )


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
        If `by` names other columns, `start` is not before `end`, `freq` or `tz` is none, or the
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
    grid = history.grid(freq, start=start, end=end, tz=tz)
    steps, groups = history.at_points(grid).known_steps(), make_groups(history, by)
    if freq is None:
        points = change_points(steps, groups, grid, from_start=start is not None)
        sums = sum_at_changes(steps, groups, *points)
    else:
        sums = sum_at(steps, groups, grid.points)
    found = sums_frame(groups, sums, grid.zone)
    if share:
        found["share"] = _shares(steps, groups, make_groups(history, "asset_id"), sums)
    return in_units(found, units, history.attrs)


def _shares(steps: Steps, groups: Groups, assets: Groups, sums: Sums) -> NDArray[np.float64]:
    """Return which part of all known balances of its asset each sum is."""
    asset_of = np.zeros(len(groups), np.int64)
    asset_of[groups.numbers] = assets.numbers
    owners = asset_of[sums.groups]
    points = distinct_points(owners, sums.times)
    pairs = pairs_of(*points)
    places = np.searchsorted(pairs.keys(*points), pairs.keys(owners, sums.times))
    wholes = _integers(sum_at_changes(steps, assets, *points))
    return int128.quotients(_integers(sums), (wholes[place] or 0 for place in places.tolist()))


def _integers(sums: Sums) -> list[int | None]:
    return [None if total is None else int(total) for total in pa.array(sums.total).to_pylist()]


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


def sums_frame(groups: Groups, sums: Sums, zone: dt.tzinfo) -> pd.DataFrame:
    """Return sums as the columns of `totals`."""
    return pd.DataFrame(
        {
            **take_ids(groups.ids, sums.groups),
            "timestamp": to_times(sums.times, zone),
            "total": sums.total,
            "known": sums.known,
            "unknown": sums.unknown,
        },
        copy=False,
    )


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


def numbered(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values, ascending, and the place of each value among them."""
    found = distinct(values)
    return found, np.searchsorted(found, values)


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
    ordered, numbers = numbered(keys)
    heads = np.empty(len(ordered), np.int64)
    heads[numbers[::-1]] = np.arange(len(keys))[::-1]
    return Groups(accounts[names].iloc[heads], numbers)


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


def each_holder(
    slices: Slices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results that belong to one holder each, as its accounts in all slices make it."""
    if is_by_party(options):
        yield from each_account(slices, function, options)
        return
    names, grid = group_names(options["by"]), None
    if "layout" in options:  # a series, which also tells what is held where what is known ends
        grid = slices.outline.grid(**{name: options[name] for name in ("freq", "start", "end")})
    parts = [*slices.map(partial(_merged_at, by=names, grid=grid))]
    numbers = [
        pd.Categorical([str(place)] * len(part.accounts)) for place, part in enumerate(parts)
    ]
    accounts = [part.accounts.assign(part=own) for part, own in zip(parts, numbers, strict=True)]
    joined = replace(
        parts[0],
        steps=Steps(
            concatenated(accounts, [*names, "part"]),
            np.append(0, np.cumsum(np.concatenate([np.diff(x.steps.bounds) for x in parts]))),
            np.concatenate([part.steps.times for part in parts]),
            np.concatenate([part.steps.words for part in parts]),
            np.concatenate([part.steps.is_row for part in parts]),
            np.concatenate([_until(part.steps) for part in parts]),
        ),
    )
    yield function(merged(joined, names), **options)


def _merged_at(history: History, by: Sequence[str], grid: Grid | None) -> History:
    return merged(history if grid is None else history.at_points(grid), by)


def _until(steps: Steps) -> NDArray[np.int64]:
    """Return until when each step's balance is known."""
    lasting = np.full(len(steps.times), NEVER)
    return lasting if steps.valid_until is None else steps.valid_until


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
    steps, groups = history.known_steps(), make_groups(history, names)
    numbers, times, _, _ = events(steps)
    row_owners = groups.numbers[steps.numbers[steps.is_row]]
    # Each has a point that never comes, which stays of those that are never known.
    owners = np.append(groups.numbers[numbers], np.arange(len(groups)))
    owners, times = distinct_points(owners, np.append(times, np.full(len(groups), NEVER)))
    sums = sum_at_changes(steps, groups, owners, times)
    is_known = (sums.unknown == 0) & (times < NEVER)
    last = np.flatnonzero(times == NEVER)
    has_known = np.bincount(owners[is_known], minlength=len(groups)) > 0
    ends = np.append(np.where(is_known[1:], NEVER, times[1:]), NEVER)[: len(times)]
    is_known[last] = ~has_known
    pairs = pairs_of(owners, times)
    row_keys = pairs.keys(row_owners, steps.row_times)
    has_row = np.zeros(len(times), bool)
    has_row[np.searchsorted(pairs.keys(owners, times), row_keys)] = True
    words = int128.words_of(pa.array(sums.total))
    held = Steps(
        groups.ids.reset_index(drop=True),
        np.append(0, np.cumsum(np.bincount(owners[is_known], minlength=len(groups)))),
        times[is_known],
        words[is_known],
        has_row[is_known],
        None if steps.valid_until is None else ends[is_known],
    )
    rows = pd.DataFrame(
        {
            **take_ids(held.accounts, held.numbers[held.is_row]),
            "timestamp": to_times(held.row_times),
            "balance": int128.to_balances(held.words[held.is_row]),
        }
    )
    lost = history.is_changed
    changed = None if lost is None else np.bincount(groups.numbers, lost, len(groups)) > 0
    return replace(history, rows=rows, steps=held, given=rows, is_changed=changed)
