"""Evidence: what the answers of nodes prove, beside the rows that they bring.

Forgotten history looks exactly like nothing having happened, and so does what a node that lags
doesn't know yet. So each answer is noted with the node that gave it: it proves what was asked from
the node's retention start on and up to its last block, but for what the node says that it may lack.
The attrs of a table, the metadata of a file and the coverage of an archive keep what is proven.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from balance_analysis.errors import RequestError
from balance_analysis.filters import Filters
from balance_analysis.node.walk import (
    EARLIEST,
    LONGEST_WINDOW,
    Ask,
    Step,
    Window,
    fetch,
    find_oldest,
)
from balance_analysis.spans import EVER, Span, between, clipped, joined
from balance_analysis.text import moment_text, spans_text

_OUTSIDE: Final = 416
"""The status of a range that an archive, served strictly, doesn't vouch for."""


@dataclass(slots=True)
class LatestBlock:
    """The last block that a node was seen to hold: its number and its microseconds, if it says."""

    height: int | None = None
    time: int | None = None

    def or_less(self, height: int | None, time: int | None) -> LatestBlock:
        """Return the lesser one of this and another."""
        return LatestBlock(_least(self.height, height), _least(self.time, time))

    def lags(self, moment: int) -> bool:
        """Whether the node is known not to hold everything before a moment."""
        return self.time is not None and self.time < moment


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


@dataclass(slots=True)
class NodeState:
    """What a node says of itself: its last block, and stretches of which it may lack rows.

    Of several answers, the one that knew least is believed.
    """

    latest_block: LatestBlock = field(default_factory=LatestBlock)
    incomplete: list[Span] = field(default_factory=list)

    def within(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the incomplete parts of [start, end)."""
        return tuple(sorted({*clipped(self.incomplete, start, end)}))


@dataclass(slots=True)
class Evidence:
    """What is known of an interval by the nodes that answered for it; moments in microseconds.

    Attributes
    ----------
    answered
        What each node answered, by the address at which it was asked.
    retention_starts
        From when on each of them has forgotten nothing; one that isn't here proves nothing.
    incomplete
        Stretches of which nodes say themselves that they may lack rows.
    known_until
        Where what is known ends, if a node answered that didn't hold all that it was asked for.
    latest_block
        The last block that nodes held: of the answers, the one that knew least.
    """

    answered: dict[str, list[Span]] = field(default_factory=dict)
    retention_starts: dict[str, int] = field(default_factory=dict)
    incomplete: list[Span] = field(default_factory=list)
    known_until: int | None = None
    latest_block: LatestBlock = field(default_factory=LatestBlock)

    @classmethod
    def of(cls, steps: Iterable[Step], retention_starts: dict[str, int]) -> Evidence:
        """Return what steps prove, by what the nodes have forgotten."""
        evidence = cls(retention_starts=retention_starts)
        for step in steps:
            evidence.add(step)
        return evidence

    def add(self, step: Step) -> None:
        """Note what the node could know of a step."""
        answered = [*self.answered.get(step.source, ()), (step.start, step.end)]
        self.answered[step.source] = joined(answered)
        self.incomplete = joined([*self.incomplete, *step.incomplete])
        self.latest_block = self.latest_block.or_less(step.block_height, step.head)
        if step.known_end < step.end:
            self.known_until = min(step.known_end, self.known_until or step.known_end)

    def between(self, start: int, end: int) -> Evidence:
        """Return what is noted of [start, end)."""
        is_behind = self.known_until is not None and self.known_until < end
        return replace(
            self,
            answered={node: [*clipped(x, start, end)] for node, x in self.answered.items()},
            incomplete=[*clipped(self.incomplete, start, end)],
            known_until=self.known_until if is_behind else None,
        )

    def proven(self) -> list[Span]:
        """Return the spans in which every row that there was is among those that came."""
        found: list[Span] = []
        end = EVER[1] if self.known_until is None else self.known_until
        for source, answered in self.answered.items():
            found += clipped(answered, self.retention_starts.get(source, end), end)
        return [part for span in joined(found) for part in between(self.incomplete, *span)]

    def forgotten(self) -> list[Span]:
        """Return the spans that nodes answered for, but may have forgotten rows of."""
        others = [*self.proven(), *self.incomplete]
        if self.known_until is not None:
            others.append((self.known_until, EVER[1]))
        answered = joined(span for spans in self.answered.values() for span in spans)
        return [part for span in answered for part in between(others, *span)]

    def gaps(self, start: int, end: int) -> str:
        """Return what of [start, end) is not proven, and why, as text; empty if all is."""
        proven = list(clipped(self.proven(), start, end))
        if not between(proven, start, end):
            return ""
        until = None
        if self.known_until is not None and self.known_until < end:
            until = min(self.known_until, self.latest_block.time or self.known_until)
        why = gaps_text(
            clipped(self.incomplete, start, end), clipped(self.forgotten(), start, end), until
        )
        interval = spans_text([(start, end)])
        if not proven:
            return f"the load is not known to be complete for any part of {interval}: {why}"
        where = f"only for {spans_text(proven)}, not for all of {interval}"
        return f"the load is known to be complete {where}: {why}"


def gaps_text(incomplete: Iterable[Span], forgotten: Iterable[Span], until: int | None) -> str:
    """Return why not all is known: nodes may lack rows, have forgotten some, or end too early."""
    reasons = [] if until is None else [f"the node knows blocks only up to {moment_text(until)}"]
    if stretches := joined(incomplete):
        reasons.append(f"the node says that it may lack rows of {spans_text(stretches)}")
    if stretches := joined(forgotten):
        reasons.append(f"the node may have forgotten rows of {spans_text(stretches)}")
    return "; ".join(reasons)


def retention_start(ask: Ask, state: NodeState, start: int, end: int) -> int:
    """Return from when on whoever is asked has forgotten nothing of [start, end).

    That is `start` where there is a row of any account at or before it, else the time of the oldest
    one. An archive forgets nothing: it says, or refuses, what it doesn't vouch for.
    """
    try:
        if start >= EARLIEST:
            window = Window(max(EARLIEST, start + 1 - LONGEST_WINDOW), start + 1, page_size=1)
            if len(fetch(ask, Filters(), window).times) or state.incomplete:
                return start
        oldest = find_oldest(ask, [Filters()], end)
    except RequestError as error:
        if error.status == _OUTSIDE:
            return start
        raise
    if state.incomplete:
        return start
    return end if oldest is None else max(start, oldest)
