"""A source of rows proves what it yielded, by its pages and few questions more."""

from __future__ import annotations

import dataclasses

import pytest

import balance_analysis as ba
from balance_analysis.load.source import NodeSource
from tests.loopback import Fault, LoopbackNode, random_history

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(21, rows=600, accounts=60, largest_block=12)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
START, END = TIMES[30], TIMES[-1] + 3_600_000_000


def node_of(rows=ROWS, *, head=END, **options):
    return LoopbackNode(rows, **{"block_timestamp": head * 1000, **options})


def pages(node):
    return sum(request.get("pagination.first") != "1" for request in node.requests)


def test_an_export_that_goes_on_at_a_row_costs_its_windows_alone():
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client, page_size=50, workers=1)
        rows = sum(step.num_rows for step in source.rows(START, END))
        assert source.evidence().complete == [(START, END)]
        assert len(node.requests) == pages(node)
    assert rows == sum(row.timestamp_ns // 1000 >= START for row in ROWS)


def test_a_node_that_lacks_the_row_at_the_start_proves_what_follows():
    kept = [row for row in ROWS if row.timestamp_ns // 1000 > START]
    with node_of(kept) as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        list(source.rows(START, END))
        assert source.evidence().complete == [(TIMES[31], END)]


def test_several_spans_that_begin_at_rows_cost_no_question_more():
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        for span in ((TIMES[0], START), (START, TIMES[50]), (TIMES[70], END)):
            list(source.rows(*span))
        assert source.evidence().complete == [(TIMES[0], TIMES[50]), (TIMES[70], END)]
        assert len(node.requests) == pages(node)


def test_a_question_that_failed_is_asked_again_and_one_that_was_answered_is_not():
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        list(source.rows(TIMES[0] - 2, END))
        node.faults = lambda *_: Fault.code(400, 3)
        assert source.evidence().complete == [(TIMES[0], END)]
        node.faults = []
        node.replace([dataclasses.replace(ROWS[0], timestamp_ns=(TIMES[0] - 9) * 1000), *ROWS])
        assert source.evidence().complete == [(TIMES[0] - 2, END)]
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        list(source.rows(TIMES[0] - 2, END))
        asked = []
        for _ in range(2):
            assert source.evidence().complete == [(TIMES[0], END)]
            asked.append(len(node.requests))
        assert asked[0] == asked[1]


def test_one_block_beyond_a_window_does_not_show_that_the_window_is_quiet():
    """A node that names no last block is asked beyond the window; this one ignores the order."""
    with (
        LoopbackNode(ROWS, block_headers=False, ignores=["pagination.newestFirst"]) as node,
        ba.Client(node.url) as client,
    ):
        source = NodeSource(client, page_size=1, workers=1)
        list(source.rows(TIMES[0] - 200, TIMES[0] - 100))
        with pytest.raises(ba.IncompleteError, match="ignores the order"):
            list(source.rows(START, TIMES[-1]))


def test_only_steps_that_were_taken_are_evidence():
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client, page_size=20, workers=2)
        taken = 0
        steps = source.rows(START, END)
        for step in steps:
            taken = step.end
            if taken > TIMES[50]:
                break
        steps.close()
        assert source.evidence().complete == [(START, taken)]


@pytest.mark.parametrize("workers", [1, 4])
def test_what_came_before_it_was_pruned_stays_proven(workers):
    with node_of() as node, ba.Client(node.url) as client:
        source = NodeSource(client, page_size=20, workers=workers)
        for number, _ in enumerate(source.rows(START, END)):
            if number == 5:
                node.replace([row for row in ROWS if row.timestamp_ns // 1000 >= TIMES[90]])
                break
        for _ in source.rows(TIMES[80], END):
            pass
        evidence = source.evidence()
    assert evidence.complete[0][0] == START
    assert evidence.complete[-1] == (TIMES[90], END)
    assert evidence.unproven[-1] == (TIMES[80], TIMES[90])


def last_block(source, node, *, moves=False, before=END):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if moves:
            node.block_timestamp += 10**9

    source.client.sleep = sleep
    return source.last_block(before), waits


@pytest.mark.parametrize(
    ("options", "is_whole"),
    [({}, True), ({"moves": True}, False), ({"before": TIMES[-1]}, False)],
    ids=["rests", "moves", "new"],
)
def test_the_last_block_is_known_once_the_chain_rests(options, is_whole):
    with node_of(head=TIMES[-1]) as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        list(source.rows(START, END))
        assert source.evidence().bounds == (START, TIMES[-1])
        step, waits = last_block(source, node, **options)
        assert (step is not None) is is_whole
        assert waits == ([] if "before" in options else [10.0])
        assert source.evidence().complete == [(START, TIMES[-1] + is_whole)]
    if step is not None:
        assert step.num_rows == sum(row.timestamp_ns // 1000 == TIMES[-1] for row in ROWS)


def test_a_last_block_that_cannot_be_asked_for_is_left_out():
    with node_of(head=TIMES[-1]) as node, ba.Client(node.url) as client:
        source = NodeSource(client)
        list(source.rows(START, END))
        node.faults = lambda *_: Fault.status(503)
        assert last_block(source, node)[0] is None
