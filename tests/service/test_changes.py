"""Examples of what the list of balance changes gives; `test_model` has the rules at large."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from balance_analysis import Archive
from tests.service.archives import write_archive
from tests.service.conftest import CHANGES
from tests.service.rows import ASSETS, BASE, TYPES, Row, block_of
from tests.service.rules import ordered
from tests.serving import serving


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


def test_an_empty_asset_restricts_nothing(block):
    assert len(block.page({"filter.assetId": ""})["edges"]) == 30


@pytest.mark.parametrize("balance", [0, -1, 10**38 - 1, 1 - 10**38, 2**64 + 1])
def test_a_balance_keeps_every_digit(node, balance):
    node.hold([Row(ASSETS[0], TYPES[0], "network", "", BASE, balance)])
    assert _nodes(node.page())[0]["balance"] == str(balance)


def test_a_page_holds_a_thousand_rows_by_default_and_five_thousand_at_most(node):
    node.hold(block_of(5001))
    assert len(node.page()["edges"]) == 1000
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


@pytest.mark.parametrize("name", ["[ab]", "a?", "it's $1 {x} asset_id=1 ä ü%20"])
def test_no_character_of_a_path_has_a_meaning_and_it_may_be_relative(tmp_path, monkeypatch, name):
    write_archive(tmp_path / name, block_of(2))
    write_archive(tmp_path / "a", block_of(3))
    write_archive(tmp_path / "ab", block_of(3))
    monkeypatch.chdir(tmp_path)
    with serving(Archive(name)) as url:
        found = requests.get(url + CHANGES, timeout=10).json()["balances"]
    assert _nodes(found) == [row.node for row in ordered(block_of(2), newest_first=True)]


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
    with serving(write_archive(address, rows)) as url:
        found = requests.get(url + CHANGES, timeout=20).json()["balances"]
        party = {"filter.partyIds": rows[3].party_id}
        filtered = requests.get(url + CHANGES, params=party, timeout=20).json()["balances"]
    assert _nodes(found) == [row.node for row in ordered(rows, newest_first=True)]
    assert _nodes(filtered) == [rows[3].node]
