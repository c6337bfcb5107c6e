"""Room for words, whatever size an Axes has: its title, its legend and the names of its lines.

Legends and names stand inside the Axes, in a strip that its limits leave free. What stands around
it (ticks, labels, title) is for the layout engine of the figure; without one, the Axes gives way.
Matplotlib asks where an Axes is before it draws or measures it: only then all sizes are known.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Bbox

from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation, Text
    from numpy.typing import NDArray

    Limits = tuple[float, float]

_SIZES: Final = (8.5, 7.5, 6.5)
"""Of letters, in points: the largest with which all has room."""

_ROW: Final = 1.65
"""The height of a row, in sizes of its letters."""

_HANDLE, _GAP = 2.8, 1.4
"""How wide what stands before a label is, and what between two columns, in sizes of letters."""

_HIGH, _HIGHEST, _WIDEST = 0.45, 0.55, 0.3
"""Of the height of an Axes is for its legend, with all labels at most the second, and of its width
for names."""

_PAD: Final = 4.0
"""Points around what is drawn."""


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
        for (text, words, size), room in zip(self.words, _points(ax), strict=True):
            if not words.strip() or text.get_text().split() != words.split():
                continue  # somebody has changed it
            found = min(size, max(_SIZES[-1], room / max(map(_width, words.split("\n")))))
            text.set_fontsize(found)
            text.set_text("\n".join(_break(line, room / found + 0.5) for line in words.split("\n")))

    def write(self, ax: Axes) -> None:
        """Write the legend, or the names of lines, in letters and columns that have room."""
        self._fit_words(ax)
        mine = _group(ax)
        strips = [getattr(each.get_axes_locator(), "strip", 0.0) for each in mine]
        above, others = sum(strips[: mine.index(ax)]), sum(strips) - strips[mine.index(ax)]
        width, height = _points(ax)
        legend = self._legend
        is_mine = ax.get_legend() is legend and (legend is None or legend.get_visible())
        seen = round(width), round(height), ax.get_xlim(), ax.get_ylim(), above, others, is_mine
        if seen == self._seen:
            return
        self.remove_names()
        x, y = self._free_limits(ax)
        is_alone = _is_alone(ax.get_shared_x_axes(), ax)
        lines: list[Any] = self.handles if self.ends and x and is_alone else []
        room = _room_for_names(lines, width, height)
        handles = [] if room else self.handles
        self.strip = 0.0
        if is_mine:  # nobody has hidden it, or put another one there
            self.strip = _draw_legend(ax, handles, self.notes, self.says, above=above)
            self._legend = ax.get_legend()
        if x:
            ax.set_xlim(x[0], x[0] + (x[1] - x[0]) * width / (width - room), auto=None)
        if y:
            _leave_free(ax, y, self.strip + others)
        self._limits = ax.get_xlim(), ax.get_ylim()
        self._names = _name_lines(ax, lines if room else [], height - self.strip - others)
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


def _points(ax: Axes) -> tuple[float, float]:
    """Return how wide and high an Axes is, in points."""
    scale = 72 / ax.figure.dpi
    return float(ax.bbox.width * scale), float(ax.bbox.height * scale)


def _width(words: str) -> float:
    """Return how wide words are in letters of one point."""
    font = FontProperties(size=100)
    return max(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0] / 100, 1e-3)


def _give_way(ax: Axes, place: Bbox) -> Bbox:
    """Return which part of the place of an Axes its ticks, labels and titles leave to it."""
    spec, twins = ax.get_subplotspec(), _twins(ax)
    if spec is None or not isinstance(spec.get_gridspec(), GridSpec):
        return place
    boxes = [each.get_tightbbox(call_axes_locator=False) for each in (ax, *twins)]
    outer = Bbox.union([box for box in boxes if box]).padded(_PAD * ax.figure.dpi / 72)
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
    scale, height = ax.yaxis.get_transform(), _points(ax)[1]
    low, high = scale.transform(np.array(limits))
    if ax.get_aspect() != "auto":  # it becomes higher
        start, stop = scale.transform(np.array(ax.get_ylim()))
        height = height * abs((high - low) / (stop - start)) + room
    top = low + (high - low) / (1 - min(room / height, 0.9))
    ax.set_ylim(limits[0], float(scale.inverted().transform(np.array([top]))[0]), auto=None)


def _draw_legend(
    ax: Axes, handles: Sequence[Artist], notes: Sequence[Artist], says: str, *, above: float
) -> float:
    """Draw a legend at the top of an Axes, and return how high it is, in points."""
    if old := ax.get_legend():
        old.remove()
    width, height = _points(ax)
    labels, words = ([str(each.get_label()) for each in some] for some in (handles, notes))
    room = width - 2 * _PAD
    found = fit_legend(labels, words, says, room, height)
    if found is None:
        return 0.0
    size, columns, shown, texts, title = found
    more = [Line2D([], [], linestyle="none")] * (shown < len(handles))
    legend = ax.legend(
        [*handles[:shown], *more, *notes],
        texts,
        loc="upper left",
        bbox_to_anchor=(0, 1 - above / height),
        ncols=columns,
        fontsize=size,
        title=title,
        title_fontsize=size,
        alignment="left",
        borderaxespad=0.3,
        borderpad=0.3,
        labelspacing=0.35,
        handlelength=1.8,
        handletextpad=0.5,
        columnspacing=_GAP,
        framealpha=0.85,
        edgecolor="none",
    )
    legend.set_in_layout(False)
    for text in (*legend.get_texts(), legend.get_title()):
        text.set_parse_math(False)
    return legend.get_window_extent().height * 72 / ax.figure.dpi + 0.3 * size + _PAD


def fit_legend(
    labels: Sequence[str], notes: Sequence[str], says: str, width: float, height: float
) -> tuple[float, int, int, list[str], str] | None:
    """Return in which size and how many columns a legend has room, and what stands in it.

    Labels that have none are counted, and those that are too long cut.

    Parameters
    ----------
    labels, notes
        Its entries: the first of the labels, and all notes.
    says
        What stands above them.
    width, height
        The Axes, in points.

    Returns
    -------
    tuple or None
        The size of letters, the number of columns, how many labels are shown, all entries and what
        stands above them, in lines; `None` where nothing has room.

    Examples
    --------
    >>> fit_legend(["one", "two", "three"], ["unknown"], "at the end", 200, 200)
    (8.5, 4, 3, ['one', 'two', 'three', 'unknown'], 'at the end')
    >>> fit_legend(["one", "two", "three"], [], "", 60, 50)
    (6.5, 1, 1, ['one', 'and 2 others'], '')
    """
    choices = [(size, len(labels), _HIGH) for size in _SIZES]
    choices += [(_SIZES[-1], len(labels), _HIGHEST)]
    choices += [(_SIZES[-1], shown, _HIGH) for shown in range(len(labels) - 1, -1, -1)]
    for size, shown, part in choices:
        hidden, letters = len(labels) - shown, width / size
        texts = [*labels[:shown], *[f"and {count_text(hidden, 'other')}"] * bool(hidden), *notes]
        if size == _SIZES[-1]:
            texts = [_cut(text, letters - _HANDLE) for text in texts]
        wide = [_width(text) + _HANDLE for text in texts]
        title = _break(says, letters - 1)
        most = int(height * part / size / _ROW - (title.count("\n") + 1) * bool(title))
        for columns in range(max(len(texts), bool(says)), 0, -1):
            parts = [max(part, default=0) for part in np.array_split(wide, columns)]
            if -(-len(texts) // columns) > most:
                break
            if sum(parts) + _GAP * (columns - 1) <= letters:
                return size, columns, shown, texts, title
    return None


def _cut(label: str, width: float) -> str:
    """Return a label that is no wider than some letters of one point."""
    cut = label
    while _width(cut) > width and len(cut) > 1:
        cut = f"{cut.removesuffix('…')[:-1]}…"
    return cut


def _break(words: str, width: float) -> str:
    """Return words in lines that are no wider than some letters of one point."""
    letters = len(words)
    while letters > 1 and any(_width(line) > width for line in textwrap.wrap(words, letters)):
        letters -= 1
    return textwrap.fill(words, letters) if words else ""


def _room_for_names(lines: Sequence[Line2D], width: float, height: float) -> float:
    """Return how wide names at the ends of lines are, in points; 0 where there is no room."""
    size = _SIZES[0]
    wide = max((_width(str(line.get_label())) for line in lines), default=0) * size + 6 * _PAD
    has_room = lines and wide <= _WIDEST * width and len(lines) * size * _ROW <= height * 0.8
    are_ended = all(np.isfinite(_end(line)[1]) for line in lines)
    return wide if has_room and are_ended else 0.0


def _end(line: Line2D) -> NDArray[np.float64]:
    return np.asarray(line.get_xydata(), np.float64)[-1:].ravel()


def _name_lines(ax: Axes, lines: Sequence[Line2D], height: float) -> list[Annotation]:
    """Write the names of lines at their ends, apart from each other."""
    size, dpi = _SIZES[0], ax.figure.dpi
    ends = np.array([_end(line) for line in lines]).reshape(-1, 2)
    levels = ax.transData.transform(ends)[:, 1] * 72 / dpi
    low = ax.bbox.y0 * 72 / dpi + size * 0.9
    wanted = spread(levels, size * 1.25, low, low + height - size * 1.8)
    return [
        ax.annotate(
            str(line.get_label()),
            xy=tuple(end),
            xytext=(4 * _PAD, place - level),
            textcoords="offset points",
            va="center",
            fontsize=size,
            annotation_clip=False,
            parse_math=False,
            in_layout=False,
            arrowprops={
                "arrowstyle": "-",
                "color": line.get_color(),
                "linestyle": line.get_linestyle(),
                "linewidth": 1,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )
        for line, end, level, place in zip(lines, ends, levels, wanted, strict=True)
    ]


def spread(
    places: NDArray[np.float64], distance: float, low: float, high: float
) -> NDArray[np.float64]:
    """Return places at least a distance apart, each as near to its own as that allows.

    Examples
    --------
    >>> spread(np.array([5.0, 0.0, 5.0]), 2, 0, 10).tolist()
    [4.0, 0.0, 6.0]
    """
    order = np.argsort(places, kind="stable")
    steps = np.arange(len(places)) * distance
    blocks: list[list[float]] = []
    for place in places[order] - steps:
        blocks.append([place, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            other, more = blocks[-1]
            blocks[-1] = [(mean * count + other * more) / (count + more), count + more]
    means = np.repeat([block[0] for block in blocks], [int(block[1]) for block in blocks])
    found = np.empty(len(places))
    top = high - steps[-1] if len(steps) else high
    found[order] = np.clip(means, low, max(top, low)) + steps
    return found
