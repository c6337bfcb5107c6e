"""The tests' own node behaves as real nodes do, and misbehaves exactly as asked.

How it reads filters, ranges and pages is compared with the service, in `tests/service/test_model`.
"""

import json
from itertools import product
from urllib.parse import urlencode

import pytest
import requests

from tests.loopback import CHANGES, LoopbackNode, Row, random_history, row_from_json

NEWEST, FIRST, LAST = "pagination.newestFirst", "pagination.first", "pagination.last"
AFTER, BEFORE = "pagination.after", "pagination.before"
START, END = "dateRange.startTimestamp", "dateRange.endTimestamp"
DAY = 86_400_000_000
MIDDLE = 19_450 * DAY

HISTORY = random_history(1, rows=1100)


def ask(node, params):
    """Return an answer's status and content; a request without a range gets one of all rows."""
    bounds = {START: node.rows[0].time * 1000, END: node.rows[-1].time * 1000 + 1000}
    asked = {name: x for name, x in {**bounds, **params}.items() if x is not None}
    answer, _ = node.respond(node.record(f"{CHANGES}?{urlencode(asked)}", {}))
    return answer.status, json.loads(answer.body)


def page(node, params):
    """Return the rows of a page, their cursors, and its flags."""
    status, content = ask(node, params)
    assert status == 200, content
    edges, info = content["balances"]["edges"], content["balances"]["pageInfo"]
    rows = [row_from_json(edge["node"]) for edge in edges]
    cursors = [edge["cursor"] for edge in edges]
    return rows, cursors, (info["hasNextPage"], info["hasPreviousPage"])


@pytest.mark.parametrize(
    ("limit", "kept", "more", "before"),
    [(2, "cd", True, True), (3, "cde", False, True), (4, "bcde", False, False)],
)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
def test_the_rest_of_a_cursors_block_is_lost_and_one_row_of_a_full_page(
    limit, kept, more, before, *, backward, newest_first
):
    """Of blocks a to e a cursor in a goes on with c; on the other side of a stand the same."""
    size, cursor = (LAST, BEFORE) if backward else (FIRST, AFTER)
    away = -1 if newest_first != backward else 1
    names = {block * side: name for block, name in enumerate("abcde") for side in (1, -1)}
    rows = [
        Row("a" * 64, f"ACCOUNT_TYPE_{kind}", "network", "", MIDDLE + DAY * block, 0)
        for block in names
        for kind in (("BOND", "GENERAL", "MARGIN") if not block else ("BOND",))
    ]
    lossy = LoopbackNode(rows, release="v0.71")
    order = {NEWEST: str(newest_first).lower()}
    listed, cursors, _ = page(lossy, order)
    assert listed == lossy.rows[:: -1 if newest_first else 1]
    listed, _, flags = page(lossy, {size: limit, cursor: cursors[5], **order})
    blocks = "".join(names[(row.time - MIDDLE) // DAY] for row in listed)
    assert blocks == (kept[::-1] if backward else kept)
    assert {row.time > MIDDLE for row in listed} == {away > 0}
    assert flags == ((before, more) if backward else (more, before))


NO_RANGE = {START: None, END: None}
EARLY = {START: "1577836799999999000", END: "1577836800000000000"}
LONG = {START: "1680307200000000000", END: str(1680307200 * 10**9 + 365 * DAY * 1000 + 1000)}


SIZES = ("0", "-1", "x", "", "1.5", 2**31)
FILTERS = {
    "filter.marketIds": ("", "network"),
    "filter.partyIds": ("ab", f"{'a' * 64},{'b' * 64}"),
    "filter.accountTypes": ("ACCOUNT_TYPE_NEW",),
    "filter.partyIds[]": ("a" * 64,),
    "filter[partyIds]": ("a" * 64,),
}


@pytest.mark.parametrize(
    ("release", "asked"),
    [
        *((release, {FIRST: 5001}) for release in ("v0.73", "v0.79")),
        *(product(("v0.75", "v0.76"), (NO_RANGE, EARLY, LONG))),
        *(("v0.71", {name: size}) for name in (FIRST, LAST) for size in SIZES),
        *(("v0.71", {FIRST: 3, AFTER: cursor}) for cursor in ("", "%", "abc")),
        *(("v0.71", {name: value}) for name, values in FILTERS.items() for value in values),
    ],
)
def test_each_release_refuses_what_a_node_of_it_refuses(release, asked):
    status, content = ask(LoopbackNode(HISTORY, release=release), asked)
    assert (status, content["code"]) == ((500, 13) if release == "v0.75" else (400, 3))


@pytest.mark.parametrize(
    ("release", "asked", "rows"),
    [
        ("v0.71", {}, 1000),
        ("v0.76", {}, 1000),
        ("v0.71", {FIRST: 5001}, 1100),
        ("v0.79", {FIRST: 5000}, 1100),
    ],
)
def test_a_page_has_1000_rows_or_as_many_as_a_release_allows(release, asked, rows):
    listed, _, _ = page(LoopbackNode(HISTORY, release=release), asked)
    assert len(listed) == rows


def test_an_answer_names_the_last_block_and_is_compressed_on_request_only():
    plainly = {"Accept-Encoding": "identity"}
    with LoopbackNode(HISTORY, release="v0.71") as node:
        packed, plain = (requests.get(node.url + CHANGES, headers=x) for x in (None, plainly))
    assert int(packed.headers["X-Block-Timestamp"]) == HISTORY[-1].time * 1000
    assert int(packed.headers["X-Block-Height"]) == len({row.time for row in HISTORY})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.json() == plain.json()
    first = packed.json()["balances"]["edges"][0]["node"]
    names = ["accountType", "assetId", "balance", "marketId", "partyId", "timestamp"]
    assert sorted(first) == names
    assert all(isinstance(value, str) for value in first.values())


def test_an_edits_error_is_raised_when_the_node_ends():
    def fail(row):
        raise KeyError("wrong test")

    with (
        pytest.raises(KeyError, match="wrong test"),
        LoopbackNode(HISTORY, release="v0.71", edit_row=fail) as node,
        pytest.raises(requests.ConnectionError),
    ):
        requests.get(node.url + CHANGES)
