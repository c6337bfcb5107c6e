"""How much an export will be, by a few pages of the node."""

from __future__ import annotations

import datetime as dt
import math
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import balance_analysis as ba
from balance_analysis.load.nodes import FRESH
from balance_analysis.text import count_text, duration_text, moment_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from balance_analysis.spans import Stretch

_PAGES: Final = 5
"""So many are asked for; more for several years, since nodes answer for one at most."""

_ROWS: Final = 5000
"""Of such a page: the most that nodes send, since a few may be one block's alone."""

_FULL: Final = 0.7
"""How full of rows the pages of a load are, about: rows don't come evenly."""

_YEAR: Final = dt.timedelta(days=365)
_MINUTE: Final = 60


def estimate(
    client: ba.Client,
    spans: Sequence[Stretch],
    filters: Mapping[str, Any],
    *,
    files: int,
    page_size: int,
    workers: int,
    max_requests_per_second: float | None,
) -> str:
    """Return how many rows, requests and seconds it takes to load some spans, in words.

    A few parts are asked for a page each: where it isn't all, the rest is taken to be as dense.
    Before each of the `files` is written, a node is asked what it remembers.
    """
    whole = sum((end - start for start, end in spans), dt.timedelta())
    width = min(whole / _PAGES + dt.timedelta(microseconds=1), _YEAR)
    parts = [
        (start + width * place, min(start + width * (place + 1), end))
        for start, end in spans
        for place in range(-(-(end - start) // width))
    ]
    rows, seconds, is_counted = 0, [], True
    for start, end in parts:
        how: Any = {"start": start, "end": end, "first": _ROWS, "newest_first": False, **filters}
        began = time.perf_counter()
        page = next(ba.iter_pages(client, **how))
        seconds.append(time.perf_counter() - began)
        count = len(page.table)
        if page.has_next_page and count:
            first, last = page.table["timestamp"].iloc[[0, -1]]
            if first == last:
                return (
                    f"How many rows can't be told: {count:,} or more at {moment_text(first)} alone"
                )
            is_counted, count = False, int(count * ((end - start) / (last - start)))
        rows += count
    pages = max(math.ceil(rows / page_size / _FULL), len(spans))
    requests = pages + FRESH * min(files, rows)
    each = statistics.median(seconds) / min(workers, pages)
    took = requests * max(each, 1 / (max_requests_per_second or math.inf))
    time_text = f"{took:.2g} s" if took < _MINUTE else duration_text(dt.timedelta(seconds=took))
    told = count_text(rows if is_counted else _rounded(rows), "row")
    return (
        f"About {told}, {count_text(_rounded(requests), 'request')} and {time_text}: estimated "
        f"from {count_text(len(parts), 'page')} of the node"
    )


def _rounded(number: int) -> int:
    """Return a number with two digits that count."""
    return round(number, 2 - len(str(number)))
