"""Who holds how much of an asset: shares, concentration and the largest movers.

Shares are ratios, so they are floats: each the exact quotient of two integers, rounded once.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.gaps import forget, open_interval, stated
from balance_analysis.analysis.grid import check_cells, to_instants, to_times, to_zone
from balance_analysis.analysis.groups import make_groups
from balance_analysis.analysis.int128 import integers_of, take, to_balances, words_of
from balance_analysis.analysis.resample import hold
from balance_analysis.analysis.steps import ALWAYS, make_steps, raise_overflow
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.totals import sum_at
from balance_analysis.frame import BALANCE_DTYPE
from balance_analysis.schema import ACCOUNT_KEY, BALANCE_DIGITS, from_microseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency, Zone
    from balance_analysis.analysis.steps import Steps
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant


_MEASURES: Final[dict[str, Any]] = {
    "total": BALANCE_DTYPE,
    "holders": "int64",
    "unknown": "int64",
    "largest": "float64",
    "herfindahl": "float64",
    "gini": "float64",
}


def share(
    table: pd.DataFrame,
    when: Instant | Iterable[Instant] | None = None,
    *,
    by: str | Sequence[str] = ("asset_id",),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    tz: Zone | None = None,
) -> pd.DataFrame:
    """Return which part of its group's total each account holds, at instants or on a grid.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when
        The instant, or several; without a time zone in `tz`. Either this or `freq`.
    by
        The columns of `ACCOUNT_KEY` that make a group, "asset_id" among them.
    freq, start, end
        A grid instead of instants: that of `balance_series`.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change: see `balance_at`.
    tz
        The time zone in which days are days, and of the result's timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each account and instant, sorted: `ACCOUNT_KEY` (category of str), `timestamp`
        (datetime64[us, tz]), `balance` (decimal128(38, 0), in the asset's smallest unit, NA where
        unknown), `share` (float64, the balance as a part of the known total of the group; NaN where
        the balance is unknown or the total is 0) and `unknown` (int64, of how many accounts of the
        group the balance is unknown then, so that they are missing in the total).

    Raises
    ------
    ValueError
        If both `when` and `freq` are given or neither is, `by` lacks "asset_id", `start` is not
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
    steps, points, zone = _at_points(
        *(table, when), freq=freq, start=start, end=end, tz=tz, opening=opening, known=known
    )
    groups = make_groups(steps.accounts, by)
    check_cells(len(steps), len(points))
    sums = sum_at(steps, groups, points)
    held = hold(steps, points)
    numbers = np.repeat(np.arange(len(steps)), len(points))
    cell = groups.numbers[numbers] * len(points) + np.tile(np.arange(len(points)), len(steps))
    words = take(steps.words, held.rows)
    parts = zip(integers_of(words), held.is_known, cell, strict=True)
    whole = _integers(sums.total)
    shares = [
        balance / total if known and (total := whole[number]) else np.nan
        for balance, known, number in parts
    ]
    return pd.DataFrame(
        {
            **steps.keys(numbers),
            "timestamp": to_times(np.tile(points, len(steps)), zone),
            "balance": to_balances(words, held.is_known),
            "share": np.array(shares, float),
            "unknown": sums.unknown[cell],
        }
    )


def concentration(
    table: pd.DataFrame,
    when: Instant | Iterable[Instant] | None = None,
    *,
    n: int = 10,
    by: str | Sequence[str] = ("asset_id",),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    tz: Zone | None = None,
) -> pd.DataFrame:
    """Return how unevenly a group's balances are spread over its holders, at instants or on a grid.

    A holder is an account whose balance is known and above 0.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when, by, freq, start, end, opening, known, tz
        See `share`.
    n
        How many of the largest holders `largest` is of.

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
        If `n` is below 1, both `when` and `freq` are given or neither is, `by` lacks "asset_id",
        `start` is not before `end`, or `freq` or `tz` is none.
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
    _check_count(n)
    steps, points, zone = _at_points(
        *(table, when), freq=freq, start=start, end=end, tz=tz, opening=opening, known=known
    )
    groups = make_groups(steps.accounts, by)
    check_cells(len(steps), len(points))
    held = hold(steps, points)
    shape = (len(steps), len(points))
    balances = np.array(integers_of(take(steps.words, held.rows)), object).reshape(shape)
    is_known = held.is_known.reshape(shape)
    found = []
    for group in range(len(groups)):
        members = groups.numbers == group
        for point, moment in enumerate(points):
            is_told = is_known[members, point]
            measures = _measure(balances[members, point][is_told].tolist(), n)
            if measures["total"] is not None and measures["total"] >= 10**BALANCE_DIGITS:
                raise_overflow(
                    f"the total of {groups.name(group)} at {from_microseconds(int(moment))}"
                )
            found.append(measures | {"unknown": int((~is_told).sum())})
    return pd.DataFrame(
        {
            **groups.columns(np.repeat(np.arange(len(groups)), len(points))),
            "timestamp": to_times(np.tile(points, len(groups)), zone),
            **{
                name: pd.Series([measures[name] for measures in found], dtype=dtype)
                for name, dtype in _MEASURES.items()
            },
        }
    )


def _measure(known: list[int], n: int) -> dict[str, Any]:
    """Return the columns of `concentration` for the known balances of a group."""
    held = sorted(balance for balance in known if balance > 0)
    total, holders = sum(held), len(held)
    if not held:
        ratios = dict.fromkeys(("largest", "herfindahl", "gini"), np.nan)
        return {"total": 0 if known else None, "holders": 0, **ratios}
    ranked = sum(rank * balance for rank, balance in enumerate(held, start=1))
    return {
        "total": total,
        "holders": holders,
        "largest": sum(held[-n:]) / total,
        "herfindahl": sum(balance**2 for balance in held) / total**2,
        "gini": (2 * ranked - (holders + 1) * total) / (holders * total),
    }


def top_movers(
    table: pd.DataFrame,
    start: Instant | None = None,
    end: Instant | None = None,
    n: int = 10,
    *,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> pd.DataFrame:
    """Return the accounts of each asset whose balance moved most in [start, end).

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    start, end
        The interval, half-open; without a time zone UTC. By default from the table's first row to
        the end of what is known, else to just after its last row.
    n
        How many accounts of each asset, at most. Accounts that ended where they began are left out.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        Sorted by `asset_id`, then the size of `net`, largest first, then `ACCOUNT_KEY`:
        `ACCOUNT_KEY` (category of str), and as in `summarize_accounts` `opening`, `closing`, `net`,
        `inflow`, `outflow` (decimal128(38, 0), in the asset's smallest unit) and `changes` (int64).
        Where `opening` is NA, the account's balance was unknown at `start`, and the rest is about
        the part in which it is known.

    Raises
    ------
    ValueError
        If `n` is below 1 or `start` is not before `end`.
    OverflowError
        If a sum has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"] * 2, utc=True),
    ...     "balance": [5, 7, 9, 1],
    ... })
    >>> top_movers(table, "2023-04-02", "2023-04-05")[["party_id", "opening", "closing", "net"]]
      party_id  opening  closing  net
    0       b2        9        1   -8
    1       a1        5        7    2
    """
    _check_count(n)
    accounts = summarize_accounts(table, start=start, end=end, opening=opening, known=known)
    moves = _integers(accounts["net"].array)
    assets = accounts["asset_id"].cat.codes.tolist()
    moved = [(assets[place], -abs(move), place) for place, move in enumerate(moves) if move]
    ranked = accounts.iloc[[place for _, _, place in sorted(moved)]]
    largest = ranked.groupby("asset_id", observed=True).head(n).reset_index(drop=True)
    for name in ACCOUNT_KEY:
        largest[name] = largest[name].cat.remove_unused_categories()
    return largest[[*ACCOUNT_KEY, "opening", "closing", "net", "inflow", "outflow", "changes"]]


def _at_points(
    table: pd.DataFrame,
    when: Instant | Iterable[Instant] | None,
    *,
    freq: Frequency | None,
    start: Instant | None,
    end: Instant | None,
    tz: Zone | None,
    opening: pd.DataFrame | None,
    known: Stated | None,
) -> tuple[Steps, NDArray[np.int64], dt.tzinfo]:
    """Return step functions, the instants, ascending, and the time zone."""
    if when is None:
        if freq is None:
            raise ValueError("give when, one instant or several, or freq, for a grid")
        steps, grid, _ = open_interval(
            table, opening=opening, known=known, freq=freq, start=start, end=end, tz=tz
        )
        return steps, grid.points, grid.zone
    if not (freq is None and start is None and end is None):
        raise ValueError("give either when or a grid with freq, start and end, not both")
    zone = to_zone(tz)
    points = np.unique(to_instants(when, zone)[0])
    until = int(points.max(initial=ALWAYS)) + 1
    steps = forget(make_steps(table, opening), stated(table, known), opening, until=until)
    return steps, points, zone


def _integers(amounts: pd.api.extensions.ExtensionArray) -> list[int | None]:
    """Return a column of amounts as Python integers, None where it is NA."""
    values = pa.array(amounts)
    numbers = integers_of(words_of(values))
    return [
        number if known else None
        for number, known in zip(numbers, values.is_valid().to_pylist(), strict=True)
    ]


def _check_count(n: int) -> None:
    if operator.index(n) < 1:
        raise ValueError(f"n must be at least 1, not {n}")
