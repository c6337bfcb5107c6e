"""Step functions, drawn as lines and areas: of no more points than can be told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.patches import StepPatch

from balance_analysis.analysis.int128 import take
from balance_analysis.analysis.steps import NEVER
from balance_analysis.figures.axes import inches
from balance_analysis.figures.times import sliver, to_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.figures.times import Extent

_COLUMNS_PER_INCH: Final = 600
"""As fine as print: a screen has a sixth of it."""


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

    @property
    def is_fresh(self) -> NDArray[np.bool_]:
        """Which of them follow on nothing that is known."""
        return np.append(True, self.ceases[:-1] < self.times[1:])[: len(self.times)]


def levels_in(steps: Steps, interval: Extent) -> list[Level]:
    """Return what each account held in an interval."""
    return [_level(steps, account, interval) for account in range(len(steps))]


def _level(steps: Steps, account: int, interval: Extent) -> Level:
    head, stop = steps.bounds[account : account + 2].tolist()
    times = steps.times[head:stop]
    ceases = np.full(len(times), NEVER) if steps.ceases is None else steps.ceases[head:stop]
    first = max(int(np.searchsorted(times, interval.start, side="right")) - 1, 0)
    first += int(ceases[first] <= interval.start)
    rows = np.arange(first, max(int(np.searchsorted(times, interval.before)), first))
    begins = np.maximum(times[rows], interval.start)
    return Level(account, begins, take(steps.words, head + rows), ceases[rows])


def count_columns(ax: Axes) -> int:
    """Return how many columns an Axes has that nobody can tell apart."""
    return max(int(inches(ax)[0] * _COLUMNS_PER_INCH), 1)


def broken(
    times: NDArray[np.int64], levels: NDArray[np.float64], ceases: NDArray[np.int64], end: int
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


def draw_line(
    ax: Axes,
    times: NDArray[np.int64],
    levels: NDArray[np.float64],
    ceases: NDArray[np.int64],
    interval: Extent,
    **style: Any,  # noqa: ANN401 - of a line
) -> Line2D:
    """Draw a line of steps to the end of an interval, broken where it isn't known: see `broken`.

    A piece of no length would be invisible: it is a dot.
    """
    edges, drawn = broken(times, levels, ceases, interval.end)
    is_held = np.concatenate([[False], ~np.isnan(drawn), [False]])
    heads, stops = np.flatnonzero(np.diff(is_held)).reshape(-1, 2).T
    least = 1 if interval.known is None else sliver(interval.start, interval.end)
    dots = heads[edges[stops] - edges[heads] < least].tolist()
    (line,) = ax.plot(
        edges.view("M8[us]"),
        np.append(drawn, drawn[-1]),
        drawstyle="steps-post",
        markevery=dots or None,
        **{"marker": "o" if dots else None, "markersize": 3, **style},
    )
    return line


def draw_area(
    ax: Axes,
    edges: NDArray[np.int64],
    levels: NDArray[np.float64],
    **style: Any,  # noqa: ANN401 - of a patch
) -> StepPatch:
    """Draw the area between steps and zero, and return it; `edges` are microseconds."""
    dates = to_dates(edges)
    area = StepPatch(levels, dates, baseline=0, fill=True, linewidth=0, **style)
    # Not `add_patch` or `stairs`: they look for the extremes of each step as if it were a curve.
    ax.add_artist(area)
    drawn = np.nan_to_num(levels)
    extremes = [min(drawn.min(), 0), max(drawn.max(), 0)]
    ax.update_datalim(np.array([(date, level) for date in dates[[0, -1]] for level in extremes]))
    ax.autoscale_view()
    return area


def last_edge(times: NDArray[np.int64], interval: Extent) -> int:
    """Return until when to draw a last step: to the end, and no narrower than can be seen."""
    return max(interval.end, int(times[-1]) + sliver(interval.start, interval.end))
