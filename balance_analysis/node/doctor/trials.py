"""What is tried on rows of a node that are known: sizes, cursors, bounds and filters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import TooLargeError
from balance_analysis.node.doctor.probe import SAMPLE_SIZES, Page, Probe
from balance_analysis.node.walk import LARGEST_PAGE, USUAL_MAXIMUM
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW

if TYPE_CHECKING:
    from balance_analysis.node.wire import Parameters

_CURSOR_PAGES: Final = 8


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


def follow_cursors(probe: Probe, size: int) -> tuple[list[tuple[str, ...]], bool]:
    """Return the rows that cursors lead to in the stretch, and whether they led to its end."""
    start, end, whole = probe.stretch()
    found: list[tuple[str, ...]] = []
    also: Parameters = []
    seen = {""}
    for _ in range(_CURSOR_PAGES + 1):
        page = probe.page(start, end, first=size, also=also)
        found += page.keys
        if not page.more or page.end_cursor in seen:
            return found, True
        also = [("pagination.after", page.end_cursor)]
        seen.add(page.end_cursor)
        if whole.more and len(found) >= len(whole.nodes):
            break
    return found, False


def page_limits(probe: Probe) -> tuple[int, int | None]:
    """Return the largest page size found to be accepted, and the smallest found to be refused.

    They are asked for where there is hardly a row to send: what is judged is the number alone.
    """
    at = max(probe.newest().times or [probe.head[0] or EARLIEST])
    refusal = probe.page_or_refusal(at, at + 1, first=LARGEST_PAGE)
    if isinstance(refusal, Page):
        probe.size = SAMPLE_SIZES[0]
        return LARGEST_PAGE, None
    low, high = (probe.size if probe.newest().edges else 0), LARGEST_PAGE
    hints = [int(text) for text in re.findall(r"\d{1,7}", str(refusal).rpartition(": ")[2])][-1:]
    tries = [*hints, *(hint + 1 for hint in hints), USUAL_MAXIMUM, USUAL_MAXIMUM + 1]
    for size in [*tries, *[None] * 4]:
        middle = (low + high) // 2 if size is None else size
        if low < middle < high:
            is_page = isinstance(probe.page_or_refusal(at, at + 1, first=middle), Page)
            low, high = (middle, high) if is_page else (low, middle)
    probe.size = max(probe.size, min(low, SAMPLE_SIZES[0]))
    return low, high


def sends_large_page(probe: Probe) -> bool:
    """Ask for one page as large as a load's, where it may come short; tell whether it came."""
    page = probe.newest()
    if page.more and page.times and probe.cut_at is None:
        end = max(page.times) + page.grain
        start = max(EARLIEST, end - LONGEST_WINDOW)
        try:
            probe.page(start, end, first=USUAL_MAXIMUM + 1, newest_first=True)
        except TooLargeError:
            return False
    return True


def try_bounds(probe: Probe) -> dict[str, str]:
    """Return how each bound of a range is read, tried on a row that has older and newer ones."""
    times = sorted(set(probe.rows().times))
    at = times[len(times) // 2]
    after = probe.page(at, at + 1, first=1).times
    before = probe.page(at - 1, at, first=1, newest_first=True).times
    later = probe.page(at + 1, at + 2, first=1).times if at in before else []
    start = "inclusive" if at in after else "exclusive"
    end = "inclusive" if at in before else "exclusive"
    if min([at, *after]) < at or min([at, *before]) < at - 1 or min([at + 1, *later]) <= at:
        start = "ignored"
    if max([at, *before]) > at or max([at, *after]) > at + 1:
        end = "ignored"
    return {"start": start, "end": end}


def try_filter(probe: Probe, parameter: str, field: str, text: str) -> str:
    """Return what a filter does in the stretch, all rows of which are known."""
    start, end, whole = probe.stretch()
    page = probe.page_or_refusal(start, end, first=probe.size, also=[(parameter, text)])
    if not isinstance(page, Page):
        return "refused"
    if any(node.get(field) != text for node in page.nodes):
        return "ignored"
    pairs = zip(whole.keys, whole.nodes, strict=True)
    wanted = {key for key, node in pairs if node.get(field) == text}
    return "honoured" if wanted <= set(page.keys) else "too narrow"
