"""The list of balance changes, against the rules of the interface."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.rows import ASSETS, BASE, TYPES, Row, block_of, row_lists
from tests.service.rules import Question, answer, ordered, questions


def _nodes(page):
    return [edge["node"] for edge in page["edges"]]


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_every_question_gets_the_rows_and_flags_that_the_rules_give(node, data):
    rows = data.draw(row_lists())
    question = data.draw(questions(rows))
    node.hold(rows)
    page = node.page(question.parameters(node.cursors(rows)))
    info = page["pageInfo"]
    found = _nodes(page), info["hasNextPage"], info["hasPreviousPage"]
    assert found == answer(rows, question)


@given(rows=row_lists(min_size=1), size=st.integers(1, 12))
@settings(deadline=None, max_examples=50)
def test_the_page_names_the_cursors_of_its_ends(node, rows, size):
    node.hold(rows)
    page = node.page({"pagination.first": size})
    ends = page["pageInfo"]["startCursor"], page["pageInfo"]["endCursor"]
    assert ends == (page["edges"][0]["cursor"], page["edges"][-1]["cursor"])


@given(rows=row_lists())
@settings(deadline=None, max_examples=50)
def test_oldest_first_is_newest_first_reversed(node, rows):
    node.hold(rows)
    newest = _nodes(node.page({"pagination.newestFirst": "true"}))
    assert _nodes(node.page({"pagination.newestFirst": "false"})) == newest[::-1]


@pytest.mark.parametrize("off", [-1000, -1, 0, 1, 999, 1000])
@pytest.mark.parametrize("bound", ["start", "end"])
def test_a_bound_is_cut_to_microseconds_start_inclusive_and_end_exclusive(node, bound, off):
    rows = [block_of(1, time=BASE + moment)[0] for moment in range(-2, 3)]
    node.hold(rows)
    question = Question(**{bound: BASE * 1000 + off})
    assert _nodes(node.page(question.parameters({}))) == answer(rows, question)[0]


def test_an_empty_file_answers_an_empty_page(node):
    node.hold([])
    empty = {"hasNextPage": False, "hasPreviousPage": False, "startCursor": "", "endCursor": ""}
    assert node.page() == {"edges": [], "pageInfo": empty}


def test_an_unknown_asset_answers_an_empty_page(block):
    assert block.page({"filter.assetId": "no such asset"})["edges"] == []


def test_an_empty_asset_restricts_nothing(block):
    assert len(block.page({"filter.assetId": ""})["edges"]) == 30


def test_the_values_of_a_filter_are_never_read_as_sql(block):
    assert block.page({"filter.assetId": "' OR '1'='1"})["edges"] == []


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


def test_first_wins_over_last(block):
    question = Question(first=3, last=7)
    assert _nodes(block.page(question.parameters({}))) == answer(block_of(30), question)[0]


def test_last_without_a_cursor_gives_the_oldest_rows_newest_first(node):
    rows = [block_of(1, time=BASE + moment)[0] for moment in range(9)]
    node.hold(rows)
    found = _nodes(node.page({"pagination.last": 2}))
    assert found == [rows[1].node, rows[0].node]


def test_both_bounds_of_an_int64_are_answered(block):
    bounds = {
        "dateRange.startTimestamp": -(2**63),
        "dateRange.endTimestamp": 2**63 - 1,
    }
    assert len(block.page(bounds)["edges"]) == 30


def test_an_end_before_the_start_answers_an_empty_page(block):
    bounds = {
        "dateRange.startTimestamp": (BASE + 1) * 1000,
        "dateRange.endTimestamp": (BASE - 1) * 1000,
    }
    assert block.page(bounds)["edges"] == []


@pytest.mark.parametrize("form", ["false", "False", "FALSE", "f", "F", "0"])
def test_a_boolean_may_be_written_in_every_form_that_nodes_read(block, form):
    rows = ordered(block_of(30), newest_first=False)
    assert _nodes(block.page({"pagination.newestFirst": form}))[0] == rows[0].node


@pytest.mark.parametrize("name", ["foo", "filters.assetId", "pageSize", "filter", "newestFirst[]"])
def test_an_unknown_parameter_outside_the_groups_is_ignored(block, name):
    assert len(block.page({name: "x"})["edges"]) == 30


def test_many_clients_at_once_get_what_each_asked_for(node):
    rows = block_of(200)
    node.hold(rows)
    asked = [Question(first=size, newest_first=bool(size % 2)) for size in range(1, 41)]
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda question: _nodes(node.page(question.parameters({}))), asked))
    assert pages == [answer(rows, question)[0] for question in asked]


@pytest.mark.parametrize(("accepted", "sent"), [("gzip", "gzip"), ("identity", None)])
def test_an_answer_is_compressed_on_request(block, accepted, sent):
    response = block.session.get(
        f"{block.url}/api/v2/balance/changes", headers={"Accept-Encoding": accepted}, timeout=10
    )
    assert response.headers.get("Content-Encoding") == sent


def test_nothing_is_claimed_about_the_last_block(block):
    assert not [name for name in block.get().headers if name.lower().startswith("x-block")]
