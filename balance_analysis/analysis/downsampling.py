"""Which rows and points are enough: for balances at a grid's edges, and for a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.grid import count_before
from balance_analysis.analysis.int128 import to_decimals
from balance_analysis.analysis.steps import Steps, events

_POINTS: Final = 4
"""Of a column: the first, the last, the lowest and the highest."""


def sort_keys(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return floats in the order of amounts, quickly made and good for nothing else."""
    # Of a negative amount the complement, or those that are near zero would all be 0.
    sign = words[:, 1] >> 63
    keys = (words[:, 1] ^ sign) * 2.0**64 + (words[:, 0] ^ sign).view(np.uint64)
    return np.where(sign < 0, -1 - keys, keys)


def downsample(
    times: NDArray[np.int64],
    *levels: NDArray[np.number[Any]],
    columns: int,
    starts_known: NDArray[np.bool_] | None = None,
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
    starts_known
        Which steps follow on nothing that is known, or are not known themselves: the columns are
        cut there as well, so that each side of a gap keeps its own points.

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
    """Return which steps are not known, or follow on one that isn't: see `downsample`."""
    starts_known = ~is_known
    starts_known[1:] |= ~is_known[:-1]
    return starts_known


@dataclass(frozen=True, slots=True)
class Line:
    """One account's balance from a moment on, as far as a drawing shows it.

    Attributes
    ----------
    times
        When each step is, microseconds, ascending. The first one is what was held at the start.
    balances
        The level from then on; null where it isn't known.
    is_opening
        Whether the first one comes from an opening, not from a row.
    count
        How many steps there are, with those that are left out.
    """

    times: NDArray[np.int64]
    balances: pa.Array
    is_opening: bool
    count: int


def levels_in(
    steps: Steps, start: int, end: int, *, since: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], int]:
    """Return the steps of one account, or of none, in [start, end), and the one before them.

    Returns
    -------
    tuple
        When each step is, microseconds, but none before `since`; the words from then on; whether
        they are known; and how many steps there are before the first one.
    """
    moves = events(steps)
    times, words, is_known = moves["times"], moves["words"], moves["known"] > 0
    low = max(int(np.searchsorted(times, start, side="right")) - 1, 0)
    part = slice(low, int(np.searchsorted(times, end)))
    return np.maximum(times[part], since), words[part], is_known[part], low


def downsample_steps(steps: Steps, start: int, end: int, *, since: int, columns: int) -> Line:
    """Return the steps of one account, or of none, in [start, end), downsampled for a drawing.

    What was held before `since`, where the rows begin, is drawn from then on.
    """
    times, words, is_known, low = levels_in(steps, start, end, since=since)
    kept = np.arange(0)
    if len(times):
        kept = downsample(
            times, sort_keys(words), columns=columns, starts_known=starts_of_known(is_known)
        )
    is_opening = low == 0 and len(times) > 0 and not steps.is_row[0]
    return Line(times[kept], to_decimals(words[kept], is_known[kept]), is_opening, len(times))


def first_and_last(
    heads: NDArray[np.int64], times: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which rows are an account's first or last one between two edges.

    Balances at the edges, just before them, and what they moved by between them are those of all
    rows.

    Parameters
    ----------
    heads
        Where each account's first row is.
    times
        When rows are, microseconds, ascending in each account.
    edges
        Ascending; before the first and from the last one on are periods as well.
    """
    periods = count_before(edges - 1, times)
    is_end = np.ones(len(times) + 1, bool)
    is_end[1:-1] = periods[1:] != periods[:-1]
    is_end[heads] = True
    is_chosen: NDArray[np.bool_] = is_end[:-1] | is_end[1:]
    return is_chosen
