"""Find what a node's answers prove, and how far back and forward the node reaches.

Forgotten history looks exactly like a time without changes. Nodes forget their oldest blocks first,
so a node that lists a row has forgotten nothing since that row: each page proves completeness from
its first row on. It proves nothing before; for that, `quiet_since` asks for an older row. Several
nodes may answer at one address, so no answer proves anything about another.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import requests

from balance_analysis.errors import RequestError
from balance_analysis.node import walk
from balance_analysis.node.client import BALANCE_CHANGES, Client, RequestStats, Retry
from balance_analysis.node.decode import DecodedPage, decode_page, raise_bad_row
from balance_analysis.table.evidence import Node, Reach, least
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import EVER, Span
from balance_analysis.table.schema import ACCOUNT_KEY, Account, accounts_in, to_numbers

_FEW: Final = 30
"""Rows that show a node's order, unless they are all of one block."""

_SAMPLE: Final = 1000
"""Rows to search for a readable time, or for a rare account."""

_MAX_PAGES: Final = 8
"""Maximum pages requested to prove one stretch."""

_STRETCH: Final = re.compile(r"(-?\d{1,19})-(-?\d{1,19})")

_decoding = threading.Lock()

T = TypeVar("T")


@dataclass(slots=True)
class Asker:
    """A function that asks one address for pages, and collects facts from the answers' headers.

    Once `retry.stopped` is set, a call raises `CancelledError` and sends nothing.

    Attributes
    ----------
    client, url, stats, retry
        How to ask.
    is_strict
        Whether the first bad row of an answer raises DecodeError.
    height
        The last block's height; the lowest that an answer named.
    incomplete
        Stretches for which an answer says that it may lack rows.
    origins
        The origins that a served archive names for its rows; `None` if no answer names them.
    varied
        The columns in which a single answer has several values.
    """

    client: Client
    url: str
    stats: RequestStats
    retry: Retry = Retry()
    is_strict: bool = False
    height: int | None = None
    incomplete: list[Span] = field(default_factory=list)
    origins: frozenset[str] | None = None
    varied: set[str] = field(default_factory=set)
    _heads: list[int | None] = field(default_factory=list)

    @property
    def head(self) -> int | None:
        """The earliest time named for the last block; `None` if an answer names none."""
        return None if None in self._heads else least(*self._heads)

    def __call__(self, request: walk.PageRequest) -> DecodedPage:
        """Return the page that the node sends for a request."""
        if self.retry.stopped is not None and self.retry.stopped.is_set():
            raise CancelledError
        # A request that takes too long is split instead; a page of one row can't be.
        retry = replace(self.retry, timeouts=request.page_size == 1)
        options: dict[str, Any] = {"base_url": self.url, "stats": self.stats, "retry": retry}
        answer = self.client.get(BALANCE_CHANGES, request.parameters(), _decode, **options)
        if self.is_strict:
            raise_bad_row(answer.value.bad_rows)
        self._heads.append(answer.block_time)
        self.height = least(self.height, answer.block_height)
        # A served archive lists the stretches it may lack, in nanoseconds: `0-1000, ...`.
        lacking = _STRETCH.findall(answer.headers.get("X-Incomplete", ""))
        self.incomplete += [(int(start) // 1000, int(end) // 1000) for start, end in lacking]
        if (named := answer.headers.get("X-Origins")) is not None:
            origins = {origin.strip() for origin in named.split(",")} - {""}
            self.origins = (self.origins or frozenset()) | origins
        rows = answer.value.rows
        self.varied |= {name for name in ACCOUNT_KEY if len(rows[name].dictionary) > 1}
        return answer.value

    def reads_list(self, name: str, sample: walk.Listing) -> bool | None:
        """Return whether a filter's list of two values selects the rows of both; `None` if unknown.

        Ask for the two most frequent values of a sample (newest first). Another node may answer,
        which lags or has forgotten rows. So a value counts as missing only if the sample has a row
        with it in the time that the answer spans.
        """
        times = sample.rows["timestamp"].cast(pa.int64()).to_pylist()
        pairs = [pair for pair in zip(sample.rows[name].to_pylist(), times, strict=True) if pair[0]]
        values = [value for value, _ in Counter(value for value, _ in pairs).most_common(2)]
        if not values[1:]:
            return None
        lists: Any = {f"{name}s": tuple(values)}
        window = walk.Window(pairs[-1][1], pairs[0][1] + 1, _SAMPLE)
        answer, _ = walk.fetch_less(self, Filters(**lists), window, newest_first=True)
        if answer.bad_rows or not len(answer.times):
            return None
        newest, oldest = answer.span
        # A page's last block may be cut.
        due = {value for value, time in pairs if oldest + answer.more <= time <= newest} & {*values}
        sent = {*answer.rows[name].to_pylist()}
        return len(sent) > 1 or (False if due - sent else None)


def _decode(body: bytes) -> DecodedPage:
    # Decoding holds the interpreter lock: threads that compete for it are slower than a queue.
    with _decoding:
        return decode_page(body)


@dataclass
class Address:
    """The state of one address.

    Attributes
    ----------
    url, session
        How to ask it.
    reach, rank
        The interval for which it seems to know all rows, and its rank; the best ranks lowest.
    head
        The time of the latest block that it has named, or of its newest row if it names none (in
        microseconds).
    is_silent
        Whether it names no last block.
    is_lagging
        Whether a warning about its lag was logged.
    failure
        Its last error, if it has not answered since.
    probed
        The stretches that it was asked to prove empty, each with the part of the filters.
    """

    url: str
    session: requests.Session
    reach: Reach | None = None
    rank: tuple[int, int, int] = (EVER[1], 0, 0)
    head: int | None = None
    is_silent: bool = False
    is_lagging: bool = False
    failure: Exception | None = None
    probed: set[tuple[int, Span]] = field(default_factory=set)

    @property
    def is_dead(self) -> bool:
        """Whether it refused the last connection."""
        return isinstance(self.failure, RequestError) and self.failure.refused

    @cached_property
    def node(self) -> Node:
        """Its identity in evidence."""
        return Node(self.url, origin_of(self.url, self.session))


def quiet_since(
    ask: walk.Ask, filters: Filters, start: int, end: int, *, is_silent: bool
) -> tuple[int, int]:
    """Return the earliest moment since which answers prove that some accounts have no row.

    Also return the time of a row in (start, end) that an answer has; `start` if it has none.

    The moment lies in [start, end]: it is `start` if [start, end) is proven to be empty, and `end`
    if no part of it is. An answer proves all of it if its newest row before `end` is older than
    `start`; rows of two blocks must show that the node lists the newest first, unless it has no
    more. If these accounts have no older row, the same request asks for another account that has
    one. If the node names no last block (`is_silent`), the answer must also list a row at the end.
    """
    since, held, is_near = end, start, True
    for turn in range(_MAX_PAGES):
        low, selection = max(walk.EARLIEST, since - walk.LONGEST_WINDOW), filters
        window = walk.Window(low, since + is_silent, _SAMPLE if is_silent else _FEW)
        if turn:
            is_near = is_near and start >= low
            far = walk.Window(low, start + 1 if is_near else since, _SAMPLE)
            selection = _with_another(ask, filters, far, turn, newest_first=is_near)
            if selection == filters != Filters():
                if not is_near:
                    break
                is_near = False  # the node has forgotten what was before `start`
                continue
            window = walk.Window(low, since + 1, walk.USUAL_MAXIMUM)
        listing, _ = walk.fetch_less(ask, selection, window, newest_first=True)
        times = to_numbers(listing.rows["timestamp"].cast(pa.int64())).tolist()
        rows: list[tuple[int | None, Account | None]] = [
            *zip(times, accounts_in(listing.rows), strict=True),
            *((bad.time, bad.account) for bad in listing.bad_rows),
        ]
        own_times = [time for time, account in rows if account is None or filters.selects(account)]
        if any(time is None or start <= time < since for time in own_times):
            own = (x for x, account in rows if account is not None and filters.selects(account))
            held = max((x for x in own if x is not None and x < since), default=start)
            break
        is_ordered = not listing.more or len(set(listing.times.tolist())) > 1
        if is_ordered and len(listing.times) and (listing.times[0] >= since or not is_silent):
            # A page's last block may be cut.
            oldest = int(listing.times[-1]) + listing.more
            since = min(since, max(start, oldest))
        elif turn or (is_ordered and not filters.allowed()):
            break
        if since == start:
            break
    return since, held


def _with_another(
    ask: walk.Ask, filters: Filters, window: walk.Window, turn: int, *, newest_first: bool
) -> Filters:
    """Return filters that also select another account, with a row at the window's far side, if any.

    Prefer the account of the oldest row, or with `newest_first` one that occurs rarely, and take a
    different one each turn.
    """
    lists = filters.party_ids, filters.market_ids, filters.account_types
    if not any(lists):
        return Filters()
    listing, _ = walk.fetch_less(ask, Filters(), window, newest_first=newest_first)
    accounts = [x for x in accounts_in(listing.rows) if not filters.selects(x)]
    seen = Counter(party for _, _, party, _ in accounts)
    others = [account for account in accounts if account[3] or not filters.market_ids]
    if not others:
        return filters
    if newest_first:
        others.sort(key=lambda account: seen[account[2]])
    _, kind, party, market = others[(turn - 1) % len(others)]
    parties, markets, kinds = (
        (*dict.fromkeys((*values, other)),) if values else ()
        for values, other in zip(lists, (party, market, kind), strict=True)
    )
    return Filters(party_ids=parties, market_ids=markets, account_types=kinds)


def ask_reach(ask: Asker, start: int, end: int) -> Reach:
    """Return the part of [start, end) that a node seems to know, to choose which node to ask.

    This isn't evidence: another node may answer at the same address next time.
    """
    first = max(start, walk.EARLIEST)
    oldest = walk.find_oldest(ask, end, max(walk.EARLIEST, first + 1 - walk.LONGEST_WINDOW))
    begin = first if ask.incomplete else max(first, end if oldest is None else oldest)
    stop = ask.head
    if stop is None:
        newest = walk.find_newest(ask, min(first, end), end + walk.LONGEST_WINDOW, _SAMPLE)
        stop = min(end, newest.span[0]) if len(newest.times) else first
    return Reach(begin, stop, ask.height)


def call_in_thread(function: Callable[..., T], *args: object) -> Future[T]:
    """Call a function in a daemon thread, and return its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - the future passes it on
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def origin_of(url: str, session: requests.Session) -> frozenset[str]:
    """Return the addresses and ports that a URL's host resolves to, such as "127.0.0.1:3008".

    All loopback addresses count as 127.0.0.1. The set is empty if the host can't be resolved, or if
    a proxy resolves it.
    """
    environment = requests.utils.get_environ_proxies(url) if session.trust_env else {}
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if requests.utils.select_proxy(url, {**environment, **session.proxies}):
        return frozenset()
    try:
        addresses = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(f"{_plain(str(address[0]))}:{port}" for *_, address in addresses)


def _plain(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return "127.0.0.1"
    return f"[{address}]" if ":" in str(address) else str(address)
