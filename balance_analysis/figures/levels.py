"""The balances of accounts within an interval, as far as they are known: what lines are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.int128 import take
from balance_analysis.analysis.steps import NEVER
from balance_analysis.figures.canvas import named
from balance_analysis.figures.times import sliver
from balance_analysis.spans import between

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.known import Known, Stated
    from balance_analysis.schema import Instant


@dataclass(frozen=True, slots=True)
class Interval:
    """What a figure shows of time.

    Attributes
    ----------
    start, end
        Microseconds since 1970-01-01 UTC. The last value is drawn to the end.
    before
        Before when rows are drawn: the end, or right after it where nobody asked for one.
    known
        The stretches in which every change is known; `None` where nothing says.
    """

    start: int
    end: int
    before: int
    known: Known | None = None

    @property
    def words(self) -> str:
        """The interval in a line."""
        return f"from {named(self.start)} to {named(self.end)}"


def open_figure(
    table: pd.DataFrame,
    *,
    opening: pd.DataFrame | None,
    known: Stated | None,
    start: Instant | None,
    end: Instant | None,
) -> tuple[Steps, Interval | None]:
    """Return a table as step functions, and what to show of them; `None` where that is nothing.

    By default that is from the first row to the end of what is known, else to the last row.

    Raises
    ------
    ValueError
        If `start` is not before `end`.
    """
    history = make_history(table, opening, known, start=start, end=end)
    steps, grid, spans = history.steps, history.grid, history.known
    if not len(grid):
        return steps, None
    begin, stop = grid.edges.tolist()
    times = steps.extent
    if start is None and len(times) and stop <= times.min():
        return steps, None
    if end is not None or (spans and spans[-1][1] == stop):
        return steps, Interval(begin, stop, stop, spans)
    last = int(times.max(initial=begin - 1))
    return steps, Interval(begin, last, last + 1, spans) if begin <= last else None


@dataclass(frozen=True, slots=True)
class Level:
    """What an account held in an interval, as far as that is known.

    Attributes
    ----------
    account
        The place of the account among those of the steps.
    times, words
        From when on it held which balance, microseconds, ascending; none where it is all unknown.
    ceases
        When each ceases to be known before the next one; `NEVER` where it doesn't.
    """

    account: int
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    ceases: NDArray[np.int64]


def levels_in(steps: Steps, interval: Interval) -> list[Level]:
    """Return what each account held in an interval."""
    return [
        _level(steps, account, head, stop, interval)
        for account, (head, stop) in enumerate(
            zip(steps.bounds[:-1].tolist(), steps.bounds[1:].tolist(), strict=True)
        )
    ]


def _level(steps: Steps, account: int, head: int, stop: int, interval: Interval) -> Level:
    times = steps.times[head:stop]
    ceases = np.full(len(times), NEVER) if steps.ceases is None else steps.ceases[head:stop]
    first = max(int(np.searchsorted(times, interval.start, side="right")) - 1, 0)
    first += int(ceases[first] <= interval.start)
    rows = np.arange(first, max(int(np.searchsorted(times, interval.before)), first))
    begins = np.maximum(times[rows], interval.start)
    return Level(account, begins, take(steps.words, head + rows), ceases[rows])


def broken(
    times: NDArray[np.int64],
    levels: NDArray[np.float64],
    ceases: NDArray[np.int64],
    end: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges of steps and the level between each two, NaN where it isn't known.

    Parameters
    ----------
    times, levels
        From when on what is held, microseconds.
    ceases
        When each ceases to be known before the next one.
    end
        Where the last step ends.
    """
    places = np.flatnonzero(ceases < end)
    edges = np.append(np.insert(times, places + 1, ceases[places]), end)
    return edges, np.insert(levels, places + 1, np.nan)


def blank_gaps(
    edges: NDArray[np.int64], levels: NDArray[np.float64], known: Known | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return edges and levels of steps, a row each, with NaN from where a gap begins in a step."""
    gaps = [] if known is None else between(known, int(edges[0]), int(edges[-1]))
    starts = np.setdiff1d(np.array([gap[0] for gap in gaps], np.int64), edges)
    places = np.searchsorted(edges, starts)
    return np.insert(edges, places, starts), np.insert(levels, places, np.nan, axis=1)


def draw_steps(
    ax: Axes,
    times: NDArray[np.int64],
    levels: NDArray[np.float64],
    ceases: NDArray[np.int64],
    interval: Interval,
    **style: Any,  # noqa: ANN401 - of a line
) -> list[Line2D]:
    """Draw a line of steps to the end of an interval, broken where it isn't known: see `broken`."""
    edges, drawn = broken(times, levels, ceases, interval.end)
    # A piece of no length would be invisible.
    is_held = np.concatenate([[False], ~np.isnan(drawn), [False]])
    heads, stops = np.flatnonzero(np.diff(is_held)).reshape(-1, 2).T
    least = 1 if interval.known is None else sliver(interval.start, interval.end)
    lone = heads[edges[stops] - edges[heads] < least].tolist()
    return ax.plot(
        edges.view("M8[us]"),
        np.append(drawn, drawn[-1]),
        drawstyle="steps-post",
        markevery=lone or None,
        **{"marker": "o" if lone else None, **style},
    )


def sort_keys(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return floats in the order of amounts, quickly made and good for nothing else."""
    return np.asarray(words[:, 1] * 2.0**64 + words[:, 0].view(np.uint64), np.float64)
