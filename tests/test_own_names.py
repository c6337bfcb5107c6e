from __future__ import annotations

import json
import pickle
import re

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo

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


@pytest.mark.parametrize(
    "key", ["a1a1a1…a1a1", "a1..a1", f"0x{PARTY}", "0Xa1", "1.2E+63", "7e+63", "12E+9"]
)
def test_what_is_no_whole_id_is_no_key_of_a_name(key):
    for read, value in ((ba.read_labels, "Alice"), (ba.read_assets, 6)):
        with pytest.raises(ValueError, match=f"{re.escape(repr(key))} is no whole id"):
            read({key: value})
    with pytest.raises(ValueError, match=r"row 1: .* is no whole id"):
        ba.read_labels(pd.DataFrame({"party_id": [key], "label": ["Alice"]}))


def test_ids_that_differ_by_case_are_one_and_have_one_name():
    assert ba.read_labels({PARTY.upper(): "Alice"}) == ba.read_labels({PARTY: "Alice"})
    assert ba.read_assets({PARTY.upper(): 6}) == ba.read_assets({PARTY: 6})
    with pytest.raises(ValueError, match="above, something else is told"):
        ba.read_labels({PARTY.upper(): "Alice", PARTY: "Bob"})


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
ids = ids.filter(lambda one: not re.search(r"\.\.|…|^0[xX]|^\d[\d.]*[eE]\+", one))  # no whole ids
ids = ids.map(lambda one: one.lower() if re.fullmatch("[0-9a-fA-F]{64}", one) else one)
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
        (
            pd.DataFrame({"asset_id": ["x"], "label": ["y"]}),
            "row 1: it must have the id of a party",
        ),
        (
            pd.DataFrame({"party_id": ["x"], "market_id": ["y"], "label": ["z"]}),
            "row 1: it must have the id of a party",
        ),
        (pd.DataFrame({"id": ["a", "a"], "label": ["x", "y"]}), "row 2: above, something else"),
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


ASSETS = demo.sample_assets()
TABLE = ba.read_parquet(demo.sample_data() / "changes.parquet")
SOME = sorted({*TABLE["party_id"]} - {"network"})[:3]
PLAIN = ba.read_parquet(demo.sample_data() / "changes.parquet")
PLAIN.attrs["balance_analysis"] = {
    name: told
    for name, told in PLAIN.attrs["balance_analysis"].items()
    if name not in {"assets", "labels"}
}
LABELLED = {SOME[0]: "Alice", SOME[1]: "Desk", SOME[2]: "Desk"}
NAMED = ba.read_parquet(
    demo.sample_data() / "changes.parquet",
    assets=ASSETS,
    labels={SOME[0]: "Alice", SOME[1]: "Desk", SOME[2]: "Desk"},
)
RESULTS = {
    "table": lambda t: t,
    "at": lambda t: ba.balance_at(t, "2023-04-12"),
    "series": lambda t: ba.balance_series(t, freq="7D", layout="long"),
    "summarize": ba.summarize_accounts,
    "parties": ba.summarize_parties,
    "deltas": ba.deltas,
    "flows": lambda t: ba.flows(t, freq="7D", by=["asset_id", "party_id"]),
    "totals": lambda t: ba.totals(t, freq="7D", by=["asset_id", "party_id"]),
    "holders": lambda t: ba.holders(t, "2023-04-12", by=["asset_id", "party_id"]),
    "compare": lambda t: ba.compare(t, at=("2023-04-05", "2023-04-12")),
}


def has_label(frame):
    return bool({*frame} & {*ba.ACCOUNT_KEY[1:]})


@pytest.mark.parametrize("result", RESULTS)
def test_every_long_result_of_a_table_with_names_has_symbol_and_label_in_one_way(result):
    plain = RESULTS[result](PLAIN)
    shown = RESULTS[result](NAMED)
    if result == "table":
        assert [*shown] == [*plain]
        shown = ba.labelled(shown)
    assert not {"symbol", "label"} & {*plain}
    assert type(shown) is type(pd.DataFrame(plain)) or result == "table"
    pd.testing.assert_frame_equal(pd.DataFrame(shown.iloc[:, 2:]), pd.DataFrame(plain))
    assert [*shown][:2] == ["symbol", "label"]
    assert {str(shown[name].dtype) for name in ("symbol", "label")} == {"category"}
    assert (shown["symbol"] == [ASSETS[one].symbol for one in plain["asset_id"]]).all()
    for party, text in zip(
        SOME, ["Alice", f"Desk ({SOME[1][:6]}", f"Desk ({SOME[2][:6]}"], strict=True
    ):
        found = shown["label"][(plain["party_id"] == party).to_numpy()].astype("str")
        assert found.str.contains(text, regex=False).all()
    keys = [name for name in ba.ACCOUNT_KEY[1:] if name in plain]
    pairs = shown[["label", *keys]].drop_duplicates()
    assert len(pairs) == shown["label"].nunique() == len(plain[keys].drop_duplicates())
    pd.testing.assert_frame_equal(ba.labelled(shown), shown)
    again = ba.labelled(shown, labels={SOME[0]: "Bob"})
    assert "Bob" in " ".join(again["label"].astype("str").unique()) or SOME[0] not in {
        *plain["party_id"]
    }
    assert [*again] == [*shown]


@given(st.lists(st.tuples(*(st.integers(0, 2) for _ in range(4))), max_size=30), st.booleans())
def test_each_row_has_the_label_of_its_own_account_whatever_the_order(rows, as_categories):
    accounts = pd.DataFrame(rows, columns=ba.ACCOUNT_KEY).astype("str")
    shown = ba.labelled(accounts.astype("category") if as_categories else accounts)
    assert shown["symbol"].tolist() == accounts["asset_id"].tolist()
    assert shown["label"].tolist() == [
        f"{kind} · {party} · {market}"
        for kind, party, market in accounts.iloc[:, 1:].itertuples(index=False)
    ]


def test_wide_results_and_those_without_names_keep_their_columns():
    assert [*ba.balance_series(NAMED, freq="7D").columns.names] == ba.ACCOUNT_KEY
    assert [*ba.totals(NAMED, freq="7D", by="asset_id")][:2] == ["symbol", "asset_id"]
    assert "symbol" not in ba.balance_at(PLAIN, "2023-04-12")


def test_functions_that_take_results_back_take_them_with_names(tmp_path):
    held = ba.balance_at(NAMED, "2023-04-12")
    whole = ba.to_units(held)
    assert [*whole] == [*held]
    assert whole["balance"].dtype == float
    assert ba.account_labels(held).tolist() == held["label"].tolist()
    assert ba.to_integers(held)["label"].equals(held["label"])
    ba.write_table(held, tmp_path / "x.parquet")
    assert [*pd.read_parquet(tmp_path / "x.parquet")][:3] == ["symbol", "label", "asset_id"]


def test_a_labelled_table_stays_a_table_and_files_have_the_names(tmp_path):
    shown = ba.labelled(NAMED)
    pd.testing.assert_frame_equal(ba.totals(shown, freq="7D"), ba.totals(NAMED, freq="7D"))
    ba.write_table(shown.head(3), tmp_path / "x.csv")
    read = pd.read_csv(tmp_path / "x.csv")
    assert [*read][:3] == ["symbol", "label", "asset_id"]
    assert (read["party_id"] == NAMED["party_id"].head(3).astype("str")).all()
    wide = ba.balance_series(NAMED[NAMED["party_id"] == SOME[0]], freq="7D")
    ba.write_table(wide, tmp_path / "y.csv")
    header = (tmp_path / "y.csv").read_text().splitlines()[0]
    assert "/Alice" in header
    assert SOME[0][:6] not in header


def test_files_of_results_have_the_names_in_columns(tmp_path):
    held, forms = ba.balance_at(NAMED, "2023-04-12"), ["csv", "json", "xlsx", "parquet"]
    read = [pd.read_csv, pd.read_json, pd.read_excel, pd.read_parquet]
    for form, reading in zip(forms, read, strict=True):
        ba.write_table(held, tmp_path / f"x.{form}")
        found = reading(tmp_path / f"x.{form}")
        assert found["party_id"].tolist() == held["party_id"].tolist()
        assert found["symbol"].tolist() == ba.labelled(held)["symbol"].tolist()
        assert found["label"].str.contains("Alice").any()
        assert found["label"].map(str.isascii).all() == (form == "csv")


def test_a_column_of_the_caller_s_that_is_called_label_stays(tmp_path):
    table = NAMED.assign(label=NAMED["market_id"].astype("str").str[:1])
    sums = ba.totals(table, by=["asset_id", "label"], freq="7D")
    assert ba.labelled(sums)["label"].tolist() == sums["label"].tolist()
    ba.write_table(sums, tmp_path / "x.csv")
    read = pd.read_csv(tmp_path / "x.csv", keep_default_na=False, dtype=str)
    assert read["label"].tolist() == sums["label"].tolist()


def test_a_labelled_table_is_added_up_by_label():
    table = NAMED[NAMED["asset_id"] == NAMED["asset_id"].iloc[0]]
    party = ba.labelled(table[["party_id"]], labels=LABELLED)
    table = table.assign(label=party["label"])
    sums = ba.totals(table, by=["asset_id", "label"], freq="7D")
    expected = ba.totals(table, by=["asset_id", "party_id"], freq="7D")
    alice = sums[sums["label"] == "Alice"].drop(columns="label").reset_index(drop=True)
    other = expected[expected["party_id"] == SOME[0]].drop(columns="party_id")
    other = other.drop(columns="label").reset_index(drop=True)
    pd.testing.assert_frame_equal(alice, other)


def test_what_has_no_ids_can_not_be_labelled_and_what_has_only_assets_has_symbols():
    with pytest.raises(ValueError, match="made of the columns asset_id"):
        ba.labelled(pd.DataFrame({"x": [1]}))
    sums = ba.totals(NAMED, by="asset_id", freq="7D")
    assert [*ba.labelled(sums)][:2] == ["symbol", "asset_id"]
    assert ba.labelled(NAMED.head(0)).empty


def test_the_first_look_at_a_table_fits_a_terminal_and_has_names_and_balances():
    text = repr(NAMED.balances)
    rows = text[text.index("symbol") :].splitlines()
    assert max(map(len, rows)) <= 100
    assert len(rows) <= 14
    assert str(NAMED["balance"].iloc[2]) in text
    assert "tGOV" in text
    assert "<table" in NAMED.balances._repr_html_()
    assert "Alice" in repr(NAMED[NAMED["party_id"] == SOME[0]].balances)
