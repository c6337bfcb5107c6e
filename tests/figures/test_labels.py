from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.figures.labels import account_labels, axis_label, type_label
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import short_ids

PARTY = "c2071f9874933829eb432b1af0d776b5d49d5d4a7feefffa7d1e9642d9d5ed19"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"

# Few letters and the ellipsis itself, so that ends collide.
ids = st.lists(st.text("ab…", max_size=20), max_size=30)


def accounts(*keys):
    return pd.DataFrame(keys, columns=list(ACCOUNT_KEY))


@given(ids)
def test_no_two_ids_have_the_same_short_form(ids):
    short = short_ids(ids)
    assert set(short) == set(ids)
    assert len(set(short.values())) == len(set(ids))


@given(ids)
def test_a_short_form_is_never_longer_than_its_id(ids):
    assert all(len(short) <= len(full) for full, short in short_ids(ids).items())


@given(ids)
def test_a_short_form_keeps_both_ends(ids):
    for full, short in short_ids(ids).items():
        if short != full:
            assert full.startswith(short[:6])
            assert full.endswith(short[-4:])


def test_a_long_id_keeps_its_first_six_and_last_four_characters():
    assert short_ids([PARTY]) == {PARTY: "c2071f…ed19"}


@pytest.mark.parametrize("whole", ["network", "VOTE", "", "eleven char"])
def test_an_id_as_short_as_a_short_form_stays_whole(whole):
    assert short_ids([whole, PARTY])[whole] == whole


def test_ids_with_equal_ends_keep_as_much_as_tells_them_apart():
    other = PARTY[:10] + "0" * 44 + PARTY[-10:]
    assert short_ids([PARTY, other]) == {
        PARTY: "c2071f987493…d9d5ed19"[:0] + PARTY[:12] + "…" + PARTY[-10:],
        other: other[:12] + "…" + other[-10:],
    }


def test_one_collision_does_not_lengthen_the_other_ids():
    other = PARTY[:6] + "0" * 54 + PARTY[-4:]
    assert short_ids([PARTY, other, MARKET])[MARKET] == "bda439…4f32"


def test_an_account_without_a_market_shows_type_and_party():
    key = ("VOTE", "ACCOUNT_TYPE_GENERAL", PARTY, "")
    assert account_labels(accounts(key)) == ["general · c2071f…ed19"]


def test_an_account_with_a_market_shows_it_last():
    key = ("VOTE", "ACCOUNT_TYPE_ORDER_MARGIN", PARTY, MARKET)
    expected = ["order margin · c2071f…ed19 · market bda439…4f32"]
    assert account_labels(accounts(key)) == expected


def test_labels_stand_in_the_order_of_the_rows():
    keys = [("VOTE", "ACCOUNT_TYPE_GENERAL", party, "") for party in ("b", "a", "c")]
    assert account_labels(accounts(*keys)) == ["general · b", "general · a", "general · c"]


def test_no_accounts_have_no_labels():
    assert account_labels(empty_table()) == []


def test_an_account_type_without_the_prefix_stays_recognisable():
    assert type_label("77") == "77"


@pytest.mark.parametrize(
    ("unit", "whole", "expected"),
    [
        (None, False, "balance (smallest unit)\nasset VOTE"),
        ("VEGA", False, "balance (smallest unit of VEGA)\nasset VOTE"),
        (None, True, "balance (whole units)\nasset VOTE"),
        ("VEGA", True, "balance (VEGA)\nasset VOTE"),
    ],
)
def test_an_axis_says_asset_and_unit(unit, whole, expected):
    assert axis_label("balance", "VOTE", unit=unit, whole=whole) == expected


def test_an_axis_shows_a_long_asset_id_short():
    assert axis_label("balance", MARKET).endswith("\nasset bda439…4f32")
