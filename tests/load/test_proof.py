"""Behind one address are nodes that remember differently; whatever is called known is true."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.columns import known_of
from tests.loopback import LoopbackNode, histories, random_history
from tests.moments import from_microseconds
from tests.node.asking import client_to
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.waits import without_waits

DAY = 86_400_000_000
WHAT = ("nothing", "asset_id", "party_ids", "market_ids", "account_types")


@pytest.fixture(autouse=True, scope="module")
def retries_without_waits():
    with without_waits():
        yield


def time_of(row):
    return row.timestamp_ns // 1000


def stretched(history, days):
    """Return a history that takes as many days, if it took less."""
    if not history:
        return []
    begin, end = history[0].timestamp_ns, history[-1].timestamp_ns
    factor = max(1, days * DAY * 1000 // max(end - begin, 1000))
    return [
        dataclasses.replace(row, timestamp_ns=begin + (row.timestamp_ns - begin) * factor)
        for row in history
    ]


@st.composite
def balancers(draw):
    """Return rows, what a load asks for, and a node that hands each request to another node."""
    rows = stretched(
        draw(histories(most_rows=120, most_accounts=12, largest_block=6)),
        draw(st.sampled_from([0, 300, 1000])),
    )
    times = sorted({time_of(row) for row in rows}) or [1_680_307_200_000_000]
    nodes = []
    for _ in range(draw(st.integers(1, 3))):
        since, until = draw(st.sampled_from(times)), draw(st.sampled_from(times))
        if draw(st.booleans()):
            since, until = times[0], times[-1]
        kept = [row for row in rows if since <= time_of(row) < until]
        nodes.append(
            LoopbackNode(kept, block_timestamp=until * 1000, block_headers=draw(st.booleans()))
        )
    turns = draw(st.lists(st.integers(0, 2), min_size=1, max_size=9))
    asked = dict.fromkeys(("start", "end"))
    asked["start"] = draw(st.sampled_from(times)) + draw(st.sampled_from([-DAY, -1, 0, 1]))
    asked["end"] = times[-1] + DAY
    name = draw(st.sampled_from(WHAT))
    if rows and name != "nothing":
        values = {getattr(row, name.removesuffix("s")) for row in rows} - {""}
        value = draw(st.sampled_from(sorted(values))) if values else "network"
        asked |= {name: value if name == "asset_id" else [value]} if values else {}
    if name == "party_ids" and draw(st.booleans()):
        # More than fit into one request.
        asked[name] = [*(f"{n:064x}" for n in range(60)), *sorted({x.party_id for x in rows})]
    return rows, asked, LoopbackNode(backends=nodes, turns=turns)


def load(node, asked, **options):
    moments = {name: from_microseconds(asked[name]) for name in ("start", "end")}
    client = client_to(node)
    return ba.load_balance_changes(client, **{**asked, **moments}, **options)


def assert_true(table, rows, asked):
    """Check that each row that was asked for is there, in what is known."""
    held = set(lines_of_table(table))
    for start, end in known_of(table):
        assert asked["start"] <= start < end <= asked["end"]
        wanted = {**asked, "start": start, "end": end}
        assert set(lines_of_rows(matching(rows, **wanted))) <= held


@settings(max_examples=25)
@given(balancers(), st.sampled_from([3, 10, 1000]), st.integers(1, 3))
def test_of_nodes_behind_one_address_nothing_false_is_called_known(balancer, page_size, workers):
    rows, asked, node = balancer
    try:
        table = load(node, asked, page_size=page_size, workers=workers)
    except ba.IncompleteError:
        return
    assert_true(table, rows, asked)


ROWS = stretched(random_history(3, rows=400, accounts=30), 1000)
TIMES = sorted({time_of(row) for row in ROWS})
LATE = next(row for row in reversed(ROWS) if row.party_id != "network" and row.market_id)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("page_size", [7, 1000])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"asset_id": LATE.asset_id},
        {"party_ids": [LATE.party_id]},
        {"party_ids": [LATE.party_id], "market_ids": [LATE.market_id]},
        {"account_types": [LATE.account_type]},
        {"party_ids": ["f" * 64]},
        {"party_ids": [f"{n:064x}" for n in range(61)] + [LATE.party_id]},
    ],
    ids=["all", "asset", "party", "both", "type", "nobody", "many"],
)
def test_of_one_whole_node_all_is_known_over_years_whoever_is_asked_for(
    filters, page_size, workers
):
    asked = {"start": TIMES[0], "end": TIMES[-1], **filters}
    assert TIMES[-1] - TIMES[0] > 2 * 366 * DAY
    node = LoopbackNode(ROWS, block_timestamp=(TIMES[-1] + DAY) * 1000)
    table = load(node, asked, page_size=page_size, workers=workers)
    assert known_of(table) == ((TIMES[0], TIMES[-1]),)
    assert lines_of_table(table) == lines_of_rows(matching(ROWS, **asked))


def balancer(turns, *parts):
    """Return a node before others: (first moment, last block) of what each has of all rows."""
    backends = [
        LoopbackNode(
            [row for row in ROWS if since <= time_of(row) < head], block_timestamp=head * 1000
        )
        for since, head in parts
    ]
    return LoopbackNode(backends=backends, turns=turns)


def test_a_node_that_lags_does_not_prove_what_another_has_forgotten():
    start, later, end = TIMES[0] + 2, TIMES[6], TIMES[12]
    assert start < TIMES[1] < end < start + 360 * DAY
    asked = {"start": start, "end": end}
    node = balancer((0, 1), (later, TIMES[-1]), (TIMES[0], start))
    table = load(node, asked, workers=1)
    assert_true(table, ROWS, asked)
    assert known_of(table) == ((later, end),)


def test_each_part_of_a_long_list_is_proven_by_itself():
    first, second = sorted({row.party_id for row in ROWS[:80]} - {"network"})[:2]
    parties = [first, *(f"{n:064x}" for n in range(59)), second]
    later = next(time_of(row) for row in ROWS[80:] if row.party_id == second)
    asked = {"start": TIMES[0], "end": TIMES[-1], "party_ids": parties}
    node = balancer((0, 1, 1, 1, 1), (TIMES[0], TIMES[-1]), (later, TIMES[-1]))
    table = load(node, asked, workers=1)
    assert_true(table, ROWS, asked)
    assert len(table) < len(matching(ROWS, **asked))


def test_a_block_that_a_page_cuts_is_not_proven():
    def row_at(place, party):
        return dataclasses.replace(ROWS[0], timestamp_ns=TIMES[place] * 1000, party_id=party)

    # In a block, newest first, the other account's row comes first.
    parties = (f"{number:064x}" for number in (1, 2))
    own, other = sorted(parties, key=lambda party: row_at(0, party).account_id)
    rows = [*(row_at(place, own) for place in (2, 5)), *(row_at(n, other) for n in (0, 2, 3, 4))]
    head = {"block_timestamp": TIMES[9] * 1000}
    forgetful = LoopbackNode([row for row in rows if time_of(row) > TIMES[4]], **head)
    whole = LoopbackNode(rows, max_page_size=4, cap_silently=True, **head)
    asked = {"start": TIMES[0], "end": TIMES[9], "party_ids": [own]}
    table = load(LoopbackNode(backends=[forgetful, whole], turns=(0, 0, 1, 1, 1, 1)), asked)
    assert known_of(table) == ((TIMES[2] + 1, TIMES[9]),)
