"""Compute the deltas of rows and the flows of periods, and compare deltas with a ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis import door, int128
from balance_analysis.analysis.balances import Layout, check_layout, wide_frame
from balance_analysis.analysis.grid import (
    Frequency,
    Grid,
    Zone,
    check_cells,
    count_before,
    to_times,
)
from balance_analysis.analysis.history import AccountSlices, History, are_known
from balance_analysis.analysis.steps import (
    Columns,
    Steps,
    join,
    map_blocks,
    spread,
    step_deltas,
    take_ids,
    with_amounts,
)
from balance_analysis.analysis.totals import changes_of, map_sums, runs_of
from balance_analysis.table import schema
from balance_analysis.table.frame import microseconds, sorted_ids, to_arrow, to_frame
from balance_analysis.table.moments import Moment
from balance_analysis.table.schema import Ints, Mask

AMOUNTS: Final = ("inflow", "outflow", "net")
INTERNAL: Final = "internal"
COUNTS: Final = ("changes", "active", "unknown")

Flow = Literal["net", "inflow", "outflow", "internal", "changes", "active", "unknown"]


@door.any_source
def deltas(source: AccountSlices) -> Iterator[pd.DataFrame]:
    """Return a table with each balance's difference to the account's previous row.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.

    Returns
    -------
    pandas.DataFrame
        A table's changes, sorted, and `delta` (decimal128(38, 0), in the asset's smallest unit). It
        is NA on an account's first row, unless an opening gives the balance before, and on the
        first row after an unknown stretch. Sorted rows, such as a selection of a table, keep their
        index; others get a new one.

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
    for rows in source.map(row_deltas):
        rows.attrs = dict(source.outline.attrs)
        yield rows


def row_deltas(history: History) -> pd.DataFrame:
    """Return `deltas` of an open table."""
    steps = history.over(history.grid())
    words = np.empty_like(steps.words)

    def differ(first: int, block: Steps) -> None:
        begin = steps.bounds[first]
        step_deltas(block, out=words[begin : begin + len(block.times)])

    map_blocks(differ, steps)
    kept = slice(None) if steps.is_row.all() else steps.is_row
    return with_amounts(history.rows, delta=(words[kept], ~steps.starts_known[kept]))


@door.any_source
def flows(
    source: AccountSlices,
    *,
    freq: Frequency | Grid | None = "1D",
    by: str | Sequence[str] = schema.ACCOUNT_KEY,
    start: Moment | None = None,
    end: Moment | None = None,
    layout: Layout = "long",
    value: Flow = "net",
    internal: bool = False,
    tz: Zone | None = None,
) -> Iterator[pd.DataFrame]:
    """Return the flows into and out of accounts, or groups of accounts, in each period.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    freq
        The length of a period: a pandas frequency; `None` for the whole interval. Fixed
        frequencies and days count from `start`. Others follow the calendar: "MS" is a month, "W" a
        week that begins on Monday. Frequencies that pandas labels by the end of a period, such as
        "ME", stand for the same periods.
    by
        The columns to group by, within each asset: see `totals`. A group's flows are the sums of
        its accounts' flows, so a transfer between two of them counts as inflow and as outflow,
        unless `internal` separates transfers, as in `summarize_parties`.
    start, end
        The interval, half-open; in `tz` if without a time zone. By default it begins with the
        period of the first row, or with the known interval of that row if that begins within the
        period, and ends where the known intervals end, or with the period of the last row if none
        ends later. Days then begin at midnight, and other fixed frequencies count from 1970-01-01
        on the clocks of `tz`.
    layout
        "long": a row for each group and period in which the table has a row. "wide": a column for
        each group and a row for each period.
    value
        The column of the long layout that fills the cells of the wide one.
    internal
        Whether to separate transfers between accounts of a group in one block: they are then in the
        column `internal`, and `inflow` and `outflow` are those from and to others.
    tz
        The time zone of days and of the result's timestamps. By default UTC.

    Returns
    -------
    pandas.DataFrame
        Long: one row for each group and period in which the table has a row, sorted by group and
        time: `asset_id` and the columns of `by` (category of str), `start` and `end` of the period
        (datetime64[us, tz]), and

        - `inflow`, `outflow`: the sum of the positive deltas, and of the negative ones as a
          positive number; `net`: inflow - outflow. All decimal128(38, 0), in the asset's smallest
          unit; NA if a part of the period is unknown, because rows may be missing.
        - `internal`, if you pass `internal=True`: for each block, the lesser of the amounts that
          the group's accounts gained and lost, summed; same dtype as `inflow`.
        - `changes`: the number of rows whose balance differs from the account's previous row
          (int64).
        - `active`: the number of accounts with such a row (int64).
        - `unknown`: the number of rows whose delta is unknown, because they are an account's first
          row without an opening, or the first after an unknown stretch; no flow includes them
          (int64).

        Wide: the index is the `start` of every period of the interval (datetime64[us, tz]); the
        columns are the groups, with the levels `by`. Each cell is `value` as in the long layout; if
        that has no row, it is 0 if every change is known, else NA. Amounts are also NA if every
        change of the period is unknown, as on the day of an account's first row. Counts are Int64.

    Raises
    ------
    OverflowError
        If an amount of the result has more than 38 digits.
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
    check_layout(layout)
    values = [*AMOUNTS, *[INTERNAL] * internal, *COUNTS]
    if value not in values:
        raise ValueError(f"value must be one of {values}, not {value!r}")
    grid = source.outline.grid(freq, start=start, end=end, tz=tz)
    names = door.group_names(by, source.outline.columns)
    if {*names} != {*schema.ACCOUNT_KEY}:
        source.warn_about_missing_accounts(of_changes=True)
    result = partial(flow_frame, source.outline, grid)
    if layout == "wide":
        result = partial(result, full=True, wanted=[value])
    part = partial(flows_of, grid, names, internal)
    for frame in door.each_group(source, names, grid, part, result):
        if layout == "wide":
            index = to_times(grid.edges[:-1], grid.zone).rename("start")
            ids = frame[names].iloc[:: max(len(grid), 1)]
            yield wide_frame(frame[value].array, index, ids)
        else:
            yield frame


def sum_flows(
    history: History, grid: Grid, by: Sequence[str], *, internal: bool = False
) -> pd.DataFrame:
    """Return `flows` of a history, with a row for every group and period: see `flow_frame`."""
    return flow_frame(history, grid, flows_of(grid, by, internal, history), full=True)


def flows_of(
    grid: Grid,
    by: Sequence[str],
    internal: bool,
    history: History,
    *,
    wanted: Collection[str] = (*AMOUNTS, *COUNTS),
) -> list[door.Cells]:
    """Return the flows of a history's groups of accounts in the periods of a grid.

    Returns
    -------
    list
        Cells for each group and period that has a row: `periods`, `rows` (the number of rows),
        `changes`, `active` (the number of accounts with a change), `unknown` (the number of rows
        whose delta is unknown), the words of `net` and, if wanted, of `inflow` and `outflow`, and
        `first_seen` and `last_seen` (in microseconds). `doubts` has for each group the number of
        accounts that lost or gained rows, and for each bad row that was set aside the number of
        accounts that it may belong to. With `internal`, the changes of the groups' sums follow: see
        `changes_of`.
    """
    groups, steps = door.make_groups(history, by), history.over(grid)
    masks = [history.is_changed, *(history.accounts_of(bad) for bad in history.set_aside)]
    doubts = np.stack([groups.count(mask) for mask in masks], 1)
    runs = join(map_blocks(partial(_runs, grid.edges), steps))
    starts, count = runs.pop("starts"), len(runs["rows"])
    names = {"changes", "active", "unknown", "net", *({*_CELLS} & {*wanted})}
    amounts = count, steps.words.shape[1]
    columns = {n: np.empty(amounts if n in AMOUNTS else count, np.int64) for n in names}

    def fill(first: int, block: Steps) -> None:
        cells = slice(*np.searchsorted(runs["groups"], [first, first + len(block)]))
        ends = starts[cells] + runs["rows"][cells]
        _add_up(block, starts[cells], ends, {name: columns[name][cells] for name in columns})

    map_blocks(fill, steps)
    if np.any(np.diff(groups.numbers) != 1):
        runs["groups"] = groups.numbers.take(runs["groups"])
    flows = door.Cells(groups.ids, {"doubts": doubts}, runs | columns)
    return [flows, changes_of(steps, groups)] if internal else [flows]


_CELLS: Final = ("first_seen", "last_seen", *AMOUNTS)
"""Columns of cells that are computed only if wanted."""


def _runs(edges: Ints, first: int, steps: Steps) -> Columns:
    """Return the runs of rows of one account in one period between edges.

    Returns
    -------
    dict
        For each run `groups` (the account's number, counted from `first`), `periods`, `starts` (the
        position of its first row in `steps`) and `rows` (the number of its rows).
    """
    periods = count_before(edges - 1, steps.times)
    periods -= 1
    periods[~steps.is_row | (periods == len(edges) - 1)] = -1
    is_start = steps.is_head.copy()
    is_start[1:] |= periods[1:] != periods[:-1]
    starts = np.flatnonzero(is_start)
    runs = {
        "groups": first - 1 + np.cumsum(steps.is_head.take(starts)),
        "periods": periods[starts],
        "starts": starts,
        "rows": np.diff(starts, append=len(periods)),
    }
    is_inside = runs["periods"] >= 0
    return runs if is_inside.all() else {name: column[is_inside] for name, column in runs.items()}


def _add_up(steps: Steps, begins: Ints, ends: Ints, out: Columns) -> None:
    """Write the columns of `flows_of` for runs of rows [begin, end) of one account to `out`."""
    deltas = int128.columns_of(step_deltas(steps))
    out["changes"][:] = int128.sum_runs(reduce(np.bitwise_or, deltas) != 0, begins, ends)
    out["active"][:] = out["changes"] > 0
    out["unknown"][:] = is_unknown = steps.starts_known.take(begins)
    if steps.valid_until is not None:
        out["unknown"][:] = int128.sum_runs(steps.starts_known, begins, ends)
    before = int128.take(steps.words, begins - ~is_unknown)
    int128.subtract(int128.take(steps.words, ends - 1), before, out=out["net"])
    if "inflow" in out:
        is_gain = ~(deltas[-1] >> np.int64(63))  # all bits set unless negative
        sums = int128.running_sums([column & is_gain for column in deltas])
        out["inflow"][:] = int128.difference(sums, begins, ends)
        int128.subtract(out["inflow"], out["net"], out=out["outflow"])
    if "first_seen" in out:
        out["first_seen"][:] = steps.times.take(begins)
        out["last_seen"][:] = steps.times.take(ends - 1)


def flow_frame(
    history: History,
    grid: Grid,
    cells: Sequence[door.Cells],
    *,
    full: bool = False,
    wanted: Collection[str] = (*AMOUNTS, INTERNAL),
) -> pd.DataFrame:
    """Return `flows` in the long layout, with the wanted amounts, from the cells of `flows_of`.

    With `full`, every group and period has a row, and `is_known` is whether all of its changes are
    known. Without a row in the table, amounts and counts (Int64) are then 0, else NA. Amounts are
    also NA if every change of the period is unknown.
    """
    flows, *changes = cells
    gains = [join(map_sums(partial(gained, grid), each, gained=True)) for each in changes]
    measures = flow_measures(history, grid, flows, *gains, full=full)
    is_known, is_quiet = measures["is_known"], measures["rows"] == 0
    counts: dict[str, Any] = {name: measures[name] for name in COUNTS}
    if full:
        is_na = is_quiet & ~is_known
        counts = {name: pd.arrays.IntegerArray(measures[name], is_na) for name in COUNTS}
        counts["is_known"] = is_known
        is_known = is_known & ((measures["unknown"] == 0) | (measures["changes"] != 0))
    names = [name for name in (*AMOUNTS, INTERNAL) if name in measures and name in wanted]
    ids, bounds = take_ids(flows.ids, measures["groups"]), grid.bounds(measures["periods"])
    frame = pd.DataFrame({**ids, **bounds}, copy=False)
    return with_amounts(frame, **{x: (measures[x], is_known) for x in names}).assign(**counts)


def flow_measures(
    history: History, grid: Grid, flows: door.Cells, gains: Columns | None = None, *, full: bool
) -> Columns:
    """Return flows with one cell for each group and period, ascending.

    Parameters
    ----------
    history, grid
        The known intervals, and the periods.
    flows
        The first cells of `flows_of`.
    gains
        The groups' gains: see `gained`. Transfers within a group are then in `internal`; without
        gains, they are in `inflow` and `outflow`.
    full
        Whether every group and period has a cell; it is 0 if the table has no row.

    Returns
    -------
    dict
        The columns of `flows_of`, and `is_known`, whether every change is known.
    """
    measures = _added_up(flows)
    if gains is not None:
        cells, places = (x["groups"] * len(grid) + x["periods"] for x in (measures, gains))
        inflow = spread(gains["inflow"], np.searchsorted(cells, places), len(cells))
        internal = int128.subtract(measures["inflow"], inflow)
        outflow = int128.subtract(measures["outflow"], internal)
        measures = {**measures, "inflow": inflow, "outflow": outflow, INTERNAL: internal}
    if full:
        check_cells(len(flows.ids), len(grid))
        cells, count = measures["groups"] * len(grid) + measures["periods"], len(flows.ids)
        every = np.arange(count * len(grid))
        measures = {name: spread(column, cells, len(every)) for name, column in measures.items()}
        measures["groups"], measures["periods"] = np.divmod(every, max(len(grid), 1))
    return {**measures, "is_known": _are_known(history, grid, flows, measures)}


def _are_known(history: History, grid: Grid, flows: door.Cells, measures: Columns) -> Mask:
    """Return for each cell whether every change of its group is known in its period."""
    groups, periods = measures["groups"], measures["periods"]
    begins, stops, doubts = grid.edges[:-1], grid.edges[1:], flows.by_group["doubts"] > 0
    is_complete = are_known(history.known, begins, stops) & (begins >= history.start)
    is_known: Mask = is_complete[periods] & ~doubts[:, 0][groups]
    for place, bad in enumerate(history.set_aside, 1):
        is_hit = (begins < bad.span[1]) & (stops > bad.span[0])
        is_known &= ~(doubts[:, place][groups] & is_hit[periods])
    return is_known


def gained(grid: Grid, first: int, sums: door.Cells) -> Columns:
    """Return each group's joint gains in each period, summed over blocks, as `inflow`."""
    groups, words = sums.columns["groups"], sums.columns["gained"]
    periods = count_before(grid.edges - 1, sums.columns["times"]) - 1
    begins = np.flatnonzero(schema.are_heads([groups, periods]))
    is_gain = (words[:, -1] >= 0) & sums.columns["is_row"]  # openings aren't changes
    inflow = int128.sum_words(words * is_gain[:, None], begins)
    groups, periods = groups.take(begins).astype(np.int64), periods.take(begins)
    is_gain = ~int128.is_zero(inflow) & (periods >= 0) & (periods < len(grid))
    columns: Columns = {"groups": first + groups, "periods": periods, "inflow": inflow}
    return {name: column[is_gain] for name, column in columns.items()}


def _added_up(flows: door.Cells) -> Columns:
    """Return the columns of flows, with the cells of one group and period added up."""
    columns = flows.columns
    groups, periods = columns["groups"], columns["periods"]
    is_later = (groups[1:] == groups[:-1]) & (periods[1:] > periods[:-1])
    if np.all(is_later | (groups[1:] > groups[:-1])):
        return columns
    order, starts = runs_of(groups, periods)
    added: Columns = {}
    for name, column in columns.items():
        rows = int128.take(column, order) if column.ndim > 1 else column.take(order)
        if column.ndim > 1:
            added[name] = int128.sum_words(rows, starts)
        else:
            combine = _REDUCED.get(name, np.add)
            added[name] = combine.reduceat(rows, starts) if len(starts) else rows
    return added


_REDUCED: Final = {
    **dict.fromkeys(("groups", "periods", "first_seen"), np.minimum),
    "last_seen": np.maximum,
}
"""How to combine columns that can't be added."""


_ROW: Final = [*schema.ACCOUNT_KEY, "timestamp"]
_REASONS: Final = pd.CategoricalDtype(pd.Index(["no row", "no flow", "other amount"], dtype="str"))


@door.any_source
def reconcile(source: AccountSlices, flows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Compare balance changes with an independent list of flows, and return the differences.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    flows
        The flows of accounts, block by block, such as the export of a ledger: `ACCOUNT_KEY`,
        `timestamp` and `net` (integers or Arrow decimals, in the asset's smallest unit). Several
        flows of one account and timestamp add up.

    Returns
    -------
    pandas.DataFrame
        One row for each account and timestamp at which the two differ, sorted: `ACCOUNT_KEY`
        (category of str), `timestamp` (datetime64[us, UTC]), `delta` and `net` (NA if there is no
        row or no flow), `difference` (delta - net, with 0 for NA; all three decimal128(38, 0), in
        the asset's smallest unit), and `reason` (category of str): "no row" for a flow, "no flow"
        for a row that changes a balance, or "other amount".

        Two kinds aren't compared; `attrs["balance_analysis"]["not_compared"]` counts them. Rows
        whose delta is unknown: an account's first row without an opening, or the first one after an
        unknown stretch. Flows whose row the source may lack: in an unknown stretch, before the
        source's start, at the moment of a bad row, or of an account that lost rows or that filters
        or a selection excluded. EXTERNAL accounts, whose balances nodes don't keep, are left out.

    Raises
    ------
    ValueError
        If `flows` lacks a column or a value.
    TypeError
        If a `net` is a float, which loses digits.
    OverflowError
        If a delta, or an amount of the result, has more than 38 digits.
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
    ledger = _read_flows(flows)
    ids, numbers = schema.distinct_ids(ledger[schema.ACCOUNT_KEY])
    accounts = pd.MultiIndex.from_frame(ids.astype("str"))
    ledger["is_known"] = _would_have_rows(source.outline, ids, numbers, microseconds(ledger))

    def compared(history: History) -> tuple[Mask, tuple[pd.DataFrame, int]]:
        is_here = accounts.isin(pd.MultiIndex.from_frame(history.accounts.astype("str")))
        rows = row_deltas(history).rename(columns={"delta": "net"})
        rows["is_known"] = rows["net"].notna()
        return is_here, _differences(rows, ledger[is_here[numbers]])

    seen, results = zip(*source.map(compared), strict=True)
    rest = ledger[~np.logical_or.reduce(seen)[numbers]]  # of accounts without a row
    frames, counts = zip(*results, _differences(rest.iloc[:0], rest), strict=True)
    whole = door.concatenated(frames, schema.ACCOUNT_KEY).sort_values(_ROW, ignore_index=True)
    result = whole.assign(**{name: sorted_ids(whole[name].array) for name in schema.ACCOUNT_KEY})
    result.attrs[schema.ATTRS_KEY] = {"not_compared": sum(counts)}
    yield result


def _read_flows(flows: pd.DataFrame) -> pd.DataFrame:
    """Return flows typed, as a frame of `_ROW` and `net`."""
    missing = [name for name in (*_ROW, "net") if name not in flows]
    if missing:
        raise ValueError(f"flows has no column {', '.join(missing)}")
    return to_frame(to_arrow(flows.assign(balance=flows["net"]))).rename(columns={"balance": "net"})


def _would_have_rows(outline: History, ids: pd.DataFrame, numbers: Ints, times: Ints) -> Mask:
    """Return a mask of the flows whose row a source would contain, if the flow is real.

    `numbers` are the flows' accounts, as places in `ids`, and `times` their timestamps.
    """
    accounts, own = (pd.MultiIndex.from_frame(x.astype("str")) for x in (ids, outline.accounts))
    is_whole = accounts.isin(own[~outline.is_changed])
    is_whole |= outline.notes.would_have(ids) & ~accounts.isin(own)
    is_known = are_known(outline.known, times, times + 1) & (times >= outline.start)
    for bad in outline.set_aside:
        if bad.account is not None:
            is_same = accounts.isin([bad.account])[numbers]
            is_known &= ~(is_same & (times >= bad.span[0]) & (times < bad.span[1]))
    would_have: Mask = is_known & is_whole[numbers]
    return would_have


def _differences(rows: pd.DataFrame, ledger: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return where deltas and flows, both in `net`, differ, and how many are not compared.

    `is_known` is whether a row's delta is known, or whether the source would have a flow's row.
    """
    names = [*_ROW, "net", "is_known"]
    sides = [side[names].assign(is_flow=side is ledger) for side in (rows, ledger)]
    both = door.concatenated(sides, schema.ACCOUNT_KEY)
    both = both[(both["account_type"] != schema.EXTERNAL).to_numpy()]
    order, starts = runs_of(schema.number_ids(both[schema.ACCOUNT_KEY]), microseconds(both))
    both = both.iloc[order]
    is_flow, is_unknown = both["is_flow"].to_numpy(), ~both["is_known"].to_numpy()
    words = int128.summable(int128.words_of(pa.array(both["net"].fillna(0))))
    delta, net = (int128.sum_words(words * each[:, None], starts) for each in (~is_flow, is_flow))
    difference = int128.subtract(delta, net)
    has_row, has_flow, lacks_delta, lacks_row = (
        int128.sum_runs(each, starts) > 0
        for each in (~is_flow, is_flow, is_unknown & ~is_flow, is_unknown & is_flow)
    )
    is_left_out = lacks_delta | ~has_row & lacks_row
    differs = np.flatnonzero(~int128.is_zero(difference) & ~is_left_out)
    has_row, has_flow = has_row[differs], has_flow[differs]
    result = with_amounts(
        both.iloc[starts[differs]][_ROW],
        delta=(delta[differs], has_row),
        net=(net[differs], has_flow),
        difference=(difference[differs], None),
    )
    reason = pd.Categorical.from_codes(2 - 2 * ~has_row - ~has_flow, dtype=_REASONS)
    return result.assign(reason=reason), int(is_left_out.sum())
