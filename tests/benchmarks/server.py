"""A node that answers at once, as a process of its own: `python server.py ROWS`.

It knows what the benchmarks ask: a range, oldest first, a page size, a cursor, and a few of the
newest rows. Its cursors are right, unlike a real node's, so that the loops that follow them load
the same rows. It ignores filters. When it is ready it prints one line of JSON: its `url`, the
interval `since`, `until`, and what stands in it, `rows` and the `total` of their balances. It ends
with its standard input.
"""

from __future__ import annotations

import datetime as dt
import json
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.history import SINCE, History, cursor, place_of

PATH = "/api/v2/balance/changes"


class Server(ThreadingHTTPServer):
    """The node's sockets.

    Parameters
    ----------
    history
        What it holds.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, history: History) -> None:
        self.history = history
        super().__init__(("127.0.0.1", 0), Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks for the host's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path != PATH:
            self.send_error(404, "this node lists balance changes, and nothing else")
            return
        pieces = page(self.server.history, asked)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.send_header("X-Block-Timestamp", str(self.server.history.end + 10**9))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)


def page(history: History, asked: dict[str, str]) -> list[bytes | memoryview]:
    """Return the body of an answer in pieces to be joined."""
    start = history.place(int(asked["dateRange.startTimestamp"]))
    stop = history.place(int(asked["dateRange.endTimestamp"]))
    if after := asked.get("pagination.after"):
        start = max(start, place_of(after) + 1)
    size = int(asked.get("pagination.first", "1000"))
    if asked.get("pagination.newestFirst") != "false":
        return newest(history, start, stop, size)
    end = max(start, min(stop, start + size))
    info = {
        "startCursor": cursor(start) if end > start else "",
        "endCursor": cursor(end - 1) if end > start else "",
        "hasNextPage": end < stop,
        "hasPreviousPage": bool(after),
    }
    return [
        b'{"balances":{"edges":[',
        *history.edges(start, end),
        b'],"pageInfo":' + json.dumps(info, separators=(",", ":")).encode() + b"}}",
    ]


def newest(history: History, start: int, stop: int, size: int) -> list[bytes | memoryview]:
    """Return the body of a page of the newest rows between two places, without its cursors."""
    places = range(stop - 1, max(start, stop - size) - 1, -1)
    edges = [edge for place in places for edge in (*history.edges(place, place + 1), b",")][:-1]
    info = {"startCursor": "", "endCursor": "", "hasNextPage": stop - start > size}
    page_info = json.dumps(info | {"hasPreviousPage": False}).encode()
    return [b'{"balances":{"edges":[', *edges, b'],"pageInfo":' + page_info + b"}}"]


def main() -> None:
    history = History(int(sys.argv[1]))
    server = Server(history)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    until = dt.datetime.fromtimestamp(-(-history.end // 10**9), dt.UTC).isoformat()
    about = {
        "url": f"http://127.0.0.1:{server.server_port}",
        "since": SINCE,
        "until": until,
        "rows": history.rows,
        "total": str(history.total),
    }
    print(json.dumps(about), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
