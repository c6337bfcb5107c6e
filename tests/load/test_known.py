"""What a load knows: up to the least head, from the oldest row of the node that sent the rows.

A source of rows proves what it yielded, by its pages and few questions more.
"""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest
import requests

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.load.source import NodeSource
from tests.cli.test_commands import run
from tests.columns import ATTRS_KEY, known_of, lacking
from tests.loopback import Fault, LoopbackNode, random_history
from tests.loopback.node import LIMITS
from tests.moments import from_microseconds, moment_text, range_text, to_microseconds
from tests.node.asking import client_to
from tests.node.truth import lines_of_rows, lines_of_table

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(21, rows=600, accounts=60, largest_block=12)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
START, END = TIMES[0], TIMES[-1] + 3_600_000_000
LATER, MIDDLE = TIMES[30], TIMES[len(TIMES) // 2]
QUIET = next(time - 2 for before, time in itertools.pairwise(TIMES) if time - before > 9)


def node_of(rows=ROWS, *, head=END, **options):
    return LoopbackNode(rows, **{"block_timestamp": head * 1000, **options})


def until(moment):
    return [row for row in ROWS if row.timestamp_ns < moment * 1000]


def since(moment):
    return [row for row in ROWS if row.timestamp_ns >= moment * 1000]


def load(*nodes, start=START, end=END, **options):
    bounds = [bound if bound is None else from_microseconds(bound) for bound in (start, end)]
    with ba.Client([node.url for node in nodes], timeout=10) as client:
        return ba.load_balance_changes(client, start=bounds[0], end=bounds[1], **options)


def assert_true(table, truth=ROWS):
    """Check that each row of the truth in what is known of a table is there."""
    held = set(lines_of_table(table))
    for start, end in known_of(table):
        due = [row for row in truth if start <= row.timestamp_ns // 1000 < end]
        assert set(lines_of_rows(due)) <= held


def noted(table, name):
    return table.attrs[ATTRS_KEY][name]


def test_a_load_is_known_up_to_the_nodes_last_block_and_says_so_once(caplog):
    with node_of(until(MIDDLE), head=MIDDLE) as node:
        table = load(node)
    assert known_of(table) == ((START, MIDDLE),)
    assert caplog.text.count(f"knows blocks only up to {moment_text(MIDDLE)}") == 1
    assert lacking(table.attrs[ATTRS_KEY]) == [(MIDDLE, END)]


def test_without_an_end_the_interval_ends_where_the_node_does_and_nothing_is_said(caplog):
    with node_of(head=TIMES[-1]) as node:
        table = load(node, end=None)
    assert known_of(table) == ((START, TIMES[-1]),)
    assert noted(table, "end") == from_microseconds(TIMES[-1]).isoformat()
    assert len(table) == len(ROWS)
    assert caplog.text == ""


def test_a_start_before_the_oldest_row_is_known_from_that_row_on_and_says_so_once(caplog):
    with node_of(since(MIDDLE)) as node:
        table = load(node)
    assert known_of(table) == ((MIDDLE, END),)
    said = f"may have forgotten rows of {range_text(START, MIDDLE)}"
    assert caplog.text.count(said) == 1


def test_an_older_row_of_any_account_shows_that_nothing_is_forgotten(caplog):
    party = next(row.party_id for row in ROWS if row.party_id != "network")
    with node_of() as node:
        table = load(node, start=START + 1, party_ids=[party])
    assert known_of(table) == ((START + 1, END),)
    assert caplog.text == ""


def test_without_a_start_the_interval_begins_at_the_oldest_row_and_nothing_is_said(caplog):
    with node_of(since(MIDDLE)) as node:
        table = load(node, start=None)
    assert known_of(table) == ((MIDDLE, END),)
    assert caplog.text == ""


def test_the_rows_of_a_node_that_forgot_are_not_vouched_for_by_one_that_fails():
    """The first node is asked what it remembers, and is gone when the rows are."""

    def only_the_oldest_row(_, request):
        is_row = request.path != LIMITS and request.get("pagination.first") != "1"
        return Fault.status(503) if is_row else None

    with node_of(faults=only_the_oldest_row) as deep, node_of(since(MIDDLE)) as shallow:
        table = load(deep, shallow)
    assert known_of(table) == ((MIDDLE, END),)
    assert_true(table)


@pytest.mark.parametrize(("start", "more"), [(START, 0), (QUIET, 1)])
def test_what_lies_before_the_first_row_costs_one_row_more(start, more):
    with node_of() as node:
        assert known_of(load(node, start=start, workers=1)) == ((start, END),)
        assert len(node.requests) == 1 + more


def test_a_bad_row_of_another_account_does_not_fail_a_load():
    other = ROWS[0].party_id
    party = next(row.party_id for row in ROWS if row.party_id not in (other, "network"))

    def spoil(row):
        return {**row, "balance": "x"} if row["partyId"] == other else row

    with node_of(edit_row=spoil) as node:
        assert known_of(load(node, party_ids=[party])) == ((START, END),)


def test_without_block_headers_what_is_known_ends_at_the_newest_row(caplog):
    """A node that lags by 27 hours is asked again once it has caught up, and nothing is lost."""
    with node_of(until(MIDDLE), block_headers=False) as node:
        table = load(node)
        newest = max(time for time in TIMES if time < MIDDLE)
        assert known_of(table) == ((START, newest),)
        assert caplog.text.count(f"its newest row is of {moment_text(newest)}") == 1
        node.replace(ROWS)
        table = load(node, start=newest)
        assert known_of(table) == ((newest, TIMES[-1]),)
        assert lines_of_table(table) == lines_of_rows(since(newest))


def test_without_block_headers_a_row_at_the_end_or_later_shows_that_all_is_known(caplog):
    with node_of(block_headers=False) as node:
        assert known_of(load(node, end=MIDDLE)) == ((START, MIDDLE),)
    assert caplog.text == ""


def test_without_block_headers_what_came_before_a_node_caught_up_is_not_known():
    """It lags when it is asked for rows, and has caught up when it is asked again."""
    with node_of(until(MIDDLE), block_headers=False) as node:

        def catching_up(index, _):
            pages = [x for x in node.requests[:index] if x.get("pagination.first") != "1"]
            if len(pages) > 1:  # the first shows that it names no block
                node.replace(ROWS)

        node.faults = catching_up
        table = load(node, page_size=1000, workers=1)
    assert len(table) == len(until(MIDDLE))
    assert_true(table)


def test_a_node_that_does_not_answer_after_the_load_has_proven_its_pages_alone(caplog):
    with node_of() as node:

        def gone(index, _):
            has_sent = any(x.get("pagination.first") != "1" for x in node.requests[:index])
            return Fault.status(503) if has_sent else None

        node.faults = gone
        table = load(node, start=START - 1, workers=1)
    assert len(table) == len(ROWS)
    assert known_of(table) == ((START, END),)
    assert "it is not known what the node may have forgotten" in caplog.text


def test_the_order_of_addresses_does_not_matter(caplog):
    """One remembers less, one lags, one names no block, and one is gone."""
    with (
        node_of(since(TIMES[60])) as shallow,
        node_of(until(MIDDLE), head=MIDDLE) as behind,
        node_of(until(TIMES[40]), block_headers=False) as silent,
        LoopbackNode() as gone,
    ):
        gone.stop()
        nodes = [shallow, behind, silent, gone]
        for turn in range(len(nodes)):
            table = load(*nodes[turn:], *nodes[:turn], page_size=100)
            assert known_of(table) == ((START, END),)
            assert lines_of_table(table) == lines_of_rows(ROWS)
            assert gone.url not in noted(table, "steps_by_node")
    assert f"{behind.url} lags" in caplog.text


def origins(table):
    answers = json.loads(noted(table, "evidence"))["answers"]
    return {tuple(answer["node"]["origin"]) for answer in answers}


@pytest.mark.parametrize(
    ("header", "named"),
    [("10.0.0.1:3008, segments:test", ("10.0.0.1:3008", "segments:test")), ("", ())],
)
def test_a_served_archive_names_the_origins_of_its_answers(header, named):
    with node_of(extra_headers={"X-Origins": header}) as node:
        assert {tuple(sorted(each)) for each in origins(load(node))} == {named}


def test_an_address_behind_a_proxy_has_no_origin():
    with node_of() as node, requests.Session() as session:
        session.proxies = {"http": node.url}
        with ba.Client("http://node.test", session=session) as client:
            table = ba.load_balance_changes(
                client, start=from_microseconds(START), end=from_microseconds(END)
            )
    assert origins(table) == {()}


def test_a_bad_row_makes_its_moment_unknown_for_its_account_alone(caplog):
    bad = ROWS[300]
    moment = bad.timestamp_ns // 1000

    def spoil(row):
        wanted = bad.to_json()
        is_bad = all(row[name] == wanted[name] for name in wanted)
        return {**row, "balance": "x"} if is_bad else row

    with node_of(edit_row=spoil) as node:
        table = load(node, on_bad_rows="quarantine")
    assert known_of(table) == ((START, moment), (moment + 1, END))
    assert caplog.text.count("1 bad row set aside") == 1
    held = ba.balance_at(table, from_microseconds(END - 1))
    account = ("asset_id", "account_type", "party_id", "market_id")
    keys = held[[*account]].astype(str).apply(tuple, axis=1)
    ours = (bad.asset_id, bad.account_type, bad.party_id, bad.market_id)
    later = [row for row in ROWS if row.account == bad.account and row.order > bad.order]
    assert set(keys[held["balance"].isna()]) == (set() if later else {ours})


def test_a_bad_row_without_a_time_makes_its_step_unknown():
    bad = ROWS[300].to_json()

    def spoil(row):
        return {**row, "timestamp": "x"} if row["timestamp"] == bad["timestamp"] else row

    with node_of(edit_row=spoil) as node:
        table = load(node, on_bad_rows="quarantine", page_size=100, workers=1)
    assert_true(table)
    assert 0 < sum(end - start for start, end in known_of(table)) < END - START


def test_an_archive_knows_no_more_than_it_vouches_for(caplog):
    with demo.serve_sample() as url, ba.Client(url) as client:
        table = ba.load_balance_changes(client, start="2023-03-01", end="2023-06-01")
    assert known_of(table) == ((to_microseconds("2023-04-01"), to_microseconds("2023-05-01")),)
    assert caplog.text.count("known to be complete") == 1


def test_a_stream_says_at_its_end_what_is_not_known(caplog):
    with node_of(until(MIDDLE), head=MIDDLE) as node, ba.Client(node.url) as client:
        bounds = {"start": from_microseconds(START), "end": from_microseconds(END)}
        batches = list(ba.iter_balance_changes(client, **bounds))
    assert sum(batch.num_rows for batch in batches) == len(until(MIDDLE))
    assert caplog.text.count("known to be complete") == 1


@pytest.mark.parametrize(
    ("rows", "head", "code"),
    [(ROWS, END, 0), (until(MIDDLE), MIDDLE, 3), (since(MIDDLE), END, 3)],
    ids=["whole", "lagging", "forgetful"],
)
def test_fetch_ends_with_3_where_not_all_is_known(rows, head, code, tmp_path):
    path = tmp_path / "x.parquet"
    bounds = [from_microseconds(at).isoformat() for at in (START, END)]
    with node_of(rows, head=head) as node:
        done = run(
            "fetch", node.url, "-o", path, "--since", bounds[0], "--until", bounds[1], code=code
        )
    assert ("the node doesn't know all of the interval" in done.stderr) == (code == 3)
    assert lines_of_table(ba.read_parquet(path)) == lines_of_rows(rows)


def pages(node):
    return sum(request.get("pagination.first") != "1" for request in node.requests)


@pytest.mark.parametrize(
    ("spans", "complete"),
    [
        ([(LATER, END)], [(LATER, END)]),
        (
            [(TIMES[0], LATER), (LATER, TIMES[50]), (TIMES[70], END)],
            [(TIMES[0], TIMES[50]), (TIMES[70], END)],
        ),
    ],
)
def test_spans_that_begin_at_rows_cost_their_windows_alone(spans, complete):
    with client_to(node := node_of()) as client:
        source = NodeSource(client, page_size=50, workers=1)
        rows = sum(step.num_rows for span in spans for step in source.rows(*span))
        assert source.evidence().complete == complete
    assert len(node.requests) == pages(node)
    assert rows == sum(any(a <= x.timestamp_ns // 1000 < b for a, b in spans) for x in ROWS)


def test_a_question_that_failed_is_asked_again_and_one_that_was_answered_is_not():
    with node_of() as node, client_to(node) as client:
        source = NodeSource(client)
        list(source.rows(TIMES[0] - 2, END))
        node.faults = lambda *_: Fault.code(400, 3)
        assert source.evidence().complete == [(TIMES[0], END)]
        node.faults = []
        node.replace([dataclasses.replace(ROWS[0], timestamp_ns=(TIMES[0] - 9) * 1000), *ROWS])
        assert source.evidence().complete == [(TIMES[0] - 2, END)]
    with node_of() as node, client_to(node) as client:
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
        client_to(node) as client,
    ):
        source = NodeSource(client, page_size=1, workers=1)
        list(source.rows(TIMES[0] - 200, TIMES[0] - 100))
        with pytest.raises(ba.IncompleteError, match="ignores the order"):
            list(source.rows(LATER, TIMES[-1]))


def test_only_steps_that_were_taken_are_evidence():
    with node_of() as node, client_to(node) as client:
        source = NodeSource(client, page_size=20, workers=2)
        taken = 0
        steps = source.rows(LATER, END)
        for step in steps:
            taken = step.end
            if taken > TIMES[50]:
                break
        steps.close()
        assert source.evidence().complete == [(LATER, taken)]


@pytest.mark.parametrize("workers", [1, 4])
def test_what_came_before_it_was_pruned_stays_proven(workers):
    with node_of() as node, client_to(node) as client:
        source = NodeSource(client, page_size=20, workers=workers)
        for number, _ in enumerate(source.rows(LATER, END)):
            if number == 5:
                node.replace([row for row in ROWS if row.timestamp_ns // 1000 >= TIMES[90]])
                break
        for _ in source.rows(TIMES[80], END):
            pass
        evidence = source.evidence()
    assert evidence.complete[0][0] == LATER
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
    with node_of(head=TIMES[-1]) as node, client_to(node) as client:
        source = NodeSource(client)
        list(source.rows(LATER, END))
        assert source.evidence().bounds == (LATER, TIMES[-1])
        step, waits = last_block(source, node, **options)
        assert (step is not None) is is_whole
        assert waits == ([] if "before" in options else [10.0])
        assert source.evidence().complete == [(LATER, TIMES[-1] + is_whole)]
    if step is not None:
        assert step.num_rows == sum(row.timestamp_ns // 1000 == TIMES[-1] for row in ROWS)


def test_a_last_block_that_cannot_be_asked_for_is_left_out():
    with node_of(head=TIMES[-1]) as node, client_to(node) as client:
        source = NodeSource(client)
        list(source.rows(LATER, END))
        node.faults = lambda *_: Fault.status(503)
        assert last_block(source, node)[0] is None
