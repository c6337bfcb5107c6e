"""What the service answers when it does not answer: codes, statuses and the error body."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from starlette.responses import JSONResponse


class Code(IntEnum):
    """The codes of an error body: gRPC's numbers."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    UNIMPLEMENTED = 12
    INTERNAL = 13


_STATUSES: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
}


class RefusedError(Exception):
    """A request is not answered; the message says why and what to send instead.

    Attributes
    ----------
    code
        What kind of refusal it is; it decides the HTTP status.
    """

    def __init__(self, message: str, *, code: Code = Code.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


def error_response(code: Code, text: str) -> JSONResponse:
    """Return the error body of the interface, with the useful text in `details[0].inner`."""
    message = code.name.replace("_", " ").lower()
    detail = {"@type": "ErrorDetail", "code": code, "message": message, "inner": text}
    body = {"code": code, "message": message, "details": [detail]}
    return JSONResponse(body, status_code=_STATUSES[code])
