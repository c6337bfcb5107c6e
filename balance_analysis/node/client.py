"""Ask a node over HTTP: one GET with its timeout, rate and retries.

This is the only module that opens sockets, and the only place where errors of `requests` and
`msgspec` become ours. It knows nothing of what it fetches: a caller hands in how to read the body,
so that a body that can't be read is asked for again like any other fault on the way.
"""

from __future__ import annotations

import email.utils
import logging
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import requests
import stamina
from requests.adapters import HTTPAdapter

from balance_analysis import __version__
from balance_analysis.errors import RequestError, TooLargeError
from balance_analysis.node import wire
from balance_analysis.node.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from balance_analysis.node.query import Parameters

BALANCE_CHANGES: Final = "/api/v2/balance/changes"
NETWORK_LIMITS: Final = "/api/v2/network/limits"

USER_AGENT: Final = f"balance_analysis/{__version__} (Python {platform.python_version()})"

ATTEMPTS: Final = 6
RETRY_SECONDS: Final = 300.0
LONGEST_WAIT: Final = 60.0
"""The most seconds that a node may ask a load to wait; a node that asks for more is left alone."""

_CONNECTIONS: Final = 64
_RETRYABLE: Final = {429, 502, 503, 504}
# gRPC: invalid argument, not found, already exists, permission denied, failed precondition, out of
# range, unimplemented, unauthenticated. The same request would fail again.
_CODES_AT_FAULT: Final = {3, 5, 6, 7, 9, 11, 12, 16}
_TOO_LARGE: Final = "larger than max"

logger = logging.getLogger("balance_analysis")
logger.addHandler(logging.NullHandler())
# Without this, stamina's notice of each retry reaches stderr in programs that never set up logging.
logging.getLogger("stamina").addHandler(logging.NullHandler())

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a node answered.

    Attributes
    ----------
    value
        The body, read.
    block_height
        The last block that the node holds; `None` where it doesn't say.
    block_time
        That block's time in microseconds since 1970; `None` where it doesn't say.
    """

    value: T
    block_height: int | None
    block_time: int | None


class Client:
    """A connection to one node, safe to share between threads.

    Parameters
    ----------
    base_url
        The node's address, `http://` or `https://`, without the `/api/v2` of the operations.
    timeout
        Seconds to wait for a connection, and for each next byte of an answer.
    max_requests_per_second
        Upper bound of this client's request rate; `None` for none.
    headers
        Extra headers of each request, for a node behind a proxy. They win over this package's own.
    session
        The caller's own `requests.Session`, with its proxies, certificates and adapters. It is not
        closed here.

    Raises
    ------
    ValueError
        If the address is not one, or a number is not positive.

    Examples
    --------
    >>> with Client("http://127.0.0.1:3008") as client:
    ...     client.base_url
    'http://127.0.0.1:3008'
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout: float = 30.0,
        max_requests_per_second: float | None = None,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout must be more than 0 seconds, not {timeout!r}")
        self.base_url = _base(base_url)
        self.timeout = timeout
        self._pace = Pace(max_requests_per_second)
        self._headers = {"Accept": "application/json", "User-Agent": USER_AGENT, **(headers or {})}
        self._session = _session() if session is None else session
        self._owns_session = session is None
        self._retrying = stamina.RetryingCaller(
            attempts=ATTEMPTS,
            timeout=RETRY_SECONDS,
            wait_initial=0.5,
            wait_max=15.0,
            wait_jitter=1.0,
        ).on(_wait_before_retry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    def close(self) -> None:
        """Close the connections, unless the session is the caller's."""
        if self._owns_session:
            self._session.close()

    def get(self, path: str, parameters: Parameters, read: Callable[[bytes], T]) -> Answer[T]:
        """Return the answer to one GET.

        Parameters
        ----------
        path
            The operation.
        parameters
            Its parameters; repeated keys are sent repeated.
        read
            Makes a value of the body. Its `msgspec.DecodeError` counts as a damaged answer.

        Raises
        ------
        RequestError
            If the node can't be reached, refuses, or sends no readable answer within the retries.
        TooLargeError
            If the answer would be larger than the node can send. It is never asked for again.
        """
        url = f"{self.base_url}{path}"
        if parameters:
            url += "?" + urlencode(parameters)
        return self._retrying(self._get_once, url, read)

    def _get_once(self, url: str, read: Callable[[bytes], T]) -> Answer[T]:
        self._pace.wait()
        began = time.monotonic()
        try:
            response = self._session.get(url, headers=self._headers, timeout=self.timeout)
        except requests.RequestException as error:
            raise _unreachable(error, url, self.base_url, self.timeout) from error
        logger.debug("%s %s in %.3f s", response.status_code, url, time.monotonic() - began)
        if response.status_code != requests.codes.ok:
            raise _refusal(response, url, self.base_url)
        try:
            value = read(response.content)
        except msgspec.DecodeError as error:
            raise _unreadable(response, url, self.base_url) from error
        return Answer(
            value,
            _integer(response.headers.get("X-Block-Height")),
            _microseconds(response.headers.get("X-Block-Timestamp")),
        )


def _base(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except (ValueError, AttributeError):
        valid = False
    if not valid or parts.query or parts.fragment:
        raise ValueError(
            f"{base_url!r} is not the address of a node; it looks like https://node.example.org"
        )
    return base_url.rstrip("/")


def _session() -> requests.Session:
    session = requests.Session()
    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _wait_before_retry(error: Exception) -> bool | float:
    """Tell stamina whether to try again, or after how many seconds."""
    if not isinstance(error, RequestError) or not error.retryable:
        return False
    if error.retry_after is None:
        logger.warning("%s; trying again", error)
        return True
    if error.retry_after > LONGEST_WAIT:
        return False
    logger.warning("%s; trying again in %.0f s", error, error.retry_after)
    return error.retry_after


def _unreachable(
    error: requests.RequestException, url: str, base: str, timeout: float
) -> RequestError:
    if isinstance(error, requests.exceptions.SSLError):
        return RequestError(f"no secure connection to {base}: {_root(error)}", url=url)
    if isinstance(error, requests.Timeout):
        said = f"{base} did not answer within {timeout:g} s"
    elif isinstance(error, requests.exceptions.ChunkedEncodingError):
        said = f"{base} broke off its answer: {_root(error)}"
    elif isinstance(error, requests.ConnectionError):
        said = (
            f"no connection to {base}: {_root(error)}; check the address, and that the node is up"
        )
    elif isinstance(error, requests.exceptions.ContentDecodingError):
        said = f"{base} sent a damaged answer: {_root(error)}"
    else:
        return RequestError(f"{base} can't be asked: {_root(error)}", url=url)
    return RequestError(said, url=url, retryable=True)


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


def _refusal(response: requests.Response, url: str, base: str) -> RequestError:
    """Return the error for an answer that is not a success."""
    status = response.status_code
    body = _error_body(response)
    said = _useful_text(body) or response.reason or "no reason given"
    retry_after = _seconds(response.headers)
    if _TOO_LARGE in said:
        return TooLargeError(
            f"{base} can't send an answer so large: {said}; ask for a smaller page_size",
            url=url,
            status=status,
            code=body.code,
        )
    retryable = (
        status in _RETRYABLE
        or (status == requests.codes.server_error and body.code not in _CODES_AT_FAULT)
        or (status == requests.codes.forbidden and retry_after is not None)
    )
    message = f"{base} answered {status}: {said}{_advice(status, retry_after)}"
    return RequestError(
        message,
        url=url,
        status=status,
        code=body.code,
        retryable=retryable,
        retry_after=retry_after,
    )


def _advice(status: int, retry_after: float | None) -> str:
    if retry_after is not None:
        longer = f", longer than the {LONGEST_WAIT:.0f} s that a load waits: run it again then"
        return (
            f"; the node asks to wait {retry_after:.0f} s"
            f"{longer if retry_after > LONGEST_WAIT else ''}"
        )
    if status == requests.codes.not_found:
        return "; check that this is the address of a node"
    if status == requests.codes.too_many:
        return "; ask more slowly with max_requests_per_second"
    return ""


def _error_body(response: requests.Response) -> wire.ErrorBody:
    try:
        return wire.error_decoder.decode(response.content)
    except msgspec.DecodeError:  # a proxy's page
        return wire.ErrorBody()


def _useful_text(body: wire.ErrorBody) -> str:
    inner = "; ".join(detail.inner for detail in body.details if detail.inner)
    return " ".join(f"{body.message}: {inner}".strip(": ").split())


def _unreadable(response: requests.Response, url: str, base: str) -> RequestError:
    """Return the error for a success whose body is no JSON."""
    is_page = response.content.lstrip()[:1] == b"<"
    said = "a web page" if is_page else f"{len(response.content)} bytes that are not whole JSON"
    return RequestError(
        f"{base} answered with {said}; check that this is the address of a node",
        url=url,
        status=response.status_code,
        retryable=not is_page,
    )


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long the node asks to wait: seconds, or a date as HTTP allows."""
    text = headers.get("Ratelimit-Retry-After") or headers.get("Retry-After")
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _microseconds(text: str | None) -> int | None:
    nanoseconds = _integer(text)
    return None if nanoseconds is None else nanoseconds // 1000
