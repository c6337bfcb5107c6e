"""Moments, counts, durations, ids and addresses as text, for messages, reports and files."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

from balance_analysis.table.spans import Moments, Span

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_USER: Final = re.compile(r"(?<=://)[^/\s?#]*@")
_PARAMETER: Final = re.compile(
    r"(?<=[?&])([^=&\s]*(?:secret|token|password|credential|signature|key)[^=&\s]*)=[^&\s\"']*",
    re.IGNORECASE,
)
LONG_ID: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_NO_SECONDS: Final = re.compile(r"(?<=T\d\d:\d\d):00$")
_DURATION: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_LETTERS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_UNITS: Final = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


def iso_text(microseconds: int, timespec: str = "auto") -> str:
    """Return a moment as ISO 8601 in UTC, for programs.

    Examples
    --------
    >>> iso_text(1_680_307_200_000_000)
    '2023-04-01T00:00:00+00:00'
    """
    return (EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(timespec=timespec)


def exact_text(microseconds: int) -> str:
    """Return a moment as an archive's files write it: ISO 8601, always with six decimals."""
    return iso_text(microseconds, timespec="microseconds")


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


def spans_text(spans: Sequence[Span | Moments]) -> str:
    """Return spans as readable text: the first few, and the number of others."""
    return list_text([range_text(*span) for span in spans], rest="and {} more")


def to_utc(moment: dt.datetime) -> dt.datetime:
    """Return a moment in UTC; one without a time zone is taken as UTC."""
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def count_text(number: int, what: str) -> str:
    """Return a number with its noun, in the plural if need be.

    Examples
    --------
    >>> count_text(1, "new row"), count_text(63_381, "new row")
    ('1 new row', '63,381 new rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def list_text(
    texts: Sequence[str], most: int = 3, *, sep: str = ", ", rest: str = "{} more"
) -> str:
    """Return the first few texts, and the number of others.

    Examples
    --------
    >>> list_text(["a", "b", "c", "d"], 2)
    'a, b, 2 more'
    """
    more = len(texts) - most
    return sep.join([*texts[:most], *[rest.format(more)] * (more > 0)])


def decimal_text(number: Decimal) -> str:
    """Return a number with all of its digits, without an exponent or trailing zeros.

    Examples
    --------
    >>> decimal_text(Decimal("0E-18")), decimal_text(Decimal("-1.50"))
    ('0', '-1.5')
    """
    whole, _, decimals = f"{number:f}".partition(".")
    return f"{whole}.{decimals}".rstrip("0").rstrip(".") if decimals else whole


def printable(text: str) -> str:
    r"""Return a text with its control and other unprintable characters escaped.

    Texts and ids come from nodes. The result means the same in JSON.

    Examples
    --------
    >>> print(printable("a\u001bb"))
    a\u001bb
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"  # noqa: PLR2004


def clipped(text: str, most: int) -> str:
    """Return a text, cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


Duration = dt.timedelta | str
"""A length of time: a timedelta, or text such as "90s", "10m", "2h", "7d" or "1w"."""


def to_duration(duration: Duration) -> dt.timedelta:
    """Return a duration as a timedelta.

    Raises
    ------
    ValueError
        If text isn't a duration, or is too long a time.
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


def duration_text(length: dt.timedelta) -> str:
    """Return a length of time in words, rounded to its two largest units.

    Examples
    --------
    >>> duration_text(dt.timedelta(hours=25, seconds=3))
    '1 day 1 hour'
    """
    seconds, parts = length.total_seconds(), []
    if seconds < 1:
        return "less than a second"
    for (_, larger), (_, smaller) in pairwise(_UNITS):
        rounded = round(seconds / smaller) * smaller
        if rounded >= larger:
            seconds = rounded
            break
    for unit, size in _UNITS:
        count, seconds = divmod(int(seconds), size)
        parts += [count_text(count, unit)] * (count > 0)
    return " ".join(parts[:2])


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return a unique short form of each id.

    Parameters
    ----------
    ids
        Ids of parties, markets or assets; they may repeat.

    Returns
    -------
    dict
        {id: short form}. A long id keeps its first six and last four characters, or more if two ids
        would look the same. A short id, such as `network` or `VOTE`, stays whole. No two ids have
        the same short form.

    Examples
    --------
    >>> short_ids(["c2071f9874933829eb432b1af0d776b5", "network"])
    {'c2071f9874933829eb432b1af0d776b5': 'c2071f…76b5', 'network': 'network'}
    """
    distinct, labels, extra = dict.fromkeys(ids), dict[str, str](), 0
    while left := distinct.keys() - labels.keys():
        forms = {full: _cut(full, extra) for full in left}
        # All earlier labels are shorter, so new forms can only collide with each other.
        uses = Counter(forms.values())
        labels |= {full: short for full, short in forms.items() if uses[short] == 1}
        extra += 2
    return {full: labels[full] for full in distinct}


def _cut(full: str, extra: int) -> str:
    head, tail = 6 + extra, 4 + extra
    return full if len(full) <= head + 1 + tail else f"{full[:head]}…{full[-tail:]}"


def type_label(account_type: str) -> str:
    """Return an account type as words.

    Examples
    --------
    >>> type_label("ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES"), type_label("77")
    ('reward maker paid fees', '77')
    """
    return account_type.removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()


def without_credentials(text: str) -> str:
    """Return text with `***` in place of users in addresses and of parameters that look secret.

    Examples
    --------
    >>> without_credentials("https://me:secret@node.example.org/x")
    'https://***@node.example.org/x'
    """
    return _PARAMETER.sub(r"\1=***", _USER.sub("***@", text))
