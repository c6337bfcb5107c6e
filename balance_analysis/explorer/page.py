"""The page itself: its files, as a service sends them, or frozen into one."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Final

from markupsafe import Markup

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A browser runs no script and takes no style but the page's files, and asks nobody else."""

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_MODULES: Final = ("text", "data", "table", "chart", "app")
"""The page's own modules, none of which imports one behind it; no two have the same names."""

_WIRING: Final = re.compile(r"^import .*\n|^export ", re.MULTILINE)
_LINKED: Final = re.compile(r'<(link rel="stylesheet"|script) .*>\n')


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page and its files by their paths, each with its media type."""
    folder = resources.files("balance_analysis.explorer") / "static"
    found = {
        f"/static/{file.name}": (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    return {**found, "/": found.pop("/static/index.html")}


def freeze_page(title: str, head: Markup, data: bytes) -> str:
    """Return the page as one HTML file that needs nothing else.

    Parameters
    ----------
    title
        What it is of.
    head
        What it tells without scripts, too.
    data
        What `freeze` returns.
    """
    style = _read("explorer.css")
    script = "".join(_WIRING.sub("", _read(f"{name}.js")) for name in _MODULES)
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    before = f"""\
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="balance-analysis">
<style>{style}</style>
</head>"""
    behind = f"""\
<script type="application/gzip" id="frozen">{base64.b64encode(data).decode()}</script>
<script type="module">{script}</script>
</body>"""
    html = _LINKED.sub("", static_files()["/"][0].decode())
    html = html.replace("</head>", before).replace("</body>", behind)
    html = html.replace("<title>Balances</title>", Markup("<title>{}</title>").format(title))
    return html.replace('<div id="said"></div>', f'<div id="said">{head}</div>')


def _read(name: str) -> str:
    return static_files()[f"/static/{name}"][0].decode()


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
