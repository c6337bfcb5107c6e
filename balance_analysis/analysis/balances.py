"""The balance of every account at one instant.

A balance is a right-open step: it holds from its row's timestamp until the account's next row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.checks import (
    account_numbers,
    drop_identical_duplicates,
    merge_duplicates,
    microseconds,
)
from balance_analysis.frame import BALANCE_DTYPE, to_arrow, to_frame
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, to_microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from balance_analysis.schema import Instant

# numpy reads this very number as NaT, and it sorts before every moment.
_NO_TIME = np.iinfo(np.int64).min


def balance_at(
    table: pd.DataFrame, when: Instant, *, opening: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the balance of every account at one instant.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    when
        The instant; without a time zone it is UTC. A row at exactly `when` counts.
    opening
        Balances from before the table's first rows: one row per account with `ACCOUNT_KEY`,
        `balance` (decimal128(38, 0), NA = unknown) and, if known, `since`: the moment that set the
        balance, before which it is unknown. Without it, the balance holds for all time before the
        account's first row. What this function returns is such a frame.

    Returns
    -------
    pandas.DataFrame
        One row per account of `table` and `opening`, sorted by `ACCOUNT_KEY` (category of str):
        `balance` (decimal128(38, 0), in the asset's smallest unit, NA where the account has no row
        yet and so its balance is unknown) and `since` (datetime64[us, UTC], the timestamp of the
        row that set it, NaT where unknown).

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-09"], utc=True),
    ...     "balance": pd.array([5, 7, 1], dtype=BALANCE_DTYPE),
    ... })
    >>> balance_at(table, "2023-04-03")[["party_id", "balance", "since"]]
      party_id  balance                     since
    0       a1        7 2023-04-03 00:00:00+00:00
    1       b2     <NA>                       NaT
    """
    instant = to_microseconds(when)
    rows = drop_identical_duplicates(table) if opening is None else _with_opening(table, opening)
    numbers, times = account_numbers(rows), microseconds(rows)
    found = last_rows(numbers, times <= instant)
    return account_keys(rows, numbers).assign(
        balance=take_balances(rows, found), since=to_utc(take_times(times, found))
    )


def account_keys(rows: pd.DataFrame, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Return the `ACCOUNT_KEY` of each account of a sorted table."""
    heads = first_rows(numbers, np.ones(len(rows), dtype=bool))
    return rows[list(ACCOUNT_KEY)].iloc[heads].reset_index(drop=True)


def first_rows(numbers: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each account the position of its first chosen row, -1 where none is chosen.

    Parameters
    ----------
    numbers
        The account's number of each row, ascending (`checks.account_numbers`).
    chosen
        Which rows to look at.
    """
    return _edge_rows(numbers, chosen, last=False)


def last_rows(numbers: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each account the position of its last chosen row, as `first_rows` does."""
    return _edge_rows(numbers, chosen, last=True)


def _edge_rows(
    numbers: NDArray[np.int64], chosen: NDArray[np.bool_], *, last: bool
) -> NDArray[np.int64]:
    positions = np.flatnonzero(chosen)
    accounts = np.arange(count_accounts(numbers))
    starts = np.searchsorted(numbers[positions], accounts, side="left")
    ends = np.searchsorted(numbers[positions], accounts, side="right")
    edges = np.append(positions, -1)[ends - 1 if last else starts]
    return np.where(starts < ends, edges, -1)


def count_accounts(numbers: NDArray[np.int64]) -> int:
    """Return how many accounts these numbers tell apart."""
    return int(numbers[-1]) + 1 if len(numbers) else 0


def take_balances(rows: pd.DataFrame, positions: NDArray[np.int64]) -> pd.Series[Any]:
    """Return the balances at these positions, NA where the position is -1."""
    return pd.Series(rows["balance"].array.take(positions, allow_fill=True), dtype=BALANCE_DTYPE)


def take_times(times: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the microseconds at these positions, the number of NaT where the position is -1."""
    return np.append(times, _NO_TIME)[positions]


def to_utc(times: NDArray[np.int64]) -> pd.Series[Any]:
    """Return microseconds as timestamps in UTC."""
    return pd.Series(times.view("M8[us]")).dt.tz_localize("UTC")


def _with_opening(table: pd.DataFrame, opening: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table together with its opening balances, each a row at its `since`."""
    balance = opening["balance"]
    if balance.dtype != BALANCE_DTYPE:
        raise TypeError(f"opening's balance must be {BALANCE_DTYPE}, not {balance.dtype}")
    keys = opening[list(ACCOUNT_KEY)].astype("str")
    if keys.isna().to_numpy().any():
        raise ValueError("opening has an account with a missing id; no market is '', not missing")
    if keys.duplicated().any():
        twice = keys.loc[keys.duplicated()].iloc[0].to_dict()
        raise ValueError(f"opening has more than one balance of the account {twice}")
    rows = pa.table(
        {
            **{name: pa.array(keys[name], pa.string()) for name in ACCOUNT_KEY},
            "timestamp": pa.array(_opening_times(opening)).cast(pa.timestamp("us", "UTC")),
            "balance": pa.array(balance),
        }
    )
    known = to_arrow(table).cast(pa.schema([field.with_nullable(True) for field in ARROW_SCHEMA]))
    return merge_duplicates(to_frame(pa.concat_tables([known, rows.cast(known.schema)])))


def _opening_times(opening: pd.DataFrame) -> NDArray[np.int64]:
    if "since" not in opening:
        return np.full(len(opening), _NO_TIME)
    times = pd.to_datetime(opening["since"], utc=True).to_numpy(dtype="M8[us]").view(np.int64)
    return np.where(opening["balance"].isna(), _NO_TIME, times)
