"""What the service answers when it does not answer: codes, statuses and the error body."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from starlette.responses import JSONResponse


class Code(IntEnum):
    """The codes of an error body: gRPC's numbers."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


_STATUSES: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.OUT_OF_RANGE: 416,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
}


class RefusedError(Exception):
    """A request is not answered; the message says why and what to send instead.

    Parameters
    ----------
    message
        For the client: it names no path and nothing of the inside.
    code
        What kind of refusal it is.

    Attributes
    ----------
    code
        What kind of refusal it is.
    """

    def __init__(self, message: str, *, code: Code = Code.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status that says the same."""
        return _STATUSES[self.code]


def error_response(code: Code, text: str) -> JSONResponse:
    """Return the error body of the interface, with the useful text in `details[0].inner`."""
    message = code.name.replace("_", " ").lower()
    detail = {"@type": "ErrorDetail", "code": code, "message": message, "inner": text}
    body = {"code": code, "message": message, "details": [detail]}
    return JSONResponse(body, status_code=_STATUSES[code])
