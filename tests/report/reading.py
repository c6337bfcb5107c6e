"""Reads a report as a browser would, by the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "img"}


@dataclass
class Page:
    """What a page has.

    Attributes
    ----------
    tables
        {caption: rows}; of each row {head: text}, heads without units. Of several assets, the
        first one's.
    heads
        {caption: heads with units}.
    totals
        {caption: texts of its last row}.
    """

    tables: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    heads: dict[str, list[str]] = field(default_factory=dict)
    totals: dict[str, list[str]] = field(default_factory=dict)
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def text(self, *tags: str) -> str:
        return "\n".join(text for tag, text in self.texts if not tags or tag in tags)

    def table(self, begin: str) -> list[dict[str, str]]:
        (caption,) = (caption for caption in self.tables if caption.startswith(begin))
        return self.tables[caption]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.captions: dict[str, str] = {}
        self.caption = ""
        self.row: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.plain: list[str] = []

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        self.page.elements.append((tag, attributes))
        if tag == "table":
            self.caption = self.captions[attributes["aria-labelledby"]]
            self.rows = []
            self.page.tables.setdefault(self.caption, self.rows)
        if tag == "tr":
            self.row = []
        if tag in {"td", "th"}:
            self.row.append("")
            if tag == "th" and self.inside("thead"):
                self.plain.append("")
        if tag == "thead":
            self.plain = []
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag, attrs):
        self.page.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        name, _ = self.open.pop()
        assert name == tag, f"</{tag}> closes <{name}>"
        if tag == "tr" and self.inside("tbody"):
            heads = [head.strip() for head in self.plain]
            self.rows.append(dict(zip(heads, self.row, strict=True)))
        if tag == "tr" and self.inside("thead"):
            self.page.heads.setdefault(self.caption, self.row)
        if tag == "tr" and self.inside("tfoot"):
            self.page.totals.setdefault(self.caption, self.row)

    def handle_data(self, data):
        if not self.open:
            return
        tag, attributes = self.open[-1]
        self.page.texts.append((tag, data))
        if "caption" in attributes.get("class", ""):
            name = attributes["id"]
            self.captions[name] = self.captions.get(name, "") + data
        if self.row and (self.inside("td") or self.inside("th")):
            self.row[-1] += data
            if self.inside("thead") and attributes.get("class") != "unit":
                self.plain[-1] += data

    def inside(self, tag):
        return any(name == tag for name, _ in self.open)


def read_page(path):
    """Return what a page has; every element must be closed where it should be."""
    text = path if isinstance(path, str) else path.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader.page


def number(text: str) -> int | None:
    """Return a whole number as the page writes it."""
    return None if text == "unknown" else int(text.replace(",", ""))
