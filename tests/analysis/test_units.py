from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.analysis.balances import balance_series
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.units import to_units
from balance_analysis.frame import BALANCE_DTYPE, empty_table
from tests.analysis.tables import LARGEST, START, rows, table_of

DECIMALS = {"VOTE": 0, "ea43": 18}


def frame_of(amounts, asset="ea43"):
    return pd.DataFrame({"asset_id": asset, "balance": pd.array(amounts, dtype=BALANCE_DTYPE)})


@given(st.integers(-LARGEST, LARGEST), st.integers(0, 40))
def test_an_amount_is_the_nearest_float_to_the_exact_quotient(amount, decimals):
    exact = Fraction(amount, 10**decimals)
    found = to_units(frame_of([amount]), {"ea43": decimals})["balance"].iloc[0]
    distance = abs(Fraction(found) - exact)
    for neighbour in (np.nextafter(found, -np.inf), np.nextafter(found, np.inf)):
        assert distance <= abs(Fraction(float(neighbour)) - exact)


@given(rows)
def test_each_asset_has_its_own_decimals(rows):
    table = table_of(rows)
    expected = [
        int(balance) / 10 ** DECIMALS[asset]
        for asset, balance in zip(table["asset_id"], table["balance"], strict=True)
    ]
    assert to_units(table, DECIMALS)["balance"].tolist() == expected


def test_an_unknown_balance_becomes_nan():
    assert np.isnan(to_units(frame_of([None]), DECIMALS)["balance"].iloc[0])


def test_every_amount_of_a_summary_is_converted():
    table = table_of([("ea43", "ACCOUNT_TYPE_GENERAL", "a1", "", START, 15 * 10**17)])
    found = to_units(summarize_accounts(table, start="2023-03-29"), DECIMALS)
    amounts = ["opening", "closing", "minimum", "maximum", "inflow", "outflow", "net"]
    assert found[amounts].to_numpy().tolist() == [[1.5, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0]]
    assert found["rows"].dtype == "int64"


def test_an_asset_without_decimals_is_named():
    with pytest.raises(ValueError, match=r"no entry for the assets \['ea43'\]"):
        to_units(frame_of([5]), {"VOTE": 0})


def test_decimals_below_zero_are_refused():
    with pytest.raises(ValueError, match="-1 decimals"):
        to_units(frame_of([5]), {"ea43": -1})


def test_decimals_that_are_no_integer_are_refused():
    with pytest.raises(TypeError):
        to_units(frame_of([5]), {"ea43": 1.5})


def test_no_rows_need_no_decimals():
    found = to_units(empty_table(), {})
    assert found.empty
    assert found["balance"].dtype == "float64"


@pytest.mark.parametrize("kind", ["integers", "Decimal", "int64"])
def test_balances_of_other_kinds_are_converted_too(kind):
    balance = {
        "integers": pd.Series([10**20], dtype=object),
        "Decimal": [Decimal(10**20)],
        "int64": [10**18],
    }[kind]
    data = pd.DataFrame({"asset_id": "ea43", "balance": balance, "rows": [3]})
    found = to_units(data, {"ea43": 18})
    assert found["balance"].tolist() == [1.0 if kind == "int64" else 100.0]
    assert found["rows"].tolist() == [3]


def test_a_frame_without_amounts_is_refused():
    with pytest.raises(TypeError, match="no column of amounts"):
        to_units(pd.DataFrame({"asset_id": ["ea43"], "rows": [3]}), {"ea43": 18})


def test_a_series_in_a_wide_layout_is_converted_column_by_column():
    table = table_of([(asset, "T", "p", "", START, 10**18) for asset in DECIMALS])
    found = to_units(balance_series(table, freq="1D"), DECIMALS)
    assert found.iloc[-1].tolist() == [1e18, 1.0]


FILES = {
    "a.csv": "symbol,asset_id,decimals\nV,VOTE,0\nE,ea43,18\n",
    "b.toml": "VOTE = 0\n[ea43]\nsymbol = 'E'\ndecimals = 18\n",
}


@pytest.mark.parametrize("name", FILES)
def test_decimals_come_from_a_file(name, tmp_path):
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    found = to_units(frame_of([10**18]), tmp_path / name)
    assert found["balance"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "asset_id\nVOTE\n", "no column decimals"),
        ("a.csv", "asset_id,decimals\nea43,many\n", "'ea43' needs decimals, a whole number"),
        ("a.csv", "asset_id,decimals\nea43,-1\n", "'ea43' needs decimals, a whole number"),
        ("a.csv", "asset_id,decimals\nea43,1\nea43,2\n", "'ea43' has 1 and 2 decimals"),
        ("a.toml", "ea43 = ", "is no TOML"),
        ("a.toml", "ea43 = 1.5", "'ea43' needs decimals"),
        ("a.toml", "[ea43]\nsymbol = 'E'", "'ea43' needs decimals"),
        ("a.txt", "", "a .csv or a .toml file"),
        ("a.csv", "asset_id,decimals\nother,1\n", r"no entry for the assets \['ea43'\]"),
    ],
)
def test_a_file_of_decimals_that_is_wrong_is_told_where(name, content, message, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        to_units(frame_of([1]), tmp_path / name)
