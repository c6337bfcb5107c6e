"""Moments and intervals of time: read them, write them as text, cut and join intervals.

A span is half-open and in microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

Span = tuple[int, int]
EVER: Final = (-(1 << 62), 1 << 62)
"""An interval that contains every moment."""

Interval = tuple[dt.datetime, dt.datetime]
"""A span as datetimes in UTC."""

_Moment = TypeVar("_Moment", int, dt.datetime)
DAY: Final = 86_400_000_000
"""A day, in microseconds."""

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_AGO: Final = re.compile(r"(?:now-)?(\d+[smhdw])|now", re.ASCII)
_NANOSECONDS: Final = re.compile(r"([.,]\d{6})(\d+)", re.ASCII)
_NO_SECONDS: Final = re.compile(r"(?<=T\d\d:\d\d):00$")
_DURATION: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_LETTERS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Moment = dt.datetime | dt.date | str
"""A moment: a datetime, a date (its midnight), ISO 8601 text, or text that counts back from now.

Without a time zone it is UTC. "7d" is seven days ago, "now-1h" an hour ago, and "now" is now. Both
bounds of an interval count back from the same now; each call takes a new one.
"""

Duration = dt.timedelta | str
"""A length of time: a timedelta, or text such as "90s", "10m", "2h", "7d" or "1w"."""


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


def gaps_in(spans: Iterable[Span], start: int, end: int) -> list[Span]:
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


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the parts of spans that other spans don't cover."""
    others = joined(others)
    return [part for span in spans for part in gaps_in(others, *span)]


def bounds_of(spans: Sequence[Span]) -> Span:
    """Return the first start and the last end of spans in time order; 0, 0 if there are none."""
    return (spans[0][0], spans[-1][1]) if spans else (0, 0)


def to_bounds(
    start: Moment | None, end: Moment | None, *, zone: dt.tzinfo = dt.UTC
) -> tuple[int | None, int | None]:
    """Return an interval's bounds as `to_microseconds` does; `None` if a bound isn't given."""
    now = dt.datetime.now(dt.UTC)
    begin = None if start is None else to_microseconds(start, zone=zone, now=now)
    return begin, None if end is None else to_microseconds(end, zone=zone, now=now)


def to_microseconds(
    value: Moment, *, zone: dt.tzinfo = dt.UTC, now: dt.datetime | None = None, down: bool = False
) -> int:
    """Return a moment as microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    value
        A moment; pandas' and numpy's datetimes are accepted. A fraction of a microsecond is rounded
        up: rows have whole microseconds, so the rows in [start, end) stay the same.
    zone
        The time zone of a moment without one. A local time that occurs twice means the first; a
        skipped one is read as if the clocks hadn't been put forward.
    now
        The moment from which text counts back; by default the current time.
    down
        Whether to round a fraction of a microsecond down, as for balances held at a moment.

    Raises
    ------
    TypeError
        If `value` has another type.
    ValueError
        If text isn't a moment, or `value` is NaT or not in the years 1 to 9999 of UTC.
    """
    if isinstance(value, str):
        moment, has_fraction = _parse(value, now or dt.datetime.now(dt.UTC))
    elif isinstance(value, dt.datetime):
        moment, has_fraction = _to_datetime(value)
    elif type(value).__name__ == "datetime64":  # compared by name, to avoid importing numpy
        from pandas import Timestamp  # noqa: PLC0415 - heavy

        moment, has_fraction = _to_datetime(Timestamp(value))
    elif isinstance(value, dt.date):
        moment, has_fraction = dt.datetime.combine(value, dt.time()), False
    else:
        raise TypeError(f"a moment is a datetime, a date or text, not {value!r}")
    aware = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    microseconds = (aware - EPOCH) // dt.timedelta(microseconds=1) + (has_fraction and not down)
    try:
        from_microseconds(microseconds)
    except OverflowError as error:
        raise ValueError(f"{value!r} is not in the years 1 to 9999 of UTC") from error
    return microseconds


def _parse(text: str, now: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a text's moment, and whether its digits after the microseconds are not all 0."""
    ago, fraction = _AGO.fullmatch(text), _NANOSECONDS.search(text)
    length = to_duration(ago[1] or "0s") if ago else None
    try:
        if length is not None:
            return now - length, False
        day, *time = re.split("[Tt ]", text, maxsplit=1)
        # datetime.fromisoformat takes any character after the day.
        moment = dt.datetime.combine(dt.date.fromisoformat(day), dt.time())
        if time:
            moment = dt.datetime.fromisoformat(_NANOSECONDS.sub(r"\1", text))
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long ago") from error
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a moment; write ISO 8601 such as 2023-04-01T12:00:00Z, or count back "
            "from now: now, now-1h or 7d"
        ) from error
    return moment, fraction is not None and fraction[2].strip("0") != ""


def _to_datetime(moment: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a moment, which may be pandas', as a datetime, and whether it had nanoseconds."""
    if moment != moment:  # noqa: PLR0124 - NaT differs from itself
        raise ValueError("a moment must not be NaT")
    if not hasattr(moment, "nanosecond"):
        return moment, False
    return moment.to_pydatetime(warn=False), moment.nanosecond > 0  # type: ignore[attr-defined]


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return microseconds since 1970-01-01 UTC as a datetime."""
    return EPOCH + dt.timedelta(microseconds=microseconds)


def to_intervals(spans: Iterable[Span]) -> tuple[Interval, ...]:
    """Return spans of microseconds as spans of datetimes, in UTC."""
    return tuple((from_microseconds(start), from_microseconds(end)) for start, end in spans)


def to_spans(intervals: Iterable[Interval]) -> list[Span]:
    """Return spans of datetimes as spans of microseconds."""
    return [(to_microseconds(start), to_microseconds(end)) for start, end in intervals]


def to_duration(duration: Duration) -> dt.timedelta:
    """Return a duration as a timedelta.

    Raises
    ------
    ValueError
        If text isn't a duration, or the duration is too long.
    TypeError
        If `duration` is neither text nor a timedelta.
    """
    if isinstance(duration, dt.timedelta):
        return duration
    if not isinstance(duration, str):
        raise TypeError(f"a duration is text such as '90s', or a timedelta, not {duration!r}")
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise ValueError(f"{duration!r} is not a duration; write 90s, 10m, 2h or 7d")
    try:
        return dt.timedelta(**{_LETTERS[match[2]]: int(match[1])})
    except OverflowError as error:
        raise ValueError(f"{duration!r} is too long") from error


def to_utc(moment: dt.datetime) -> dt.datetime:
    """Return a moment in UTC; one without a time zone is taken as UTC."""
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def iso_text(microseconds: int, timespec: str = "auto") -> str:
    """Return a moment as ISO 8601 in UTC, for programs.

    Examples
    --------
    >>> iso_text(1_680_307_200_000_000)
    '2023-04-01T00:00:00+00:00'
    """
    return (EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(timespec=timespec)


def moment_text(moment: dt.datetime | int, timespec: str = "auto") -> str:
    """Return a moment as ISO 8601 text in UTC, without seconds where they are 0.

    Examples
    --------
    >>> moment_text(1_680_307_200_000_000), moment_text(1_680_307_201_500_000, "seconds")
    ('2023-04-01T00:00Z', '2023-04-01T00:00:01Z')
    """
    if isinstance(moment, int):
        moment = EPOCH + dt.timedelta(microseconds=moment)
    text = to_utc(moment).replace(tzinfo=None).isoformat(timespec=timespec)
    return _NO_SECONDS.sub("", text) + "Z"


def range_text(start: dt.datetime | int, end: dt.datetime | int) -> str:
    """Return an interval as readable text.

    Examples
    --------
    >>> range_text(1_680_307_200_000_000, 1_680_393_600_000_000)
    '2023-04-01T00:00Z to 2023-04-02T00:00Z'
    """
    return f"{moment_text(start)} to {moment_text(end)}"
