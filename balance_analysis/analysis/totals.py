"""Sums of balances over groups of accounts, which keep assets apart and count what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import Options, door, each_account, grid_of, is_by_party
from balance_analysis.analysis.grid import Frequency, Grid, Zone, to_times
from balance_analysis.analysis.history import AccountSlices, History, Source, open_history
from balance_analysis.analysis.steps import NEVER, Steps, take_ids
from balance_analysis.analysis.sums import (
    Sums,
    concatenated,
    group_names,
    join_sums,
    make_groups,
    sum_at,
    sum_at_changes,
)
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant


def _added_up(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield `totals` of an archive: what the slices have of a group adds up."""
    if is_by_party(options) and not options["share"]:
        yield from each_account(slices, function, options)
        return
    yield _totals(slices.outline, lambda *how: [*slices.map(partial(_sums, *how))], **options)


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
    how: Any = {"by": by, "freq": freq, "start": start, "end": end, "share": share, "tz": tz}
    return _totals(
        history,
        lambda grid, names, is_changing: [_sums(grid, names, is_changing, history)],
        units=units,
        **how,
    )


def _totals(
    history: History,
    sums_of: Callable[[Grid, str | Sequence[str], bool], Sequence[Sums]],
    *,
    by: str | Sequence[str],
    freq: Frequency | Grid | None,
    start: Instant | None,
    share: bool,
    units: Units | None,
    **bounds: Any,  # noqa: ANN401 - end and tz
) -> pd.DataFrame:
    """Return `totals` of what `sums_of` returns for slices of accounts: see `_sums`."""
    grid, is_changing = history.grid(freq, start=start, **bounds), freq is None

    def is_wanted(sums: Sums) -> NDArray[np.bool_] | slice:
        if not is_changing:
            return slice(None)
        return sums.is_row if start is None else sums.is_row | (sums.times == grid.edges[0])

    def added(names: str | Sequence[str]) -> pd.DataFrame:
        parts = sums_of(grid, names, is_changing)
        return join_sums(parts, changing=is_changing, wanted=is_wanted).frame(grid.zone)

    found = added(by)
    if share:
        parts, wholes = found, added("asset_id")
        keys = ["asset_id", "timestamp"]
        whole = parts[keys].merge(wholes[[*keys, "total"]], "left", keys)["total"]
        found["share"] = int128.quotients(
            _integers(found["total"]), (each or 0 for each in _integers(whole))
        )
    return in_units(found, units, history.attrs)


def _sums(grid: Grid, by: str | Sequence[str], is_changing: bool, history: History) -> Sums:
    """Return the sums of groups of a history at a grid's points, or at changes in its interval."""
    steps, groups = history.at_points(grid).known_steps(), make_groups(history, by)
    if not is_changing:
        return sum_at(steps, groups, grid.points)
    begin, stop = (int(grid.edges[0]), int(grid.edges[-1])) if len(grid) else (0, 0)
    return sum_at_changes(steps, groups, begin, stop, also=begin)


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
    yield function(join_holders([*slices.map(partial(merged_at, at, names), grid)]), **options)


def merged_at(grid: Grid | None, by: Sequence[str], history: History) -> History:
    """Return `merged`, maybe as far as known at the points of a grid."""
    return merged(history if grid is None else history.at_points(grid), by)


def join_holders(parts: Sequence[History]) -> History:
    """Return the holders of slices as one history, those that slices share as one holder."""
    names = [*map(str, parts[0].accounts)]
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
    return merged(joined, names)


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
    # Each has a step that never comes, which is left of those that are never known.
    sums = sum_at_changes(steps, groups, also=NEVER)
    is_known = (sums.unknown == 0) & (sums.times < NEVER)
    last = np.flatnonzero(sums.times == NEVER)
    has_known = np.bincount(sums.groups[is_known], minlength=len(groups)) > 0
    ends = np.append(np.where(is_known[1:], NEVER, sums.times[1:]), NEVER)[: len(is_known)]
    is_known[last] = ~has_known
    kept = sums.take(is_known)
    held = Steps(
        groups.ids.reset_index(drop=True),
        np.append(0, np.cumsum(np.bincount(kept.groups, minlength=len(groups)))),
        kept.times,
        kept.words,
        kept.is_row,
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
