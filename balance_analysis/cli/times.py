"""What options say, checked before any work."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(?:now-)?(\d+[smhdw])", re.ASCII)
_DURATION: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)


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
        return now - parse_duration(ago[1])
    return text


def parse_duration(text: str) -> dt.timedelta:
    """Return the duration that a text such as `90s`, `10m`, `2h`, `7d` or `1w` tells.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no duration; write 90s, 10m, 2h or 7d")
    try:
        return dt.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long") from error


def format_duration(duration: dt.timedelta) -> str:
    """Return a duration of whole seconds as `parse_duration` reads it."""
    seconds = round(duration.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
