"""What options say, checked before any work."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(?:now-)?(\d+)([smhdw])", re.ASCII)


def interval(
    since: str | None, until: str | None
) -> tuple[dt.datetime | str | None, dt.datetime | str | None]:
    """Return the bounds of the command line, relative ones resolved against one now."""
    now = dt.datetime.now(dt.UTC)
    start, end = moment(since, now), moment(until, now)
    if start is not None and end is not None:
        from balance_analysis.load.request import bounds

        bounds(start, end)
    return start, end


def moment(text: str | None, now: dt.datetime) -> dt.datetime | str | None:
    """Return the moment that an option tells; one that is not relative as it stands."""
    if text is None:
        return None
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        return now - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    return text


def duration(text: str) -> dt.timedelta:
    """Return the duration that an option tells."""
    from balance_analysis.cli.settings import parse_duration

    return parse_duration(text)
