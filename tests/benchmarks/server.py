"""A node that answers at once, as a process of its own: `server.py ROWS`.

It knows what the benchmarks ask: a range, oldest first, a page size, a cursor, and a few of the
newest rows. Its cursors are right, unlike a real node's, so that the loops that follow them load
the same rows. It ignores filters. When it is ready it prints one line of JSON: its `url`, the
interval `since`, `until`, and what stands in it, `rows` and the `total` of their balances.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import random
import socket
import sys
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from balance_analysis.table.frame import to_arrow
from tests.benchmarks.levels import ROWS_A_BLOCK, SINCE, make_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

BLOCK: Final = 700_000
ACCOUNTS: Final = 5000
"""Most of them have a row in the first block: fewer than a page holds."""

CYCLE: Final = 500_000
"""Rows that are rendered once. A longer history repeats them later, rendered when asked for."""

CURSOR: Final = "".join(random.Random(7).choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=390))
"""What cursors begin with; a row's place in ten digits follows."""


class History:
    """Rows, sorted by time, with a place each: 0 for the oldest.

    Attributes
    ----------
    end
        Microseconds; all rows stand before.
    total
        The sum of all balances: who has loaded them all exactly knows it.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self._size = rows, min(rows, CYCLE)
        self._duration = self._size // ROWS_A_BLOCK * BLOCK
        table = to_arrow(make_table(self._size, ACCOUNTS, duration=self._duration))
        table = table.sort_by("timestamp")
        self._times = table["timestamp"].cast(pa.int64()).to_numpy()
        self._texts = rendered(table)
        self._edges = [self._edge(place) for place in range(self._size)]
        cycles, rest = divmod(rows, self._size)
        self.end = SINCE + -(-rows // self._size) * self._duration
        whole, part = (int(pc.sum(table["balance"][:n]).as_py() or 0) for n in (rows, rest))
        self.total = cycles * whole + part

    def place(self, moment: int) -> int:
        """Return how many rows stand before a moment in nanoseconds."""
        cycle = max(0, min(moment // 1000, self.end) - SINCE) // self._duration
        within = np.searchsorted(self._times, moment // 1000 - cycle * self._duration)
        return min(self.rows, cycle * self._size + int(within))

    def edges(self, places: range) -> str:
        """Return the JSON of the rows at some places, with commas between them."""
        if places.step == 1 and places.stop <= self._size:
            return ",".join(self._edges[places.start : places.stop])
        return ",".join(map(self._edge, places))

    def page(self, asked: Mapping[str, str]) -> str:
        """Return the answer to a request."""
        start, stop = (
            self.place(int(asked[f"dateRange.{end}Timestamp"])) for end in ("start", "end")
        )
        if after := asked.get("pagination.after"):
            start = max(start, int(after[-10:]) + 1)
        every = range(start, max(start, stop))
        order = every if asked.get("pagination.newestFirst") == "false" else every[::-1]
        places = order[: int(asked.get("pagination.first", "1000"))]
        info = {
            "startCursor": cursor(places[0]) if places else "",
            "endCursor": cursor(places[-1]) if places else "",
            "hasNextPage": len(places) < len(every),
            "hasPreviousPage": bool(after),
        }
        page_info = json.dumps(info, separators=(",", ":"))
        return f'{{"balances":{{"edges":[{self.edges(places)}],"pageInfo":{page_info}}}}}'

    def _edge(self, place: int) -> str:
        cycle, within = divmod(place, self._size)
        time = self._times[within] + cycle * self._duration
        return f'{self._texts[within]}{time}000"}},"cursor":"{cursor(place)}"}}'


def rendered(table: pa.Table) -> list[str]:
    """Return the JSON of each row up to its time."""
    fields = {
        "accountType": "account_type",
        "assetId": "asset_id",
        "balance": "balance",
        "marketId": "market_id",
        "partyId": "party_id",
    }
    parts = ['{"node":']
    for mark, (field, column) in zip("{,,,,", fields.items(), strict=True):
        parts += [f'{mark}"{field}":"', table[column].cast(pa.string()), '"']
    return pc.binary_join_element_wise(*parts, ',"timestamp":"', "").to_pylist()


def cursor(place: int) -> str:
    """Return the cursor of the row at a place."""
    return f"{CURSOR}{place:010}"


def main() -> None:
    history = History(int(sys.argv[1]))
    headers = {"X-Block-Timestamp": f"{history.end + 10**6}000"}

    async def changes(request: Request) -> Response:
        page = history.page(request.query_params)
        return Response(page, media_type="application/json", headers=headers)

    app = Starlette(routes=[Route("/api/v2/balance/changes", changes)])
    listening = socket.create_server(("127.0.0.1", 0))
    since, until = (
        dt.datetime.fromtimestamp(-(-moment // 10**6), dt.UTC).isoformat()
        for moment in (SINCE, history.end)
    )
    about = {
        "url": f"http://127.0.0.1:{listening.getsockname()[1]}",
        "since": since,
        "until": until,
        "rows": history.rows,
        "total": str(history.total),
    }
    print(json.dumps(about), flush=True)  # noqa: T201
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main()
