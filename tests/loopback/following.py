"""The loop that everybody writes first: follow a node's cursors to the end."""

from __future__ import annotations

from typing import Any

import requests

from tests.loopback.rows import Row, row_from_json

CHANGES = "/api/v2/balance/changes"


def follow_cursors(
    url: str,
    *,
    page_size: int,
    params: dict[str, Any] | None = None,
    most_pages: int = 10_000,
) -> list[Row]:
    """Return the rows that a loop over a node's cursors gets, in the order in which they came.

    It believes the node: on a real one it loses rows, which is what it is there to show.

    Parameters
    ----------
    params
        Further parameters, such as the range.
    """
    asked = {**(params or {}), "pagination.first": page_size}
    rows: list[Row] = []
    with requests.Session() as session:
        for _ in range(most_pages):
            answer = session.get(url + CHANGES, params=asked, timeout=30)
            answer.raise_for_status()
            balances = answer.json()["balances"]
            rows += [row_from_json(edge["node"]) for edge in balances["edges"]]
            if not balances["pageInfo"]["hasNextPage"]:
                return rows
            asked["pagination.after"] = balances["pageInfo"]["endCursor"]
    raise RuntimeError(f"no end after {most_pages} pages")
