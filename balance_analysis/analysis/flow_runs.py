"""What the rows of each account in each period add up to: its flows, in blocks of accounts."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import Grid, count_before
from balance_analysis.analysis.steps import (
    Columns,
    Steps,
    check_fits,
    join,
    map_blocks,
    step_deltas,
)

AMOUNTS: Final = ("inflow", "outflow", "net")
COUNTS: Final = ("changes", "unknown")
_OF_PERIODS: Final = ("number", "period", *AMOUNTS, *COUNTS)


def account_flows(steps: Steps, grid: Grid) -> Columns:
    """Return the flows of each account in each period in which it has a row."""

    def run(first: int, block: Steps) -> Columns:
        found = flow_runs(block, grid.edges)
        found["number"] += first
        return {name: found[name] for name in _OF_PERIODS}

    return join(map_blocks(run, steps))


def flow_runs(steps: Steps, edges: NDArray[np.int64]) -> Columns:
    """Return what each account's rows in each period between edges add up to.

    Returns
    -------
    dict
        Of each account and period that has a row, sorted: `number` of the account, `period`,
        `first_seen` and `last_seen` (microseconds), `rows`, `changes`, `unknown` (of how many
        rows the delta is unknown) and the words of `inflow`, `outflow` and `net`.

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
    found = {
        "number": np.cumsum(steps.is_head[starts]) - 1,
        "period": periods[starts],
        "first_seen": steps.times[starts],
        "last_seen": steps.times[stops - 1],
        "rows": stops - starts,
        "changes": int128.sum_runs(~int128.is_zero(deltas), starts),
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
