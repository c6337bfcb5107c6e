"""What changed: the delta of each row, and what flowed in and out in each period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.balances import Layout, check_layout, wide_frame
from balance_analysis.analysis.door import added_up, door, each_account
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_times,
)
from balance_analysis.analysis.history import History, Source, open_history
from balance_analysis.analysis.steps import (
    ALWAYS,
    NEVER,
    Columns,
    Steps,
    check_fits,
    join,
    map_blocks,
    name_of,
    spread,
    step_deltas,
    take_ids,
)
from balance_analysis.analysis.sums import Groups, make_groups, pairs_of
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant

AMOUNTS: Final = ("inflow", "outflow", "net")
INTERNAL: Final = "internal"
_BLOCK: Final = "what flowed in one block"
COUNTS: Final = ("changes", "active", "unknown")
_TOGETHER: Final = {"first_seen": (np.minimum, NEVER), "last_seen": (np.maximum, ALWAYS)}
"""How others than sums are put together, and from what on."""

Flow = Literal["net", "inflow", "outflow", "internal", "changes", "active", "unknown"]


@door(each_account)
def deltas(
    source: Source,
    *,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return a table with the difference of each balance to the account's row before it.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        The columns of a table, sorted, and `delta` (decimal128(38, 0), in the asset's smallest
        unit): NA on an account's first row, unless an opening says what was before it, and on the
        first one behind a stretch that is not known. Rows that came sorted, such as a selection of
        a table, keep their index; others get a new one.

    Raises
    ------
    OverflowError
        If a delta has more than 38 digits.
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
    >>> deltas(table)[["party_id", "timestamp", "balance", "delta"]]
      party_id                 timestamp  balance  delta
    0       a1 2023-04-01 00:00:00+00:00        5   <NA>
    1       a1 2023-04-03 00:00:00+00:00        7      2
    2       b2 2023-04-02 00:00:00+00:00        1   <NA>
    """
    history = open_history(source)
    found = row_deltas(history)
    found.attrs = dict(history.attrs)
    return in_units(found, units, history.attrs)


def row_deltas(history: History) -> pd.DataFrame:
    """Return `deltas` of a table that is open."""
    steps, _ = history.over()
    words = np.empty_like(steps.words)

    def differ(first: int, block: Steps) -> None:
        begin = steps.bounds[first]
        step_deltas(block, out=words[begin : begin + len(block.times)])

    map_blocks(differ, steps)
    kept = slice(None) if steps.is_row.all() else steps.is_row
    delta = int128.to_balances(words[kept], ~steps.starts_known[kept])
    return history.rows.assign(delta=delta)


@door(added_up)
def flows(
    source: Source,
    *,
    freq: Frequency | Grid | None = "1D",
    by: str | Sequence[str] = ACCOUNT_KEY,
    start: Instant | None = None,
    end: Instant | None = None,
    layout: Layout = "long",
    value: Flow = "net",
    internal: bool = False,
    tz: Zone | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return what flowed into and out of accounts, or groups of them, in each period.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        How long a period is: any frequency of pandas; `None` for the interval as a whole. Fixed
        frequencies and days count from `start`, others have points of their own, at which periods
        begin: a month is "MS", a week from Monday on "W". What pandas labels by its end, such as
        "ME", is that period as well.
    by
        The columns that make a group, within each asset: see `totals`. The flows of a group are
        those of its accounts added up, so what one of them gives another counts as in and as out,
        unless `internal` tells it apart, as `summarize_parties` does.
    start, end
        The interval, half-open; without a time zone in `tz`. By default from the beginning of the
        period of the first row, or of what is known, to the end of what is known, else to that of
        the period of the last row: days begin at midnight, other fixed frequencies count from
        1970-01-01 by the clocks of `tz`.
    layout
        "long": a row for each group and period that has a row of the table. "wide": a column for
        each group, and a row for each period.
    value
        What the cells of the wide layout are: one of the columns of the long one.
    internal
        Whether to tell apart what moved between accounts of a group in one block. It is then in the
        column `internal`, and `inflow` and `outflow` are those from and to others.
    tz
        The time zone in which days are days, and of the result's timestamps. By default UTC.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        Long: one row for each group and period that has a row of the table, sorted by group and
        time: `asset_id` and the columns of `by` (category of str), `start` and `end` of the period
        (datetime64[us, tz]), and

        - `inflow`, `outflow`: the sum of the positive deltas, and of the negative ones as a
          positive number; `net`: inflow - outflow. All decimal128(38, 0), in the asset's smallest
          unit; NA where a part of the period is not known, so that rows may be missing.
        - `internal`, if asked for: in each block of a group, the lesser of what its accounts gained
          and what they lost, as `inflow` is.
        - `changes`: the rows whose balance differs from the account's row before it (int64).
        - `active`: the accounts that have such a row (int64).
        - `unknown`: the rows whose delta is unknown, as they are an account's first, or the first
          behind a stretch that is not known, and no opening says what was before: what came
          with them is in no flow (int64).

        Wide: the index is the `start` of every period of the interval (datetime64[us, tz]); the
        columns are the groups, with the levels `by`. Each cell is `value`: what the long layout
        has, else 0 where it is known that nothing happened, and NA where that is not known. Where
        all that happened is unknown, as on the day of an account's first row, amounts are NA too.
        Counts are Int64.

    Raises
    ------
    OverflowError
        If a delta or a sum has more than 38 digits.
    ValueError
        If `by` names other columns, `start` is not before `end`, `freq`, `tz`, `layout` or `value`
        is none, or the wide layout doesn't fit into memory.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(
    ...         ["2023-04-01T08:00", "2023-04-01T09:00", "2023-04-03T10:00"], utc=True),
    ...     "balance": [5, 7, 1],
    ... })
    >>> flows(table, by="asset_id").drop(columns=["end", "asset_id", "active"])
                          start  inflow  outflow  net  changes  unknown
    0 2023-04-01 00:00:00+00:00       2        0    2        1        1
    1 2023-04-03 00:00:00+00:00       0        6   -6        1        0
    >>> flows(table, by="asset_id", layout="wide")
    asset_id                   VOTE
    start
    2023-04-01 00:00:00+00:00     2
    2023-04-02 00:00:00+00:00     0
    2023-04-03 00:00:00+00:00    -6
    """
    check_layout(layout)
    values = [*AMOUNTS, *[INTERNAL] * internal, *COUNTS]
    if value not in values:
        raise ValueError(f"value must be one of {values}, not {value!r}")
    history = open_history(source)
    grid = history.grid(freq, start=start, end=end, tz=tz)
    if layout == "long":
        found = sum_flows(history, grid, by, internal=internal)
        return in_units(found, units, history.attrs)
    ids = make_groups(history, by).ids
    index = to_times(grid.edges[:-1], grid.zone).rename("start")
    cells = sum_flows(history, grid, by, full=True, internal=internal)[value].array
    return in_units(wide_frame(cells, index, ids), units, history.attrs)


def sum_flows(
    history: History,
    grid: Grid,
    by: str | Sequence[str],
    *,
    full: bool = False,
    internal: bool = False,
) -> pd.DataFrame:
    """Return `flows` of a history over a grid, in the long layout.

    If it is `full`, there is a row for each group and period: where the table has no row, amounts
    and counts (Int64) are 0 if it is known that nothing happened, else NA. Where all that happened
    is unknown, amounts are NA.
    """
    groups, (steps, _) = make_groups(history, by), history.over(grid)
    cells, found = group_flows(steps, groups, grid, internal=internal)
    group, period = np.divmod(cells, max(len(grid), 1))
    counts: dict[str, Any] = {what: found[what] for what in COUNTS}
    if full:
        check_cells(len(groups), len(grid))
        group, period = np.divmod(np.arange(len(groups) * len(grid)), max(len(grid), 1))
        found = {what: spread(column, cells, len(group)) for what, column in found.items()}
    told = history.knows(groups.numbers, group, period, grid.edges)
    if full:
        lacks = ~told
        lacks[cells] = False
        counts = {what: pd.arrays.IntegerArray(found[what], lacks) for what in COUNTS}
        told &= (found["unknown"] == 0) | (found["changes"] != 0)
    names = (name for name in (*AMOUNTS, INTERNAL) if name in found)
    amounts: dict[str, Any] = {x: int128.to_balances(found[x], told) for x in names}
    columns = {**take_ids(groups.ids, group), **grid.bounds(period), **amounts, **counts}
    return pd.DataFrame(columns, copy=False)


def group_flows(
    steps: Steps, groups: Groups, grid: Grid, *, internal: bool
) -> tuple[NDArray[np.int64], Columns]:
    """Return the cells of a group and a period that have a row, ascending, and their `flow_runs`.

    What is `internal` is told apart, if that is wanted: see `flows`.
    """
    found = account_flows(steps, grid)
    cells = groups.numbers[found.pop("number")] * len(grid) + found.pop("period")

    def name(cell: int) -> str:
        return f"a flow of {name_of(groups.ids, int(cells[cell]) // len(grid))}"

    if np.any(cells[1:] <= cells[:-1]):
        cells, places = _used_cells(cells, len(groups) * len(grid))
        count = len(cells)
        found = {what: _add_up(what, found[what], places, count, name) for what in found}
    if internal:
        inflow = _from_others(steps, groups, grid, cells)
        found[INTERNAL] = int128.subtract(found["inflow"], inflow)[0]
        found["outflow"] = int128.subtract(found["outflow"], found[INTERNAL])[0]
        found["inflow"] = inflow
    return cells, found


def _from_others(
    steps: Steps, groups: Groups, grid: Grid, cells: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return what each cell's group gained in blocks in which its accounts together gained."""
    deltas, periods = step_deltas(steps), count_before(grid.edges - 1, steps.times) - 1
    is_inside = steps.is_row & (periods >= 0) & (periods < len(grid))
    rows = np.flatnonzero(is_inside & ~int128.is_zero(deltas))
    owners, times = groups.numbers[steps.numbers[rows]], steps.times[rows]
    keys = pairs_of(owners, times).keys(owners, times)
    blocks, places = np.unique(keys, return_inverse=True)
    net = _add_up("", int128.take(deltas, rows), places, len(blocks), lambda _: _BLOCK)
    cell_of = np.empty(len(blocks), np.int64)
    cell_of[places] = np.searchsorted(cells, owners * len(grid) + periods[rows])
    gained = np.where((net[:, 1] >= 0)[:, None], net, 0)
    # It is at most what the accounts gained one by one, which fits.
    return int128.sum_words(gained, cell_of, len(cells))[0]


def _add_up(
    what: str,
    column: NDArray[np.int64],
    places: NDArray[np.int64],
    count: int,
    name: Callable[[int], str],
) -> NDArray[np.int64]:
    """Return what belongs to the same place together; `name` tells what it is, by the place."""
    if column.ndim > 1:
        sums, too_large = int128.sum_words(column, places, count)
        check_fits(too_large, name)
        return sums
    together, first = _TOGETHER.get(what, (np.add, 0))
    found = np.full(count, first)
    together.at(found, places, column)
    return found


def _used_cells(
    cells: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct ones of so many cells, ascending, and the place of each among them."""
    if count > 8 * len(cells):
        return np.unique(cells, return_inverse=True)
    is_used = np.zeros(count, bool)
    is_used[cells] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[cells]


def account_flows(steps: Steps, grid: Grid) -> Columns:
    """Return the flows of each account in each period in which it has a row."""

    def run(first: int, block: Steps) -> Columns:
        found = flow_runs(block, grid.edges)
        found["number"] += first
        return found

    return join(map_blocks(run, steps))


def flow_runs(steps: Steps, edges: NDArray[np.int64]) -> Columns:
    """Return what each account's rows in each period between edges add up to.

    Returns
    -------
    dict
        Of each account and period that has a row, sorted: `number` of the account, `period`,
        `first_seen` and `last_seen` (microseconds), `rows`, `changes`, `active` (1 where there
        is a change, else 0), `unknown` (of how many rows the delta is unknown) and the words of
        `inflow`, `outflow` and `net`.

    Raises
    ------
    OverflowError
        If a delta or a sum has more than 38 digits.
    """
    periods = count_before(edges - 1, steps.times)
    periods -= 1
    is_inside = steps.is_row & (periods >= 0) & (periods < len(edges) - 1)
    is_start = steps.is_head.copy()
    is_start[1:] |= (periods[1:] != periods[:-1]) | (is_inside[1:] != is_inside[:-1])
    starts = np.flatnonzero(is_start)
    stops = np.append(starts[1:], len(periods))[: len(starts)]
    deltas = step_deltas(steps)
    inflow, inflow_too_large = _sum_positive(deltas, starts, stops)
    before = starts - ~steps.starts_known[starts]
    net, net_too_large = int128.subtract(
        int128.take(steps.words, stops - 1), int128.take(steps.words, before)
    )
    outflow, outflow_too_large = int128.subtract(inflow, net)
    too_large = inflow_too_large | net_too_large | outflow_too_large
    check_fits(
        too_large & is_inside[starts],
        lambda run: f"a flow of {steps.name(int(steps.numbers[starts[run]]))}",
    )
    unknown = steps.starts_known[starts].astype(np.int64)
    if steps.valid_until is not None:
        unknown = int128.sum_runs(steps.starts_known, starts)
    changes = int128.sum_runs(~int128.is_zero(deltas), starts)
    found = {
        "number": np.cumsum(steps.is_head[starts]) - 1,
        "period": periods[starts],
        "first_seen": steps.times[starts],
        "last_seen": steps.times[stops - 1],
        "rows": stops - starts,
        "changes": changes,
        "active": (changes > 0).astype(np.int64),
        "unknown": unknown,
        "inflow": inflow,
        "outflow": outflow,
        "net": net,
    }
    if is_inside.all():
        return found
    return {name: column[is_inside[starts]] for name, column in found.items()}


def _sum_positive(
    words: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sum of the positive amounts of each run, and which have more than 38 digits."""
    is_positive = ~(words[:, 1] >> np.int64(63))  # all bits of what is not negative
    width = int128.ROOM - int(np.max(stops - starts, initial=0)).bit_length()
    digits = [int128.sum_runs(x & is_positive, starts) for x in int128.digits_of(words, width)]
    return int128.compose(digits, width)
