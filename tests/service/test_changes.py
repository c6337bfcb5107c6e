"""Examples of pages and refusals of the list of balance changes; `test_model` has the rest."""

import base64
import random

import pytest

from balance_analysis import Archive
from tests.loopback import Row
from tests.service.archives import Stretch, write_archive
from tests.service.rows import ASSETS, BASE, TYPES, block_of, ordered
from tests.serving import answering

ID = "1" * 64
CURSOR = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh81682899200000000"


def test_very_many_gaps_are_sent_as_one(node):
    node.hold([], stretches=[Stretch(2 * n, 2 * n + 1) for n in range(99)])
    assert node.get().headers["x-incomplete"] == "1000-196000"


def test_a_page_holds_a_thousand_rows_by_default_and_five_thousand_at_most(node):
    node.hold(block_of(5001))
    assert len(node.page()["edges"]) == 1000
    assert len(node.page({"pagination.first": "+05000"})["edges"]) == 5000


def test_an_empty_asset_and_unknown_names_outside_the_groups_restrict_nothing(block):
    others = {"filter.assetId": "", "foo": "1", "limit": "x", "filter": ""}
    assert len(block.page(others)["edges"]) == 30


@pytest.mark.parametrize("name", ["partyIds", "marketIds"])
def test_an_id_may_be_in_capitals(node, name):
    node.hold([Row(ASSETS[0], TYPES[0], "ab" * 32, "cd" * 32, BASE, 1)])
    asked = {"partyIds": "AB" * 32, "marketIds": "CD" * 32}[name]
    assert len(node.page({f"filter.{name}": asked})["edges"]) == 1


@pytest.mark.parametrize(("number", "rows"), [("4", 30), ("3", 0), ("0", 0), ("34", 0)])
def test_a_number_selects_its_type_and_the_default_type_selects_no_row(block, number, rows):
    assert len(block.page({"filter.accountTypes": number})["edges"]) == rows


NAMES = ["filter.partyIds", "filter.marketIds", "filter.accountTypes", "pagination.first"]
NAMES += ["pagination.last", "pagination.after", "pagination.before", "pagination.newestFirst"]
NAMES += ["dateRange.startTimestamp", "dateRange.endTimestamp"]


CURSORS = [
    *["x", "not base64!", "\u00e9", CURSOR, CURSOR[:43], f" {CURSOR}", f"{CURSOR}\n"],
    *[CURSOR[:43] + "\u0663" * 16, CURSOR[:43] + "9" * 5000, f"{CURSOR[:43]}01"],
    base64.b64encode(b'{"vega_time": "2023-04-01T00:00:00Z", "account_id": None}').decode(),
]
"""Texts that no such service made."""

WRONG = [
    *((name, value) for name in NAMES for value in ("", "\0", "٣")),
    *((f"pagination.{x}", n) for x in ("first", "last") for n in ("0", "-1", "5001", "2" * 10)),
    *((name, wrong) for name in NAMES[-2:] for wrong in ("9223372036854775808", "1e18", "1.0")),
    *((name, f"{ID},{ID}") for name in NAMES[:3]),
    ("filter.marketIds", "network"),
    ("filter.accountTypes", "ACCOUNT_TYPE_NONE"),
    ("filter.accountTypes", "8"),
    ("pagination.newestFirst", "yes"),
    ("filter.partyId", ID),
    ("filter.partyIds[]", ID),
    ("filter.party_ids", ID),
    ("pagination.limit", "5"),
    ("date_range.start", "0"),
    ("dateRange[endTimestamp]", "0"),
]
REFUSED = [
    *(([(name, value)], name) for name, value in WRONG),
    *(
        ([(name, "1")] * 2, f"{name} takes one value, but was sent 2 times")
        for name in ("filter.assetId", *NAMES[3:])
    ),
    ([(name, CURSOR) for name in NAMES[5:7]], "exclude each other"),
    *(
        ([(name, cursor)], f"{name} is not a cursor of this service")
        for name in NAMES[5:7]
        for cursor in CURSORS
    ),
]


@pytest.mark.parametrize(("items", "said"), REFUSED)
def test_an_invalid_parameter_is_refused_by_its_name(block, items, said):
    assert said in block.refusal(items)


def test_each_row_group_of_a_large_file_is_searched_for_a_type(node, monkeypatch):
    monkeypatch.setattr("balance_analysis.service.changes.KEPT_ROWS", 0)
    rows = [row._replace(account_type=TYPES[n % 2]) for n, row in enumerate(sorted(block_of(8)))]
    edges = node.hold(rows, row_group=2).page({"filter.accountTypes": TYPES[1]})["edges"]
    assert len(edges) == 4


def test_a_damaged_cursor_never_omits_a_row(block):
    """A cursor marks a row that is there, or is refused."""
    edges, rng = block.page()["edges"], random.Random(5)
    for spot in range(0, 59, 2):
        cursor = edges[7]["cursor"]
        slipped = cursor[:spot] + rng.choice("0123456789abcXYZ-_") + cursor[spot + 1 :]
        answer = block.get({"pagination.after": slipped})
        if answer.status == 200:
            assert answer.json()["balances"]["edges"] == edges[8:]
        else:
            assert (answer.status, slipped != cursor) == (400, True)


def test_a_cursor_works_in_another_service_over_the_same_rows(block, tmp_path):
    cursor = block.page({"pagination.first": 9})["pageInfo"]["endCursor"]
    asked = {"pagination.after": cursor}
    with answering(write_archive(tmp_path / "copy", block_of(30), partition="month")) as other:
        rest = other.page(asked)
    assert rest == block.page(asked)
    assert len(rest["edges"]) == 21


def test_a_cursor_of_a_row_that_the_filter_excludes_continues_from_its_place(block):
    edges = block.page()["edges"]
    party = edges[9]["node"]["partyId"]
    for after, rest in ((5, [edges[9]]), (12, [])):
        asked = {"filter.partyIds": party, "pagination.after": edges[after]["cursor"]}
        page = block.page(asked)
        assert (page["edges"], page["pageInfo"]["hasPreviousPage"]) == (rest, False)
    both = [("filter.partyIds", edges[place]["node"]["partyId"]) for place in (3, 9)]
    page = block.page([*both, ("pagination.after", edges[5]["cursor"])])
    assert (page["edges"], page["pageInfo"]["hasPreviousPage"]) == ([edges[9]], True)


@pytest.mark.parametrize("name", ["[ab]", "a?", "it's $1 {x} asset_id=1 ä ü%20"])
def test_no_character_of_a_path_is_special_and_a_path_may_be_relative(tmp_path, monkeypatch, name):
    write_archive(tmp_path / name, block_of(2))
    write_archive(tmp_path / "a", block_of(3))
    write_archive(tmp_path / "ab", block_of(3))
    monkeypatch.chdir(tmp_path)
    with answering(Archive(name)) as service:
        page = service.page()
    expected = [row.to_json() for row in ordered(block_of(2))]
    assert [edge["node"] for edge in page["edges"]] == expected


def test_oldest_first_is_the_order_of_a_real_node(node, recorded_rows):
    first, *_, last = recorded_rows
    node.hold(recorded_rows[::-1], stretches=[Stretch(first.time, last.time + 1)])
    page = node.page({"pagination.newestFirst": "false"})
    assert [edge["node"] for edge in page["edges"]] == [row.to_json() for row in recorded_rows]
