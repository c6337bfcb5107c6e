"""What the archive holds now, and what it can't vouch for of what a request asks.

A side without a bound is taken to end where the archive's coverage does: whoever doesn't say how
far back he wants to go asks for what there is. What may be missing is time that is not covered, or
not proven to be complete, and accounts that the archive doesn't hold.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from balance_analysis.filters import Filters
from balance_analysis.schema import from_microseconds
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.spans import Span, clipped
from balance_analysis.text import list_text

if TYPE_CHECKING:
    from balance_analysis.archive.manifest import ArchiveSpec
    from balance_analysis.archive.scan import File
    from balance_analysis.archive.snapshot import Snapshot
    from balance_analysis.service.parameters import ChangesQuery


SHOWN: Final = 3
"""Stretches that are named; of more, how many."""

_MOST: Final = 50
"""Stretches that a header has room for."""

logger: logging.Logger = logging.getLogger("balance_analysis")


def parts_of(
    snapshot: Snapshot, start: int, end: int, *, descending: bool
) -> Iterator[tuple[File, Span]]:
    """Yield the files that may have rows in the covered parts of [start, end), in time order.

    Each comes with the part of it that is asked for.
    """
    files, step = _files_of(snapshot), -1 if descending else 1
    low = bisect.bisect_right(files, start, key=lambda file: file.stop)
    high = bisect.bisect_left(files, end, key=lambda file: file.begin)
    for file in files[low:high][::step]:
        for begin, stop in clipped(file.spans[::step], start, end):
            if any(note.first < stop and note.last >= begin for note in file.notes):
                yield file, (begin, stop)


@lru_cache(maxsize=4)
def _files_of(snapshot: Snapshot) -> list[File]:
    return snapshot.files()


def block_headers(snapshot: Snapshot) -> dict[str, str]:
    """Return the headers that tell up to where the archive knows, where it does.

    `X-Block-Timestamp` is the end of the coverage in nanoseconds, and `X-Block-Height` the last
    block that the node held which was asked for its last part.
    """
    headers = {}
    for newest in snapshot.coverage.intervals[-1:]:
        headers["X-Block-Timestamp"] = str(newest.end * 1000)
        if newest.block_height is not None:
            headers["X-Block-Height"] = str(newest.block_height)
    return headers


def unavailable(error: Exception | None) -> RefusedError:
    """Return the refusal of a request while the archive can't be read; the log says more."""
    logger.warning("the archive can't be read: %s; verify it", error)
    return RefusedError(
        "the archive that this service reads is not there or can't be read now: ask again later, "
        "or tell who runs the service; its log says more",
        code=Code.UNAVAILABLE,
    )


def headers_of(snapshot: Snapshot, query: ChangesQuery) -> dict[str, str]:
    """Return the headers that tell what may be missing in an answer; none where it is whole.

    `Warning` says it in words. `X-Incomplete` has all stretches of the range that may lack rows,
    or where they are very many, one that holds them all: `0-1000, 5000-6000`, nanoseconds.
    """
    if query.filters is None:
        return {}
    found = [*_times(snapshot, query), *_accounts(snapshot.about, query.filters)]
    if not found:
        return {}
    words = list_text(found, SHOWN, sep="; ", rest="and {} more")
    stretches = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in _incomplete(snapshot, query))
    return {"Warning": f'199 - "{words}"', "X-Incomplete": stretches}


def _incomplete(snapshot: Snapshot, query: ChangesQuery) -> list[Span]:
    start, end = _range(snapshot, query)
    stretches = _without_margin(snapshot.coverage.missing(start, end), start, end)
    if query.filters is not None and any(_accounts(snapshot.about, query.filters)):
        stretches = [(start, end)] if start < end else []
    return stretches if len(stretches) <= _MOST else [(stretches[0][0], stretches[-1][1])]


def _range(snapshot: Snapshot, query: ChangesQuery) -> Span:
    first, last = snapshot.coverage.bounds(proven=False)
    return first if query.start is None else query.start, last if query.end is None else query.end


def _without_margin(stretches: list[Span], start: int, end: int) -> list[Span]:
    """Return stretches without the range's first microsecond, if that is one.

    Careful clients send a bound that lies one before, as some server's start may be exclusive.
    """
    is_margin = start + 1 < end and stretches[:1] == [(start, start + 1)]
    return stretches[1:] if is_margin else stretches


def _times(snapshot: Snapshot, query: ChangesQuery) -> Iterator[str]:
    coverage, (start, end) = snapshot.coverage, _range(snapshot, query)
    if query.start is not None and query.end is not None and start >= end:
        return
    if not coverage.intervals:
        yield "nothing is covered yet"
    elif start >= end:
        first, last = coverage.bounds(proven=False)
        beyond = f"from {_iso(last)} on" if query.end is None else f"before {_iso(first)}"
        yield f"not covered: {beyond}"
    else:
        gaps = coverage.missing(start, end, proven=False)
        unproven = (interval.span for interval in coverage.intervals if not interval.proven)
        doubted = list(clipped(unproven, start, end))
        for words, spans in (("not covered", gaps), ("not known to be complete", doubted)):
            for begin, stop in _without_margin(spans, start, end):
                yield f"{words}: {_iso(begin)} to {_iso(stop)}"


def _accounts(about: ArchiveSpec, filters: Filters) -> Iterator[str]:
    asked = filters.allowed()
    for name, bound in about.filters.allowed().items():
        if not asked.get(name) or not {*asked[name]} <= {*bound}:
            yield f"only accounts of some values of {name} are held"


def _iso(moment: int) -> str:
    return f"{from_microseconds(moment).replace(tzinfo=None).isoformat()}Z"
