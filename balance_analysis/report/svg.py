"""A figure of matplotlib as SVG that stands inside a page: small, described, and dark at night.

Colours become attributes, which a page's style sheet may overrule, so one picture serves both
themes. What an inline SVG doesn't need, or a strict content security policy refuses, is left out.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))

_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_FINE, _COARSE, _LONG = 2, 1, 100
"""How many decimals a number has, in 1/72 inch, and one of a path of so many points."""

_NUMBER: Final = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_POINT: Final = re.compile(r"([MLz])(?: (\S+) (\S+))?")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_COLOURS: Final = re.compile(r'(?:fill|stroke)="(#[0-9a-f]{6})"')


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page.

    Attributes
    ----------
    caption
        What stands under it.
    svg
        Its markup.
    note
        What is to be known of it.
    """

    caption: str
    svg: Markup
    note: str = ""


def to_svg(figure: Figure, *, key: str, title: str, description: str) -> Markup:
    """Return a figure as an `svg` element.

    Parameters
    ----------
    figure
        The figure.
    key
        What its ids begin with: another for each picture of a page.
    title, description
        What it shows, for who doesn't see it.
    """
    _tame(figure)
    sink = io.StringIO()
    # Text stays text: that is smaller, and can be found and copied.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": key}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The page's font has letters that matplotlib's, by which room is measured, lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", append=False)
        _lay_out(figure)
        figure.savefig(sink, format="svg", metadata=_METADATA, transparent=True)
    root = ET.fromstring(sink.getvalue())  # noqa: S314 - matplotlib has just written it
    drawn = "".join(_written(child, key) for child in root)
    box = _rounded(root.get("viewBox", ""))
    return Markup(
        '<svg role="img" viewBox="{box}" aria-labelledby="{key}-t {key}-d">'
        '<title id="{key}-t">{title}</title><desc id="{key}-d">{description}</desc>'
    ).format(box=box, key=key, title=title, description=description) + Markup(drawn + "</svg>")  # noqa: S704 - escaped by _written


def _lay_out(figure: Figure) -> None:
    """Give everything its place once: to save a figure that has a layout engine does it twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def _tame(figure: Figure) -> None:
    """Let ids be what they are: no formulas between dollars, nothing that XML can't hold."""
    for text in figure.findobj(Text):
        written = text.get_text()
        if "$" in written and not written.startswith("$\\mathdefault"):
            text.set_parse_math(False)
        if _CONTROL.search(written):
            text.set_text(_CONTROL.sub("\ufffd", written))


def colours_of(svg: str) -> set[str]:
    """Return the colours that a picture is drawn in."""
    return set(_COLOURS.findall(svg))


def _written(element: ET.Element, key: str) -> str:
    """Return an element and what is in it as markup."""
    name = element.tag.removeprefix(_SVG)
    if name in {"metadata", "style"} or element.tag.startswith("{http://www.w3.org/1999/02"):
        return ""
    inside = _escape(element.text) if name in {"text", "tspan"} else ""
    inside += "".join(_written(child, key) for child in element)
    attributes = dict(_attributes(element, name, key))
    if name in {"g", "defs"} and not attributes:
        return inside if name == "g" else (f"<defs>{inside}</defs>" if inside else "")
    said = "".join(f' {name}="{_escape(value)}"' for name, value in attributes.items())
    return f"<{name}{said}>{inside}</{name}>" if inside else f"<{name}{said}/>"


def _escape(text: str | None) -> str:
    return str(Markup.escape(text or ""))


def _attributes(element: ET.Element, name: str, key: str) -> Iterator[tuple[str, str]]:
    for attribute, value in element.items():
        if attribute == "style":
            yield from _declarations(value, key)
        elif attribute == "id":
            if name != "g":
                yield "id", f"{key}-{value}"
        elif attribute == _LINK:
            yield "href", value if value.startswith("data:") else f"#{key}-{value[1:]}"
        elif attribute == "d":
            yield "d", _path(value)
        elif attribute == "transform":
            if not value.startswith("rotate(-0 "):
                yield attribute, _rounded(value)
        elif not attribute.startswith("{"):
            yield attribute, _referring(_rounded(value), key)


def _declarations(style: str, key: str) -> Iterator[tuple[str, str]]:
    """Yield what a style says as attributes."""
    for declaration in filter(None, map(str.strip, style.split(";"))):
        name, _, value = declaration.partition(":")
        value = value.strip()
        if name == "font":
            size = re.search(r"[\d.]+px", value)
            yield "font-size", size[0] if size else "10px"
        elif name != "font-family":
            yield name, _referring(_rounded(value), key)


def _path(data: str) -> str:
    """Return the lines of a path in few letters: a step goes across, then up or down."""
    flat = " ".join(data.split())
    if "C" in flat or "Q" in flat:
        return _rounded(flat)
    points = _POINT.findall(flat)
    places = _FINE if len(points) < _LONG else _COARSE
    written, before = [], ("", "")
    for letter, *pair in points:
        if letter == "z":
            written.append("z")
            continue
        x, y = (_short(number, places) for number in pair)
        if letter == "M":
            written.append(f"M{x} {y}")
        elif x != before[0]:
            written.append(f"H{x}" if y == before[1] else f"L{x} {y}")
        elif y != before[1]:
            written.append(f"V{y}")
        before = (x, y)
    return "".join(written)


def _short(number: str, places: int) -> str:
    text = f"{float(number):.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _referring(value: str, key: str) -> str:
    return _REFERENCE.sub(rf"url(#{key}-\1)", value)


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda found: _short(found[0], _FINE), text)
