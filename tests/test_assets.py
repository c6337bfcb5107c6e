from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import Asset, Assets, read_assets

USD, GOV = "e4" * 32, "7c" * 32
SOURCE = {
    USD: {"symbol": "tUSD", "decimals": 6, "name": "Test dollar"},
    GOV: {"symbol": "tGOV", "decimals": 18},
}
ASSETS = read_assets(SOURCE)
TOML = f"""
["{USD}"]
symbol = "tUSD"
name = "Test dollar"
decimals = 6

["{GOV}"]
symbol = "tGOV"
decimals = 18
"""
CSV = f"note,asset_id,decimals,symbol,name\nx,{USD},6,tUSD,Test dollar\ny,{GOV}, 18 ,tGOV,\n"


def test_a_file_of_any_kind_gives_the_same_assets_as_a_mapping(tmp_path):
    texts = {"a.toml": TOML, "a.csv": CSV, "a.JSON": json.dumps(SOURCE)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_assets(tmp_path / name) == ASSETS
        assert read_assets(str(tmp_path / name)) == ASSETS


def test_decimals_alone_are_enough():
    assert read_assets({USD: 6})[USD] == Asset(USD, 6)


IDS = st.text("0123456789abcdef", min_size=64, max_size=64) | st.from_regex(
    r"[A-Za-z_-]+", fullmatch=True
)
"""Ids that a node could send: long ones, and names such as VOTE or network."""


@given(
    st.dictionaries(
        IDS, st.fixed_dictionaries({"symbol": st.text(), "decimals": st.integers(0, 77)})
    )
)
def test_assets_written_as_json_read_back_equal(source):
    assets = read_assets(source)
    assert read_assets(assets.to_json()) == assets
    assert read_assets(assets) is assets
    assert pickle.loads(pickle.dumps(assets)) == assets
    assert hash(read_assets(assets.to_json())) == hash(assets)


@pytest.mark.parametrize("text", ["tUSD", "TUSD", USD, USD.upper()])
def test_an_asset_is_found_by_symbol_or_id_in_any_case(text):
    assert ASSETS.find(text) == ASSETS[USD]


def test_an_exact_id_is_found_though_it_is_the_symbol_of_another():
    assets = read_assets({"VOTE": 18, GOV: {"symbol": "VOTE", "decimals": 6}, "vote": 1})
    assert assets.find("VOTE") == assets["VOTE"]
    assert assets.find("vote") == assets["vote"]
    assert assets.find(GOV.upper()) == assets[GOV]
    with pytest.raises(ValueError, match="may stand for 3"):
        assets.find("Vote")


def test_a_name_that_no_asset_has_is_refused_with_near_ones():
    with pytest.raises(ValueError, match=r"'tUSB' .*did you mean tUSD"):
        ASSETS.find("tUSB")
    with pytest.raises(ValueError, match=r"'zzzz' .*known are tGOV, tUSD"):
        ASSETS.find("zzzz")
    with pytest.raises(ValueError, match="a short form has 4"):
        read_assets({USD: 6}).find("x")


def test_a_symbol_of_two_assets_is_refused_and_shown_with_the_id():
    two = read_assets({USD: {"symbol": "X", "decimals": 1}, GOV: {"symbol": "x", "decimals": 2}})
    with pytest.raises(ValueError, match=rf"'X' may stand for 2: {USD} \(X\), {GOV} \(x\)"):
        two.find("X")
    assert two.label(USD).startswith("X (e4")
    assert two.label(USD) != two.label(GOV)


def test_an_asset_without_a_symbol_is_shown_by_its_shortened_id():
    assert ASSETS.label(USD) == "tUSD"
    assert len(ASSETS.label("ab" * 32)) < 20


def test_assets_cannot_be_changed():
    with pytest.raises(TypeError):
        ASSETS[USD] = Asset(USD, 7)
    with pytest.raises(AttributeError):
        ASSETS[USD].decimals = 7


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({}, "needs decimals"),
        ("6", "needs decimals"),
        (True, "needs decimals"),
        (-1, "can't have -1 decimals"),
        ({"decimals": 6, "symbol": 7}, "must be text"),
    ],
)
def test_assets_that_are_described_wrongly_are_refused(about, message):
    with pytest.raises(ValueError, match=message):
        read_assets({USD: about})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "stand in a .toml, .csv or .json file"),
        ("a.toml", "[", "can't be read"),
        ("a.json", "{", "can't be read"),
        ("a.json", "[1]", "is no object of assets by id"),
        ("a.csv", "asset_id\nx\n", "no column decimals"),
        ("a.csv", "asset_id,decimals\nx,1.5\n", "row 1: decimals must be a whole number"),
        ("a.csv", "asset_id,decimals\nx,1\nx,2\n", "row 2: above, something else is told"),
        ("a.toml", b"\xff", "can't be read: .*codec"),
        ("a.json", '{"x": 1, "x": 2}', "'x' stands twice in one object"),
        (
            "a.json",
            '{"x": {"decimals": 1, "decimals": 2}}',
            "'decimals' stands twice in one object",
        ),
        ("a.json", '{"x":' * 100_000 + "1" + "}" * 100_000, "it is nested too deeply"),
        ("a.json", "[" * 100_000, "it is nested too deeply"),
        ("a.toml", "x = " + "[" * 100_000, "nest"),
        ("a.toml", f"x = {'1' * 5000}", "can't be read"),
        ("a.json", f'{{"x": {"1" * 5000}}}', "can't be read"),
        ("a.csv", f"asset_id,decimals\nx,{'1' * 5000}\n", "row 1: Exceeds|can't have"),
        ("a.csv", f"asset_id,decimals,note\nx,1,{'y' * 200_000}\n", "can't be read: field larger"),
    ],
)
def test_a_file_that_holds_no_assets_is_refused(tmp_path, name, text, message):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as raised:
        read_assets(file)
    assert "\n" not in str(raised.value)


def test_what_is_neither_a_mapping_nor_a_path_is_refused():
    with pytest.raises(TypeError, match="not 6"):
        read_assets(6)


def test_assets_are_a_mapping():
    assert isinstance(ASSETS, Assets)
    assert list(ASSETS) == [USD, GOV]
    assert len(ASSETS) == 2
