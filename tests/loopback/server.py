"""The sockets and threads of a node: how requests arrive, and how answers leave, well or badly."""

from __future__ import annotations

import contextlib
import enum
import gzip
import http.client
import json
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

ERROR_TYPE = "application/json, application/grpc"
HTML = b"<html><head><title>Bad gateway</title></head><body><h1>nginx</h1></body></html>"
DETAIL_TYPE = "type.googleapis.com/vega.ErrorDetail"
MESSAGES = {3: "invalid argument", 5: "not found", 7: "permission denied", 8: "resource exhausted"}


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Give the address of a port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@dataclass(frozen=True)
class Request:
    """A request as it arrived.

    Attributes
    ----------
    index
        Its number, from 0, in the order of arrival.
    params
        Each parameter with all its values.
    headers
        Names in lower case.
    url_length
        Characters in the whole URL, as sent.
    """

    index: int
    path: str
    params: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    url_length: int

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a parameter's first value."""
        values = self.params.get(name, ())
        return values[0] if values else default


@dataclass(frozen=True)
class Answer:
    """An answer, before a fault spoils it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Kind(enum.Enum):
    """Where the fault sits."""

    ANSWER = "another answer is sent"
    RAW = "bytes are sent piece by piece that need not be HTTP"
    RESET = "the connection is reset before the first byte"
    RESET_MIDWAY = "the connection is reset after half of the body"
    TRUNCATED = "the connection is closed after half of the body"
    STALLED = "half of the body is sent, and the rest after `seconds`"
    SLOW_HEADERS = "the status line is sent, and the headers after `seconds`"
    HALF_JSON = "half of the JSON is sent as if it were all"


@dataclass(frozen=True)
class Fault:
    """One answer gone wrong: of a kind that spoils the right answer, or made by a class method."""

    kind: Kind
    seconds: float = 0.0
    sent: Answer = Answer(200, b"")
    pieces: Callable[[], Iterable[bytes]] = tuple

    @classmethod
    def answer(
        cls, http_status: int, body: bytes | str, headers: Mapping[str, str] | None = None
    ) -> Fault:
        """Send any status, body and headers."""
        data = body.encode() if isinstance(body, str) else body
        return cls(Kind.ANSWER, sent=Answer(http_status, data, dict(headers or {})))

    @classmethod
    def raw(cls, pieces: Callable[[], Iterable[bytes]]) -> Fault:
        """Send any bytes, as long as the client takes them."""
        return cls(Kind.RAW, pieces=pieces)

    @classmethod
    def html(cls, http_status: int = 502) -> Fault:
        """Send a proxy's page."""
        return cls.answer(http_status, HTML, {"Content-Type": "text/html"})

    @classmethod
    def status(cls, http_status: int, headers: Mapping[str, str] | None = None) -> Fault:
        """Send a bare status, without a body."""
        return cls.answer(http_status, b"", headers)

    @classmethod
    def code(
        cls,
        http_status: int,
        code: int,
        inner: str | None = "it went wrong",
        headers: Mapping[str, str] | None = None,
        message: str | None = None,
    ) -> Fault:
        """Send an error as nodes write it, with one of gRPC's codes.

        Parameters
        ----------
        inner
            The useful text; `None` where the gateway refused the request itself, without details.
        message
            By default the code's.
        """
        message = message or MESSAGES.get(code, "internal error")
        detail = {"@type": DETAIL_TYPE, "code": code, "message": message, "inner": inner}
        body = {"code": code, "message": message, "details": [] if inner is None else [detail]}
        return cls.answer(
            http_status, json.dumps(body), {"Content-Type": ERROR_TYPE, **(headers or {})}
        )

    @classmethod
    def rate_limited(cls, retry_after: float | None = None) -> Fault:
        """Send 429; real nodes leave Retry-After out."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return cls.code(429, 8, "rate limit exceeded", headers)

    @classmethod
    def banned(cls, seconds: float = 600) -> Fault:
        """Send the 403 of a ban that lasts some seconds."""
        return cls.code(403, 7, "banned", {"Ratelimit-Retry-After": f"{seconds:g}"})

    @classmethod
    def too_large(cls) -> Fault:
        """Send 429 for an answer that would be larger than a node can send."""
        return cls.code(429, 8, "grpc: received message larger than max (20971521 vs. 20971520)")


class Server(socketserver.ThreadingTCPServer):
    """The sockets and threads of a running node, all of which `stop` ends and waits for."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], node: Any) -> None:
        self.node = node
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._loop = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        super().__init__(address, Handler)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self._loop.join()
        with self._guard:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def process_request(self, request: socket.socket, client_address: Any) -> None:
        with self._guard:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Called while the exception is handled; a client that has gone is no failure.
        error = sys.exception()
        if not isinstance(error, OSError):
            self.failures.append(error)


class Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, and sends answers, with or without faults."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        node = self.server.node
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = node.record(self.path, headers)
        answer, fault = node.respond(request)
        if fault is not None and fault.kind is Kind.RAW:
            self.close_connection = True
            self._send_slowly(fault.pieces(), 0.0)
            return
        self._send(answer, fault, compress="gzip" in headers.get("accept-encoding", ""))

    def _head(self, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        reason = http.client.responses.get(status, "Unknown")
        lines = [f"HTTP/1.1 {status} {reason}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", *(["Connection: close"] * self.close_connection)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _send(self, answer: Answer, fault: Fault | None, *, compress: bool) -> None:
        kind = None if fault is None else fault.kind
        body, headers = answer.body, dict(answer.headers)
        if kind is Kind.HALF_JSON:
            body = body[: len(body) // 2]
        if compress and body:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        head = self._head(answer.status, headers, body)
        half = len(body) // 2
        match kind:
            case None | Kind.HALF_JSON:
                self.wfile.write(head + body)
            case Kind.RESET:
                self._reset()
            case Kind.RESET_MIDWAY:
                self.wfile.write(head + body[:half])
                self._reset()
            case Kind.TRUNCATED:
                self.wfile.write(head + body[:half])
                self.close_connection = True
            case Kind.STALLED:
                self._send_slowly([head + body[:half], body[half:]], fault.seconds)
            case Kind.SLOW_HEADERS:
                status, rest = head.split(b"\r\n", 1)
                self._send_slowly([status + b"\r\n", rest + body], fault.seconds)

    def _send_slowly(self, pieces: Iterable[bytes], pause: float) -> None:
        for number, piece in enumerate(pieces):
            if number and self.server.stopping.wait(pause):
                self.close_connection = True
                return
            self.wfile.write(piece)

    def _reset(self) -> None:
        """Close so that the client sees a reset, not an orderly end."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        socket.close(self.connection.detach())
