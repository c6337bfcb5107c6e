"""Evidence: what the answers of nodes prove of an interval, beside the rows that they bring.

Rows alone don't show what is missing: history that a node forgot looks like nothing having
happened. So each answer is kept with its node, the moments at which it was asked, and whether the
node could know all of it. Every word that vouches ("complete", "confirmed") is derived from these
answers when it is asked for. Nothing stores it. Moments are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from balance_analysis.table.filters import Filters
from balance_analysis.table.rows import Account, BadRow
from balance_analysis.table.spans import Span, between, between_all, bounds_of, joined, overlap

STATES: Final = ("confirmed", "complete", "unproven", "missing")
"""The states of a stretch of time, best first."""

SEGMENTS: Final = "segments:"
"""Prefix of the origin of segments; their chain id follows."""


@dataclass(frozen=True, slots=True)
class Node:
    """A source of rows.

    Attributes
    ----------
    name
        Its address, or another name for people.
    origin
        What its rows came from: resolved addresses with ports, or `segments:CHAIN`. Two sources
        whose origins share an element may be one. Nothing is known of an empty origin.
    """

    name: str
    origin: frozenset[str] = frozenset()

    def is_independent_of(self, other: Node) -> bool:
        """Whether both origins are known and share nothing."""
        return bool(self.origin and other.origin) and self.origin.isdisjoint(other.origin)


@dataclass(frozen=True, slots=True)
class Reach:
    """From when to when a node seems to know all rows: it says whom to ask, and proves nothing.

    Attributes
    ----------
    start
        The node holds a row at or before this moment, so it has forgotten nothing since.
    end
        Up to where it has all rows: its last block, or its newest row if it names no block.
    height
        The height of its last block.
    """

    start: int
    end: int
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One stretch of time as one node answered it.

    Attributes
    ----------
    span
        The stretch, [start, end).
    node
        Who answered.
    asked
        When it was asked: the first and the last moment of joined answers.
    heights
        The node's last block when it was asked, the lowest and the highest of joined answers; of
        segments the first and the last block. `None` if the node named none.
    reached
        Whether answers prove that the node had forgotten nothing of the stretch and knew all of it.
    """

    span: Span
    node: Node
    asked: Span
    heights: tuple[int, int] | None = None
    reached: bool = True

    def joined(self, after: Answer) -> Answer | None:
        """Return this answer and the next one as one; `None` if they don't continue each other."""
        if (self.span[1], self.reached, self.node) != (after.span[0], after.reached, after.node):
            return None
        heights = [height for each in (self, after) for height in each.heights or ()]
        ends = (min(heights), max(heights)) if heights else None
        asked = min(self.asked[0], after.asked[0]), max(self.asked[1], after.asked[1])
        return replace(self, span=(self.span[0], after.span[1]), asked=asked, heights=ends)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A row that proves nothing: a bad one that was set aside, or one on which two answers differ.

    Attributes
    ----------
    span
        The moments that it may be of.
    account
        Its account; `None` if it can't be read, so that it may be any.
    """

    span: Span
    account: Account | None = None


def set_aside(bad_rows: Iterable[BadRow], whole: Span) -> tuple[SetAside, ...]:
    """Return bad rows as evidence names them; one without a readable time may be of all of it."""
    return tuple(
        SetAside(whole if bad.time is None else (bad.time, bad.time + 1), bad.account)
        for bad in bad_rows
    )


class Word(NamedTuple):
    """A stretch, and the node that agreed or disagreed about its rows."""

    span: Span
    node: Node


Words = tuple[Word, ...]

_Part = TypeVar("_Part", Answer, SetAside, Word)


def _with_span(part: _Part, span: Span) -> _Part:
    return part._replace(span=span) if isinstance(part, Word) else replace(part, span=span)


def _inside(parts: Iterable[_Part], spans: Sequence[Span]) -> tuple[_Part, ...]:
    """Return the parts of answers, bad rows or words that lie in some spans."""
    return tuple(_with_span(each, x) for each in parts for x in overlap([each.span], spans))


def _outside(parts: Iterable[_Part], spans: Sequence[Span]) -> tuple[_Part, ...]:
    """Return the parts of answers, bad rows or words that lie outside of some spans."""
    return tuple(_with_span(each, x) for each in parts for x in between(spans, *each.span))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is proven of some accounts' rows.

    Attributes
    ----------
    filters
        The accounts.
    answers
        Who answered for which stretch; ascending, without overlap.
    set_aside
        Bad rows that were left out.
    agreed, disputed
        Which node has the same rows, and which has others.
    from_first_block
        Whether the first answer begins with the network's first block.
    """

    filters: Filters = Filters()
    answers: tuple[Answer, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    agreed: Words = ()
    disputed: Words = ()
    from_first_block: bool = False

    @property
    def answered(self) -> list[Span]:
        """The stretches that some node answered for."""
        return joined(answer.span for answer in self.answers)

    @property
    def complete(self) -> list[Span]:
        """The stretches that are whole: a node sent them that knew all of their rows."""
        return between_all(self.reached, [bad.span for bad in self.set_aside])

    @property
    def complete_for_others(self) -> list[Span]:
        """The same for accounts that no bad row is of."""
        return between_all(self.reached, [x.span for x in self.set_aside if x.account is None])

    @property
    def reached(self) -> list[Span]:
        """The stretches whose answers prove that the node knew all rows."""
        return joined(answer.span for answer in self.answers if answer.reached)

    @property
    def unproven(self) -> list[Span]:
        """The stretches whose rows are there, but some of them may be missing."""
        return between_all(self.answered, self.complete)

    @property
    def confirmed(self) -> list[Span]:
        """The complete stretches that a node of another origin agrees with and none disputes."""
        return joined(span for span, _ in self.confirmations())

    def confirmations(self) -> Iterator[Word]:
        """Yield the confirmed stretches, each with a node that agrees."""
        sound = between_all(self.complete, [span for span, _ in self.disputed])
        for word in self.agreed:
            others = [x.span for x in self.answers if word.node.is_independent_of(x.node)]
            yield from _inside([word], overlap(sound, others))

    def incomplete(self, start: int, end: int) -> list[Span]:
        """Return the parts of [start, end) that aren't complete."""
        return between(self.complete, self._since(start, end), end)

    def missing(self, start: int, end: int) -> list[Span]:
        """Return the parts of [start, end) that no node answered for."""
        return between(self.answered, self._since(start, end), end)

    def _since(self, start: int, end: int) -> int:
        """Return a start, moved past the time before the first block, in which nothing happened."""
        return max(start, min(end, self.bounds[0])) if self.from_first_block else start

    @property
    def chains(self) -> list[str]:
        """The chain ids of the segments that the answers came from."""
        origins = {origin for answer in self.answers for origin in answer.node.origin}
        return sorted(x.removeprefix(SEGMENTS) for x in origins if x.startswith(SEGMENTS))

    @property
    def bounds(self) -> Span:
        """Where the first answer begins and the last one ends; 0, 0 without answers."""
        return bounds_of(self.answered)

    def answer_at(self, moment: int) -> Answer | None:
        """Return the answer for a moment, if there is one."""
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
        """Return the evidence for some stretches."""
        clipped = replace(
            self,
            answers=_inside(self.answers, spans),
            set_aside=_inside(self.set_aside, spans),
            agreed=_inside(self.agreed, spans),
            disputed=_inside(self.disputed, spans),
        )
        is_first = self.from_first_block and clipped.bounds[0] == self.bounds[0]
        return replace(clipped, from_first_block=is_first and bool(clipped.answers))

    def narrow(self, filters: Filters) -> Evidence:
        """Return the evidence for the accounts that both these filters and others select."""
        both = self.filters.intersection(filters)
        if both is None:
            return Evidence(filters)
        bad = tuple(x for x in self.set_aside if x.account is None or both.selects(x.account))
        return replace(self, filters=both, set_aside=bad)

    def __or__(self, newer: Evidence) -> Evidence:
        """Return this evidence and newer one of the same accounts.

        A newer answer takes the place of what it overlaps. One that isn't proven to be whole
        only fills what no answer reached.
        """
        if self.filters != newer.filters:
            raise ValueError("evidence of different accounts can't be joined")
        proven = [answer for answer in newer.answers if answer.reached]
        others = [answer for answer in newer.answers if not answer.reached]
        added = [*proven, *_outside(others, self.reached)]
        kept = _outside(self.answers, [answer.span for answer in added])
        bad = _outside(self.set_aside, newer.reached)
        begin = min((each.bounds[0] for each in (self, newer) if each.answers), default=0)
        return replace(
            self,
            answers=_joined([*kept, *added]),
            set_aside=tuple(dict.fromkeys([*bad, *newer.set_aside])),
            agreed=_sorted_words([*self.agreed, *newer.agreed]),
            disputed=_sorted_words([*self.disputed, *newer.disputed]),
            from_first_block=any(
                each.from_first_block and each.bounds[0] == begin for each in (self, newer)
            ),
        )

    def __and__(self, other: Evidence) -> Evidence:
        """Return this evidence for what other evidence proves too: its accounts, its stretches.

        The result is complete where both are.
        """
        both = self.narrow(other.filters)
        return both.clipped(other.narrow(self.filters).complete)

    def with_words(
        self, node: Node, shared: Iterable[Span], differing: Iterable[Span], *, is_new: bool = True
    ) -> Evidence:
        """Return this evidence with a node's word on shared stretches in place of its earlier one.

        Parameters
        ----------
        node
            Whose word it is.
        shared
            The stretches that were compared.
        differing
            The moments at which the node has other rows.
        is_new
            Whether the node was asked just now: an older answer lifts no dispute.
        """
        shared = joined(shared)
        agreed = [Word(span, node) for span in between_all(shared, differing)]
        disputed = [Word(span, node) for span in overlap(shared, differing)]
        kept = _without(self.disputed, node, shared) if is_new else self.disputed
        return replace(
            self,
            agreed=_sorted_words([*_without(self.agreed, node, shared), *agreed]),
            disputed=_sorted_words([*kept, *disputed]),
        )

    def without_agreement(self, spans: Sequence[Span]) -> Evidence:
        """Return this evidence for rows that changed in some stretches: none agreed with them."""
        return replace(self, agreed=_outside(self.agreed, spans))


def _holds(span: Span, moment: int) -> bool:
    return span[0] <= moment < span[1]


def least(*numbers: int | None) -> int | None:
    """Return the least of the numbers that are known."""
    return min((number for number in numbers if number is not None), default=None)


def _joined(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return answers in time order, those that continue each other as one."""
    united: list[Answer] = []
    for answer in sorted(answers, key=lambda answer: answer.span):
        both = united[-1].joined(answer) if united else None
        if both is not None:
            united.pop()
        united.append(both or answer)
    return tuple(united)


def _without(words: Words, node: Node, spans: Sequence[Span]) -> Words:
    """Return words without what a node said of some stretches."""
    return tuple(
        part
        for word in words
        for part in (_outside([word], spans) if word.node == node else [word])
    )


def _sorted_words(words: Iterable[Word]) -> Words:
    """Return words by node, stretches that touch as one."""
    by_node: dict[Node, list[Span]] = {}
    for span, node in words:
        by_node.setdefault(node, []).append(span)
    return tuple(Word(span, node) for node, spans in by_node.items() for span in joined(spans))


def to_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as JSON's types."""
    content: dict[str, Any] = msgspec.to_builtins(evidence, order="sorted")
    return content


def from_json(content: object) -> Evidence:
    """Return the evidence that `to_json` was given.

    Raises
    ------
    ValueError
        If the content isn't that of evidence, or contradicts itself.
    """
    evidence = msgspec.convert(content, Evidence)
    parts: list[Answer | SetAside | Word] = [*evidence.answers, *evidence.set_aside]
    parts += [*evidence.agreed, *evidence.disputed]
    if any(part.span[0] >= part.span[1] for part in parts):
        raise ValueError("an interval is empty or ends before it begins")
    if any(one.span[1] > two.span[0] for one, two in itertools.pairwise(evidence.answers)):
        raise ValueError("its answers overlap or are out of order")
    return evidence
