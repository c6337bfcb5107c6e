"""Read a report as its page's script does: the views that are frozen in it."""

import base64
import gzip
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import quote

FROZEN = re.compile(r'<script type="application/gzip" id="frozen">([^<]*)</script>')


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))


@dataclass
class Page:
    """Elements with their attributes, texts with their elements, and the frozen views."""

    elements: list[tuple[str, dict[str, str]]]
    texts: list[tuple[str, str]]
    frozen: dict[str, object]

    def text(self, *tags):
        return "\n".join(text for tag, text in self.texts if not tags or tag in tags)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def view(self, *values):
        return self.frozen["views"][write_view(*values)]

    def bounds(self):
        about = self.view("about")
        return about["start"], about["end"]

    def histories(self):
        """The accounts that have a line, in order."""
        return [json.loads(key)[1] for key in self.frozen["views"] if key.startswith('["series",')]

    def line(self, account):
        (line,) = self.view("series", write_key(account), *self.bounds(), 4000)["series"]
        return line

    def summary(self, account):
        summary = self.view("account", write_key(account), *self.bounds())["summary"]
        return next(iter(as_dicts(summary)))


def write_key(account):
    """Return an account's key in the page's script: one text."""
    return "|".join(quote(part, safe="") for part in account)


def write_view(view, *values):
    """Return the key of a frozen view: its name and parameters as one text."""
    return json.dumps([view, *map(str, values)], ensure_ascii=False, separators=(",", ":"))


def as_dicts(sheet):
    names = [column["name"] for column in sheet["columns"]]
    return [dict(zip(names, row, strict=True)) for row in sheet["rows"]]


def read_page(path):
    html = path.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(html)
    frozen = json.loads(gzip.decompress(base64.b64decode(FROZEN.search(html)[1])))
    return Page(reader.elements, reader.texts, frozen)
