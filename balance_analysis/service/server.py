"""Run an application on a port: in a thread beside its caller, or until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

from balance_analysis.service.protocol import Connection, Sweeper, most_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette

PATIENCE: Final = 3
"""Seconds that answers under way are given when the process is told to end."""

_PATIENCE: Final = 1
"""The same when a block ends."""

_TICK: Final = 0.05
_QUEUE: Final = 1024


@contextmanager
def serve(app: Starlette, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
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
        server = _server(app, _PATIENCE)
        thread = threading.Thread(
            target=asyncio.run, args=(_run(server, listener),), name="embedded service", daemon=True
        )
        thread.start()
        try:
            _wait(server, thread)
            yield _address(listener)
        finally:
            server.should_exit = True
            thread.join()


def serve_until_told(
    app: Starlette, *, host: str = "127.0.0.1", port: int = 0, on_up: Callable[[str], object]
) -> None:
    """Serve an application until SIGTERM or SIGINT comes, and finish what is under way then.

    A second signal ends it at once. For the main thread only.

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
        server = _server(app, PATIENCE)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, _stop, server)
            await _run(server, listener, lambda: on_up(_address(listener)))

        asyncio.run(main())


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _server(app: Starlette, patience: int) -> _Server:
    config = uvicorn.Config(
        app,
        http=Connection,
        backlog=max(1, most_connections() // 4),
        ws="none",
        # What there is to tell, the application tells.
        log_config=None,
        log_level="critical",
        server_header=False,
        timeout_graceful_shutdown=patience,
    )
    return _Server(config)


def _stop(server: uvicorn.Server) -> None:
    server.force_exit = server.should_exit
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_QUEUE)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        text = f"{host}, port {port} can't be listened on: {why}; choose another"
        raise OSError(error.errno, text) from error
    # asyncio turns off Nagle's delay, 40 ms an answer, only where the protocol is named.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _run(
    server: uvicorn.Server, listener: socket.socket, on_up: Callable[[], object] | None = None
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    connections, sweeper = server.server_state.connections, Sweeper()

    is_up = False
    while not (server.should_exit or serving.done()):
        if server.started and not is_up:
            is_up = True
            # uvicorn's backlog, for asyncio how many to take at once, made the queue short.
            listener.listen(_QUEUE)
            if on_up is not None:
                on_up()
        sweeper.sweep(connections, time.monotonic())
        await asyncio.sleep(_TICK)
    await asyncio.wait([serving])
    for connection in list(connections):
        connection.transport.abort()
    # Connections are closed in the loop's next round.
    await asyncio.sleep(0)
    await serving


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server ended before it had started")
        time.sleep(0.001)
