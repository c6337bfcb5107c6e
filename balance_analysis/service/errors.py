"""What the service answers when it does not answer: codes, statuses and the error body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from starlette.responses import JSONResponse

from balance_analysis.errors import BalanceAnalysisError

_DETAIL: Final = "type.googleapis.com/vega.ErrorDetail"
"""The type of a node's details: parsers of `google.rpc.Status` take nothing but a URL."""


class Code(Enum):
    """The codes of an error body, gRPC's numbers, each with the HTTP status that says the same."""

    CANCELLED = 1, 499
    INVALID_ARGUMENT = 3, 400
    DEADLINE_EXCEEDED = 4, 504
    NOT_FOUND = 5, 404
    PERMISSION_DENIED = 7, 403
    RESOURCE_EXHAUSTED = 8, 429
    ABORTED = 10, 409
    OUT_OF_RANGE = 11, 416
    UNIMPLEMENTED = 12, 405
    INTERNAL = 13, 500
    UNAVAILABLE = 14, 503


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
        self._name = code.name.title().replace("_", "")
        self.code: int = code.value[0]
        self.status: int = status or code.value[1]

    def response(self) -> JSONResponse:
        """Return the error body of a node, with the useful text in `details[0].inner`."""
        message = f"{self._name} error"
        detail = {"@type": _DETAIL, "code": self.code, "message": message, "inner": str(self)}
        body = {"code": self.code, "message": message, "details": [detail]}
        return JSONResponse(body, status_code=self.status)


@contextmanager
def refusing_while_unreadable() -> Iterator[None]:
    """Refuse a request while the archive can't be read; the log has the cause."""
    try:
        yield
    except (BalanceAnalysisError, OSError) as error:
        raise RefusedError(
            "the archive that this service reads is not there or can't be read now: ask again "
            "later, or tell who runs the service; its log says more",
            code=Code.UNAVAILABLE,
        ) from error
