"""Known intervals: the stretches of time in which a table has every change of its accounts.

Rows alone don't say what they leave out. A load notes what each node that answered could know,
files and archives keep it, `attrs` carry it through selections of rows, and whatever computes or
draws goes by it: in a stretch that is not known, a balance may have changed without a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.schema import ATTRS_KEY, Instant, to_microseconds
from balance_analysis.spans import Span, between, joined
from balance_analysis.text import iso_text

if TYPE_CHECKING:
    import pandas as pd


KNOWN_KEY: Final = "known"
"""Where `attrs[ATTRS_KEY]` has the known intervals: [start, end) as ISO 8601 in UTC, ascending."""

NOTHING_BEFORE_KEY: Final = "nothing_before"
"""Where it says that no account held anything before the table's first known interval."""

Known = tuple["Span", ...]
"""Known intervals, half-open, in microseconds, ascending; none touches the next."""


class _Shared(list[list[str]]):
    """What attrs have as a list, of which pandas' copies of attrs, one an operation, are one."""

    def __deepcopy__(self, _: object) -> _Shared:
        return self

    def __reduce__(self) -> tuple[type, tuple[list[list[str]]]]:
        return list, ([*self],)


Stated = Iterable[tuple[Instant, Instant]]
"""Known intervals as a caller states them: pairs of a start and an end."""


def to_known(intervals: Stated) -> Known:
    """Return intervals [start, end) that somebody states as known ones.

    Raises
    ------
    ValueError, TypeError
        If one is no pair of moments, or its start is not before its end.
    """
    spans = []
    for interval in intervals:
        if isinstance(interval, str) or len(interval) != 2:  # noqa: PLR2004 - a pair
            raise ValueError(f"known must be pairs of a start and an end, not {interval!r}")
        start, end = map(to_microseconds, interval)
        if start >= end:
            raise ValueError(f"a known interval must start before its end, but {interval!r}")
        spans.append((start, end))
    return tuple(joined(spans))


def known_of(table: pd.DataFrame) -> Known | None:
    """Return the known intervals that a table's attrs tell; `None` where they don't."""
    return read_known(table.attrs.get(ATTRS_KEY))


def read_known(metadata: object) -> Known | None:
    """Return the known intervals in what a table's attrs or a file tell of its load."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KNOWN_KEY), list):
        return None
    return to_known(metadata[KNOWN_KEY])


def lacking(metadata: Mapping[str, Any]) -> list[Span]:
    """Return what of its interval a load doesn't know, by what is told of it: see `Load`."""
    known = read_known(metadata)
    if known is None:
        return []
    return between(known, to_microseconds(metadata["start"]), to_microseconds(metadata["end"]))


def note_known(table: pd.DataFrame, known: Iterable[Span], *, nothing_before: bool = False) -> None:
    """Note the known intervals in a table's attrs, beside what these tell already.

    `nothing_before` says that no account held anything before the first of them.
    """
    metadata: dict[str, Any] = {**table.attrs.get(ATTRS_KEY, {}), KNOWN_KEY: known_json(known)}
    metadata.pop(NOTHING_BEFORE_KEY, None)
    table.attrs[ATTRS_KEY] = {**metadata, **({NOTHING_BEFORE_KEY: True} if nothing_before else {})}


def has_nothing_before(*frames: pd.DataFrame | None) -> bool:
    """Whether one of frames tells that no account held anything before it."""
    metadata = [getattr(frame, "attrs", {}).get(ATTRS_KEY) for frame in frames]
    return any(isinstance(each, dict) and each.get(NOTHING_BEFORE_KEY) is True for each in metadata)


def known_json(known: Iterable[Span]) -> list[list[str]]:
    """Return known intervals as attrs and Parquet metadata have them: all of it is JSON."""
    return _Shared([*map(iso_text, span)] for span in known)
