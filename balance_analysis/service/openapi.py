"""What the service offers, as an OpenAPI 3.1 document.

Every request that it allows is answered, but for a cursor that no answer gave, both cursors at
once, and a view's range that ends before it starts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from balance_analysis import __version__
from balance_analysis.explorer.wire import MOST_ACCOUNTS, NUMBERS, VIEWS
from balance_analysis.schema import ACCOUNT_TYPES

VIEWS_AT: Final = "/explore"
_DOCUMENT: Final = Path(__file__).with_name("openapi.json")


def describe() -> dict[str, Any]:
    """Return the document, for the caller to keep."""
    document: dict[str, Any] = json.loads(_DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    document["components"]["schemas"]["AccountType"]["enum"] = list(ACCOUNT_TYPES)
    document["paths"] |= {f"{VIEWS_AT}/{name}": {"get": _view(name)} for name in VIEWS}
    return document


def _view(name: str) -> dict[str, Any]:
    about, asked = VIEWS[name]
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/View"}}}
    return {
        "operationId": f"explore{name.capitalize()}",
        "summary": f"Explore: {name}",
        "description": about,
        "parameters": [{"name": each, "in": "query", "schema": _schema(each)} for each in asked],
        "responses": {
            "200": {"description": "The view.", "content": answer},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _schema(parameter: str) -> dict[str, Any]:
    if parameter in NUMBERS:
        least, most = NUMBERS[parameter]
        return {"type": "integer", "minimum": least, "maximum": most}
    if parameter == "account":
        key = {"type": "string", "pattern": r"^[^|]*\|[^|]*\|[^|]*\|[^|]*$"}
        return {"type": "array", "items": key, "maxItems": MOST_ACCOUNTS}
    return {"type": "string", **({"enum": ["party"]} if parameter == "by" else {})}
