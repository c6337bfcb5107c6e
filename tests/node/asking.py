"""Ask the tests' node without sockets: as a session's transport."""

import requests
from requests.adapters import BaseAdapter

import balance_analysis as ba
from tests.loopback import Kind, LoopbackNode

NOWHERE = "http://in-process.test"


class InProcess(BaseAdapter):
    """A transport that hands each request to a node that need not run."""

    def __init__(self, node: LoopbackNode) -> None:
        super().__init__()
        self._node = node

    def send(self, request: requests.PreparedRequest, **_) -> requests.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer, fault = self._node.respond(self._node.record(request.path_url, headers))
        is_cut = fault is not None and fault.kind is Kind.HALF_JSON
        if fault is not None and not is_cut:
            raise requests.ReadTimeout if fault.kind is Kind.STALLED else requests.ConnectionError
        response = requests.Response()
        response.status_code = answer.status
        response.url = request.url
        response.request = request
        response.headers.update(answer.headers)
        response._content = answer.body[: len(answer.body) // 2] if is_cut else answer.body
        return response

    def close(self) -> None:
        pass


def session_to(node: LoopbackNode) -> requests.Session:
    """Return a session for a `Client` of `NOWHERE` that asks a node that need not run."""
    session = requests.Session()
    session.mount(NOWHERE, InProcess(node))
    return session


def client_to(node: LoopbackNode, **options) -> ba.Client:
    """Return a client of a node that need not run."""
    return ba.Client(NOWHERE, session=session_to(node), **options)
