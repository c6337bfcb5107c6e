"""Room for words, whatever size an Axes has: its title, its legend and the names of its lines.

Legends and names stand inside the Axes, in a strip that its limits leave free. What stands around
it (ticks, labels, title) is the business of the figure's layout engine; without one, the Axes gives
way. Matplotlib asks where an Axes is before it draws or measures it: only then all sizes are known.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import GridSpec
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from balance_analysis.text import count_text

Limits = tuple[float, float]

_SIZES: Final = (8.5, 7.5, 6.5)
"""The sizes that letters may have, in points."""

_ROW: Final = 1.65
"""The height of a row of a legend, in sizes of its letters."""

_HANDLE, _GAP = 2.8, 1.4
"""The widths of a handle and of the gap between two columns, in sizes of letters."""

_HIGH, _HIGHEST, _WIDEST = 0.45, 0.55, 0.3
"""The parts of an Axes that are for words: of its height for a legend, or for one that shows all
labels, and of its width for names."""

_LEGEND: Final[dict[str, Any]] = {
    "loc": "upper left",
    "alignment": "left",
    "borderaxespad": 0.3,
    "borderpad": 0.3,
    "labelspacing": 0.35,
    "handlelength": 1.8,
    "handletextpad": 0.5,
    "columnspacing": _GAP,
    "framealpha": 0.85,
    "edgecolor": "none",
}

_PAD: Final = 4.0
"""Points around what is drawn."""


def points_of(ax: Axes) -> tuple[float, float]:
    """Return how wide and high an Axes is, in points: as yet, since words may still need room."""
    scale = 72 / ax.figure.dpi
    return float(ax.bbox.width * scale), float(ax.bbox.height * scale)


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
    handles, notes, says
        What a legend shows of the data, the first ones where there is no room for all; what it
        shows besides, such as hatches; and what it says above them.
    ends
        Whether the handles are lines that are named at their ends instead, where there is room.
    """
    before: Any = ax.get_axes_locator()
    if old := ax.get_legend():
        old.remove()
    if isinstance(before, Layout):
        before.remove_names()
        before = before.before
    if any(other.get_title("left") for other in _twins(ax)):
        title = ""
    head = ax.set_title(title, loc="left", fontsize=10.5, parse_math=False)
    ax.yaxis.label.set_parse_math(False)
    words = [(text, text.get_text(), float(text.get_fontsize())) for text in (head, ax.yaxis.label)]
    layout = Layout(ax, before, words, handles, notes, "; ".join(says), ends)
    layout.write()
    ax.set_axes_locator(layout)
    return ax


@dataclass(slots=True)
class Layout:
    """Where an Axes is: an `axes_locator` of matplotlib.

    Attributes
    ----------
    ax, before
        The Axes, and the locator that it had, such as that of an inset.
    words
        The title and the label of the y axis, each with its words and size; none for an Axes that
        only lies on another one.
    handles, notes, says, ends
        As for `finish`.
    x, y, strip
        The limits without the strips for words, and the height of the legend, in points.
    """

    ax: Axes
    before: Callable[..., Any] | None = None
    words: Sequence[tuple[Text, str, float]] = ()
    handles: Sequence[Artist] = ()
    notes: Sequence[Artist] = ()
    says: str = ""
    ends: bool = False
    x: Limits = field(init=False)
    y: Limits = field(init=False)
    strip: float = 0.0
    _legend: Legend | None = None
    _limits: tuple[Limits, Limits] = field(init=False)
    _seen: tuple[Any, ...] = ()
    _names: list[Annotation] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take the limits that the Axes has without strips."""
        self.x, self.y = self._limits = self.ax.get_xlim(), self.ax.get_ylim()

    def __call__(self, ax: Any, renderer: Any) -> Bbox:  # noqa: ANN401 - as matplotlib has them
        """Return where the Axes is, once its words have their room."""
        position: Bbox = ax.get_position(original=True)
        layouts = [each.get_axes_locator() for each in _group(ax)]
        leader = next(each for each in layouts if isinstance(each, Layout) and each.words)
        if leader is not self:
            position = leader.ax.get_position()
        elif self.before is not None:
            position = self.before(ax, renderer)
        elif ax.figure.get_layout_engine() is None:
            self._fit_words()
            position = _give_way(ax, position)
        ax.apply_aspect(position)
        self.write()
        return position

    def get_subplotspec(self) -> Any:  # noqa: ANN401 - a SubplotSpec, or none
        """Return where the Axes is in its grid, as `tight_layout` asks."""
        return self.ax.get_subplotspec()

    def write(self) -> None:
        """Write the legend, or the names of lines, in letters and columns that have room."""
        if not self.words:
            return
        self._fit_words()
        ax, (width, height), mine = self.ax, points_of(self.ax), _group(self.ax)
        strips = [getattr(each.get_axes_locator(), "strip", 0.0) for each in mine]
        above, others = sum(strips[: mine.index(ax)]), sum(strips) - strips[mine.index(ax)]
        legend = self._legend
        is_mine = ax.get_legend() is legend and (legend is None or legend.get_visible())
        seen = round(width), round(height), above, others, is_mine
        if (*seen, ax.get_xlim(), ax.get_ylim()) == self._seen:
            return
        self.remove_names()
        has_x, has_y = self._own_limits()
        lines: Sequence[Any] = self.handles if self.ends and has_x else ()
        room = _room_for_names(lines, width, height)
        self.strip = 0.0
        if is_mine:  # nobody has hidden it, or put another one there
            self._write_legend(() if room else self.handles, above)
        if has_x:
            span = (self.x[1] - self.x[0]) * width / (width - room)
            ax.set_xlim(self.x[0], self.x[0] + span, auto=None)
        if has_y:
            _leave_free(ax, self.y, self.strip + others)
        self._limits = ax.get_xlim(), ax.get_ylim()
        self._names = _name_lines(ax, lines, height - self.strip - others) if room else []
        self._seen = *seen, *self._limits

    def remove_names(self) -> None:
        """Remove the names of lines, as far as nobody has cleared the Axes."""
        for name in self._names:
            if name.axes:
                name.remove()
        self._names = []

    def _fit_words(self) -> None:
        """Let the title and the label be as small, and broken, as their room is."""
        # A title that somebody sets by `set_title` stands in the middle: it is instead of ours.
        self.words[0][0].set_visible(not self.ax.get_title())
        for (text, words, size), room in zip(self.words, points_of(self.ax), strict=True):
            lines = words.split("\n")
            if words.strip() and text.get_text().split() == words.split():  # nobody has changed it
                found = min(size, max(_SIZES[-1], room / max(map(_width, lines))))
                text.set_fontsize(found)
                text.set_text("\n".join(_broken(line, room / found + 0.5) for line in lines))

    def _own_limits(self) -> tuple[bool, bool]:
        """Return of which axes the limits are ours to set: nobody else has, or shares them."""
        ax, (x, y) = self.ax, self._limits
        if ax.get_ylim() != y and ax.get_autoscaley_on():
            self.y = y = ax.get_ylim()
        groups = ax.get_shared_x_axes(), ax.get_shared_y_axes()
        is_alone_x, is_alone_y = (len(group.get_siblings(ax)) == 1 for group in groups)
        return is_alone_x and ax.get_xlim() == x, is_alone_y and ax.get_ylim() == y

    def _write_legend(self, handles: Sequence[Artist], above: float) -> None:
        """Put a legend at the top of the Axes, below what others have there."""
        if self._legend:
            self._legend.remove()
            self._legend = None
        width, height = points_of(self.ax)
        labels, notes = ([str(each.get_label()) for each in some] for some in (handles, self.notes))
        found = _fit_legend(labels, notes, self.says, width - 2 * _PAD, height)
        if found is None:
            return
        size, columns, shown, texts, title = found
        more = [Line2D([], [], linestyle="none")] * (shown < len(handles))
        self._legend = legend = self.ax.legend(
            [*handles[:shown], *more, *self.notes][: len(texts)],
            texts,
            ncols=columns,
            fontsize=size,
            title=title,
            title_fontsize=size,
            bbox_to_anchor=(0, 1 - above / height),
            **_LEGEND,
        )
        legend.set_in_layout(False)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set_parse_math(False)
        self.strip = legend.get_window_extent().height * 72 / self.ax.figure.dpi + 0.3 * size + _PAD


def _fit_legend(
    labels: Sequence[str], notes: Sequence[str], says: str, width: float, height: float
) -> tuple[float, int, int, list[str], str] | None:
    """Return how a legend has room, or `None`: labels without room are counted, long ones cut.

    That is the size of letters, the number of columns, how many labels are shown, all entries, and
    what stands above them, in lines.
    """
    choices = [(size, len(labels), _HIGH) for size in _SIZES]
    choices += [(_SIZES[-1], len(labels), _HIGHEST)]
    choices += [(_SIZES[-1], shown, _HIGH) for shown in range(len(labels) - 1, -1, -1)]
    for size, shown, part in choices:
        hidden, letters = len(labels) - shown, width / size
        texts = [*labels[:shown], *notes]
        if size == _SIZES[-1]:
            texts = [_cut(text, letters - _HANDLE) for text in texts]
        texts[shown:shown] = [f"and {count_text(hidden, 'other')}"] * bool(hidden)
        wide = [_width(text) + _HANDLE for text in texts]
        title = _broken(says, letters - 1)
        most = int(height * part / size / _ROW - (title.count("\n") + 1) * bool(title))
        for columns in range(max(len(texts), bool(says)), 0, -1):
            parts = [max(part, default=0) for part in np.array_split(wide, columns)]
            if -(-len(texts) // columns) > most:
                break
            if sum(parts) + _GAP * (columns - 1) <= letters:
                return size, columns, shown, texts, title
    if says or notes:  # the data's own labels matter most
        return _fit_legend(labels, notes if says else (), "", width, height)
    return None


def _width(words: str) -> float:
    """Return how wide words are in letters of one point."""
    font = FontProperties(size=100)
    return max(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0] / 100, 1e-3)


def _cut(label: str, width: float) -> str:
    """Return a label that is no wider than some letters of one point."""
    while _width(label) > width and len(label) > 1:
        label = f"{label.removesuffix('…')[:-1]}…"
    return label


def _broken(words: str, width: float) -> str:
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
    return wide if has_room and np.isfinite(_ends(lines)).all() else 0.0


def _ends(lines: Sequence[Line2D]) -> NDArray[np.float64]:
    """Return where each line ends, in units of the data."""
    return np.array([np.asarray(line.get_xydata())[-1] for line in lines], np.float64)


def _name_lines(ax: Axes, lines: Sequence[Line2D], height: float) -> list[Annotation]:
    """Write the names of lines at their ends, apart from each other."""
    size, points, ends = _SIZES[0], 72 / ax.figure.dpi, _ends(lines)
    levels = ax.transData.transform(ends)[:, 1] * points
    low = ax.bbox.y0 * points + size * 0.9
    wanted = _spread(levels, size * 1.25, low, low + height - size * 1.8)
    leader = {"arrowstyle": "-", "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 0}
    return [
        ax.annotate(
            str(line.get_label()),
            xy=(end[0], end[1]),
            xytext=(4 * _PAD, shift),
            textcoords="offset points",
            va="center",
            fontsize=size,
            annotation_clip=False,
            parse_math=False,
            in_layout=False,
            arrowprops={**leader, "color": line.get_color(), "linestyle": line.get_linestyle()},
        )
        for line, end, shift in zip(lines, ends, wanted - levels, strict=True)
    ]


def _spread(
    places: NDArray[np.float64], distance: float, low: float, high: float
) -> NDArray[np.float64]:
    """Return places at least a distance apart, in their order and near their own."""
    order = np.argsort(places, kind="stable")
    steps = np.arange(len(places)) * distance
    wanted = places[order] - steps  # which ascend where places are far enough apart
    risen = np.maximum.accumulate(wanted)
    fallen = np.minimum.accumulate(wanted[::-1])[::-1]
    found = np.empty(len(places))
    found[order] = np.clip((risen + fallen) / 2, low, max(high - steps[-1], low)) + steps
    return found


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
    needed = Bbox.union([box for box in boxes if box]).padded(_PAD * ax.figure.dpi / 72)
    drawn = needed.transformed(ax.figure.transSubfigure.inverted())
    for twin in twins:
        if twin.get_axes_locator() is None:
            twin.set_axes_locator(Layout(twin))
    low, high = _cell(ax, spec).get_points() - drawn.get_points()
    low, high = place.min + np.maximum(low, 0), place.max + np.minimum(high, 0)
    return Bbox([low, high]) if (high > low).all() else place


def _cell(ax: Axes, spec: Any) -> Bbox:  # noqa: ANN401 - a SubplotSpec
    """Return what a place in a grid has for itself, with its parts of the gaps around it."""
    bottoms, tops, lefts, rights = spec.get_gridspec().get_grid_positions(ax.figure)
    down = [1, *(bottoms[:-1] + tops[1:]) / 2, 0]
    across = [0, *rights[:-1] + (lefts[1:] - rights[:-1]) / 8, 1]  # labels stand on the left
    (left, right), (top, bottom) = (
        (edges[span.start], edges[span.stop])
        for edges, span in ((across, spec.colspan), (down, spec.rowspan))
    )
    return Bbox.from_extents(left, bottom, right, top)


def _leave_free(ax: Axes, limits: Limits, room: float) -> None:
    """Let the y axis end so far above some limits that some points of its height are free."""
    scale, height = ax.yaxis.get_transform(), points_of(ax)[1]
    low, high = scale.transform(np.array(limits))
    top = low + (high - low) / (1 - min(room / height, 0.9))
    ax.set_ylim(limits[0], float(scale.inverted().transform(np.array([top]))[0]), auto=None)
