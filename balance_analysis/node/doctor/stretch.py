"""Find the newest rows, the oldest, and a stretch where they are dense."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import RequestError
from balance_analysis.node.doctor.asking import SAMPLE_SIZES, is_range_refusal, is_refusal
from balance_analysis.node.doctor.page import UNITS, Page
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from balance_analysis.node.doctor.asking import Asker

_STRETCH_ROWS: Final = 60


@dataclass(frozen=True, slots=True)
class Stretch:
    """A few neighbouring blocks, asked for by time and in one page."""

    start: int
    end: int
    page: Page


def find_newest(asker: Asker) -> Page:
    """Return the newest rows, in whatever unit the node reads bounds; empty where there are none.

    They are looked for from the node's last block back, a year at a time: a node may refuse, or
    never answer, a request without a range.
    """
    head = asker.head.block_time if asker.head is not None else None
    if head is None or head < EARLIEST:
        head = time.time_ns() // 1000
    try:
        newest = _first_with_rows(asker, _windows_back(head + 1), newest_first=True)
    except RequestError as error:
        if not is_range_refusal(error):
            raise
        newest, refusal = None, error
    if newest is None or not newest.edges:
        newest = _find_in_other_units(asker, head) or newest
    if newest is None:
        raise refusal
    return newest


def _find_in_other_units(asker: Asker, head: int) -> Page | None:
    """Return the last year's newest rows from a node that doesn't read bounds in nanoseconds."""
    for scale in list(UNITS.values())[1:]:
        asker.scale = scale
        try:
            page = _sample(asker, head - LONGEST_WINDOW, head + 1, newest_first=True)
        except RequestError as error:
            if not is_range_refusal(error):
                raise
        else:
            if page.edges:
                return page
    asker.scale = 1
    return None


def find_oldest(asker: Asker, newest: Page) -> Page:
    """Return the oldest rows, looked for up to the newest, a year at a time."""
    last = max(newest.times)
    windows = [
        (start, min(start + LONGEST_WINDOW, last + newest.grain))
        for start in range(EARLIEST, last + 1, LONGEST_WINDOW)
    ]
    return _first_with_rows(asker, windows, newest_first=False)


def _windows_back(end: int) -> Iterator[tuple[int, int]]:
    while end > EARLIEST:
        yield max(EARLIEST, end - LONGEST_WINDOW), end
        end -= LONGEST_WINDOW


def _first_with_rows(
    asker: Asker, windows: Iterable[tuple[int, int]], *, newest_first: bool
) -> Page:
    """Return the first page that has rows; an empty one where none has."""
    page = Page([], [], frozenset(), 0, (), more=False, end_cursor="")
    for start, end in windows:
        page = _sample(asker, start, end, newest_first=newest_first)
        if page.edges:
            return page
    return page


def _sample(asker: Asker, start: int, end: int, *, newest_first: bool) -> Page:
    """Return one page, of fewer rows where the node refuses so many."""
    sizes = [size for size in SAMPLE_SIZES if size <= asker.size]
    for size in sizes:
        try:
            page = asker.page(start, end, first=size, newest_first=newest_first)
        except RequestError as error:
            if not is_refusal(error) or size == sizes[-1]:
                raise
        else:
            asker.size = size
            return page
    raise AssertionError("unreachable")


def find_stretch(asker: Asker, pages: list[Page]) -> Stretch:
    """Ask for the densest few neighbouring blocks of these pages."""
    start, end = max(map(_densest, pages))[2:]
    # From a microsecond before, so that a start that is exclusive leaves nothing out.
    start -= pages[0].grain
    return Stretch(start, end, asker.page(start, end, first=asker.size))


def _densest(page: Page) -> tuple[int, int, int, int]:
    """Return the bounds of the densest stretch, behind how dense and how large it is.

    Dense is where neighbouring rows often have one time. The last block of a page may be cut, so it
    counts only where there is no other.
    """
    blocks = list(Counter(page.times).items())
    if page.more and len(blocks) > 1:
        blocks.pop()
    blocks.sort()
    best = (-1, 0, 0, 0)
    for first in range(len(blocks)):
        rows = 0
        for last, (moment, count) in enumerate(blocks[first:], 1):
            rows += count
            if rows > _STRETCH_ROWS and last > 1:
                break
            best = max(best, (rows - last, rows, blocks[first][0], moment + page.grain))
    return best
