"""The tests' own node behaves as real nodes do, and misbehaves exactly as asked."""

from __future__ import annotations

from collections import Counter

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loopback import (
    LoopbackNode,
    follow_cursors,
    histories,
    random_history,
    row_from_json,
)

CHANGES = "/api/v2/balance/changes"
LIMITS = "/api/v2/network/limits"
NEWEST, FIRST, LAST = "pagination.newestFirst", "pagination.first", "pagination.last"
AFTER, BEFORE = "pagination.after", "pagination.before"
START, END = "dateRange.startTimestamp", "dateRange.endTimestamp"
DAY = 86_400 * 10**9

HISTORY = random_history(1)


def whole_range(rows):
    return {START: rows[0].timestamp_ns, END: rows[-1].timestamp_ns + 1000} if rows else {}


def get(node, params=None, *, path=CHANGES, timeout=5.0, **options):
    """Ask with parameters as given; a range over all rows is added where none is."""
    asked = {**whole_range(node.rows), **(params or {})}
    asked = {name: value for name, value in asked.items() if value is not None}
    return requests.get(node.url + path, params=asked, timeout=timeout, **options)


def page(node, params=None):
    answer = get(node, params)
    assert answer.status_code == 200, answer.text
    return answer.json()["balances"]


def rows_of(balances):
    return [row_from_json(edge["node"]) for edge in balances["edges"]]


def flags(balances):
    return balances["pageInfo"]["hasNextPage"], balances["pageInfo"]["hasPreviousPage"]


def inner(answer):
    return answer.json()["details"][0]["inner"]


@pytest.fixture(scope="module")
def node():
    with LoopbackNode(HISTORY) as running:
        yield running


class TestFollowingCursors:
    @pytest.mark.parametrize("page_size", [10, 200])
    def test_a_loop_over_a_real_nodes_cursors_loses_rows_in_silence(self, node, page_size):
        rows = follow_cursors(node.url, page_size=page_size, params=whole_range(HISTORY))
        assert 0 < len(rows) < len(node.rows)
        assert [row for row in reversed(node.rows) if row in set(rows)] == rows

    @settings(max_examples=20)
    @given(
        rows=histories(),
        page_size=st.integers(1, 60),
        backward=st.booleans(),
        newest_first=st.booleans(),
    )
    def test_cursors_that_carry_the_account_lose_nothing(
        self, rows, page_size, backward, newest_first
    ):
        with LoopbackNode(rows, lossy_cursors=False, release="v0.71") as exact:
            rows_of_pages = follow_cursors(
                exact.url, page_size=page_size, backward=backward, newest_first=newest_first
            )
        assert sorted(rows_of_pages, key=lambda row: row.order) == exact.rows

    @settings(max_examples=40)
    @given(
        rows=histories(most_rows=60, most_accounts=20, largest_block=12),
        limit=st.integers(1, 20),
        backward=st.booleans(),
        newest_first=st.booleans(),
        draw=st.data(),
    )
    def test_a_page_beyond_a_cursor_is_what_sql_and_the_trimming_make_of_it(
        self, rows, limit, backward, newest_first, draw
    ):
        size, cursor = (LAST, BEFORE) if backward else (FIRST, AFTER)
        with LoopbackNode(rows, release="v0.71") as lossy:
            edges = page(lossy, {NEWEST: "true"})["edges"]
            assert rows_of({"edges": edges}) == lossy.rows[::-1]
            if not edges:
                return
            edge = draw.draw(st.sampled_from(edges))
            asked = {size: limit, cursor: edge["cursor"], NEWEST: str(newest_first).lower()}
            balances = page(lossy, asked)

            expected = page_by_hand(lossy.rows, edge, limit, backward, newest_first)
        assert (rows_of(balances), *flags(balances)) == expected


def page_by_hand(rows, edge, limit, backward, newest_first):
    """Return rows, has next and has previous, as the reference implementation gets to them."""
    time_ns = int(edge["node"]["timestamp"])
    descending = newest_first != backward
    ordered = sorted(rows, key=lambda row: row.order, reverse=descending)
    fetched = [
        row
        for row in ordered
        if (row.timestamp_ns < time_ns if descending else row.timestamp_ns > time_ns)
    ][: limit + 2]
    match len(fetched) - limit:
        case 2:
            kept, flags = fetched[1:-1], (True, True)
        case 1:
            kept, flags = fetched[1:], (backward, not backward)
        case _:
            kept, flags = fetched, (False, False)
    return kept[::-1] if backward else kept, *flags


class TestOrderAndDirection:
    def test_the_newest_come_first_by_default(self, node):
        assert rows_of(page(node, {FIRST: 20})) == node.rows[::-1][:20]

    def test_rows_of_a_block_stand_by_account_id(self, node):
        largest = Counter(row.timestamp_ns for row in node.rows).most_common(1)[0][0]
        rows = rows_of(page(node, {NEWEST: "false", START: largest, END: largest + 1000}))
        assert len(rows) > 1
        assert [row.account_id for row in rows] == sorted(row.account_id for row in rows)


class TestPageParameters:
    @pytest.mark.parametrize("release", ["v0.71", "v0.76"])
    def test_the_default_page_holds_1000_rows(self, release):
        with LoopbackNode(random_history(2, rows=1100), release=release) as large:
            assert len(page(large)["edges"]) == 1000

    @pytest.mark.parametrize("release", ["v0.73", "v0.79"])
    def test_a_page_above_5000_is_refused_from_v73_on(self, release):
        with LoopbackNode(HISTORY, release=release) as strict:
            assert get(strict, {FIRST: 5001}).status_code == 400
            assert get(strict, {FIRST: 5000}).status_code == 200

    @pytest.mark.parametrize("name", [FIRST, LAST])
    @pytest.mark.parametrize("size", ["0", "-1", "x", "", "1.5", str(2**31)])
    def test_a_size_that_is_not_a_positive_int32_is_refused(self, node, name, size):
        answer = get(node, {name: size})
        assert (answer.status_code, answer.json()["code"]) == (400, 3)

    @pytest.mark.parametrize("cursor", ["", "%", "abc"])
    def test_a_cursor_that_is_not_base64_is_refused(self, node, cursor):
        assert get(node, {FIRST: 3, AFTER: cursor}).status_code == 400


class TestRange:
    def test_the_start_is_inclusive_and_the_end_exclusive(self, node):
        start, end = node.rows[100].timestamp_ns, node.rows[400].timestamp_ns
        expected = [row for row in node.rows if start <= row.timestamp_ns < end]
        assert rows_of(page(node, {START: start, END: end, NEWEST: "false"})) == expected

    @pytest.mark.parametrize(("release", "status"), [("v0.75", 500), ("v0.76", 400)])
    @pytest.mark.parametrize(
        "bounds",
        [
            {START: None, END: None},
            {START: None, END: "1680307200000000000"},
            {START: "1577836799999999000", END: "1577836800000000000"},
            {START: "1680307200000000000", END: str(1680307200 * 10**9 + 365 * DAY + 1000)},
        ],
    )
    def test_a_bad_range_is_refused_from_v75_on(self, release, status, bounds):
        with LoopbackNode(HISTORY, release=release) as strict:
            assert get(strict, bounds).status_code == status


class TestFilters:
    @pytest.mark.parametrize(
        ("name", "attribute"),
        [
            ("filter.partyIds", "party_id"),
            ("filter.accountTypes", "account_type"),
            ("filter.assetId", "asset_id"),
        ],
    )
    def test_a_filter_of_one_value_keeps_its_rows(self, node, name, attribute):
        wanted = getattr(node.rows[200], attribute)
        expected = [row for row in node.rows if getattr(row, attribute) == wanted]
        assert rows_of(page(node, {name: wanted, NEWEST: "false"})) == expected

    def test_a_repeated_key_is_a_list_and_lists_are_all_of_them_required(self, node):
        markets = sorted({row.market_id for row in node.rows} - {""})[:2]
        kinds = ["ACCOUNT_TYPE_MARGIN", "ACCOUNT_TYPE_BOND"]
        expected = [r for r in node.rows if r.market_id in markets and r.account_type in kinds]
        asked = {"filter.marketIds": markets, "filter.accountTypes": kinds, NEWEST: "false"}
        assert rows_of(page(node, asked)) == expected
        assert expected

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("filter.marketIds", ""),
            ("filter.marketIds", "network"),
            ("filter.partyIds", "ab"),
            ("filter.partyIds", f"{'a' * 64},{'b' * 64}"),
            ("filter.accountTypes", "ACCOUNT_TYPE_NEW"),
            ("filter.partyIds[]", "a" * 64),
            ("filter[partyIds]", "a" * 64),
        ],
    )
    def test_a_malformed_filter_is_refused(self, node, name, value):
        assert get(node, {name: value}).status_code == 400


class TestAnswers:
    def test_a_row_has_six_fields_and_only_text(self, node):
        first = page(node, {FIRST: 1})["edges"][0]["node"]
        assert sorted(first) == [
            "accountType", "assetId", "balance", "marketId", "partyId", "timestamp",
        ]  # fmt: skip
        assert all(isinstance(value, str) for value in first.values())

    def test_the_last_block_stands_in_the_headers(self, node):
        headers = get(node).headers
        assert int(headers["X-Block-Timestamp"]) == HISTORY[-1].timestamp_ns
        assert int(headers["X-Block-Height"]) == len({row.timestamp_ns for row in HISTORY})

    def test_answers_are_compressed_on_request_only(self, node):
        packed = get(node)
        plain = get(node, headers={"Accept-Encoding": "identity"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Content-Encoding" not in plain.headers
        assert packed.json() == plain.json()


class TestQuirks:
    @pytest.mark.parametrize(
        ("name", "asked"),
        [
            ("filter.partyIds", {"filter.partyIds": "network"}),
            ("filter", {"filter.accountTypes": "ACCOUNT_TYPE_BOND"}),
            ("dateRange", {START: HISTORY[400].timestamp_ns}),
            ("pagination.newestFirst", {NEWEST: "false"}),
        ],
    )
    def test_a_parameter_can_be_ignored(self, name, asked):
        with LoopbackNode(HISTORY, ignores=[name]) as deaf:
            assert page(deaf, asked) == page(deaf)

    def test_an_answer_of_too_many_rows_is_refused(self):
        with LoopbackNode(HISTORY, max_answer_rows=100) as node:
            assert get(node, {FIRST: 100}).status_code == 200
            answer = get(node, {FIRST: 101})
        assert answer.status_code == 429
        assert inner(answer).startswith("grpc: received message larger than max (")

    def test_a_failure_of_an_edit_is_raised_where_the_node_ends(self):
        def fail(row):
            raise KeyError("wrong test")

        with (
            pytest.raises(KeyError, match="wrong test"),
            LoopbackNode(HISTORY, edit_row=fail) as node,
            pytest.raises(requests.ConnectionError),
        ):
            get(node)


class TestHistories:
    @given(rows=histories())
    def test_any_history_is_one_that_a_node_could_serve(self, rows):
        assert len({(row.account, row.timestamp_ns) for row in rows}) == len(rows)
        assert rows == sorted(rows, key=lambda row: row.order)
        assert all(row.timestamp_ns % 1000 == 0 for row in rows)


class TestRecording:
    def test_the_ledger_explains_each_change_of_a_balance(self, recorded_rows, recorded_ledger):
        net = {(one.timestamp_ns, one.asset_id, one.account_type, one.party_id, one.market_id):
               one.net for one in recorded_ledger}  # fmt: skip
        level = {}
        for row in recorded_rows:
            if row.account_type != "ACCOUNT_TYPE_EXTERNAL":
                flow = net.get((row.timestamp_ns, *row.account), 0)
                assert row.balance == level.get(row.account, 0) + flow
                level[row.account] = row.balance
