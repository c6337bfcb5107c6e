"""Run an application on a port, in a thread beside the caller or until a signal.

Unlike uvicorn, Hypercorn can close a connection that sends no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import hypercorn.asyncio
from anyio.from_thread import start_blocking_portal
from hypercorn.config import Config, Sockets
from starlette.applications import Starlette

from balance_analysis.errors import logger
from balance_analysis.service import HOST

UNSENT: Final = 5
"""Seconds within which a connection must send its next request completely."""

UNREAD: Final = 60
"""Maximum seconds without data from a client while its request is answered."""

PATIENCE: Final = 3
"""Seconds to finish running answers at shutdown."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def serve(app: Starlette, *, host: str = HOST, port: int = 0) -> Iterator[str]:
    """Serve an application from a thread of this process.

    The server is up when the block begins. When the block ends, for whatever reason, the server
    stops and its thread and port are released. The caller keeps handling signals.

    Parameters
    ----------
    app
        The result of `create_app`.
    host
        Address to listen on.
    port
        Port to listen on; 0 chooses a free one.

    Yields
    ------
    str
        The base address, such as `http://127.0.0.1:49152`.

    Raises
    ------
    OSError
        If the address can't be listened on.
    """
    listener = _listen(host, port)
    address = _address(listener)
    with start_blocking_portal() as portal:
        ending = portal.call(asyncio.Event)
        served = portal.start_task_soon(_serve, app, listener, ending)
        try:
            yield address
        finally:
            portal.call(ending.set)
            served.result()


def serve_until_signal(
    app: Starlette, *, host: str = HOST, port: int = 0, on_up: Callable[[str], object]
) -> None:
    """Serve an application until SIGTERM or SIGINT, and then finish running requests.

    A second signal raises KeyboardInterrupt at once. Call this from the main thread only.

    Parameters
    ----------
    app, host, port
        As for `serve`.
    on_up
        Function called with the base address once the port is open.

    Raises
    ------
    OSError
        If the address can't be listened on.
    """
    listener = _listen(host, port)
    on_up(_address(listener))
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    async def run() -> None:
        ending = asyncio.Event()

        def end() -> None:
            for number in _SIGNALS:
                signal.signal(number, signal.default_int_handler)
            ending.set()

        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, end)
        await _serve(app, listener, ending)

    try:
        asyncio.run(run())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Listener(socket.socket):
    """A listening socket that can cut off the connections it accepted."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(fileno=listening.detach())
        self._accepted = weakref.WeakSet[socket.socket]()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._accepted.add(connection)
        return connection, address

    async def cut_off(self) -> None:
        for connection in self._accepted:
            with contextlib.suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(9):  # let the event loop notice, and close its side
            await asyncio.sleep(0)


async def _serve(app: Starlette, listener: _Listener, ending: asyncio.Event) -> None:
    """Serve an application until an event, then give running requests some time to finish."""
    config = Config()
    config.create_sockets = lambda: Sockets([], [listener], [])  # type: ignore[method-assign]
    config.keep_alive_timeout, config.read_timeout = UNSENT, UNREAD
    config.graceful_timeout = PATIENCE
    config.include_server_header = False
    config.errorlog = logger
    if logger.isEnabledFor(logging.INFO):
        config.accesslog = logger
        config.access_log_format = "%(h)s %(s)s %(L)s s: %(R)s"
    server: Any = hypercorn.asyncio.serve(app, config, shutdown_trigger=ending.wait)  # type: ignore[arg-type]
    task = asyncio.ensure_future(server)
    end_wait = asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((task, end_wait), return_when=asyncio.FIRST_COMPLETED)
        # From now on, connections that are cut off aren't errors.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        # From Python 3.12 on, the server would wait for clients that don't read their answer.
        await asyncio.wait((task,), timeout=2 * PATIENCE)
    finally:
        end_wait.cancel()
        await listener.cut_off()
    if task.done():
        task.result()
    task.cancel()


def _listen(host: str, port: int) -> _Listener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _Listener(socket.create_server((host, port), family=family))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        text = f"{host}, port {port} can't be listened on: {reason}; choose another port or address"
        raise OSError(error.errno, text) from error


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
