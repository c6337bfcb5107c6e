"""How a node pages: what its cursors lose, and how large a page may be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import IncompleteError, RequestError, TooLargeError
from balance_analysis.node.block import LARGEST_PAGE, USUAL_MAXIMUM
from balance_analysis.node.doctor.asking import SAMPLE_SIZES, is_refusal
from balance_analysis.node.doctor.page import row_key
from balance_analysis.node.doctor.wording import counted, how_often, moment
from balance_analysis.node.window import EARLIEST, LONGEST_WINDOW
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    from balance_analysis.node.doctor.asking import Asker
    from balance_analysis.node.doctor.report import Said
    from balance_analysis.node.doctor.seen import Seen
    from balance_analysis.node.doctor.stretch import Stretch

_CURSOR_PAGES: Final = 8


def judge_cursors(seen: Seen) -> Said:
    """Tell whether following the cursors gives every row once."""
    stretch = seen.stretch()
    nodes = stretch.page.nodes
    if len(nodes) < 2:  # noqa: PLR2004 - a page, and one to go on to
        raise IncompleteError("the node sent too few rows to follow a cursor")
    size, cuts = _cutting_size(stretch.page.times)
    found, is_whole = _follow_cursors(seen.asker, stretch, size)
    expected = [row_key(node) for node in nodes]
    reach = len(expected)
    if not is_whole:
        reach = max((i for i, key in enumerate(expected, 1) if key in set(found)), default=reach)
    lost = len(set(expected[:reach]) - set(found))
    twice = len(found) - len(set(found))
    value = {
        "rows": reach,
        "lost": lost,
        "twice": twice,
        "page_size": size,
        "cuts": cuts,
        "start": from_microseconds(stretch.start).isoformat(),
        "end": from_microseconds(stretch.end).isoformat(),
    }
    of = f"the {reach:,} rows that it sends when asked by time ({moment(stretch.page.times[0])})"
    said = f"Following its cursors, {counted(size, 'row')} a page,"
    if lost or twice:
        what = [f"silently loses {lost:,}"] * bool(lost) + [f"repeats {twice:,}"] * bool(twice)
        text = (
            f"{said} {' and '.join(what)} of {of}: never follow them; load_balance_changes walks "
            "by time instead."
        )
        return value, "warning", text
    if not cuts:
        text = (
            f"{said} gives all of {of}, but no page ended inside a block, where nodes are known to "
            "lose rows."
        )
        return value, "unknown", text
    return value, "ok", f"{said} gives all of {of}; {how_often(cuts)} a page ended inside a block."


def _cutting_size(times: list[int]) -> tuple[int, int]:
    """Return the page size whose pages end inside a block most often, and how often that is.

    Of several, it is the smallest that reaches furthest, since full pages show most.
    """
    counts = {
        size: sum(
            times[i - 1] == times[i]
            for i in range(size, min(len(times), _CURSOR_PAGES * size + 1), size)
        )
        for size in range(1, len(times))
    }
    size = max(
        counts, key=lambda size: (counts[size], min(_CURSOR_PAGES * size, len(times)), -size)
    )
    return size, counts[size]


def _follow_cursors(
    asker: Asker, stretch: Stretch, size: int
) -> tuple[list[tuple[str, ...]], bool]:
    """Return the rows that cursors lead to, and whether they led to the end."""
    found: list[tuple[str, ...]] = []
    after, seen = None, {""}
    for _ in range(_CURSOR_PAGES + 1):
        page = asker.page(stretch.start, stretch.end, first=size, after=after)
        found += map(row_key, page.nodes)
        if not page.more or page.end_cursor in seen:
            return found, True
        after = page.end_cursor
        seen.add(after)
        if stretch.page.more and len(found) >= len(stretch.page.nodes):
            break
    return found, False


def judge_page_size(seen: Seen) -> Said:
    """Tell how many rows a page may have, and whether it comes cut."""
    asker = seen.asker
    accepted, refused = _page_bounds(seen)
    asker.size = max(asker.size, min(accepted, SAMPLE_SIZES[0]))
    is_too_large = refused is None and not _provoke_cut(seen)
    value = {
        "accepted": accepted,
        "refused": refused,
        "cut_at": asker.cut_at,
        "too_large": USUAL_MAXIMUM + 1 if is_too_large else None,
        "most_rows_sent": max((page.edges for page in asker.pages), default=0),
    }
    if asker.cut_at is not None:
        text = (
            f"It accepts {accepted:,} rows a page but sends at most {asker.cut_at:,} without a "
            "word: a page that is not full is not the last."
        )
        return value, "warning", text
    if is_too_large:
        text = (
            f"Any number of rows a page is accepted, but {USUAL_MAXIMUM + 1:,} rows are more than "
            "it can send: a load comes down to what it can."
        )
        return value, "note", text
    if refused is None:
        return value, "ok", f"There is no maximum: even {accepted:,} rows a page are accepted."
    said = f"Pages of {accepted:,} rows are accepted, of {refused:,} refused"
    if accepted < USUAL_MAXIMUM:
        return value, "note", f"{said}: a load comes down to that, and needs more requests."
    return value, "ok", f"{said}."


def _page_bounds(seen: Seen) -> tuple[int, int | None]:
    """Return the largest page size found to be accepted, and the smallest found to be refused.

    They are asked for where there is hardly a row to send: what is judged is the number alone.
    """
    head = seen.asker.head
    times = seen.newest().times or [head.block_time or EARLIEST if head else EARLIEST]
    window = max(times), max(times) + 1

    def refusal(size: int) -> RequestError | None:
        try:
            seen.asker.page(*window, first=size)
        except RequestError as error:
            if not is_refusal(error):
                raise
            return error
        return None

    error = refusal(LARGEST_PAGE)
    if error is None:
        return LARGEST_PAGE, None
    low, high = (seen.asker.size if seen.newest().edges else 0), LARGEST_PAGE
    hints = [int(text) for text in re.findall(r"\d{1,7}", str(error).rpartition(": ")[2])]
    tries = [*hints[-1:], *(hint + 1 for hint in hints[-1:]), USUAL_MAXIMUM, USUAL_MAXIMUM + 1]
    for size in [*tries, *[None] * 4]:
        middle = (low + high) // 2 if size is None else size
        if low < middle < high:
            low, high = (low, middle) if refusal(middle) else (middle, high)
    return low, high


def _provoke_cut(seen: Seen) -> bool:
    """Ask for one page as large as a load's, where it may come short; tell whether it came."""
    page = seen.newest()
    if page.more and seen.asker.cut_at is None:
        end = max(page.times) + page.grain
        start = max(EARLIEST, end - LONGEST_WINDOW)
        try:
            seen.asker.page(start, end, first=USUAL_MAXIMUM + 1, newest_first=True)
        except TooLargeError:
            return False
    return True
