"""What the service offers, as an OpenAPI 3.1 document for programs, and as a page for people.

It promises what is kept: every request that it allows is answered, but for a cursor that no answer
gave, both cursors at once, or a view's range that ends before it starts, and every answer has the
form that it tells.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from balance_analysis import __version__
from balance_analysis.explorer.page import digest
from balance_analysis.explorer.wire import VIEWS
from balance_analysis.schema import ACCOUNT_TYPES
from balance_analysis.service.errors import RefusedError

CHANGES: Final = "/api/v2/balance/changes"
LIMITS: Final = "/api/v2/network/limits"
VIEWS_AT: Final = "/explore"

_DOCUMENT: Final = Path(__file__).with_name("openapi.json")
_TEMPLATE: Final = Path(__file__).with_name("docs.html")
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_CODE: Final = re.compile(r"`([^`]+)`")
_EXAMPLES: Final = {
    CHANGES: "?pagination.first=5&pagination.newestFirst=false"
    "&dateRange.startTimestamp=1680307200000000000&dateRange.endTimestamp=1680393600000000000"
}


def describe() -> dict[str, Any]:
    """Return the document, for the caller to keep."""
    document: dict[str, Any] = json.loads(_DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    document["components"]["schemas"]["AccountType"]["enum"] = list(ACCOUNT_TYPES)
    view = document.pop("x-view")
    document["paths"] |= {f"{VIEWS_AT}/{name}": {"get": _view(name, **view)} for name in VIEWS}
    return document


def _view(name: str, parameters: dict[str, Any], responses: dict[str, Any]) -> dict[str, Any]:
    """Return the operation of a view of the explorer, by what views may take and answer."""
    about, names = VIEWS[name]
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/View"}}}
    return {
        "operationId": f"explore{name.capitalize()}",
        "summary": f"Explore: {name}",
        "description": about,
        "parameters": [parameters[each] for each in names],
        "responses": {"200": {"description": "The view.", "content": answer}, **responses},
    }


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
    own = "".join(f"{kind}-src {digest(content)}; " for kind, content in _INLINE.findall(html))
    return html, (
        f"default-src 'none'; {own}connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def _prose(text: str) -> Markup:
    """Return text as HTML, what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped
