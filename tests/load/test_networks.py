"""Several addresses of one load are of one network, or the load names two that are not."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import run_export
from tests.loopback import LoopbackNode, random_history, spoilt
from tests.moments import from_microseconds, moment_text
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.serving import serving

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(41, rows=300, accounts=30, largest_block=4)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
END = TIMES[-1] + 3_600_000_000
PARTY = next(row.party_id for row in ROWS if row.party_id != "network")

stretches = st.lists(st.sampled_from([*TIMES, END]), min_size=2, max_size=2, unique=True).map(
    sorted
)
"""From when on, and before when, a node has rows; its last block is of the latter time."""


def of_another_network(shift):
    """Return rows as another network has them, as much later (in microseconds)."""
    return [
        replace(row, asset_id=row.asset_id[::-1], timestamp_ns=row.timestamp_ns + shift * 1000)
        for row in ROWS
    ]


def node_of(rows, stretch, **options):
    since, head = stretch
    kept = matching(rows, start=since, end=head)
    return LoopbackNode(kept, block_timestamp=head * 1000, **options)


def load(urls, start=TIMES[0], **options):
    bounds = {"start": from_microseconds(start), "end": from_microseconds(END)}
    with ba.Client(urls, timeout=10) as client:
        return ba.load_balance_changes(client, **bounds, on_bad_rows="quarantine", **options)


@given(
    st.tuples(stretches, stretches),
    st.sampled_from([None, 0, 7, 7_000_000]),
    st.sampled_from([TIMES[0], TIMES[60]]),
)
@settings(max_examples=25)
def test_two_nodes_are_refused_exactly_if_their_networks_differ_where_both_know_all_rows(
    held, shift, start
):
    networks = ROWS, ROWS if shift is None else of_another_network(shift)
    nodes = [node_of(rows, stretch) for rows, stretch in zip(networks, held, strict=True)]
    assume(all(node.rows for node in nodes))
    since = max(start, *(node.rows[0].timestamp_ns // 1000 for node in nodes))
    until = min(head for _, head in held)
    common = {
        row.timestamp_ns // 1000 for node in nodes for row in matching(node.rows, start=since)
    }
    with nodes[0] as one, nodes[1] as two:
        if shift is None or not any(time < until for time in common):
            load([one.url, two.url], start)
            return
        with pytest.raises(ba.NetworkMismatchError, match="another network") as raised:
            load([one.url, two.url], start)
        said = str(raised.value)
        assert {one.url in said, two.url in said} == {True}
        assert any(moment_text(time) in said for time in common if time < until)


@given(
    st.lists(st.tuples(stretches, st.booleans()), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.tuples(stretches, st.booleans()),
    st.sampled_from([None, *TIMES[::8]]),
)
@settings(max_examples=40)
def test_nodes_of_one_network_are_not_refused_whatever_they_lack_or_spoil(
    behind, turns, alone, bad
):
    """One address hands its requests in turn to nodes that forgot, lag, or name no block.

    The other one's rows may be bad from some moment on.
    """
    spoil = spoilt(lambda row: bad is not None and int(row["timestamp"]) >= bad * 1000)
    backends = [node_of(ROWS, stretch, block_headers=headers) for stretch, headers in behind]
    stretch, headers = alone
    with (
        LoopbackNode(backends=backends, turns=turns) as balancer,
        node_of(ROWS, stretch, block_headers=headers, edit_row=spoil) as node,
        contextlib.suppress(ba.IncompleteError),
    ):
        load([balancer.url, node.url])


@pytest.mark.parametrize("filters", [{}, {"party_ids": [PARTY]}])
def test_a_served_archive_that_lacks_stretches_or_accounts_is_of_its_nodes_network(
    tmp_path, filters
):
    whole = LoopbackNode(ROWS, block_timestamp=END * 1000)
    for start, end in ((TIMES[0], TIMES[20]), (TIMES[40], TIMES[60])):
        run_export(whole, tmp_path / "a", start=start, end=end, **filters)
    with serving(ba.Archive(tmp_path / "a")) as url, whole as node:
        for urls in ([url, node.url], [node.url, url]):
            table = load(urls, **filters)
            assert lines_of_table(table) == lines_of_rows(matching(ROWS, **filters))


def test_each_further_address_is_compared_in_two_requests():
    totals = []
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stretch = (TIMES[0], END)
            nodes = [stack.enter_context(node_of(ROWS, stretch)) for _ in range(len(totals) + 1)]
            load([node.url for node in nodes])
            totals.append(sum(len(node.requests) for node in nodes))
    asking_for_the_reach = 2
    assert totals[1] - totals[0] <= 2 * asking_for_the_reach + 2
    growth = {more - less for less, more in itertools.pairwise(totals[1:])}
    assert growth == {asking_for_the_reach + 2}
