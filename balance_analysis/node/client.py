"""Ask a node, or one of several nodes of a network: addresses, pace and retries.

Requests wait for slots in time that all threads share, and are sent again after what may pass. A
node's "too many requests" is a pause for all threads, as long as the node says. `exchange` does one
request.
"""

from __future__ import annotations

import base64
import contextlib
import platform
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import requests

from balance_analysis import __version__
from balance_analysis.errors import RequestError, check_type, logger
from balance_analysis.node.exchange import (
    LONGEST_WAIT,
    Get,
    Parameters,
    Response,
    exchange,
    new_session,
)
from balance_analysis.node.stats import RequestStats
from balance_analysis.text import without_credentials

BALANCE_CHANGES: Final = "/api/v2/balance/changes"
NETWORK_LIMITS: Final = "/api/v2/network/limits"
USER_AGENT: Final = f"balance_analysis/{__version__} (Python {platform.python_version()})"

_HEADERS: Final = {"Accept": "application/json", "User-Agent": USER_AGENT}

MAX_ANSWER_BYTES: Final = 256_000_000

ATTEMPTS: Final = 6
PAUSES: Final = 5
TOO_MANY: Final = 429

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_SLOWER, _FASTER = 2.0, 0.99
_FIRST_RATE: Final = 16.0
"""Requests a second after a first refusal: real nodes refill 20 a second."""

T = TypeVar("T")


class Throttle:
    """Slots in time, at most `per_second`, for any number of threads."""

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
        self._next = self._held_until = clock()

    def wait(self) -> float:
        """Wait for the next slot, and return how many seconds that took."""
        with self._lock:
            now = self._clock()
            slot = max(now, self._held_until, self._next)
            self._next = slot + self._interval
            # After a refusal the rate is regained slowly, so that it settles below the node's.
            self._interval = max(self._least, self._interval * _FASTER)
        return self._pass(now, slot)

    def wait_again(self, error: RequestError, pauses: int) -> float:
        """Hold all threads as long as a node asks, and give fewer slots a second afterwards.

        Where the node doesn't say how long, each further pause is longer. Of several threads that
        are refused at once, the first logs why. Return as `wait` does.
        """
        usual = min(_FIRST_PAUSE * 2**pauses, _LONGEST_PAUSE)
        seconds = usual if error.retry_after is None else error.retry_after
        with self._lock:
            now = self._clock()
            is_first = now >= self._held_until
            if is_first:
                slower = max(self._interval * _SLOWER, 1.0 / _FIRST_RATE)
                # Never so slow that the rate is a longer pause than what a refusal costs.
                widest = max(seconds, 1.0 / _FIRST_RATE)
                self._interval = max(self._interval, min(slower, widest))
            self._held_until = max(self._held_until, now + seconds)
            slot = max(now + seconds, self._next)
            # Where the node named the seconds, the slower rate doesn't add to them.
            self._next = slot + (self._interval if error.retry_after is None else self._least)
            if is_first:
                logger.warning("%s; it is asked again in %.1f s", error, slot - now)
        return self._pass(now, slot)

    def _pass(self, now: float, slot: float) -> float:
        if slot > now:
            self._sleep(slot - now)
        return slot - now


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try in all on faults that may pass; once `stopped` is set, nothing more.

    A node may ask one request to slow down as often as there are `pauses`. A caller that can ask
    for less doesn't repeat `timeouts`, which are answers that took too long. A caller that can ask
    another node doesn't repeat `refusals`, where there was no connection.
    """

    attempts: int = ATTEMPTS
    pauses: int = PAUSES
    timeouts: bool = True
    refusals: bool = True
    stopped: threading.Event | None = None

    def wants(self, error: RequestError, number: int) -> bool:
        """Whether the same request may succeed soon, as a try of this number."""
        return (
            error.retryable
            and number <= (self.pauses + 1 if _is_throttling(error) else self.attempts)
            and (error.retry_after or 0.0) <= LONGEST_WAIT
            and (self.timeouts or not error.timed_out)
            and (self.refusals or not error.refused)
            and not (self.stopped is not None and self.stopped.is_set())
        )


def _is_throttling(error: RequestError) -> bool:
    """Whether the node says to slow down."""
    return error.retry_after is not None or error.status == TOO_MANY


ONCE: Final = Retry(attempts=1)


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
        a user in the address and a `.netrc`.
    session
        The caller's own `requests.Session`, with its proxies, certificates and adapters. The client
        doesn't close it, and doesn't change the headers that the session sends on its own.
    max_answer_bytes
        The largest answer, decompressed; a larger one is a `TooLargeError`: a load asks for less.
    sleep
        Waits a number of seconds, between requests and before a request is sent again.

    Raises
    ------
    ValueError
        If an address is not one, or a number is not positive.

    Notes
    -----
    Several nodes may stand behind one address, which may remember differently. A load concludes
    nothing from one answer for another: each page proves, by its own rows and the last block that
    it names, what it lists.

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
        sleep: Callable[[float], None] = time.sleep,
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
        self.sleep: Callable[[float], None] = sleep
        self._throttle = Throttle(max_requests_per_second, sleep=sleep)
        self.session: requests.Session = new_session() if session is None else session
        self._owns_session = session is None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle and copy all but what is not shared: own connections, and the throttle."""
        session = None if self._owns_session else self.session
        return {**self.__dict__, "dead": {*self.dead}, "session": session, "_throttle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.session = self.session or new_session()
        self._throttle = Throttle(self.max_requests_per_second, sleep=self.sleep)

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
            self.session.close()

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Client]:
        """Give a client of the same nodes and the same pace, on a connection of its own."""
        with copy(self) as client:
            client._throttle, client.dead = self._throttle, self.dead  # noqa: SLF001 - of its own kind
            if not self._owns_session:
                client._extra_headers = {**self._extra_headers, "Connection": "close"}  # noqa: SLF001
            yield client

    def only(self, *base_urls: str) -> Client:
        """Return a client of some of the same nodes, with the same pace and connections."""
        client = copy(self)
        client.base_urls, client._owns_session = base_urls, False  # noqa: SLF001 - of its own kind
        client.session, client._throttle = self.session, self._throttle  # noqa: SLF001
        return client

    def get(
        self,
        path: str,
        parameters: Parameters,
        read: Callable[[bytes], T],
        *,
        base_url: str | None = None,
        stats: RequestStats | None = None,
        retry: Retry = Retry(),
    ) -> Response[T]:
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
            timeout=self.timeout,
            max_bytes=self.max_answer_bytes,
        )
        stats = stats or RequestStats()
        if base_url is not None and set(self.base_urls) - self.dead - {base}:
            retry = replace(retry, refusals=False)
        throttled, number = self._throttle.wait(), 1
        while True:
            stats.add(requests=1, throttled=throttled)
            try:
                answer = exchange(self.session, request, read)
            except RequestError as error:
                number += 1
                if not retry.wants(error, number):
                    if error.refused:
                        self.dead.add(base)
                    raise
                stats.add(retries=1)
                if _is_throttling(error):
                    throttled = self._throttle.wait_again(error, number - 2)
                    continue
                logger.warning("%s; trying again (%d of %d)", error, number, retry.attempts)
            else:
                self.dead.discard(base)
                stats.add(size=answer.size)
                return answer
            pause = _FIRST_PAUSE * 2 ** (number - 2) + random.random()  # noqa: S311 - spreads threads
            self.sleep(min(pause, _LONGEST_PAUSE))
            throttled = self._throttle.wait()


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


def check_client(client: Client) -> None:
    """Raise TypeError unless it is one: an address is none, as somebody must close it."""
    check_type(client, Client, "a Client", "make it with ba.Client('https://node.example.org')")
