"""What changed: the delta of each row, what flowed in each period, and what others say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.balances import Layout, check_layout, wide_frame
from balance_analysis.analysis.checks import microseconds, sort_rows
from balance_analysis.analysis.door import (
    Options,
    Units,
    door,
    each_account,
    grid_of,
    in_units,
    is_by_party,
    join_ids,
    make_groups,
)
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_times,
)
from balance_analysis.analysis.history import (
    AccountSlices,
    History,
    Source,
    are_known,
    open_history,
)
from balance_analysis.analysis.steps import (
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
from balance_analysis.analysis.totals import (
    Changes,
    Sums,
    add_up,
    changes_of,
    join_changes,
    runs_of,
)
from balance_analysis.frame import to_arrow, to_frame
from balance_analysis.rows import are_heads
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, EXTERNAL, Instant

AMOUNTS: Final = ("inflow", "outflow", "net")
INTERNAL: Final = "internal"
COUNTS: Final = ("changes", "active", "unknown")

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
    rows = row_deltas(history)
    rows.attrs = dict(history.attrs)
    return in_units(rows, units, history.attrs)


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


def _added_up(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield `flows` of an archive: what the slices have of a group adds up."""
    if is_by_party(options) and options["layout"] == "long":
        yield from each_account(slices, function, options)
        return
    grid, by, internal = grid_of(slices, options), options["by"], options["internal"]
    parts = [*slices.map(partial(flows_of, grid, by, internal), grid)]
    yield _result(slices.outline, grid, join_flows(parts), **options)


@door(_added_up)
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
        unless `internal` separates it, as `summarize_parties` does.
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
        Whether to separate what moved between accounts of a group in one block. It is then in the
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
        is unknown, or the wide layout doesn't fit into memory.
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
    history = open_history(source)
    grid = history.grid(freq, start=start, end=end, tz=tz)
    sums = flows_of(grid, by, internal, history)
    return _result(history, grid, sums, layout=layout, value=value, units=units)


def _result(
    history: History,
    grid: Grid,
    sums: GroupFlows,
    *,
    layout: Layout,
    value: Flow,
    units: Units | None,
    **_: object,
) -> pd.DataFrame:
    """Return flows in the layout and the unit that are asked for."""
    check_layout(layout)
    values = [*AMOUNTS, *[INTERNAL] * (sums.changes is not None), *COUNTS]
    if value not in values:
        raise ValueError(f"value must be one of {values}, not {value!r}")
    if layout == "long":
        return in_units(sums.frame(history, grid), units, history.attrs)
    index = to_times(grid.edges[:-1], grid.zone).rename("start")
    cells = sums.frame(history, grid, full=True)[value].array
    # Counts are no amounts, whatever the unit.
    units = None if value in COUNTS else units
    return in_units(wide_frame(cells, index, sums.ids), units, history.attrs)


def sum_flows(
    history: History,
    grid: Grid,
    by: str | Sequence[str],
    *,
    full: bool = False,
    internal: bool = False,
) -> pd.DataFrame:
    """Return `flows` of a history over a grid, in the long layout: see `GroupFlows.frame`."""
    return flows_of(grid, by, internal, history).frame(history, grid, full=full)


@dataclass(frozen=True)
class GroupFlows:
    """The flows of groups of accounts.

    Attributes
    ----------
    ids
        The ids of each group.
    doubts
        Of each group, whether it has an account that lost or gained rows, and for each bad row that
        was set aside whether it has its account.
    groups, periods
        The group and the period of each cell, ascending; there is one where a group has a row.
    measures
        The columns of the cells: see `flow_runs`.
    changes
        What the groups' accounts changed; `None` where internal flows are not asked for.
    """

    ids: pd.DataFrame
    doubts: NDArray[np.bool_]
    groups: NDArray[np.int64]
    periods: NDArray[np.int64]
    measures: Columns
    changes: Changes | None

    def name(self, cell: int) -> str:
        """Return how a cell is called in a message."""
        return f"a flow of {name_of(self.ids, int(self.groups[cell]))}"

    def columns(self, grid: Grid) -> Columns:
        """Return the columns of the cells, with internal flows where they are asked for."""
        if self.changes is None:
            return self.measures
        parts = self.changes.parts(partial(gained, grid), gained=True)
        return self.with_internal(grid, parts)

    def with_internal(self, grid: Grid, parts: list[Columns]) -> Columns:
        """Return the columns of the cells, given what groups gained: see `gained`."""
        gains = join(parts)
        cells = self.groups * len(grid) + self.periods
        there = np.searchsorted(cells, gains["groups"] * len(grid) + gains["periods"])
        inflow = spread(gains["inflow"], there, len(cells))
        # It is at most what the accounts gained one by one, which fits.
        internal, _ = int128.subtract(self.measures["inflow"], inflow)
        outflow, _ = int128.subtract(self.measures["outflow"], internal)
        return {**self.measures, "inflow": inflow, "outflow": outflow, INTERNAL: internal}

    def known(
        self, history: History, grid: Grid, groups: NDArray[np.int64], periods: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether every change of groups is known in periods, cell by cell."""
        begins, stops = grid.edges[:-1], grid.edges[1:]
        is_known = are_known(history.known, begins, stops) & (begins >= history.start)
        is_told: NDArray[np.bool_] = is_known[periods] & ~self.doubts[groups, 0]
        for place, bad in enumerate(history.set_aside, 1):
            is_hit = (begins < bad.span[1]) & (stops > bad.span[0])
            is_told &= ~(self.doubts[groups, place] & is_hit[periods])
        return is_told

    def frame(self, history: History, grid: Grid, *, full: bool = False) -> pd.DataFrame:
        """Return `flows` in the long layout.

        If it is `full`, there is a row for each group and period: where the table has no row,
        amounts and counts (Int64) are 0 if it is known that nothing happened, else NA. Where all
        that happened is unknown, amounts are NA.
        """
        measures, groups, periods = self.columns(grid), self.groups, self.periods
        counts: dict[str, Any] = {what: measures[what] for what in COUNTS}
        if full:
            cells = groups * len(grid) + periods
            check_cells(len(self.ids), len(grid))
            groups, periods = np.divmod(np.arange(len(self.ids) * len(grid)), max(len(grid), 1))
            measures = {
                what: spread(column, cells, len(groups)) for what, column in measures.items()
            }
        is_known = self.known(history, grid, groups, periods)
        if full:
            lacks = ~is_known
            lacks[cells] = False
            counts = {what: pd.arrays.IntegerArray(measures[what], lacks) for what in COUNTS}
            is_known &= (measures["unknown"] == 0) | (measures["changes"] != 0)
        names = (name for name in (*AMOUNTS, INTERNAL) if name in measures)
        amounts: dict[str, Any] = {x: int128.to_balances(measures[x], is_known) for x in names}
        columns = {**take_ids(self.ids, groups), **grid.bounds(periods), **amounts, **counts}
        return pd.DataFrame(columns, copy=False)


def flows_of(grid: Grid, by: str | Sequence[str], internal: bool, history: History) -> GroupFlows:
    """Return the flows of groups of a history's accounts in the periods of a grid."""
    groups, (steps, _) = make_groups(history, by), history.over(grid)
    lost = np.zeros(len(steps), bool) if history.is_changed is None else history.is_changed
    doubts = [lost, *(history.is_of(bad) for bad in history.set_aside)]
    has = [np.bincount(groups.numbers, each, len(groups)) > 0 for each in doubts]
    measures = join(map_blocks(lambda first, x: _numbered(flow_runs(x, grid.edges), first), steps))
    owners, periods = groups.numbers[measures.pop("number")], measures.pop("period")
    changes = changes_of(steps, groups) if internal else None
    own = GroupFlows(groups.ids, np.stack(has, 1), owners, periods, measures, changes)
    return _together(own)


def _numbered(runs: Columns, first: int) -> Columns:
    """Return the runs of a block whose first account has a number."""
    runs["number"] += first
    return runs


def gained(grid: Grid, first: int, sums: Sums) -> Columns:
    """Return what groups gained in the blocks of each period of a grid, in which they gained."""
    words, edges = sums.columns["gained"], grid.edges
    periods = count_before(edges - 1, sums.columns["times"]) - 1
    rows = np.flatnonzero((words[:, 1] >= 0) & (periods >= 0) & (periods < len(grid)))
    rows = rows[~int128.is_zero(words[rows])]
    groups, periods = first + sums.columns["groups"][rows].astype(np.int64), periods[rows]
    starts = np.flatnonzero(are_heads([groups, periods]))
    inflow, _ = int128.sum_words(int128.take(words, rows), starts)
    return {"groups": groups[starts], "periods": periods[starts], "inflow": inflow}


def _together(parts: GroupFlows) -> GroupFlows:
    """Return flows with one cell for each group and period."""
    if not np.any(
        np.diff(parts.groups * (int(parts.periods.max(initial=0)) + 1) + parts.periods) <= 0
    ):
        return parts
    order, starts = runs_of(parts.groups, parts.periods)
    first = order[starts]
    cells = replace(parts, groups=parts.groups[first], periods=parts.periods[first])
    return replace(cells, measures=add_up(parts.measures, order, starts, cells.name))


def join_flows(parts: Sequence[GroupFlows]) -> GroupFlows:
    """Return the flows over the accounts of all slices."""
    ids, numbers = join_ids([part.ids for part in parts])
    doubts = np.zeros((len(ids), parts[0].doubts.shape[1]), bool)
    for part, own in zip(parts, numbers, strict=True):
        np.logical_or.at(doubts, own, part.doubts)
    changes = [part.changes for part in parts if part.changes is not None]
    return _together(
        GroupFlows(
            ids,
            doubts,
            np.concatenate([own[x.groups] for x, own in zip(parts, numbers, strict=True)]),
            np.concatenate([part.periods for part in parts]),
            join([part.measures for part in parts]),
            join_changes(changes) if changes else None,
        )
    )


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
    is_positive = ~(deltas[:, 1:] >> np.int64(63))  # all bits of what is not negative
    inflow, inflow_too_large = int128.sum_words(deltas & is_positive, starts)
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
    measures = {
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
        return measures
    return {name: column[is_inside[starts]] for name, column in measures.items()}


_ROW: Final = [*ACCOUNT_KEY, "timestamp"]
_REASON_OF: Final = {"both": "other amount", "left_only": "no flow", "right_only": "no row"}
_REASONS: Final = pd.CategoricalDtype(pd.Index(["no row", "no flow", "other amount"], dtype="str"))


def reconcile(
    source: Source,
    flows: pd.DataFrame,
    *,
    units: Units | None = None,
) -> pd.DataFrame:
    """Compare balance changes with an independent list of flows, and return what differs.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    flows
        What accounts got and gave, block by block, such as the export of a ledger: `ACCOUNT_KEY`,
        `timestamp` and `net` (integers or Arrow decimals, in the asset's smallest unit). Several
        flows of one account and timestamp add up.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row for each account and timestamp at which the two differ, sorted; empty where they
        agree: `ACCOUNT_KEY` (category of str), `timestamp` (datetime64[us, UTC]), `delta` and
        `net`, NA where there is none, and `difference`, delta - net, where a missing one counts as
        0 (decimal128(38, 0), in the asset's smallest unit), and `reason` (category of str): "no
        row" for a flow, "no flow" for a row that changes a balance, or "other amount".

        An account's first row has no delta unless an opening says what was before it, so it isn't
        compared, and neither is the first one behind a stretch that is not known, nor a flow in
        such a stretch; `attrs["balance_analysis"]["not_compared"]` counts these.
        EXTERNAL accounts, whose balances nodes don't keep, are left out.

    Raises
    ------
    ValueError
        If `flows` lacks a column or a value.
    TypeError
        If a `net` is a float, which loses digits.
    OverflowError
        If a delta, a sum of flows or a difference has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> account = {"asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...            "market_id": ""}
    >>> days = pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-05"], utc=True)
    >>> table = pd.DataFrame({**account, "timestamp": days, "balance": [5, 7, 1]})
    >>> ledger = pd.DataFrame({**account, "timestamp": days, "net": [5, 2, -5]})
    >>> reconcile(table, ledger)[["timestamp", "delta", "net", "difference", "reason"]]
                      timestamp  delta  net  difference        reason
    0 2023-04-05 00:00:00+00:00     -6   -5          -1  other amount
    """
    history = open_history(source)
    rows = _without_external(row_deltas(history))
    ledger = _read_flows(flows)
    texts = dict.fromkeys(ACCOUNT_KEY, "str")
    both = rows.astype(texts).merge(
        ledger.astype(texts), on=_ROW, how="outer", indicator=True, sort=True
    )
    is_known = are_known(history.known, microseconds(both), microseconds(both) + 1)
    is_left_out = np.where(both["_merge"] == "right_only", ~is_known, both["delta"].isna())
    delta, net = (int128.words_of(pa.array(both[name].fillna(0))) for name in ("delta", "net"))
    difference, too_large = int128.subtract(delta, net)
    check_fits(too_large, lambda row: f"the difference of {both.loc[row, _ROW].to_dict()}")
    reasons = both["_merge"].map(_REASON_OF).astype(_REASONS)
    compared = both.assign(difference=int128.to_balances(difference), reason=reasons)
    columns = [*_ROW, "delta", "net", "difference", "reason"]
    result = compared.loc[~int128.is_zero(difference) & ~is_left_out, columns].reset_index(
        drop=True
    )
    result = result.astype(dict.fromkeys(ACCOUNT_KEY, "category"))
    result.attrs[ATTRS_KEY] = {"not_compared": int(is_left_out.sum())}
    return in_units(result, units, history.attrs)


def _read_flows(flows: pd.DataFrame) -> pd.DataFrame:
    """Return flows with one row for each account and timestamp, without EXTERNAL accounts."""
    missing = [name for name in (*_ROW, "net") if name not in flows]
    if missing:
        raise ValueError(f"flows has no column {', '.join(missing)}")
    rows = _without_external(to_frame(to_arrow(flows.assign(balance=flows["net"]))))
    rows = sort_rows(rows)
    heads = np.flatnonzero(~rows.duplicated(_ROW))
    keys = rows.loc[heads, _ROW]
    net, too_large = int128.sum_words(int128.words_of(pa.array(rows["balance"])), heads)
    check_fits(too_large, lambda cell: f"the sum of the flows of {keys.iloc[cell].to_dict()}")
    return keys.assign(net=int128.to_balances(net))


def _without_external(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.loc[(rows["account_type"] != EXTERNAL).to_numpy()].reset_index(drop=True)
