"""Bodies of answers, for tests of what reads them."""

from __future__ import annotations

import json
from typing import Any

TIME = 1_680_307_200_000_000_000

GOOD = {
    "assetId": "a" * 64,
    "accountType": "ACCOUNT_TYPE_GENERAL",
    "partyId": "b" * 64,
    "marketId": "",
    "timestamp": str(TIME),
    "balance": "12345",
}
INFO = {"startCursor": "S", "endCursor": "E", "hasNextPage": True, "hasPreviousPage": False}


def page_of(*nodes: Any, **info: Any) -> bytes:
    """Return the body of a page of these rows."""
    edges = [{"cursor": "C", "node": node} for node in nodes]
    return json.dumps({"balances": {"edges": edges, "pageInfo": {**INFO, **info}}}).encode()


def raw_page(node: bytes) -> bytes:
    """Return the body of a page of one row, which is put in as it stands."""
    return page_of("ROW").replace(b'"ROW"', node)


def row(**changes: Any) -> dict[str, Any]:
    """Return a good row with some fields changed; `...` leaves a field out."""
    return {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
