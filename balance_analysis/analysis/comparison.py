"""What differs between two moments: what came, went and changed, and what moved most."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.holders import holder_names, largest
from balance_analysis.analysis.summary import summarize
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.known import Stated
from balance_analysis.schema import ACCOUNT_KEY, Instant


def top_movers(
    table: pd.DataFrame | History,
    start: Instant | None = None,
    end: Instant | None = None,
    n: int = 10,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return the accounts, or parties, of each asset whose balance moved most in [start, end).

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    start, end
        The interval, half-open; without a time zone UTC. By default from the table's first row to
        the end of what is known, else to just after its last row.
    n
        How many of each asset, at most. Those that ended where they began are left out.
    by
        The columns that make a holder, which the result has in place of `ACCOUNT_KEY`, such as
        "party_id": see `holders`. Flows are then those with others: see `summarize_parties`.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change: see `balance_at`.
    units
        For amounts in whole units, as floats: see `balance_at`.

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
    history = open_history(table, opening, known)
    found = summarize(history, by, start, end)
    found = found[(found["net"] != 0).fillna(value=False).to_numpy(bool)]
    columns = [*holder_names(by), "opening", "closing", "net", "inflow", "outflow", "changes"]
    found = largest(found[columns], found["net"].abs(), n)
    return in_units(found, units, history.attrs)
