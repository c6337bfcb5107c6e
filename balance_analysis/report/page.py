"""The page of a report: what it consists of, and one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

if TYPE_CHECKING:
    from balance_analysis.report.pictures import Picture
    from balance_analysis.report.tables import Sheet


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a section: pictures, tables, and those that only show when they are asked for."""

    title: str
    words: str = ""
    pictures: tuple[Picture, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    folded: tuple[Sheet, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountSection:
    """One account: its ids with their names, and what it did: names, values, and when that was."""

    anchor: str
    title: str
    ids: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str, str], ...]
    picture: Picture


@dataclass(frozen=True, slots=True)
class AssetSection:
    """One asset, and those of its accounts that have a section."""

    anchor: str
    title: str
    asset_id: str
    words: str
    parts: tuple[Part, ...]
    accounts_title: str
    accounts: tuple[AccountSection, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole page; `parts` stand before the assets, {anchor: part}."""

    title: str
    interval: str
    verdict: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    parts: dict[str, Part]
    assets: tuple[AssetSection, ...]


def render(report: Report) -> str:
    """Return the page."""
    script, style = _template("report.js"), _template("report.css")
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        report=report,
        script=Markup(script),  # noqa: S704 - this package's own
        style=Markup(style),  # noqa: S704 - likewise
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
    )


@cache
def _template(name: str) -> str:
    folder = resources.files("balance_analysis.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
