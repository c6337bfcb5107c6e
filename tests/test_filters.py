from __future__ import annotations

import inspect
import itertools
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.filters import Filters, make_filters
from balance_analysis.names import read_names

ID = "ab" * 32


def ids(count, offset=0):
    return tuple(f"{number + offset:064x}" for number in range(count))


def kept(filters):
    """Return every (party, market, type) of the lists that a filter asks for."""
    return list(
        itertools.product(
            filters.party_ids or [None], filters.market_ids or [None], filters.account_types or [0]
        )
    )


some_filters = st.builds(
    lambda asset, parties, markets, types: Filters(
        asset, ids(parties), ids(markets, 1000), ba.ACCOUNT_TYPES[:types]
    ),
    st.sampled_from([None, "asset"]),
    st.integers(0, 130),
    st.integers(0, 70),
    st.integers(0, 2),
)


FEES = "ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, Filters()),
        (
            {"asset_id": ID.upper(), "party_ids": [ID.upper()], "market_ids": ID.upper()},
            Filters(ID, (ID,), (ID,)),
        ),
        ({"party_ids": ["c" * 64, ID, "c" * 64]}, Filters(party_ids=("c" * 64, ID))),
        ({"party_ids": "network"}, Filters(party_ids=("network",))),
        ({"asset_id": "XYZalpha"}, Filters("XYZalpha")),
        ({"asset_id": "id:odd"}, Filters("odd")),
        ({"asset_id": f"id:{ID.upper()}"}, Filters(ID)),
        ({"account_types": "new:Some_Thing"}, Filters(account_types=("Some_Thing",))),
        ({"account_types": [FEES, "reward_maker_paid_fees"]}, Filters(account_types=(FEES,))),
        ({"account_types": "reward-maker-paid-fees"}, Filters(account_types=(FEES,))),
        ({"account_types": " Reward Maker Paid Fees"}, Filters(account_types=(FEES,))),
        ({"account_types": FEES.lower()}, Filters(account_types=(FEES,))),
    ],
)
def test_words_are_brought_into_the_form_that_is_sent(words, expected):
    assert make_filters(**words) == expected


def test_a_symbol_that_nothing_explains_is_refused_before_anything_is_asked_or_bound(tmp_path):
    client = ba.Client("http://127.0.0.1:9")
    for load in (
        lambda: ba.load_balance_changes(client, asset_id="tUSD"),
        lambda: ba.load_to_parquet(client, tmp_path / "x.parquet", asset_id="tUSD"),
        lambda: ba.export(client, tmp_path / "a", asset_id="tUSD"),
    ):
        with pytest.raises(ValueError, match="for a symbol, give assets"):
            load()
    assert not list(tmp_path.iterdir())


def test_an_unknown_account_type_is_refused_with_the_nearest_and_where_all_names_are():
    with pytest.raises(ValueError, match="did you mean GENERAL or ") as caught:
        make_filters(account_types="generall")
    assert "ba.ACCOUNT_TYPES has all" in str(caught.value)
    assert "'new:ACCOUNT_TYPE_GENERALL'" in str(caught.value)
    with pytest.raises(ValueError, match="'qqq'; ba"):
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
        ({"market_ids": ""}, "empty market id can't be asked for"),
        ({"market_ids": [""]}, "empty market id can't be asked for"),
        ({"asset_id": ""}, "asset_id must be an asset's id"),
        ({"asset_id": "  "}, "asset_id must be an asset's id"),
        ({"asset_id": "id:"}, "asset id 'id:' is not 64 hex digits"),
        ({"account_types": ""}, "unknown account type ''"),
        ({"account_types": "new:"}, "names no account type"),
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


def selected(filters):
    """Return which accounts of two ids a column filters select, by a loop of plain comparisons."""
    return {
        account
        for account in itertools.product("ab", repeat=4)
        if (filters.asset_id in {None, account[0]})
        and (not filters.account_types or account[1] in filters.account_types)
        and (not filters.party_ids or account[2] in filters.party_ids)
        and (not filters.market_ids or account[3] in filters.market_ids)
    }


chosen = st.lists(st.sampled_from("ab"), unique=True).map(tuple)
small_filters = st.builds(Filters, st.sampled_from([None, "a", "b"]), chosen, chosen, chosen)


@given(small_filters, small_filters)
def test_filters_select_the_same_accounts_alone_and_together_in_any_order(one, two):
    accounts = [*itertools.product("ab", repeat=4)]
    assert {account for account in accounts if one.selects(account)} == selected(one)
    table = pd.DataFrame(accounts, columns=ba.ACCOUNT_KEY)
    assert {*one.select(table).itertuples(index=False, name=None)} == selected(one)
    assert selected(one.sorted()) == selected(one)
    both = one.intersection(two)
    assert (set() if both is None else selected(both)) == selected(one) & selected(two)
    assert (both is None) == (not selected(one) & selected(two))


@given(some_filters)
def test_parts_ask_for_every_account_once(filters):
    asked = [one for part in filters.parts() for one in kept(part)]
    assert sorted(asked, key=str) == sorted(kept(filters), key=str)
    assert all(part.asset_id == filters.asset_id for part in filters.parts())


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4))
def test_halving_ends_at_single_values(parties, markets, types):
    waiting, singles = [Filters(None, ids(parties), ids(markets), ba.ACCOUNT_TYPES[:types])], []
    while waiting:
        one = waiting.pop()
        halves = one.halves()
        waiting += halves
        if not halves:
            singles.append(one)
    counts = (max(parties, 1), max(markets, 1), max(types, 1))
    assert len(set(singles)) == len(singles) == math.prod(counts)


@pytest.mark.parametrize(
    "function", [ba.load_balance_changes, ba.iter_pages, ba.export, ba.Archive.select]
)
def test_functions_that_take_filters_show_them_in_their_signature(function):
    shown = inspect.signature(function).parameters
    defaults = {"asset_id": None, "assets": None, "labels": None}
    for name in ("asset_id", "party_ids", "market_ids", "account_types", "assets", "labels"):
        assert shown[name].default == defaults.get(name, ())


def test_words_are_looked_up_among_names_and_held_ids_each_id_once():
    labels = {ids(1)[0]: "Desk", ids(2)[1]: "Desk", ID: "Alice"}
    how = {"names": lambda: read_names(labels=labels), "held": {"market_id": ids(1, 5)}}
    assert make_filters(party_ids="DESK", **how).party_ids == ids(2)
    assert make_filters(party_ids=["Alice", ID], market_ids="0000..0005", **how) == Filters(
        None, (ID,), ids(1, 5)
    )
    assert make_filters(asset_id="ABAB", held={"asset_id": {ID}}).asset_id == ID


def test_a_whole_id_is_taken_without_a_look_at_names():
    def fail():
        raise AssertionError

    assert make_filters(asset_id=ID, party_ids=ID, market_ids=ID, names=fail).asset_id == ID
