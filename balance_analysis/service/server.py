"""Run an application on a port: in a thread beside its caller, or until a signal ends it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from balance_analysis import defaults

UNREAD: Final = 60_000
"""Milliseconds in which a reader takes nothing of an answer; then its connection is cut off."""

PATIENCE: Final = 3
"""Seconds that answers under way are given when the process is told to end."""

_PATIENCE: Final = 1
"""The same when a block ends."""

_MOST: Final = 2048


@contextmanager
def serve(app: Starlette, *, host: str = defaults.HOST, port: int = 0) -> Iterator[str]:
    """Serve an application from a thread of this process.

    The server is up when the block begins, and gone with its thread and its port when the block
    ends, however it ends. Signals stay with the caller.

    Parameters
    ----------
    app
        What `create_app` returns.
    host
        Address to listen on.
    port
        Port to listen on; 0 takes a free one.

    Yields
    ------
    str
        The base address, such as `http://127.0.0.1:49152`.

    Raises
    ------
    OSError
        If the address can't be listened on.
    """
    with _listen(host, port) as listener:
        up = threading.Event()
        server = Server(app, _PATIENCE, up.set)

        def run() -> None:
            try:
                asyncio.run(server.serve(sockets=[listener]))
            finally:
                up.set()

        address = _address(listener)
        thread = threading.Thread(target=run, name="embedded service", daemon=True)
        thread.start()
        up.wait()
        try:
            if not server.started:
                raise RuntimeError("the server ended before it had started")
            yield address
        finally:
            server.should_exit = True
            thread.join()


def serve_until_told(
    app: Starlette, *, host: str = defaults.HOST, port: int = 0, on_up: Callable[[str], object]
) -> None:
    """Serve an application until SIGTERM or SIGINT comes, and finish what is under way then.

    A second one ends it at once, whatever is under way. For the main thread only.

    Parameters
    ----------
    app, host, port
        As for `serve`.
    on_up
        Called with the base address once requests are taken.

    Raises
    ------
    OSError
        If the address can't be listened on.
    """
    with _listen(host, port) as listener:
        address = _address(listener)
        server = Server(app, PATIENCE, lambda: on_up(address))

        runner = asyncio.Runner()
        try:
            runner.run(server.serve(sockets=[listener]))
        finally:
            if server.force_exit:
                # To close it would wait for what is under way, threads and all.
                runner.get_loop().set_exception_handler(lambda *_: None)
            else:
                runner.close()


def most_connections() -> int:
    """Return how many connections are held at most: half of the files that may be open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(2, min(_MOST, files // 2))


class ServerConnection(H11Protocol):
    """A connection; one too many takes the place of the oldest on which nothing is under way."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and make room for it."""
        super().connection_made(transport)
        self.made: float = time.monotonic()
        if len(self.connections) > most_connections():
            # This one is among them: where all others are busy, it is the one that goes. Those who
            # still take an answer go last.
            held: set[ServerConnection] = self.connections  # type: ignore[assignment]
            idle = (each for each in held if each.cycle is None or each.cycle.response_complete)
            oldest = min(idle, key=lambda x: (x.transport.get_write_buffer_size() > 0, x.made))
            self.connections.discard(oldest)
            oldest.transport.abort()


class Server(uvicorn.Server):
    """A server that tells when it is up, and ends in time.

    Parameters
    ----------
    app
        What answers.
    patience
        Seconds that answers under way are given in the end.
    on_up
        Called once requests are taken.
    """

    def __init__(self, app: Starlette, patience: int, on_up: Callable[[], object]) -> None:
        config = uvicorn.Config(
            app,
            http=ServerConnection,
            # So many are accepted before the first of them can make room.
            backlog=max(1, most_connections() // 4),
            ws="none",
            # What there is to tell, the application tells.
            log_config=None,
            log_level="critical",
            server_header=False,
            timeout_graceful_shutdown=patience,
        )
        super().__init__(config)
        self._on_up = on_up

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; at a second signal at once, whatever is under way."""
        if self.should_exit:
            self.force_exit = True
            # From Python 3.12 on a closed server waits until its last connection has gone.
            asyncio.get_running_loop().call_soon_threadsafe(self._abort_connections)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests, and tell."""
        await super().startup(sockets)
        self._on_up()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, without those who don't take their answers."""
        await super().shutdown(sockets)
        self._abort_connections()
        # Connections are closed in the loop's next round.
        await asyncio.sleep(0)

    def _abort_connections(self) -> None:
        for each in list(self.server_state.connections):
            each.transport.abort()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        text = f"{host}, port {port} can't be listened on: {why}; choose another"
        raise OSError(error.errno, text) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD)
    # asyncio turns off Nagle's delay, 40 ms an answer, only where the protocol is named.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
