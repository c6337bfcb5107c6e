"""Ask one node gently: few requests, at a slow pace, and none once it has had enough."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from balance_analysis.errors import RequestError
from balance_analysis.node.client import BALANCE_CHANGES, NETWORK_LIMITS, Tally
from balance_analysis.node.decode import FIRST_NANOSECOND, LAST_NANOSECOND
from balance_analysis.node.doctor.page import Page, read_page
from balance_analysis.node.limits import decode_limits
from balance_analysis.node.pace import Pace
from balance_analysis.node.query import Filters

if TYPE_CHECKING:
    from collections.abc import Callable

    from balance_analysis.node.client import Client
    from balance_analysis.node.exchange import Answer
    from balance_analysis.node.query import Parameters

MOST_REQUESTS: Final = 40

SAMPLE_SIZES: Final = (200, 20, 2, 1)
"""Rows to look at; fewer only where a node refuses so many."""

_MOST_THROTTLED: Final = 4

_CAREFUL: Final = 5.0
"""Requests a second at most once a node has refused one as too many."""

_MOST_SILENT: Final = 3
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500

T = TypeVar("T")


class _Allowance(Tally):
    """Counts requests, spaces them out, and lets no more be sent than a node can be asked for."""

    def __init__(self, node: str, per_second: float) -> None:
        super().__init__()
        self._node, self._per_second = node, per_second
        self._pace = Pace(per_second)

    def add(
        self, *, requests: int = 0, retries: int = 0, throttled: float = 0.0, size: int = 0
    ) -> None:
        """Add to the counts.

        Raises
        ------
        RequestError
            If a request is one too many, or the node has refused too often.
        """
        if retries:
            self._per_second = min(self._per_second / 2, _CAREFUL)
            self._pace = Pace(self._per_second)
        if self.retries + retries > _MOST_THROTTLED:
            said = f"{self._node} keeps refusing requests as too many; try again later"
            raise RequestError(said, url=self._node, status=_TOO_MANY, retryable=True)
        if self.requests + requests > MOST_REQUESTS:
            said = f"this would be more than the {MOST_REQUESTS} requests that a diagnosis may send"
            raise RequestError(said, url=self._node)
        super().add(requests=requests, retries=retries, throttled=throttled, size=size)
        if requests:
            self._pace.wait()


class Asker:
    """Sends the questions to one node and keeps what the answers show by the way.

    Attributes
    ----------
    allowance
        What was sent.
    answers
        All that came, in order.
    scale
        Nanoseconds in the unit in which the node reads bounds.
    size
        Rows to look at in one request.
    cut_at
        The most rows that came where more were asked for and the node announces more.
    ended
        Why nothing more is asked; `None` while something may be.
    out_of_order
        Whether rows ever came otherwise than asked for.
    """

    def __init__(self, client: Client, per_second: float) -> None:
        self.client = client
        self.allowance = _Allowance(client.base_url, per_second)
        self.answers: list[Answer[Any]] = []
        self.scale = 1
        self.size = SAMPLE_SIZES[0]
        self.cut_at: int | None = None
        self.out_of_order = False
        self._silent = self._timeouts = 0
        self.ended: RequestError | None = None

    @property
    def pages(self) -> list[Page]:
        """All pages that came."""
        return [answer.value for answer in self.answers if isinstance(answer.value, Page)]

    @property
    def head(self) -> Answer[Any] | None:
        """The answer that tells of the latest block; `None` where none tells."""
        told = [
            answer
            for answer in self.answers
            if answer.block_time is not None
            and FIRST_NANOSECOND <= answer.block_time * 1000 < LAST_NANOSECOND
        ]
        return max(told, key=lambda answer: answer.block_time or 0, default=None)

    def limits(self) -> dict[str, Any]:
        """Return the fields of the network limits."""
        return self._get(NETWORK_LIMITS, [], decode_limits)

    def page(
        self,
        start: int | None,
        end: int | None,
        *,
        first: int,
        newest_first: bool = False,
        after: str | None = None,
        filters: Filters | None = None,
        patience: float | None = None,
    ) -> Page:
        """Return one page; bounds in microseconds."""
        parameters = [
            *(filters or Filters()).parameters(),
            ("pagination.first", str(first)),
            *([] if after is None else [("pagination.after", after)]),
            ("pagination.newestFirst", "true" if newest_first else "false"),
            *([] if start is None else [("dateRange.startTimestamp", self._bound(start))]),
            *([] if end is None else [("dateRange.endTimestamp", self._bound(end))]),
        ]
        page = self._get(BALANCE_CHANGES, parameters, read_page, patience=patience)
        if page.more and after is None and 0 < page.edges < first:
            self.cut_at = max(page.edges, self.cut_at or 0)
        if page.times != sorted(page.times, reverse=newest_first):
            self.out_of_order = True
        return page

    def _bound(self, microseconds: int) -> str:
        return str(microseconds * 1000 // self.scale)

    def _get(
        self,
        path: str,
        parameters: Parameters,
        read: Callable[[bytes], T],
        *,
        patience: float | None = None,
        again: bool = True,
    ) -> T:
        if self.ended is not None:
            raise self.ended
        try:
            answer = self._ask(path, parameters, read, patience)
        except RequestError as error:
            self._judge(error)
            if not again or not error.retryable or error.timed_out or self.ended is not None:
                raise
            return self._get(path, parameters, read, patience=patience, again=False)
        self._silent = 0
        self.answers.append(answer)
        return answer.value

    def _ask(
        self,
        path: str,
        parameters: Parameters,
        read: Callable[[bytes], T],
        patience: float | None,
    ) -> Answer[T]:
        if patience is None:
            return self.client.get(path, parameters, read, tally=self.allowance, attempts=1)
        with copy.copy(self.client) as brief:
            brief.timeout = min(self.client.timeout, patience)
            return brief.get(path, parameters, read, tally=self.allowance, attempts=1)

    def _judge(self, error: RequestError) -> None:
        """Ask no more once the node has had enough, or has nothing to say."""
        self._silent += error.status is None and not error.timed_out
        self._timeouts += error.timed_out
        if (
            error.retry_after is not None
            or error.status == _TOO_MANY
            or max(self._silent, self._timeouts) >= _MOST_SILENT
            or self.allowance.requests >= MOST_REQUESTS
        ) and not is_refusal(error):
            self.ended = error


def is_refusal(error: RequestError) -> bool:
    """Whether a node says no to what it was asked."""
    return error.code is not None and not error.retryable


def is_range_refusal(error: RequestError) -> bool:
    """Whether it may say no to a range; v0.75 does so with 500, as if it had failed."""
    return is_refusal(error) or (error.code is not None and error.status == _SERVER_ERROR)
