"""Ask one node gently: few requests, at a slow pace, and none once it has had enough."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from balance_analysis.errors import RequestError
from balance_analysis.node.client import BALANCE_CHANGES, Tally
from balance_analysis.node.decode import FIRST_NANOSECOND, LAST_NANOSECOND, decode_page
from balance_analysis.node.pace import Pace
from balance_analysis.schema import ACCOUNT_KEY, FIELD_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from balance_analysis.node.client import Client
    from balance_analysis.node.exchange import Answer
    from balance_analysis.node.query import Parameters

MOST_REQUESTS: Final = 40

SAMPLE_SIZES: Final = (200, 20, 2, 1)
"""Rows to look at; fewer only where a node refuses so many."""

UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

_MOST_THROTTLED: Final = 4

_CAREFUL: Final = 5.0
"""Requests a second at most once a node has refused one as too many."""

_MOST_SILENT: Final = 3
_TOO_MANY, _SERVER_ERROR = 429, 500
_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

Node = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """One page as a node sent it, its rows as plain JSON objects.

    `nodes` are the rows whose time can be read, in any of the `units`; `edges` is how many rows
    there were, and `bad` what is wrong with those that the table can't hold.
    """

    nodes: Sequence[Node] = ()
    nanoseconds: Sequence[int] = ()
    units: Sequence[str] = ()
    edges: int = 0
    bad: Sequence[str] = ()
    more: bool = False
    end_cursor: str = ""

    @property
    def times(self) -> list[int]:
        """Microseconds of each of the nodes."""
        return [moment // 1000 for moment in self.nanoseconds]

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """What tells each of the nodes from every other row: its time and account."""
        names = [FIELD_NAMES[name] for name in ("timestamp", *ACCOUNT_KEY)]
        return [tuple(str(node.get(name)) for name in names) for node in self.nodes]

    @property
    def grain(self) -> int:
        """How many microseconds the rows' own unit is, at least 1."""
        return max([1, *(UNITS[unit] // 1000 for unit in self.units)])


def _read_page(body: bytes) -> Page:
    page = decode_page(body)
    nodes = [edge["node"] for edge in msgspec.json.decode(body)["balances"]["edges"]]
    timed = [(node, *time) for node in nodes for time in _nanoseconds(node)]
    kept, nanoseconds, units = zip(*timed, strict=True) if timed else ((), (), ())
    bad = [row.reason for row in page.bad_rows]
    return Page(kept, nanoseconds, units, len(nodes), bad, page.has_next_page, page.end_cursor)


def _nanoseconds(node: Any) -> list[tuple[int, str]]:  # noqa: ANN401 - whatever a node sends
    """Return a row's time, if it has one, and the unit in which alone it is one."""
    text = str(node.get(FIELD_NAMES["timestamp"])) if isinstance(node, dict) else ""
    times = [(int(text) * UNITS[unit], unit) for unit in UNITS if _WHOLE.fullmatch(text)]
    return [time for time in times if _is_time(time[0])]


def _is_time(nanoseconds: int) -> bool:
    """Whether a number is a time between 2015 and 2100."""
    return FIRST_NANOSECOND <= nanoseconds < LAST_NANOSECOND


def is_refusal(error: RequestError) -> bool:
    """Whether a node says no to what it was asked."""
    return error.code is not None and not error.retryable


def is_range_refusal(error: RequestError) -> bool:
    """Whether it may say no to a range; v0.75 does so with 500, as if it had failed."""
    return is_refusal(error) or (error.code is not None and error.status == _SERVER_ERROR)


class _Allowance(Tally):
    """Counts requests, spaces them out, and lets no more be sent than a node can be asked for."""

    def __init__(self, node: str, per_second: float) -> None:
        super().__init__()
        self._node, self._per_second = node, per_second
        self._pace = Pace(per_second)

    def add(self, *, requests: int = 0, retries: int = 0, **others: Any) -> None:  # noqa: ANN401
        """Add to the counts, or raise if a request is one too many."""
        if retries:
            self._per_second = min(self._per_second / 2, _CAREFUL)
            self._pace = Pace(self._per_second)
        if self.retries + retries > _MOST_THROTTLED:
            said = f"{self._node} keeps refusing requests as too many; try again later"
            raise RequestError(said, url=self._node, status=_TOO_MANY, retryable=True)
        if self.requests + requests > MOST_REQUESTS:
            said = f"this would be more than the {MOST_REQUESTS} requests that a diagnosis may send"
            raise RequestError(said, url=self._node)
        super().add(requests=requests, retries=retries, **others)
        if requests:
            self._pace.wait()


class Asker:
    """Sends the questions to one node and keeps what the answers show by the way.

    `unit` is that in which the node reads bounds, `size` how many rows to look at in one request.
    `cut_at` is the most rows that came where more were asked for and the node announces more.
    `ended` is why nothing more is asked; `None` while something may be. `kept` is what is asked
    only once, by name.
    """

    def __init__(self, client: Client, per_second: float) -> None:
        self.client, self.allowance = client, _Allowance(client.base_url, per_second)
        self.answers: list[Answer[Any]] = []
        self.pages: list[Page] = []
        self.kept: dict[str, Future[Any]] = {}
        self.unit, self.size = "ns", SAMPLE_SIZES[0]
        self.cut_at: int | None = None
        self.out_of_order = False
        self.ended: RequestError | None = None
        self._unanswered = Counter[bool]()

    @property
    def nodes(self) -> list[Node]:
        """All rows that came."""
        return [node for page in self.pages for node in page.nodes]

    @property
    def head(self) -> tuple[int, int | None]:
        """The latest block's time and height; 0 where no answer tells."""
        heads = ((answer.block_time or 0, answer.block_height) for answer in self.answers)
        told = (head for head in heads if _is_time(head[0] * 1000))
        return max(told, key=lambda head: head[0], default=(0, None))

    def page(
        self,
        start: int | None,
        end: int | None,
        *,
        first: int,
        newest_first: bool = False,
        also: Parameters | None = None,
        client: Client | None = None,
    ) -> Page:
        """Return one page; bounds in microseconds."""
        wanted = [("pagination.first", str(first)), *(also or [])]
        wanted.append(("pagination.newestFirst", "true" if newest_first else "false"))
        for name, bound in ("dateRange.startTimestamp", start), ("dateRange.endTimestamp", end):
            if bound is not None:
                wanted.append((name, str(bound * 1000 // UNITS[self.unit])))
        page = self.get(client or self.client, BALANCE_CHANGES, wanted, _read_page)
        self.pages.append(page)
        if page.more and 0 < page.edges < first:
            self.cut_at = max(page.edges, self.cut_at or 0)
        self.out_of_order |= page.times != sorted(page.times, reverse=newest_first)
        return page

    def page_or_refusal(self, *bounds: int, **options: Any) -> Page | RequestError:  # noqa: ANN401
        """Return one page, or how the node says no to what is asked."""
        try:
            return self.page(*bounds, **options)
        except RequestError as error:
            if is_refusal(error):
                return error
            raise

    def get(self, client: Client, path: str, wanted: Parameters, read: Callable[[bytes], T]) -> T:
        """Return an answer; what failed but may pass is asked for once more."""
        ask = partial(client.get, path, wanted, read, tally=self.allowance, attempts=1)
        try:
            return self._once(ask)
        except RequestError as error:
            if not error.retryable or error.timed_out or self.ended is not None:
                raise
        return self._once(ask)

    def _once(self, ask: Callable[[], Answer[T]]) -> T:
        if self.ended is not None:
            raise self.ended
        try:
            answer = ask()
        except RequestError as error:
            if self._is_last(error):
                self.ended = error
            raise
        self._unanswered[False] = 0
        self.answers.append(answer)
        return answer.value

    def _is_last(self, error: RequestError) -> bool:
        """Whether the node has had enough, or has nothing to say."""
        self._unanswered[error.timed_out] += error.status is None
        return not is_refusal(error) and (
            error.retry_after is not None
            or error.status == _TOO_MANY
            or max(self._unanswered.values()) >= _MOST_SILENT
            or self.allowance.requests >= MOST_REQUESTS
        )
