"""A folder as a bucket of an object store that takes a while to answer, and counts its requests."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATENCY: Final = 0.03
"""Seconds before each answer."""


@dataclass
class Bucket:
    """A bucket that is served.

    Attributes
    ----------
    address
        Of a folder in it, with `{}` for its name.
    asked
        The methods of the requests so far.
    """

    address: str
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serve_bucket(folder: Path) -> Iterator[Bucket]:
    """Serve the files of a folder for reading, of which a range may be asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.command)
            time.sleep(LATENCY)
            file = folder / self.path.partition("?")[0].removeprefix("/bucket/").replace("%3D", "=")
            content = file.read_bytes() if file.is_file() else None
            status, body = 404 if content is None else 200, content or b""
            if content is not None and (wanted := self.headers["Range"]):
                begin, _, last = wanted.removeprefix("bytes=").partition("-")
                status, body = 206, content[int(begin) : int(last or len(content)) + 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host = f"127.0.0.1:{server.server_port}"
        query = f"endpoint_override={host}&scheme=http&region=us-east-1"
        try:
            yield Bucket(f"s3://bucket/{{}}?{query}", asked)
        finally:
            server.shutdown()
            thread.join()
