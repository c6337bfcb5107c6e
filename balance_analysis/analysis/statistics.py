"""What balances were in periods: averages, open, high, low and close; and drawdowns from a peak."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import door
from balance_analysis.analysis.grid import Frequency, Grid, Zone, check_cells, to_times
from balance_analysis.analysis.history import Source, open_history
from balance_analysis.analysis.steps import (
    ALWAYS,
    Columns,
    Pieces,
    Steps,
    as_of,
    check_fits,
    cut,
    join,
    map_blocks,
    repeat_ids,
)
from balance_analysis.analysis.totals import each_holder, merged
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant
from balance_analysis.text import count_text

logger: logging.Logger = logging.getLogger("balance_analysis")


@door(each_holder)
def ohlc(
    source: Source,
    freq: Frequency,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return the first, highest, lowest and last balance of each account in each period.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        How long a period is: any frequency of pandas. Fixed frequencies and days count from
        `start`, others, such as "MS", have points of their own.
    start, end
        The interval, half-open; without a time zone in `tz`. By default from the beginning of the
        period of the first row, or of what is known, to the end of what is known, else to that of
        the period of the last row.
    by
        The columns that make a holder, which the result has in place of `ACCOUNT_KEY`, such as
        "party_id": see `holders`. What it has is unknown while that of one of its accounts is.
    tz
        The time zone in which days are days, and of the result's timestamps. By default UTC.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each account and period, sorted: `ACCOUNT_KEY` (category of str), `start` and
        `end` of the period (datetime64[us, tz]), and in decimal128(38, 0), in the asset's smallest
        unit: `open`, the balance at `start`, NA where it is unknown then; `high` and `low`, of the
        part in which it is known; and `close`, the balance just before `end`. A period without
        rows has all four: they are the balance that is held. NA is unknown.

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `freq` or `tz` is none.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(
    ...         ["2023-04-01T08:00", "2023-04-02T09:00", "2023-04-02T10:00"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> ohlc(table, "1D")[["start", "open", "high", "low", "close"]]
                          start  open  high  low  close
    0 2023-04-01 00:00:00+00:00  <NA>     5    5      5
    1 2023-04-02 00:00:00+00:00     5     7    1      1
    """
    history = merged(open_history(source), by)
    steps, grid = history.over(freq, start=start, end=end, tz=tz)
    check_cells(len(steps), len(grid))
    found = join(
        map_blocks(lambda _, block: _ranges(cut(block, grid.edges)), steps, points=len(grid))
    )
    result = pd.DataFrame(
        {
            **repeat_ids(steps.accounts, len(grid)),
            **grid.all_bounds(len(steps)),
            "open": int128.to_balances(found["open"], found["is_known"]),
            "high": int128.to_balances(found["high"], found["has_known"]),
            "low": int128.to_balances(found["low"], found["has_known"]),
            "close": int128.to_balances(found["close"], found["ends_known"]),
        },
        copy=False,
    )
    return in_units(result, units, history.attrs)


def _ranges(pieces: Pieces) -> Columns:
    # An unknown piece has the balance of the one after it, so it changes no extreme.
    words, starts = pieces.words, pieces.starts
    return {
        "open": int128.take(words, starts),
        "high": int128.take(words, int128.first_extremes(words, starts, largest=True)),
        "low": int128.take(words, int128.first_extremes(words, starts, largest=False)),
        "close": int128.take(words, pieces.lasts),
        "is_known": pieces.is_known,
        "has_known": pieces.has_known,
        "ends_known": as_of(pieces.steps, pieces.edges[1:] - 1).is_known,
    }


@door(each_holder)
def drawdown(
    source: Source,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return how far each balance lies below the highest one of its account so far.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    by
        The columns that make a holder, which the result has in place of `ACCOUNT_KEY`, such as
        "party_id": see `holders`. What it has is unknown while that of one of its accounts is.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each row of the table, sorted: `ACCOUNT_KEY` (category of str), `timestamp`,
        `balance`, `peak`, the highest balance up to then, `peak_at`, when it was first reached
        (datetime64[us, UTC]), and `depth`, peak - balance.
        Amounts are decimal128(38, 0), in the asset's smallest unit. Behind a stretch that is not
        known, `peak`, `peak_at` and `depth` are missing: in it, there may have been a higher one.
        The index is as of `deltas`.

    Raises
    ------
    OverflowError
        If a depth has more than 38 digits, which only negative balances can make.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(
    ...         ["2023-04-01", "2023-04-03", "2023-04-05"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> drawdown(table)[["balance", "peak", "peak_at", "depth"]]
       balance  peak                   peak_at  depth
    0        5     5 2023-04-01 00:00:00+00:00      0
    1        7     7 2023-04-03 00:00:00+00:00      0
    2        1     7 2023-04-03 00:00:00+00:00      6
    """
    history = merged(open_history(source), by)
    found = join(map_blocks(lambda _, block: _fall(block), history.over()[0]))
    is_known = found["is_known"]
    result = history.rows.assign(
        peak=int128.to_balances(found["peak"], is_known),
        peak_at=to_times(np.where(is_known, found["peak_at"], ALWAYS)),
        depth=int128.to_balances(found["depth"], is_known),
    )
    return in_units(result, units, history.attrs)


def _fall(steps: Steps) -> Columns:
    """Return the columns of `drawdown` for the rows of a block."""
    peaks = int128.running_maxima(steps.words, steps.heads)
    highest = int128.take(steps.words, peaks)
    depths, too_large = int128.subtract(highest, steps.words)
    check_fits(too_large, lambda row: f"the depth of {steps.name_row(row)}")
    gaps = np.cumsum(steps.starts_known & ~steps.is_head)
    kept = slice(None) if steps.is_row.all() else steps.is_row
    return {
        "peak": highest[kept],
        "peak_at": steps.times[peaks][kept],
        "depth": depths[kept],
        "is_known": (gaps == gaps[steps.heads][steps.numbers])[kept],
    }


@door(each_holder)
def time_weighted_average(
    source: Source,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    freq: Frequency | Grid | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    partial: bool = False,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return each account's time-weighted average balance, over an interval or each of its periods.

    It is the sum of each balance times how long it was held, divided by the length of the period:
    in whole numbers, rounded once, half to even, to the asset's smallest unit.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    start, end
        The interval, half-open; without a time zone in `tz`. By default from the table's first row
        (with `freq`, from the beginning of its period, or of what is known) to the end of what is
        known, else to just after its last row (the end of its period).
    freq
        How long a period is: any frequency of pandas; `None` for the interval as a whole. Fixed
        frequencies and days count from `start`, others, such as "MS", have points of their own.
    by
        The columns that make a holder, which the result has in place of `ACCOUNT_KEY`, such as
        "party_id": see `holders`. What it has is unknown while that of one of its accounts is.
    partial
        Whether a period of which a part is unknown has the average of its known part.
    tz
        The time zone in which days are days, of 23 and 25 hours too, and of the result's
        timestamps. By default UTC.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each account and period, sorted: `ACCOUNT_KEY` (category of str), `start` and
        `end` of the period (datetime64[us, tz]) and `average` (decimal128(38, 0), in the asset's
        smallest unit), NA where the balance is unknown in any part of the period; if most are, one
        warning says so. If it is `partial`, NA where it is unknown in all of the period, and
        `known_share` says of which part of the period the average is (float64).

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `freq` or `tz` is none.
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
    >>> time_weighted_average(table, "2023-04-01", "2023-04-09")[["party_id", "average"]]
      party_id  average
    0       a1        6
    1       b2     <NA>
    >>> found = time_weighted_average(table, "2023-04-01", "2023-04-09", partial=True)
    >>> found[["party_id", "average", "known_share"]]
      party_id  average  known_share
    0       a1        6        1.000
    1       b2        1        0.875
    """
    history = merged(open_history(source), by)
    steps, grid = history.over(freq, start=start, end=end, tz=tz)
    check_cells(len(steps), len(grid))
    found = join(
        map_blocks(lambda _, block: _averages(cut(block, grid.edges)), steps, points=len(grid))
    )
    known_for, spans = found["known_for"], np.tile(np.diff(grid.edges), len(steps))
    is_known = known_for > 0 if partial else known_for == spans
    columns = {
        **repeat_ids(steps.accounts, len(grid)),
        **grid.all_bounds(len(steps)),
        "average": int128.to_balances(found["average"], is_known),
        **({"known_share": known_for / spans} if partial else {}),
    }
    lacking = len(is_known) - np.count_nonzero(is_known)
    if not partial and 2 * lacking > len(is_known):
        logger.warning(
            "%s of %s are unknown, because the balance is unknown in a part of the period: before "
            "the account's first row, or where changes may be missing. partial=True averages the "
            "known part",
            f"{lacking:,}",
            count_text(len(is_known), "average"),
        )
    return in_units(pd.DataFrame(columns, copy=False), units, history.attrs)


def _averages(pieces: Pieces) -> Columns:
    return {"average": averages(pieces), "known_for": pieces.known_lengths}


def averages(pieces: Pieces) -> NDArray[np.int64]:
    """Return the words of the average of the known part of each account and period.

    Where nothing is known, they have no meaning.
    """
    # A sum of digits times lengths is less than a digit times the period.
    width = int128.ROOM - int(np.diff(pieces.edges).max(initial=0)).bit_length()
    sums = [
        int128.sum_runs(digit * pieces.known_for, pieces.starts)
        for digit in int128.digits_of(pieces.words, width)
    ]
    digits = int128.divide(sums, width, np.maximum(pieces.known_lengths, 1))
    return int128.compose(digits, width)[0]
