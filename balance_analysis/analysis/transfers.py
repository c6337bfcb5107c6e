"""What accounts of a group give one another, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import count_before
from balance_analysis.analysis.steps import Steps, check_fits, name_of, step_deltas
from balance_analysis.analysis.totals import Groups, keys_of


def moved_within(
    steps: Steps, groups: Groups, edges: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what moved between accounts of the same group in one block, by group and period.

    In a block that is the lesser of what accounts of the group gained and what they lost, as far as
    it is known.

    Parameters
    ----------
    steps, groups
        The accounts.
    edges
        Where periods begin, and where the last one ends, microseconds, ascending.

    Returns
    -------
    tuple of numpy.ndarray
        Cells of a group and a period, group by group, ascending, and the words of what moved;
        of other cells that is 0.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    deltas, periods = step_deltas(steps), count_before(edges - 1, steps.times) - 1
    is_inside = steps.is_row & (periods >= 0) & (periods < len(edges) - 1)
    rows = np.flatnonzero(is_inside & ~int128.is_zero(deltas))
    owners, times = groups.numbers[steps.numbers[rows]], steps.times[rows]
    keys, blocks = np.unique(keys_of(owners, times, np.unique(times)), return_inverse=True)
    gains = int128.take(deltas, rows)
    sums = []
    for words in (gains, int128.subtract(np.zeros_like(gains), gains)[0]):
        is_positive = ~(words[:, 1:] >> np.int64(63))  # all bits of what is not negative
        total, too_large = int128.sum_words(words & is_positive, blocks, len(keys))
        check_fits(too_large, lambda _: "what flowed in one block")
        sums.append(total)
    moved = np.where(int128.is_less(*sums)[:, None], *sums)
    cells = np.zeros(len(keys), np.int64)
    cells[blocks] = owners * (len(edges) - 1) + periods[rows]
    cells, places = np.unique(cells, return_inverse=True)
    moved, too_large = int128.sum_words(moved, places, len(cells))
    check_fits(too_large, lambda cell: f"a flow of {name_of(groups.ids, cell)}")
    return cells, moved
