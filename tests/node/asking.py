"""Ask the tests' node without sockets: as the walk asks, or as a session's transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import requests
from requests.adapters import BaseAdapter

from balance_analysis import RequestError, TooLargeError
from balance_analysis.node.decode import decode_page
from tests.loopback.following import CHANGES

if TYPE_CHECKING:
    from balance_analysis.node.decode import DecodedPage
    from balance_analysis.node.walk import Ask, PageRequest
    from tests.loopback import LoopbackNode

NOWHERE = "http://in-process.test"


def asking(node: LoopbackNode) -> Ask:
    """Return a function that asks a node that need not run."""

    def ask(question: PageRequest) -> DecodedPage:
        request = node.record(f"{CHANGES}?{urlencode(question.parameters())}", {}, 0)
        answer, _ = node.respond(request)
        if answer.status != 200:
            raise refusal(answer.status, answer.body)
        return decode_page(answer.body)

    return ask


def refusal(status: int, body: bytes = b"") -> RequestError:
    """Return the error of an answer that is not a success."""
    kind = TooLargeError if b"larger than max" in body else RequestError
    retryable = status in (429, 500, 502, 503, 504) and kind is RequestError
    return kind(
        f"it answered {status}: {body.decode()}", url=NOWHERE, status=status, retryable=retryable
    )


class InProcess(BaseAdapter):
    """A transport that hands each request to a node that need not run."""

    def __init__(self, node: LoopbackNode) -> None:
        super().__init__()
        self._node = node

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer, _fault = self._node.respond(self._node.record(request.path_url, headers, 0))
        response = requests.Response()
        response.status_code = answer.status
        response.url = request.url
        response.request = request
        response.headers.update(answer.headers)
        response._content = answer.body
        return response

    def close(self) -> None:
        pass


def session_to(node: LoopbackNode) -> requests.Session:
    """Return a session for a `Client` of `NOWHERE` that asks a node that need not run."""
    session = requests.Session()
    session.mount(NOWHERE, InProcess(node))
    return session
