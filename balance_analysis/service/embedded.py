"""Run an application on a loopback port for as long as a `with` block lasts."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

_PATIENCE: Final = 1
"""Seconds that answers under way are given when the block ends."""

_TICK: Final = 0.05


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
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=asyncio.run, args=(_run(server, listener),), name="embedded service", daemon=True
        )
        thread.start()
        try:
            _wait(server, thread)
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # asyncio turns off Nagle's delay, 40 ms an answer, only where the protocol is named.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not (server.should_exit or serving.done()):
        await asyncio.sleep(_TICK)
    done, _ = await asyncio.wait([serving], timeout=_PATIENCE)
    if not done:
        # A client that doesn't read its answer would be waited for without end.
        for connection in list(server.server_state.connections):
            connection.transport.abort()
    await serving


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server ended before it had started")
        time.sleep(0.001)
