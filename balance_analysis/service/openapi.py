"""What the service offers, as an OpenAPI 3.1 document for programs, and as a page for people.

It promises what is kept: every request that it allows is answered, but for a cursor that no answer
gave and for both cursors at once, and every answer has the form that it tells.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from balance_analysis import __version__
from balance_analysis.explorer.wire import MOST_ACCOUNTS, NUMBERS, VIEWS
from balance_analysis.schema import ACCOUNT_TYPES
from balance_analysis.service.errors import RefusedError

CHANGES: Final = "/api/v2/balance/changes"
LIMITS: Final = "/api/v2/network/limits"
VIEWS_AT: Final = "/explore"

_DOCUMENT: Final = Path(__file__).with_name("openapi.json")
_TEMPLATE: Final = Path(__file__).with_name("docs.html")
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_CODE: Final = re.compile(r"`([^`]+)`")
_MEANINGS: Final = {
    "asset": "The id of an asset; by default the first one.",
    "account": "The key of an account, as other views give it. Repeat the name for each.",
    "start": "Start of the range, inclusive, in microseconds since 1970-01-01 UTC.",
    "end": "End of the range, exclusive, likewise.",
    "at": "The moment, likewise; by default the last one.",
    "text": "Part of an id or of a type, whatever its case.",
    "width": "How many points across the chart has.",
    "page": "Which page, from 0.",
    "version": "The state to answer from, as `about` tells it; by default the current one.",
}
_EXAMPLES: Final = {
    CHANGES: "?pagination.first=5&pagination.newestFirst=false"
    "&dateRange.startTimestamp=1680307200000000000&dateRange.endTimestamp=1680393600000000000"
}


def describe() -> dict[str, Any]:
    """Return the document, for the caller to keep."""
    document: dict[str, Any] = json.loads(_DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    document["components"]["schemas"]["AccountType"]["enum"] = list(ACCOUNT_TYPES)
    document["paths"] |= {f"{VIEWS_AT}/{name}": {"get": _view(name)} for name in VIEWS}
    return document


def _view(name: str) -> dict[str, Any]:
    """Return the operation of a view of the explorer."""
    about, parameters = VIEWS[name]
    answer = {"$ref": "#/components/schemas/View"}
    refused = ("400", "403", "405", "409", "414", "416", "429", "500", "503", "504")
    return {
        "operationId": f"explore{name.capitalize()}",
        "summary": f"Explore: {name}",
        "description": about,
        "parameters": [_parameter(each) for each in parameters],
        "responses": {
            "200": {
                "description": "The view.",
                "content": {"application/json": {"schema": answer}},
            },
            **{status: {"$ref": f"#/components/responses/{status}"} for status in refused},
        },
    }


def _parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name == "account":
        key = {"type": "string", "pattern": r"^[^|]*\|[^|]*\|[^|]*\|[^|]*$"}
        schema = {"type": "array", "items": key, "maxItems": MOST_ACCOUNTS}
    elif name in NUMBERS:
        schema = {
            "type": "integer",
            **dict(zip(("minimum", "maximum"), NUMBERS[name], strict=True)),
        }
    return {"name": name, "in": "query", "description": _MEANINGS[name], "schema": schema}


@functools.cache
def page() -> tuple[str, str]:
    """Return the page at /docs, which needs nothing from elsewhere, and the policy that says so.

    By it, the `Content-Security-Policy`, a browser runs no script and takes no style but the page's
    own, and asks nobody but this service.
    """
    environment = jinja2.Environment(autoescape=True)
    environment.filters["prose"] = _prose
    error = json.loads(bytes(RefusedError("pagination.first=0 is not a page size").response().body))
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    html = template.render(api=describe(), examples=_EXAMPLES, error=json.dumps(error, indent=2))
    digests = {
        kind: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for kind, content in _INLINE.findall(html)
    }
    own = "".join(f"{kind}-src 'sha256-{digest}'; " for kind, digest in digests.items())
    return html, (
        f"default-src 'none'; {own}connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def _prose(text: str) -> Markup:
    """Return text as HTML, what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped
