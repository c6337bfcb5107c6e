"""Balances at moments, at the points of a grid or at every change, and their largest holders.

A balance is a right-open step: it holds from its row's timestamp until the account's next row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import any_source, group_names, make_groups, to_integers
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_instants,
    to_times,
    to_zone,
)
from balance_analysis.analysis.history import AccountSlices, History
from balance_analysis.analysis.steps import (
    MIN_TIME,
    Steps,
    as_of,
    map_blocks,
    name_of,
    repeat_ids,
    take_ids,
    with_amounts,
)
from balance_analysis.analysis.totals import each_holder, sum_at, totals_of, unknown_in
from balance_analysis.errors import logger
from balance_analysis.table.moments import EVER, Moment, clipped, moment_text
from balance_analysis.table.schema import ACCOUNT_KEY, Ints, Mask
from balance_analysis.table.text import spans_text

Layout = Literal["wide", "long"]

_STATES: Final = pd.CategoricalDtype(["observed", "carried", "opening", "unknown"])
"""Where a balance at a moment comes from."""

_CHANGES: Final = pd.CategoricalDtype(["new", "gone", "changed", "same", "unknown"])
"""How a holder changed between two moments."""

_OBSERVED, _CARRIED, _OPENING, _UNKNOWN = range(4)


@any_source
def balance_at(source: AccountSlices, at: Moment | Iterable[Moment]) -> Iterator[pd.DataFrame]:
    """Return the balance of every account at one or several moments.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        One moment or several; UTC if without a time zone. A row at exactly that time counts.

    Returns
    -------
    pandas.DataFrame
        One row per account, sorted by `ACCOUNT_KEY` (category of str): `balance`
        (decimal128(38, 0), in the asset's smallest unit; NA if unknown, because the account has no
        row yet or may have changed since) and `since` (datetime64[us, UTC], the timestamp of the
        row that set the balance; NaT if unknown). For several moments, one row per account and
        moment, in the order you passed them, with `timestamp` (datetime64[us, UTC]) before
        `balance`. At the end of a known interval, the balance is the one held until then, even if
        the table lacks a change in that very microsecond. A warning names the first moment outside
        all known intervals at which no balance is known.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance.
    ValueError, TypeError
        If a moment is invalid.

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


def held_at(history: History, instants: Ints) -> pd.DataFrame:
    """Return the result of `balance_at` for several moments (in microseconds)."""
    points, order = np.unique(instants, return_inverse=True)
    steps = history.at(points)
    check_cells(len(steps), len(points))
    (rows, is_known), shape = as_of(steps, points), (len(steps), len(points))
    rows = rows.reshape(shape)[:, order].ravel()
    is_known = is_known.reshape(shape)[:, order].ravel()
    return pd.DataFrame(
        {
            **repeat_ids(history.accounts, len(order)),
            "timestamp": to_times(np.tile(instants, len(steps))),
            "balance": int128.to_balances(int128.take(steps.words, rows), is_known),
            "since": to_times(np.where(is_known, steps.times[rows], MIN_TIME)),
        }
    )


def warn_outside(history: History, instants: Ints, is_known: Mask) -> None:
    """Warn about the first moment outside the known intervals at which no balance is known.

    `is_known` has a flag for each account and moment, account by account.
    """
    known = [*clipped(history.known or (), history.start, EVER[1])]
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
    start: Moment | None = None,
    end: Moment | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    layout: Layout = "wide",
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return every account's balances over time, at the points of a grid or at every change.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        The distance between points: a pandas frequency, such as "1h", "1D", "MS"; `None` for every
        change. Points are where the periods of `flows` begin: with "ME", too, when a month begins.
    start, end
        The interval, half-open; in `tz` if without a time zone. The grid begins at `start` and
        continues at the later points of `freq` below `end`. Fixed frequencies and days count from
        `start`; others, such as "MS", follow the calendar. By default the grid begins at the
        last point not after the first row, and ends where the known intervals end or, if that isn't
        after the last row, at the first point not before that row. Days then begin at midnight, and
        other fixed frequencies count from 1970-01-01 on the clocks of `tz`.
    by
        The columns that identify a holder, such as "party_id"; they replace `ACCOUNT_KEY` in the
        result: see `holders`. A holder's balance is unknown while one of its accounts' is.
    layout
        "wide": a column for each account, at about 5 kB per column; for 100,000 accounts or more
        choose "long": a row for each account and point.
    tz
        The time zone of days, which may have 23 or 25 hours, and of the result's timestamps. By
        default UTC.

    Returns
    -------
    pandas.DataFrame
        Wide: the index is `timestamp` (datetime64[us, tz]); the columns have the levels
        `ACCOUNT_KEY`, sorted; each cell is the balance at that moment (decimal128(38, 0), in the
        asset's smallest unit), NA if unknown. Without `freq`, each timestamp of the table in
        [start, end) has a row, and so has `start` if you pass it. With `by`, only
        times with a row of a holder whose balance is known have one.

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
        parts = [*each_holder(source, by, moments, grid)]
        points = np.sort(pd.unique(np.concatenate([times for _, times in parts])))
        check_cells(sum(holders for holders, _ in parts), len(points))
    if freq is None and layout == "long":
        series = partial(_changes, grid, has_start)
    else:
        series = partial(_series, grid, points, layout)
    yield from each_holder(source, by, series, grid)


def check_layout(layout: Layout) -> None:
    """Raise ValueError if a layout is neither "wide" nor "long"."""
    if layout not in {"wide", "long"}:
        raise ValueError(f"layout must be 'wide' or 'long', not {layout!r}")


def _change_points(grid: Grid, has_start: bool, history: History) -> tuple[int, Ints]:
    """Return the number of holders and the times of their rows in a grid, optionally its start."""
    steps = history.at_points(grid)
    times = steps.times[_is_own(steps, grid)]
    return len(steps), np.append(times, grid.edges[:1]) if has_start else times


def _is_own(steps: Steps, grid: Grid) -> Mask:
    """Return a mask of the table's rows in a grid."""
    start, end = grid.span
    mask: Mask = steps.is_row & (steps.times >= start) & (steps.times < end)
    return mask


def _series(grid: Grid, points: Ints, layout: Layout, history: History) -> pd.DataFrame:
    """Return the balance of each holder at each point."""
    steps = history.at_points(grid)
    check_cells(len(steps), len(points))
    words, states = _cells(steps, points)
    if layout == "wide":
        index = to_times(points, grid.zone).rename("timestamp")

        def name(cell: int) -> str:
            number, point = divmod(cell, len(points))
            who, when = name_of(history.accounts, number), moment_text(int(points[point]))
            return f"the balance of {who} at {when}"

        balances = int128.to_balances(words, states != _UNKNOWN, name)
        return wide_frame(balances, index, history.accounts)
    times = to_times(np.tile(points, len(steps)), grid.zone)
    return _frame(repeat_ids(history.accounts, len(points)), words, states, times)


def wide_frame(cells: ExtensionArray, index: pd.DatetimeIndex, ids: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with a column for each account or group, cut from `cells` without a copy."""
    height = len(index)
    columns = {number: cells[number * height : (number + 1) * height] for number in range(len(ids))}
    frame = pd.DataFrame(columns, index=index, copy=False)
    labels = ids.astype("str")
    name, *more = labels.columns
    frame.columns = pd.MultiIndex.from_frame(labels) if more else pd.Index(labels[name], name=name)
    return frame


def _cells(steps: Steps, points: Ints) -> tuple[Ints, NDArray[np.int8]]:
    """Return each account's words and state at each point."""
    height = len(points)
    words = np.empty((len(steps) * height, steps.words.shape[1]), np.int64)
    states = np.full(len(words), _CARRIED, np.int8)

    def fill(first: int, block: Steps) -> None:
        reached = count_before(points, block.times)
        rows, is_known = as_of(block, points, reached)
        cells = slice(first * height, (first + len(block)) * height)
        block.words.take(rows, axis=0, out=words[cells], mode="clip")  # "raise" would copy
        block_states = states[cells]
        is_hit = np.append(points, MIN_TIME)[reached] == block.times
        hits = np.flatnonzero(is_hit & block.is_row)  # an opening may stand at MIN_TIME
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
    return _frame(take_ids(history.accounts, numbers), words, states, to_times(times, grid.zone))


def _frame(
    keys: dict[str, pd.Categorical], words: Ints, states: NDArray[np.int8], times: pd.DatetimeIndex
) -> pd.DataFrame:
    frame = pd.DataFrame({**keys, "timestamp": times}, copy=False)
    return with_amounts(frame, balance=(words, states != _UNKNOWN)).assign(
        state=pd.Categorical.from_codes(states, dtype=_STATES)
    )


@any_source
def holders(
    source: AccountSlices,
    at: Moment | None = None,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    n: int | None = None,
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return the holders of each asset at a moment, the largest first.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        The moment; in `tz` if without a time zone. By default just before the end of the known
        intervals, or at the last row if that is later.
    by
        The columns that identify a holder, within each asset. By default each account is a holder;
        with "party_id", all accounts of a party are one. Any other column of the table with one
        value per account works too, such as `table["desk"] = table["party_id"].map(desks)`.
        Accounts without a value form a holder NA. Accounts that belong to nobody, such as pools,
        have the party "network".
    n
        Maximum number of holders of each asset; by default all, including those that hold nothing.
    tz
        The time zone of a moment without one. By default UTC.

    Returns
    -------
    pandas.DataFrame
        Sorted by `asset_id`, then `balance`, the largest first, unknown ones last: `asset_id` and
        the columns of `by` (category of str), and

        - `balance`: the sum of the known balances (decimal128(38, 0), in the asset's smallest
          unit), NA if all are unknown
        - `share`: `balance` as a fraction of the asset's known balances (float64, NaN if the
          balance is unknown or nobody holds anything)
        - `cumulative_share`: the joint share of this holder and those above it (float64, NaN where
          `share` is)
        - `accounts`, `unknown`: the number of the holder's accounts, and of those whose balance is
          unknown at that time and left out of `balance` (int64).

    Raises
    ------
    ValueError
        If `at` is several moments, `by` is invalid, or `n` is below 1.
    OverflowError
        If an amount of the result has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_BOND"] * 2,
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 3 + ["2023-04-09"], utc=True),
    ...     "balance": [1, 1, 6, 5],
    ... })
    >>> holders(table, "2023-04-03", by="party_id").drop(columns="asset_id")
      party_id  balance  share  cumulative_share  accounts  unknown
    0       b2        6   0.75              0.75         2        1
    1       a1        2   0.25              1.00         2        0
    """
    source.warn_about_missing_accounts()
    if at is None:
        points = source.outline.grid(tz=tz).edges[-1:] - 1
    else:
        points, is_one = to_instants(at, to_zone(tz))
        if not is_one:
            raise ValueError(f"at must be one moment, not {at!r}; compare takes two")
    history = source.history_at(points)
    groups = make_groups(history, group_names(by, source.outline.columns))
    sums = sum_at(history.at(points), groups, points)
    warn_outside(history, points, sums.columns["known"] > 0)
    held = totals_of(sums, dt.UTC).rename(columns={"total": "balance"})
    held["accounts"] = groups.sizes[sums.columns["groups"]]
    held = largest(held, held["balance"], None)
    amounts = to_integers(held)["balance"]
    of_asset = amounts.fillna(0).groupby(held["asset_id"].cat.codes)
    wholes = of_asset.transform("sum").where(amounts.notna(), 0)
    running = of_asset.transform(lambda amounts: amounts.cumsum())
    held["share"] = int128.quotients(amounts, wholes)
    held["cumulative_share"] = int128.quotients(running, wholes)
    names = [*groups.ids, "balance", "share", "cumulative_share", "accounts", "unknown"]
    yield largest(held[names], held["balance"], n)


def largest(ranked: pd.DataFrame, amounts: pd.Series[Any], n: int | None) -> pd.DataFrame:
    """Sort rows by the size of their amounts (see `by_size`), and keep at most `n` per asset.

    Raises
    ------
    TypeError, ValueError
        If `n` isn't a whole number, or is below 1.
    """
    ranked = ranked.iloc[by_size(ranked["asset_id"], amounts)]
    if n is not None:
        if not isinstance(n, Integral):
            raise TypeError(f"n must be a whole number, not {n!r}")
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        ranked = ranked.groupby("asset_id", observed=True).head(n)
    ids = ranked.select_dtypes("category")
    used = {str(name): ids[name].cat.remove_unused_categories() for name in ids}
    return ranked.assign(**used).reset_index(drop=True)


def by_size(assets: pd.Series[Any], amounts: pd.Series[Any]) -> NDArray[np.uint64]:
    """Return the order of amounts: by asset, the largest first, unknown ones last."""
    keys = pa.table({"asset": assets.cat.codes.to_numpy(), "amount": pa.array(amounts.array)})
    order = pc.sort_indices(keys, [("asset", "ascending"), ("amount", "descending")])
    places: NDArray[np.uint64] = order.to_numpy()
    return places


@any_source
def compare(
    source: AccountSlices, at: tuple[Moment, Moment], *, by: str | Sequence[str] = ACCOUNT_KEY
) -> Iterator[pd.DataFrame]:
    """Return how each holder's balance changed between two moments, the largest changes first.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        The two moments, the earlier one first; UTC if without a time zone.
    by
        The columns that identify a holder, within each asset; by default each account is one.
        "party_id", "account_type" or "asset_id" compare their sums. See `holders`.

    Returns
    -------
    pandas.DataFrame
        One row per holder, sorted by `asset_id`, then the size of `change`, the largest first,
        unknown ones last: `asset_id` and the columns of `by` (category of str),

        - `before`, `after`: its balance at the two moments (decimal128(38, 0), in the asset's
          smallest unit); NA if the balance of one of its accounts is unknown.
        - `change`: `after` - `before`, and `change_percent`: `change` in percent of the size of
          `before` (float64, NaN if that is 0). Both are NA if `before` or `after` is unknown.
        - `state` (category of str): "new" (`before` is 0), "gone" (`after` is 0), "changed", "same"
          or "unknown" (`before` or `after` is unknown)
        - `accounts`, `unknown`: the number of the holder's accounts, and of those whose balance is
          unknown at one of the moments (int64).

    Raises
    ------
    ValueError
        If `at` isn't two moments, the earlier one first, or `by` is invalid.
    OverflowError
        If an amount of the result has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"] * 2, utc=True),
    ...     "balance": [4, 5, 9, 0],
    ... })
    >>> changes = compare(table, at=("2023-04-02", "2023-04-03"))
    >>> changes[["party_id", "before", "after", "change", "change_percent", "state"]]
      party_id  before  after  change  change_percent    state
    0       b2       9      0      -9          -100.0     gone
    1       a1       4      5       1            25.0  changed
    """
    points = _to_points(at)
    source.warn_about_missing_accounts()
    history, names = source.history_at(points), group_names(by, source.outline.columns)
    steps, groups = history.at(points), make_groups(history, names)
    sums = sum_at(steps, groups, points)
    words = sums.columns["words"]
    first, last = words.reshape(-1, 2, words.shape[1]).swapaxes(0, 1)
    is_first, is_last = unknown_in(sums).reshape(-1, 2).T == 0
    is_known = is_first & is_last
    change = int128.subtract(last, first)
    states = np.select(
        [~is_known, int128.is_zero(change), int128.is_zero(first), int128.is_zero(last)],
        ["unknown", "same", "new", "gone"],
        "changed",
    )
    moves = zip(int128.integers_of(change), is_known, strict=True)
    percents = (100 * move if known else pd.NA for move, known in moves)
    result = with_amounts(
        groups.ids, before=(first, is_first), after=(last, is_last), change=(change, is_known)
    ).assign(
        change_percent=int128.quotients(percents, map(abs, int128.integers_of(first))),
        state=pd.Categorical(states, dtype=_CHANGES),
        accounts=groups.sizes,
        unknown=groups.count(steps.are_unknown(points)),
    )
    result = largest(result, result["change"].abs(), None)
    result["state"] = result["state"].astype(_CHANGES)
    yield result


def _to_points(at: tuple[Moment, Moment]) -> Ints:
    """Check two moments, and return them in microseconds."""
    if isinstance(at, str) or len(at) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f"at must be two moments, not {at!r}")
    points, _ = to_instants(at)
    if points[0] >= points[1]:
        raise ValueError(f"at must be two moments, the earlier one first, not {at[0]} and {at[1]}")
    return points
