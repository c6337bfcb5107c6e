"""Legends and the names of lines, in the letters and columns for which an Axes has room."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from numpy.typing import NDArray

SIZES: Final = (8.5, 7.5, 6.5)
"""Of letters, in points: the largest with which all has room."""

_ROW: Final = 1.65
"""The height of a row, in sizes of its letters."""

_HANDLE, _GAP = 2.8, 1.4
"""How wide what stands before a label is, and what between two columns, in sizes of letters."""

_HIGH, _HIGHEST, _WIDEST = 0.45, 0.55, 0.3
"""Of the height of an Axes is for its legend, with all labels at most the second, and of its width
for names."""

PAD: Final = 4.0
"""Points around what is drawn."""


def points_of(ax: Axes) -> tuple[float, float]:
    """Return how wide and high an Axes is, in points."""
    scale = 72 / ax.figure.dpi
    return float(ax.bbox.width * scale), float(ax.bbox.height * scale)


def width_of(words: str) -> float:
    """Return how wide words are in letters of one point."""
    font = FontProperties(size=100)
    return max(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0] / 100, 1e-3)


def draw_legend(
    ax: Axes, handles: Sequence[Artist], notes: Sequence[Artist], says: str, *, above: float
) -> float:
    """Draw a legend at the top of an Axes, and return how high it is, in points."""
    if old := ax.get_legend():
        old.remove()
    width, height = points_of(ax)
    labels, words = ([str(each.get_label()) for each in some] for some in (handles, notes))
    room = width - 2 * PAD
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
    return legend.get_window_extent().height * 72 / ax.figure.dpi + 0.3 * size + PAD


def fit_legend(
    labels: Sequence[str], notes: Sequence[str], says: str, width: float, height: float
) -> tuple[float, int, int, list[str], str] | None:
    """Return in which size and how many columns a legend has room, and what stands in it.

    Labels that have none are counted, and those that are too long cut; their count never is.

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
    choices = [(size, len(labels), _HIGH) for size in SIZES]
    choices += [(SIZES[-1], len(labels), _HIGHEST)]
    choices += [(SIZES[-1], shown, _HIGH) for shown in range(len(labels) - 1, -1, -1)]
    for size, shown, part in choices:
        hidden, letters = len(labels) - shown, width / size
        named, told = [*labels[:shown]], [*notes]
        if size == SIZES[-1]:
            named, told = ([_cut(x, letters - _HANDLE) for x in some] for some in (named, told))
        texts = [*named, *[f"and {count_text(hidden, 'other')}"] * bool(hidden), *told]
        wide = [width_of(text) + _HANDLE for text in texts]
        title = break_words(says, letters - 1)
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
    while width_of(cut) > width and len(cut) > 1:
        cut = f"{cut.removesuffix('…')[:-1]}…"
    return cut


def break_words(words: str, width: float) -> str:
    """Return words in lines that are no wider than some letters of one point."""
    letters = len(words)
    while letters > 1 and any(width_of(line) > width for line in textwrap.wrap(words, letters)):
        letters -= 1
    return textwrap.fill(words, letters) if words else ""


def room_for_names(lines: Sequence[Line2D], width: float, height: float) -> float:
    """Return how wide names at the ends of lines are, in points; 0 where there is no room."""
    size = SIZES[0]
    wide = max((width_of(str(line.get_label())) for line in lines), default=0) * size + 6 * PAD
    has_room = lines and wide <= _WIDEST * width and len(lines) * size * _ROW <= height * 0.8
    are_ended = all(np.isfinite(_end(line)[1]) for line in lines)
    return wide if has_room and are_ended else 0.0


def _end(line: Line2D) -> NDArray[np.float64]:
    return np.asarray(line.get_xydata(), np.float64)[-1:].ravel()


def name_lines(ax: Axes, lines: Sequence[Line2D], height: float) -> list[Annotation]:
    """Write the names of lines at their ends, apart from each other."""
    size, dpi = SIZES[0], ax.figure.dpi
    ends = np.array([_end(line) for line in lines]).reshape(-1, 2)
    levels = ax.transData.transform(ends)[:, 1] * 72 / dpi
    low = ax.bbox.y0 * 72 / dpi + size * 0.9
    wanted = spread(levels, size * 1.25, low, low + height - size * 1.8)
    return [
        ax.annotate(
            str(line.get_label()),
            xy=tuple(end),
            xytext=(4 * PAD, place - level),
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
