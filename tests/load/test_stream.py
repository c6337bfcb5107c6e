"""A stream is in time order, waits for its reader, and says what it cost."""

from __future__ import annotations

import itertools
import logging
import random
import time
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.load.source import AHEAD, QUEUED, NodeSource
from balance_analysis.node.client import Throttle
from tests.analysis.tables import table_from
from tests.columns import ARROW_SCHEMA
from tests.loopback import Fault, LoopbackNode, histories, random_history
from tests.waits import sleeping

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(5, rows=1200, accounts=150, largest_block=40)
FIRST, LATE = ROWS[0].timestamp_ns // 1000, ROWS[-1].timestamp_ns + 1000
HELD = 10
INTERVAL = {"start": "2023-04-01", "end": "2023-05-01"}


def load(url, **options):
    with ba.Client(url) as client:
        return ba.load_balance_changes(client, **{**INTERVAL, **options})


@settings(max_examples=6)
@given(histories(most_rows=120), st.sampled_from([2, 10, 40, 1000]), st.integers(1, 4))
def test_the_batches_are_in_time_order_and_make_the_table(rows, page_size, workers):
    with LoopbackNode(rows) as node, ba.Client(node.url) as client:
        batches = list(
            ba.iter_balance_changes(client, **INTERVAL, page_size=page_size, workers=workers)
        )
        expected = load(node.url)
    assert all(batch.schema == ARROW_SCHEMA and batch.num_rows for batch in batches)
    times = pa.chunked_array([b["timestamp"] for b in batches], ARROW_SCHEMA.field(4).type)
    assert times.to_pylist() == sorted(times.to_pylist())
    assert all(
        a["timestamp"][-1].as_py() < b["timestamp"][0].as_py()
        for a, b in itertools.pairwise(batches)
    )
    table = table_from(pa.Table.from_batches(batches, ARROW_SCHEMA))
    pd.testing.assert_frame_equal(table, expected)


def test_nothing_is_asked_before_the_first_batch_is_wanted():
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        batches = ba.iter_balance_changes(client, **INTERVAL, page_size=20)
        assert node.requests == []
        next(batches)
        batches.close()


def test_a_reader_that_stops_stops_the_requests():
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        batches = ba.iter_balance_changes(client, **INTERVAL, page_size=10, workers=2)
        next(batches)
        time.sleep(0.2)
        assert len(node.requests) < 30
        batches.close()
        assert sum(1 for _ in ba.iter_balance_changes(client, **INTERVAL, page_size=10)) > 30


def test_wrong_arguments_raise_at_the_call():
    with ba.Client("http://127.0.0.1:9") as client, pytest.raises(ValueError, match="page_size"):
        ba.iter_balance_changes(client, page_size=0)


def test_of_several_nodes_the_one_that_answers_best_is_asked():
    with LoopbackNode(ROWS, latency=0.5) as slow, LoopbackNode(ROWS) as fast:
        table = load([slow.url, fast.url])
    assert table.attrs["balance_analysis"]["steps_by_node"].keys() == {fast.url}


def test_nodes_that_fail_in_turn_are_enough():
    def flaky(index, _):
        return Fault.status(503) if index % 3 == 2 else None

    with LoopbackNode(ROWS, faults=flaky) as one, LoopbackNode(ROWS, faults=flaky) as two:
        table = load([one.url, two.url], page_size=5, workers=1)
    assert len(table) == len(ROWS)


def test_when_every_node_fails_the_last_failure_is_raised():
    with (
        LoopbackNode(html=503) as one,
        LoopbackNode(html=503) as two,
        pytest.raises(ba.RequestError) as raised,
    ):
        load([one.url, two.url])
    assert raised.value.status == 503


def test_a_rate_is_kept_by_all_workers_together():
    waits = []
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        client._throttle = Throttle(100, clock=lambda: 0.0, sleep=waits.append)
        ba.load_balance_changes(client, **INTERVAL, page_size=10, workers=8)
    assert len(node.requests) > 60
    assert sorted(waits) == pytest.approx([turn / 100 for turn in range(1, len(node.requests))])


def test_a_node_that_says_too_many_is_obeyed_by_all_workers(caplog):
    caplog.set_level(logging.WARNING, "balance_analysis")
    with LoopbackNode(ROWS, rate_limit=(30, 5)) as node, sleeping(time.sleep):
        table = load(node.url, page_size=100, workers=4)
    assert len(table) == len(ROWS)
    loaded = table.attrs["balance_analysis"]
    refused = [r for r in caplog.records if "asked again in" in r.getMessage()]
    assert 1 <= len(refused) <= 8
    assert loaded["throttled_seconds"] > 0
    assert loaded["retries"] >= len(refused)


def test_a_progress_bar_is_drawn_when_asked_for_and_only_then(capsys):
    with LoopbackNode(ROWS) as node:
        load(node.url, progress=False)
        assert capsys.readouterr().err == ""
        load(node.url, page_size=50, progress=True)
    assert "rows/s" in capsys.readouterr().err


def test_a_page_that_takes_too_long_is_asked_for_in_parts():
    def slow(_, request):
        return Fault.stalled(5) if int(request.get("pagination.first")) > 300 else None

    with LoopbackNode(ROWS, faults=slow) as node, ba.Client(node.url, timeout=0.5) as client:
        table = ba.load_balance_changes(client, **INTERVAL, page_size=1000, workers=2)
    assert len(table) == len(ROWS)


def rows_after(gaps):
    """Return rows of one account, a block each, by the microseconds between them."""
    times = itertools.accumulate(gaps, initial=FIRST)
    return [replace(ROWS[0], timestamp_ns=time * 1000, balance=1) for time in times]


def steps_of(node, **how):
    with ba.Client(node.url) as client:
        return list(NodeSource(client, **how).rows(FIRST, LATE // 1000))


def test_few_steps_are_settled_ahead_of_one_that_is_slow():
    """One answer is held back until no further request has come for a while."""
    # A block each, so that a step is one request.
    rows, workers, ahead = rows_after([1] * 1199), 2, []

    def wait(index, _):
        while index == HELD and ahead[-2:] != [len(node.requests)] * 2:
            ahead.append(len(node.requests))
            time.sleep(0.3)

    with LoopbackNode(rows, block_timestamp=LATE, faults=wait) as node:
        steps = steps_of(node, page_size=10, workers=workers)
        assert 2 * workers < ahead[-1] - HELD <= (AHEAD + QUEUED) * workers + 1
    assert [step.start for step in steps] == sorted(step.start for step in steps)
    assert sum(step.num_rows for step in steps) == len(rows)


@pytest.mark.parametrize("workers", [1, 4])
def test_pages_stay_at_what_a_node_answers(workers):
    def shrink(index, _):
        node.max_page_size = 50 if index >= 3 else 5000

    with LoopbackNode(rows_after([1] * 4000), block_timestamp=LATE, faults=shrink) as node:
        steps_of(node, page_size=200, workers=workers)
        asked = [int(each.get("pagination.first")) for each in node.requests]
    sizes = [size for size in asked if size != 1]
    assert len(sizes) > 48
    assert {*sizes[-24:]} == {50}


def test_a_second_run_asks_for_nearly_the_same_windows_whatever_the_latencies():
    """Rows stand ten times as dense in each second stretch."""
    rows = rows_after(([1] * 1000 + [10] * 100) * 3)

    def run(seed):
        latency = random.Random(seed)

        def wait(*_):
            time.sleep(latency.choice([0, 0.002, 0.008]))

        with LoopbackNode(rows, block_timestamp=LATE, faults=wait) as node:
            steps_of(node, page_size=25, workers=2)
            return len(node.requests)

    first, second = run(1), run(2)
    assert abs(first - second) <= 0.1 * first
