"""Rows to tell by, the newest, the oldest and a dense stretch, and what is tried on them."""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pandas as pd

from balance_analysis import errors
from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.node.block import LARGEST_PAGE, USUAL_MAXIMUM
from balance_analysis.node.client import NETWORK_LIMITS
from balance_analysis.node.doctor.ask import SAMPLE_SIZES, UNITS, Page, is_range_refusal
from balance_analysis.node.limits import decode_limits, network_limits
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from balance_analysis.node.doctor.ask import Asker
    from balance_analysis.node.query import Parameters
    from balance_analysis.schema import NetworkLimits
    from balance_analysis.spans import Span

_STRETCH_ROWS: Final = 60
_CURSOR_PAGES: Final = 8

T = TypeVar("T")


def once(ask: Callable[[Asker], T]) -> Callable[[Asker], T]:
    """Return a question that is asked when first wanted, and then keeps its answer or error."""

    def answer(asker: Asker) -> T:
        kept: Future[T] = asker.kept.setdefault(ask.__name__, Future())
        if not kept.done():
            try:
                kept.set_result(ask(asker))
            except BalanceAnalysisError as error:
                kept.set_exception(error)
        return kept.result()

    return answer


@once
def limits(asker: Asker) -> dict[str, Any]:
    """Return the fields of the network limits."""
    return asker.get(asker.client, NETWORK_LIMITS, [], decode_limits)


def typed_limits(asker: Asker) -> NetworkLimits:
    """Return the network limits, read."""
    now = pd.Timestamp.now("UTC")
    return network_limits(limits(asker), fetched_at=now, source="", block_height=None)


@once
def newest(asker: Asker) -> Page:
    """Return the newest rows, in whatever unit the node reads bounds; empty where there are none.

    They are looked for from the node's last block back, a year at a time: a node may refuse, or
    never answer, a request without a range. In units other than nanoseconds, one year must do.
    """
    head, _ = asker.head
    end = (head if head >= EARLIEST else time.time_ns() // 1000) + 1
    ends = range(end, EARLIEST, -LONGEST_WINDOW)
    windows = [(max(EARLIEST, end - LONGEST_WINDOW), end) for end in ends]
    refusals: dict[str, RequestError] = {}
    for unit in UNITS:
        asker.unit = unit
        try:
            page = _first_with_rows(asker, windows, newest_first=True)
        except RequestError as error:
            if not is_range_refusal(error):
                raise
            refusals[unit] = error
        else:
            if page.edges:
                return page
        windows = windows[:1]
    asker.unit = "ns"
    if "ns" in refusals:
        raise refusals["ns"]
    return Page()


def rows(asker: Asker) -> Page:
    """Return the newest rows, of which there is at least one."""
    if not newest(asker).nodes:
        raise errors.IncompleteError("the node sent no row to tell by")
    return newest(asker)


@once
def oldest(asker: Asker) -> Page:
    """Return the oldest rows, looked for up to the newest, a year at a time."""
    last = max(rows(asker).times)
    starts = range(EARLIEST, last + 1, LONGEST_WINDOW)
    windows = [(t, min(t + LONGEST_WINDOW, last + rows(asker).grain)) for t in starts]
    return _first_with_rows(asker, windows, newest_first=False)


def _first_with_rows(asker: Asker, windows: list[Span], *, newest_first: bool) -> Page:
    """Return the first page that has rows, of fewer of them where the node refuses so many."""
    for start, end in windows:
        for size in [size for size in SAMPLE_SIZES if size <= asker.size]:
            page = asker.page_or_refusal(start, end, first=size, newest_first=newest_first)
            if isinstance(page, Page):
                asker.size = size
                break
        if not isinstance(page, Page):
            raise page
        if page.edges:
            return page
    return Page()


@once
def stretch(asker: Asker) -> tuple[int, int, Page]:
    """Ask for the densest few neighbouring blocks of these rows, by time and in one page."""
    start, end = max(map(_densest, [rows(asker), oldest(asker)]))[2:]
    # From a microsecond before, so that a start that is exclusive leaves nothing out.
    start -= rows(asker).grain
    return start, end, asker.page(start, end, first=asker.size)


def _densest(page: Page) -> tuple[int, int, int, int]:
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


def cutting_size(times: list[int]) -> tuple[int, int]:
    """Return the page size whose pages end inside a block most often, and how often that is.

    Of several, it is the smallest that reaches furthest, since full pages show most.
    """

    def cuts(size: int) -> int:
        ends = range(size, min(len(times), _CURSOR_PAGES * size + 1), size)
        return sum(times[i - 1] == times[i] for i in ends)

    sizes = range(1, len(times))
    size = max(sizes, key=lambda size: (cuts(size), min(_CURSOR_PAGES * size, len(times)), -size))
    return size, cuts(size)


def follow_cursors(asker: Asker, size: int) -> tuple[list[tuple[str, ...]], bool]:
    """Return the rows that cursors lead to in the stretch, and whether they led to its end."""
    start, end, whole = stretch(asker)
    found: list[tuple[str, ...]] = []
    also: Parameters = []
    seen = {""}
    for _ in range(_CURSOR_PAGES + 1):
        page = asker.page(start, end, first=size, also=also)
        found += page.keys
        if not page.more or page.end_cursor in seen:
            return found, True
        also = [("pagination.after", page.end_cursor)]
        seen.add(page.end_cursor)
        if whole.more and len(found) >= len(whole.nodes):
            break
    return found, False


def page_limits(asker: Asker) -> tuple[int, int | None]:
    """Return the largest page size found to be accepted, and the smallest found to be refused.

    They are asked for where there is hardly a row to send: what is judged is the number alone.
    """
    at = max(newest(asker).times or [asker.head[0] or EARLIEST])
    refusal = asker.page_or_refusal(at, at + 1, first=LARGEST_PAGE)
    if isinstance(refusal, Page):
        asker.size = SAMPLE_SIZES[0]
        return LARGEST_PAGE, None
    low, high = (asker.size if newest(asker).edges else 0), LARGEST_PAGE
    hints = [int(text) for text in re.findall(r"\d{1,7}", str(refusal).rpartition(": ")[2])][-1:]
    tries = [*hints, *(hint + 1 for hint in hints), USUAL_MAXIMUM, USUAL_MAXIMUM + 1]
    for size in [*tries, *[None] * 4]:
        middle = (low + high) // 2 if size is None else size
        if low < middle < high:
            is_page = isinstance(asker.page_or_refusal(at, at + 1, first=middle), Page)
            low, high = (middle, high) if is_page else (low, middle)
    asker.size = max(asker.size, min(low, SAMPLE_SIZES[0]))
    return low, high


def sends_large_page(asker: Asker) -> bool:
    """Ask for one page as large as a load's, where it may come short; tell whether it came."""
    page = newest(asker)
    if page.more and page.times and asker.cut_at is None:
        end = max(page.times) + page.grain
        start = max(EARLIEST, end - LONGEST_WINDOW)
        try:
            asker.page(start, end, first=USUAL_MAXIMUM + 1, newest_first=True)
        except errors.TooLargeError:
            return False
    return True


def try_bounds(asker: Asker) -> dict[str, str]:
    """Return how each bound of a range is read, tried on a row that has older and newer ones."""
    times = sorted(set(rows(asker).times))
    at = times[len(times) // 2]
    after = asker.page(at, at + 1, first=1).times
    before = asker.page(at - 1, at, first=1, newest_first=True).times
    later = asker.page(at + 1, at + 2, first=1).times if at in before else []
    start = "inclusive" if at in after else "exclusive"
    end = "inclusive" if at in before else "exclusive"
    if min([at, *after]) < at or min([at, *before]) < at - 1 or min([at + 1, *later]) <= at:
        start = "ignored"
    if max([at, *before]) > at or max([at, *after]) > at + 1:
        end = "ignored"
    return {"start": start, "end": end}


def try_filter(asker: Asker, parameter: str, field: str, text: str) -> str:
    """Return what a filter does in the stretch, all rows of which are known."""
    start, end, whole = stretch(asker)
    page = asker.page_or_refusal(start, end, first=asker.size, also=[(parameter, text)])
    if not isinstance(page, Page):
        return "refused"
    if any(node.get(field) != text for node in page.nodes):
        return "ignored"
    pairs = zip(whole.keys, whole.nodes, strict=True)
    wanted = {key for key, node in pairs if node.get(field) == text}
    return "honoured" if wanted <= set(page.keys) else "too narrow"
