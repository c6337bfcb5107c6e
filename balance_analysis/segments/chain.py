"""Segments in the order of their blocks: which go on where another ends, and what is missing."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from balance_analysis.errors import CheckError, IncompleteError, NetworkMismatchError
from balance_analysis.segments.segment import BALANCES, BLOCKS, Segment
from balance_analysis.text import list_text

logger: logging.Logger = logging.getLogger("balance_analysis")

FIRST_BLOCK: Final = 1
"""The height of a network's first block."""

_SOURCE: Final = re.compile(r"segments (.+) (\d+)-(\d+)", re.ASCII)
_CONTENT_ID: Final = re.compile(r"Qm[1-9A-Za-z]{44}|baf[a-z2-7]{50,}")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Segments of one chain, each of which goes on where the one before ends."""

    segments: tuple[Segment, ...]

    @property
    def first(self) -> int:
        """The height of the first block."""
        return self.segments[0].begin

    @property
    def last(self) -> int:
        """The height of the last block."""
        return self.segments[-1].last

    @property
    def is_from_first(self) -> bool:
        """Whether it begins with the network's first block, before which there was nothing."""
        return self.first <= FIRST_BLOCK

    @property
    def source(self) -> str:
        """What a coverage calls it."""
        return source_text(self.segments[0].chain, self.first, self.last)


def source_text(chain: str, first: int, last: int) -> str:
    """Return what a coverage calls blocks that came from segments."""
    return f"segments {chain} {first}-{last}"


def blocks_of(source: str) -> tuple[str, int, int] | None:
    """Return the chain and the first and last block that a coverage's source tells, if it does."""
    found = _SOURCE.fullmatch(source)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def put_in_order(segments: Iterable[Segment]) -> list[Stretch]:
    """Return segments in the order of their blocks; where blocks are missing a stretch ends.

    Raises
    ------
    NetworkMismatchError
        If they are of two chains.
    CheckError
        If two of them have other content of one block.
    IncompleteError
        If one says that another came before it than the one that did.
    """
    ordered = sorted(segments, key=lambda each: (each.first, -each.last, str(each.path)))
    for one, other in pairwise(ordered):
        if one.chain != other.chain:
            raise NetworkMismatchError(
                f"{one} is of the chain {one.chain!r}, {other} of {other.chain!r}: give those of "
                "one network"
            )
    stretches: list[list[Segment]] = []
    for segment in ordered:
        before = stretches[-1][-1] if stretches else None
        if before is not None and segment.first <= before.last:
            overlapping = [x for x in stretches[-1] if x.last >= segment.first]
            for each in overlapping:
                _check_overlap(each, segment)
            if segment.last > before.last:
                stretches[-1].append(replace(segment, after=before.last))
        elif before is not None and segment.first == before.last + 1:
            _check_follows(before, segment)
            stretches[-1].append(segment)
        else:
            stretches.append([segment])
    return [Stretch(tuple(part)) for part in stretches]


def missing_blocks(stretches: list[Stretch]) -> list[tuple[int, int]]:
    """Return the heights between stretches, the first and the last of each gap."""
    return [(one.last + 1, other.first - 1) for one, other in pairwise(stretches)]


def gaps_text(gaps: list[tuple[int, int]]) -> str:
    """Return what blocks are missing, for a message."""
    return list_text([f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in gaps])


def _check_follows(before: Segment, after: Segment) -> None:
    """Raise if a segment names another one before it, where both names are content ids."""
    name = before.path.name.removesuffix(".zip")
    if after.previous and _CONTENT_ID.fullmatch(name) and name != after.previous:
        raise IncompleteError(
            f"{after} says that {after.previous} came before it, but {before} has the blocks "
            "there: one of them is of another history"
        )


def _check_overlap(one: Segment, other: Segment) -> None:
    """Raise if two segments differ in the blocks that both have."""
    if one.digest == other.digest:
        return
    columns = {BLOCKS: ("height", "vega_time"), BALANCES: ("vega_time", "account_id", "balance")}
    times: list[set[object]] = []
    for name, wanted in columns.items():
        both = list[set[tuple[str, ...]]]()
        for segment in (one, other):
            rows = set(zip(*segment.table(name, wanted).to_pydict().values(), strict=True))
            if name == BLOCKS:
                shared = range(other.first, min(one.last, other.last) + 1)
                rows = {row for row in rows if row[0].isdecimal() and int(row[0]) in shared}
                times.append({row[1] for row in rows})
            else:
                rows = {row for row in rows if row[0] in times[len(both)]}
            both.append(rows)
        if different := sorted(both[0] ^ both[1]):
            raise CheckError(
                f"{one} and {other} differ in blocks that both have, such as in {name} "
                f"{different[0]}: find out which one is right, and leave the other out"
            )
