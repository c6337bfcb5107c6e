"""Time-weighted averages: what an account held on average, exact to the smallest unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from balance_analysis.analysis.grid import check_cells, make_grid
from balance_analysis.analysis.integers import ROOM, compose, digits_of, divide, to_balances
from balance_analysis.analysis.pieces import cut
from balance_analysis.analysis.steps import join, make_steps, map_blocks, period_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency, Zone
    from balance_analysis.analysis.pieces import Pieces
    from balance_analysis.analysis.steps import Columns, Steps
    from balance_analysis.schema import Instant


def time_weighted_average(
    table: pd.DataFrame,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    freq: Frequency | None = None,
    opening: pd.DataFrame | None = None,
    tz: Zone | None = None,
) -> pd.DataFrame:
    """Return each account's time-weighted average balance, over an interval or each of its periods.

    It is the sum of each balance times how long it was held, divided by the length of the period:
    in whole numbers, rounded once, half to even, to the asset's smallest unit.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    start, end
        The interval, half-open; without a time zone in `tz`. By default from the table's first row
        (with `freq`, from the beginning of its period) to just after its last (the end of its
        period).
    freq
        How long a period is: any frequency of pandas; `None` for the interval as a whole. Fixed
        frequencies and days count from `start`, others, such as "MS", have points of their own.
    opening
        What accounts held before the table's rows: see `balance_at`.
    tz
        The time zone in which days are days, of 23 and 25 hours too, and of the result's
        timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each account and period, sorted: `ACCOUNT_KEY` (category of str), `start` and
        `end` of the period (datetime64[us, tz]) and `average` (decimal128(38, 0), in the asset's
        smallest unit), NA where the balance is unknown in any part of the period.

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `freq` or `tz` is none.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-02"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> time_weighted_average(table, "2023-04-01", "2023-04-09")[["party_id", "average"]]
      party_id  average
    0       a1        6
    1       b2     <NA>
    """
    steps = make_steps(table, opening)
    grid = make_grid(steps.row_times, freq=freq, start=start, end=end, tz=tz)
    check_cells(len(steps), len(grid))

    def average(_: int, block: Steps) -> Columns:
        pieces = cut(block, grid.edges)
        return {"average": piece_averages(pieces, grid.edges), "is_known": pieces.is_known}

    found = join(map_blocks(average, steps, points=len(grid)))
    averages = to_balances(found["average"], found["is_known"])
    return pd.DataFrame({**period_columns(steps, grid), "average": averages}, copy=False)


def piece_averages(pieces: Pieces, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the average of each account and period, as words."""
    if not len(pieces.starts):
        return np.empty((0, 2), np.int64)
    spans = np.diff(edges)
    # A sum of digits times lengths is less than a digit times the period.
    width = ROOM - int(spans.max()).bit_length()
    sums = [
        np.add.reduceat(digit * pieces.lengths, pieces.starts)
        for digit in digits_of(pieces.words, width)
    ]
    divisors = np.tile(spans, len(pieces.starts) // len(spans))
    return compose(divide(sums, width, divisors), width)[0]
