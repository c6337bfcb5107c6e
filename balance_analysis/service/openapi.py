"""What the service offers, as an OpenAPI 3.1 document for programs, and as a page for people.

It promises what is kept: every request that it allows is answered, but for a cursor that no answer
gave and for both cursors at once, and every answer has the form that it tells.
"""

from __future__ import annotations

import functools
import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from balance_analysis import __version__
from balance_analysis.schema import ACCOUNT_TYPES
from balance_analysis.service import parameters as names
from balance_analysis.service.errors import RefusedError
from balance_analysis.service.guards import LONGEST_URL, RATE_HEADERS

CHANGES: Final = "/api/v2/balance/changes"
LIMITS: Final = "/api/v2/network/limits"

CURSOR: Final = "cursor"
"""The format of what `startCursor`, `endCursor` and `cursor` hold."""

_TEMPLATE: Final = Path(__file__).with_name("docs.html")
_CODE: Final = re.compile(r"`([^`]+)`")
_EXAMPLES: Final = {
    CHANGES: "?pagination.first=5&pagination.newestFirst=false"
    "&dateRange.startTimestamp=1680307200000000000&dateRange.endTimestamp=1680393600000000000"
}

Json = dict[str, Any]

_ID: Final = "^[0-9a-fA-F]{64}$"
_PARTY: Final = "^(network|[0-9a-fA-F]{64})$"
_INT64: Final = "^-?([0-9]{1,18}|[0-8][0-9]{18})$"
_NANOSECONDS: Final = "Nanoseconds since 1970-01-01 UTC, as text: many languages' numbers round it."

_HEADERS: Final = {
    "Warning": "Present where the period reaches beyond what the archive is known to hold; "
    "names what is missing.",
    "X-Incomplete": "Sent with a warning, for programs: the stretches of which rows may be "
    "missing, half-open, in nanoseconds, such as `0-1000, 5000-6000`.",
    "X-Block-Height": "The last block that the archive knows.",
    "X-Block-Timestamp": f"Where what the archive knows ends. {_NANOSECONDS}",
    RATE_HEADERS[0]: "How many requests may come at once.",
    RATE_HEADERS[1]: "How many of them are left.",
    RATE_HEADERS[2]: "Seconds.",
}
_WORDS: Final = ("Warning", "X-Incomplete")
_BLOCK: Final = ("X-Block-Height", "X-Block-Timestamp")

_ERRORS: Final = {
    400: "A parameter is wrong; `details[0].inner` names it, and says what to send instead.",
    404: "There is no such thing.",
    405: "Only GET and HEAD are supported.",
    414: f"Path and query are longer than {LONGEST_URL:,} bytes.",
    416: "The period reaches beyond what the archive is known to hold (with `--strict-coverage`).",
    429: "Too many requests from this address; there is no Retry-After.",
    500: "Unexpected error.",
    503: "The archive can't be read now, or too many requests are under way: ask again.",
    504: "The question took too long: ask for less.",
}
_ANYWHERE: Final = (405, 414, 429, 500, 503)


def describe() -> Json:
    """Return the document, for the caller to keep."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Balance changes and network limits",
            "version": __version__,
            "description": "Changes of account balances, and the limits of the network, read-only, "
            "from an archive. A list is paged by cursors that lose no row.",
        },
        "servers": [{"url": "/"}],
        "paths": {CHANGES: {"get": _list_changes()}, LIMITS: {"get": _get_limits()}},
        "components": {
            "schemas": _schemas(),
            "responses": {str(status): _error(status) for status in _ERRORS},
            "headers": {name: _header(name) for name in _HEADERS},
        },
    }


def _list_changes() -> Json:
    return {
        "operationId": "listBalanceChanges",
        "summary": "List balance changes",
        "description": "One row for each block in which an account was touched: its balance from "
        "then on. Rows are in order of time, and inside a block of account; the first row of an "
        "account in a period is not its first ever. For all rows of a period, take the pages by "
        f"`{names.AFTER}` while `hasNextPage` is true.",
        "parameters": _parameters(),
        "responses": {
            "200": _answer("A page of rows.", "ListBalanceChangesResponse", *_WORDS, *_BLOCK),
            **_errors(400, 416, 504),
        },
    }


def _get_limits() -> Json:
    return {
        "operationId": "getNetworkLimits",
        "summary": "Get the network limits",
        "description": "The newest limits that the archive holds.",
        "responses": {
            "200": _answer("The limits.", "GetNetworkLimitsResponse", *_BLOCK),
            **_errors(404),
        },
    }


def _parameters() -> list[Json]:
    size = {"type": "integer", "format": "int32", "minimum": 1, "maximum": names.MAX_PAGE_SIZE}
    moment = {"type": "string", "format": "int64", "pattern": _INT64}
    cursor = {"type": "string", "format": CURSOR}
    each = f"Repeat the name for each, up to {LONGEST_URL:,} bytes of path and names."
    default = f"{names.DEFAULT_PAGE_SIZE:,} if neither this nor `{names.LAST}` is sent."
    found = {
        names.ASSET: ({"type": "string"}, "Only accounts of this asset."),
        names.PARTIES: (_texts(_PARTY), f"Only accounts of any of these parties. {each}"),
        names.MARKETS: (_texts(_ID), f"Only accounts of any of these markets. {each}"),
        names.TYPES: (
            {"type": "array", "items": _reference("AccountType")},
            f"Only accounts of any of these types. {each}",
        ),
        names.START: (moment, f"Start of the period, inclusive. {_NANOSECONDS}"),
        names.END: (moment, f"End of the period, exclusive. {_NANOSECONDS}"),
        names.NEWEST_FIRST: (
            {"type": "boolean", "default": True},
            "Whether the newest rows come first.",
        ),
        names.FIRST: (size, f"How many rows, from the start or after `{names.AFTER}`; {default}"),
        names.AFTER: (cursor, f"The `endCursor` of the page before. Not with `{names.BEFORE}`."),
        names.LAST: (
            size,
            f"How many rows, to the end or to `{names.BEFORE}`. Unused with `{names.FIRST}`.",
        ),
        names.BEFORE: (
            cursor,
            f"The `startCursor` of the page after, to go back. Not with `{names.AFTER}`.",
        ),
    }
    return [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, (schema, text) in found.items()
    ]


def _texts(pattern: str) -> Json:
    return {"type": "array", "items": {"type": "string", "pattern": pattern}}


def _answer(description: str, schema: str, *headers: str) -> Json:
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {"application/json": {"schema": _reference(schema)}},
    }


def _errors(*statuses: int) -> Json:
    return {
        str(status): {"$ref": f"#/components/responses/{status}"}
        for status in sorted({*statuses, *_ANYWHERE})
    }


def _error(status: int) -> Json:
    headers = RATE_HEADERS if status == HTTPStatus.TOO_MANY_REQUESTS else ()
    return _answer(_ERRORS[status], "Error", *headers)


def _header(name: str) -> Json:
    pattern = {} if name in _WORDS else {"pattern": "^[0-9]+$"}
    return {"description": _HEADERS[name], "schema": {"type": "string", **pattern}}


def _schemas() -> Json:
    """Return the forms of answers by their names, as JSON Schema."""
    flag, nanoseconds = {"type": "boolean"}, {"format": "int64", "pattern": "^-?[0-9]{1,19}$"}
    since = _text(f"{_NANOSECONDS} `0` where not set.", **nanoseconds)
    return {
        "AccountType": {"type": "string", "enum": list(ACCOUNT_TYPES)},
        "AggregatedBalance": _object(
            accountType=_text("One of AccountType, or one of a later release."),
            assetId=_text("The asset."),
            balance=_text(
                "In the asset's smallest unit, up to 38 digits.", pattern="^-?[0-9]{1,38}$"
            ),
            marketId=_text("The market; empty where the account has none."),
            partyId=_text("The owner; `network` where the account has none."),
            timestamp=_text(_NANOSECONDS, **nanoseconds),
        ),
        "Edge": _object(
            node=_reference("AggregatedBalance"), cursor=_text("Of this row.", format=CURSOR)
        ),
        "PageInfo": _object(
            startCursor=_text("Of the first row; empty on an empty page.", format=CURSOR),
            endCursor=_text("Of the last row; empty on an empty page.", format=CURSOR),
            hasNextPage=flag,
            hasPreviousPage=flag,
        ),
        "Balances": _object(
            edges={"type": "array", "items": _reference("Edge"), "maxItems": names.MAX_PAGE_SIZE},
            pageInfo=_reference("PageInfo"),
        ),
        "ListBalanceChangesResponse": _object(balances=_reference("Balances")),
        "NetworkLimits": _object(
            canProposeAsset=flag,
            canProposeMarket=flag,
            genesisLoaded=flag,
            proposeAssetEnabled=flag,
            proposeAssetEnabledFrom=since,
            proposeMarketEnabled=flag,
            proposeMarketEnabledFrom=since,
        ),
        "GetNetworkLimitsResponse": _object(limits=_reference("NetworkLimits")),
        "Error": _object(
            code={"type": "integer", "format": "int32", "description": "One of gRPC's codes."},
            message=_text("What kind of error it is."),
            details={"type": "array", "items": _reference("ErrorDetail"), "minItems": 1},
        ),
        "ErrorDetail": _object(
            **{"@type": {"type": "string"}},
            code={"type": "integer", "format": "int32"},
            message={"type": "string"},
            inner=_text("What is wrong, and what to do."),
        ),
    }


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _text(description: str, **others: str) -> Json:
    return {"type": "string", "description": description, **others}


def _reference(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


@functools.cache
def page() -> str:
    """Return the page at /docs, which needs nothing from elsewhere, as HTML."""
    environment = jinja2.Environment(autoescape=True)
    environment.filters["prose"] = _prose
    error = json.loads(bytes(RefusedError("pagination.first=0 is not a page size").response().body))
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(api=describe(), examples=_EXAMPLES, error=json.dumps(error, indent=2))


def _prose(text: str) -> Markup:
    """Return text as HTML, what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped
