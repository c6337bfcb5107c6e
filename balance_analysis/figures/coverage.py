"""What an archive holds of time: complete, unproven and missing stretches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from balance_analysis.figures.axes import check_columns, explain, format_lanes, new_axes
from balance_analysis.figures.palette import BLUE, ORANGE, VERMILION
from balance_analysis.figures.times import format_times, to_dates
from balance_analysis.text import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.archive.archive import Archive

_STATES: Final = {"complete": BLUE, "unproven": ORANGE, "gap": VERMILION}
_HEIGHT: Final = 0.7


def plot_coverage(coverage: pd.DataFrame | Archive, *, ax: Axes | None = None) -> Axes:
    r"""Draw which stretches of time an archive holds, as bars in a row for each state.

    Each bar has an edge, so that a gap of an hour is seen among years.

    Parameters
    ----------
    coverage
        The frame of `Archive.coverage()`, or an archive.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where nothing is covered, it says so.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If the frame is another one.
    ArchiveError
        If there is no archive, or it is damaged.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> moments = pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-04", "2023-04-05"], utc=True)
    >>> ax = plot_coverage(pd.DataFrame({
    ...     "start": moments[:3], "end": moments[1:], "state": ["complete", "gap", "complete"],
    ... }))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['complete\n3 days', 'gap\n1 day']
    """
    if not isinstance(coverage, pd.DataFrame):
        if not callable(getattr(coverage, "coverage", None)):
            raise TypeError(
                "a coverage is the frame of Archive.coverage(), or an Archive, such as "
                f"Archive('path'); not {coverage!r}"
            )
        coverage = coverage.coverage()
    check_columns(coverage, "Archive.coverage()", ("start", "end", "state"))
    ax = new_axes(ax, size=(10, 2.4))
    if coverage.empty:
        return explain(ax, "nothing is covered yet")
    labels: list[str] = []
    for state, colour in _STATES.items():
        spans = coverage[coverage["state"] == state]
        if spans.empty:
            continue
        starts, ends = (to_dates(_microseconds(spans[name])) for name in ("start", "end"))
        bars = list(zip(starts, ends - starts, strict=True))
        lane = (len(labels) - _HEIGHT / 2, _HEIGHT)
        ax.broken_barh(bars, lane, facecolor=colour, edgecolor=colour, linewidth=1)
        length = pd.Timedelta((spans["end"] - spans["start"]).sum())
        labels.append(f"{state}\n{duration_text(length)}")
    format_lanes(ax, labels)
    first, last = _microseconds(coverage["start"]).min(), _microseconds(coverage["end"]).max()
    format_times(ax, int(first), int(last))
    return ax


def _microseconds(times: pd.Series[pd.Timestamp]) -> NDArray[np.int64]:
    return times.to_numpy("M8[us]").view(np.int64)
