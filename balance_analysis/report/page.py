"""The page of a report: one HTML file that needs nothing else, and what it tells the next one."""

from __future__ import annotations

import base64
import colorsys
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib.colors import to_hex, to_rgb

from balance_analysis.errors import BalanceAnalysisError
from balance_analysis.report.svg import colours_of
from balance_analysis.schema import from_microseconds, to_microseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from balance_analysis.report.parts import Report

_FORMAT: Final = 1
_NOTE: Final = re.compile(
    r'<script type="application/json" id="balance-analysis-report">(.*?)</script>', re.DOTALL
)
_PAPER, _INK = "#15181d", "#e6e8eb"
_LIGHTEST, _DARKEST, _BEND = 0.92, 0.1, 1.4
"""How light black and white become, and how much longer what lies between stays light."""

_FAINT: Final = 0.03
"""How far the parts of a grey differ at most."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a report tells the next one.

    Attributes
    ----------
    start, end
        Its interval, half-open, UTC; `None` where it had none.
    previous_end
        Where the report before it ended; `None` where there was none.
    """

    start: dt.datetime | None
    end: dt.datetime | None
    previous_end: dt.datetime | None


def render(report: Report, note: Note) -> str:
    """Return the page."""
    script = _template("report.js")
    style = _template("report.css") + _night(report.pictures)
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            note=Markup(_to_json(note)),  # noqa: S704 - nothing in it can end the element
            script=Markup(script),  # noqa: S704 - this package's own
            style=Markup(style),  # noqa: S704 - likewise
            policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _template(name: str) -> str:
    folder = resources.files("balance_analysis.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _night(pictures: Iterable[str]) -> str:
    """Return what the pictures' colours become on dark paper, as the end of a style sheet."""
    colours = sorted(set().union(*map(colours_of, pictures)))
    rules = [
        f'svg [{name}="{colour}"]{{{name}:{dark_of(colour)}}}'
        for colour in colours
        for name in ("fill", "stroke")
    ]
    return "@media screen and (prefers-color-scheme: dark){" + "".join(rules) + "}\n"


def dark_of(colour: str) -> str:
    """Return what a colour becomes on dark paper: of the same hue, light where it was dark.

    White becomes the paper, black the ink, and colours that differ still do.

    Examples
    --------
    >>> dark_of("#ffffff"), dark_of("#000000")
    ('#15181d', '#e6e8eb')
    """
    parts = to_rgb(colour)
    if max(parts) - min(parts) < _FAINT:
        light = sum(parts) / len(parts)
        paper, ink = np.array(to_rgb(_PAPER)), np.array(to_rgb(_INK))
        return to_hex(tuple(paper * light + ink * (1 - light)))
    hue, light, saturation = colorsys.rgb_to_hls(*parts)
    return to_hex(
        colorsys.hls_to_rgb(hue, _LIGHTEST - (_LIGHTEST - _DARKEST) * light**_BEND, saturation)
    )


def _to_json(note: Note) -> str:
    content = {
        "format": _FORMAT,
        **{name: _iso(getattr(note, name)) for name in ("start", "end", "previous_end")},
    }
    return json.dumps(content).replace("<", "\\u003c")


def _iso(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def read_note(page: str) -> Note | None:
    """Return what a page tells the next one; `None` if it is no report of this package."""
    found = _NOTE.search(page)
    if found is None:
        return None
    try:
        content: dict[str, Any] = json.loads(found[1])
        moments = {name: content[name] for name in ("start", "end", "previous_end")}
        return Note(
            **{
                name: None if moment is None else from_microseconds(to_microseconds(moment))
                for name, moment in moments.items()
            }
        )
    except (ValueError, KeyError, TypeError, BalanceAnalysisError):
        return None
