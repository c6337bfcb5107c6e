from __future__ import annotations

from urllib.parse import urlencode

from balance_analysis import ACCOUNT_TYPES
from balance_analysis.filters import Filters
from balance_analysis.node.walk import PageRequest, filter_parameters

IDS = tuple(f"{number:064x}" for number in range(300))


def test_lists_are_sent_as_repeated_keys():
    filters = Filters("A", ("p", "q"), ("m",), ("T", "U"))
    assert filter_parameters(filters) == [
        ("filter.assetId", "A"),
        ("filter.partyIds", "p"),
        ("filter.partyIds", "q"),
        ("filter.marketIds", "m"),
        ("filter.accountTypes", "T"),
        ("filter.accountTypes", "U"),
    ]


def test_the_longest_part_has_a_url_under_8_kb():
    filters = Filters("a" * 64, IDS, IDS, ACCOUNT_TYPES)
    for part in filters.parts():
        moment = 1_680_307_200_000_000
        request = PageRequest(part, moment, moment, 1_000_000, cursor="c" * 500)
        assert len(urlencode(request.parameters())) < 8000


def test_a_page_is_asked_for_with_both_bounds_in_nanoseconds():
    assert PageRequest(Filters(), 5, 7, 3).parameters() == [
        ("pagination.first", "3"),
        ("pagination.newestFirst", "false"),
        ("dateRange.startTimestamp", "5000"),
        ("dateRange.endTimestamp", "7000"),
    ]


def test_a_page_backwards_is_asked_for_with_last_and_before():
    request = PageRequest(Filters(asset_id="A"), 0, 1, 9, True, "c=", backward=True)
    assert request.parameters() == [
        ("filter.assetId", "A"),
        ("pagination.last", "9"),
        ("pagination.before", "c="),
        ("pagination.newestFirst", "true"),
        ("dateRange.startTimestamp", "0"),
        ("dateRange.endTimestamp", "1000"),
    ]
