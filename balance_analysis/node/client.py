"""Send requests to a node, or to several nodes of a network.

`Client.get` sends one GET, reads the whole answer and retries faults that may pass. All threads
share one rate limit: when a node answers "too many requests", all of them pause for as long as it
asks. Errors of `requests`, `urllib3` and `msgspec` become this package's errors here. The module
knows nothing of what it fetches: the caller passes a function that reads the body, so an unreadable
body counts as a transport fault like any other.
"""

from __future__ import annotations

import base64
import platform
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import unquote, urlencode, urljoin, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict

from balance_analysis import __version__
from balance_analysis.errors import RequestError, TooLargeError, check_type, logger
from balance_analysis.node.decode import decode
from balance_analysis.table.text import without_credentials

BALANCE_CHANGES: Final = "/api/v2/balance/changes"
NETWORK_LIMITS: Final = "/api/v2/network/limits"

_HEADERS: Final = {
    "Accept": "application/json",
    "User-Agent": f"balance_analysis/{__version__} (Python {platform.python_version()})",
}

MAX_ANSWER_BYTES: Final = 256_000_000

LONGEST_WAIT: Final = 60.0
"""Maximum seconds a node may ask a load to wait; if it asks for more, the request fails."""

_ANSWER_TIMEOUTS: Final = 10
"""Maximum time of a whole answer, in timeouts: a trickle of bytes never times out by itself."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_SLOWDOWN, _SPEEDUP = 2.0, 0.99
_FIRST_RATE: Final = 16.0
"""Requests per second after a first refusal: real nodes allow 20."""

_CONNECTIONS: Final = 64
_CHUNK: Final = 1 << 20
_TOO_MANY: Final = 429
_RETRYABLE: Final = {_TOO_MANY, 502, 503, 504}
# gRPC: invalid argument, not found, already exists, permission denied, failed precondition, out of
# range, unimplemented, unauthenticated. The same request would fail again.
_PERMANENT_CODES: Final = {3, 5, 6, 7, 9, 11, 12, 16}
_TOO_LARGE: Final = "larger than max"
_ADVICE: Final = {
    404: "; check that this is the address of a node",
    _TOO_MANY: "; ask more slowly with max_requests_per_second",
}
_INTEGER_DIGITS: Final = 19
_NO_CONNECTION: Final = (
    urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError,
)  # fmt: skip

Parameters = list[tuple[str, str]]

T = TypeVar("T")


_counting: Final = threading.Lock()


@dataclass(slots=True)
class RequestStats:
    """Counts of requests; safe to share between threads.

    `requests` includes repeated ones, `retries` counts only those; `throttled_seconds` is the time
    spent waiting for the rate limit, summed over threads; `bytes` is the size of all answers,
    decompressed. `warned` has the errors since the last answer, by the text of their warning.
    """

    requests: int = 0
    retries: int = 0
    throttled_seconds: float = 0.0
    bytes: int = 0
    warned: dict[str, RequestError] = field(default_factory=dict)

    def add(self, **counts: float) -> None:
        """Add to the named counts."""
        with _counting:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_json(self) -> dict[str, float]:
        """Return the counts by name."""
        names = ("requests", "retries", "throttled_seconds", "bytes")
        return {name: round(getattr(self, name), 3) for name in names}


@dataclass(frozen=True, slots=True)
class Response(Generic[T]):
    """A node's answer: its body as `read` returned it, and its decompressed size in bytes.

    `source` is the node's address, without user and password.
    """

    value: T
    source: str
    headers: Mapping[str, str]
    size: int

    @property
    def block_height(self) -> int | None:
        """The height of the node's last block, or `None` if unknown."""
        return self._integer("X-Block-Height")

    @property
    def block_time(self) -> int | None:
        """The last block's time (in microseconds since 1970), or `None` if unknown."""
        nanoseconds = self._integer("X-Block-Timestamp")
        return None if nanoseconds is None else nanoseconds // 1000

    def _integer(self, header: str) -> int | None:
        text = self.headers.get(header, "")
        return int(text) if text.isdecimal() and len(text) <= _INTEGER_DIGITS else None


class Throttle:
    """Limit requests to `per_second`, over all threads; `None` for no limit."""

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
        """Wait for the next slot, and return the seconds waited."""
        with self._lock:
            now = self._clock()
            slot = max(now, self._next)
            self._next = slot + self._interval
            # After a refusal, speed up slowly, so that the rate stays below the node's limit.
            self._interval = max(self._least, self._interval * _SPEEDUP)
        if slot > now:
            self._sleep(slot - now)
        return slot - now

    def hold(self, seconds: float) -> float:
        """Pause all threads for some seconds, and lower the rate afterwards.

        Return the length of the pause, or 0 if they are already paused: several requests may be
        refused at once.
        """
        with self._lock:
            now = self._clock()
            is_first = now >= self._held_until
            if is_first:
                # Slots never lie further apart than the pause that a refusal costs.
                slower = max(1.0 / _FIRST_RATE, min(self._interval * _SLOWDOWN, seconds))
                self._interval = max(self._interval, slower)
            self._held_until = max(self._held_until, now + seconds)
            self._next = max(self._next, now + seconds)
            return self._next - now if is_first else 0.0


@dataclass(frozen=True, slots=True)
class Retry:
    """When to repeat a request after a fault that may pass.

    Attributes
    ----------
    attempts
        Maximum number of tries, the first one included.
    pauses
        How often a node may ask one request to slow down.
    timeouts
        Whether to repeat answers that took too long; not if the caller can ask for less.
    refusals
        Whether to repeat refused connections; not if the caller can ask another node.
    stopped
        Once it is set, no request is repeated.
    """

    attempts: int = 6
    pauses: int = 5
    timeouts: bool = True
    refusals: bool = True
    stopped: threading.Event | None = None

    def wants(self, error: RequestError, tries: int) -> bool:
        """Return whether to repeat a request that failed with `error` after `tries` tries."""
        return (
            error.retryable
            and tries < (self.pauses + 1 if _is_throttling(error) else self.attempts)
            and (error.retry_after or 0.0) <= LONGEST_WAIT
            and (self.timeouts or not error.timed_out)
            and (self.refusals or not error.refused)
            and not (self.stopped is not None and self.stopped.is_set())
        )


def _is_throttling(error: RequestError) -> bool:
    """Return whether the node asks to slow down."""
    return error.retry_after is not None or error.status == _TOO_MANY


class Client:
    """A connection to a node, or to several nodes of one network; safe to share between threads.

    Parameters
    ----------
    base_url
        The node's address, `http://` or `https://`, without the `/api/v2` of the operations; or
        several addresses. A load takes the node that answers best, and moves on to another when it
        fails, lags behind the requested interval, or has forgotten some of it. A user and password
        in an address are sent to that node only, and aren't part of `base_urls`.
    timeout
        Seconds to wait for a connection, and for each next byte of an answer; a whole answer may
        take ten times that.
    max_requests_per_second
        Maximum request rate of this client, over all threads; `None` for no limit.
    headers
        Extra headers of each request, for a node behind a proxy. They override this package's own
        headers, a user in the address and a `.netrc`.
    session
        Your own `requests.Session`, with its proxies, certificates and adapters. The client doesn't
        close it or change its headers.
    max_answer_bytes
        Maximum decompressed size of an answer; a larger one raises `TooLargeError`, and a load then
        asks for less.
    sleep
        Function that waits a number of seconds, between requests and before retries.

    Raises
    ------
    ValueError
        If an address isn't a node's, or a number isn't positive.

    Notes
    -----
    Several nodes may answer at one address, and each may hold a different part of the history. So a
    load never draws conclusions from one answer about another: each page proves its own part, by
    its rows and the last block that it names. Only whether the nodes use all values of a filter's
    list is checked once for the whole address.

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
            if not isinstance(number, Real) or not number > 0:
                raise ValueError(f"{name} must be more than 0, not {number!r}")
        is_several = isinstance(base_url, Iterable) and not isinstance(base_url, str | bytes)
        urls: list[Any] = list(base_url) if is_several else [base_url]
        if not urls:
            raise ValueError("a client needs the address of at least one node")
        # Each address's Authorization header, the only place that keeps user and password.
        self._users: dict[str, dict[str, str]] = {}
        for url in urls:
            base, user = _split(url)
            self._users.setdefault(base, user)
        self.base_urls: tuple[str, ...] = tuple(self._users)
        self.timeout = timeout
        self.max_requests_per_second = max_requests_per_second
        self.max_answer_bytes = max_answer_bytes
        self._extra_headers = dict(headers or {})
        self.sleep: Callable[[float], None] = sleep
        self._throttle = Throttle(max_requests_per_second, sleep=sleep)
        self.session: requests.Session = _new_session() if session is None else session
        self._owns_session = session is None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle or copy, without the client's own connections and throttle."""
        session = None if self._owns_session else self.session
        return {**self.__dict__, "session": session, "_throttle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.session = self.session or _new_session()
        self._throttle = Throttle(self.max_requests_per_second, sleep=self.sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({', '.join(map(repr, self.base_urls))})"

    @property
    def base_url(self) -> str:
        """The node's address; the first if there are several."""
        return self.base_urls[0]

    def close(self) -> None:
        """Close the connections, but not a session that the caller passed."""
        if self._owns_session:
            self.session.close()

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
            The operation's path.
        parameters
            The query parameters; repeated keys are sent repeatedly.
        read
            Function that reads the body. If it raises `msgspec.DecodeError`, the answer counts as
            damaged.
        base_url
            The node to ask; by default the first.
        stats
            Counts to add to.
        retry
            When to repeat the request.

        Raises
        ------
        RequestError
            If the node can't be reached, refuses, or sends no readable answer within the retries.
        TooLargeError
            If the answer is larger than allowed or than the node can send. It is never retried.
        """
        base = base_url or self.base_url
        url = f"{base}{path}?{urlencode(parameters)}" if parameters else f"{base}{path}"
        stats, tries = stats or RequestStats(), 0
        while True:
            stats.add(requests=1, throttled_seconds=self._throttle.wait())
            tries += 1
            try:
                answer = self._exchange(base, url, read)
            except RequestError as error:
                if not retry.wants(error, tries):
                    raise
                stats.add(retries=1)
                pause = min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE)
                if _is_throttling(error):
                    named = error.retry_after
                    if held := self._throttle.hold(pause if named is None else named):
                        logger.warning("%s; asking again in %.1f s", error, held)
                else:
                    said = f"{error}; trying again ({tries + 1} of {retry.attempts})"
                    if stats.warned.setdefault(said, error) is error:  # not yet in another thread
                        logger.warning("%s", said)
                    spread = random.random()  # noqa: S311 - spreads threads
                    self.sleep(min(pause + spread, _LONGEST_PAUSE))
            else:
                stats.warned.clear()
                stats.add(bytes=answer.size)
                return answer

    def _exchange(self, base: str, url: str, read: Callable[[bytes], T]) -> Response[T]:
        """Send one GET, and return the answer, its body read by `read`.

        Raises
        ------
        RequestError
            If the node doesn't answer, refuses, redirects, or sends an answer for which `read`
            raises `msgspec.DecodeError`.
        TooLargeError
            If the answer is larger than allowed or than the node can send.
        """
        began, max_bytes = time.monotonic(), self.max_answer_bytes
        headers = CaseInsensitiveDict(_HEADERS | self._users.get(base, {}) | self._extra_headers)
        # With an `auth` function, requests ignores a `.netrc`.
        auth = (lambda request: request) if "Authorization" in headers else None
        hooks = [partial(_refuse_redirect, base), *self.session.hooks["response"]]
        options: Any = {"hooks": {"response": hooks}, "timeout": self.timeout, "stream": True}
        try:
            response = self.session.get(url, headers=headers, auth=auth, **options)
            body = _body(response, began + _ANSWER_TIMEOUTS * self.timeout, max_bytes)
        except MemoryError as error:
            message = f"{base} sent more than {max_bytes:,} bytes, or more than fits in memory; "
            message += "ask for a smaller page_size, or allow more with max_answer_bytes"
            raise TooLargeError(message, url=url, status=response.status_code) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            fault, facts = _fault(error, self.timeout)
            raise RequestError(f"{base} {fault}", url=url, **facts) from error
        seconds = time.monotonic() - began
        logger.debug("%s %s in %.3f s, %d bytes", response.status_code, url, seconds, len(body))
        if response.status_code != requests.codes.ok:
            refusal, facts = _refusal(response, body)
            kind = TooLargeError if _TOO_LARGE in refusal else RequestError
            raise kind(f"{base} {refusal}", url=url, status=response.status_code, **facts)
        try:
            return Response(read(body), base, response.headers, len(body))
        except msgspec.DecodeError as error:
            is_page = body.lstrip()[:1] == b"<"
            content = "a web page" if is_page else f"{len(body)} bytes that are not whole JSON"
            message = f"{base} answered with {content}; check that this is the address of a node"
            status = response.status_code
            raise RequestError(message, url=url, status=status, retryable=not is_page) from error


def _split(base_url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and the header that sends them."""
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
    """Raise TypeError for anything but a Client, such as an address: the caller must close it."""
    check_type(client, Client, "a Client", "make it with ba.Client('https://node.example.org')")


def _new_session() -> requests.Session:
    """Return a session with room for many connections to one node."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    return session


def _refuse_redirect(base: str, response: requests.Response, **_: object) -> None:
    """Raise RequestError for a redirect; as a hook, since requests would read its whole body."""
    if response.is_redirect:
        response.close()
        url = str(response.url)
        target = without_credentials(urljoin(url, response.headers["Location"]))
        operation = urlsplit(url.removeprefix(base)).path
        address = target.partition("?")[0].removesuffix(operation)
        message = f"{base} redirects to {address}: give that address"
        raise RequestError(message, url=url, status=response.status_code)


def _body(response: requests.Response, deadline: float, max_bytes: int) -> bytes:
    """Return an answer's body; only the beginning of a refusal's.

    Raises
    ------
    MemoryError
        If an answer is larger than `max_bytes`.
    """
    # Large reads: `response.content` reads 10 KB at a time, five times as slow, and hands the
    # interpreter to another thread before each.
    is_ok = response.status_code == requests.codes.ok
    chunks, left = list[bytes](), max_bytes if is_ok else min(max_bytes, _CHUNK)
    is_packed = "Content-Encoding" in response.headers
    with response:
        read = getattr(response.raw, "read1", None)  # absent if the caller's transport made it
        pieces = iter(partial(read, _CHUNK, decode_content=is_packed), b"") if read else None
        for chunk in pieces or [response.content]:
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                break
            if time.monotonic() > deadline:
                raise requests.ReadTimeout("the answer takes too long")
    if left < 0 and is_ok:
        raise MemoryError
    return b"".join(chunks)


def _fault(error: Exception, timeout: float) -> tuple[str, dict[str, Any]]:
    """Return the message for a failed connection or answer, and the error's other arguments."""
    causes = [*_causes(error)]
    root = (getattr(causes[-1], "strerror", None) or "").lower() or str(causes[-1])
    timed_out = isinstance(error, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError)
    retryable = True
    if timed_out or isinstance(error, requests.Timeout):
        message = f"did not answer within {timeout:g} s"
    elif isinstance(error, requests.exceptions.SSLError):
        message, retryable = f"offers no secure connection: {root}", False
    elif isinstance(error, requests.exceptions.ProxyError):
        message = f"can't be reached through the proxy: {root}; check the proxy's address"
    elif isinstance(error, requests.ConnectionError):
        message = f"can't be reached: {root}; check the address, and that the node is up"
    elif isinstance(error, urllib3.exceptions.DecodeError):
        message = f"sent a damaged answer: {root}"
    elif isinstance(error, urllib3.exceptions.HTTPError | requests.exceptions.ChunkedEncodingError):
        message = f"broke off its answer: {root}"
    else:
        message, retryable = f"can't be sent this request: {root}", False
    # Nothing listens there, or the host doesn't exist.
    refused = any(isinstance(cause, _NO_CONNECTION) for cause in causes)
    return message, {"retryable": retryable, "timed_out": timed_out, "refused": refused}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes; the operating system's comes last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class _ErrorDetail(msgspec.Struct):
    """A detail of an error; `inner` has the useful text."""

    inner: str = ""


class _ErrorBody(msgspec.Struct):
    """The body of an answer other than a success."""

    code: int | None = None
    message: str = ""
    details: list[_ErrorDetail] = []


_error_decoder: Final = msgspec.json.Decoder(_ErrorBody)


def _refusal(response: requests.Response, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the message for an answer other than a success, and the error's other arguments."""
    status = response.status_code
    try:
        body = decode(_error_decoder, content)
    except msgspec.DecodeError:  # a proxy's page
        body = _ErrorBody()
    inner = "; ".join(detail.inner for detail in body.details if detail.inner)
    reason = " ".join(f"{body.message}: {inner}".strip(": ").split())
    reason = reason or response.reason or "no reason given"
    if _TOO_LARGE in reason:
        reason = f"can't send such a large answer: {reason}; ask for a smaller page_size"
        return reason, {"code": body.code}
    retry_after, advice = _seconds(response.headers), _ADVICE.get(status, "")
    if retry_after is not None:
        advice = f"; the node asks to wait {retry_after:.0f} s"
        if retry_after > LONGEST_WAIT:
            advice += f", longer than the {LONGEST_WAIT:.0f} s that a load waits: run it later"
    retryable = (
        status in _RETRYABLE
        or (status == requests.codes.server_error and body.code not in _PERMANENT_CODES)
        or (status == requests.codes.forbidden and retry_after is not None)
    )
    facts = {"code": body.code, "retryable": retryable, "retry_after": retry_after}
    return f"answered {status}: {reason}{advice}", facts


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the node asks to wait, or `None`; HTTP allows a date too."""
    text = headers.get("Ratelimit-Retry-After") or headers.get("Retry-After")
    try:
        return None if text is None else urllib3.Retry().parse_retry_after(text)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None
