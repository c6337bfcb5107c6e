from __future__ import annotations

import json
import pickle

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import balance_analysis as ba

PARTY, MARKET, OTHER = "a1" * 32, "b2" * 32, "c3" * 32
ACCOUNT = ("VOTE", "ACCOUNT_TYPE_MARGIN", PARTY, MARKET)
SAVINGS = ("VOTE", "ACCOUNT_TYPE_GENERAL", PARTY, "")
SOURCE = {PARTY: "Alice", MARKET: "BTC/USD", ACCOUNT: "Bets", SAVINGS: "Savings"}
LABELS = ba.read_labels(SOURCE)
CSV = f"""note,asset_id,account_type,party_id,market_id,label
x,,,{PARTY},,Alice
y,,,,{MARKET.upper()},BTC/USD
z,{",".join(ACCOUNT)},Bets
z,{",".join(SAVINGS)}, Savings
"""
FILED = {key if isinstance(key, str) else "/".join(key): label for key, label in SOURCE.items()}


def test_a_file_or_frame_of_any_kind_gives_the_same_labels_as_a_mapping(tmp_path):
    toml = "\n".join(f'"{key}" = "{label}"' for key, label in FILED.items())
    texts = {"a.toml": toml, "a.csv": CSV, "a.JSON": json.dumps(FILED)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert ba.read_labels(tmp_path / name) == LABELS
    assert ba.read_labels(pd.read_csv(tmp_path / "a.csv")) == LABELS
    parties = pd.DataFrame({"id": [PARTY, MARKET], "label": ["Alice", "BTC/USD"]})
    assert ba.read_labels(parties) == ba.read_labels({PARTY: "Alice", MARKET: "BTC/USD"})


ids = st.text(st.characters(exclude_characters="/"), min_size=1).map(str.strip).filter(bool)
named = ids | st.tuples(ids, ids, ids, st.just("") | ids)


@given(st.dictionaries(named, st.text("xyz ", min_size=1).filter(str.strip)))
def test_labels_written_as_json_read_back_equal(source):
    known = {one for key in source for one in ([key] if isinstance(key, str) else key)}
    assume(not known & {label.strip() for label in source.values()})
    labels = ba.read_labels(source)
    assert ba.read_labels(labels.to_json()) == labels
    assert ba.read_labels(labels) is labels
    assert pickle.loads(pickle.dumps(labels)) == labels
    assert hash(ba.read_labels(labels.to_json())) == hash(labels)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({PARTY: " "}, "must be text, not ' '"),
        ({PARTY: None}, "must be text, not None"),
        ({PARTY: "network"}, "is an id itself"),
        ({PARTY: OTHER}, "is an id itself"),
        ({PARTY: "x", "x": "y"}, "is an id itself"),
        ({"": "x"}, "neither an id nor the 4 of an account"),
        ({("a", "b", "c"): "x"}, "neither an id nor the 4 of an account"),
        ({("a", "b", "", ""): "x"}, "neither an id nor the 4 of an account"),
        ({5: "x"}, "neither an id"),
        (pd.DataFrame({"label": ["x"]}), "stand in a column label, beside id"),
        (pd.DataFrame({"party_id": ["x"]}), "stand in a column label, beside id"),
        (pd.DataFrame({"asset_id": ["x"], "label": ["y"]}), "row 1 must have the id of a party"),
        (
            pd.DataFrame({"party_id": ["x"], "market_id": ["y"], "label": ["z"]}),
            "row 1 must have the id of a party",
        ),
        (pd.DataFrame({"id": ["a", "a"], "label": ["x", "y"]}), "row 2: 'a' has another label"),
    ],
)
def test_labels_that_say_nothing_or_not_what_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        ba.read_labels(source)


def test_what_is_neither_labels_nor_their_source_is_refused():
    with pytest.raises(TypeError, match="not 5"):
        ba.read_labels(5)


def test_accounts_show_own_names_and_those_of_one_name_are_told_apart():
    accounts = pd.DataFrame([ACCOUNT, SAVINGS, ACCOUNT], columns=ba.ACCOUNT_KEY)
    assert ba.account_labels(accounts, labels=LABELS).tolist() == ["Bets", "Savings", "Bets"]
    names = {PARTY: "Desk", OTHER: "desk", MARKET: "BTC"}
    accounts["party_id"] = [PARTY, "d4" * 32, OTHER]
    shown = ba.account_labels(accounts, labels=names).tolist()
    assert shown == [
        "margin · Desk (a1a1a1…a1a1) · BTC",
        "general · d4d4d4…d4d4",
        "margin · desk (c3c3c3…c3c3) · BTC",
    ]
    assert ba.account_labels(accounts[["market_id"]], labels=names).iloc[0] == "market BTC"


def test_labels_are_a_mapping_that_cannot_be_changed_and_show_themselves():
    assert list(LABELS) == list(SOURCE)
    assert LABELS[ACCOUNT] == "Bets"
    assert repr(LABELS) == "Labels(Alice, BTC/USD, Bets, Savings)"
    with pytest.raises(TypeError):
        LABELS[PARTY] = "x"
    assert "&lt;b&gt;" in ba.read_labels({PARTY: "<b>"})._repr_html_()
