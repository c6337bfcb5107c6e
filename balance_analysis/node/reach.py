"""How far back and how far forward a node answers completely.

Forgotten history looks exactly like nothing having happened, and so does what a node that lags
doesn't know yet. So a node is asked for its oldest row and its last block. Several nodes may stand
behind one address: it is asked over three new connections, and the least is believed.
"""

from __future__ import annotations

import ipaddress
import operator
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import requests

from balance_analysis.errors import RequestError
from balance_analysis.evidence import Node, Reach, least
from balance_analysis.filters import Filters
from balance_analysis.node.client import BALANCE_CHANGES, Client, Retry
from balance_analysis.node.decode import DecodedPage, decode_page, raise_bad_row
from balance_analysis.node.stats import RequestStats
from balance_analysis.node.walk import (
    EARLIEST,
    LONGEST_WINDOW,
    PageRequest,
    Window,
    fetch,
    find_oldest,
)
from balance_analysis.spans import Span

CONNECTIONS: Final = 3
"""Connections over which a node is asked for its reach."""

_LOOPBACK: Final = ipaddress.ip_address("127.0.0.1")
_SOME: Final = 1000
"""Rows among which one with a readable time is looked for."""

_OUTSIDE: Final = 416
"""The status of a range that a served archive refuses, as it doesn't hold all of it."""

_decoding = threading.Lock()

T = TypeVar("T")


@dataclass(slots=True)
class Asker:
    """A function that asks one address for pages, and what the answers say of the nodes behind it.

    After `retry.stopped` is set it raises `CancelledError`, and sends nothing.

    Attributes
    ----------
    client, url, stats, retry
        How to ask.
    is_strict
        Whether the first bad row of an answer raises DecodeError.
    head, height
        The last block: its microseconds and number. Of several answers, the least; `None` if one
        of them names none.
    incomplete
        Stretches of which a node says that it may lack rows.
    origins
        Where a served archive says that its rows are from; `None` if no answer says so.
    """

    client: Client
    url: str
    stats: RequestStats
    retry: Retry = Retry()  # noqa: RUF009 - frozen
    is_strict: bool = False
    head: int | None = None
    height: int | None = None
    incomplete: list[Span] = field(default_factory=list)
    origins: frozenset[str] | None = None
    _answers: int = 0

    def __call__(self, request: PageRequest) -> DecodedPage:
        """Return one page."""
        if self.retry.stopped is not None and self.retry.stopped.is_set():
            raise CancelledError
        # What takes too long is asked for in parts; a page of one row has none.
        retry = replace(self.retry, timeouts=request.page_size == 1)
        options: dict[str, Any] = {"base_url": self.url, "stats": self.stats, "retry": retry}
        answer = self.client.get(BALANCE_CHANGES, request.parameters(), _decode, **options)
        if self.is_strict:
            raise_bad_row(answer.value.bad_rows)
        self._answers += 1
        is_first, before, now = self._answers == 1, self.head, answer.block_time
        if is_first or before is None or now is None:
            self.head = now if is_first else None
        else:
            self.head = min(before, now)
        self.height = least(self.height, answer.block_height)
        self.incomplete += answer.incomplete
        if (named := answer.headers.get("X-Origins")) is not None:
            found = {origin.strip() for origin in named.split(",")} - {""}
            self.origins = (self.origins or frozenset()) | found
        return answer.value


def _decode(body: bytes) -> DecodedPage:
    # Decoding holds the interpreter: threads that fight for it take longer than threads in a queue.
    with _decoding:
        return decode_page(body)


def ask_reach(
    client: Client, node: Node, span: Span, stats: RequestStats, retry: Retry
) -> tuple[Reach, int]:
    """Return how much of a span whoever answers at an address can know.

    It has forgotten nothing since a moment at or before which it has a row of any account. It holds
    everything before its last block; if it names none, everything before its newest row. A served
    archive forgets nothing: it says, or refuses, what it doesn't hold.

    Three new connections are asked, and the least is believed. The earliest start that one of them
    has shown is returned too.

    Raises
    ------
    RequestError, IncompleteError
        If one of them gets no answer, or one that doesn't add up.
    """
    with ExitStack() as stack:
        fresh = [stack.enter_context(client.fresh()) for _ in range(CONNECTIONS)]
        asks = [Asker(each, node.name, stats, retry) for each in fresh]
        futures = [started(_reach_over, ask, node, *span) for ask in asks]
        found = [future.result() for future in futures]
    return reduce(operator.and_, found), min(each.start for each in found)


def _reach_over(ask: Asker, node: Node, start: int, end: int) -> Reach:
    try:
        begin = _find_start(ask, start, end)
        stop = _find_end(ask, start, end) if ask.head is None else ask.head
    except RequestError as error:
        if error.status != _OUTSIDE:
            raise
        begin, stop = start, end
    named = node if ask.origins is None else Node(node.name, ask.origins)
    return Reach(named, begin, stop, ask.height)


def _find_start(ask: Asker, start: int, end: int) -> int:
    since = max(EARLIEST, end - LONGEST_WINDOW)
    begin = _search_start(ask, start, end, since)
    if start >= since or ask.incomplete or begin >= end:
        return begin
    # Different nodes may have answered the questions of so long a search. One that has forgotten
    # more answers the same question with a later row.
    window = Window(begin, min(end, begin + LONGEST_WINDOW), page_size=1)
    listings = [fetch(ask, Filters(), window) for _ in range(CONNECTIONS)]
    firsts = {x.span[0] if len(x.times) else window.end for x in listings}
    return begin if len(firsts) == 1 else max(firsts)


def _search_start(ask: Asker, start: int, end: int, since: int) -> int:
    if EARLIEST <= start < since:
        window = Window(max(EARLIEST, start + 1 - LONGEST_WINDOW), start + 1, page_size=1)
        if len(fetch(ask, Filters(), window).times) or ask.incomplete:
            return start
    # One question shows whether a row is before the start, and if not, which comes first.
    oldest = find_oldest(ask, end, since if since <= start else EARLIEST)
    if oldest is None and since <= start:
        # A network may have been at rest for longer than one window.
        oldest = find_oldest(ask, since, EARLIEST)
    if ask.incomplete:
        return start
    return end if oldest is None else max(start, oldest)


def _find_end(ask: Asker, start: int, end: int) -> int:
    """Return `end` if a row stands there or later, else the newest row's time."""
    if len(fetch(ask, Filters(), Window(end, end + LONGEST_WINDOW, page_size=1)).times):
        return end
    start = max(start, EARLIEST)
    while start < end:
        window = Window(max(start, end - LONGEST_WINDOW), end, page_size=1)
        listing = fetch(ask, Filters(), window, newest_first=True)
        if listing.bad_rows and not len(listing.times):
            # The newest row has no readable time: an earlier one counts.
            listing = fetch(ask, Filters(), replace(window, page_size=_SOME), newest_first=True)
        if len(listing.times):
            return listing.span[0]
        end = window.start
    return start


def started(function: Callable[..., T], *args: object) -> Future[T]:
    """Call a function in a thread that doesn't keep the program alive; return its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def origin_of(url: str, session: requests.Session) -> frozenset[str]:
    """Return the addresses and ports that a URL's host resolves to, such as "127.0.0.1:3008".

    All loopback addresses are one. Empty if the host can't be resolved, or a proxy resolves it.
    """
    environment = requests.utils.get_environ_proxies(url) if session.trust_env else {}
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if requests.utils.select_proxy(url, {**environment, **session.proxies}):
        return frozenset()
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(f"{_plain(str(address[0]))}:{port}" for *_, address in found)


def _plain(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        address = _LOOPBACK
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6
