"""Compute candles, drawdowns, averages and summaries of the balances in periods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from balance_analysis.analysis import door, int128
from balance_analysis.analysis.door import any_source
from balance_analysis.analysis.flows import flow_measures, flows_of, gained
from balance_analysis.analysis.grid import Frequency, Grid, Zone, check_cells, grid_at, to_times
from balance_analysis.analysis.history import AccountSlices, History
from balance_analysis.analysis.steps import (
    MIN_TIME,
    Columns,
    Pieces,
    Steps,
    as_of,
    cut,
    in_one_thread,
    join,
    map_blocks,
    repeat_ids,
    with_amounts,
)
from balance_analysis.analysis.totals import changes_of, each_holder, holding, map_sums
from balance_analysis.errors import logger
from balance_analysis.table.moments import Moment
from balance_analysis.table.schema import ACCOUNT_KEY, Ints, Mask


@any_source
def ohlc(
    source: AccountSlices,
    freq: Frequency,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return the first, highest, lowest and last balance of each account in each period.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        The length of a period: a pandas frequency. Fixed frequencies and days count from
        `start`; others, such as "MS", follow the calendar.
    start, end
        The interval, half-open; in `tz` if without a time zone. The default is that of `flows`.
    by
        The columns that identify a holder, such as "party_id"; they replace `ACCOUNT_KEY` in the
        result: see `holders`. A holder's balance is unknown while one of its accounts' is.
    tz
        The time zone of days and of the result's timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each account and period, sorted: `ACCOUNT_KEY` (category of str), `start` and
        `end` of the period (datetime64[us, tz]), and in decimal128(38, 0), in the asset's smallest
        unit: `open` (the balance at `start`), `high` and `low` (of the known part, `open` included)
        and `close` (the balance just before `end`). In a period without rows, all four are the
        balance held. NA is unknown.

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `freq` or `tz` is unknown.
    OverflowError
        If a sum of several accounts' balances has more than 38 digits.
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
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)

    def candles(history: History) -> pd.DataFrame:
        steps = history.at_points(grid)
        measures = _measure(steps, grid, {"minimum", "maximum"})
        rows, is_open = as_of(steps, grid.edges[:-1])
        columns = {
            "open": (int128.take(steps.words, rows), is_open),
            "high": (measures["maximum"], measures["has_known"]),
            "low": (measures["minimum"], measures["has_known"]),
            "close": (measures["closing"], measures["is_closed"]),
        }
        return with_amounts(_ids(history.accounts, grid), **columns)

    yield from each_holder(source, by, candles, grid)


def _ids(accounts: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Return the ids and the bounds of each account and period."""
    bounds = grid.bounds(np.tile(np.arange(len(grid)), len(accounts)))
    return pd.DataFrame({**repeat_ids(accounts, len(grid)), **bounds}, copy=False)


@any_source
def drawdown(
    source: AccountSlices, *, by: str | Sequence[str] = ACCOUNT_KEY
) -> Iterator[pd.DataFrame]:
    """Return how far each balance lies below its account's highest so far.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    by
        The columns that identify a holder, such as "party_id"; they replace `ACCOUNT_KEY` in the
        result: see `holders`. A holder's balance is unknown while one of its accounts' is.

    Returns
    -------
    pandas.DataFrame
        One row for each row of the table, sorted: `ACCOUNT_KEY` (category of str), `timestamp`,
        `balance`, `peak` (the highest balance so far), `peak_at` (when it was first reached,
        datetime64[us, UTC]) and `depth` (peak - balance).
        Amounts are decimal128(38, 0), in the asset's smallest unit. After an unknown stretch,
        `peak`, `peak_at` and `depth` are NA, because a balance within it may have been higher.
        With `by`, moments at which a group's balance is unknown have no row.
        The index is that of `deltas`.

    Raises
    ------
    OverflowError
        If an amount of the result has more than 38 digits.
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

    def falls(history: History) -> pd.DataFrame:
        steps, rows = history.over(history.grid()), history.rows
        measures = join(map_blocks(_fall, steps))
        is_known = measures["is_known"]
        if "balance" not in rows:
            rows = with_amounts(rows, balance=(steps.words[steps.is_row], None))
        result = with_amounts(rows, peak=(measures["peak"], is_known))
        result.attrs = dict(history.attrs) if "balance" in history.rows else {}
        result["peak_at"] = to_times(np.where(is_known, measures["peak_at"], MIN_TIME))
        return with_amounts(result, depth=(measures["depth"], is_known))

    yield from each_holder(source, by, falls)


def _fall(_: int, steps: Steps) -> Columns:
    """Return the columns of `drawdown` for a block's rows."""
    peaks = int128.running_maxima(steps.words, steps.heads)
    highest = int128.take(steps.words, peaks)
    depths = int128.subtract(highest, steps.words)
    gaps = np.cumsum(steps.starts_known & ~steps.is_head)
    is_known = gaps == gaps[steps.heads][steps.numbers]
    columns = {"peak": highest, "peak_at": steps.times[peaks], "depth": depths}
    columns["is_known"] = is_known
    kept = slice(None) if steps.is_row.all() else steps.is_row
    return {name: column[kept] for name, column in columns.items()}


@any_source
def time_weighted_average(
    source: AccountSlices,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    freq: Frequency | Grid | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    partial: bool = False,
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return each account's time-weighted average balance, over an interval or each of its periods.

    The average is the sum of each balance times the time for which it was held, divided by the
    length of the period. It is computed in integers and rounded once, half to even, to the asset's
    smallest unit.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    start, end
        The interval, half-open; in `tz` if without a time zone. By default from the table's first
        row to the end of the known intervals, or to just after the last row if that is later. With
        `freq`, the default is that of `flows`.
    freq
        The length of a period: a pandas frequency; `None` for the whole interval. Fixed
        frequencies and days count from `start`; others, such as "MS", follow the calendar.
    by
        The columns that identify a holder, such as "party_id"; they replace `ACCOUNT_KEY` in the
        result: see `holders`. A holder's balance is unknown while one of its accounts' is.
    partial
        Whether to average the known part of a period that is partly unknown.
    tz
        The time zone of days, which may have 23 or 25 hours, and of the result's timestamps. By
        default UTC.

    Returns
    -------
    pandas.DataFrame
        One row for each account and period, sorted: `ACCOUNT_KEY` (category of str), `start` and
        `end` of the period (datetime64[us, tz]) and `average` (decimal128(38, 0), in the asset's
        smallest unit), NA if the balance is unknown in any part of the period; a warning is logged
        if most averages are NA. With `partial`, NA only if the balance is unknown in the whole
        period, and `known_share` is the averaged fraction of the period (float64).

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `freq` or `tz` is unknown.
    OverflowError
        If a sum of several accounts' balances has more than 38 digits.
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
    >>> averages = time_weighted_average(table, "2023-04-01", "2023-04-09", partial=True)
    >>> averages[["party_id", "average", "known_share"]]
      party_id  average  known_share
    0       a1        6        1.000
    1       b2        1        0.875
    """
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)
    missing = count = 0

    def averages(history: History) -> pd.DataFrame:
        steps = history.at_points(grid)
        measures = _measure(steps, grid, {"average"})
        known_for, spans = measures["known_for"], np.tile(np.diff(grid.edges), len(steps))
        is_known = known_for > 0 if partial else known_for == spans
        result = with_amounts(_ids(history.accounts, grid), average=(measures["average"], is_known))
        return result.assign(known_share=known_for / spans) if partial else result

    for result in each_holder(source, by, averages, grid):
        missing, count = missing + int(result["average"].isna().sum()), count + len(result)
        yield result
    if not partial and 2 * missing > count:
        logger.warning(
            "unknown averages: %s of %s. The balance is unknown in a part of their period: before "
            "the account's first row, or where changes may be missing. partial=True averages the "
            "known part",
            f"{missing:,}",
            f"{count:,}",
        )


_COLUMNS: Final = (
    *("accounts", "unknown", "first_seen", "last_seen", "rows", "changes", "opening", "closing"),
    *("minimum", "maximum", "minimum_at", "maximum_at", "inflow", "outflow", "net", "internal"),
    *("average", "drawdown", "drawdown_at", "zero_share"),
)
_OF_PARTIES: Final = ("accounts", "unknown", "internal")
_SIDES: Final = ("inflow", "outflow", "internal")
_FLOWS: Final = ("first_seen", "last_seen", "rows", "changes", "net", *_SIDES)
_TIMES: Final = ("first_seen", "last_seen", "minimum_at", "maximum_at", "drawdown_at")


@any_source
def summarize_accounts(
    source: AccountSlices,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[pd.DataFrame]:
    """Summarise each account's balance and flows in [start, end).

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`. Rows before `start` set
        an account's balance at the start of the interval.
    start, end
        The interval, half-open; UTC if without a time zone. By default from the table's first row
        to the end of the known intervals, or to just after the last row if that is later.
    columns
        The columns below to return after `ACCOUNT_KEY`, in this order; by default all. Fewer are
        computed faster.

    Returns
    -------
    pandas.DataFrame
        One row per account of the table, including accounts without a row in the interval, sorted
        by `ACCOUNT_KEY` (category of str), with

        - `first_seen`, `last_seen`: timestamps of the account's first and last row in the interval
          (datetime64[us, UTC]; NaT if it has none)
        - `rows`, `changes`: the number of its rows in the interval, and of those with a delta that
          isn't 0 (int64)
        - `opening`: the balance just before `start`; if known, `opening` + `net` = `closing`
        - `closing`: the balance just before `end`
        - `minimum`, `maximum`: of the known part of the interval
        - `minimum_at`, `maximum_at`: when it is first reached in the interval (datetime64[us, UTC])
        - `inflow`, `outflow`, `net`: the sum of the positive deltas of the rows in the interval, of
          the negative ones (as a positive number), and the difference. A row before which the
          balance is unknown, such as an account's first, has no delta and adds nothing. They are NA
          if changes may be missing in the interval; `net` is still known if `opening` and `closing`
          are.
        - `average`: the time-weighted average: see `time_weighted_average`; NA if the balance is
          unknown in any part of the interval
        - `drawdown`: the deepest fall of the balance below its highest so far, both in the known
          part of the interval; `drawdown_at`: when it was first that deep (NaT if it never fell)
        - `zero_share`: the fraction of the known time in which the balance was 0 (float64; NaN if
          no time is known)

        Amounts are decimal128(38, 0), in the asset's smallest unit, and exact. NA is unknown: the
        `opening` of an account without a row before `start`, all levels of an account without a
        row before `end`, and whatever may have changed in an unknown stretch.

    Raises
    ------
    ValueError
        If `start` is not before `end`, or `columns` names other columns.
    OverflowError
        If an amount of the result has more than 38 digits; the message names the account.
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
    return _summaries(source, None, start, end, columns)


@any_source
def summarize_parties(
    source: AccountSlices,
    *,
    by: str | Sequence[str] = "party_id",
    start: Moment | None = None,
    end: Moment | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[pd.DataFrame]:
    """Summarise the balances and flows of each party's accounts together in [start, end).

    Parameters
    ----------
    source, start, end, columns
        As for `summarize_accounts`.
    by
        The columns that identify a party, within each asset: see `holders`.

    Returns
    -------
    pandas.DataFrame
        One row per asset and party, sorted: `asset_id` and the columns of `by` (category of str),
        `accounts` (the number of its accounts), `unknown` (the number of accounts whose opening or
        closing balance is unknown, which makes the sum unknown; both int64), and the columns of
        `summarize_accounts`, with these differences:

        - `inflow`, `outflow`: the joint gain or loss of its accounts, block by block, so that
          transfers between them are in neither
        - `internal`, after `net`: transfers between its accounts in one block. `inflow` +
          `internal` is the inflow of its accounts, `outflow` + `internal` their outflow.
        - `rows`, `changes`: of all its accounts; balances are sums over its accounts, known only
          while each account's is.

    Raises
    ------
    ValueError, OverflowError, CheckError
        As `summarize_accounts`, and if `by` is invalid.

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
    return _summaries(source, by, start, end, columns)


def _summaries(
    source: AccountSlices,
    by: str | Sequence[str] | None,
    start: Moment | None,
    end: Moment | None,
    columns: Sequence[str] | None,
) -> Iterator[pd.DataFrame]:
    """Yield the summaries of accounts, or, with `by`, of parties."""
    outline, is_party = source.outline, by is not None
    names = door.group_names(ACCOUNT_KEY if by is None else by, outline.columns)
    grid = outline.grid(start=start, end=end)
    if not len(grid):
        grid = grid_at(np.array([max(outline.start, 0)]))  # without rows, any interval will do
    chosen = _to_columns(columns, is_party=is_party)
    if is_party:
        source.warn_about_missing_accounts()
        part = partial(_of_parties, grid, names, chosen)
        finish = partial(_party_summary, outline, grid, chosen)
        yield from door.each_group(source, names, grid, part, finish)
    else:
        yield from source.map(partial(_account_summary, grid, chosen), grid, per_point=True)


def _account_summary(grid: Grid, chosen: Sequence[str], history: History) -> pd.DataFrame:
    """Return the summary of accounts."""
    steps = history.at_points(grid)
    measures = _measure(steps, grid, chosen)
    for flows in _flows_of(grid, ACCOUNT_KEY, chosen, history):
        measures |= flow_measures(history, grid, flows, full=True)
    return _summary(history.accounts, grid, chosen, measures)


def _flows_of(
    grid: Grid, by: Sequence[str], chosen: Sequence[str], history: History
) -> list[door.Cells]:
    """Return the flows needed for a summary's columns; may be empty."""
    if {*_FLOWS}.isdisjoint(chosen):
        return []
    sides = [] if {*_SIDES}.isdisjoint(chosen) else ["inflow", "outflow"]
    return flows_of(grid, by, False, history, wanted=["first_seen", "last_seen", *sides])


def _of_parties(
    grid: Grid, by: Sequence[str], chosen: Sequence[str], history: History
) -> list[door.Cells]:
    """Return the changes of parties' sums, followed by their flows if needed.

    `unknown` is the number of a party's accounts whose opening or closing balance is unknown.
    """
    steps, groups = history.at_points(grid), door.make_groups(history, by)
    changes = changes_of(steps, groups)
    changes.by_group["unknown"] = groups.count(steps.are_unknown(grid.edges - 1))
    return [changes, *_flows_of(grid, by, chosen, history)]


def _party_summary(
    history: History, grid: Grid, chosen: Sequence[str], cells: Sequence[door.Cells]
) -> pd.DataFrame:
    """Return the summary of parties from the cells that `_of_parties` returns."""
    (changes, *flows), has_sides = cells, not {*_SIDES}.isdisjoint(chosen)

    def measure(first: int, sums: door.Cells) -> tuple[Columns, Columns]:
        with in_one_thread():
            measures = _measure(holding(sums), grid, chosen)
        return measures, gained(grid, first, sums) if has_sides else {}

    parts = zip(*map_sums(measure, changes, gained=has_sides), strict=True)
    measures, gains = (join([*columns]) for columns in parts)
    for flow in flows:
        measures |= flow_measures(history, grid, flow, gains or None, full=True)
    measures |= {"accounts": changes.by_group["sizes"], "unknown": changes.by_group["unknown"]}
    return _summary(changes.ids, grid, chosen, measures)


def _summary(
    ids: pd.DataFrame, grid: Grid, chosen: Sequence[str], measures: Columns
) -> pd.DataFrame:
    """Return a summary from measures of balances and, optionally, flows."""
    is_net = measures["is_opened"] & measures["is_closed"]
    if "rows" in measures:
        net = int128.subtract(measures["closing"], measures["opening"])
        for name in ("first_seen", "last_seen"):
            measures[name] = np.where(measures["rows"], measures[name], MIN_TIME)
        measures["net"] = np.where(is_net[:, None], net, measures["net"])
    has_flows = measures.get("is_known", is_net)
    is_known: Columns = {"opening": measures["is_opened"], "closing": measures["is_closed"]}
    is_known |= dict.fromkeys(_SIDES, has_flows)
    is_known["net"] = has_flows | is_net
    if "has_known" in measures:
        is_known |= dict.fromkeys(("minimum", "maximum", "drawdown"), measures["has_known"])
        is_known["average"] = measures["known_for"] == np.diff(grid.edges)
    amounts = {name: (measures[name], is_known[name]) for name in chosen if name in is_known}
    others: dict[str, Any] = {name: measures[name] for name in chosen if name not in amounts}
    others |= {name: to_times(measures[name]) for name in chosen if name in _TIMES}
    result = with_amounts(pd.DataFrame(repeat_ids(ids, 1)), **amounts).assign(**others)
    return result[[*ids, *dict.fromkeys(chosen)]]


def _to_columns(columns: Sequence[str] | None, *, is_party: bool) -> list[str]:
    """Check and return a caller's choice of summary columns, by default all."""
    known = [name for name in _COLUMNS if is_party or name not in _OF_PARTIES]
    if columns is None:
        return known
    if isinstance(columns, str) or not {*columns} <= {*known}:
        raise ValueError(f"columns must be some of {known}, not {columns!r}")
    return [*columns]


def _measure(steps: Steps, grid: Grid, columns: Iterable[str]) -> Columns:
    """Return measures of each account's balance in each period: amounts as words, and masks.

    `opening` and `closing` are the balances just before a period begins and ends.
    """
    check_cells(len(steps), len(grid))
    edges, wanted = grid.edges, frozenset(columns)
    return join(map_blocks(lambda _, block: _levels(block, edges, wanted), steps, points=len(grid)))


def _levels(steps: Steps, edges: Ints, wanted: frozenset[str]) -> Columns:
    """Return the measures of a block of accounts: see `_measure`."""
    (rows, is_known), shape = as_of(steps, edges - 1), (len(steps), len(edges))
    rows, is_known = rows.reshape(shape), is_known.reshape(shape)
    measures: Columns = {
        "opening": int128.take(steps.words, rows[:, :-1].ravel()),
        "closing": int128.take(steps.words, rows[:, 1:].ravel()),
        "is_opened": is_known[:, :-1].ravel(),
        "is_closed": is_known[:, 1:].ravel(),
    }
    if wanted <= {*_OF_PARTIES, *_FLOWS, "opening", "closing"}:
        return measures
    pieces = cut(steps, edges)
    known_for = pieces.known_lengths
    has_known = known_for > 0
    measures |= {"has_known": has_known, "known_for": known_for}
    for name, largest in (("minimum", False), ("maximum", True)):
        if wanted & {name, f"{name}_at"}:
            # An unknown piece has the balance of the one after it, so it changes no extreme.
            words = int128.extremes(pieces.words, pieces.starts, largest=largest)
            measures[name] = words
            if f"{name}_at" in wanted:
                place = int128.first_places(pieces.words, words, pieces.starts)
                measures[f"{name}_at"] = _moments(pieces, place, has_known)
    if "average" in wanted:
        measures["average"] = pieces.averages()
    if wanted & {"drawdown", "drawdown_at"}:
        peaks = int128.running_maxima(pieces.words, pieces.starts)
        depths = int128.subtract(int128.take(pieces.words, peaks), pieces.words)
        deepest = int128.extremes(depths, pieces.starts, largest=True)
        lowest = int128.first_places(depths, deepest, pieces.starts)
        measures["drawdown"] = deepest
        measures["drawdown_at"] = _moments(pieces, lowest, has_known & ~int128.is_zero(deepest))
    if "zero_share" in wanted:
        at_zero = int128.sum_runs(pieces.known_for * int128.is_zero(pieces.words), pieces.starts)
        with np.errstate(invalid="ignore"):
            measures["zero_share"] = at_zero / known_for
    return measures


def _moments(pieces: Pieces, indices: Ints, chosen: Mask) -> Ints:
    """Return when pieces begin; `MIN_TIME`, which is NaT, if not chosen."""
    # An unknown piece has the balance of the one after it, so the balance begins there.
    indices = indices + ((indices == pieces.starts) & ~pieces.is_known & chosen)
    return np.where(chosen, pieces.times[indices], MIN_TIME)
