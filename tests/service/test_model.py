"""The service gives the answers that the rules give, whatever is asked and held."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loopback import LoopbackNode
from tests.loopback import Row as LoopbackRow
from tests.moments import to_microseconds
from tests.service import rules
from tests.service.archives import HEIGHT, Held, archives
from tests.service.conftest import holding, read_error
from tests.service.rows import BASE, HOUR, Row, busy_day, row_lists
from tests.service.rules import Refused, ServedPage, expected, ordered

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?(?:Z|\+00:00)")


def _row(node):
    ids = node["assetId"], node["accountType"], node["partyId"], node["marketId"]
    assert node["timestamp"].endswith("000")
    return Row(*ids, int(node["timestamp"]) // 1000, int(node["balance"]))


def cursors_of(service, held):
    """Return the row of every cursor; all rows of the archive are among them, once."""
    edges = service.get({rules.FIRST: 5000}).json()["balances"]["edges"]
    found = {edge["cursor"]: _row(edge["node"]) for edge in edges}
    assert len(found) == len(edges)
    assert list(found.values()) == ordered(held.rows, newest_first=True)
    return found


def check(answer, right, cursors, held):
    """Compare a whole answer with the right one."""
    if isinstance(right, Refused):
        assert refusal(answer, 400, 3, right.names)
    else:
        assert answer.status == 200, answer.body
        assert answer.json() == _body(right, cursors)
        assert _warns(answer.headers.get("warning"), right.missing)
        assert _head(answer.headers) == _head_of(held)


def refusal(answer, status, code, names=("",)):
    """Return whether an answer is an error of this kind that names any of these."""
    found, inner = read_error(answer.json())
    assert (answer.status, found) == (status, code), answer.body
    return any(name in inner for name in names)


def _body(page, cursors):
    cursor_of = {row: cursor for cursor, row in cursors.items()}
    edges = [{"node": row.node, "cursor": cursor_of[row]} for row in page.rows]
    info = {
        "hasNextPage": page.has_next,
        "hasPreviousPage": page.has_previous,
        "startCursor": edges[0]["cursor"] if edges else "",
        "endCursor": edges[-1]["cursor"] if edges else "",
    }
    return {"balances": {"edges": edges, "pageInfo": info}}


def _warns(warning, missing):
    """Return whether a header names what may be missing, or the first of it and how much more."""
    if not missing or warning is None:
        return (warning is None) == (not missing)
    assert re.fullmatch(r'199 \S+ "[^"]+"', warning), warning
    if None in missing:
        return True
    moments = [to_microseconds(found) for found in _MOMENT.findall(warning)]
    stretches = [part for part in missing if isinstance(part, tuple)]
    named = list(zip(moments[::2], moments[1::2], strict=True))
    others = [name for name in missing if isinstance(name, str)]
    told = sum(name in warning for name in others)
    assert named == stretches[: len(named)], warning
    assert named or told, warning
    left = len(missing) - len(named) - told
    return left == 0 or f"{left} more" in warning


def _head(headers):
    return headers.get("x-block-height"), headers.get("x-block-timestamp")


def _head_of(held):
    if not held.covered:
        return None, None
    return str(HEIGHT), f"{held.covered[-1].end}000"


@given(data=st.data())
def test_every_request_gets_the_answer_that_the_rules_give(held_in, data):
    held = data.draw(archives())
    service, strict = held_in(held)
    cursors = cursors_of(service, held)
    for _ in range(5):
        items = data.draw(rules.requests(held, cursors))
        right = expected(held, items, cursors)
        check(service.get(items), right, cursors, held)
        if isinstance(right, ServedPage) and right.missing:
            assert refusal(strict.get(items), 416, 11)
        elif isinstance(right, Refused) or right.missing == []:
            check(strict.get(items), right, cursors, held)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A service over days of which one has several row groups, with all its cursors."""
    with holding(tmp_path_factory.mktemp("large") / "archive") as held_in:
        yield _large(held_in)


def _large(held_in):
    rows = [*busy_day(1, 18_000), *busy_day(2, 600, start=BASE - 24 * HOUR)]
    held = Held(tuple(rows))
    service, _ = held_in(held)
    cursors, asked = {}, {rules.FIRST: 5000}
    while len(cursors) < len(rows):
        page = service.get(asked).json()["balances"]
        cursors |= {edge["cursor"]: _row(edge["node"]) for edge in page["edges"]}
        asked[rules.AFTER] = page["pageInfo"]["endCursor"]
        assert page["edges"]
    assert list(cursors.values()) == ordered(rows, newest_first=True)
    return service, held, cursors


@given(data=st.data())
@settings(max_examples=12)
def test_a_file_of_several_row_groups_is_asked_as_a_small_one(large, data):
    service, held, cursors = large
    items = data.draw(rules.requests(held, cursors))
    check(service.get(items), expected(held, items, cursors), cursors, held)


@pytest.mark.parametrize("forward", [True, False])
@given(data=st.data())
@settings(max_examples=8)
def test_paging_visits_every_row_once(held_in, forward, data):
    held = data.draw(archives(max_size=40))
    service, _ = held_in(held)
    newest_first = data.draw(st.booleans())
    asked = {rules.NEWEST: str(newest_first).lower()}
    asked[rules.FIRST if forward else rules.LAST] = data.draw(st.integers(1, 12))
    pages = []
    while True:
        page = service.get(asked).json()["balances"]
        info = page["pageInfo"]
        pages.append([_row(edge["node"]) for edge in page["edges"]])
        if not info["hasNextPage" if forward else "hasPreviousPage"]:
            break
        asked[rules.AFTER if forward else rules.BEFORE] = info[
            "endCursor" if forward else "startCursor"
        ]
    found = [row for part in (pages if forward else pages[::-1]) for row in part]
    assert found == ordered(held.rows, newest_first=newest_first)


@given(rows=row_lists(min_size=1), data=st.data())
@settings(max_examples=15)
def test_the_rules_are_those_of_a_node_whose_cursors_lose_nothing(rows, data):
    """Two statements of the interface, written apart from each other, agree."""
    held = Held(rows)
    node = LoopbackNode(
        [LoopbackRow(row.time * 1000, *row[:4], row.balance) for row in rows],
        release="v0.73",
        lossy_cursors=False,
    )
    cursors = {node._cursor(row): _row(row.to_json()) for row in node.rows}
    items = data.draw(rules.requests(held, {}).filter(_as_nodes_read))
    whole = [item for item in items if item[0] not in (rules.FIRST, rules.LAST)]
    listed = expected(held, whole, {})
    if isinstance(listed, ServedPage) and listed.rows and data.draw(st.booleans()):
        row = data.draw(st.sampled_from(listed.rows))
        name = data.draw(st.sampled_from((rules.AFTER, rules.BEFORE)))
        items = [*items, (name, {row: cursor for cursor, row in cursors.items()}[row])]
    right = expected(held, items, cursors)
    request = node.record(f"/api/v2/balance/changes?{urlencode(items)}", {}, 0)
    answer = node.respond(request)[0]
    if isinstance(right, Refused):
        # Of a cursor that holds no JSON a node says that the fault is its own.
        assert answer.status in (400, 500)
        return
    found = json.loads(answer.body)
    if not right.rows:
        # A node whose page after the last row is empty says that there is a page before it.
        found["balances"]["pageInfo"]["hasPreviousPage"] = False
        found["balances"]["pageInfo"]["hasNextPage"] = False
    assert found == _body(right, cursors)


def _as_nodes_read(items):
    """Whether a real node reads a request as the service does: it has fewer mercies."""
    return all(
        name in rules.NAMES
        and value not in ("ACCOUNT_TYPE_UNSPECIFIED", rules.PARTIES[1].upper())
        and value not in ("E" * 64, "")
        for name, value in items
    )
