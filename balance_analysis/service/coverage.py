"""What an archive can't vouch for of what a request asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from balance_analysis.schema import from_microseconds
from balance_analysis.spans import clipped
from balance_analysis.text import list_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.service.catalog import Held
    from balance_analysis.service.parameters import Filters
    from balance_analysis.service.row_groups import Allowed
    from balance_analysis.spans import Span

SHOWN: Final = 3
"""Stretches that are named; of more, how many."""

_MOST: Final = 50
"""Stretches that a header has room for."""


def missing(held: Held, filters: Filters, allowed: Allowed | None) -> str | None:
    """Return in words what may be missing in an answer; `None` where it is whole.

    A side without a bound is taken to end where the archive's coverage does: whoever doesn't say
    how far back he wants to go asks for what there is. What may be missing is time that is not
    covered, or not proven to be complete, and accounts that the archive doesn't hold.

    Parameters
    ----------
    held
        The archive.
    filters
        What is asked for.
    allowed
        The ids in it; `None` where no row can be meant.
    """
    if allowed is None:
        return None
    found = [*_times(held.coverage, filters.start, filters.end), *_accounts(held, allowed)]
    return list_text(found, SHOWN, sep="; ", rest="and {} more") or None


def incomplete(held: Held, filters: Filters, allowed: Allowed | None) -> list[Span]:
    """Return the same for programs: all stretches of the range that may lack rows, microseconds.

    Where there are very many, one stretch that holds them all. A range without a bound ends where
    the coverage does, as for people.
    """
    if allowed is None:
        return []
    start, end = _range(held.coverage, filters.start, filters.end)
    stretches = _without_margin(held.coverage.missing(start, end), start, end)
    if any(_accounts(held, allowed)):
        stretches = [(start, end)] if start < end else []
    return stretches if len(stretches) <= _MOST else [(stretches[0][0], stretches[-1][1])]


def _range(coverage: Coverage, start: int | None, end: int | None) -> Span:
    first, last = coverage.bounds(proven=False)
    return first if start is None else start, last if end is None else end


def _without_margin(stretches: list[Span], start: int, end: int) -> list[Span]:
    """Return stretches without the range's first microsecond, if that is one.

    Careful clients send a bound that lies one before, as some server's start may be exclusive.
    """
    is_margin = start + 1 < end and stretches[:1] == [(start, start + 1)]
    return stretches[1:] if is_margin else stretches


def _times(coverage: Coverage, start: int | None, end: int | None) -> Iterator[str]:
    intervals = coverage.intervals
    if start is not None and end is not None and start >= end:
        return
    if not intervals:
        yield "nothing is covered yet"
    elif end is None and start is not None and start >= intervals[-1].end:
        yield f"not covered: from {_iso(intervals[-1].end)} on"
    elif start is None and end is not None and end <= intervals[0].start:
        yield f"not covered: before {_iso(intervals[0].start)}"
    else:
        first, last = _range(coverage, start, end)
        gaps = _without_margin(coverage.missing(first, last, proven=False), first, last)
        yield from (f"not covered: {_iso(begin)} to {_iso(stop)}" for begin, stop in gaps)
        unproven = (interval.span for interval in intervals if not interval.proven)
        doubted = list(clipped(unproven, first, last))
        for begin, stop in _without_margin(doubted, first, last):
            yield f"not known to be complete: {_iso(begin)} to {_iso(stop)}"


def _accounts(held: Held, allowed: Allowed) -> Iterator[str]:
    for name, bound in held.about.filters.allowed().items():
        asked = allowed.get(name)
        if asked is None or not {value.lower() for value in asked} <= {*map(str.lower, bound)}:
            yield f"only accounts of some values of {name} are held"


def _iso(moment: int) -> str:
    return f"{from_microseconds(moment).replace(tzinfo=None).isoformat()}Z"
