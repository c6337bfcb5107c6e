"""Balances over time: at one or several instants, at the points of a grid, or at every change.

A balance is a right-open step: it holds from its row's timestamp until the account's next row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import Units, any_source
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_instants,
    to_times,
)
from balance_analysis.analysis.history import AccountSlices, History
from balance_analysis.analysis.steps import (
    ALWAYS,
    NEVER,
    Steps,
    as_of,
    map_blocks,
    repeat_ids,
    take_ids,
)
from balance_analysis.analysis.totals import each_holder
from balance_analysis.table.moments import Instant, clipped, moment_text
from balance_analysis.table.schema import ACCOUNT_KEY
from balance_analysis.table.text import spans_text

logger: logging.Logger = logging.getLogger("balance_analysis")

Layout = Literal["wide", "long"]

STATES: Final = pd.CategoricalDtype(["observed", "carried", "opening", "unknown"])

_OBSERVED, _CARRIED, _OPENING, _UNKNOWN = range(4)


@any_source
def balance_at(
    source: AccountSlices, at: Instant | Iterable[Instant], *, units: Units | None = None
) -> Iterator[pd.DataFrame]:
    """Return the balance of every account at one or several instants.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        One instant or several; UTC if without a time zone. A row at exactly that time counts.
    units
        Return amounts as float64 in whole units, NaN where unknown: pass the assets as for
        `to_units`, or `True` for those in the table's attrs.

    Returns
    -------
    pandas.DataFrame
        One row per account, sorted by `ACCOUNT_KEY` (category of str): `balance`
        (decimal128(38, 0), in the asset's smallest unit; NA if unknown, because the account has no
        row yet or may have changed since) and `since` (datetime64[us, UTC], the timestamp of the
        row that set the balance; NaT if unknown). For several instants, one row per account and
        instant, in the order you passed them, with `timestamp` (datetime64[us, UTC]) before
        `balance`. At the end of a known interval, the balance is the one held until then, even if
        the table lacks a change in that very microsecond. A warning names the first instant
        outside all known intervals at which no balance is known.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance.
    ValueError, TypeError
        If an instant is invalid.

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
    instants, is_one = to_instants(at)
    history = source.history_at(instants)
    result = held_at(history, instants)
    warn_outside(history, instants, result["balance"].notna().to_numpy())
    yield result.drop(columns="timestamp") if is_one else result


def held_at(history: History, instants: NDArray[np.int64]) -> pd.DataFrame:
    """Return the result of `balance_at` for several instants (in microseconds)."""
    points, order = np.unique(instants, return_inverse=True)
    steps = history.at(points)
    check_cells(len(steps), len(points))
    (rows, is_known), shape = as_of(steps, points), (len(steps), len(points))
    rows = rows.reshape(shape)[:, order].ravel()
    is_known = is_known.reshape(shape)[:, order].ravel()
    return pd.DataFrame(
        {
            **repeat_ids(steps.accounts, len(order)),
            "timestamp": to_times(np.tile(instants, len(steps))),
            "balance": int128.to_balances(int128.take(steps.words, rows), is_known),
            "since": to_times(np.where(is_known, steps.times[rows], ALWAYS)),
        }
    )


def warn_outside(
    history: History, instants: NDArray[np.int64], is_known: NDArray[np.bool_]
) -> None:
    """Warn about the first instant outside the known intervals at which no balance is known.

    `is_known` has a flag for each account and instant, account by account.
    """
    known = [*clipped(history.known or (), history.start, NEVER)]
    if not known or not len(is_known):
        return
    missing = np.sort(instants[~is_known.reshape(-1, len(instants)).any(axis=0)]).tolist()
    outside = [at for at in missing if not any(start <= at <= end for start, end in known)]
    if outside:
        logger.warning(
            "no balance is known at %s: the table has every change only in %s",
            moment_text(outside[0]),
            spans_text(known),
        )


@any_source
def balance_series(
    source: AccountSlices,
    *,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    layout: Layout = "wide",
    tz: Zone | None = None,
    units: Units | None = None,
) -> Iterator[pd.DataFrame]:
    """Return every account's balances over time, at the points of a grid or at every change.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        The distance between points: any pandas frequency, such as "1h", "1D", "MS"; `None` for
        every change.
    start, end
        The interval, half-open; in `tz` if without a time zone. The grid begins at `start` and
        continues at the later points of `freq` below `end`. Fixed frequencies and days count from
        `start`; others, such as "MS", have their own points. By default the grid begins at the
        last point not after the first row, and ends where the known intervals end or, if that isn't
        after the last row, at the first point not before that row. Days then begin at midnight, and
        other fixed frequencies count from 1970-01-01 on the clocks of `tz`.
    by
        The columns that identify a holder, such as "party_id"; they replace `ACCOUNT_KEY` in the
        result: see `holders`. A holder's balance is unknown while one of its accounts' is.
    layout
        "wide": a column for each account, each of which takes some 5 kB; for 100,000 accounts or
        more choose "long": a row for each account and point.
    tz
        The time zone of days, which may have 23 or 25 hours, and of the result's timestamps. By
        default UTC.
    units
        Return amounts as floats in whole units: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        Wide: the index is `timestamp` (datetime64[us, tz]); the columns have the levels
        `ACCOUNT_KEY`, sorted; each cell is the balance at that moment (decimal128(38, 0), in the
        asset's smallest unit), NA if unknown. Without `freq`, each timestamp of the table in
        [start, end) has a row, and so has `start` if you pass it. With `by`, moments at which no
        group is known have no row then.

        Long: `ACCOUNT_KEY` (category of str), `timestamp`, `balance` and `state` (category of str),
        sorted by account and time. States: "observed" (the account has a row at exactly that
        time), "carried" (from an earlier row), "opening" (from an opening), "unknown" (the balance
        is NA, also because it may have changed without a row outside the known intervals). Without
        `freq`, each account has only its own rows, and `start` if you pass it.

    Raises
    ------
    ValueError
        If `start` is not before `end`, `freq` or `tz` is unknown, or the result is too large for
        memory.
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
    >>> balance_series(table, freq="1D").droplevel([0, 1, 3], axis=1)
    party_id                   a1    b2
    timestamp
    2023-04-01 00:00:00+00:00   5  <NA>
    2023-04-02 00:00:00+00:00   5     1
    2023-04-03 00:00:00+00:00   7     1
    >>> series = balance_series(table, freq="1D", start="2023-04-02", layout="long")
    >>> series[["party_id", "timestamp", "balance", "state"]]
      party_id                 timestamp  balance     state
    0       a1 2023-04-02 00:00:00+00:00        5   carried
    1       a1 2023-04-03 00:00:00+00:00        7  observed
    2       b2 2023-04-02 00:00:00+00:00        1  observed
    3       b2 2023-04-03 00:00:00+00:00        1   carried
    """
    check_layout(layout)
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)
    has_start, points = start is not None, grid.points
    if freq is None and layout == "wide":
        moments = partial(_change_points, grid, has_start)
        parts = [*each_holder(source, by, moments, grid, at_points=True)]
        points = np.sort(pd.unique(np.concatenate([times for _, times in parts])))
        check_cells(sum(holders for holders, _ in parts), len(points))
    if freq is None and layout == "long":
        series = partial(_changes, grid, has_start)
    else:
        series = partial(_series, grid, points, layout)
    yield from each_holder(source, by, series, grid, at_points=True)


def check_layout(layout: Layout) -> None:
    """Raise ValueError if a layout is neither "wide" nor "long"."""
    if layout not in {"wide", "long"}:
        raise ValueError(f"layout must be 'wide' or 'long', not {layout!r}")


def _change_points(grid: Grid, has_start: bool, history: History) -> tuple[int, NDArray[np.int64]]:
    """Return the number of holders and the times of their rows in a grid, optionally its start."""
    steps = history.at_points(grid)
    times = steps.times[_is_own(steps, grid)]
    return len(steps), np.append(times, grid.edges[:1]) if has_start else times


def _is_own(steps: Steps, grid: Grid) -> NDArray[np.bool_]:
    """Return a mask of the table's rows in a grid."""
    start, end = grid.span
    mask: NDArray[np.bool_] = steps.is_row & (steps.times >= start) & (steps.times < end)
    return mask


def _series(
    grid: Grid, points: NDArray[np.int64], layout: Layout, history: History
) -> pd.DataFrame:
    """Return the balance of each holder at each point."""
    steps = history.at_points(grid)
    check_cells(len(steps), len(points))
    words, states = _cells(steps, points)
    if layout == "wide":
        balances = int128.to_balances(words, states != _UNKNOWN)
        return wide_frame(balances, to_times(points, grid.zone).rename("timestamp"), steps.accounts)
    times = to_times(np.tile(points, len(steps)), grid.zone)
    return _frame(repeat_ids(steps.accounts, len(points)), words, states, times)


def wide_frame(cells: ExtensionArray, index: pd.DatetimeIndex, ids: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with a column for each account or group, cut from `cells` without a copy."""
    height = len(index)
    columns = {number: cells[number * height : (number + 1) * height] for number in range(len(ids))}
    frame = pd.DataFrame(columns, index=index, copy=False)
    labels = ids.astype("str")
    name, *more = labels.columns
    frame.columns = pd.MultiIndex.from_frame(labels) if more else pd.Index(labels[name], name=name)
    return frame


def _cells(steps: Steps, points: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return each account's words and state at each point."""
    height = len(points)
    words = np.empty((len(steps) * height, 2), np.int64)
    states = np.full(len(words), _CARRIED, np.int8)

    def fill(first: int, block: Steps) -> None:
        rows, is_known = as_of(block, points)
        cells = slice(first * height, (first + len(block)) * height)
        words[cells], block_states = int128.take(block.words, rows), states[cells]
        reached = count_before(points, block.times)
        hits = np.flatnonzero(np.append(points, ALWAYS)[reached] == block.times)
        block_states[block.numbers[hits] * height + reached[hits]] = _OBSERVED
        if not block.is_row.all():
            block_states[~block.is_row[rows]] = _OPENING
        block_states[~is_known] = _UNKNOWN

    map_blocks(fill, steps, points=height)
    return words, states


def _changes(grid: Grid, has_start: bool, history: History) -> pd.DataFrame:
    """Return each holder's rows in a grid, optionally with its start, in the long layout."""
    steps = history.at_points(grid)
    rows: Any = slice(None)
    if not (is_own := _is_own(steps, grid)).all():
        rows = np.flatnonzero(is_own)
    numbers, times, words = steps.numbers[rows], steps.times[rows], steps.words[rows]
    states = np.full(len(times), _OBSERVED, np.int8)
    if has_start:
        levels, held = _cells(steps, grid.edges[:1])
        carried = np.flatnonzero(held != _OBSERVED)
        places = np.searchsorted(numbers, carried)
        numbers = np.insert(numbers, places, carried)
        times = np.insert(times, places, grid.edges[0])
        words = np.insert(words, places, levels[carried], axis=0)
        states = np.insert(states, places, held[carried])
    return _frame(take_ids(steps.accounts, numbers), words, states, to_times(times, grid.zone))


def _frame(
    keys: dict[str, pd.Categorical],
    words: NDArray[np.int64],
    states: NDArray[np.int8],
    times: pd.DatetimeIndex,
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **keys,
            "timestamp": times,
            "balance": int128.to_balances(words, states != _UNKNOWN),
            "state": pd.Categorical.from_codes(states, dtype=STATES),
        },
        copy=False,
    )
