"""What can go wrong with one answer, on the socket or in HTTP."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_TYPE = "application/json, application/grpc"
HTML = b"<html><head><title>Bad gateway</title></head><body><h1>nginx</h1></body></html>"
DETAIL_TYPE = "type.googleapis.com/vega.ErrorDetail"
MESSAGES = {3: "invalid argument", 5: "not found", 7: "permission denied", 8: "resource exhausted"}


def error_body(code: int, message: str, inner: str | None = None) -> bytes:
    """Return an error as nodes write it.

    Parameters
    ----------
    inner
        The useful text; `None` where the gateway refused the request itself, without details.
    """
    details = []
    if inner is not None:
        details.append({"@type": DETAIL_TYPE, "code": code, "message": message, "inner": inner})
    return json.dumps({"code": code, "message": message, "details": details}).encode()


class Kind(enum.Enum):
    """Where the fault sits."""

    ANSWER = "another answer is sent"
    RESET = "the connection is reset before the first byte"
    RESET_MIDWAY = "the connection is reset after half of the body"
    TRUNCATED = "the connection is closed after half of the body"
    STALLED = "half of the body is sent, and the rest after `seconds`"
    TRICKLED = "the body is sent in small pieces over `seconds`"
    SLOW_HEADERS = "the status line is sent, and the headers after `seconds`"
    HALF_JSON = "half of the JSON is sent as if it were all"


@dataclass(frozen=True)
class Fault:
    """One answer gone wrong: of a kind that spoils the right answer, or made by a class method."""

    kind: Kind
    seconds: float = 0.0
    http_status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def answer(
        cls, http_status: int, body: bytes | str, headers: Mapping[str, str] | None = None
    ) -> Fault:
        """Send any status, body and headers."""
        data = body.encode() if isinstance(body, str) else body
        return cls(Kind.ANSWER, http_status=http_status, headers=dict(headers or {}), body=data)

    @classmethod
    def json(cls, value: Any, http_status: int = 200) -> Fault:
        """Send any JSON value: a wrong shape, for instance."""
        return cls.answer(http_status, json.dumps(value), {"Content-Type": "application/json"})

    @classmethod
    def html(cls, http_status: int = 502) -> Fault:
        """Send a proxy's page."""
        return cls.answer(http_status, HTML, {"Content-Type": "text/html"})

    @classmethod
    def status(cls, http_status: int, headers: Mapping[str, str] | None = None) -> Fault:
        """Send a bare status, without a body."""
        return cls.answer(http_status, b"", headers)

    @classmethod
    def code(
        cls,
        http_status: int,
        code: int,
        inner: str = "it went wrong",
        headers: Mapping[str, str] | None = None,
    ) -> Fault:
        """Send a node's own error body with one of gRPC's codes."""
        body = error_body(code, MESSAGES.get(code, "internal error"), inner)
        return cls.answer(http_status, body, {"Content-Type": ERROR_TYPE, **(headers or {})})

    @classmethod
    def rate_limited(cls, retry_after: float | None = None) -> Fault:
        """Send 429; real nodes leave Retry-After out."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return cls.code(429, 8, "rate limit exceeded", headers)

    @classmethod
    def banned(cls, seconds: float = 600) -> Fault:
        """Send the 403 of a ban that lasts some seconds."""
        return cls.code(403, 7, "banned", {"Ratelimit-Retry-After": f"{seconds:g}"})

    @classmethod
    def too_large(cls, size: int = 20971521, largest: int = 20971520) -> Fault:
        """Send 429 for an answer that would be larger than a node can send."""
        return cls.code(429, 8, f"grpc: received message larger than max ({size} vs. {largest})")
