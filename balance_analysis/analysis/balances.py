"""The balance of every account at an instant, or at many.

A balance is a right-open step: it holds from its row's timestamp until the account's next row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from balance_analysis.analysis.gaps import forget, stated
from balance_analysis.analysis.grid import check_cells, to_instants, to_times
from balance_analysis.analysis.int128 import take, to_balances
from balance_analysis.analysis.resample import hold
from balance_analysis.analysis.steps import ALWAYS, make_steps
from balance_analysis.schema import ATTRS_KEY, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant


def balance_at(
    table: pd.DataFrame,
    when: Instant | Iterable[Instant],
    *,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> pd.DataFrame:
    """Return the balance of every account at one instant, or at each of many.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when
        The instant, or several; without a time zone UTC. A row at exactly `when` counts.
    opening
        What accounts held before the table's rows: one row per account with `ACCOUNT_KEY`,
        `balance` (decimal128(38, 0), NA = unknown) and, if known, `since`: the moment that set the
        balance, before which it is unknown. Without it, the balance holds for all time before the
        account's first row. What this function and `load_opening_balances` return are such frames:
        their attrs tell until when they hold.
    known
        Intervals [start, end) in which the table has every change, without a time zone in UTC; by
        default those that its attrs tell, `attrs["balance_analysis"]["known"]`, as loads, files and
        archives note them. Outside of these a balance may have changed without a row: what was
        seen before is unknown from there on, until the account's next row. A table that tells
        nothing is taken to have every change.

    Returns
    -------
    pandas.DataFrame
        One row per account of `table` and `opening`, sorted by `ACCOUNT_KEY` (category of str):
        `balance` (decimal128(38, 0), in the asset's smallest unit, NA where it is unknown, as the
        account has no row yet or may have changed since) and `since` (datetime64[us, UTC], the
        timestamp of the row that set it, NaT where unknown). For several instants one row per
        account and instant, in the order in which they were given, with `timestamp`
        (datetime64[us, UTC]) before `balance`.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance, or `opening` has a balance from
        within an account's rows that is none of them.
    ValueError, TypeError
        If an instant is none, or `opening` is no such frame.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-09"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> balance_at(table, "2023-04-03")[["party_id", "balance", "since"]]
      party_id  balance                     since
    0       a1        7 2023-04-03 00:00:00+00:00
    1       b2     <NA>                       NaT
    >>> balance_at(table, ["2023-04-02", "2023-04-10"])[["party_id", "timestamp", "balance"]]
      party_id                 timestamp  balance
    0       a1 2023-04-02 00:00:00+00:00        5
    1       a1 2023-04-10 00:00:00+00:00        7
    2       b2 2023-04-02 00:00:00+00:00     <NA>
    3       b2 2023-04-10 00:00:00+00:00        1
    """
    instants, is_one = to_instants(when)
    points, order = np.unique(instants, return_inverse=True)
    steps = make_steps(table, opening)
    until = int(points.max(initial=ALWAYS)) + 1
    steps = forget(steps, stated(table, known), opening, until=until)
    check_cells(len(steps), len(points))
    held = hold(steps, points)
    rows = held.rows.reshape(len(steps), len(points))[:, order].ravel()
    is_known = held.is_known.reshape(len(steps), len(points))[:, order].ravel()
    columns = {
        **steps.keys(np.repeat(np.arange(len(steps)), len(order))),
        "timestamp": to_times(np.tile(points[order], len(steps))),
        "balance": to_balances(take(steps.words, rows), is_known),
        "since": to_times(np.where(is_known, steps.times[rows], ALWAYS)),
    }
    result = pd.DataFrame(columns)
    if not is_one:
        return result
    result.attrs[ATTRS_KEY] = {"at": from_microseconds(until).isoformat()}
    return result.drop(columns="timestamp")
