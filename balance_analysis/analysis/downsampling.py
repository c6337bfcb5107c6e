"""Choose the rows and points that suffice for balances at a grid's edges, or for a drawing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from balance_analysis.analysis.grid import count_before
from balance_analysis.analysis.steps import Steps, events

_POINTS: Final = 4
"""Points kept per column: the first, the last, the lowest and the highest."""


def sort_keys(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return floats that sort as the amounts do; only their order has a meaning."""
    # Negative amounts are complemented first, or those near zero would all become 0.
    sign = words[:, 1] >> 63
    keys = (words[:, 1] ^ sign) * 2.0**64 + (words[:, 0] ^ sign).view(np.uint64)
    return np.where(sign < 0, -1 - keys, keys)


def downsample(
    times: NDArray[np.int64],
    *levels: NDArray[np.number[Any]],
    columns: int,
    starts_known: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return the points to draw of one or several step functions with steps at the same times.

    Parameters
    ----------
    times
        The time of each step, ascending.
    levels
        For each function, the level from each step on.
    columns
        The number of columns into which the time is divided.
    starts_known
        A mask of the steps that are unknown or follow an unknown one: columns are divided there
        too, so that each side of a gap keeps its own points.

    Returns
    -------
    numpy.ndarray
        Places, ascending: each column's first and last one, and the first place of each function's
        lowest and highest level in it. All places if there are few.
    """
    count = len(times)
    if count <= _POINTS * columns:
        return np.arange(count)
    first, length = int(times[0]), int(times[-1] - times[0])
    begins = [first - (-column * length // columns) for column in range(columns)]
    heads = np.searchsorted(times, begins)
    heads = np.unique(
        heads if starts_known is None else np.append(heads, np.flatnonzero(starts_known))
    )
    lengths = np.diff(heads, append=count)
    column = np.repeat(np.arange(len(heads)), lengths)
    is_kept = np.zeros(count, bool)
    is_kept[heads] = True
    is_kept[np.append(heads[1:], count) - 1] = True
    for values in levels:
        for extreme in (np.minimum, np.maximum):
            hits = np.flatnonzero(values == np.repeat(extreme.reduceat(values, heads), lengths))
            is_kept[hits[np.diff(column[hits], prepend=-1) != 0]] = True
    return np.flatnonzero(is_kept)


def starts_of_known(is_known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the steps that are unknown or follow an unknown one: see `downsample`."""
    starts_known = ~is_known
    starts_known[1:] |= ~is_known[:-1]
    return starts_known


def thinned(
    times: NDArray[np.int64], is_known: NDArray[np.bool_], *words: NDArray[np.int64], columns: int
) -> NDArray[np.int64]:
    """Return the places of the steps to draw, given amounts as words: see `downsample`."""
    starts_known = starts_of_known(is_known)
    return downsample(times, *map(sort_keys, words), columns=columns, starts_known=starts_known)


def levels_in(
    steps: Steps, start: int, end: int, *, since: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], bool]:
    """Return an account's steps in [start, end), and the one before; `steps` may be empty.

    Returns
    -------
    tuple
        The time of each step (in microseconds, at least `since`, where the rows begin); the words
        from then on; whether they are known; and whether the first step comes from an opening.
    """
    changes = events(steps)
    times, words, is_known = changes["times"], changes["words"], changes["known"] > 0
    low = max(int(np.searchsorted(times, start, side="right")) - 1, 0)
    part = slice(low, int(np.searchsorted(times, end)))
    is_opening = not changes["is_row"][part][:1].all() and low == 0
    return np.maximum(times[part], since), words[part], is_known[part], is_opening


def first_and_last(
    heads: NDArray[np.int64], times: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask of the rows that are an account's first or last one between two edges.

    These rows alone give the same balances at the edges and just before them, and the same net
    changes between them, as all rows.

    Parameters
    ----------
    heads
        The position of each account's first row.
    times
        The rows' times (in microseconds), ascending within each account.
    edges
        Ascending. The time before the first and that from the last one on are periods too.
    """
    periods = count_before(edges - 1, times)
    is_end = np.ones(len(times) + 1, bool)
    is_end[1:-1] = periods[1:] != periods[:-1]
    is_end[heads] = True
    is_chosen: NDArray[np.bool_] = is_end[:-1] | is_end[1:]
    return is_chosen
