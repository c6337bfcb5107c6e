"""Fewer points that draw the same: of each narrow column its first, lowest, highest and last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

COLUMNS_PER_INCH: Final = 600
"""As fine as print: a screen has a sixth of it."""

_POINTS: Final = 4


def count_columns(ax: Axes) -> int:
    """Return how many columns an Axes has that nobody can tell apart."""
    figure = ax.get_figure(root=True)
    width = 10.0 if figure is None else figure.get_figwidth() * ax.get_position().width
    return max(int(width * COLUMNS_PER_INCH), 1)


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
    column = np.repeat(np.arange(len(heads)), np.diff(heads, append=count))
    is_kept = np.zeros(count, bool)
    is_kept[heads] = True
    is_kept[np.append(heads[1:], count) - 1] = True
    lengths = np.diff(heads, append=count)
    for values in levels:
        for extreme in (np.minimum, np.maximum):
            hits = np.flatnonzero(values == np.repeat(extreme.reduceat(values, heads), lengths))
            is_kept[hits[np.diff(column[hits], prepend=-1) != 0]] = True
    return np.flatnonzero(is_kept)
