"""Several addresses of one load are of one network, or the load names two that are not."""

import contextlib
import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import END, START, knowing, loaded, run_export, spread_history
from tests.loopback import LoopbackNode, spoilt
from tests.moments import moment_text
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.serving import serving

ROWS = spread_history(41, rows=300, largest_block=4)
TIMES = sorted({row.time for row in ROWS})
PARTY = next(row.party_id for row in ROWS if row.party_id != "network")

stretches = st.sets(st.sampled_from([*TIMES, END]), min_size=2, max_size=2).map(sorted)
"""From when on, and before when, a node has rows; its last block is of the latter time."""


def of_another_network(shift):
    """Return rows as another network has them, as much later (in microseconds)."""
    return [row._replace(asset_id=row.asset_id[::-1], time=row.time + shift) for row in ROWS]


@given(
    st.tuples(stretches, stretches),
    st.sampled_from([None, 0, 7, 7_000_000]),
    st.sampled_from([TIMES[0], TIMES[60]]),
)
@settings(max_examples=10)
def test_two_nodes_are_refused_exactly_if_they_differ_where_both_know_all_rows(held, shift, start):
    networks = ROWS, ROWS if shift is None else of_another_network(shift)
    nodes = [knowing(rows, *stretch) for rows, stretch in zip(networks, held, strict=True)]
    assume(all(node.rows for node in nodes))
    since = max(start, *(node.rows[0].time for node in nodes))
    until = min(head for _, head in held)
    common = {row.time for node in nodes for row in matching(node.rows, start=since)}
    with nodes[0] as one, nodes[1] as two:
        if shift is None or not any(time < until for time in common):
            loaded([one, two], start)
            return
        with pytest.raises(ba.NetworkMismatchError, match="another network") as raised:
            loaded([one, two], start)
        said = str(raised.value)
        assert {one.url in said, two.url in said} == {True}
        assert any(moment_text(time) in said for time in common if time < until)


@given(
    st.lists(st.tuples(stretches, st.booleans()), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.tuples(stretches, st.booleans()),
    st.sampled_from([None, *TIMES[::8]]),
)
@settings(max_examples=14)
def test_nodes_of_one_network_pass_whatever_rows_are_missing_or_bad(behind, turns, alone, bad):
    """One address hands its requests in turn to nodes that forgot, lag, or name no block.

    The other one's rows may be bad from some moment on.
    """
    spoil = spoilt(lambda row: bad is not None and int(row["timestamp"]) >= bad * 1000)
    backends = [knowing(ROWS, *stretch, block_headers=headers) for stretch, headers in behind]
    stretch, headers = alone
    with (
        LoopbackNode(backends=backends, turns=turns) as balancer,
        knowing(ROWS, *stretch, block_headers=headers, edit_row=spoil) as node,
        contextlib.suppress(ba.IncompleteError),
    ):
        loaded([balancer, node], on_bad_rows="quarantine")


@pytest.mark.parametrize("filters", [{}, {"party_ids": [PARTY]}])
def test_a_served_archive_that_lacks_time_or_accounts_is_of_its_nodes_network(tmp_path, filters):
    whole = knowing(ROWS)
    for start, end in ((START, TIMES[20]), (TIMES[40], TIMES[60])):
        run_export(whole, tmp_path / "a", start=start, end=end, **filters)
    with serving(ba.Archive(tmp_path / "a")) as url, whole as node:
        for sources in ([url, node], [node, url]):
            table = loaded(sources, **filters)
            assert lines_of_table(table) == lines_of_rows(matching(ROWS, **filters))


def test_each_further_address_is_compared_in_two_requests():
    totals = []
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            nodes = [stack.enter_context(knowing(ROWS)) for _ in range(len(totals) + 1)]
            loaded(nodes)
            totals.append(sum(len(node.requests) for node in nodes))
    asking_for_the_reach = 2
    assert totals[1] - totals[0] <= 2 * asking_for_the_reach + 2
    growth = {more - less for less, more in itertools.pairwise(totals[1:])}
    assert growth == {asking_for_the_reach + 2}
