"""What stands between the network and the application.

It refuses what would cost too much, answers every refusal and error with the interface's error
body, and counts and logs requests.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balance_analysis.archive.inspection import ArchiveStatus
from balance_analysis.archive.snapshot import LruCache
from balance_analysis.errors import logger
from balance_analysis.service.errors import Code, RefusedError

LONGEST_URL: Final = 8192
"""Bytes of path and query: loads by this package split what would be longer."""

MOST_AT_ONCE: Final = 256
MOST_ADDRESSES: Final = 10_000
"""So many are remembered; who has been quiet for longest is forgotten first."""

RATE_HEADERS: Final = tuple(f"Ratelimit-{name}" for name in ("Limit", "Remaining", "Reset"))
EXPOSED: Final = ("Warning", "X-Incomplete", "X-Block-Height", "X-Block-Timestamp", *RATE_HEADERS)

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "balance_analysis_service_"
_HOST: Final = re.compile(r"(\[[^]]*\]|[^:]*)(?::[0-9]*)?")
"""A name or an address, in brackets if it is of IPv6, and a port."""

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+")

_SHOWN: Final = 200
"""Characters of a path and query that the log shows."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many requests an address may send. The defaults are those of real nodes.

    Attributes
    ----------
    per_second
        How many come back in a second.
    burst
        How many may come at once.
    """

    per_second: float = 20.0
    burst: int = 100

    def __post_init__(self) -> None:
        if not self.per_second > 0 or self.burst < 1:
            raise ValueError(f"a rate limit must let some requests through, which {self} does not")


class RateLimiter:
    """Counts the requests of each address.

    Parameters
    ----------
    limit
        What each may send.
    clock
        Where the time comes from, in seconds.
    """

    def __init__(self, limit: RateLimit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: RateLimit = limit
        self._clock = clock
        self._left = LruCache(MOST_ADDRESSES)

    def take(self, address: str) -> int | None:
        """Count a request; return how many more may come at once, `None` if it is one too many."""
        now = self._clock()
        left, seen = self._left.peek(address) or (self.limit.burst, now)
        left = min(self.limit.burst, left + (now - seen) * self.limit.per_second)
        is_admitted = left >= 1
        self._left.put(address, (left - is_admitted, now), 1)
        return int(left - 1) if is_admitted else None


def is_loopback(host: str) -> bool:
    """Return whether a name, or an address, is of this machine and of no other."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def hosts_of(origins: Iterable[str]) -> frozenset[str]:
    """Return the hosts of origins, of which `*`, any origin, names none.

    Raises
    ------
    ValueError
        If one is no origin.
    """
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin!r} is not an origin: give one such as https://example.org, or * for all"
            )
    return frozenset(urlsplit(origin).hostname or "" for origin in origins)


class Metrics:
    """What is counted, from any number of threads."""

    def __init__(self) -> None:
        self._registry = kept = CollectorRegistry()
        self.requests: Counter = Counter(
            f"{_PREFIX}requests", "Requests that were answered.", ["path", "status"], registry=kept
        )
        self.seconds: Histogram = Histogram(
            f"{_PREFIX}request_seconds",
            "How long requests took until their answer was handed over.",
            ["path"],
            registry=kept,
        )
        self.rows: Counter = Counter(f"{_PREFIX}rows", "Rows served.", registry=kept)
        self.in_flight: Gauge = Gauge(f"{_PREFIX}in_flight", "Requests under way.", registry=kept)

    def text(self, status: ArchiveStatus | None) -> bytes:
        """Return it as Prometheus' text, with an archive's status; `None` if it can't be read."""
        archive = CollectorRegistry()

        def tell(name: str, about: str, value: float) -> None:
            Gauge(f"{_PREFIX}{name}", about, registry=archive).set(value)

        tell("archive_readable", "Whether the archive can be read.", status is not None)
        if status is not None:
            tell("archive_rows", "Rows that the archive holds.", status.rows)
        if status is not None and status.age is not None:
            end, age = status.complete[-1][1].timestamp(), status.age.total_seconds()
            tell("coverage_end_timestamp_seconds", "Where what is complete ends.", end)
            tell("coverage_age_seconds", "How long ago what is complete ends.", age)
        return generate_latest(self._registry) + generate_latest(archive)


@dataclass(slots=True)
class Guards:
    """The application, guarded.

    Parameters
    ----------
    app
        What answers.
    metrics
        What counts.
    limiter
        What an address may send; `None` for any number of requests.
    hosts
        What `Host` may name beside loopback; `None` for any name. A page whose own name is made to
        lead here, by what is called DNS rebinding, still sends that name.
    paths
        Those that are counted each by itself.
    """

    app: ASGIApp
    metrics: Metrics
    limiter: RateLimiter | None
    paths: Collection[str]
    hosts: Collection[str] | None
    under_way: int = field(default=0, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, sending = time.monotonic(), _Sending(send)
        self.under_way += 1
        self.metrics.in_flight.inc()
        try:
            await self._answer(scope, receive, sending)
        finally:
            self.under_way -= 1
            seconds = time.monotonic() - began
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.in_flight.dec()
            self.metrics.requests.labels(path, sending.status).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            logger.info(
                "%s %s %.0f ms: %s", _address(scope), sending.status, seconds * 1e3, _shown(scope)
            )

    async def _answer(self, scope: Scope, receive: Receive, sending: _Sending) -> None:
        try:
            self._check(scope, sending.headers)
            await self.app(scope, receive, sending)
        except RefusedError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.warning("%s: %s", error, error.__cause__ or _shown(scope))
            await error.response()(scope, receive, sending)
        except Exception:
            logger.exception("unexpected error: %s", _shown(scope))
            if sending.status:
                raise
            text = "unexpected error: the log of the service has it"
            await RefusedError(text, code=Code.INTERNAL).response()(scope, receive, sending)

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise if a request is for another host, or too much: of one address, or too long."""
        if self.hosts is not None:
            _check_host(Headers(scope=scope).get("host", ""), self.hosts)
        if self.under_way > MOST_AT_ONCE:
            raise RefusedError(
                "too many requests under way: ask again in a moment", code=Code.UNAVAILABLE
            )
        if self.limiter is not None:
            limit, left = self.limiter.limit, self.limiter.take(_address(scope))
            # As the public nodes tell it: what fits into a second, what is left of it, the second.
            numbers = (limit.burst, left or 0, 1)
            headers |= zip(RATE_HEADERS, map(str, numbers), strict=True)
            if left is None:
                raise RefusedError(
                    f"more than {limit.per_second:g} requests a second: send fewer",
                    code=Code.RESOURCE_EXHAUSTED,
                )
        if (length := len(_target(scope))) > LONGEST_URL:
            raise RefusedError(
                f"path and query have {length} bytes, and may have {LONGEST_URL}: ask for less at "
                "once, such as for fewer parties",
                status=HTTPStatus.REQUEST_URI_TOO_LONG,
            )


class Indented:
    """An application whose JSON is indented where a request has `pretty`, with any value.

    Parameters
    ----------
    app
        What answers, whole answers at a time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        query = scope.get("query_string", b"")
        if b"pretty" not in query or "pretty" not in QueryParams(query):
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        start, *bodies = messages
        headers = MutableHeaders(scope=start)
        body = b"".join(each.get("body", b"") for each in bodies)
        if body and headers.get("Content-Type") == "application/json":
            body = msgspec.json.format(body, indent=2) + b"\n"
            headers["Content-Length"] = str(len(body))
        await send(start)
        await send({"type": "http.response.body", "body": body})


class _Sending:
    """Where an answer goes, with the headers that all answers have on top."""

    def __init__(self, send: Send) -> None:
        self.headers = {"X-Content-Type-Options": "nosniff"}
        self.status = 0
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).update(self.headers)
        await self._send(message)


def _check_host(host: str, others: Collection[str]) -> None:
    found = _HOST.fullmatch(host.lower())
    if found is None or not (is_loopback(found[1]) or found[1].strip("[]") in others):
        raise RefusedError(
            f"this service answers as localhost only, not as {host[:_SHOWN]!r}: where it is to be "
            "reached under that name, say so when it is started, by --allow-origin",
            code=Code.PERMISSION_DENIED,
        )


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
