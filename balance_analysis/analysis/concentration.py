"""Who holds how much of an asset: the largest holders, shares and concentration.

Shares are ratios, so they are floats: each the exact quotient of two integers, rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import warn_outside
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    grid_at,
    to_instants,
    to_times,
    to_zone,
)
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.holders import check_count, holder_names, largest, merged
from balance_analysis.analysis.int128 import integers_of, take, to_balances
from balance_analysis.analysis.steps import Steps, as_of, check_fits, name_of, repeat_ids, take_ids
from balance_analysis.analysis.totals import make_groups, sum_at
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.frame import BALANCE_DTYPE
from balance_analysis.known import Stated
from balance_analysis.schema import ACCOUNT_KEY, BALANCE_DIGITS, Instant
from balance_analysis.text import moment_text


def holders(
    table: pd.DataFrame | History,
    when: Instant | None = None,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    n: int | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return who holds how much of each asset at an instant, the largest holder first.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when
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
    opening, known, units
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
        - `accounts`, `unknown`: how many accounts the holder has, and of how many of these the
          balance is unknown then, so that it is missing in `balance` (int64).

    Raises
    ------
    ValueError
        If `by` names no columns that make a holder, or `n` is below 1.
    OverflowError
        If a sum has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_BOND"] * 2,
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 3 + ["2023-04-09"], utc=True),
    ...     "balance": [1, 1, 6, 5],
    ... })
    >>> holders(table, "2023-04-03", by="party_id")
      asset_id party_id  balance  share  accounts  unknown
    0     VOTE       b2        6   0.75         2        1
    1     VOTE       a1        2   0.25         2        0
    """
    history = open_history(table, opening, known)
    steps, grid = _over(history, when, tz=tz, freq=None, start=None, end=None)
    groups, assets = make_groups(history, holder_names(by)), make_groups(history, "asset_id")
    sums, whole = sum_at(steps, groups, grid.points), sum_at(steps, assets, grid.points)
    warn_outside(history, grid.points, sums.known.reshape(len(groups), len(grid.points)) > 0)
    total = dict(zip(assets.ids["asset_id"], pa.array(whole.total).to_pylist(), strict=False))
    found = pd.DataFrame(
        {
            **take_ids(groups.ids, sums.groups),
            "balance": sums.total,
            "accounts": groups.sizes[sums.groups],
            "unknown": sums.unknown,
        }
    )
    found = largest(found, found["balance"], n)
    pairs = zip(pa.array(found["balance"]).to_pylist(), found["asset_id"], strict=True)
    shares = [
        np.nan if balance is None or not total[asset] else int(balance) / int(total[asset])
        for balance, asset in pairs
    ]
    found.insert(len(groups.ids.columns) + 1, "share", np.array(shares, float))
    return in_units(found, units, history.attrs)


def share(
    table: pd.DataFrame | History,
    when: Instant | Iterable[Instant] | None = None,
    *,
    by: str | Sequence[str] = ("asset_id",),
    holders: str | Sequence[str] = ACCOUNT_KEY,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
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
        The columns of a holder that make a group, "asset_id" among them: see `totals`.
    holders
        The columns that make a holder, by default those of an account: see `holders`. What it has
        is unknown while that of one of its accounts is.
    freq, start, end
        A grid instead of instants: that of `balance_series`.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change: see `balance_at`.
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
        If both `when` and a grid are given, `by` lacks "asset_id", `start` is not
        before `end`, or `freq` or `tz` is none.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

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
    history = merged(open_history(table, opening, known), holders)
    steps, grid = _over(history, when, freq=freq, start=start, end=end, tz=tz)
    points, zone = grid.points, grid.zone
    groups = make_groups(history, by)
    check_cells(len(steps), len(points))
    sums, held = sum_at(steps, groups, points), as_of(steps, points)
    words, is_known = take(steps.words, held.rows), held.is_known
    warn_outside(history, points, is_known.reshape(len(steps), len(points)))
    cells = (groups.numbers[:, None] * len(points) + np.arange(len(points))).ravel()
    totals = [int(total or 0) for total in pa.array(sums.total).to_pylist()]
    shares = [
        balance / totals[cell] if known and totals[cell] else np.nan
        for balance, known, cell in zip(integers_of(words), is_known, cells, strict=True)
    ]
    result = pd.DataFrame(
        {
            **repeat_ids(steps.accounts, len(points)),
            "timestamp": to_times(np.tile(points, len(steps)), zone),
            "balance": to_balances(words, is_known),
            "share": np.array(shares, float),
            "unknown": sums.unknown[cells],
        }
    )
    return in_units(result, units, history.attrs)


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
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return how unevenly a group's balances are spread over its holders, at instants or on a grid.

    Who holds is an account, or all of a party's, whose balance is known and above 0.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when, by, holders, freq, start, end, opening, known, tz
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
        If `n` is below 1, both `when` and a grid are given, `by` lacks "asset_id", `start` is not
        before `end`, or `freq` or `tz` is none.
    OverflowError
        If a total has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

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
    history = merged(open_history(table, opening, known), holders)
    steps, grid = _over(history, when, freq=freq, start=start, end=end, tz=tz)
    points, zone = grid.points, grid.zone
    groups = make_groups(history, by)
    check_cells(len(steps), len(points))
    held = as_of(steps, points)
    shape = (len(steps), len(points))
    balances = np.array(integers_of(take(steps.words, held.rows)), object).reshape(shape)
    is_known = held.is_known.reshape(shape)
    warn_outside(history, points, is_known)
    balances[~is_known] = None
    found = [
        _measure(balances[groups.numbers == group, point].tolist(), n)
        for group in range(len(groups))
        for point in range(len(points))
    ]
    too_large = np.array([(total or 0) >= 10**BALANCE_DIGITS for total, *_ in found], bool)

    def name(cell: int) -> str:
        group, point = divmod(cell, len(points))
        return f"the total of {name_of(groups.ids, group)} at {moment_text(int(points[point]))}"

    check_fits(too_large, name)
    measures = {
        name: pd.Series([measured[place] for measured in found], dtype=dtype)
        for place, (name, dtype) in enumerate(_DTYPES.items())
    }
    times = to_times(np.tile(points, len(groups)), zone)
    result = pd.DataFrame({**repeat_ids(groups.ids, len(points)), "timestamp": times, **measures})
    return in_units(result, units, history.attrs)


_DTYPES: dict[str, Any] = {
    "total": BALANCE_DTYPE,
    "holders": "int64",
    "unknown": "int64",
    "largest": "float64",
    "herfindahl": "float64",
    "gini": "float64",
}


def _measure(levels: list[int | None], n: int) -> tuple[int | None, int, int, float, float, float]:
    """Return the columns of `concentration` for the balances of a group."""
    known = [level for level in levels if level is not None]
    held = sorted(level for level in known if level > 0)
    total, holders, unknown = sum(held), len(held), len(levels) - len(known)
    if not held:
        return 0 if known else None, 0, unknown, np.nan, np.nan, np.nan
    ranked = sum(rank * balance for rank, balance in enumerate(held, start=1))
    largest = sum(held[-n:]) / total
    herfindahl = sum(balance**2 for balance in held) / total**2
    gini = (2 * ranked - (holders + 1) * total) / (holders * total)
    return total, holders, unknown, largest, herfindahl, gini


def _over(
    history: History,
    when: Instant | Iterable[Instant] | None,
    *,
    tz: Zone | None,
    **asked: Any,  # noqa: ANN401 - freq, start and end
) -> tuple[Steps, Grid]:
    """Return a history over instants, or a frequency's grid; else just before its end."""
    if when is not None:
        if any(each is not None for each in asked.values()):
            raise ValueError("give either when or a grid with freq, start and end, not both")
        zone = to_zone(tz)
        return history.over(grid_at(np.unique(to_instants(when, zone)[0]), zone))
    steps, grid = history.over(**asked, tz=tz)
    return steps, grid if asked["freq"] else grid_at(grid.edges[-1:] - 1, grid.zone)
