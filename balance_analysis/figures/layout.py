"""Room for words, whatever size an Axes has: its title, its legend and the names of its lines.

Legends and names stand inside the Axes, in a strip that its limits leave free. What stands around
it (ticks, labels, title) is for the layout engine of the figure; without one, the Axes gives way.
Matplotlib asks where an Axes is before it draws or measures it: only then all sizes are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.gridspec import GridSpec
from matplotlib.transforms import Bbox

from balance_analysis.figures.legends import (
    PAD,
    SIZES,
    break_words,
    draw_legend,
    name_lines,
    points_of,
    room_for_names,
    width_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation, Text

    Limits = tuple[float, float]


def finish(
    ax: Axes,
    title: str,
    handles: Sequence[Artist] = (),
    *,
    notes: Sequence[Artist] = (),
    says: Sequence[str] = (),
    ends: bool = False,
) -> Axes:
    """Give an Axes its title and a legend, which from now on keep to the room that there is.

    Parameters
    ----------
    handles
        What a legend shows of the data; the first ones where there is no room for all.
    notes
        What it shows besides, such as hatches.
    says
        What it says above them.
    ends
        Whether the handles are lines that are named at their ends instead, where there is room.
    """
    located: Any = ax.get_axes_locator()
    before = located.before if isinstance(located, Layout) else located
    if old := ax.get_legend():
        old.remove()
    if before is not located:
        located.remove_names()
    if any(other.get_title("left") for other in _twins(ax)):
        title = ""
    head = ax.set_title(title, loc="left", fontsize=10.5, parse_math=False)
    ax.yaxis.label.set_parse_math(False)
    words = [(text, text.get_text(), float(text.get_fontsize())) for text in (head, ax.yaxis.label)]
    layout = Layout(
        ax,
        before,
        words,
        list(handles),
        list(notes),
        "; ".join(says),
        ends,
        ax.get_xlim(),
        ax.get_ylim(),
    )
    layout.write(ax)
    ax.set_axes_locator(layout)
    return ax


@dataclass(slots=True)
class Layout:
    """Where an Axes is: an `axes_locator` of matplotlib.

    Attributes
    ----------
    ax
        The Axes.
    before
        The locator that the Axes had, such as that of an inset.
    words
        The title and the label of the y axis, each with its words and size.
    handles, notes, says, ends
        As for `finish`.
    x, y
        The limits without the strips for words.
    strip
        The height of the legend, in points.
    """

    ax: Axes
    before: Callable[..., Any] | None
    words: list[tuple[Text, str, float]]
    handles: list[Artist]
    notes: list[Artist]
    says: str
    ends: bool
    x: Limits
    y: Limits
    strip: float = 0.0
    _legend: Legend | None = None
    _limits: tuple[Limits, Limits] | None = None
    _seen: tuple[Any, ...] = ()
    _names: list[Annotation] = field(default_factory=list)

    def __call__(self, ax: Any, renderer: Any) -> Bbox:  # noqa: ANN401 - as matplotlib has them
        """Return where the Axes is, once its words have their room."""
        position: Bbox = ax.get_position(original=True)
        leader = next(each for each in _group(ax) if each.get_axes_locator() is not None)
        if leader is not ax:
            position = leader.get_position()
        elif self.before is not None:
            position = self.before(ax, renderer)
        elif ax.figure.get_layout_engine() is None:
            self._fit_words(ax)
            position = _give_way(ax, position)
        ax.apply_aspect(position)
        self.write(ax)
        ax.apply_aspect(position)  # of an Axes with an aspect, another one now
        return position

    def get_subplotspec(self) -> Any:  # noqa: ANN401 - a SubplotSpec, or none
        """Return where the Axes is in its grid, as `tight_layout` asks."""
        return self.ax.get_subplotspec()

    def _fit_words(self, ax: Axes) -> None:
        """Let the title and the label be as small, and broken, as their room is."""
        # A title that somebody sets by `set_title` stands in the middle: it is instead of ours.
        self.words[0][0].set_visible(not ax.get_title())
        for (text, words, size), room in zip(self.words, points_of(ax), strict=True):
            if not words.strip() or text.get_text().split() != words.split():
                continue  # somebody has changed it
            found = min(size, max(SIZES[-1], room / max(map(width_of, words.split("\n")))))
            text.set_fontsize(found)
            text.set_text(
                "\n".join(break_words(line, room / found + 0.5) for line in words.split("\n"))
            )

    def write(self, ax: Axes) -> None:
        """Write the legend, or the names of lines, in letters and columns that have room."""
        self._fit_words(ax)
        mine = _group(ax)
        strips = [getattr(each.get_axes_locator(), "strip", 0.0) for each in mine]
        above, others = sum(strips[: mine.index(ax)]), sum(strips) - strips[mine.index(ax)]
        width, height = points_of(ax)
        legend = self._legend
        is_mine = ax.get_legend() is legend and (legend is None or legend.get_visible())
        seen = round(width), round(height), ax.get_xlim(), ax.get_ylim(), above, others, is_mine
        if seen == self._seen:
            return
        self.remove_names()
        x, y = self._free_limits(ax)
        is_alone = _is_alone(ax.get_shared_x_axes(), ax)
        lines: list[Any] = self.handles if self.ends and x and is_alone else []
        room = room_for_names(lines, width, height)
        handles = [] if room else self.handles
        self.strip = 0.0
        if is_mine:  # nobody has hidden it, or put another one there
            self.strip = draw_legend(ax, handles, self.notes, self.says, above=above)
            self._legend = ax.get_legend()
        if x:
            ax.set_xlim(x[0], x[0] + (x[1] - x[0]) * width / (width - room), auto=None)
        if y:
            _leave_free(ax, y, self.strip + others)
        self._limits = ax.get_xlim(), ax.get_ylim()
        self._names = name_lines(ax, lines if room else [], height - self.strip - others)
        self._seen = *seen[:2], *self._limits, *seen[4:]

    def remove_names(self) -> None:
        """Remove the names of lines, as far as nobody has cleared the Axes."""
        for name in self._names:
            if name.axes:
                name.remove()
        self._names = []

    def _free_limits(self, ax: Axes) -> tuple[Limits | None, Limits | None]:
        """Return the limits of both axes without strips; `None` where they aren't ours to set."""
        x, y = self._limits or (ax.get_xlim(), ax.get_ylim())
        if ax.get_ylim() != y and ax.get_autoscaley_on():
            self.y = y = ax.get_ylim()
        return (
            self.x if ax.get_xlim() == x else None,
            self.y if ax.get_ylim() == y and _is_alone(ax.get_shared_y_axes(), ax) else None,
        )


@dataclass(frozen=True, slots=True)
class _Beside:
    """The locator of an Axes that lies on another one: it stays there."""

    ax: Axes

    def __call__(self, ax: Any, renderer: Any) -> Bbox:  # noqa: ANN401 - as matplotlib has them
        return self.ax.get_position()

    def get_subplotspec(self) -> Any:  # noqa: ANN401 - a SubplotSpec, or none
        """Return where the Axes is in its grid, as `tight_layout` asks."""
        return self.ax.get_subplotspec()


def _is_alone(group: Any, ax: Axes) -> bool:  # noqa: ANN401 - a view of matplotlib's
    return len(group.get_siblings(ax)) == 1


def _twins(ax: Axes) -> list[Axes]:
    """Return the Axes that lie on another one, as those of `twinx` do."""
    place = ax.get_position(original=True).bounds
    group = [*ax.get_shared_x_axes().get_siblings(ax), *ax.get_shared_y_axes().get_siblings(ax)]
    return [
        other
        for other in dict.fromkeys(group)
        if other is not ax and other.get_position(original=True).bounds == place
    ]


def _group(ax: Axes) -> list[Axes]:
    """Return an Axes and those that lie on it, in the order in which they are drawn."""
    group = {ax, *_twins(ax)}
    return [each for each in ax.figure.axes if each in group] or [ax]  # an inset is none of these


def _give_way(ax: Axes, place: Bbox) -> Bbox:
    """Return which part of the place of an Axes its ticks, labels and titles leave to it."""
    spec, twins = ax.get_subplotspec(), _twins(ax)
    if spec is None or not isinstance(spec.get_gridspec(), GridSpec):
        return place
    boxes = [each.get_tightbbox(call_axes_locator=False) for each in (ax, *twins)]
    outer = Bbox.union([box for box in boxes if box]).padded(PAD * ax.figure.dpi / 72)
    drawn = outer.transformed(ax.figure.transSubfigure.inverted())
    for twin in twins:
        if twin.get_axes_locator() is None:
            twin.set_axes_locator(_Beside(ax))
    cell = _cell(ax, spec)
    found = Bbox.from_extents(
        place.x0 + max(cell.x0 - drawn.x0, 0),
        place.y0 + max(cell.y0 - drawn.y0, 0),
        place.x1 - max(drawn.x1 - cell.x1, 0),
        place.y1 - max(drawn.y1 - cell.y1, 0),
    )
    return found if found.x1 > found.x0 and found.y1 > found.y0 else place


def _cell(ax: Axes, spec: Any) -> Bbox:  # noqa: ANN401 - a SubplotSpec
    """Return what a place in a grid has for itself: half of the gaps above and below it."""
    grid, rows, columns = spec.get_gridspec(), spec.rowspan, spec.colspan
    bottoms, tops, lefts, rights = grid.get_grid_positions(ax.figure)
    first, last = columns.start, columns.stop
    top, bottom = rows.start, rows.stop
    return Bbox.from_extents(
        rights[first - 1] if first else 0,
        (bottoms[bottom - 1] + tops[bottom]) / 2 if bottom < grid.nrows else 0,
        rights[last - 1] + (lefts[last] - rights[last - 1]) / 8 if last < grid.ncols else 1,
        (tops[top] + bottoms[top - 1]) / 2 if top else 1,
    )


def _leave_free(ax: Axes, limits: Limits, room: float) -> None:
    """Let the y axis end so far above some limits that some points of its height are free."""
    scale, height = ax.yaxis.get_transform(), points_of(ax)[1]
    low, high = scale.transform(np.array(limits))
    if ax.get_aspect() != "auto":  # it becomes higher
        start, stop = scale.transform(np.array(ax.get_ylim()))
        height = height * abs((high - low) / (stop - start)) + room
    top = low + (high - low) / (1 - min(room / height, 0.9))
    ax.set_ylim(limits[0], float(scale.inverted().transform(np.array([top]))[0]), auto=None)
