"""An export proves rows only by the node that sent them, never by another node's memory."""

import contextlib
import datetime as dt
import itertools
from collections import Counter

import pytest
import requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    START,
    assert_holds,
    in_spans,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
    unchanged,
)
from tests.loopback import LIMITS, V71_LIMITS, Fault, Kind, LoopbackNode, nobody, spoilt
from tests.moments import both, from_microseconds, range_text
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.serving import serving

ROWS = spread_history(31, rows=300)
TIMES = sorted({row.time for row in ROWS})
RECENT = next(time for time in TIMES if time >= END - 20 * HOUR)


STRANGERS = [row._replace(asset_id=row.asset_id[::-1]) for row in ROWS]
"""Rows of another network."""

CLOSED = {**V71_LIMITS, "canProposeAsset": False}


def between(start=None, end=None):
    return matching(ROWS, start=start, end=end)


def export_from(nodes, folder, **options):
    return run_export(nodes, folder, **{"start": START, "end": END, "workers": 1, **options})


def assert_true(folder):
    """Check that no row of a proven stretch is missing."""
    held = lines_of_table(ba.Archive(folder).read(start="2020-01-01", partial=True))
    due = in_spans(ROWS, [span for span in spans_of(folder) if span[2]])
    assert {*lines_of_rows(due)} <= {*held}


def test_a_node_that_gave_only_its_head_does_not_prove_a_forgetful_nodes_rows(tmp_path, caplog):
    """After the head was asked, the first node is down, and the other holds the last hours."""

    def only_limits(_, request):
        return None if request.path == LIMITS else Fault.status(503)

    with node_of(ROWS, faults=only_limits) as full, node_of(between(RECENT)) as short:
        export_from([full, short], tmp_path / "a")
    assert spans_of(tmp_path / "a") == [(START, RECENT, False), (RECENT, END, True)]
    answers = state_of(tmp_path / "a").evidence.answers
    assert {answer.node.name for answer in answers} == {short.url}
    said = f"not complete for {range_text(START, RECENT)}"
    assert [said in each.message for each in caplog.records].count(True) == 1


def at(tenth):
    return START + (END - START) * tenth // 10


def is_in(spans, moment):
    return any(start <= moment < end for start, end in spans)


reaches = st.sets(st.integers(0, 10).map(at), min_size=2, max_size=2).map(sorted)
"""From when to when a node has rows."""


PLAIN = {"later": None, "turns": [], "page_size": 25, "workers": 1, "start": None}


@settings(max_examples=8)
@example(nodes=[[RECENT, END], [START, END]], **PLAIN)
@example(nodes=[[START, END], [RECENT, END]], **PLAIN)
@given(
    nodes=st.lists(reaches, min_size=1, max_size=3),
    later=st.none() | st.tuples(st.integers(1, 30), reaches),
    turns=st.lists(st.integers(0, 2), max_size=5),
    page_size=st.sampled_from([25, 5000]),
    workers=st.sampled_from([1, 4]),
    start=st.sampled_from([from_microseconds(START), None]),
)
def test_rows_that_nodes_hold_are_proven_and_not_those_they_meanwhile_forget_or_lack(
    *, tmp_path_factory, nodes, later, turns, page_size, workers, start
):
    folder, asked = tmp_path_factory.mktemp("nodes") / "a", itertools.count()
    with contextlib.ExitStack() as stack:
        servers = [node_of(between(*reach), head=reach[1]) for reach in nodes]

        def change(*_):
            if later and next(asked) >= later[0]:
                for server in servers:
                    server.replace(between(*later[1]))
                    server.block_timestamp = later[1][1] * 1000

        for server in servers:
            server.faults = change
        balancer = LoopbackNode(backends=servers, turns=turns, faults=change)
        addresses = [stack.enter_context(node) for node in ([balancer] if turns else servers)]
        for _ in range(2):
            with contextlib.suppress(ba.IncompleteError):
                export_from(addresses, folder, start=start, page_size=page_size, workers=workers)
                assert_true(folder)
    if later or turns:
        return
    best = max(until for _, until in nodes)
    held = [(between(*reach)[0].time, reach[1]) for reach in nodes]
    # Its last block is whole, as the chain rests.
    held = [(start, end + (end == best < END)) for start, end in held]
    evidence = state_of(folder).evidence
    edges = {edge + beside for span in held for edge in span for beside in (-1, 0)}
    wrong = [x for x in edges if is_in(evidence.complete, x) != is_in(held, x)]
    assert not [x for x in wrong if START <= x < END]
    reach_of = {server.url: [span] for server, span in zip(servers, held, strict=True)}
    proofs = [answer for answer in evidence.answers if answer.reached]
    assert all(both(reach_of[x.node.name], [x.span]) == [x.span] for x in proofs)


@pytest.mark.parametrize("slower", [0, 1])
def test_two_healthy_nodes_of_an_idle_chain_prove_its_last_block(tmp_path, slower):
    with node_of(ROWS, head=TIMES[-1]) as one, node_of(ROWS, head=TIMES[-1]) as other:
        (one, other)[slower].faults = lambda *_: Fault(Kind.STALLED, 0.02)
        export_from([one, other], tmp_path / "a")
    assert_holds(tmp_path / "a", ROWS, whole=(START, TIMES[-1] + 1))
    for node in (one, other):
        assert sum(request.path == LIMITS for request in node.requests) <= 2


def test_lagging_or_forgetful_nodes_at_one_address_are_not_of_another_network(tmp_path):
    lag = START + DAY
    run_export(node_of(ROWS), tmp_path / "a", start=START, end=END - DAY)
    backends = [node_of(ROWS), node_of(between(end=lag), head=lag), node_of(between(END - HOUR))]
    for turns in itertools.permutations(range(3)):
        with LoopbackNode(backends=backends, turns=turns) as node:
            export_from([node], tmp_path / "a", end=from_microseconds(END - DAY))
    with LoopbackNode(backends=backends, turns=(0, 1, 0)) as node:
        export_from([node], tmp_path / "a")
    assert_true(tmp_path / "a")


@pytest.mark.parametrize("order", [1, -1])
def test_another_networks_node_is_left_out_with_a_warning_and_refused_if_alone(
    tmp_path, caplog, order
):
    folder, later = tmp_path / "a", END + HOUR
    with node_of(ROWS) as node, node_of(STRANGERS, head=later, limits=CLOSED) as stranger:
        export_from([node], folder, end=from_microseconds(END - DAY))
        with (
            node_of(STRANGERS) as another,
            unchanged(folder),
            pytest.raises(ba.NetworkMismatchError, match="another network"),
        ):
            export_from([stranger, another], folder)
        caplog.clear()
        run = export_from([stranger, node][::order], folder, end=from_microseconds(later))
    assert spans_of(folder) == [(START, END + 1, True)]
    assert_holds(folder, ROWS)
    assert run.source == node.url
    assert ba.Archive(folder).limits()["can_propose_asset"].tolist() == [True]
    [said] = [each for each in caplog.messages if "another network" in each]
    assert said.startswith(stranger.url)


@pytest.mark.parametrize("order", [1, -1])
def test_a_new_archive_is_not_begun_from_nodes_of_different_networks(tmp_path, order):
    """The one that lags would be followed by the other."""
    with node_of(between(end=RECENT), head=RECENT) as node, node_of(STRANGERS) as stranger:
        with pytest.raises(ba.NetworkMismatchError) as raised:
            export_from([node, stranger][::order], tmp_path / "a")
        assert not (tmp_path / "a" / "_archive.json").exists()
    assert {url in str(raised.value) for url in (node.url, stranger.url)} == {True}


def test_nodes_that_have_the_archives_rows_are_not_compared_again(tmp_path):
    run_export(node_of(ROWS), tmp_path / "a", start=START, end=RECENT)
    totals = []
    for count in (2, 3):
        with contextlib.ExitStack() as stack:
            nodes = [stack.enter_context(node_of(ROWS)) for _ in range(count)]
            export_from(nodes, tmp_path / "a", dry_run=True)
            totals.append(sum(len(node.requests) for node in nodes))
    limits, archived_row, reach = 1, 1, 2
    assert totals[1] - totals[0] == limits + archived_row + reach


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("headers", [True, False])
def test_a_lagging_node_among_several_is_named_in_a_warning(tmp_path, caplog, order, headers):
    lag = END - DAY
    with (
        node_of(between(end=lag), head=lag, block_headers=headers) as behind,
        node_of(ROWS, block_headers=headers) as node,
    ):
        nodes = [behind, node][::order]
        export_from(nodes, tmp_path / "a", end=from_microseconds(END - 2 * DAY))
        assert "lags" not in caplog.text
        run = export_from(nodes, tmp_path / "a")
    assert not run.lagging
    held = ROWS if headers else between(end=TIMES[-1])
    assert_holds(tmp_path / "a", held, whole=(START, TIMES[-1]))
    assert caplog.text.count(f"{behind.url} lags") == 1


def test_a_node_without_block_headers_that_lags_and_catches_up_loses_no_row(tmp_path):
    folder = tmp_path / "a"
    behind = between(end=END - 27 * HOUR)
    newest = behind[-1].time
    node = node_of(behind, block_headers=False)
    run_export(node, folder, start=START)
    assert spans_of(folder) == [(START, newest, True)]
    again = run_export(node, folder)
    assert (again.spans, again.rows, again.lagging) == ([], 0, False)
    node.replace(ROWS)
    run_export(node, folder)
    assert spans_of(folder) == [(START, TIMES[-1], True)]
    assert_holds(folder, ROWS)
    node.replace(behind)
    assert run_export(node, folder).lagging
    assert spans_of(folder) == [(START, TIMES[-1], True)]


def test_a_newest_row_without_a_readable_time_hides_no_other_rows(tmp_path):
    last = max(ROWS, key=lambda row: row.time)

    spoil = spoilt(lambda row: row["timestamp"] == str(last.time * 1000), timestamp="zz")
    run_export(node_of(ROWS, block_headers=False, edit_row=spoil), tmp_path / "a", start=START)
    times = [time for time in TIMES if time < TIMES[-1]]
    # The row may be of any moment that was asked for.
    assert spans_of(tmp_path / "a") == [(START, times[-1], False)]


@pytest.mark.parametrize("seconds", [30.0, -1.0])
def test_rows_that_another_node_sends_differently_or_lacks_are_disputed(
    tmp_path, monkeypatch, seconds
):
    monkeypatch.setattr("balance_analysis.fill.fill.SECONDS_TO_PROOF", seconds)
    folder, (gone, changed) = tmp_path / "a", (ROWS[-20], ROWS[-3])
    others = [row for row in ROWS if row not in (gone, changed)]
    others.append(changed._replace(balance=changed.balance + 1))
    with node_of(ROWS) as one, node_of(others, head=END + HOUR) as two:
        run_export(one, folder, start=START)
        again = run_export(one, folder, end=END, overlap=dt.timedelta(days=9))
        assert (again.conflicts, state_of(folder).evidence.disputed) == (0, ())
        run = run_export(two, folder, overlap=dt.timedelta(days=9))
    assert run.conflicts == 2
    disputed = {span: node.name for span, node in state_of(folder).evidence.disputed}
    at = [row.time for row in (gone, changed)]
    assert disputed == {(at[0], at[0] + 1): two.url, (at[1], at[1] + 1): one.url}
    assert [start for start, _ in state_of(folder).evidence.unproven] == at


def test_more_differing_rows_than_are_listed_singly_leave_all_their_time_unproven(tmp_path):
    rows = spread_history(31, rows=1200)
    others = [row._replace(balance=row.balance + (row.time > START + HOUR)) for row in rows]
    run_export(node_of(rows), tmp_path / "a", start=START)
    with node_of(others, head=END + HOUR) as node:
        run = run_export(node, tmp_path / "a", overlap=dt.timedelta(days=9))
    times = [row.time for row in rows if row.time > START + HOUR]
    assert run.conflicts == len(times) > 1000
    assert [*state_of(tmp_path / "a").evidence.unproven] == [(times[0], times[-1] + 1)]


def test_rows_that_one_proof_leaves_open_are_disputed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("balance_analysis.fill.fill.SECONDS_TO_PROOF", -1.0)
    begin, refused = START + DAY, []
    gone = next(row.time for row in ROWS if row.time >= begin)

    def refuse(_, request):
        if request.params.get("pagination.newestFirst") == ["true"] and not refused:
            refused.append(request)
            return Fault.status(400)
        return None

    others = [row for row in ROWS if row.time != gone]
    with node_of(ROWS) as one, node_of(others, head=END + HOUR, faults=refuse) as two:
        run_export(one, tmp_path / "a", start=begin)
        run = run_export(two, tmp_path / "a", overlap=dt.timedelta(days=9))
    assert refused
    assert run.conflicts == len(ROWS) - len(others)
    assert [span for span, _ in state_of(tmp_path / "a").evidence.disputed] == [(gone, gone + 1)]


def test_a_copy_of_an_archive_is_proven_before_its_first_row_too(tmp_path):
    own = {"party_ids": next(row.party_id for row in ROWS if row.time > RECENT)}
    run_export(node_of(ROWS), tmp_path / "a", start=START, end=END, **own)
    with serving(ba.Archive(tmp_path / "a")) as url:
        run_export(url, tmp_path / "b", start=START, end=END, **own)
    assert spans_of(tmp_path / "b") == [(START, END, True)]


class Counting(requests.Session):
    """A session that notes which addresses were asked."""

    def __init__(self):
        super().__init__()
        self.asked = Counter()

    def get(self, url, **how):
        self.asked["http://" + url.split("/")[2]] += 1
        return super().get(url, **how)


@pytest.mark.parametrize(("is_load", "order"), [(True, 1), (False, 1), (False, -1)])
def test_a_node_that_refuses_connections_is_tried_once_per_run(tmp_path, is_load, order):
    with contextlib.ExitStack() as stack:
        dead, node, session = map(stack.enter_context, (nobody(), node_of(ROWS), Counting()))
        client = stack.enter_context(ba.Client([dead, node.url][::order], session=session))
        for count, end in ((1, END - DAY), (2, END)):
            if is_load:
                table = ba.load_balance_changes(client, end=from_microseconds(end), page_size=20)
            else:
                ba.export(client, tmp_path / "a", end=from_microseconds(end))
            assert session.asked[dead] == count
        held = table if is_load else ba.Archive(tmp_path / "a").read()
    assert lines_of_table(held) == lines_of_rows(ROWS)


def test_the_only_remaining_node_is_retried_although_it_refuses_connections(tmp_path):
    with contextlib.ExitStack() as stack:
        dead, other, session = map(stack.enter_context, (nobody(), nobody(), Counting()))
        client = stack.enter_context(ba.Client([dead, other], session=session))
        with pytest.raises(ba.RequestError, match="can't be reached") as raised:
            ba.export(client, tmp_path / "a", end=from_microseconds(END))
    assert raised.value.refused
    assert session.asked[dead] == 1
    assert session.asked[other] > 1
