"""One page as a node sent it, read so that what is wrong with it can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from balance_analysis.node.decode import FIRST_NANOSECOND, LAST_NANOSECOND, decode_page
from balance_analysis.schema import ACCOUNT_KEY, FIELD_NAMES

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page, its rows as plain JSON objects.

    Attributes
    ----------
    nodes
        The rows whose time can be read, in any unit.
    nanoseconds
        Their times.
    units
        The units in which these came.
    edges
        How many rows there were.
    bad
        What is wrong with those that the table can't hold.
    more
        Whether the node announces another page.
    """

    nodes: list[Node]
    nanoseconds: list[int]
    units: frozenset[str]
    edges: int
    bad: tuple[str, ...]
    more: bool
    end_cursor: str

    @property
    def times(self) -> list[int]:
        """Microseconds of each of the nodes."""
        return [moment // 1000 for moment in self.nanoseconds]

    @property
    def grain(self) -> int:
        """How many microseconds the rows' own unit is, at least 1."""
        return max([1, *(UNITS[unit] // 1000 for unit in self.units)])


def read_page(body: bytes) -> Page:
    """Return the page of an answer, whatever unit its times are in."""
    decoded = decode_page(body)
    edges = msgspec.json.decode(body)["balances"]["edges"]
    nodes = [edge["node"] for edge in edges]
    timed = [
        (node, *moment)
        for node in nodes
        if isinstance(node, dict) and (moment := _nanoseconds(node)) is not None
    ]
    return Page(
        nodes=[node for node, _, _ in timed],
        nanoseconds=[nanoseconds for _, nanoseconds, _ in timed],
        units=frozenset(unit for _, _, unit in timed),
        edges=len(nodes),
        bad=tuple(bad.reason for bad in decoded.bad_rows),
        more=decoded.has_next_page,
        end_cursor=decoded.end_cursor,
    )


def _nanoseconds(node: Node) -> tuple[int, str] | None:
    """Return a row's time, and the unit in which alone it is one between 2015 and 2100."""
    text = str(node.get(FIELD_NAMES["timestamp"]))
    if not _WHOLE.fullmatch(text):
        return None
    for unit, scale in UNITS.items():
        if FIRST_NANOSECOND <= int(text) * scale < LAST_NANOSECOND:
            return int(text) * scale, unit
    return None


def row_key(node: Node) -> tuple[str, ...]:
    """Return what tells a row from every other: its time and account."""
    return tuple(str(node.get(FIELD_NAMES[name])) for name in ("timestamp", *ACCOUNT_KEY))
