"""Evidence: what the answers of nodes prove about an interval's rows.

Rows alone don't show what is missing: history that a node forgot looks like an interval without
changes. So each answer is kept with its node, the time of the request, and whether the node could
know all rows. The states ("complete", "confirmed") are computed from these answers when needed and
never stored. Moments are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import Span, bounds_of, gaps_in, joined, overlap, without
from balance_analysis.table.schema import Account, BadRow

STATES: Final = ("confirmed", "complete", "unproven", "missing")
"""The states of a stretch of time, best first."""

SEGMENTS: Final = "segments:"
"""Prefix of the origin of network history segments; their chain id follows."""


@dataclass(frozen=True, slots=True)
class Node:
    """A source of rows.

    Attributes
    ----------
    name
        Its address, or another readable name.
    origin
        Where its rows came from: resolved addresses with ports, or `segments:CHAIN`. Two sources
        whose origins share an element may be the same. An empty origin is unknown.
    """

    name: str
    origin: frozenset[str] = frozenset()

    def is_independent_of(self, other: Node) -> bool:
        """Whether both origins are known and have no element in common."""
        return bool(self.origin and other.origin) and self.origin.isdisjoint(other.origin)


@dataclass(frozen=True, slots=True)
class Reach:
    """The interval in which a node seems to have all rows; it helps to choose a node, no more.

    Attributes
    ----------
    start
        The node has a row at or before this moment, so it has forgotten nothing since.
    end
        The moment up to which it has all rows: its last block, or its newest row if it names no
        block.
    height
        The height of its last block.
    """

    start: int
    end: int
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One node's answer for one stretch of time.

    Attributes
    ----------
    span
        The stretch, [start, end).
    node
        The node that answered.
    asked
        The times of the first and the last request of joined answers.
    heights
        The node's last block at these requests: the lowest and the highest of joined answers. For
        segments, the first and the last block. `None` if the node named no block.
    reached
        Whether the answer proves that the node had every row of the stretch.
    """

    span: Span
    node: Node
    asked: Span
    heights: tuple[int, int] | None = None
    reached: bool = True

    def joined(self, after: Answer) -> Answer | None:
        """Join this answer with the next one; `None` if the next one doesn't continue it."""
        if (self.span[1], self.reached, self.node) != (after.span[0], after.reached, after.node):
            return None
        heights = [height for answer in (self, after) for height in answer.heights or ()]
        ends = (min(heights), max(heights)) if heights else None
        asked = min(self.asked[0], after.asked[0]), max(self.asked[1], after.asked[1])
        return replace(self, span=(self.span[0], after.span[1]), asked=asked, heights=ends)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A row that proves nothing: a bad one that was set aside, or one on which two answers differ.

    Attributes
    ----------
    span
        The interval it may fall in.
    account
        Its account; `None` if unreadable, so that it may belong to any account.
    """

    span: Span
    account: Account | None = None


def check_on_bad_rows(on_bad_rows: str) -> None:
    """Raise ValueError unless this is a valid `on_bad_rows`."""
    if on_bad_rows not in ("raise", "quarantine"):
        raise ValueError(f'on_bad_rows must be "raise" or "quarantine", not {on_bad_rows!r}')


def as_set_aside(bad_rows: Iterable[BadRow], whole: Span) -> tuple[SetAside, ...]:
    """Return bad rows as evidence; a row without a readable time may fall anywhere in `whole`."""
    return tuple(
        SetAside(whole if bad.time is None else (bad.time, bad.time + 1), bad.account)
        for bad in bad_rows
    )


Verdicts = tuple[tuple[Span, Node], ...]
"""Stretches, each with the node that agreed or disagreed about its rows."""

_Part = TypeVar("_Part", Answer, SetAside)


def _inside(parts: Iterable[_Part], spans: Sequence[Span]) -> tuple[_Part, ...]:
    """Cut answers or set-aside rows to the parts inside spans."""
    return tuple(replace(part, span=span) for part in parts for span in overlap([part.span], spans))


def _outside(parts: Iterable[_Part], spans: Sequence[Span]) -> tuple[_Part, ...]:
    """Cut answers or set-aside rows to the parts outside spans."""
    return tuple(replace(part, span=span) for part in parts for span in gaps_in(spans, *part.span))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is proven about some accounts' rows.

    Attributes
    ----------
    filters
        The accounts.
    answers
        The answers, ascending by stretch, without overlap.
    set_aside
        Rows that prove nothing: bad rows, and rows on which two answers differ.
    agreed, disputed
        Stretches in which another node has the same rows, or different ones.
    from_first_block
        Whether the first answer begins with the network's first block.
    """

    filters: Filters = Filters()
    answers: tuple[Answer, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    agreed: Verdicts = ()
    disputed: Verdicts = ()
    from_first_block: bool = False

    @property
    def answered(self) -> list[Span]:
        """The stretches that any node answered for."""
        return joined(answer.span for answer in self.answers)

    @property
    def complete(self) -> list[Span]:
        """The stretches with every row: the node that answered had all of them."""
        return without(self.reached, [bad.span for bad in self.set_aside])

    @property
    def complete_for_others(self) -> list[Span]:
        """The complete stretches of accounts without a bad row of their own."""
        return without(self.reached, [x.span for x in self.set_aside if x.account is None])

    @property
    def reached(self) -> list[Span]:
        """The stretches whose answers prove that the node had all rows."""
        return joined(answer.span for answer in self.answers if answer.reached)

    @property
    def unproven(self) -> list[Span]:
        """The stretches that a node answered for, but in which rows may be missing."""
        return without(self.answered, self.complete)

    @property
    def confirmed(self) -> list[Span]:
        """The complete stretches that a node of another origin agrees with and none disputes."""
        return joined(span for span, _ in self.confirmations())

    def confirmations(self) -> Iterator[tuple[Span, Node]]:
        """Yield the confirmed stretches, each with a node that agrees."""
        undisputed = without(self.complete, [span for span, _ in self.disputed])
        for span, node in self.agreed:
            others = [x.span for x in self.answers if node.is_independent_of(x.node)]
            yield from ((part, node) for part in overlap([span], overlap(undisputed, others)))

    def incomplete(self, start: int, end: int) -> list[Span]:
        """Return the parts of [start, end) that aren't complete."""
        return gaps_in(self.complete, self._since(start, end), end)

    def missing(self, start: int, end: int) -> list[Span]:
        """Return the parts of [start, end) that no node answered for."""
        return gaps_in(self.answered, self._since(start, end), end)

    def _since(self, start: int, end: int) -> int:
        """Return `start`, or the first block if that is later: nothing happened before it."""
        return max(start, min(end, self.bounds[0])) if self.from_first_block else start

    @property
    def chains(self) -> list[str]:
        """The chain ids of the segments that the answers came from."""
        origins = {origin for answer in self.answers for origin in answer.node.origin}
        return sorted(x.removeprefix(SEGMENTS) for x in origins if x.startswith(SEGMENTS))

    @property
    def bounds(self) -> Span:
        """The start of the first answer and the end of the last one; 0, 0 without answers."""
        return bounds_of(self.answered)

    def answer_at(self, moment: int) -> Answer | None:
        """Return the answer for a moment, or `None`."""
        return next((answer for answer in self.answers if _holds(answer.span, moment)), None)

    def stretches(self) -> Iterator[tuple[Span, str, Answer | None, Node | None]]:
        """Yield stretches in time order: span, state, answer, and the node that confirms it."""
        confirmations, complete = [*self.confirmations()], self.complete
        cuts = [*(x.span for x in self.answers), *complete, *(span for span, _ in confirmations)]
        for start, end in itertools.pairwise(sorted({*itertools.chain(*cuts)})):
            answer = self.answer_at(start)
            by = next((node for span, node in confirmations if _holds(span, start)), None)
            state = "missing" if answer is None else "unproven"
            if any(_holds(span, start) for span in complete):
                state = "complete" if by is None else "confirmed"
            yield (start, end), state, answer, by

    def within(self, start: int, end: int) -> Evidence:
        """Return the evidence for [start, end)."""
        return self.clipped([(start, end)])

    def clipped(self, spans: Sequence[Span]) -> Evidence:
        """Return the evidence for the given stretches."""
        clipped = replace(
            self,
            answers=_inside(self.answers, spans),
            set_aside=_inside(self.set_aside, spans),
            agreed=_verdicts_inside(self.agreed, spans),
            disputed=_verdicts_inside(self.disputed, spans),
        )
        is_first = self.from_first_block and clipped.bounds[0] == self.bounds[0]
        return replace(clipped, from_first_block=is_first and bool(clipped.answers))

    def narrow(self, filters: Filters) -> Evidence:
        """Return the evidence for the accounts that both its own filters and `filters` select."""
        both = self.filters.intersection(filters)
        if both is None:
            return Evidence(filters)
        bad = tuple(x for x in self.set_aside if x.account is None or both.selects(x.account))
        return replace(self, filters=both, set_aside=bad)

    def updated(self, newer: Evidence) -> Evidence:
        """Return this evidence updated by newer evidence for the same accounts.

        A newer answer replaces the parts of older ones that it overlaps. If it isn't proven to have
        all rows, it only fills stretches without a proven answer. Answers that continue each other
        are joined. Where a replaced answer was confirmed, its node now agrees; if rows changed,
        `without_agreements` must follow.
        """
        if self.filters != newer.filters:
            raise ValueError("evidence of different accounts can't be joined")
        added = _outside(newer.answers, without(self.reached, newer.reached))
        replaced = [answer.span for answer in added]
        confirmed = _inside(self.answers, overlap(replaced, self.confirmed))
        agreed = [*self.agreed, *((answer.span, answer.node) for answer in confirmed)]
        bad = _outside(self.set_aside, newer.reached)
        begin = min((each.bounds[0] for each in (self, newer) if each.answers), default=0)
        return replace(
            self,
            answers=_joined([*_outside(self.answers, replaced), *added]),
            set_aside=tuple(dict.fromkeys([*bad, *newer.set_aside])),
            agreed=_merged_verdicts([*agreed, *newer.agreed]),
            disputed=_merged_verdicts([*self.disputed, *newer.disputed]),
            from_first_block=any(
                each.from_first_block and each.bounds[0] == begin for each in (self, newer)
            ),
        )

    def __and__(self, other: Evidence) -> Evidence:
        """Restrict this evidence to the accounts and stretches that `other` proves complete.

        The result is complete where both are.
        """
        return self.narrow(other.filters).clipped(other.narrow(self.filters).complete)

    def with_verdict(
        self, node: Node, shared: Iterable[Span], differing: Iterable[Span], *, is_new: bool = True
    ) -> Evidence:
        """Record a node's verdict on shared stretches, replacing its earlier one.

        Parameters
        ----------
        node
            The node that was compared.
        shared
            The stretches that were compared.
        differing
            The moments at which the node has different rows.
        is_new
            Whether the node was asked just now. An older answer doesn't remove a dispute.
        """
        shared = joined(shared)
        agreed = [(span, node) for span in without(shared, differing)]
        disputed = [(span, node) for span in overlap(shared, differing)]
        older = _without(self.disputed, shared, node) if is_new else self.disputed
        return replace(
            self,
            agreed=_merged_verdicts([*_without(self.agreed, shared, node), *agreed]),
            disputed=_merged_verdicts([*older, *disputed]),
        )

    def without_agreements(self, spans: Sequence[Span]) -> Evidence:
        """Drop agreements on stretches whose rows changed."""
        return replace(self, agreed=_without(self.agreed, spans))


def _holds(span: Span, moment: int) -> bool:
    return span[0] <= moment < span[1]


def least(*numbers: int | None) -> int | None:
    """Return the least number, ignoring `None`; `None` if there is no number."""
    return min((number for number in numbers if number is not None), default=None)


def _joined(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return answers in time order, joining those that continue each other."""
    result: list[Answer] = []
    for answer in sorted(answers, key=lambda answer: answer.span):
        both = result[-1].joined(answer) if result else None
        if both is not None:
            result.pop()
        result.append(both or answer)
    return tuple(result)


def _verdicts_inside(verdicts: Verdicts, spans: Sequence[Span]) -> Verdicts:
    """Cut verdicts to the parts inside spans."""
    return tuple((part, node) for span, node in verdicts for part in overlap([span], spans))


def _without(verdicts: Verdicts, spans: Sequence[Span], of: Node | None = None) -> Verdicts:
    """Cut verdicts, of one node or of all, to the parts outside spans."""
    return tuple(
        (part, node)
        for span, node in verdicts
        for part in (gaps_in(spans, *span) if of in {None, node} else [span])
    )


def _merged_verdicts(verdicts: Iterable[tuple[Span, Node]]) -> Verdicts:
    """Return verdicts grouped by node, merging stretches that touch or overlap."""
    by_node: dict[Node, list[Span]] = {}
    for span, node in verdicts:
        by_node.setdefault(node, []).append(span)
    return tuple((span, node) for node, spans in by_node.items() for span in joined(spans))


def to_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as values that JSON can represent."""
    content: dict[str, Any] = msgspec.to_builtins(evidence, order="sorted")
    return content


def from_json(content: object) -> Evidence:
    """Return evidence from the result of `to_json`.

    Raises
    ------
    ValueError
        If the content isn't evidence, or contradicts itself.
    """
    evidence = msgspec.convert(content, Evidence)
    spans = [answer.span for answer in evidence.answers]
    spans += [bad.span for bad in evidence.set_aside]
    spans += [span for span, _ in (*evidence.agreed, *evidence.disputed)]
    if any(start >= end for start, end in spans):
        raise ValueError("an interval is empty or ends before it begins")
    if any(first.span[1] > next_.span[0] for first, next_ in itertools.pairwise(evidence.answers)):
        raise ValueError("answers overlap or are out of order")
    return evidence
