"""Words for what was found: times, counts, lists, and what a node says itself."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN: Final = 6


def moment(microseconds: int) -> str:
    """Return a time, to the second."""
    return f"{from_microseconds(microseconds):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Return a length of time in the largest unit of which there are two."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, word: str) -> str:
    """Return how many of something there are."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def how_often(count: int) -> str:
    """Return how many times something happened."""
    return "once" if count == 1 else f"{count:,} times"


def listed(words: list[str]) -> str:
    """Return words as a sentence lists them."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def some(values: Iterable[object]) -> str:
    """Return the first few of names that a node made up."""
    texts = [textwrap.shorten(printable(str(value)), 60, placeholder="...") for value in values]
    shown, rest = texts[:_SHOWN], len(texts) - _SHOWN
    return ", ".join([*shown, *([f"{rest} more"] if rest > 0 else [])])


def sentence(text: str) -> str:
    """Return an error's words as a sentence; an address stays as it is."""
    said = printable(text).rstrip(".")
    return f"{said if '://' in said[:8] else said[:1].upper() + said[1:]}."


def printable(text: str) -> str:
    """Return a node's words on one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
