"""A node that answers at once, as a process of its own: `python server.py ROWS`.

It knows what the benchmarks ask: a range, oldest first, a page size, a cursor, and a few of the
newest rows. Its cursors are right, unlike a real node's, so that the loops that follow them load
the same rows. It ignores filters. When it is ready it prints one line of JSON: its `url`, the
interval `since`, `until`, and what stands in it, `rows` and the `total` of their balances. It ends
with its standard input.
"""

import datetime as dt
import json
import random
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from itertools import count, islice
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/api/v2/balance/changes"
SINCE = "2023-04-01T00:00:00Z"
FIRST = 1_680_307_200_000_000_000
BLOCK = 700_000_000
ROWS_A_BLOCK = 7
PARTIES, ASSETS, MARKETS = 500, 5, 20

CYCLE = 500_000
"""Rows that are rendered once. A longer history repeats them later, rendered when asked for."""

CURSOR = "".join(random.Random(7).choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=390))
"""What cursors begin with; a row's place in ten digits follows."""


class History:
    """Rows, sorted by time; the oldest has index 0.

    Parameters
    ----------
    rows
        How many.

    Attributes
    ----------
    end
        Nanoseconds; all rows stand before.
    total
        The sum of all balances, to check a load.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self._size = rows, min(rows, CYCLE)
        self._times, self._texts, balances = zip(*islice(_changes(), self._size), strict=True)
        self._duration = ((self._times[-1] - FIRST) // BLOCK + 1) * BLOCK
        self._rendered = [self._edge(place) for place in range(self._size)]
        self.end = FIRST + -(-rows // self._size) * self._duration
        cycles, rest = divmod(rows, self._size)
        self.total = cycles * sum(balances) + sum(balances[:rest])

    def place(self, moment: int) -> int:
        """Return how many rows stand before a moment in nanoseconds."""
        cycle = max(0, min(moment, self.end) - FIRST) // self._duration
        within = bisect_left(self._times, moment - cycle * self._duration)
        return min(self.rows, cycle * self._size + within)

    def edges(self, places: range) -> bytes:
        """Return the JSON of the rows at some places, with commas between them."""
        if places.step == 1 and places.stop <= self._size:
            return b",".join(self._rendered[places.start : places.stop])
        return b",".join(map(self._edge, places))

    def _edge(self, place: int) -> bytes:
        cycle, within = divmod(place, self._size)
        time = self._times[within] + cycle * self._duration
        return f'{self._texts[within]}{time}"}},"cursor":"{cursor(place)}"}}'.encode("ascii")


def cursor(place: int) -> str:
    """Return the cursor of the row at a place."""
    return f"{CURSOR}{place:010}"


def _changes() -> Iterator[tuple[int, str, int]]:
    """Yield rows without end: the time, the JSON before it, and the balance."""
    rng, accounts = random.Random(3), _accounts()
    for block in count():
        # The first row is at the interval's start, so that the whole interval is known.
        time = FIRST + block * BLOCK + (1000 * rng.randrange(100_000) if block else 0)
        for head, middle in rng.sample(accounts, rng.randint(1, 2 * ROWS_A_BLOCK - 1)):
            balance = rng.randrange(10 ** rng.randint(1, 27))
            yield time, f"{head}{balance}{middle}", balance


def _accounts() -> Sequence[tuple[str, str]]:
    """Return the JSON before and behind the balance, for each account."""
    rng = random.Random(5)
    parties, assets, markets = (
        [f"{rng.getrandbits(256):064x}" for _ in range(number)]
        for number in (PARTIES, ASSETS, MARKETS)
    )
    keys = [(asset, "FEES_INFRASTRUCTURE", "network", "") for asset in assets]
    keys += [(asset, "INSURANCE", "network", market) for asset in assets for market in markets]
    for party in parties:
        keys += [(asset, "GENERAL", party, "") for asset in assets]
        keys += [(rng.choice(assets), "MARGIN", party, market) for market in markets]
        keys += [(rng.choice(assets), "BOND", party, rng.choice(markets))]
    return [
        (
            f'{{"node":{{"accountType":"ACCOUNT_TYPE_{kind}","assetId":"{asset}","balance":"',
            f'","marketId":"{market}","partyId":"{party}","timestamp":"',
        )
        for asset, kind, party, market in keys
    ]


class Server(ThreadingTCPServer):
    """The node's sockets, and what it holds."""

    daemon_threads = True
    request_queue_size = 128
    history: History


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path != PATH:
            self.send_error(404, "this node lists balance changes, and nothing else")
            return
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        pieces = page(self.server.history, asked)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.send_header("X-Block-Timestamp", str(self.server.history.end + 10**9))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)


def page(history: History, asked: dict[str, str]) -> list[bytes]:
    """Return the body of an answer in pieces to be joined."""
    start, stop = (
        history.place(int(asked[f"dateRange.{end}Timestamp"])) for end in ("start", "end")
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
    page_info = json.dumps(info, separators=(",", ":")).encode()
    return [b'{"balances":{"edges":[', history.edges(places), b'],"pageInfo":', page_info, b"}}"]


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    server.history = history = History(int(sys.argv[1]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    until = dt.datetime.fromtimestamp(-(-history.end // 10**9), dt.UTC).isoformat()
    about = {
        "url": f"http://127.0.0.1:{server.server_address[1]}",
        "since": SINCE,
        "until": until,
        "rows": history.rows,
        "total": str(history.total),
    }
    print(json.dumps(about), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
