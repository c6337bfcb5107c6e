"""What is not answered, and how the service says so."""

from __future__ import annotations

import pytest
import requests

from balance_analysis.service.app import create_app
from balance_analysis.service.embedded import serve
from tests.service.rows import block_of, write_rows

PARTY = "ab" * 32


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("filter.partyIds=abc", "filter.partyIds='abc'"),
        ("filter.partyIds=", "filter.partyIds=''"),
        (f"filter.partyIds={PARTY},{PARTY}", "64 hex digits, or 'network'"),
        (f"filter.partyIds={PARTY}%0A", "64 hex digits"),
        (f"filter.partyIds={PARTY}&filter.partyIds=x", "filter.partyIds='x'"),
        ("filter.marketIds=network", "filter.marketIds='network'"),
        ("filter.marketIds=", "filter.marketIds=''"),
        ("filter.accountTypes=GENERAL", "'ACCOUNT_TYPE_GENERAL'"),
        ("filter.accountTypes=", "filter.accountTypes=''"),
        ("filter.accountTypes=ACCOUNT_TYPE_OF_TOMORROW", "ACCOUNT_TYPE_OF_TOMORROW"),
        ("filter.assetId=a&filter.assetId=b", "filter.assetId takes one value"),
        ("pagination.first=0", "send 1 to 5000"),
        ("pagination.first=-1", "pagination.first=-1"),
        ("pagination.first=5001", "pagination.first=5001"),
        ("pagination.last=5001", "pagination.last=5001"),
        ("pagination.last=0", "pagination.last=0"),
        ("pagination.first=2147483648", "integer of 32 bits"),
        ("pagination.first=ten", "pagination.first='ten'"),
        ("pagination.first=", "pagination.first=''"),
        ("pagination.first=1_0", "pagination.first='1_0'"),
        ("pagination.first=%D9%A3", "integer of 32 bits"),
        ("pagination.first=1&pagination.first=2", "pagination.first takes one value"),
        ("pagination.first=1&pagination.last=x", "pagination.last='x'"),
        ("pagination.newestFirst=yes", "pagination.newestFirst='yes'"),
        ("pagination.after=x&pagination.before=x", "exclude each other"),
        ("pagination.after=&pagination.before=", "exclude each other"),
        ("dateRange.startTimestamp=2023-04-01", "dateRange.startTimestamp='2023-04-01'"),
        ("dateRange.endTimestamp=1e18", "dateRange.endTimestamp='1e18'"),
        ("dateRange.endTimestamp=9223372036854775808", "integer of 64 bits"),
        ("dateRange.endTimestamp=" + "9" * 5000, "integer of 64 bits"),
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
        ("filter.account_types", "filter.accountTypes"),
        ("pagination.newest_first", "pagination.newestFirst"),
        ("pagination.", "pagination.last"),
        ("dateRange.end", "dateRange.endTimestamp"),
    ],
)
def test_a_wrong_name_in_a_group_is_refused_with_the_right_one(block, name, meant):
    status, code, inner = block.refusal(f"{name}=1")
    assert (status, code, f"did you mean {meant!r}?" in inner) == (400, 3, True), inner


def test_a_type_that_no_list_holds_is_accepted_where_the_file_holds_it(node):
    rows = [row._replace(account_type="ACCOUNT_TYPE_OF_TOMORROW") for row in block_of(3)]
    node.hold(rows)
    page = node.page({"filter.accountTypes": "ACCOUNT_TYPE_OF_TOMORROW"})
    assert len(page["edges"]) == 3


def test_an_error_body_is_json_of_the_interface_s_form(block):
    body = block.get({"pagination.first": 0}).json()
    detail = body["details"][0]
    assert set(body) == {"code", "message", "details"}
    assert set(detail) == {"@type", "code", "message", "inner"}


def test_an_error_says_that_it_is_json(block):
    response = block.get({"pagination.first": 0})
    assert response.headers["Content-Type"] == "application/json"


def test_an_unknown_path_is_not_found(block):
    response = block.get(path="/api/v2/balance/change")
    assert (response.status_code, response.json()["code"]) == (404, 5)


def test_only_get_is_supported(block):
    response = block.session.post(f"{block.url}/api/v2/balance/changes", timeout=10)
    assert (response.status_code, response.json()["code"]) == (501, 12)


@pytest.fixture
def failed(tmp_path):
    """The answer of a service whose file went away."""
    path = tmp_path / "changes.parquet"
    write_rows(path, [])
    with serve(create_app(path)) as url:
        path.unlink()
        return requests.get(f"{url}/api/v2/balance/changes", timeout=10)


def test_an_unexpected_error_is_an_internal_one(failed):
    assert (failed.status_code, failed.json()["code"]) == (500, 13)


def test_an_unexpected_error_tells_the_client_nothing_of_the_inside(failed):
    assert not [word for word in ("Traceback", "duckdb", "parquet", "line") if word in failed.text]


@pytest.mark.usefixtures("failed")
def test_an_unexpected_error_is_in_the_log(caplog):
    assert "changes.parquet" in "".join(
        str(record.exc_info) for record in caplog.get_records("setup")
    )
