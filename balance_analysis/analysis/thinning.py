"""Which points of step functions to draw, so that nobody sees that others are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POINTS: Final = 4
"""Of a column: the first, the last, the lowest and the highest."""


def sort_keys(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return floats in the order of amounts, quickly made and good for nothing else."""
    return np.asarray(words[:, 1] * 2.0**64 + words[:, 0].view(np.uint64), np.float64)


def thin(
    times: NDArray[np.int64], *levels: NDArray[np.number[Any]], columns: int
) -> NDArray[np.int64]:
    """Return which points to draw of step functions that have their steps at the same times.

    Parameters
    ----------
    times
        When each step is, ascending.
    levels
        The levels from then on, of one function or several.
    columns
        Into how many columns the time is cut.

    Returns
    -------
    numpy.ndarray
        Places, ascending: of each column the first and the last one, and of each function the first
        place of its lowest and of its highest level. All of them where there are few.
    """
    count = len(times)
    if count <= _POINTS * columns:
        return np.arange(count)
    first, length = int(times[0]), int(times[-1] - times[0])
    begins = [first - (-column * length // columns) for column in range(columns)]
    heads = np.unique(np.searchsorted(times, begins))
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
