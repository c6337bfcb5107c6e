"""Moments as tests count them: in whole microseconds since 1970, which no time zone touches."""

import datetime as dt

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def from_microseconds(count):
    """Return the moment that is some microseconds after 1970-01-01, in UTC."""
    return EPOCH + dt.timedelta(microseconds=count)


def between(start, end):
    """Return [start, end), in microseconds, as the bounds that functions take."""
    return {"start": from_microseconds(start), "end": from_microseconds(end)}


def to_microseconds(moment):
    """Return a datetime or ISO 8601 text as microseconds; without a time zone it is UTC."""
    given = dt.datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    aware = given if given.tzinfo else given.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(microseconds=1)


def both(one, other):
    """Return where two lists of spans overlap."""
    there = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return sorted(span for span in there if span[0] < span[1])


def uncovered(spans, start, end):
    """Return the parts of [start, end) that no span covers."""
    there = []
    for first, last in [*sorted(spans), (end, end)]:
        if start < min(first, end):
            there.append((start, min(first, end)))
        start = max(start, last)
    return there


def moment_text(count):
    """Return microseconds as in messages: seconds only if they aren't 0."""
    return from_microseconds(count).replace(tzinfo=None).isoformat().removesuffix(":00") + "Z"


def range_text(start, end):
    """Return [start, end), in microseconds, as messages write it."""
    return f"{moment_text(start)} to {moment_text(end)}"
