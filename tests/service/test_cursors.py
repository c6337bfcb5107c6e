"""Following cursors loses nothing, and only the service's own cursors are taken."""

from __future__ import annotations

import base64
import json

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis.service.app import create_app
from balance_analysis.service.embedded import serve
from tests.service.rows import BASE, block_of, row_lists
from tests.service.rules import ordered


def _follow(node, size, *, forward, newest_first):
    """All nodes in the order of the list, page by page."""
    count, cursor = ("first", "after") if forward else ("last", "before")
    end, more = ("endCursor", "hasNextPage") if forward else ("startCursor", "hasPreviousPage")
    asked = {f"pagination.{count}": size, "pagination.newestFirst": str(newest_first).lower()}
    pages = []
    while True:
        page = node.page(asked)
        pages.append([edge["node"] for edge in page["edges"]])
        if not page["pageInfo"][more]:
            return [found for part in (pages if forward else pages[::-1]) for found in part]
        asked[f"pagination.{cursor}"] = page["pageInfo"][end]


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("newest_first", [True, False])
@given(rows=row_lists(), size=st.integers(1, 15))
@settings(deadline=None, max_examples=25)
def test_following_cursors_gives_every_row_once(node, rows, size, forward, newest_first):
    node.hold(rows)
    found = _follow(node, size, forward=forward, newest_first=newest_first)
    assert found == [row.node for row in ordered(rows, newest_first=newest_first)]


@pytest.mark.parametrize("forward", [True, False])
def test_a_block_of_many_pages_is_followed_through(node, forward):
    rows = block_of(300) + block_of(300, time=BASE + 1)
    node.hold(rows)
    found = _follow(node, 37, forward=forward, newest_first=True)
    assert found == [row.node for row in ordered(rows, newest_first=True)]


def test_a_cursor_outlives_a_restart(block):
    cursor = block.page({"pagination.first": 10})["pageInfo"]["endCursor"]
    asked = {"pagination.after": cursor}
    before = block.page(asked)
    with serve(create_app(block.path)) as url:
        after = requests.get(f"{url}/api/v2/balance/changes", params=asked, timeout=10).json()
    assert after == {"balances": before}


def test_a_cursor_needs_no_escaping_in_a_url(block):
    cursor = block.page()["pageInfo"]["endCursor"]
    assert not set(cursor) & set("+/&?#% ")


def _encoded(content):
    return base64.b64encode(content.encode()).decode()


GENUINE = {"time": BASE, "account_id": "ab" * 32}


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "not base64!",
        "é",
        "!" + _encoded(json.dumps(GENUINE)),
        _encoded("not json"),
        _encoded("null"),
        _encoded("[" * 5000),
        _encoded("{}"),
        _encoded(json.dumps({"vega_time": "2023-04-01T00:00:00Z", "account_id": None})),
        _encoded(json.dumps(GENUINE | {"more": 1})),
        _encoded(json.dumps(GENUINE | {"time": 2**63})),
        _encoded(json.dumps(GENUINE | {"time": -(2**63)})),
        _encoded(json.dumps(GENUINE | {"time": 1.5})),
        _encoded(json.dumps(GENUINE | {"time": True})),
        _encoded(json.dumps(GENUINE | {"time": str(BASE)})),
        _encoded(json.dumps(GENUINE | {"account_id": "ab" * 31})),
        _encoded(json.dumps(GENUINE | {"account_id": "ab" * 32 + "\n"})),
        _encoded(json.dumps(GENUINE | {"account_id": "AB" * 32})),
        _encoded('{"time": ' + "9" * 5000 + "}"),
        base64.b64encode(b'{"time": 1, "account_id": "\xff\xfe"}').decode(),
    ],
)
@pytest.mark.parametrize("name", ["after", "before"])
def test_a_cursor_that_the_service_did_not_make_is_refused(block, name, cursor):
    response = block.get({f"pagination.{name}": cursor})
    assert (response.status_code, response.json()["code"]) == (400, 3)


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(deadline=None, max_examples=100)
def test_no_forged_cursor_is_answered_with_a_server_error(node, content):
    cursor = base64.b64encode(content).decode()
    assert node.get({"pagination.after": cursor}).status_code == 400


@pytest.mark.parametrize(("count", "cursor"), [("first", "before"), ("last", "after")])
def test_a_cursor_of_the_other_direction_is_ignored(block, count, cursor):
    asked = {f"pagination.{count}": 4}
    other = block.page()["edges"][15]["cursor"]
    assert block.page(asked | {f"pagination.{cursor}": other}) == block.page(asked)
