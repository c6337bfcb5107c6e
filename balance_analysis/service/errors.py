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
    RESOURCE_EXHAUSTED = 8
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


STATUSES: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.OUT_OF_RANGE: 416,
    Code.UNIMPLEMENTED: 405,
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
    status
        The HTTP status that says the same; by default that of the code.
    """

    def __init__(
        self, message: str, *, code: Code = Code.INVALID_ARGUMENT, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.status = code, status or STATUSES[code]

    def response(self) -> JSONResponse:
        """Return the error body of the interface, with the useful text in `details[0].inner`."""
        message = self.code.name.replace("_", " ").lower()
        detail = {"@type": "ErrorDetail", "code": self.code, "message": message, "inner": str(self)}
        body = {"code": self.code, "message": message, "details": [detail]}
        return JSONResponse(body, status_code=self.status)
