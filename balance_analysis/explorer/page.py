"""Load the files of the explorer's page, and pack the page with its data into one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib import resources
from typing import Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of a served page: it may load only from its own service."""

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_IMPORTS: Final = re.compile(r'^import [^;]* from "./(\w+)\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)
_LINKED: Final = re.compile(r'<(link rel="stylesheet"|script) .*>\n')


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page and its files by path, each with its media type."""
    folder = resources.files("balance_analysis.explorer") / "static"
    files = {
        f"/static/{file.name}": (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    return {**files, "/": files.pop("/static/index.html")}


def freeze_page(title: str, head: str, data: bytes) -> str:
    """Return the page as one HTML file that needs nothing else.

    Parameters
    ----------
    title
        The title, as plain text.
    head
        HTML for the top of the page, shown even without scripts.
    data
        The data that the script shows, as JSON.
    """
    style, script = _read("explorer.css"), "".join(_modules("app", set()))
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    packed = base64.b64encode(gzip.compress(data, mtime=0)).decode()
    before = f"""\
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="balance-analysis">
<style>{style}</style>
</head>"""
    behind = f"""\
<script type="application/gzip" id="frozen">{packed}</script>
<script type="module">{script}</script>
</body>"""
    html = _LINKED.sub("", static_files()["/"][0].decode())
    html = html.replace("</head>", before).replace("</body>", behind)
    html = html.replace("<title>Balances</title>", f"<title>{escape(title)}</title>")
    return html.replace('<div id="said"></div>', f'<div id="said">{head}</div>')


def _modules(name: str, seen: set[str]) -> Iterator[str]:
    """Yield a module of the page after the modules that it imports, each once."""
    if name not in seen:
        seen.add(name)
        text = _read(f"{name}.js")
        for other in _IMPORTS.findall(text):
            yield from _modules(other, seen)
        yield _EXPORT.sub("", _IMPORTS.sub("", text))


def _read(name: str) -> str:
    return static_files()[f"/static/{name}"][0].decode()


def _digest(text: str) -> str:
    """Return a script's or a style's hash for a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
