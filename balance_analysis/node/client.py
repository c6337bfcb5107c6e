"""Ask a node, or one of several nodes of a network, with rate and retries.

`exchange` does one request. Here stand the address, the pace that all threads share, and what is
asked again: faults on the way by stamina, a node's "too many requests" after a pause for everyone.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import logging
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import requests

from balance_analysis import __version__
from balance_analysis.errors import RequestError, check_type
from balance_analysis.node.exchange import (
    LONGEST_WAIT,
    Answer,
    Get,
    RequestStats,
    exchange,
    new_session,
)
from balance_analysis.node.retry import TOO_MANY, Retry
from balance_analysis.node.wire import Parameters
from balance_analysis.text import without_credentials

BALANCE_CHANGES: Final = "/api/v2/balance/changes"
NETWORK_LIMITS: Final = "/api/v2/network/limits"
USER_AGENT: Final = f"balance_analysis/{__version__} (Python {platform.python_version()})"

_HEADERS: Final = {"Accept": "application/json", "User-Agent": USER_AGENT}

MAX_ANSWER_BYTES: Final = 256_000_000
PAUSES: Final = 5
"""How often one request may be told to slow down before it is given up."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_SLOWER, _FASTER = 2.0, 0.99
_FIRST_RATE: Final = 16.0
"""Requests a second to go on with after a first refusal: real nodes refill 20 a second."""

logger: logging.Logger = logging.getLogger("balance_analysis")

T = TypeVar("T")


class Throttle:
    """Slots in time, at most so many a second, handed out to any number of threads."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_second is not None and not per_second > 0:
            raise ValueError(f"max_requests_per_second must be more than 0, not {per_second!r}")
        self._least = self._interval = 0.0 if per_second is None else 1.0 / per_second
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._slots: list[float] = []
        self._held_until = clock()

    def wait(self) -> float:
        """Return when the next slot has come; tells how many seconds that took."""
        with self._lock:
            now = self._clock()
            slot = self._take(now, max(now, self._held_until), self._interval)
            # After a refusal the rate is regained slowly, so that it settles below the node's.
            self._interval = max(self._least, self._interval * _FASTER)
        return self._pass(now, slot)

    def wait_again(self, seconds: float, reason: str, *, is_told: bool) -> float:
        """Hold all for so long, and then give fewer slots a second; return as `wait` does.

        Several threads may be refused at once, of which the first logs the `reason`. Where the node
        told the seconds, the slower rate doesn't add to them.
        """
        with self._lock:
            now = self._clock()
            is_first = now >= self._held_until
            if is_first:
                slower = max(self._interval * _SLOWER, 1.0 / _FIRST_RATE)
                # Never so slow that the rate is a longer pause than what a refusal costs.
                widest = max(seconds, 1.0 / _FIRST_RATE)
                self._interval = max(self._interval, min(slower, widest))
            self._held_until = max(self._held_until, now + seconds)
            gap = self._least if is_told else self._interval
            slot = self._take(now, now + seconds, gap)
            if is_first:
                logger.warning("%s; it is asked again in %.1f s", reason, slot - now)
        return self._pass(now, slot)

    def _take(self, now: float, earliest: float, gap: float) -> float:
        """Return the first moment that is as far as a gap from all that were handed out."""
        self._slots = [slot for slot in self._slots if slot > now - self._interval]
        place = earliest
        for slot in sorted(self._slots):
            if slot - gap < place < slot + gap:
                place = slot + gap
        self._slots.append(place)
        return place

    def _pass(self, now: float, slot: float) -> float:
        if slot > now:
            self._sleep(slot - now)
        return slot - now


class Client:
    """A connection to a node, or to several nodes of one network; safe to share between threads.

    Parameters
    ----------
    base_url
        The node's address, `http://` or `https://`, without the `/api/v2` of the operations; or
        several. Of several, a load takes the one that answers best, and moves on to another when it
        fails, lags behind what is asked for, or has forgotten some of it. A user and password in it
        are sent to that node, and are not part of `base_urls`.
    timeout
        Seconds to wait for a connection, and for each next byte of an answer; a whole answer may
        take ten times as long.
    max_requests_per_second
        Upper bound of this client's request rate, over all threads; `None` for none.
    headers
        Extra headers of each request, for a node behind a proxy. They win over this package's own,
        a user in the address and a `.netrc`, and don't follow a redirect to another host.
    session
        The caller's own `requests.Session`, with its proxies, certificates and adapters. It is not
        closed here. What headers it has of its own, and where these are sent, is up to it.
    max_answer_bytes
        The largest answer, decompressed; a larger one is a `TooLargeError`: a load asks for less.

    Raises
    ------
    ValueError
        If an address is not one, or a number is not positive.

    Notes
    -----
    Behind one address there may be several nodes. Of what they know, the least is believed: each
    answer tells its last block, and the oldest row is asked for over three fresh connections (as a
    caller's session makes them). A node that remembers less, met by none of these, is undetectable.

    Examples
    --------
    >>> with Client("http://127.0.0.1:3008") as client:
    ...     client.base_url
    'http://127.0.0.1:3008'
    """

    def __init__(
        self,
        base_url: str | Iterable[str],
        *,
        timeout: float = 30.0,
        max_requests_per_second: float | None = None,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        for name, number in {"timeout": timeout, "max_answer_bytes": max_answer_bytes}.items():
            if not number > 0:
                raise ValueError(f"{name} must be more than 0, not {number!r}")
        is_several = isinstance(base_url, Iterable) and not isinstance(base_url, str | bytes)
        urls: list[Any] = list(base_url) if is_several else [base_url]
        if not urls:
            raise ValueError("a client needs the address of at least one node")
        # The header of each address's user and password, which appear nowhere else.
        self._users: dict[str, dict[str, str]] = {}
        for url in urls:
            base, user = _split(url)
            self._users.setdefault(base, user)
        self.base_urls: tuple[str, ...] = tuple(self._users)
        self.dead: set[str] = set()
        self.timeout = timeout
        self.max_requests_per_second = max_requests_per_second
        self.max_answer_bytes = max_answer_bytes
        self._extra_headers = dict(headers or {})
        self._throttle = Throttle(max_requests_per_second)
        self._session = new_session() if session is None else session
        self._owns_session = session is None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle how it was made, and what is dead; connections and the pace start anew."""
        options = {
            "timeout": self.timeout,
            "max_requests_per_second": self.max_requests_per_second,
            "headers": self._extra_headers,
            "session": None if self._owns_session else self._session,
            "max_answer_bytes": self.max_answer_bytes,
        }
        return _make_client, (self.base_urls, options, self._users, frozenset(self.dead))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({', '.join(map(repr, self.base_urls))})"

    @property
    def order(self) -> list[str]:
        """The nodes, and last those that took no connection when they were last asked."""
        return sorted(self.base_urls, key=self.dead.__contains__)

    @property
    def base_url(self) -> str:
        """The node's address; the first one's of several."""
        return self.base_urls[0]

    def close(self) -> None:
        """Close the connections, unless the session is the caller's."""
        if self._owns_session:
            self._session.close()

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Client]:
        """Give a client of the same nodes and the same pace, on a connection of its own."""
        with copy(self) as client:
            client._throttle, client.dead = self._throttle, self.dead  # noqa: SLF001 - of its own kind
            if not self._owns_session:
                client._extra_headers = {**self._extra_headers, "Connection": "close"}  # noqa: SLF001
            yield client

    def share(self, count: int) -> Client:
        """Return a client of the same nodes, for one of so many that share the request rate."""
        rate = self.max_requests_per_second
        return self.paced(None if rate is None else rate / count)

    def paced(self, per_second: float | None) -> Client:
        """Return a client of the same nodes that has a request rate of its own."""
        _, (base_urls, options, *rest) = self.__reduce__()
        return _make_client(base_urls, options | {"max_requests_per_second": per_second}, *rest)

    def without_users(self) -> Client:
        """Return a client of the same nodes that knows no user and password of theirs."""
        _, (base_urls, options, _users, dead) = self.__reduce__()
        return _make_client(base_urls, options, {}, dead)

    def get(
        self,
        path: str,
        parameters: Parameters,
        read: Callable[[bytes], T],
        *,
        base_url: str | None = None,
        stats: RequestStats | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
    ) -> Answer[T]:
        """Return one node's answer to one GET.

        Parameters
        ----------
        path
            The operation.
        parameters
            Its parameters; repeated keys are sent repeated.
        read
            Makes a value of the body. Its `msgspec.DecodeError` counts as a damaged answer.
        base_url
            Which of the nodes; by default the first. Whoever names one can ask another: a node
            that takes no connection is not waited for then, while there are others.
        stats
            Where to count what it cost.
        retry
            What is asked again.

        Raises
        ------
        RequestError
            If the node can't be reached, refuses, or sends no readable answer within the retries.
        TooLargeError
            If the answer would be larger than the node can send. It is never asked for again.
        """
        base = base_url or self.base_url
        request = Get(
            base,
            f"{base}{path}?{urlencode(parameters)}" if parameters else f"{base}{path}",
            headers={**_HEADERS, **self._users.get(base, {}), **self._extra_headers},
            elsewhere=_HEADERS,
            timeout=self.timeout,
            max_bytes=self.max_answer_bytes,
        )
        counted = stats or RequestStats()
        if base_url is not None and set(self.base_urls) - self.dead - {base}:
            retry = replace(retry, refusals=False)
        try:
            answer = retry.run(partial(self._ask_throttled, request, read, counted), counted)
        except RequestError as error:
            if error.refused:
                self.dead.add(base)
            raise
        self.dead.discard(base)
        return answer

    def _ask_throttled(
        self, request: Get, read: Callable[[bytes], T], stats: RequestStats
    ) -> Answer[T]:
        """Ask once, and once more after each pause that the node asks for."""
        waited = self._throttle.wait()
        for pause in itertools.count():
            stats.add(requests=1, throttled=waited)
            try:
                answer = exchange(self._session, request, read)
            except RequestError as error:
                if not _is_throttling(error) or pause == PAUSES:
                    raise
                told = error.retry_after
                stats.add(retries=1)
                import stamina  # noqa: PLC0415 - as in retry

                if stamina.is_testing():  # which skips the waits between tries as well
                    waited = self._throttle.wait()
                else:
                    usual = min(_FIRST_PAUSE * 2**pause, _LONGEST_PAUSE)
                    seconds = usual if told is None else told
                    waited = self._throttle.wait_again(
                        seconds, str(error), is_told=told is not None
                    )
            else:
                stats.add(size=answer.size)
                return answer
        raise AssertionError("unreachable")


def _make_client(
    base_urls: tuple[str, ...],
    options: dict[str, Any],
    users: dict[str, dict[str, str]],
    dead: frozenset[str],
) -> Client:
    client = Client(base_urls, **options)
    client._users.update(users)  # noqa: SLF001 - it is a client's own
    client.dead.update(dead)
    return client


def _split(base_url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and the header that tells them."""
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except (ValueError, AttributeError):
        valid = False
    if not valid or parts.query or parts.fragment:
        text = str(base_url)
        shown = without_credentials("***@" + text.rpartition("@")[2] if "@" in text else text)
        hint = "it looks like https://node.example.org"
        if re.match(r"[\w.-]+:\d+/?$", text):
            hint = f"did you mean http://{text}?"
        raise ValueError(f"{shown!r} is not the address of a node; {hint}")
    user, _, host = parts.netloc.rpartition("@")
    base = base_url.replace(parts.netloc, host, 1).rstrip("/")
    if not user:
        return base, {}
    token = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return base, {"Authorization": f"Basic {base64.b64encode(token.encode()).decode()}"}


def _is_throttling(error: RequestError) -> bool:
    """Whether the node says to slow down, for a time that a load waits."""
    if error.retry_after is not None:
        return error.retryable and error.retry_after <= LONGEST_WAIT
    return error.status == TOO_MANY and error.retryable


def check_client(client: Client) -> None:
    """Raise TypeError unless it is one: an address is none, as somebody must close it."""
    check_type(client, Client, "a Client", "make it with ba.Client('https://node.example.org')")
