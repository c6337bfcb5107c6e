import itertools
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.table.filters import make_filters
from balance_analysis.table.names import read_names

ID = "ab" * 32


def ids(count, offset=0):
    return tuple(f"{number + offset:064x}" for number in range(count))


def combinations(filters):
    """Return every (party, market, type) that filters ask for."""
    lists = (filters.party_ids, filters.market_ids, filters.account_types)
    return [*itertools.product(*(values or [None] for values in lists))]


some_filters = st.builds(
    make_filters,
    asset_id=st.sampled_from([None, ID]),
    party_ids=st.integers(0, 130).map(ids),
    market_ids=st.integers(0, 70).map(lambda count: ids(count, 1000)),
    account_types=st.integers(0, 2).map(lambda count: ba.ACCOUNT_TYPES[:count]),
)


FEES = "ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, {}),
        (
            {"asset_id": ID.upper(), "party_ids": [ID.upper()], "market_ids": ID.upper()},
            {"asset_id": (ID,), "party_id": (ID,), "market_id": (ID,)},
        ),
        ({"party_ids": ["c" * 64, ID, "c" * 64]}, {"party_id": ("c" * 64, ID)}),
        ({"party_ids": "network"}, {"party_id": ("network",)}),
        ({"asset_id": "XYZalpha"}, {"asset_id": ("XYZalpha",)}),
        ({"asset_id": "id:odd"}, {"asset_id": ("odd",)}),
        ({"asset_id": f"id:{ID.upper()}"}, {"asset_id": (ID,)}),
        ({"account_types": "new:Some_Thing"}, {"account_type": ("Some_Thing",)}),
        ({"account_types": [FEES, "reward_maker_paid_fees"]}, {"account_type": (FEES,)}),
        ({"account_types": "reward-maker-paid-fees"}, {"account_type": (FEES,)}),
        ({"account_types": " Reward Maker Paid Fees"}, {"account_type": (FEES,)}),
        ({"account_types": FEES.lower()}, {"account_type": (FEES,)}),
    ],
)
def test_values_are_converted_to_the_form_that_is_sent(words, expected):
    assert make_filters(**words).allowed() == expected


def test_an_unknown_symbol_is_refused_before_any_request_or_file(tmp_path):
    client = ba.Client("http://127.0.0.1:9")
    for load in (
        lambda: ba.load_balance_changes(client, asset_id="tUSD"),
        lambda: ba.load_to_parquet(client, tmp_path / "x.parquet", asset_id="tUSD"),
        lambda: ba.export(client, tmp_path / "a", asset_id="tUSD"),
    ):
        with pytest.raises(ValueError, match="for a symbol, give assets"):
            load()
    assert not list(tmp_path.iterdir())


def test_an_unknown_account_type_is_refused_with_similar_names_and_where_to_find_all():
    with pytest.raises(ValueError, match="did you mean GENERAL or ") as caught:
        make_filters(account_types="generall")
    assert "ba.ACCOUNT_TYPES has all" in str(caught.value)
    assert "'new:ACCOUNT_TYPE_GENERALL'" in str(caught.value)
    with pytest.raises(ValueError, match="'qqq'; no name resembles it"):
        make_filters(account_types="qqq")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"party_ids": ID[:-1]}, "party id '.*' is not 64 hex digits"),
        ({"party_ids": ID + "0"}, "is not 64 hex digits"),
        ({"party_ids": ID + "\n"}, "is not 64 hex digits"),
        ({"party_ids": "g" * 64}, "is not 64 hex digits"),
        ({"party_ids": "NETWORK"}, "is not 64 hex digits"),
        ({"party_ids": ""}, "is not 64 hex digits"),
        ({"party_ids": [ID, "x"]}, "party id 'x'"),
        ({"market_ids": "network"}, "market id 'network' is not 64 hex digits"),
        ({"market_ids": ""}, "market id '' is not 64 hex digits"),
        ({"market_ids": [""]}, "market id '' is not 64 hex digits"),
        ({"asset_id": ""}, "asset id '' is not 64 hex digits"),
        ({"asset_id": "  "}, "asset id '  ' is not 64 hex digits"),
        ({"asset_id": "id:"}, "asset id 'id:' is not 64 hex digits"),
        ({"account_types": ""}, "unknown account type ''"),
        ({"account_types": "new:"}, "needs the name of an account type"),
    ],
)
def test_a_malformed_filter_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_filters(**arguments)


@pytest.mark.parametrize("name", ["asset_id", "party_ids", "market_ids", "account_types"])
@pytest.mark.parametrize("value", [[None], 5, [ID.encode()]])
def test_a_filter_that_is_not_text_is_a_type_error(name, value):
    with pytest.raises(TypeError, match=name):
        make_filters(**{name: value})


TWO = {
    "asset_id": ids(2),
    "account_type": ba.ACCOUNT_TYPES[4:6],
    "party_id": ids(2, 10),
    "market_id": ids(2, 20),
}
ACCOUNTS = [*itertools.product(*TWO.values())]


def selected(filters):
    """Return the accounts of `ACCOUNTS` that filters select, by a loop of plain comparisons."""
    return {
        account
        for account in ACCOUNTS
        if (filters.asset_id in {None, account[0]})
        and (not filters.account_types or account[1] in filters.account_types)
        and (not filters.party_ids or account[2] in filters.party_ids)
        and (not filters.market_ids or account[3] in filters.market_ids)
    }


def some_of(column):
    return st.lists(st.sampled_from(TWO[column]), unique=True)


small_filters = st.builds(
    make_filters,
    asset_id=st.sampled_from([None, *TWO["asset_id"]]),
    party_ids=some_of("party_id"),
    market_ids=some_of("market_id"),
    account_types=some_of("account_type"),
)


@given(small_filters, small_filters)
def test_filters_select_the_same_accounts_alone_and_together_in_any_order(first, second):
    assert {account for account in ACCOUNTS if first.selects(account)} == selected(first)
    table = pd.DataFrame(ACCOUNTS, columns=ba.ACCOUNT_KEY)
    assert {*first.select(table).itertuples(index=False, name=None)} == selected(first)
    assert selected(first.sorted()) == selected(first)
    assert first.covers(first)
    both = first.intersection(second)
    assert (set() if both is None else selected(both)) == selected(first) & selected(second)
    assert (both is None) == (not selected(first) & selected(second))


@given(some_filters)
def test_parts_ask_for_every_account_once(filters):
    asked = [ids for part in filters.parts() for ids in combinations(part)]
    assert sorted(asked, key=str) == sorted(combinations(filters), key=str)
    assert all(part.asset_id == filters.asset_id for part in filters.parts())
    assert all(len((*x.party_ids, *x.market_ids)) <= 60 for x in filters.parts())


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4))
def test_halving_ends_at_single_values(parties, markets, types):
    lists = {"party_ids": ids(parties), "market_ids": ids(markets)}
    waiting, singles = [make_filters(account_types=ba.ACCOUNT_TYPES[:types], **lists)], []
    while waiting:
        filters = waiting.pop()
        halves = filters.halves()
        waiting += halves
        if not halves:
            singles.append(filters)
    counts = (max(parties, 1), max(markets, 1), max(types, 1))
    assert len(set(singles)) == len(singles) == math.prod(counts)


def test_values_are_looked_up_among_names_and_held_ids_without_repeats():
    labels = {ids(1)[0]: "Desk", ids(2)[1]: "Desk", ID: "Alice"}
    held = {"party_id": [*labels], "market_id": ids(1, 5)}
    options = {"names": lambda: read_names(labels=labels), "held": held}
    assert make_filters(party_ids="DESK", **options).party_ids == ids(2)
    both = make_filters(party_ids=["Alice", ID], market_ids="0000..0005", **options)
    assert (both.party_ids, both.market_ids) == ((ID,), ids(1, 5))
    assert make_filters(asset_id="ABAB", held={"asset_id": {ID}}).asset_id == ID


def test_a_whole_id_needs_no_names():
    filters = make_filters(asset_id=ID, party_ids=ID, market_ids=ID, names=pytest.fail)
    assert filters.asset_id == ID
