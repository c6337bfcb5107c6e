"""Connections as uvicorn holds them, but for three things that it leaves undone.

What is no HTTP gets an error body too, a connection on which nothing goes on is cut off, and one
more than the process can hold takes the place of the one that has been idle for longest.
"""

from __future__ import annotations

import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from balance_analysis.service.errors import Code, error_response

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

IDLE: Final = 30.0
"""Seconds for a request to arrive, and for what is left of an answer to be taken."""

_LINGER: Final = 2.0
_MOST: Final = 2048


def most_connections() -> int:
    """Return how many connections are held at most: half of the files that may be open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(2, min(_MOST, files // 2))


class Connection(H11Protocol):
    """One client's connection."""

    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and make room for it."""
        super().connection_made(transport)
        self.made = time.monotonic()
        if len(self.connections) > most_connections():
            # This one is among them: where all others are busy, it is the one that goes.
            held = [each for each in self.connections if isinstance(each, Connection)]
            idle = min((each for each in held if each.is_idle), key=Connection._age)
            self.connections.discard(idle)
            idle.transport.abort()

    def _age(self) -> tuple[bool, float]:
        """Sort the oldest connection first, and those behind that still take an answer."""
        return self.transport.get_write_buffer_size() > 0, self.made

    def send_400_response(self, msg: str) -> None:
        """Answer what can't be read as a request, and read on for a moment.

        To close while the client still sends would take the answer away from it.
        """
        self._is_refused = True
        status = _status_of(sys.exception(), self.conn.trailing_data[0])
        response = error_response(Code.INVALID_ARGUMENT, f"{status.phrase}: {msg}")
        headers = [*response.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(_LINGER, self.transport.close)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if not self._is_refused:
            super().data_received(data)


def _status_of(error: BaseException | None, received: bytes) -> HTTPStatus:
    hint = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
    is_long = hint is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return HTTPStatus.REQUEST_URI_TOO_LONG if is_long and b"\n" not in received else hint


class Sweeper:
    """Cuts off connections on which no request has been under way for long.

    Parameters
    ----------
    idle
        How many seconds are long.
    """

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._since: dict[Connection, float] = {}

    def sweep(self, connections: Iterable[object], now: float) -> None:
        """Look at all connections; to be called every now and then."""
        waiting = [each for each in connections if isinstance(each, Connection) and each.is_idle]
        self._since = {each: self._since.get(each, now) for each in waiting}
        for connection, since in self._since.items():
            if now - since > self._idle:
                connection.transport.abort()
