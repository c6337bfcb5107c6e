"""What stands between the network and the application.

It refuses what would cost too much, answers every refusal and error with the interface's error
body, hands answers over piece by piece to readers that may be slow, and counts and logs requests.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders

from balance_analysis.service.errors import Code, RefusedError, error_response

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from balance_analysis.service.metrics import Metrics
    from balance_analysis.service.rate_limit import Meter

LONGEST_URL: Final = 8192
"""Bytes of path and query: loads by this package split what would be longer."""

MOST_AT_ONCE: Final = 256
SENDING: Final = 120.0

RATE_HEADERS: Final = tuple(f"Ratelimit-{name}" for name in ("Limit", "Remaining", "Reset"))
BAN_HEADER: Final = "Ratelimit-Retry-After"

_HEADERS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": ", ".join(
        (
            "Warning",
            "X-Incomplete",
            "X-Block-Height",
            "X-Block-Timestamp",
            *RATE_HEADERS,
            BAN_HEADER,
        )
    ),
    "X-Content-Type-Options": "nosniff",
}
_PIECE: Final = 1 << 16
_SHOWN: Final = 200
"""Characters of a path and query that the log shows."""

logger = logging.getLogger("balance_analysis")


class NotTakenError(Exception):
    """A reader is too slow."""


class Guards:
    """The application, guarded.

    Parameters
    ----------
    app
        What answers.
    metrics
        What counts.
    meter
        What an address may send; `None` for any number of requests.
    paths
        Those that are counted each by itself.
    sending
        Seconds in which an answer must be taken by its reader.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        meter: Meter | None,
        paths: Collection[str],
        sending: float = SENDING,
    ) -> None:
        self._app, self._metrics, self._meter = app, metrics, meter
        self._paths, self._sending = frozenset(paths), sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, under_way = time.monotonic(), self._metrics.begin()
        sending = _Sending(send, self._sending)
        try:
            await self._answer(scope, receive, sending, under_way)
        finally:
            seconds = time.monotonic() - began
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.end(path, sending.status, seconds)
            logger.info(
                "%s %s %.0f ms: %s", _address(scope), sending.status, seconds * 1e3, _shown(scope)
            )

    async def _answer(
        self, scope: Scope, receive: Receive, sending: _Sending, under_way: int
    ) -> None:
        try:
            _check_room(under_way)
            if self._meter is not None:
                _check_rate(self._meter, _address(scope), sending.headers)
            answer = _too_long(scope) or self._app
            await answer(scope, receive, sending)
        except NotTakenError:
            logger.warning("%s is too slow to read an answer: cut off", _address(scope))
            raise
        except RefusedError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.warning("%s: %s", error, error.__cause__ or _shown(scope))
            await error_response(error.code, str(error))(scope, receive, sending)
        except Exception:
            logger.exception("unexpected error: %s", _shown(scope))
            if sending.status:
                raise
            text = "unexpected error: the log of the service has it"
            await error_response(Code.INTERNAL, text)(scope, receive, sending)


class _Sending:
    """Where an answer goes: its headers on top of all answers', its body in pieces.

    A server takes a piece at once and the next one when the reader has made room, so of an answer
    that nobody reads it holds a piece or two.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self.headers = dict(_HEADERS)
        self.status = 0
        self._send, self._seconds = send, seconds
        self._until = 0.0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._until = asyncio.get_running_loop().time() + self._seconds
            MutableHeaders(scope=message).update(self.headers)
        try:
            async with asyncio.timeout_at(self._until):
                await self._send_pieces(message)
        except TimeoutError as error:
            raise NotTakenError from error

    async def _send_pieces(self, message: Message) -> None:
        body = message.get("body", b"")
        rest = max(0, len(body) - 1) // _PIECE
        for number in range(rest):
            piece = body[number * _PIECE : (number + 1) * _PIECE]
            await self._send({"type": message["type"], "body": piece, "more_body": True})
        await self._send({**message, "body": body[rest * _PIECE :]} if rest else message)


def _check_room(under_way: int) -> None:
    if under_way > MOST_AT_ONCE:
        raise RefusedError(
            "too many requests under way: ask again in a moment", code=Code.UNAVAILABLE
        )


def _check_rate(meter: Meter, address: str, headers: dict[str, str]) -> None:
    verdict = meter.judge(address)
    if verdict.banned_for:
        seconds = math.ceil(verdict.banned_for)
        headers[BAN_HEADER] = str(seconds)
        raise RefusedError(
            f"too many requests although refused: banned for {seconds} s",
            code=Code.PERMISSION_DENIED,
        )
    # As the public nodes tell it: what fits into a second, what is left of it, the second.
    numbers = (meter.limit.burst, verdict.remaining, 1)
    headers |= zip(RATE_HEADERS, map(str, numbers), strict=True)
    if not verdict.is_admitted:
        raise RefusedError(
            f"more than {meter.limit.per_second:g} requests a second: send fewer",
            code=Code.RESOURCE_EXHAUSTED,
        )


def _too_long(scope: Scope) -> JSONResponse | None:
    """Return the answer to a request whose path and query are too long."""
    length = len(_target(scope))
    if length <= LONGEST_URL:
        return None
    answer = error_response(
        Code.INVALID_ARGUMENT,
        f"path and query have {length} bytes, and may have {LONGEST_URL}: ask for less at once, "
        "such as for fewer parties",
    )
    answer.status_code = HTTPStatus.REQUEST_URI_TOO_LONG
    return answer


def _target(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return b"?".join((path, query)) if query else path


def _shown(scope: Scope) -> str:
    """Return a request as a line of the log may hold it."""
    text = f"{scope['method']} {_target(scope).decode('latin-1')}"
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...").strip("'\"")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
