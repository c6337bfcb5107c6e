"""Sums of balances over groups of accounts, which keep assets apart and tell what is unknown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

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
from balance_analysis.analysis.grid import Frequency, Grid, Zone, to_times
from balance_analysis.analysis.history import AccountSlices, History, Source, open_history
from balance_analysis.analysis.steps import NEVER, Steps, check_fits, name_of, take_ids
from balance_analysis.analysis.sums import (
    Groups,
    Sums,
    change_points,
    distinct_points,
    events,
    group_names,
    make_groups,
    places_of,
    sum_at,
    sum_at_changes,
)
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant
from balance_analysis.text import moment_text


def _added_up(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
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
    has_row = np.zeros(len(sums.groups), np.int64)
    has_row[places_of(points, rows)] = 1
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
        rows=has_row,
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
    places = places_of(points, (owners, sums.times))
    wholes = _integers(sum_at_changes(steps, assets, *points))
    return int128.quotients(_integers(sums), (wholes[place] or 0 for place in places.tolist()))


def _integers(sums: Sums) -> list[int | None]:
    return [None if total is None else int(total) for total in pa.array(sums.total).to_pylist()]


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


def each_holder(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
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
    has_row = np.zeros(len(times), bool)
    has_row[places_of((owners, times), (row_owners, steps.row_times))] = True
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
