"""The page at /docs: the interface for people, from the same description as for programs."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup, escape

from balance_analysis.service.errors import Code, error_response
from balance_analysis.service.openapi import CHANGES, describe

_TEMPLATE: Final = Path(__file__).with_name("docs.html")
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_CODE: Final = re.compile(r"`([^`]+)`")
_EXAMPLES: Final = {
    CHANGES: "?pagination.first=5&pagination.newestFirst=false"
    "&dateRange.startTimestamp=1680307200000000000&dateRange.endTimestamp=1680393600000000000"
}


@functools.cache
def page() -> tuple[str, str]:
    """Return the page, which needs nothing from elsewhere, and the policy that says so.

    Returns
    -------
    tuple of str
        HTML, and a `Content-Security-Policy` by which a browser runs no script and takes no style
        but the page's own, and asks nobody but this service.
    """
    environment = jinja2.Environment(autoescape=True)
    environment.filters["prose"] = _prose
    html = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        api=describe(), examples=_EXAMPLES, error=_error()
    )
    hashes = {"script": "", "style": ""}
    for kind, content in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind] += f" 'sha256-{digest}'"
    return html, (
        f"default-src 'none'; script-src{hashes['script']}; style-src{hashes['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _prose(text: str) -> Markup:
    """Return text as HTML, what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


def _error() -> str:
    body = error_response(Code.INVALID_ARGUMENT, "pagination.first=0 is not a page size").body
    return json.dumps(json.loads(bytes(body)), indent=2)
