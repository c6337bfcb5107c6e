"""One exchange with a node: a GET sent and its answer read whole, or an error that says why not.

This is the only module that opens sockets, and the one place where errors of `requests`, `urllib3`
and `msgspec` become ours. It knows nothing of what it fetches: a caller hands in how to read the
body, so that a body that can't be read counts as a fault on the way like any other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict

from balance_analysis.errors import RequestError, TooLargeError, logger
from balance_analysis.node.decode import decode
from balance_analysis.text import without_credentials

LONGEST_WAIT: Final = 60.0
"""The most seconds that a node may ask a load to wait; a node that asks for more is left alone."""

PATIENCE: Final = 10
"""Timeouts that a whole answer may take: one that trickles in byte by byte never times out else."""

_CONNECTIONS: Final = 64
_CHUNK: Final = 1 << 20
_RETRYABLE: Final = {429, 502, 503, 504}
# gRPC: invalid argument, not found, already exists, permission denied, failed precondition, out of
# range, unimplemented, unauthenticated. The same request would fail again.
_CODES_AT_FAULT: Final = {3, 5, 6, 7, 9, 11, 12, 16}
_TOO_LARGE: Final = "larger than max"
_INTEGER_DIGITS: Final = 19
_STRETCH: Final = re.compile(r"(-?\d{1,19})-(-?\d{1,19})")


Parameters = list[tuple[str, str]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Response(Generic[T]):
    """What a node answered: the body, read, and its size in bytes, decompressed.

    `source` is the node's address, without user and password.
    """

    value: T
    source: str
    headers: Mapping[str, str]
    size: int
    seconds: float

    @property
    def block_height(self) -> int | None:
        """The last block that the node holds; `None` where it doesn't say."""
        return _integer(self.headers.get("X-Block-Height"))

    @property
    def block_time(self) -> int | None:
        """That block's time in microseconds since 1970; `None` where it doesn't say."""
        nanoseconds = _integer(self.headers.get("X-Block-Timestamp"))
        return None if nanoseconds is None else nanoseconds // 1000

    @property
    def incomplete(self) -> tuple[tuple[int, int], ...]:
        """Stretches of which the node says that it may lack rows: [start, end), microseconds.

        An archive that is served says so, in a header of nanoseconds: `X-Incomplete: 0-1000, ...`.
        """
        stretches = _STRETCH.findall(self.headers.get("X-Incomplete") or "")
        return tuple((int(start) // 1000, int(end) // 1000) for start, end in stretches)


class ErrorDetail(msgspec.Struct):
    """One detail of an error; `inner` has the useful text."""

    inner: str = ""


class ErrorBody(msgspec.Struct):
    """The body of an answer that is not a success."""

    code: int | None = None
    message: str = ""
    details: list[ErrorDetail] = []


_error_decoder: Final = msgspec.json.Decoder(ErrorBody)


class _Session(requests.Session):
    """A session that looks for proxies once a host: each look reads the whole environment."""

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[str, str], Any] = {}

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:  # noqa: ANN401
        host = urlsplit(url)[:2]
        if host not in self._settings:
            self._settings[host] = super().merge_environment_settings(url, *given)
        return dict(self._settings[host])


def new_session() -> requests.Session:
    """Return a session with room for many connections to one node."""
    session = _Session()
    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


@dataclass(frozen=True, slots=True)
class Get:
    """One GET: `base` is the node's address, for messages.

    `headers` win over those of a `.netrc`. `timeout` is in seconds, for the connection and for each
    next byte; `max_bytes` is the largest body, decompressed.
    """

    base: str
    url: str
    headers: Mapping[str, str]
    timeout: float
    max_bytes: int

    def error(
        self,
        said: str,
        kind: type[RequestError] = RequestError,
        **facts: Any,  # noqa: ANN401 - as errors take them
    ) -> RequestError:
        """Return the error that says something of the node."""
        return kind(f"{self.base} {said}", url=self.url, **facts)


def exchange(session: requests.Session, get: Get, read: Callable[[bytes], T]) -> Response[T]:
    """Send one GET and return the answer with its body as `read` reads it.

    Raises
    ------
    RequestError
        If there is no answer, a refusal, a redirect, or an answer that can't be read, for which
        `read` raises `msgspec.DecodeError`.
    TooLargeError
        If the answer would be larger than the node can send, or is larger than `max_bytes`.
    """
    began = time.monotonic()
    deadline = began + PATIENCE * get.timeout
    try:
        is_given = "Authorization" in CaseInsensitiveDict(get.headers)
        response = session.get(
            get.url,
            headers=dict(get.headers),
            # Any function keeps a `.netrc` out.
            auth=(lambda request: request) if is_given else None,
            hooks={"response": [partial(_refuse_redirect, get), *session.hooks["response"]]},
            timeout=get.timeout,
            stream=True,
            allow_redirects=False,
        )
        is_ok = response.status_code == requests.codes.ok
        body = _body(response, deadline, get.max_bytes if is_ok else min(get.max_bytes, _CHUNK))
    except MemoryError as error:
        raise get.error(
            f"sent more than {get.max_bytes:,} bytes, or than there is memory for; ask for a "
            "smaller page_size, or allow more with max_answer_bytes",
            TooLargeError,
            status=response.status_code,
        ) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        raise _unreachable(error, get) from error
    seconds = time.monotonic() - began
    logger.debug("%s %s in %.3f s, %d bytes", response.status_code, get.url, seconds, len(body))
    if not is_ok:
        raise _refusal(response, body, get)
    try:
        value = read(body)
    except msgspec.DecodeError as error:
        is_page = body.lstrip()[:1] == b"<"
        what = "a web page" if is_page else f"{len(body)} bytes that are not whole JSON"
        said = f"answered with {what}; check that this is the address of a node"
        raise get.error(said, status=response.status_code, retryable=not is_page) from error
    return Response(value, get.base, response.headers, len(body), seconds)


def _refuse_redirect(get: Get, response: requests.Response, **_: object) -> None:
    """Raise RequestError for a redirect, here in a hook: requests would read its endless body."""
    if response.is_redirect:
        response.close()
        target = without_credentials(urljoin(get.url, response.headers["Location"]))
        operation = urlsplit(get.url.removeprefix(get.base)).path
        address = target.partition("?")[0].removesuffix(operation)
        said = f"redirects to {address}: give that address"
        raise get.error(said, status=response.status_code)


def _body(response: requests.Response, deadline: float, max_bytes: int) -> bytes:
    """Return the body; of a refusal no more than shows that it is larger than `max_bytes`.

    Raises
    ------
    MemoryError
        If an answer is larger.
    """
    # Large reads: `response.content` reads 10 KB at a time, five times as slow, and hands the
    # interpreter to another thread before each.
    if not hasattr(response.raw, "read1"):  # made by a transport of the caller's
        if len(response.content) > max_bytes:
            raise MemoryError
        return response.content
    chunks: list[bytes] = []
    left = max_bytes
    is_packed = "Content-Encoding" in response.headers
    with response:
        while chunk := response.raw.read1(_CHUNK, decode_content=is_packed):
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                if response.status_code == requests.codes.ok:
                    raise MemoryError
                break
            if time.monotonic() > deadline:
                raise requests.ReadTimeout("the answer trickles in")
    return b"".join(chunks)


def _unreachable(error: Exception, get: Get) -> RequestError:
    """Return the error for a connection that failed, or an answer that broke off."""
    root, retryable = _root(error), True
    timed_out = isinstance(error, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError)
    if timed_out or isinstance(error, requests.Timeout):
        said = f"did not answer within {get.timeout:g} s"
    elif isinstance(error, requests.exceptions.SSLError):
        said, retryable = f"offers no secure connection: {root}", False
    elif isinstance(error, requests.ConnectionError):
        said = f"can't be reached: {root}; check the address, and that it is up"
    elif isinstance(error, urllib3.exceptions.DecodeError):
        said = f"sent a damaged answer: {root}"
    elif isinstance(error, urllib3.exceptions.HTTPError | requests.exceptions.ChunkedEncodingError):
        said = f"broke off its answer: {root}"
    else:
        said, retryable = f"can't be asked: {root}", False
    refused = retryable and _is_refused(error)
    return get.error(said, retryable=retryable, timed_out=timed_out, refused=refused)


def _is_refused(error: Exception) -> bool:
    """Whether no connection came about: nobody listens there, or there is no such host."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    kinds = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, kinds)


def _root(error: BaseException) -> str:
    """Return the operating system's words, which urllib3 wraps several times."""
    seen: BaseException | None = error
    text = str(error)
    while seen is not None:
        inner = getattr(seen, "reason", None) or (seen.args[-1] if seen.args else None)
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror.lower()
        if not isinstance(inner, BaseException):
            break
        seen, text = inner, str(inner)
    return text.rpartition(": ")[2] if "HTTP" in text else text


def _refusal(response: requests.Response, content: bytes, get: Get) -> RequestError:
    """Return the error for an answer that is not a success."""
    status = response.status_code
    try:
        body = decode(_error_decoder, content)
    except msgspec.DecodeError:  # a proxy's page
        body = ErrorBody()
    inner = "; ".join(detail.inner for detail in body.details if detail.inner)
    told = " ".join(f"{body.message}: {inner}".strip(": ").split())
    said = told or response.reason or "no reason given"
    retry_after = _seconds(response.headers)
    if _TOO_LARGE in said:
        told = f"can't send so large an answer: {said}; ask for a smaller page_size"
        return get.error(told, TooLargeError, status=status, code=body.code)
    return get.error(
        f"answered {status}: {said}{_advice(status, retry_after)}",
        status=status,
        code=body.code,
        retryable=status in _RETRYABLE
        or (status == requests.codes.server_error and body.code not in _CODES_AT_FAULT)
        or (status == requests.codes.forbidden and retry_after is not None),
        retry_after=retry_after,
    )


_ADVICE: Final = {
    404: "; check that this is the address of a node",
    416: "; ask for a start and an end that it vouches for",
    429: "; ask more slowly with max_requests_per_second",
}


def _advice(status: int, retry_after: float | None) -> str:
    if retry_after is None:
        return _ADVICE.get(status, "")
    said = f"; the node asks to wait {retry_after:.0f} s"
    longer = f", longer than the {LONGEST_WAIT:.0f} s that a load waits: run it again then"
    return said + longer * (retry_after > LONGEST_WAIT)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long the node asks to wait: seconds, or a date as HTTP allows."""
    text = headers.get("Ratelimit-Retry-After") or headers.get("Retry-After")
    try:
        return None if text is None else urllib3.Retry().parse_retry_after(text)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= _INTEGER_DIGITS else None
