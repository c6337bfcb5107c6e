"""What each account, or party, did in an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import door, each_account, each_party
from balance_analysis.analysis.flows import group_flows
from balance_analysis.analysis.grid import grid_at, to_times
from balance_analysis.analysis.history import History, Source, open_history
from balance_analysis.analysis.int128 import sum_runs
from balance_analysis.analysis.statistics import averages
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
    spread,
)
from balance_analysis.analysis.sums import make_groups
from balance_analysis.analysis.totals import merged
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant

_COLUMNS: Final = (
    *("accounts", "unknown", "first_seen", "last_seen", "rows", "changes", "opening", "closing"),
    *("minimum", "maximum", "minimum_at", "maximum_at", "inflow", "outflow", "net", "internal"),
    *("average", "drawdown", "drawdown_at", "zero_share"),
)
_OF_PARTIES: Final = ("accounts", "unknown", "internal")
_FLOWS: Final = frozenset(
    ["first_seen", "last_seen", "rows", "changes", "inflow", "outflow", "net", "internal"]
)
_LEVELS: Final = frozenset(
    [
        "minimum",
        "maximum",
        "minimum_at",
        "maximum_at",
        "average",
        "drawdown",
        "drawdown_at",
        "zero_share",
    ]
)
_TIMES: Final = ("first_seen", "last_seen", "minimum_at", "maximum_at", "drawdown_at")


@door(each_account)
def summarize_accounts(
    source: Source,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    columns: Sequence[str] | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Summarise what the balance of each account did in [start, end).

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`. Rows before `start` tell
        which balance an account brings into the interval.
    start, end
        The interval, half-open; without a time zone UTC. By default from the table's first row to
        the end of what is known, else to just after its last row.
    columns
        Which of the columns below to return besides `ACCOUNT_KEY`, in this order; by default all.
        Fewer are computed faster.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row per account of the table, also for one that is quiet in the interval,
        sorted by `ACCOUNT_KEY` (category of str), with

        - `first_seen`, `last_seen`: timestamps of the account's first and last row in the interval
          (datetime64[us, UTC]; NaT where it has none)
        - `rows`, `changes`: its rows in the interval, and those whose balance differs from the
          account's previous row, wherever that is (int64)
        - `opening`: the balance just before `start`; where known, with `net` it makes `closing`
        - `closing`: the balance just before `end`
        - `minimum`, `maximum`: of the known part of the interval
        - `minimum_at`, `maximum_at`: when in the interval it was first held (datetime64[us, UTC])
        - `inflow`, `outflow`, `net`: the sum of the positive deltas of the rows in the interval, of
          the negative ones (as a positive number), and the difference. An account's first row has
          no delta: what was before it is unknown. Where a part of the interval is not known, they
          are NA; but for `net` where `opening` and `closing` are known.
        - `average`: the time-weighted average, as of `time_weighted_average`; NA where the balance
          is unknown in any part of the interval
        - `drawdown`: the furthest that the balance fell below its highest of the interval so far;
          `drawdown_at`: when it was first that far (NaT where it never fell)
        - `zero_share`: the part of the known time in which the balance was 0 (float64; NaN where
          nothing is known)

        Amounts are decimal128(38, 0), in the asset's smallest unit, and exact. NA is unknown: the
        `opening` of an account that has no row before `start`, every amount of one that has no
        row before `end`; and what may have changed in a stretch that is
        not known.

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `columns` names other columns.
    OverflowError
        If a delta or a sum has more than 38 digits; the message names the account.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-09"],
    ...     utc=True), "balance": [5, 7, 1],
    ... })
    >>> summarize_accounts(table)[["rows", "opening", "closing", "maximum", "inflow", "net"]]
       rows  opening  closing  maximum  inflow  net
    0     3     <NA>        1        7       2   -4
    """
    history = open_history(source)
    return in_units(summarize(history, ACCOUNT_KEY, start, end, columns), units, history.attrs)


@door(each_party)
def summarize_parties(
    source: Source,
    *,
    by: str | Sequence[str] = "party_id",
    start: Instant | None = None,
    end: Instant | None = None,
    columns: Sequence[str] | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Summarise what the accounts of each party, together, did in [start, end).

    Parameters
    ----------
    source, start, end, columns, units
        As for `summarize_accounts`.
    by
        The columns that make a party, within each asset: see `holders`.

    Returns
    -------
    pandas.DataFrame
        One row per asset and party, sorted: `asset_id` and the columns of `by` (category of str),
        `accounts`, how many it has, `unknown`, of how many of these the opening or the closing
        balance is unknown, so that a sum is (int64), and the columns of `summarize_accounts`, with
        these differences:

        - `inflow`, `outflow`: what its accounts together gained or lost, block by block, so that
          what one of them gives another is in neither
        - `internal`, behind `net`: what moved between its own accounts in one block. With
          `inflow` it makes the inflow of its accounts, with `outflow` their outflow.
        - `rows`, `changes`: of all its accounts; balances are those of all of them together, known
          only while each one is.

    Raises
    ------
    ValueError, OverflowError, CheckError
        As `summarize_accounts`, and if `by` names no columns that make a party.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"] * 2,
    ...     "party_id": "a1", "market_id": ["", "m1"] * 2,
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 2 + ["2023-04-03"] * 2, utc=True),
    ...     "balance": [5, 0, 2, 4],
    ... })
    >>> summarize_parties(table)[["accounts", "closing", "inflow", "outflow", "internal"]]
       accounts  closing  inflow  outflow  internal
    0         2        6       1        0         3
    """
    history = open_history(source)
    return in_units(summarize(history, by, start, end, columns), units, history.attrs)


def summarize(
    history: History,
    by: str | Sequence[str],
    start: Instant | None,
    end: Instant | None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the summary of accounts, or of other holders: see `summarize_parties`."""
    held, grid = merged(history, by), history.grid(start=start, end=end)
    chosen = _to_columns(columns, is_party=held is not history)
    wanted = frozenset(chosen)
    if not len(grid):
        grid = grid_at(np.array([max(history.start, 0)]))  # without a row any interval will do
    (own, _), (steps, _) = history.over(grid), held.over(grid)
    groups, is_party = make_groups(history, [*map(str, held.accounts)]), held is not history
    found = join(map_blocks(lambda _, block: _levels(block, grid.edges, wanted), steps))
    is_told = found["is_opened"] & found["is_closed"]
    has_flows = is_told
    if wanted & _FLOWS:
        net, too_large = int128.subtract(found["closing"], found["opening"])
        check_fits(is_told & too_large, lambda number: f"the net of {steps.name(number)}")
        cells, flowed = group_flows(own, groups, grid, internal=is_party)
        del flowed["unknown"]
        found |= {name: spread(column, cells, len(groups)) for name, column in flowed.items()}
        for name in ("first_seen", "last_seen"):
            found[name] = np.where(found["rows"], found[name], ALWAYS)
        found["net"] = np.where(is_told[:, None], net, found["net"])
        every = np.arange(len(groups))
        has_flows = history.knows(groups.numbers, every, np.zeros_like(every), grid.edges)
    if is_party:
        is_lacking = ~as_of(own, grid.edges - 1).is_known.reshape(len(own), 2).all(axis=1)
        found["accounts"] = groups.sizes
        found["unknown"] = np.bincount(groups.numbers[is_lacking], minlength=len(groups))
    is_known: Columns = {"opening": found["is_opened"], "closing": found["is_closed"]}
    is_known |= dict.fromkeys(("inflow", "outflow", "internal"), has_flows)
    is_known["net"] = has_flows | is_told
    if "has_known" in found:
        is_known |= dict.fromkeys(("minimum", "maximum", "drawdown"), found["has_known"])
        is_known["average"] = found["known_throughout"]
    result: dict[str, Any] = {name: found[name] for name in chosen}
    result |= {n: int128.to_balances(found[n], is_known[n]) for n in chosen if n in is_known}
    result |= {name: to_times(found[name]) for name in chosen if name in _TIMES}
    return pd.DataFrame({**repeat_ids(held.accounts, 1), **result})


def _to_columns(columns: Sequence[str] | None, *, is_party: bool) -> list[str]:
    """Return the columns that are asked for, by default all."""
    there = [name for name in _COLUMNS if is_party or name not in _OF_PARTIES]
    if columns is None:
        return there
    if isinstance(columns, str) or not {*columns} <= {*there}:
        raise ValueError(f"columns must be some of {there}, not {columns!r}")
    return [*columns]


def _levels(steps: Steps, edges: NDArray[np.int64], wanted: frozenset[str]) -> Columns:
    """Return what a block of accounts held, amounts as words, times in microseconds."""
    held = as_of(steps, edges - 1)
    levels = int128.take(steps.words, held.rows).reshape(len(steps), 2, 2)
    is_told = held.is_known.reshape(len(steps), 2)
    found: Columns = {
        **dict(zip(("opening", "closing"), levels.swapaxes(0, 1), strict=True)),
        **dict(zip(("is_opened", "is_closed"), is_told.T, strict=True)),
    }
    if not wanted & _LEVELS:
        return found
    pieces = cut(steps, edges)
    found |= {"has_known": pieces.has_known, "known_throughout": pieces.known_throughout}
    if wanted & {"minimum", "maximum", "minimum_at", "maximum_at"}:
        found |= _extremes(pieces)
    if "average" in wanted:
        found["average"] = averages(pieces)
    if wanted & {"drawdown", "drawdown_at"}:
        found |= _drawdowns(pieces)
    if "zero_share" in wanted:
        at_zero = sum_runs(pieces.known_for * int128.is_zero(pieces.words), pieces.starts)
        with np.errstate(invalid="ignore"):
            found["zero_share"] = at_zero / pieces.known_lengths
    return found


def _extremes(pieces: Pieces) -> Columns:
    columns: Columns = {}
    for name, largest in (("minimum", False), ("maximum", True)):
        found = int128.first_extremes(pieces.words, pieces.starts, largest=largest)
        columns[name] = int128.take(pieces.words, found)
        columns[f"{name}_at"] = _moments(pieces, found, pieces.has_known)
    return columns


def _moments(
    pieces: Pieces, found: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return when pieces begin, `ALWAYS`, which is NaT, where not chosen."""
    # An unknown piece has the balance of the one after it, with which it is known.
    found = found + ((found == pieces.starts) & ~pieces.is_known & chosen)
    return np.where(chosen, pieces.times[found], ALWAYS)


def _drawdowns(pieces: Pieces) -> Columns:
    """Return each account's largest drawdown, and when it was first that deep."""
    peaks = int128.running_maxima(pieces.words, pieces.starts)
    depths, too_large = int128.subtract(int128.take(pieces.words, peaks), pieces.words)
    steps, rows = pieces.steps, pieces.rows
    check_fits(too_large, lambda piece: f"the drawdown of {steps.name_row(int(rows[piece]))}")
    found = int128.first_extremes(depths, pieces.starts, largest=True)
    deepest = int128.take(depths, found)
    fell = pieces.has_known & ~int128.is_zero(deepest)
    return {"drawdown": deepest, "drawdown_at": _moments(pieces, found, fell)}
