"""Ask one node gently: few requests, at a slow pace, and none once it has had enough."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.node.client import BALANCE_CHANGES, NETWORK_LIMITS, TOO_MANY, Client, Retry
from balance_analysis.node.decode import FIRST_NANOSECOND, LAST_NANOSECOND, decode_page
from balance_analysis.node.exchange import Answer, Parameters
from balance_analysis.node.limits import decode_limits
from balance_analysis.node.stats import RequestStats
from balance_analysis.node.walk import EARLIEST, LONGEST_WINDOW
from balance_analysis.schema import ACCOUNT_KEY, FIELD_NAMES
from balance_analysis.spans import Span

MOST_REQUESTS: Final = 40

SAMPLE_SIZES: Final = (200, 20, 2, 1)
"""Rows to look at; fewer only where a node refuses so many."""

_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

_MOST_SILENT: Final = 3
_STRETCH_ROWS: Final = 60
_SERVER_ERROR: Final = 500
_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SentPage:
    """One page as a node sent it, its rows as plain JSON objects.

    `nodes` are the rows whose time can be read, in any of the `units`; `edges` is how many rows
    there were, and `bad` what is wrong with those that the table can't hold.
    """

    nodes: Sequence[dict[str, Any]] = ()
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
        return max([1, *(_UNITS[unit] // 1000 for unit in self.units)])


def _read_page(body: bytes) -> SentPage:
    page = decode_page(body)
    nodes = [edge["node"] for edge in msgspec.json.decode(body)["balances"]["edges"]]
    timed = [(node, *time) for node in nodes for time in _nanoseconds(node)]
    kept, nanoseconds, units = zip(*timed, strict=True) if timed else ((), (), ())
    bad, info = [row.reason for row in page.bad_rows], page.info
    return SentPage(kept, nanoseconds, units, len(nodes), bad, info.has_next_page, info.end_cursor)


def _nanoseconds(node: Any) -> list[tuple[int, str]]:  # noqa: ANN401 - whatever a node sends
    """Return a row's time, if it has one, and the unit in which alone it is one."""
    text = str(node.get(FIELD_NAMES["timestamp"])) if isinstance(node, dict) else ""
    times = [(int(text) * size, unit) for unit, size in _UNITS.items() if _WHOLE.fullmatch(text)]
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


def _once(ask: Callable[[Probe], T]) -> Callable[[Probe], T]:
    """Return a question that is asked when first wanted, and then keeps its answer or error."""

    def answer(probe: Probe) -> T:
        kept: Future[T] = probe.kept.setdefault(ask.__name__, Future())
        if not kept.done():
            try:
                kept.set_result(ask(probe))
            except BalanceAnalysisError as error:
                kept.set_exception(error)
        return kept.result()

    return answer


class Probe:
    """Sends the questions to one node and keeps what the answers show by the way.

    `unit` is that in which the node reads bounds, `size` how many rows to look at in one request.
    `ended` is why nothing more is asked; `None` while something may be.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client
        self.stats: RequestStats = RequestStats()
        self.answers: list[Answer[Any]] = []
        self.pages: list[SentPage] = []
        self.kept: dict[str, Future[Any]] = {}
        self.unit: str = "ns"
        self.size: int = SAMPLE_SIZES[0]
        self.out_of_order: bool = False
        self.ended: RequestError | None = None
        self._unanswered = Counter[bool]()

    @property
    def latest_block(self) -> tuple[int, int | None]:
        """The latest block's time and height; 0 where no answer tells."""
        blocks = ((answer.block_time or 0, answer.block_height) for answer in self.answers)
        possible = (block for block in blocks if _is_time(block[0] * 1000))
        return max(possible, key=lambda block: block[0], default=(0, None))

    @_once
    def limits(self) -> Answer[dict[str, Any]]:
        """Return the fields of the network limits."""
        return self._get(NETWORK_LIMITS, [], decode_limits)

    @_once
    def newest(self) -> SentPage:
        """Return the newest rows, in whatever unit the node reads bounds; empty if there are none.

        They are looked for from the node's last block back, a year at a time: a node may refuse, or
        never answer, a request without a range. In units other than nanoseconds, one year must do.
        """
        latest, _ = self.latest_block
        end = (latest if latest >= EARLIEST else time.time_ns() // 1000) + 1
        ends = range(end, EARLIEST, -LONGEST_WINDOW)
        windows = [(max(EARLIEST, end - LONGEST_WINDOW), end) for end in ends]
        refusals: dict[str, RequestError] = {}
        for self.unit in _UNITS:
            try:
                page = self._first_with_rows(windows, newest_first=True)
            except RequestError as error:
                if not is_range_refusal(error):
                    raise
                refusals[self.unit] = error
            else:
                if page.edges:
                    return page
            windows = windows[:1]
        self.unit = "ns"
        if "ns" in refusals:
            raise refusals["ns"]
        return SentPage()

    def rows(self) -> SentPage:
        """Return the newest rows, of which there is at least one."""
        if not self.newest().nodes:
            raise IncompleteError("the node sent no row to tell by")
        return self.newest()

    @_once
    def oldest(self) -> SentPage:
        """Return the oldest rows, looked for up to the newest, a year at a time."""
        last = max(self.rows().times)
        starts = range(EARLIEST, last + 1, LONGEST_WINDOW)
        windows = [(t, min(t + LONGEST_WINDOW, last + self.rows().grain)) for t in starts]
        return self._first_with_rows(windows, newest_first=False)

    def _first_with_rows(self, windows: list[Span], *, newest_first: bool) -> SentPage:
        """Return the first page that has rows, of fewer of them where the node refuses so many."""
        for window in windows:
            for size in [size for size in SAMPLE_SIZES if size <= self.size]:
                page = self.page_or_refusal(*window, first=size, newest_first=newest_first)
                if isinstance(page, SentPage):
                    self.size = size
                    break
            if not isinstance(page, SentPage):
                raise page
            if page.edges:
                return page
        return SentPage()

    @_once
    def stretch(self) -> tuple[int, int, SentPage]:
        """Ask for the densest few neighbouring blocks of these rows, by time and in one page."""
        start, end = max(map(_densest, [self.rows(), self.oldest()]))[2:]
        # From a microsecond before, so that a start that is exclusive leaves nothing out.
        start -= self.rows().grain
        return start, end, self.page(start, end, first=self.size)

    def page(
        self,
        start: int,
        end: int,
        *,
        first: int,
        newest_first: bool = False,
        also: Sequence[tuple[str, str]] = (),
    ) -> SentPage:
        """Return one page; bounds in microseconds."""
        unit = _UNITS[self.unit]
        wanted = [
            ("pagination.first", str(first)),
            *also,
            ("pagination.newestFirst", "true" if newest_first else "false"),
            ("dateRange.startTimestamp", str(start * 1000 // unit)),
            ("dateRange.endTimestamp", str(end * 1000 // unit)),
        ]
        page = self._get(BALANCE_CHANGES, wanted, _read_page).value
        self.pages.append(page)
        self.out_of_order |= page.times != sorted(page.times, reverse=newest_first)
        return page

    def page_or_refusal(self, *bounds: int, **options: Any) -> SentPage | RequestError:  # noqa: ANN401
        """Return one page, or how the node says no to what is asked."""
        try:
            return self.page(*bounds, **options)
        except RequestError as error:
            if is_refusal(error):
                return error
            raise

    def follow_cursors(self, size: int, *, most: int) -> tuple[list[tuple[str, ...]], bool]:
        """Return the rows that cursors lead to in the stretch, and whether they led to its end."""
        start, end, whole = self.stretch()
        found: list[tuple[str, ...]] = []
        also: Parameters = []
        seen = {""}
        for _ in range(most):
            page = self.page(start, end, first=size, also=also)
            found += page.keys
            if not page.more or page.end_cursor in seen:
                return found, True
            also = [("pagination.after", page.end_cursor)]
            seen.add(page.end_cursor)
            if whole.more and len(found) >= len(whole.nodes):
                break
        return found, False

    def _get(self, path: str, wanted: Parameters, read: Callable[[bytes], T]) -> Answer[T]:
        """Return an answer; what failed but may pass is asked for once more."""
        if self.ended is None and self.stats.requests >= MOST_REQUESTS:
            said = f"this would be more than the {MOST_REQUESTS} requests that a diagnosis may send"
            self.ended = RequestError(said, url=self.client.base_url)
        if self.ended is not None:
            raise self.ended
        again = min(1, MOST_REQUESTS - self.stats.requests - 1)
        retry = Retry(attempts=1 + again, pauses=again, timeouts=False)
        try:
            answer = self.client.get(path, wanted, read, stats=self.stats, retry=retry)
        except RequestError as error:
            if self._is_last(error):
                self.ended = error
            raise
        self._unanswered[False] = 0
        self.answers.append(answer)
        return answer

    def _is_last(self, error: RequestError) -> bool:
        """Whether the node has had enough, or has nothing to say."""
        if error.status is None:
            # What takes too long was asked for once, anything else twice.
            self._unanswered[error.timed_out] += 1 if error.timed_out else 2
        return not is_refusal(error) and (
            error.retry_after is not None
            or error.status == TOO_MANY
            or max(self._unanswered.values(), default=0) >= _MOST_SILENT
        )


def _densest(page: SentPage) -> tuple[int, int, int, int]:
    """Return the bounds of the densest stretch, behind how dense and how large it is.

    Dense is where neighbouring rows often have one time. The last block of a page may be cut, so it
    counts only where there is no other.
    """
    blocks = list(Counter(page.times).items())
    if page.more and len(blocks) > 1:
        blocks.pop()
    blocks.sort()
    lengths, grain = range(1, _STRETCH_ROWS + 1), page.grain
    found = [(-1, 0, 0, 0)]
    for run in (blocks[i : i + length] for i in range(len(blocks)) for length in lengths):
        rows = sum(count for _, count in run)
        if rows <= _STRETCH_ROWS or len(run) == 1:
            found.append((rows - len(run), rows, run[0][0], run[-1][0] + grain))
    return max(found)
