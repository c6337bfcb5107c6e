"""The sockets and threads of a node: how requests arrive, and how answers leave, well or badly."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import socketserver
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.loopback.faults import Fault, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PIECES = 20


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
    time
        Seconds on the monotonic clock.
    client_port
        The port of the connection.
    """

    index: int
    path: str
    params: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    url_length: int
    time: float
    client_port: int

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a parameter's first value."""
        values = self.params.get(name, ())
        return values[0] if values else default


@dataclass(frozen=True)
class Answer:
    """What is sent back, before a fault spoils it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """The sockets and threads of a running node, all of which `stop` ends."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], node: Any) -> None:
        self.node = node
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self._connections: set[socket.socket] = set()
        self._handlers: set[threading.Thread] = set()
        self._guard = threading.Lock()
        self._loop = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks for the host's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self._loop.join()
        self.server_close()
        with self._guard:
            connections, handlers = list(self._connections), list(self._handlers)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 1
        for handler in handlers:
            handler.join(max(0.0, deadline - time.monotonic()))

    def process_request(self, request: socket.socket, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self._guard:
            self._connections.add(request)
            self._handlers.add(thread)
        thread.start()

    def process_request_thread(self, request: socket.socket, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._handlers.discard(threading.current_thread())

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
    """One connection: reads its requests, and sends answers well or badly."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        node = self.server.node
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = node.record(self.path, headers, self.client_address[1])
        if node.latency and self.server.stopping.wait(node.latency):
            self.close_connection = True
            return
        answer, fault = node.respond(request)
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
            case Kind.TRICKLED:
                step = max(1, len(body) // PIECES)
                pieces = [body[at : at + step] for at in range(0, len(body), step)]
                self._send_slowly([head, *pieces], fault.seconds / PIECES)

    def _send_slowly(self, pieces: list[bytes], pause: float) -> None:
        self.wfile.write(pieces[0])
        for piece in pieces[1:]:
            if self.server.stopping.wait(pause):
                self.close_connection = True
                return
            self.wfile.write(piece)

    def _reset(self) -> None:
        """Close so that the client sees a reset, not an orderly end."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        socket.close(self.connection.detach())
