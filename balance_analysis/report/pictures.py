"""The pictures of the report: figures of this package as SVG that stands inside the page.

A page's content security policy refuses styles in elements, so they become attributes. A picture is
drawn once, black on white: the page's style sheet turns it round on dark paper.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from balance_analysis.figures.axes import unit_of
from balance_analysis.figures.balances import plot_drawdown
from balance_analysis.figures.concentration import plot_concentration
from balance_analysis.figures.flows import draw_flows, period_name
from balance_analysis.figures.totals import plot_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.assets import Assets
    from balance_analysis.report.content import AssetContent, Content
    from balance_analysis.report.tables import AssetUnit

_SIZE: Final = (7.0, 3.2)
_FLAT: Final = (7.0, 1.6)
_MARGIN: Final = 3
"""Around all that is drawn, in 1/72 inch."""

_SHORTEST: Final = dt.timedelta(seconds=1)

_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_LEFT_OUT: Final = re.compile(
    r"^.*?<svg[^>]*>|<style.*?</style>|(?<=<g) id=\"[^\"]*\"|\s*\n\s*", re.DOTALL
)
_TAG: Final = re.compile(r"<\w[^>]*>")
_NUMBER: Final = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_STYLE: Final = re.compile(r' style="([^"]*)"')
_LINES: Final = re.compile(r' d="([MLz\d. -]+)"')
_POINT: Final = re.compile(r"([MLz]) ?(-?[\d.]+)? ?(-?[\d.]+)?")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page: its markup, and what stands under it."""

    caption: str
    svg: Markup


class Pictures:
    """Draws the pictures of one page, whose ids are all different."""

    def __init__(self, content: Content, assets: Assets) -> None:
        self._assets = assets
        self._numbers = count(1)
        self._freq = content.freq
        start, end = content.source.start, content.source.end
        is_shown = start is not None and end is not None and end - start >= _SHORTEST
        self._span: dict[str, Any] = {"start": start, "end": end} if is_shown else {}

    def of_asset(self, asset: AssetContent, unit: AssetUnit) -> list[tuple[Picture, ...]]:
        """Draw what is there and flowed, and who holds it."""
        draw, freq, table = self.draw, self._freq, asset.table
        shown: dict[str, Any] = {"opening": asset.opening, **self._span}
        amount = unit_of(table, asset.summary, self._assets)
        totals = f"Totals by account type, {unit.label}"
        flows = f"Inflow, outflow and net by {period_name(freq)}, {unit.label}"
        unevenly, largest = "How unevenly it is held at the end", "The largest holders over time"
        return [
            (
                draw(totals, plot_totals, table, assets=self._assets, **shown),
                draw(flows, draw_flows, asset.history, asset.flows, freq=freq, unit=amount),
            ),
            (
                draw(unevenly, plot_concentration, table, **shown),
                draw(largest, plot_concentration, table, kind="largest", freq=freq, **shown),
            ),
        ]

    def of_account(
        self, rows: pd.DataFrame, opening: pd.DataFrame | None, unit: AssetUnit
    ) -> Picture:
        """Draw the balance of one account, of which these are the rows and the opening."""
        caption = f"Balance and, below zero, how far it lies under its peak so far, {unit.label}"
        shown = {"opening": opening, "assets": self._assets, **self._span}
        return self.draw(caption, plot_drawdown, rows, **shown)

    def draw(
        self,
        caption: str,
        plot: Callable[..., Axes],
        *data: Any,  # noqa: ANN401 - what the plot is of
        is_flat: bool = False,
        **options: Any,  # noqa: ANN401 - of the plot
    ) -> Picture:
        """Draw what a function of `figures` makes of some data."""
        figure = Figure(figsize=_FLAT if is_flat else _SIZE)
        with _any_letters():
            plot(*data, ax=figure.add_subplot(), title="", **options)
        return Picture(caption, to_svg(figure, key=str(next(self._numbers)), label=caption))


@contextmanager
def _any_letters() -> Iterator[None]:
    """Let words have letters that the page's font has, and matplotlib's, which measures, lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", append=False)
        yield


def to_svg(figure: Figure, *, key: str, label: str) -> Markup:
    """Return a figure of one Axes as an `svg` element.

    Parameters
    ----------
    figure
        The figure.
    key
        Makes its ids others than those of the page's other pictures.
    label
        What it shows, for who doesn't see it.
    """
    sink = io.StringIO()
    # Text stays text: that is smaller, and can be found and copied.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": key}
    with mpl.rc_context(settings), _any_letters():
        _fit(figure)
        figure.savefig(sink, format="svg", metadata=_METADATA, transparent=True)
    width, height = (72 * length for length in figure.get_size_inches())
    drawn = _TAG.sub(_written, _LEFT_OUT.sub("", _CONTROL.sub("\ufffd", sink.getvalue())))
    return Markup('<svg role="img" viewBox="0 0 {:g} {:g}" aria-label="{}">{}').format(
        width,
        height,
        label,
        Markup(drawn),  # noqa: S704 - matplotlib has escaped it
    )


def _fit(figure: Figure) -> None:
    """Give the Axes the room that its words leave: a layout engine would draw all of it twice."""
    (ax,) = figure.axes
    for axis in (ax.xaxis, ax.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useMathText(False)
    outer: Any = ax.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    sizes = np.tile(figure.bbox.size, 2)
    room = np.abs(np.subtract(outer.extents, ax.bbox.extents)) + _MARGIN * figure.dpi / 72
    left, bottom, right, top = room / sizes
    ax.set_position((left, bottom, 1 - left - right, 1 - bottom - top))


def _written(tag: re.Match[str]) -> str:
    """Return a tag in few letters, its style as attributes."""
    text = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), tag[0])
    return _STYLE.sub(_attributes, _LINES.sub(_path, text))


def _attributes(style: re.Match[str]) -> str:
    pairs = (declaration.strip().partition(": ") for declaration in style[1].split(";"))
    return "".join(f' {name}="{value}"' for name, _, value in pairs if name != "font-family")


def _path(lines: re.Match[str]) -> str:
    """Return the lines of a path in few letters: a step goes across, then up or down."""
    written, before = [], ("", "")
    for letter, x, y in _POINT.findall(lines[1]):
        if letter == "L" and y == before[1]:
            written.append(f"H{x}" if x != before[0] else "")
        elif letter == "L" and x == before[0]:
            written.append(f"V{y}")
        else:
            written.append(f"{letter}{x} {y}".rstrip())
        before = (x, y)
    return f' d="{"".join(written)}"'
