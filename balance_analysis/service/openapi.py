"""What the service offers, as an OpenAPI 3.1 document: for `/docs`, and for programs that read it.

It promises what is kept: every request that it allows is answered, but for a cursor that no answer
gave and for both cursors at once, and every answer has the form that it tells.
"""

from __future__ import annotations

import copy
import functools
from typing import Final

from balance_analysis import __version__
from balance_analysis.service.errors import Code
from balance_analysis.service.middleware import BAN_HEADER, LONGEST_URL, RATE_HEADERS
from balance_analysis.service.parameters import (
    AFTER,
    ASSET,
    BEFORE,
    DEFAULT_PAGE_SIZE,
    END,
    FIRST,
    LAST,
    MARKETS,
    MAX_PAGE_SIZE,
    NEWEST_FIRST,
    PARTIES,
    START,
    TYPES,
)
from balance_analysis.service.schemas import CURSOR, NANOSECONDS, Json, schemas

CHANGES: Final = "/api/v2/balance/changes"
LIMITS: Final = "/api/v2/network/limits"

_ID: Final = "^[0-9a-fA-F]{64}$"
_PARTY: Final = "^(network|[0-9a-fA-F]{64})$"
_INT64: Final = "^-?([0-9]{1,18}|[0-8][0-9]{18})$"

_ERRORS: Final = {
    400: (
        Code.INVALID_ARGUMENT,
        "A parameter is wrong; `details[0].inner` names it, and says what to send instead.",
    ),
    403: (
        Code.PERMISSION_DENIED,
        "Requests went on although they were refused: the address is banned for a while.",
    ),
    404: (Code.NOT_FOUND, "There is no such thing."),
    405: (Code.UNIMPLEMENTED, "Only GET, HEAD and OPTIONS are supported."),
    414: (Code.INVALID_ARGUMENT, f"Path and query are longer than {LONGEST_URL:,} bytes."),
    416: (
        Code.OUT_OF_RANGE,
        "The period reaches beyond what the archive is known to hold (with `--strict-coverage`).",
    ),
    429: (Code.RESOURCE_EXHAUSTED, "Too many requests from this address; there is no Retry-After."),
    500: (Code.INTERNAL, "Unexpected error."),
    503: (
        Code.UNAVAILABLE,
        "The archive can't be read now, or too many requests are under way: ask again.",
    ),
    504: (Code.DEADLINE_EXCEEDED, "The question took too long: ask for less."),
}
_ANYWHERE: Final = (403, 405, 414, 429, 500, 503)


def describe() -> Json:
    """Return the document, for the caller to keep."""
    return copy.deepcopy(_document())


@functools.cache
def _document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Balance changes and network limits",
            "version": __version__,
            "description": "Changes of account balances, and the limits of the network, read-only, "
            "from an archive. A list is paged by cursors that lose no row.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "interface", "description": "The two operations, as network nodes offer them"},
            {"name": "operating", "description": "For who runs the service"},
        ],
        "paths": {
            CHANGES: {"get": _changes()},
            LIMITS: {"get": _limits()},
            "/health": {"get": _health()},
            "/metrics": {"get": _metrics()},
        },
        "components": {"schemas": schemas(), "responses": _responses(), "headers": _headers()},
    }


def _changes() -> Json:
    return {
        "operationId": "listBalanceChanges",
        "tags": ["interface"],
        "summary": "List balance changes",
        "description": "One row for each block in which an account was touched: its balance from "
        "then on. Rows are in order of time, and inside a block of account; the first row of an "
        "account in a period is not its first ever. For all rows of a period, take the pages by "
        f"`{AFTER}` while `hasNextPage` is true.",
        "parameters": _parameters(),
        "responses": {
            "200": _answer(
                "A page of rows.",
                "ListBalanceChangesResponse",
                ("Warning", "X-Incomplete", "X-Block-Height", "X-Block-Timestamp"),
            ),
            **_errors(400, 416, 504),
        },
    }


def _parameters() -> list[Json]:
    size = {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_PAGE_SIZE}
    moment = {"type": "string", "format": "int64", "pattern": _INT64}
    cursor = {"type": "string", "format": CURSOR}
    return [
        _parameter(ASSET, {"type": "string"}, "Only accounts of this asset."),
        _list(
            PARTIES, {"type": "string", "pattern": _PARTY}, "Only accounts of any of these parties."
        ),
        _list(
            MARKETS, {"type": "string", "pattern": _ID}, "Only accounts of any of these markets."
        ),
        _list(
            TYPES,
            {"$ref": "#/components/schemas/AccountType"},
            "Only accounts of any of these types.",
        ),
        _parameter(
            START, moment, "Start of the period, inclusive. Nanoseconds since 1970-01-01 UTC."
        ),
        _parameter(END, moment, "End of the period, exclusive. Nanoseconds since 1970-01-01 UTC."),
        _parameter(
            NEWEST_FIRST,
            {"type": "boolean", "default": True},
            "Whether the newest rows come first.",
        ),
        _parameter(
            FIRST,
            size,
            f"How many rows, from the start of the list or after `{AFTER}`; "
            f"{DEFAULT_PAGE_SIZE:,} if neither this nor `{LAST}` is sent.",
        ),
        _parameter(AFTER, cursor, f"The `endCursor` of the page before. Not with `{BEFORE}`."),
        _parameter(
            LAST,
            size,
            f"How many rows, up to the end of the list or to `{BEFORE}`. Unused with `{FIRST}`.",
        ),
        _parameter(
            BEFORE, cursor, f"The `startCursor` of the page after, to go back. Not with `{AFTER}`."
        ),
    ]


def _parameter(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _list(name: str, items: Json, description: str) -> Json:
    schema = {"type": "array", "items": items}
    return {
        **_parameter(
            name,
            schema,
            f"{description} Repeat the name for each, up to "
            f"{LONGEST_URL:,} bytes of path and query; none means all.",
        ),
        "style": "form",
        "explode": True,
    }


def _limits() -> Json:
    return {
        "operationId": "getNetworkLimits",
        "tags": ["interface"],
        "summary": "Get the network limits",
        "description": "The newest limits that the archive holds.",
        "responses": {
            "200": _answer(
                "The limits.",
                "GetNetworkLimitsResponse",
                ("X-Block-Height", "X-Block-Timestamp"),
            ),
            **_errors(404),
        },
    }


def _health() -> Json:
    return {
        "operationId": "getHealth",
        "tags": ["operating"],
        "summary": "Tell whether the archive can be read",
        "responses": {"200": _answer("It can.", "Health"), **_errors()},
    }


def _metrics() -> Json:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "getMetrics",
        "tags": ["operating"],
        "summary": "Get figures for Prometheus",
        "responses": {"200": {"description": "The figures.", "content": text}, **_errors()},
    }


def _answer(description: str, schema: str, headers: tuple[str, ...] = ()) -> Json:
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            "application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}},
        },
    }


def _errors(*statuses: int) -> Json:
    return {
        str(status): {"$ref": f"#/components/responses/{status}"}
        for status in sorted({*statuses, *_ANYWHERE})
    }


def _responses() -> Json:
    return {str(status): _response(status, *error) for status, error in _ERRORS.items()}


def _response(status: int, code: Code, about: str) -> Json:
    return {
        "description": about,
        "x-code": int(code),
        **({"headers": _references(*_SENT_WITH[status])} if status in _SENT_WITH else {}),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


_WORDS: Final = ("Warning", "X-Incomplete")
_SENT_WITH: Final = {403: (BAN_HEADER,), 429: RATE_HEADERS}


def _references(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _headers() -> Json:
    number, words = {"type": "string", "pattern": "^[0-9]+$"}, {"type": "string"}
    limit, remaining, reset = RATE_HEADERS
    texts = {
        "Warning": "Present where the period reaches beyond what the archive is known to hold; "
        "names what is missing.",
        "X-Incomplete": "Sent with a warning, for programs: the stretches of which rows may be "
        "missing, half-open, in nanoseconds, such as `0-1000, 5000-6000`.",
        "X-Block-Height": "The last block that the archive knows.",
        "X-Block-Timestamp": f"Where what the archive knows ends. {NANOSECONDS}",
        limit: "How many requests may come at once.",
        remaining: "How many of them are left.",
        reset: "Seconds.",
        BAN_HEADER: "Seconds until requests are answered again.",
    }
    return {
        name: {"description": text, "schema": words if name in _WORDS else number}
        for name, text in texts.items()
    }
