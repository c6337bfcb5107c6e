from __future__ import annotations

import doctest

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis import demo, names, naming, text
from balance_analysis.text import type_label

PARTY = "c2071f9874933829eb432b1af0d776b5d49d5d4a7feefffa7d1e9642d9d5ed19"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"


def test_an_account_shows_type_party_and_market_if_it_has_one_beside_its_row():
    keys = [
        ("VOTE", "ACCOUNT_TYPE_ORDER_MARGIN", PARTY, MARKET),
        ("VOTE", "ACCOUNT_TYPE_GENERAL", "a", ""),
        ("VOTE", "ACCOUNT_TYPE_ORDER_MARGIN", PARTY, MARKET),
    ]
    accounts = pd.DataFrame(keys, columns=ba.ACCOUNT_KEY, index=["x", "y", "x"])
    order = "order margin · c2071f…ed19 · bda439…4f32"
    expected = pd.Series([order, "general · a", order], accounts.index, name="label")
    pd.testing.assert_series_equal(ba.account_labels(accounts), expected)


def test_each_row_of_a_table_has_the_label_of_its_account_and_no_other_has_it():
    table = ba.read_parquet(demo.sample_data() / "changes.parquet").head(20_000)
    table = table[table["asset_id"] == table["asset_id"].iloc[0]]
    labels = ba.account_labels(table)
    keys = [table[name] for name in ba.ACCOUNT_KEY]
    assert labels.groupby(keys, observed=True).nunique().eq(1).all()
    assert labels.nunique() == len(table.drop_duplicates(ba.ACCOUNT_KEY))


def test_the_header_of_a_wide_series_has_labels_and_an_empty_table_none():
    table = ba.read_parquet(demo.sample_data() / "changes.parquet").head(100)
    wide = ba.balance_series(table, freq="1D")
    assert ba.account_labels(wide.columns.to_frame()).index.equals(wide.columns)
    assert ba.account_labels(table[:0]).empty


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["asset_id"], ["all accounts"] * 3),
        (["market_id"], ["market m", "no market", "market NA"]),
        (["account_type", "market_id"], ["general · market m", "general", "general · market NA"]),
        (["party_id", "market_id"], ["NA · m", "no party", "NA · NA"]),
        ([*ba.ACCOUNT_KEY], ["general · NA · m", "general · no party", "own"]),
    ],
)
def test_what_is_missing_has_a_label_too(columns, expected):
    accounts = pd.DataFrame(
        {
            "asset_id": "VOTE",
            "account_type": "ACCOUNT_TYPE_GENERAL",
            "party_id": ["NA", "", None],
            "market_id": ["m", "", None],
        }
    )
    own = {("VOTE", "ACCOUNT_TYPE_GENERAL", "NA", "NA"): "own"}
    assert ba.account_labels(accounts[columns], labels=own).tolist() == expected


def test_labels_of_what_has_no_ids_are_refused():
    with pytest.raises(ValueError, match="asset_id, account_type"):
        ba.account_labels(pd.DataFrame({"a": [1]}))


def test_an_account_type_without_the_prefix_stays_recognisable():
    assert type_label("77") == "77"


def test_the_examples_in_docstrings_run():
    for module in (names, naming, text):
        failed, attempted = doctest.testmod(module)
        assert attempted > 0
        assert failed == 0
