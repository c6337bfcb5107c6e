"""The tests' own node behaves as real nodes do, and misbehaves exactly as asked.

How it reads filters, ranges and pages is compared with the service, in `tests/service/test_model`.
"""

from __future__ import annotations

import pytest
import requests

from tests.loopback import LoopbackNode, Row, random_history, row_from_json

CHANGES = "/api/v2/balance/changes"
NEWEST, FIRST, LAST = "pagination.newestFirst", "pagination.first", "pagination.last"
AFTER, BEFORE = "pagination.after", "pagination.before"
START, END = "dateRange.startTimestamp", "dateRange.endTimestamp"
DAY = 86_400 * 10**9
MIDDLE = 19_450 * DAY

HISTORY = random_history(1, rows=1100)


def whole_range(rows):
    return {START: rows[0].timestamp_ns, END: rows[-1].timestamp_ns + 1000} if rows else {}


def get(node, params=None, **options):
    """Ask with parameters as given; a range over all rows is added where none is."""
    asked = {**whole_range(node.rows), **(params or {})}
    asked = {name: value for name, value in asked.items() if value is not None}
    return requests.get(node.url + CHANGES, params=asked, timeout=5, **options)


def page(node, params=None):
    answer = get(node, params)
    assert answer.status_code == 200, answer.text
    return answer.json()["balances"]


def rows_of(balances):
    return [row_from_json(edge["node"]) for edge in balances["edges"]]


@pytest.fixture(scope="module")
def node():
    with LoopbackNode(HISTORY) as running:
        yield running


@pytest.mark.parametrize(
    ("limit", "kept", "more", "before"),
    [(2, "cd", True, True), (3, "cde", False, True), (4, "bcde", False, False)],
)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
def test_behind_a_cursor_the_rest_of_its_block_is_lost_and_one_row_of_a_page_that_is_filled(
    limit, kept, more, before, *, backward, newest_first
):
    """Of blocks a to e a cursor in a goes on with c; on the other side of a stand the same."""
    size, cursor = (LAST, BEFORE) if backward else (FIRST, AFTER)
    away = -1 if newest_first != backward else 1
    names = {block * side: name for block, name in enumerate("abcde") for side in (1, -1)}
    rows = [
        Row(MIDDLE + DAY * block, "a" * 64, f"ACCOUNT_TYPE_{kind}", "network", "", 0)
        for block in names
        for kind in (("BOND", "GENERAL", "MARGIN") if not block else ("BOND",))
    ]
    with LoopbackNode(rows, release="v0.71") as lossy:
        order = {NEWEST: str(newest_first).lower()}
        edges = page(lossy, order)["edges"]
        assert rows_of({"edges": edges}) == lossy.rows[:: -1 if newest_first else 1]
        balances = page(lossy, {size: limit, cursor: edges[5]["cursor"], **order})
    listed = [names[(row.timestamp_ns - MIDDLE) // DAY] for row in rows_of(balances)]
    assert "".join(listed) == (kept[::-1] if backward else kept)
    assert {(row.timestamp_ns > MIDDLE) for row in rows_of(balances)} == {away > 0}
    info = balances["pageInfo"]
    flags = info["hasNextPage"], info["hasPreviousPage"]
    assert flags == ((before, more) if backward else (more, before))


NO_RANGE = {START: None, END: None}
EARLY = {START: "1577836799999999000", END: "1577836800000000000"}
LONG = {START: "1680307200000000000", END: str(1680307200 * 10**9 + 365 * DAY + 1000)}


@pytest.mark.parametrize(
    ("release", "asked", "status", "rows"),
    [
        ("v0.71", {}, 200, 1000),
        ("v0.76", {}, 200, 1000),
        ("v0.71", {FIRST: 5001}, 200, 1100),
        *((release, {FIRST: 5001}, 400, None) for release in ("v0.73", "v0.79")),
        ("v0.79", {FIRST: 5000}, 200, 1100),
        *(
            (release, bounds, status, None)
            for release, status in (("v0.75", 500), ("v0.76", 400))
            for bounds in (NO_RANGE, EARLY, LONG)
        ),
        *(
            ("v0.71", {name: size}, 400, None)
            for name in (FIRST, LAST)
            for size in ("0", "-1", "x", "", "1.5", str(2**31))
        ),
        *(("v0.71", {FIRST: 3, AFTER: cursor}, 400, None) for cursor in ("", "%", "abc")),
        *(
            ("v0.71", {name: value}, 400, None)
            for name, value in (
                ("filter.marketIds", ""),
                ("filter.marketIds", "network"),
                ("filter.partyIds", "ab"),
                ("filter.partyIds", f"{'a' * 64},{'b' * 64}"),
                ("filter.accountTypes", "ACCOUNT_TYPE_NEW"),
                ("filter.partyIds[]", "a" * 64),
                ("filter[partyIds]", "a" * 64),
            )
        ),
    ],
)
def test_each_release_refuses_what_a_node_of_it_refuses(release, asked, status, rows):
    with LoopbackNode(HISTORY, release=release) as strict:
        answer = get(strict, asked)
    assert answer.status_code == status
    if status == 200:
        assert len(answer.json()["balances"]["edges"]) == rows
    if status == 400:
        assert answer.json()["code"] == 3


def test_an_answer_names_the_last_block_and_is_compressed_on_request_only(node):
    packed, plain = get(node), get(node, headers={"Accept-Encoding": "identity"})
    assert int(packed.headers["X-Block-Timestamp"]) == HISTORY[-1].timestamp_ns
    assert int(packed.headers["X-Block-Height"]) == len({row.timestamp_ns for row in HISTORY})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.json() == plain.json()
    first = packed.json()["balances"]["edges"][0]["node"]
    names = ["accountType", "assetId", "balance", "marketId", "partyId", "timestamp"]
    assert sorted(first) == names
    assert all(isinstance(value, str) for value in first.values())


def test_a_failure_of_an_edit_is_raised_where_the_node_ends():
    def fail(row):
        raise KeyError("wrong test")

    with (
        pytest.raises(KeyError, match="wrong test"),
        LoopbackNode(HISTORY, edit_row=fail) as node,
        pytest.raises(requests.ConnectionError),
    ):
        get(node)
