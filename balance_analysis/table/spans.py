"""Intervals of time: half-open, in microseconds since 1970-01-01 UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

Span = tuple[int, int]
EVER: Final = (-(1 << 62), 1 << 62)
"""An interval that contains every moment."""

Moments = tuple[dt.datetime, dt.datetime]
"""A span as datetimes in UTC."""

_Moment = TypeVar("_Moment", int, dt.datetime)


def joined(spans: Iterable[tuple[_Moment, _Moment]]) -> list[tuple[_Moment, _Moment]]:
    """Return spans in time order, merging those that touch or overlap."""
    merged: list[tuple[_Moment, _Moment]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def clipped(
    spans: Iterable[tuple[_Moment, _Moment]], start: _Moment, end: _Moment
) -> Iterator[tuple[_Moment, _Moment]]:
    """Yield the parts of spans that lie in [start, end)."""
    for first, last in spans:
        begin, stop = max(start, first), min(end, last)
        if begin < stop:
            yield begin, stop


def between(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """Return the parts of [start, end) that no span covers, in time order."""
    gaps: list[Span] = []
    for first, last in [*joined(spans), (end, end)]:
        if start < min(first, end):
            gaps.append((start, min(first, end)))
        start = max(start, last)
    return gaps


def overlap(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the parts that two lists of spans have in common, in time order."""
    others = joined(others)
    return [part for span in joined(spans) for part in clipped(others, *span)]


def between_all(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the parts of spans that other spans don't cover."""
    others = joined(others)
    return [part for span in spans for part in between(others, *span)]


def bounds_of(spans: Sequence[Span]) -> Span:
    """Return the first start and the last end of spans in time order; 0, 0 if there are none."""
    return (spans[0][0], spans[-1][1]) if spans else (0, 0)
