"""Segments in the order of their blocks: which go on where another ends, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from balance_analysis.errors import CheckError, IncompleteError, NetworkMismatchError
from balance_analysis.files.atomic import PathLike
from balance_analysis.segments.segment import BALANCES, BLOCKS, Segment, find_segments

FIRST_BLOCK: Final = 1
"""The height of a network's first block."""

_SOURCE: Final = re.compile(r"segments (.+) (\d+)-(\d+)", re.ASCII)
_COMPARED: Final = {
    BLOCKS: ("height", "vega_time"),
    BALANCES: ("vega_time", "account_id", "balance"),
}
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


def find_stretches(paths: PathLike | Iterable[PathLike]) -> list[Stretch]:
    """Return the segments that paths name in the order of their blocks.

    Where blocks are missing a stretch ends.

    Raises
    ------
    DecodeError, FileNotFoundError
        As `find_segments`.
    NetworkMismatchError
        If they are of two chains.
    CheckError
        If two of them have other content of one block.
    IncompleteError
        If one says that another came before it than the one that did.
    """
    found = find_segments(paths)
    ordered = sorted(found, key=lambda each: (each.first, -each.last, str(each.path)))
    for one, other in pairwise(ordered):
        if one.chain != other.chain:
            raise NetworkMismatchError(
                f"{one} is of the chain {one.chain!r}, {other} of {other.chain!r}: give those of "
                "one network"
            )
    stretches: list[list[Segment]] = []
    for segment in ordered:
        before = stretches[-1][-1] if stretches else None
        if before is None or segment.first > before.last + 1:
            stretches.append([segment])
        elif segment.first == before.last + 1:
            _check_follows(before, segment)
            stretches[-1].append(segment)
        else:
            for each in stretches[-1]:
                _check_overlap(each, segment)
            if segment.last > before.last:
                stretches[-1].append(replace(segment, after=before.last))
    return [Stretch(tuple(each)) for each in stretches]


def missing_blocks(stretches: list[Stretch]) -> list[tuple[int, int]]:
    """Return the heights between stretches, the first and the last of each gap."""
    return [(one.last + 1, other.first - 1) for one, other in pairwise(stretches)]


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
    shared = range(other.first, min(one.last, other.last) + 1)
    if not shared or one.digest == other.digest:
        return
    found, wanted = (_rows_in(segment, shared) for segment in (one, other))
    for name, rows in found.items():
        if different := sorted(rows ^ wanted[name]):
            raise CheckError(
                f"{one} and {other} differ in blocks that both have, such as in {name} "
                f"{different[0]}: find out which one is right, and leave the other out"
            )


def _rows_in(segment: Segment, heights: range) -> dict[str, set[tuple[str, ...]]]:
    """Return the blocks of these heights and their balances, as a segment has them."""
    blocks, balances = (
        set(zip(*segment.table(name, columns).to_pydict().values(), strict=True))
        for name, columns in _COMPARED.items()
    )
    blocks = {row for row in blocks if row[0].isdecimal() and int(row[0]) in heights}
    times = {time for _, time in blocks}
    return {BLOCKS: blocks, BALANCES: {row for row in balances if row[0] in times}}
