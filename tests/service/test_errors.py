"""What is not answered, and how the service says so."""

from __future__ import annotations

import pytest

from balance_analysis.archive.archive import Archive
from balance_analysis.errors import ArchiveError
from balance_analysis.service.app import create_app
from tests.service.conftest import CHANGES
from tests.service.rows import block_of

PARTY = "ab" * 32


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("filter.partyIds=abc", "filter.partyIds='abc'"),
        (f"filter.partyIds={PARTY},{PARTY}", "64 hex digits, or 'network'"),
        (f"filter.partyIds={PARTY}%0A", "64 hex digits"),
        (f"filter.partyIds={PARTY}&filter.partyIds=x", "filter.partyIds='x'"),
        ("filter.marketIds=network", "filter.marketIds='network'"),
        ("filter.accountTypes=GENERAL", "'ACCOUNT_TYPE_GENERAL'"),
        ("filter.accountTypes=ACCOUNT_TYPE_OF_TOMORROW", "ACCOUNT_TYPE_OF_TOMORROW"),
        ("filter.assetId=a&filter.assetId=b", "filter.assetId"),
        ("filter.assetId=a&filter.asset_id=a", "filter.assetId"),
        ("pagination.first=0", "1 to 5000"),
        ("pagination.first=5001", "1 to 5000"),
        ("pagination.last=5001", "pagination.last=5001"),
        ("pagination.first=2147483648", "32 bits"),
        ("pagination.first=ten", "pagination.first='ten'"),
        ("pagination.first=1_0", "pagination.first='1_0'"),
        ("pagination.first=%D9%A3", "pagination.first"),
        ("pagination.first=1&pagination.first=2", "pagination.first"),
        ("pagination.first=1&pagination.last=x", "pagination.last='x'"),
        ("pagination.newestFirst=yes", "pagination.newestFirst='yes'"),
        ("pagination.after=x&pagination.before=x", "pagination.before"),
        ("dateRange.startTimestamp=2023-04-01", "dateRange.startTimestamp='2023-04-01'"),
        ("dateRange.endTimestamp=9223372036854775808", "64 bits"),
        ("date_range.end_timestamp=x", "'x'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(block, query, named):
    status, code, inner = block.refusal(query)
    assert (status, code, named in inner) == (400, 3, True), inner


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("filter.partyIds[]", "filter.partyIds"),
        ("filter.partyIds[0]", "filter.partyIds"),
        ("filter[marketIds]", "filter.marketIds"),
        ("pagination[first]", "pagination.first"),
        ("dateRange[startTimestamp]", "dateRange.startTimestamp"),
        ("filter.partyId", "filter.partyIds"),
        ("filter.assetID", "filter.assetId"),
        ("filter.account_type", "filter.accountTypes"),
        ("filter.partyids", "filter.partyIds"),
        ("pagination.newestfirst", "pagination.newestFirst"),
        ("dateRange.end", "dateRange.endTimestamp"),
        ("date_range.end", "dateRange.endTimestamp"),
    ],
)
def test_a_wrong_name_in_a_group_is_refused_with_the_right_one(block, name, meant):
    status, code, inner = block.refusal(f"{name}=1")
    right = meant in inner or _snake(meant) in inner
    assert (status, code, right) == (400, 3, True), inner


def _snake(name):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@pytest.mark.parametrize(
    "query",
    [
        f"filter.party_ids={PARTY}&filter.partyIds={block_of(1)[0].party_id}",
        f"filter.party_ids={block_of(1)[0].party_id}",
    ],
)
def test_a_list_may_be_written_in_both_spellings(block, query):
    response = block.session.get(f"{block.url}{CHANGES}?{query}", timeout=10)
    assert len(response.json()["balances"]["edges"]) == 1


def test_a_type_that_no_list_holds_is_accepted_where_the_archive_holds_it(node):
    node.hold([row._replace(account_type="ACCOUNT_TYPE_OF_TOMORROW") for row in block_of(3)])
    page = node.page({"filter.accountTypes": "ACCOUNT_TYPE_OF_TOMORROW"})
    assert len(page["edges"]) == 3


def test_an_error_says_that_it_is_json(block):
    response = block.get({"pagination.first": 0})
    assert response.headers["Content-Type"] == "application/json"


def test_an_unknown_path_is_not_found(block):
    response = block.get(path="/api/v2/balance/change")
    assert (response.status_code, response.json()["code"]) == (404, 5)


def test_where_there_is_no_archive_there_is_no_service(tmp_path):
    with pytest.raises(ArchiveError, match="is no archive"):
        create_app(Archive(tmp_path / "nothing"))
