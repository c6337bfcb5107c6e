"""Who holds how much of an asset: the largest holders, shares and concentration.

Shares are ratios, so they are floats: each the exact quotient of two integers, rounded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.balances import warn_outside
from balance_analysis.analysis.grid import (
    Frequency,
    Zone,
    check_cells,
    to_instants,
    to_times,
    to_zone,
)
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.holders import check_count, largest, merged
from balance_analysis.analysis.int128 import (
    integers_of,
    is_less,
    quotients,
    sum_words,
    take,
    to_balances,
)
from balance_analysis.analysis.steps import as_of, check_fits, name_of, repeat_ids, take_ids
from balance_analysis.analysis.totals import Groups, make_groups, sum_at
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant
from balance_analysis.text import moment_text


def holders(
    table: pd.DataFrame | History,
    at: Instant | None = None,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    n: int | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return who holds how much of each asset at an instant, the largest holder first.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    at
        The instant; without a time zone in `tz`. By default just before the end of what is known,
        else at the last row.
    by
        The columns that make a holder, within each asset: those of an account by default,
        "party_id" for owners, all of whose accounts are one holder, or another column that the
        table has and that has one value for each account, such as
        `table["desk"] = table["party_id"].map(desks)`. Accounts without a value are a holder NA.
        Accounts that belong to nobody, such as pools, have the party "network".
    n
        How many holders of each asset, at most; by default all, also those that hold nothing.
    units
        As for `balance_at`.
    tz
        The time zone of an instant without one. By default UTC.

    Returns
    -------
    pandas.DataFrame
        Sorted by `asset_id`, then `balance`, the largest first, unknown ones last: `asset_id` and
        the columns of `by` (category of str), and

        - `balance`: the sum of the balances that are known (decimal128(38, 0), in the asset's
          smallest unit), NA where none is
        - `share`: which part that is of all known balances of the asset (float64, NaN where the
          balance is unknown or all hold nothing)
        - `cumulative_share`: which part this holder and those above it have together (float64, NaN
          where `share` is)
        - `accounts`, `unknown`: how many accounts the holder has, and of how many of these the
          balance is unknown then, so that it is missing in `balance` (int64).

    Raises
    ------
    ValueError
        If `by` names no columns that make a holder, or `n` is below 1.
    OverflowError
        If a sum has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_BOND"] * 2,
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 3 + ["2023-04-09"], utc=True),
    ...     "balance": [1, 1, 6, 5],
    ... })
    >>> holders(table, "2023-04-03", by="party_id").drop(columns="asset_id")
      party_id  balance  share  cumulative_share  accounts  unknown
    0       b2        6   0.75              0.75         2        1
    1       a1        2   0.25              1.00         2        0
    """
    history = open_history(table)
    history.warn_of_quiet()
    history, points, _ = _look(history, at, tz=tz, freq=None, start=None, end=None)
    steps, groups = history.known_steps(), make_groups(history, by)
    sums = sum_at(steps, groups, points)
    warn_outside(history, points, sums.known.reshape(len(groups), len(points)) > 0)
    found = pd.DataFrame(
        {
            **take_ids(groups.ids, sums.groups),
            "balance": sums.total,
            "accounts": groups.sizes[sums.groups],
            "unknown": sums.unknown,
        }
    )
    found = largest(found, found["balance"], None)
    assets, reached = found["asset_id"].tolist(), []
    held = [None if x is None else int(x) for x in pa.array(found["balance"].array).to_pylist()]
    whole: Counter[str] = Counter()
    for asset, balance in zip(assets, held, strict=True):
        whole[asset] += balance or 0
        reached.append(None if balance is None else whole[asset])
    wholes = [whole[asset] for asset in assets]
    found.insert(len(groups.ids.columns) + 1, "share", quotients(held, wholes))
    found.insert(len(groups.ids.columns) + 2, "cumulative_share", quotients(reached, wholes))
    return in_units(largest(found, found["balance"], n), units, history.attrs)


def share(
    table: pd.DataFrame | History,
    when: Instant | Iterable[Instant] | None = None,
    *,
    by: str | Sequence[str] = ("asset_id",),
    holders: str | Sequence[str] = ACCOUNT_KEY,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return which part of its group's total each holder has, at instants or on a grid.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when
        The instant, or several; without a time zone in `tz`. By default just before the end of
        what is known, else at the last row, unless there is a `freq`. A moment outside of all
        `known` intervals is told as a warning: see `balance_at`.
    by
        The columns of a holder that make a group, within each asset: see `totals`.
    holders
        The columns that make a holder, by default those of an account: see `holders`. What it has
        is unknown while that of one of its accounts is.
    freq, start, end
        A grid instead of instants: that of `balance_series`.
    tz
        The time zone in which days are days, and of the result's timestamps. By default UTC.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each holder and instant, sorted: its columns, `ACCOUNT_KEY` by default (category
        of str), `timestamp` (datetime64[us, tz]), `balance` (decimal128(38, 0), in the asset's
        smallest unit, NA where unknown), `share` (float64, the balance as a part of the known total
        of the group; NaN where the balance is unknown or the total is 0) and `unknown` (int64, of
        how many holders of the group the balance is unknown then, so that they are missing in the
        total).

    Raises
    ------
    ValueError
        If both `when` and a grid are given, `by` names other columns, `start` is not
        before `end`, or `freq` or `tz` is none.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "b2", "c3"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-02", "2023-04-09"], utc=True),
    ...     "balance": [3, 1, 5],
    ... })
    >>> share(table, "2023-04-03")[["party_id", "balance", "share", "unknown"]]
      party_id  balance  share  unknown
    0       a1        3   0.75        1
    1       b2        1   0.25        1
    2       c3     <NA>    NaN        1
    """
    held = _hold(table, holders, when, freq=freq, start=start, end=end, tz=tz)
    groups = make_groups(held.history, by)
    totals, unknown = _add_up(held, groups, held.is_known)
    cells, balances = held.cells(groups), integers_of(held.words)
    told = [level if known else None for level, known in zip(balances, held.is_known, strict=True)]
    result = pd.DataFrame(
        {
            **held.keys(held.history.accounts),
            "balance": to_balances(held.words, held.is_known),
            "share": quotients(told, integers_of(totals[cells])),
            "unknown": unknown[cells],
        }
    )
    return in_units(result, units, held.history.attrs)


def concentration(
    table: pd.DataFrame | History,
    when: Instant | Iterable[Instant] | None = None,
    *,
    n: int = 10,
    by: str | Sequence[str] = ("asset_id",),
    holders: str | Sequence[str] = ACCOUNT_KEY,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return how unevenly a group's balances are spread over its holders, at instants or on a grid.

    Who holds is an account, or all of a party's, whose balance is known and above 0.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when, by, holders, freq, start, end, tz
        See `share`.
    n
        How many of the largest holders `largest` is of.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each group and instant, sorted: the columns of `by` (category of str),
        `timestamp` (datetime64[us, tz]) and

        - `total`: what the holders hold (decimal128(38, 0), in the asset's smallest unit; NA where
          no balance of the group is known)
        - `holders`: how many there are; `unknown`: of how many accounts the balance is unknown
          then (int64)
        - `largest`: the share of the `n` largest holders; `herfindahl`: the sum of the squared
          shares, from 1/holders to 1; `gini`: the Gini coefficient, from 0, all the same, towards 1
          (float64, NaN without holders)

    Raises
    ------
    ValueError
        If `n` is below 1, both `when` and a grid are given, `by` names other columns, `start` is
        not before `end`, or `freq` or `tz` is none.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-02"], utc=True),
    ...     "balance": [3, 1],
    ... })
    >>> found = concentration(table, "2023-04-03", n=1)
    >>> found[["total", "holders", "unknown", "largest", "herfindahl", "gini"]]
       total  holders  unknown  largest  herfindahl  gini
    0      4        2        0     0.75       0.625  0.25
    """
    check_count(n)
    held = _hold(table, holders, when, freq=freq, start=start, end=end, tz=tz)
    groups = make_groups(held.history, by)
    is_held = held.is_known & is_less(np.zeros_like(held.words), held.words)
    totals, unknown = _add_up(held, groups, is_held)
    levels: list[list[int]] = [[] for _ in totals]
    for cell, level in zip(
        held.cells(groups)[is_held], integers_of(held.words[is_held]), strict=True
    ):
        levels[cell].append(level)
    measures = np.array([_measure(sorted(each), n) for each in levels]).reshape(-1, 3)
    result = pd.DataFrame(
        {
            **held.keys(groups.ids),
            "total": to_balances(totals, unknown < groups.sizes.repeat(len(held.times))),
            "holders": np.array([len(each) for each in levels], np.int64),
            "unknown": unknown,
            **dict(zip(("largest", "herfindahl", "gini"), measures.T, strict=True)),
        }
    )
    return in_units(result, units, held.history.attrs)


def _measure(held: list[int], n: int) -> tuple[float, float, float]:
    """Return the floats of `concentration` for what holders have, ascending."""
    if not held:
        return np.nan, np.nan, np.nan
    total, count = sum(held), len(held)
    ranked = sum(rank * balance for rank, balance in enumerate(held, start=1))
    herfindahl = sum(balance**2 for balance in held) / total**2
    return sum(held[-n:]) / total, herfindahl, (2 * ranked - (count + 1) * total) / (count * total)


@dataclass(frozen=True, slots=True)
class _Held:
    """What the holders of a history have at some moments, holder by holder."""

    history: History
    times: pd.DatetimeIndex
    words: NDArray[np.int64]
    is_known: NDArray[np.bool_]

    def keys(self, ids: pd.DataFrame) -> dict[str, Any]:
        """Return columns of ids, each at each moment, and the moments."""
        moments = np.tile(np.arange(len(self.times)), len(ids))
        return {**repeat_ids(ids, len(self.times)), "timestamp": self.times[moments]}

    def cells(self, groups: Groups) -> NDArray[np.int64]:
        """Return to which group and moment each balance belongs, as one number."""
        count = len(self.times)
        return (groups.numbers[:, None] * count + np.arange(count)).ravel()


def _hold(
    table: pd.DataFrame | History,
    by: str | Sequence[str],
    when: Instant | Iterable[Instant] | None,
    **asked: Any,  # noqa: ANN401 - see `_look`
) -> _Held:
    history, points, times = _look(open_history(table), when, **asked)
    history = merged(history, by)
    steps = history.known_steps()
    check_cells(len(steps), len(points))
    held = as_of(steps, points)
    warn_outside(history, points, held.is_known.reshape(len(steps), len(points)))
    return _Held(history, times, take(steps.words, held.rows), held.is_known)


def _add_up(
    held: _Held, groups: Groups, chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return of each group and moment the sum of the chosen balances, and how many are unknown."""
    cells, count = held.cells(groups), len(groups) * len(held.times)
    totals, too_large = sum_words(np.where(chosen[:, None], held.words, 0), cells, count)

    def name(cell: int) -> str:
        group, point = divmod(cell, len(held.times))
        return f"the total of {name_of(groups.ids, group)} at {moment_text(held.times[point])}"

    check_fits(too_large, name)
    return totals, np.bincount(cells[~held.is_known], minlength=count)


def _look(
    history: History,
    when: Instant | Iterable[Instant] | None,
    *,
    tz: Zone | None,
    **asked: Any,  # noqa: ANN401 - freq, start and end
) -> tuple[History, NDArray[np.int64], pd.DatetimeIndex]:
    """Return what is known at instants, or on a frequency's grid; else just before the end.

    Returns
    -------
    tuple
        A history, and these moments, in microseconds and in the time zone.
    """
    zone = to_zone(tz)
    if when is not None:
        if any(each is not None for each in asked.values()):
            raise ValueError("give either when or a grid with freq, start and end, not both")
        points = np.unique(to_instants(when, zone)[0])
    else:
        grid = history.grid(**asked, tz=zone)
        points = grid.points if asked["freq"] else grid.edges[-1:] - 1
    return history.at(points), points, to_times(points, zone)
