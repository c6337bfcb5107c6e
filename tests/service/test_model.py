"""The service answers as a node whose cursors lose nothing, and says which rows may be missing."""

import json
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.exporting import spread_history
from tests.loopback import LoopbackNode, Row
from tests.moments import uncovered
from tests.service.archives import HEIGHT, Held, archives
from tests.service.conftest import holding
from tests.service.rows import ASSETS, BASE, HOUR, MARKETS, MOMENTS, PARTIES, TYPES
from tests.serving import CHANGES

ASSET, PARTY, MARKET = "filter.assetId", "filter.partyIds", "filter.marketIds"
TYPE, START, END = "filter.accountTypes", "dateRange.startTimestamp", "dateRange.endTimestamp"
FIRST, AFTER, LAST, BEFORE = (f"pagination.{x}" for x in ("first", "after", "last", "before"))
NEWEST = "pagination.newestFirst"
PLACE = ("timestamp", "assetId", "accountType", "partyId", "marketId")
ALWAYS = {START: -(2**63) // 1000 + 1, END: 2**63 // 1000}
"""All microseconds that 64 bits of nanoseconds hold."""
BOUND = {"asset_id": ASSET, "party_ids": PARTY, "market_ids": MARKET, "account_types": TYPE}


class Node:
    """The tests' node, with the rows of an archive."""

    def __init__(self, held):
        self._node = LoopbackNode(held.rows, release="v0.73", lossy_cursors=False)
        history = self._node.history
        places = [place(row.to_json()) for row in history.rows]
        self.cursors = {each: history.cursor(n) for n, each in enumerate(places)}

    def ask(self, items):
        """Return the page, or `None` if the node refuses."""
        request = self._node.record(f"{CHANGES}?{urlencode(items)}", {})
        answer = self._node.respond(request)[0]
        return json.loads(answer.body)["balances"] if answer.status == 200 else None


def place(node):
    return tuple(node[name] for name in PLACE)


def cursors_of(service, node):
    """Return the cursor of each row, and check that the list has each row once, in order."""
    edges = [edge for page in service.pages({FIRST: 5000}) for edge in page["edges"]]
    nodes = [edge["node"] for edge in edges]
    assert [*map(place, nodes)] == [*node.cursors][::-1]
    return dict(zip(map(place, nodes), (edge["cursor"] for edge in edges), strict=True))


_OFFS = st.sampled_from((-1000, -1, 0, 0, 0, 1, 999, 1000))


@st.composite
def questions(draw, held):
    """Names and values of a query, most of them from the rows."""
    rows = held.rows or (Row(ASSETS[0], TYPES[0], PARTIES[0], "", BASE, 0),)
    row = st.sampled_from(rows)
    edges = st.sampled_from([BASE + moment for moment in (*MOMENTS, -48 * HOUR, 24 * HOUR)])
    moments = row.map(lambda x: x.time) | edges
    bounds = st.builds(lambda time, off: time * 1000 + off, moments, _OFFS)
    bounds |= st.sampled_from((-(2**63), 2**63 - 1, 0))
    sizes = st.integers(1, 9) | st.sampled_from((1000, 5000)) | st.integers(1, len(rows) + 1)
    there = {
        ASSET: row.map(lambda x: x.asset_id) | st.just("no such asset"),
        PARTY: row.map(lambda x: x.party_id) | st.sampled_from((*PARTIES, "1" * 64)),
        MARKET: st.sampled_from((*MARKETS[1:], "1" * 64)),
        # A filter of the default type matches no row, whatever is held.
        TYPE: row.map(lambda x: x.account_type).filter(lambda x: x != TYPES[2]) | st.just(TYPES[1]),
        FIRST: sizes,
        LAST: sizes,
        NEWEST: st.sampled_from(("true", "false", "1", "F")),
        START: bounds,
        END: bounds,
    }
    names = draw(st.lists(st.sampled_from(sorted(there)), max_size=4, unique=True))
    lists = {PARTY, MARKET, TYPE}
    return [
        (name, str(draw(there[name])))
        for name in names
        for _ in range(draw(st.integers(1, 3)) if name in lists else 1)
    ]


def from_any_row(asked, items, data):
    """Return a row that a question lists, or `None`, and whether the page is after or before it."""
    listed = asked[2].ask([item for item in items if item[0] not in (FIRST, LAST)])
    rows = [place(edge["node"]) for edge in listed["edges"]] if listed else []
    row = st.none() | st.sampled_from(rows) if rows else st.none()
    return data.draw(row), data.draw(st.sampled_from((AFTER, BEFORE)))


def compare(asked, items, row=None, side=AFTER):
    """Compare an answer with the node's, from the list's start or from a row of it."""
    service, held, node, cursors = asked
    ours, theirs = (
        [*items, *([(side, places[row])] if row else [])] for places in (cursors, node.cursors)
    )
    answer, right = service.get(ours), node.ask(theirs)
    assert (answer.status == 200) == (right is not None), answer.body
    if right is None:
        assert answer.error[:2] == (400, 3)
        return
    answered, edges = answer.json()["balances"], right["edges"]
    wanted = [{"node": x["node"], "cursor": cursors[place(x["node"])]} for x in edges]
    # A node whose page after the last row is empty says that there is a page before it.
    flags = {x: bool(edges) and right["pageInfo"][x] for x in ("hasNextPage", "hasPreviousPage")}
    ends = [wanted[place]["cursor"] if wanted else "" for place in (0, -1)]
    info = {**flags, "startCursor": ends[0], "endCursor": ends[1]}
    # Fields stand in the order of a node, too.
    assert json.dumps(answered) == json.dumps({"edges": wanted, "pageInfo": info})
    assert answer.headers.get("x-incomplete", "") == incomplete(held, dict(items), items)
    head = answer.headers.get("x-block-height"), answer.headers.get("x-block-timestamp")
    last = max((stretch.end for stretch in held.stretches), default=None)
    assert head == ((None, None) if last is None else (str(HEIGHT), f"{last}000"))


def incomplete(held, asked, items):
    """Return the text of the parts of a range that may lack rows, joined."""
    given = {x: int(asked[x]) // 1000 for x in (START, END) if x in asked}
    covered = [moment for stretch in held.stretches for moment in stretch[:2]]
    ends = {START: min(covered), END: max(covered)} if covered else ALWAYS
    if (ends | given)[START] >= (ends | given)[END]:
        ends = ALWAYS
    start, end = (ends | given)[START], (ends | given)[END]
    known = [(each.start, each.end) for each in held.stretches if each.proven]
    for option, values in held.bound:
        wanted = {value for name, value in items if name == BOUND[option]}
        if not wanted or not wanted <= {*values}:
            known = []
    gaps = uncovered(known, max(start, ALWAYS[START]), min(end, ALWAYS[END]))
    return ", ".join(f"{a * 1000}-{b * 1000}" for a, b in gaps)


@given(data=st.data())
def test_every_request_gets_the_answer_of_a_node_whose_cursors_lose_nothing(node, data):
    held = data.draw(st.sampled_from((6, 30)).flatmap(archives))
    service, right = node.hold(**held._asdict()), Node(held)
    cursors = cursors_of(service, right)
    asked = service, held, right, cursors
    for _ in range(5):
        items = data.draw(questions(held))
        compare(asked, items, *from_any_row(asked, items, data))
    # A page begins and ends at each row, also where that is within a block.
    count, side = data.draw(st.sampled_from(((FIRST, AFTER), (LAST, BEFORE))))
    items = [(count, data.draw(st.integers(1, 5))), (NEWEST, data.draw(st.sampled_from("tf")))]
    for row in cursors:
        compare(asked, items, row, side)


@pytest.fixture(scope="module", params=[True, False])
def large(request, tmp_path_factory):
    """A service over two days, one of several row groups; files are kept whole or not."""
    patch = pytest.MonkeyPatch()
    if not request.param:
        patch.setattr("balance_analysis.service.changes.KEPT_ROWS", 0)
    with holding(tmp_path_factory.mktemp("large") / "archive") as service:
        days = {"start": BASE - 2 * HOUR, "end": BASE + 20 * HOUR}
        rows = spread_history(1, **days, rows=1900, accounts=130, largest_block=90)
        held = Held(tuple(rows), row_group=500)
        service.hold(**held._asdict())
        yield service, held, (node := Node(held)), cursors_of(service, node)
    patch.undo()


@given(data=st.data())
@settings(max_examples=9)
def test_a_file_of_several_row_groups_is_paged_like_a_small_one(large, data):
    items = data.draw(questions(large[1]))
    compare(large, items, *from_any_row(large, items, data))
