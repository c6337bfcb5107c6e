"""Examples of what the list of balance changes gives; `test_model` has the rules at large."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from balance_analysis.archive.archive import Archive
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.service.archives import END, START, Stretch, write_archive
from tests.service.conftest import CHANGES
from tests.service.rows import ASSETS, BASE, HOUR, TYPES, Row, block_of
from tests.service.rules import ordered


def _nodes(page):
    return [edge["node"] for edge in page["edges"]]


def _moments(page):
    return [int(node["timestamp"]) // 1000 - BASE for node in _nodes(page)]


@pytest.mark.parametrize(
    ("bound", "off", "found"),
    [
        ("start", -1, [-1, 0, 1]),
        ("start", 0, [0, 1]),
        ("start", 1, [0, 1]),
        ("start", 999, [0, 1]),
        ("start", 1000, [1]),
        ("end", -1, []),
        ("end", 0, [-1]),
        ("end", 999, [-1]),
        ("end", 1000, [-1, 0]),
    ],
)
def test_a_bound_is_cut_to_microseconds_start_inclusive_and_end_exclusive(node, bound, off, found):
    node.hold([block_of(1, time=BASE + moment)[0] for moment in range(-1, 2)])
    asked = {f"dateRange.{bound}Timestamp": BASE * 1000 + off, "pagination.newestFirst": "false"}
    assert _moments(node.page(asked)) == found


def test_an_empty_archive_answers_an_empty_page(node):
    node.hold([], stretches=())
    empty = {"hasNextPage": False, "hasPreviousPage": False, "startCursor": "", "endCursor": ""}
    assert node.page() == {"edges": [], "pageInfo": empty}


def test_an_unknown_asset_answers_an_empty_page(block):
    assert block.page({"filter.assetId": "no such asset"})["edges"] == []


def test_an_empty_asset_restricts_nothing(block):
    assert len(block.page({"filter.assetId": ""})["edges"]) == 30


def test_an_id_is_found_in_capitals_too(block):
    party = block_of(1)[0].party_id.upper()
    assert len(block.page({"filter.partyIds": party})["edges"]) == 1


def test_a_filter_by_the_unspecified_type_matches_nothing(node):
    node.hold([Row(ASSETS[0], "ACCOUNT_TYPE_UNSPECIFIED", "network", "", BASE, 1)])
    assert node.page({"filter.accountTypes": "ACCOUNT_TYPE_UNSPECIFIED"})["edges"] == []


@pytest.mark.parametrize("balance", [0, -1, 10**38 - 1, 1 - 10**38, 2**64 + 1])
def test_a_balance_keeps_every_digit(node, balance):
    node.hold([Row(ASSETS[0], TYPES[0], "network", "", BASE, balance)])
    assert _nodes(node.page())[0]["balance"] == str(balance)


def test_a_page_holds_a_thousand_rows_by_default(node):
    node.hold(block_of(1001))
    assert len(node.page()["edges"]) == 1000


def test_a_page_can_hold_five_thousand_rows(node):
    node.hold(block_of(5001))
    assert len(node.page({"pagination.first": 5000})["edges"]) == 5000


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_block_of_several_row_groups_is_paged_through_in_order(node, newest_first):
    rows = block_of(17_000)
    node.hold(rows)
    asked = {"pagination.first": 5000, "pagination.newestFirst": str(newest_first).lower()}
    found, more = [], True
    while more:
        page = node.page(asked)
        found += _nodes(page)
        more, asked["pagination.after"] = (
            page["pageInfo"]["hasNextPage"],
            page["pageInfo"]["endCursor"],
        )
    assert found == [row.node for row in ordered(rows, newest_first=newest_first)]


def test_last_without_a_cursor_gives_the_oldest_rows_newest_first(node):
    node.hold([block_of(1, time=BASE + moment)[0] for moment in range(9)])
    assert _moments(node.page({"pagination.last": 2})) == [1, 0]


@pytest.mark.parametrize("name", ["foo", "filters.assetId", "pageSize", "filter", "newestFirst[]"])
def test_an_unknown_parameter_outside_the_groups_is_ignored(block, name):
    assert len(block.page({name: "x"})["edges"]) == 30


def test_many_clients_at_once_get_what_each_asked_for(node):
    rows = block_of(200)
    node.hold(rows)
    ways = {True: "true", False: "false"}

    def ask(size):
        asked = {"pagination.first": size, "pagination.newestFirst": ways[size % 2 == 0]}
        response = requests.get(node.url + CHANGES, params=asked, timeout=10)
        return _nodes(response.json()["balances"])

    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(ask, range(1, 41)))
    assert pages == [
        [row.node for row in ordered(rows, newest_first=size % 2 == 0)][:size]
        for size in range(1, 41)
    ]


@pytest.mark.parametrize(("accepted", "sent"), [("gzip", "gzip"), ("identity", None)])
def test_an_answer_is_compressed_on_request(block, accepted, sent):
    response = block.session.get(
        block.url + CHANGES, headers={"Accept-Encoding": accepted}, timeout=10
    )
    assert response.headers.get("Content-Encoding") == sent


def test_the_last_block_is_told_as_a_node_tells_it(block):
    headers = block.get().headers
    assert (headers["X-Block-Height"], headers["X-Block-Timestamp"]) == ("1234", f"{END}000")


def test_an_archive_that_knows_no_block_tells_none(node):
    node.hold([], stretches=())
    assert not [name for name in node.get().headers if name.lower().startswith("x-block")]


_PARTS = (Stretch(START, BASE - HOUR), Stretch(BASE, BASE + HOUR, proven=False))


@pytest.mark.parametrize(
    ("start", "end", "named"),
    [
        (START, BASE - HOUR, None),
        (START + 1, BASE - HOUR - 1, None),
        (START - 2, BASE - HOUR, ("2023-04-28T23:59:59.999998", "2023-04-29T00:00:00")),
        (START - 1, BASE - HOUR, None),
        (START, BASE - HOUR + 1, ("2023-04-30T23:00:00", "2023-04-30T23:00:00.000001")),
        (BASE - HOUR, BASE, ("2023-04-30T23:00:00", "2023-05-01T00:00:00")),
        (BASE, BASE + HOUR, ("2023-05-01T00:00:00", "2023-05-01T01:00:00")),
        (BASE + 2 * HOUR, END, ("2023-05-01T02:00:00", "2023-05-02T00:00:00")),
        (None, BASE - HOUR, None),
        (None, None, ("2023-04-30T23:00:00", "2023-05-01T01:00:00")),
        (BASE + 2 * HOUR, None, ()),
        (None, START - 1, ()),
    ],
)
def test_what_may_be_missing_of_a_range_is_named(node, start, end, named):
    node.hold(block_of(3, time=START), stretches=_PARTS)
    bounds = {"dateRange.startTimestamp": start, "dateRange.endTimestamp": end}
    asked = {name: bound * 1000 for name, bound in bounds.items() if bound is not None}
    warning = node.get(asked).headers.get("Warning")
    if named is None:
        assert warning is None
    else:
        assert warning is not None
        assert [moment for moment in named if moment not in warning] == []


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_service_refuses_what_may_miss_rows(tmp_path, strict):
    archive = write_archive(tmp_path / "archive", block_of(3))
    asked = {"dateRange.startTimestamp": (START - 2) * 1000, "dateRange.endTimestamp": END * 1000}
    with serve(create_app(archive, strict_coverage=strict)) as url:
        beyond = requests.get(url + CHANGES, params=asked, timeout=10)
        inside = requests.get(url + CHANGES, timeout=10)
    assert inside.status_code == 200
    assert beyond.status_code == (416 if strict else 200)
    if strict:
        assert beyond.json()["code"] == 11
        assert "2023-04-28T23:59:59.999998" in beyond.json()["details"][0]["inner"]


@pytest.mark.parametrize("name", ["[ab]", "*", "a?", "it's $1 {x}", "asset_id=1", "ä ü%20"])
def test_no_character_of_a_path_has_a_meaning(tmp_path, name):
    archive = write_archive(tmp_path / name, block_of(2))
    write_archive(tmp_path / "a", block_of(3))
    write_archive(tmp_path / "ab", block_of(3))
    with serve(create_app(archive)) as url:
        found = requests.get(url + CHANGES, timeout=10).json()["balances"]
    assert _nodes(found) == [row.node for row in ordered(block_of(2), newest_first=True)]


def test_a_relative_path_can_be_served(tmp_path, monkeypatch):
    write_archive(tmp_path / "archive", block_of(2))
    monkeypatch.chdir(tmp_path)
    with serve(create_app(Archive("archive"))) as url:
        found = requests.get(url + CHANGES, timeout=10).json()["balances"]
    assert len(found["edges"]) == 2


@pytest.fixture
def address(monkeypatch):
    """Of a folder in an object store of the test's own."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.start()
    host = "{}:{}".format(*server.get_host_and_port())
    requests.put(f"http://{host}/served", timeout=10).raise_for_status()
    yield f"s3://served/archive?endpoint_override={host}&scheme=http&region=us-east-1"
    server.stop()


def test_an_archive_in_an_object_store_is_served(address):
    rows = block_of(20)
    with serve(create_app(write_archive(address, rows))) as url:
        found = requests.get(url + CHANGES, timeout=20).json()["balances"]
        party = {"filter.partyIds": rows[3].party_id}
        filtered = requests.get(url + CHANGES, params=party, timeout=20).json()["balances"]
    assert _nodes(found) == [row.node for row in ordered(rows, newest_first=True)]
    assert _nodes(filtered) == [rows[3].node]
