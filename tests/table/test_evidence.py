"""Evidence derives the same states as a model of single moments in plain Python."""

import functools
import itertools
import json
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.table.evidence import from_json, to_json

FIRST, LENGTH = 3, 24  # the network's first block, and where time ends
ACCOUNTS = tuple(itertools.product(("a1", "a2"), ("t1", "t2"), ("p1", "p2"), ("", "m1")))


def evidence_of(**content):
    """Return evidence from the JSON of a file."""
    return from_json(content)


def filters_of(*, asset=None, parties=(), markets=(), types=()):
    lists = {"party_ids": parties, "market_ids": markets, "account_types": types}
    return evidence_of(filters={"asset_id": asset, **lists}).filters


def node_of(name, *origin):
    answer = {"span": (0, 1), "node": {"name": name, "origin": origin}, "asked": (0, 0)}
    return evidence_of(answers=[answer]).answers[0].node


NODES = (
    node_of("http://one", "1.1.1.1:80"),
    node_of("http://one.too", "1.1.1.1:80", "1.1.1.2:80"),
    node_of("http://other", "2.2.2.2:80"),
    node_of("segments", "segments:chain"),
    node_of("unknown"),
)
ALL, NOBODY = filters_of(), filters_of(asset="a3")


@dataclass
class Model:
    """The proven state of each moment.

    Attributes
    ----------
    answers
        By moment: the node, whether it had every row, when it was asked, and its last block.
    bad
        Moments of bad rows, each with its account or None.
    agreed, disputed
        Moments, each with the node that agrees or disagrees.
    starts
        Whether the first answer begins with the first block.
    """

    accounts: frozenset = frozenset(ACCOUNTS)
    answers: dict = field(default_factory=dict)
    bad: set = field(default_factory=set)
    agreed: set = field(default_factory=set)
    disputed: set = field(default_factory=set)
    starts: bool = False

    def reached(self):
        return {at for at, (_, reached, *_) in self.answers.items() if reached}

    def complete(self):
        return self.reached() - {moment for moment, _ in self.bad}

    def unproven(self):
        return {*self.answers} - self.complete()

    def missing(self, start, end):
        first = min(self.answers, default=start) if self.starts else start
        return {at for at in range(start, end) if at not in self.answers and at >= first}

    def confirmed(self):
        doubted = {at for at, _ in self.disputed}
        agreed = {(at, node) for at, node in self.agreed if at in self.complete()}
        return {at for at, by in agreed if are_independent(by, self.answers[at][0])} - doubted

    def state(self, at):
        if at not in self.answers:
            return "missing"
        if at not in self.complete():
            return "unproven"
        return "confirmed" if at in self.confirmed() else "complete"

    def joined(self, newer):
        again = newer.reached()
        kept = self.reached() - again
        answers = self.answers | {at: x for at, x in newer.answers.items() if at not in kept}
        first = min(answers, default=None)
        replaced = {*newer.answers} - kept
        agreeing = {(at, self.answers[at][0]) for at in self.confirmed() & replaced}
        return Model(
            self.accounts,
            answers,
            {(at, account) for at, account in self.bad if at not in again} | newer.bad,
            self.agreed | newer.agreed | agreeing,
            self.disputed | newer.disputed,
            any(x.starts and min(x.answers, default=None) == first for x in (self, newer)),
        )

    def within(self, moments):
        answers = {at: answer for at, answer in self.answers.items() if at in moments}
        starts = self.starts and min(self.answers, default=None) in answers
        parts = (
            {x for x in part if x[0] in moments} for part in (self.bad, self.agreed, self.disputed)
        )
        return Model(self.accounts, answers, *parts, starts)

    def narrowed(self, accounts):
        some = self.accounts & accounts
        bad = {(at, x) for at, x in self.bad if x is None or x in some}
        return replace(self, accounts=some, bad=bad) if some else Model(some)

    def with_verdict(self, node, shared, differing):
        kept = {}
        for name, moments in (("agreed", shared - differing), ("disputed", shared & differing)):
            older = {(at, x) for at, x in getattr(self, name) if x != node or at not in shared}
            kept[name] = older | {(at, node) for at in moments}
        return replace(self, **kept)


def are_independent(node, other):
    return bool(node.origin) and bool(other.origin) and not node.origin & other.origin


def moments(spans):
    return {at for start, end in spans for at in range(start, end)}


def accounts_of(filters):
    return frozenset(account for account in ACCOUNTS if filters.selects(account))


def moments_of(verdicts):
    return {(at, node) for span, node in verdicts for at in range(*span)}


def assert_is(evidence, model):
    """Check that evidence has the same state as the model at each moment."""
    assert moments(evidence.answered) == {*model.answers}
    assert moments(evidence.complete) == model.complete()
    assert moments(evidence.unproven) == model.unproven()
    assert moments(evidence.confirmed) == model.confirmed()
    assert moments(evidence.missing(0, LENGTH)) == model.missing(0, LENGTH)
    incomplete = model.unproven() | model.missing(0, LENGTH)
    assert moments(evidence.incomplete(0, LENGTH)) == incomplete
    known = {(at, bad.account) for bad in evidence.set_aside for at in range(*bad.span)}
    assert known == model.bad
    without_account = {at for at, account in model.bad if account is None}
    assert moments(evidence.complete_for_others) == model.reached() - without_account
    assert moments_of(evidence.agreed) == model.agreed
    assert moments_of(evidence.disputed) == model.disputed
    assert evidence.from_first_block == model.starts
    assert accounts_of(evidence.filters) == model.accounts or not evidence.answers
    for spans in (evidence.complete, evidence.unproven, evidence.missing(0, LENGTH)):
        assert all(start < end for start, end in spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    check_answers(evidence, model)
    check_stretches(evidence, model)
    assert from_json(json.loads(json.dumps(to_json(evidence)))) == evidence


def check_answers(evidence, model):
    """Check each moment's answer, and that joined answers keep their first and last requests."""
    answered = {}
    for answer in evidence.answers:
        for at in range(*answer.span):
            assert at not in answered
            answered[at] = answer.node, answer.reached
            _, _, asked, height = model.answers[at]
            assert answer.asked[0] <= asked <= answer.asked[1]
            if height is not None:
                assert answer.heights[0] <= height <= answer.heights[1]
    assert answered == {at: (node, reached) for at, (node, reached, *_) in model.answers.items()}


def check_stretches(evidence, model):
    """Check that stretches are adjacent, and that their states are those of the model."""
    stretches = [*evidence.stretches()]
    edges = [span for span, *_ in stretches]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    ends = (edges[0][0], edges[-1][1]) if edges else (0, 0)
    assert ends == evidence.bounds
    for span, state, answer, by in stretches:
        assert {model.state(at) for at in range(*span)} == {state}
        assert (answer is None) == (state == "missing")
        assert (by is None) == (state != "confirmed")
        for at in range(*span):
            assert evidence.answer_at(at) is answer
            assert by is None or (at, by) in model.agreed
            assert by is None or are_independent(by, model.answers[at][0])


# Evidence that a run may bring: adjacent answers for an interval.

spans = st.tuples(st.integers(FIRST, LENGTH), st.integers(FIRST, LENGTH)).map(
    lambda ends: (min(ends), max(ends) + 1)
)
nodes = st.sampled_from(NODES)
filters = st.builds(
    filters_of,
    asset=st.sampled_from([None, None, "a1", "a2"]),
    parties=st.sampled_from([(), (), ("p1",), ("p2",), ("p1", "p2")]),
    markets=st.sampled_from([(), (), ("m1",)]),
    types=st.sampled_from([(), (), ("t1",), ("t1", "t2")]),
)
accounts = st.none() | st.sampled_from(ACCOUNTS)


@st.composite
def runs(draw, of=ALL):
    """Draw evidence and its model."""
    cuts = draw(st.sets(st.integers(FIRST + 1, LENGTH), min_size=2, max_size=6))
    cuts = sorted(cuts | draw(st.sampled_from([{FIRST}, {*()}])))
    answers, model = [], Model(accounts_of(of))
    for start, end in itertools.pairwise(cuts):
        if draw(st.integers(0, 3)):
            node, reached, asked = draw(nodes), draw(st.booleans()), draw(st.integers(100, 109))
            height = draw(st.none() | st.integers(0, 9))
            answer = {"span": (start, end), "node": node, "asked": (asked, asked)}
            answer["heights"] = None if height is None else (height, height)
            answers.append({**answer, "reached": reached})
            model.answers |= dict.fromkeys(range(start, end), (node, reached, asked, height))
    bad = [
        {"span": span, "account": account}
        for span, account in draw(st.lists(st.tuples(spans, accounts), max_size=2))
        if account is None or of.selects(account)
    ]
    model.bad = {(at, each["account"]) for each in bad for at in range(*each["span"])}
    model.starts = FIRST in model.answers and draw(st.booleans())
    content = {"filters": of, "answers": answers, "set_aside": bad}
    return evidence_of(**content, from_first_block=model.starts), model


comparisons = st.tuples(nodes, st.lists(spans, max_size=3), st.lists(spans, max_size=2))


@st.composite
def histories(draw, of=ALL):
    """Draw the evidence that runs and comparisons leave, and its model."""
    evidence, model = evidence_of(filters=of), Model(accounts_of(of))
    for run in draw(st.lists(runs(of) | comparisons, max_size=5)):
        if len(run) == 2:
            evidence, model = evidence.updated(run[0]), model.joined(run[1])
        else:
            node, shared, differing = run
            evidence = evidence.with_verdict(node, shared, differing)
            model = model.with_verdict(node, moments(shared), moments(differing))
    return evidence, model


@given(histories())
def test_every_stretchs_state_is_that_of_its_single_moments(made):
    assert_is(*made)


@given(histories(), spans)
def test_evidence_is_the_same_within_a_stretch_and_absent_outside_it(made, span):
    evidence, model = made
    assert_is(evidence.within(*span), model.within(moments([span])))


@given(histories(), filters)
def test_narrowed_evidence_has_the_bad_rows_that_may_be_of_its_accounts(made, some):
    evidence, model = made
    assert_is(evidence.narrow(some), model.narrowed(accounts_of(some)))


@given(filters, filters, st.data())
def test_shared_evidence_is_what_both_prove_about_accounts_in_both(one, other, data):
    (left, left_model), (right, right_model) = map(data.draw, (histories(one), histories(other)))
    both = left & right
    shared = accounts_of(one) & accounts_of(other)
    complete = right_model.narrowed(shared).complete() if shared else set()
    assert_is(both, left_model.narrowed(shared).within(complete))
    expected = left_model.narrowed(shared).complete() & complete
    assert moments(both.complete) == moments((right & left).complete) == expected
    assert moments(both.confirmed) <= moments(left.narrow(other).confirmed)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_joined_answers_keep_when_they_were_first_and_last_asked_and_at_which_blocks(has_gap, data):
    pieces, start = [], FIRST
    for gap in has_gap:
        start, asked, height = start + gap, data.draw(st.integers(0, 99)), data.draw(st.integers(0))
        piece = {"span": (start, start + 2), "node": NODES[0], "asked": (asked, asked)}
        pieces.append(evidence_of(answers=[{**piece, "heights": (height, height)}]))
        start += 2
    shuffled = data.draw(st.permutations(pieces))
    joined = functools.reduce(lambda older, newer: older.updated(newer), shuffled)
    for answer in joined.answers:
        parts = [x for piece in pieces for x in piece.answers]
        parts = [x for x in parts if answer.span[0] <= x.span[0] < answer.span[1]]
        asked, heights = [x.asked[0] for x in parts], [x.heights[0] for x in parts]
        assert answer.asked == (min(asked), max(asked))
        assert answer.heights == (min(heights), max(heights))
    assert len(joined.answers) == 1 + sum(has_gap[1:])


@given(histories(), spans)
def test_no_node_agrees_with_rows_that_changed(made, span):
    evidence, model = made
    model.agreed = {(at, node) for at, node in model.agreed if at not in moments([span])}
    assert_is(evidence.without_agreements([span]), model)


def test_evidence_for_different_accounts_is_not_joined():
    with pytest.raises(ValueError, match="different accounts"):
        evidence_of().updated(evidence_of(filters=NOBODY))


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["answers"][0].update(span=[3, 3]),
        lambda c: c["answers"][0].update(span=[9, 3]),
        lambda c: c["answers"][0].update(reached=1),
        lambda c: c["answers"][0].update(asked="yesterday"),
        lambda c: c["answers"].append(c["answers"][0]),
        lambda c: c["set_aside"][0].update(span=[4, 4]),
        lambda c: c["agreed"].append([[5, 5], c["answers"][0]["node"]]),
        lambda c: c["disputed"].append([[5, 4], c["answers"][0]["node"]]),
    ],
)
def test_json_that_contradicts_itself_is_refused(edit):
    answer = {"span": (3, 9), "node": NODES[0], "asked": (1, 2), "heights": (3, 4)}
    bad = {"span": (4, 5), "account": ACCOUNTS[0]}
    evidence = evidence_of(answers=[answer], set_aside=[bad])
    content = json.loads(json.dumps(to_json(evidence)))
    assert from_json(content) == evidence
    edit(content)
    with pytest.raises((ValueError, msgspec.ValidationError)):
        from_json(content)
