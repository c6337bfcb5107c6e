"""A node: the interface's two operations over a history, with every quirk as an option."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.loopback.query import History, Page, Refused, read_query
from tests.loopback.rows import Row
from tests.loopback.server import Answer, Fault, Kind, Request, Server

Faults = Sequence[Fault | None] | Callable[[int, Request], Fault | None]

CHANGES = "/api/v2/balance/changes"
LIMITS = "/api/v2/network/limits"
V71_LIMITS = {
    "canProposeMarket": True,
    "canProposeAsset": True,
    "proposeMarketEnabled": True,
    "proposeAssetEnabled": True,
    "genesisLoaded": True,
    "proposeMarketEnabledFrom": "1640995200000000000",
    "proposeAssetEnabledFrom": "1640995200000000000",
}
LATER_LIMITS = {
    **V71_LIMITS,
    "canProposeSpotMarket": True,
    "canProposePerpetualMarket": True,
    "canUseAmm": False,
}


class LoopbackNode:
    """A node on a free port of 127.0.0.1; use it as a context manager.

    By default it is a real node of `release`, which loses rows to those who follow its cursors.
    Every option is also an attribute that may be changed while the node runs, except for
    `lossy_cursors`.

    Parameters
    ----------
    rows
        The history, in any order.
    release
        "v0.71" to "v0.79". "v0.71": no maximum page size, no range required, a request that sets
        only `newestFirst` is unlimited. "v0.73": pages of at most 5000. "v0.75": a range of at most
        365 days from 2020 on is required, refused with 500; "v0.76" with 400.
    lossy_cursors
        False: cursors carry the account id too, and paging is exact.
    max_page_size
        Overrides that of the release.
    cap_silently
        Larger pages are cut down to the maximum instead of refused.
    start_exclusive, end_inclusive
        Read the range differently from real nodes.
    ignores
        Parameters without effect, by name ("filter.partyIds") or group ("dateRange").
    sets
        Parameters that it reads instead of those sent, each with its values.
    takes_one
        Of a repeated parameter only the value at this place counts: 0 is the first, -1 the last.
    max_answer_rows
        Answers of more rows end in 429, "received message larger than max".
    limits
        The network limits; by default those of later releases, `None` before the first block (404).
    block_height, block_timestamp
        The last block; by default one a block of the rows, and the time (ns) of the last row.
    block_headers
        Whether answers have the headers that name the last block.
    extra_headers
        Further headers of each answer.
    edit_row
        Gets each row's JSON object before it is sent; may change it or return another.
    edit_page
        Gets the whole JSON answer and the `Request`; may change it or return another.
    backends
        Nodes that answer in this one's place; they need not run.
    turns
        The places of the backends that answer the requests in turn, over and over.
    faults
        One for each request in turn (`None` for a right answer; after the last all are right), or a
        function of (request index, request).

    Attributes
    ----------
    url
        The base address.
    rows
        The truth, ascending in the server's order.
    requests
        Every `Request` so far.
    """

    release = "v0.76"
    lossy_cursors = True
    max_page_size: int | None = None
    cap_silently = False
    start_exclusive = False
    end_inclusive = False
    ignores: Sequence[str] = ()
    sets: Mapping[str, Sequence[str]] = {}
    takes_one: int | None = None
    max_answer_rows: int | None = None
    limits: Mapping[str, Any] | None = LATER_LIMITS
    block_height: int | None = None
    block_timestamp: int | None = None
    block_headers = True
    extra_headers: Mapping[str, str] = {}
    edit_row: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    edit_page: Callable[[dict[str, Any], Request], Any] | None = None
    backends: Sequence[LoopbackNode] = ()
    turns: Sequence[int] = (0,)

    def __init__(self, rows: Iterable[Row] = (), **options: Any) -> None:
        self._port = 0
        self.faults = options.pop("faults", ())
        for name, value in options.items():
            getattr(type(self), name)  # a misspelt one fails
            setattr(self, name, value)
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._server: Server | None = None
        self.replace(rows)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def has_address(self) -> bool:
        """Whether it runs or ran; a node that never ran is asked in process."""
        return self._port > 0

    @property
    def faults(self) -> Faults:
        """The remaining faults."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults if callable(faults) else deque(faults)

    @property
    def rows(self) -> list[Row]:
        return self.history.rows

    def replace(self, rows: Iterable[Row]) -> None:
        """Hold other rows from now on: the history grew, or was pruned."""
        self.history = History(rows, lossy=self.lossy_cursors)

    def start(self) -> None:
        """Take requests; a node that was stopped comes back at the same address."""
        self._server = Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        self._server.start()

    def stop(self) -> None:
        """Abort what is under way and close every socket; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> LoopbackNode:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        server = self._server
        self.stop()
        if kind is None and server is not None and server.failures:
            raise server.failures[0]

    def respond(self, request: Request) -> tuple[Answer, Fault | None]:
        """Return the answer to a request, and the fault that shall spoil it."""
        fault = self._next_fault(request)
        if fault is not None and fault.kind is Kind.ANSWER:
            return fault.sent, None
        try:
            return self._right_answer(request), fault
        except Refused as refusal:
            return refusal.fault.sent, fault

    def record(self, path: str, headers: Mapping[str, str]) -> Request:
        """Note a request."""
        parts, length = urlsplit(path), len(self.url) + len(path)
        params = parse_qs(parts.query, keep_blank_values=True)
        with self._lock:
            request = Request(len(self.requests), parts.path, params, headers, length)
            self.requests.append(request)
        return request

    def _next_fault(self, request: Request) -> Fault | None:
        faults = self.faults
        if callable(faults):
            return faults(request.index, request)
        with self._lock:
            return faults.popleft() if faults else None

    def _right_answer(self, request: Request) -> Answer:
        if self.backends:
            turn = self.turns[request.index % len(self.turns)]
            return self.backends[turn % len(self.backends)]._right_answer(request)
        if request.path == CHANGES:
            return self._ok(self._changes(request))
        if request.path == LIMITS:
            return self._ok(self._limits())
        raise Refused(404, 5, None, message="Not Found")

    def _ok(self, text: str) -> Answer:
        height = self.history.blocks if self.block_height is None else self.block_height
        rows = self.rows
        last = self.block_timestamp
        if last is None:
            last = rows[-1].time * 1000 if rows else time.time_ns()
        headers = {"Content-Type": "application/json"}
        if self.block_headers:
            headers |= {"X-Block-Height": str(height), "X-Block-Timestamp": str(last)}
        return Answer(200, text.encode(), {**headers, **self.extra_headers})

    def _limits(self) -> str:
        if self.limits is None:
            raise Refused(404, 5, "network limits not available")
        return json.dumps({"limits": self.limits})

    def _changes(self, request: Request) -> str:
        query, history = read_query(self, request.params), self.history
        page = history.page(
            query, start_exclusive=self.start_exclusive, end_inclusive=self.end_inclusive
        )
        if self.max_answer_rows is not None and len(page.positions) > self.max_answer_rows:
            raise Refused(429, 8, "grpc: received message larger than max (20971521 vs. 20971520)")
        text = self._render(history, page)
        if self.edit_page is None:
            return text
        answer = json.loads(text)
        edited = self.edit_page(answer, request)
        return json.dumps(answer if edited is None else edited)

    def _render(self, history: History, page: Page) -> str:
        places = page.positions
        info = {
            "hasNextPage": page.has_next,
            "hasPreviousPage": page.has_previous,
            "startCursor": history.cursor(places[0]) if places else "",
            "endCursor": history.cursor(places[-1]) if places else "",
        }
        edges = (history.edge(place, self.edit_row) for place in places)
        return f'{{"balances":{{"edges":[{",".join(edges)}],"pageInfo":{json.dumps(info)}}}}}'
