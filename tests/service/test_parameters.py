"""Every parameter of the interface, in all its spellings, and what is said to a wrong one."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balance_analysis.filters import Filters
from balance_analysis.service.errors import RefusedError
from balance_analysis.service.parameters import ChangesQuery, read_parameters

PARTY, MARKET = "ab" * 32, "cd" * 32

SPELLINGS = {
    "filter.assetId": ["filter.asset_id"],
    "filter.partyIds": ["filter.party_ids"],
    "filter.marketIds": ["filter.market_ids"],
    "filter.accountTypes": ["filter.account_types"],
    "pagination.newestFirst": ["pagination.newest_first"],
    "dateRange.startTimestamp": [
        "date_range.start_timestamp",
        "dateRange.start_timestamp",
        "date_range.startTimestamp",
    ],
    "dateRange.endTimestamp": [
        "date_range.end_timestamp",
        "dateRange.end_timestamp",
        "date_range.endTimestamp",
    ],
}
ASKED = [
    ("filter.assetId", "any text"),
    ("filter.partyIds", PARTY.upper()),
    ("filter.partyIds", "network"),
    ("filter.marketIds", MARKET),
    ("filter.accountTypes", "ACCOUNT_TYPE_BOND"),
    ("pagination.first", "7"),
    ("pagination.newestFirst", "false"),
    ("dateRange.startTimestamp", "1000000"),
    ("dateRange.endTimestamp", "2000000"),
]
UNDERSTOOD = ChangesQuery(
    Filters("any text", (PARTY, "network"), (MARKET,), ("ACCOUNT_TYPE_BOND",)),
    1000,
    2000,
    size=7,
    newest_first=False,
)


def read(items):
    return read_parameters(items, is_known_type=lambda name: name == "ACCOUNT_TYPE_OF_THE_ARCHIVE")


def refusal(items):
    with pytest.raises(RefusedError) as refused:
        read(items)
    assert (refused.value.code, refused.value.status) == (3, 400)
    return str(refused.value)


def test_nothing_asks_for_the_newest_thousand_rows_of_all():
    assert read([]) == ChangesQuery(Filters(), size=1000, newest_first=True)


@given(data=st.data())
def test_every_spelling_in_any_order_means_the_same(data):
    spelt = [
        (data.draw(st.sampled_from([name, *SPELLINGS.get(name, [])])), value)
        for name, value in ASKED
    ]
    lists = spelt[1:3]
    singles = [item for item in spelt if item not in lists]
    assert read([*data.draw(st.permutations(singles)), *lists]) == UNDERSTOOD


@pytest.mark.parametrize("name", [name for name in SPELLINGS if "s" not in name[-3:]])
def test_two_spellings_of_a_single_value_are_two_values(name):
    values = {"filter.assetId": "x", "pagination.newestFirst": "true"}
    items = [(each, values.get(name, "1")) for each in (name, SPELLINGS[name][0])]
    assert f"{name} takes one value, but was given 2" in refusal(items)


NUMBERS = ("", " ", "x", "1.0", "1e3", "0x10", "1_000", "--1", "NaN", "true", "1,2", "9" * 400)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("pagination.first", value, "") for value in (*NUMBERS, str(-(2**31) - 1))),
        *(("dateRange.endTimestamp", value, "64 bits") for value in (*NUMBERS, str(2**63))),
        *(("pagination.newestFirst", value, "send 'true'") for value in ("", "yes", "2", "TrUe")),
        ("filter.partyIds", "abc", "64 hex digits, or 'network'"),
        ("filter.partyIds", f"{PARTY},{PARTY}", "64 hex digits"),
        ("filter.partyIds", f"{PARTY}\n", "64 hex digits"),
        ("filter.partyIds", "' OR '1'='1", "64 hex digits"),
        ("filter.marketIds", "network", "64 hex digits"),
        ("filter.marketIds", "", "64 hex digits"),
        ("filter.accountTypes", "", "leave it out for all account types"),
        *(
            ("filter.accountTypes", value, "send one such as ")
            for value in ("8", "35", "-1", "4.0")
        ),
        ("filter.accountTypes", "GENERAL", "send one such as ACCOUNT_TYPE_"),
        ("filter.accountTypes", "ACCOUNT_TYPE_OF_NOBODY", "send one such as ACCOUNT_TYPE_"),
        ("pagination.first", "5001", "1 to 5000"),
        ("pagination.last", "0", "1 to 5000"),
        ("pagination.last", "2147483648", "32 bits"),
        ("dateRange.startTimestamp", "2023-04-01", "64 bits"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(name, value, said):
    for spelling in (name, *SPELLINGS.get(name, ())):
        found = refusal([(spelling, value)])
        assert f"{name}=" in found
        assert said in found


def test_two_cursors_are_refused():
    items = [("pagination.after", "x"), ("pagination.before", "x")]
    assert "pagination.after and pagination.before exclude each other" in refusal(items)


@pytest.mark.parametrize(
    "name",
    [
        "filter.partyId",
        "filter.PartyIds",
        "filter.account_type",
        "filter.asset-id",
        "filter.party_ids[]",
        "filter.partyIds[0]",
        "filter[marketIds]",
        "pagination.limit",
        "date_range.start",
        "date_range[end_timestamp]",
    ],
)
def test_an_unknown_name_in_a_group_is_refused_with_those_that_there_are(name):
    said = refusal([(name, "1")])
    assert repr(name) in said
    assert "filter.assetId, filter.partyIds, filter.marketIds" in said


@given(rest=st.text(max_size=200), group=st.sampled_from(["filter", "pagination", "date_range"]))
def test_any_other_name_in_a_group_is_refused(rest, group):
    name = f"{group}.{rest}"
    known = {*SPELLINGS, *itertools.chain(*SPELLINGS.values())}
    if name not in known and rest not in ("first", "last", "after", "before"):
        assert "is not a parameter: there are" in refusal([(name, "1")])


@pytest.mark.parametrize(
    "name", ["page", "assetId", "filters.assetId", "x.first", "", "dateranges", "filter"]
)
def test_a_name_outside_of_the_groups_is_ignored(name):
    assert read([*ASKED, (name, "\x00")]) == UNDERSTOOD


@pytest.mark.parametrize(
    ("nanoseconds", "microseconds"),
    [(0, 0), (999, 0), (1000, 1), (-1, -1), (-1000, -1), (-1001, -2), (2**63 - 1, 2**63 // 1000)],
)
def test_nanoseconds_are_cut_towards_the_past(nanoseconds, microseconds):
    assert read([("dateRange.startTimestamp", str(nanoseconds))]).start == microseconds


def test_a_type_that_the_archive_holds_is_known():
    name = "ACCOUNT_TYPE_OF_THE_ARCHIVE"
    assert read([("filter.accountTypes", name)]).filters.account_types == (name,)


# Two that the reference says by number, and both ends of the gap at 8.
@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("1", "INSURANCE"),
        ("4", "GENERAL"),
        ("7", "FEES_MAKER"),
        ("9", "BOND"),
        ("17", "REWARD_MARKET_PROPOSERS"),
        ("29", "ORDER_MARGIN"),
        ("34", "LOCKED_FOR_STAKING"),
    ],
)
def test_a_type_s_number_stands_for_it(number, name):
    assert read([("filter.accountTypes", number)]).filters.account_types == (
        f"ACCOUNT_TYPE_{name}",
    )
    assert read([("filter.accountTypes", "0")]).filters is None


def test_the_unspecified_type_is_that_of_no_row():
    unspecified = ("filter.accountTypes", "ACCOUNT_TYPE_UNSPECIFIED")
    assert read([unspecified]).filters is None
    bond = ("filter.accountTypes", "ACCOUNT_TYPE_BOND")
    assert read([unspecified, bond]).filters == Filters(account_types=("ACCOUNT_TYPE_BOND",))


@pytest.mark.parametrize(
    ("items", "size", "backward"),
    [
        ({"first": 3, "last": 4}, 3, False),
        ({"last": 4}, 4, True),
        ({"first": 5000}, 5000, False),
        ({"last": 1}, 1, True),
    ],
)
def test_first_comes_before_last(items, size, backward):
    query = read([(f"pagination.{name}", str(value)) for name, value in items.items()])
    assert (query.size, query.backward) == (size, backward)


@pytest.mark.parametrize("value", ["1", "5000", "+7", "0007"])
def test_a_page_size_is_a_number(value):
    assert read([("pagination.first", value)]).size == int(value)


def is_page_size(text):
    return re.fullmatch("[+]?[0-9]+", text) is not None and 1 <= int(text) <= 5000


@given(value=(st.text(max_size=30) | st.integers().map(str)).filter(lambda x: not is_page_size(x)))
@example(value="-0")
@example(value="٣")
def test_no_other_text_is_a_page_size(value):
    said = refusal([("pagination.first", value)])
    shown = int(value) if re.fullmatch("[+-]?[0-9]{1,19}", value) else value
    assert said.startswith(
        (f"pagination.first={value!r} is not", f"pagination.first={shown} is not")
    )
