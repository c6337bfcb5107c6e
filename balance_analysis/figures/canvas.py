"""What every figure has: its Axes, a legend beside it, and words where there is nothing to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch

from balance_analysis.figures.palette import UNKNOWN_HATCH
from balance_analysis.figures.thinning import count_columns, thin
from balance_analysis.figures.times import to_dates
from balance_analysis.schema import to_microseconds
from balance_analysis.text import moment_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from numpy.typing import NDArray

    from balance_analysis.figures.palette import Style
    from balance_analysis.schema import Instant

_LINE_HEIGHT: Final = 1.75
"""Of a line in a legend, in sizes of its font."""

_SMALL, _SMALLEST = 8.5, 5.0


def new_axes(ax: Axes | None, *, size: tuple[float, float] = (10, 4.5)) -> Axes:
    """Return the given Axes, or that of a new figure of `matplotlib.pyplot`."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

    return plt.subplots(figsize=size, layout="constrained")[1]


def ink(ax: Axes) -> Any:  # noqa: ANN401 - a colour as matplotlib has them
    """Return the colour of an Axes' own words, which stands out on its background."""
    return ax.xaxis.label.get_color()


def check_columns(frame: pd.DataFrame, source: str, names: Sequence[str]) -> None:
    """Raise where a frame that isn't what a source returns lacks columns.

    Raises
    ------
    ValueError
        It says which.
    """
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(
            f"expected the frame of {source}; this one has no column {', '.join(missing)}"
        )


def explain(ax: Axes, words: str) -> Axes:
    """Say why there is nothing to see."""
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
    return ax


def explain_no_changes(ax: Axes, start: Instant | None, end: Instant | None) -> Axes:
    """Say that there is no row in an interval, as far as it is bounded."""
    first, last = (
        None if bound is None else named(to_microseconds(bound)) for bound in (start, end)
    )
    if first is not None:
        where = f"\nsince {first}" if last is None else f"\nfrom {first} to {last}"
    else:
        where = "" if last is None else f"\nbefore {last}"
    return explain(ax, f"no balance changes{where}")


def named(microseconds: int) -> str:
    """Return a moment in words; of midnight the date alone."""
    text = moment_text(microseconds, "seconds")
    return text if microseconds % 86_400_000_000 else text.removesuffix(" 00:00:00 UTC")


def unknown_patch(ax: Axes, label: str = "unknown") -> Patch:
    """Return what a legend shows for a stretch in which something is unknown."""
    return Patch(facecolor="none", edgecolor=ink(ax), hatch=UNKNOWN_HATCH, alpha=0.35, label=label)


def draw_unknown(ax: Axes, start: float, end: float, *, label: str | None = "unknown") -> None:
    """Hatch a stretch of the x axis, from top to bottom."""
    ax.axvspan(
        start,
        end,
        facecolor="none",
        edgecolor=ink(ax),
        hatch=UNKNOWN_HATCH,
        alpha=0.35,
        linewidth=0,
        zorder=0.5,
        label=label,
    )


def draw_bands(
    ax: Axes,
    edges: NDArray[np.int64],
    tops: NDArray[np.float64],
    styles: Sequence[Style],
    labels: Sequence[str],
) -> list[StepPatch]:
    """Draw areas of steps on top of each other, thinned, and return them from the bottom up.

    Each reaches down to zero, and those below are drawn over it, so that there is no seam.

    Parameters
    ----------
    edges
        Microseconds: when each step begins, and when the last one ends.
    tops
        The upper level of each area, a row each, in each step; NaN where none is drawn.
    styles, labels
        Of each area.
    """
    areas = []
    for number, (top, style, label) in enumerate(zip(tops, styles, labels, strict=True)):
        places = thin(edges[:-1], np.nan_to_num(top), columns=count_columns(ax))
        area = draw_area(
            ax,
            np.append(edges[places], edges[-1]),
            top[places],
            facecolor=style.colour,
            edgecolor=ax.get_facecolor(),
            hatch=style.hatch,
            label=label,
            zorder=1 - number / 1000,
        )
        areas.append(area)
    return areas


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


def note(words: str) -> Line2D:
    """Return an entry of a legend that has words only."""
    return Line2D([], [], linestyle="none", label=words)


def legend_beside(
    ax: Axes,
    handles: Sequence[Artist] | None = None,
    *,
    title: str | None = None,
    reverse: bool = False,
) -> Legend:
    """Put a legend to the right of an Axes, in letters small enough for its height."""
    found: list[Any] = ax.get_legend_handles_labels()[0] if handles is None else list(handles)
    labels = [str(handle.get_label()) for handle in found]
    lines = sum(label.count("\n") + 1 for label in [*labels, *([title] if title else [])])
    figure = ax.get_figure(root=True)
    height = 72 * ax.get_position().height * (4.5 if figure is None else figure.get_figheight())
    size = min(_SMALL, max(_SMALLEST, height / max(lines, 1) / _LINE_HEIGHT))
    return ax.legend(
        found,
        labels,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        borderaxespad=0,
        fontsize=size,
        title_fontsize=size,
        alignment="left",
        frameon=False,
        reverse=reverse,
    )
