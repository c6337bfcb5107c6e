from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import HOUR, LARGEST, START, rows, table_of
from tests.columns import ATTRS_KEY, BALANCE_DTYPE

DECIMALS = {"VOTE": 0, "xa43": 18}


def frame_of(amounts, asset="xa43"):
    balances = pd.array([*amounts], dtype=BALANCE_DTYPE)
    return pd.DataFrame({"asset_id": asset, "balance": balances})


@given(
    st.lists(st.tuples(st.sampled_from([*DECIMALS]), st.integers(-LARGEST, LARGEST))),
    st.tuples(*(st.integers(0, 40) for _ in DECIMALS)),
)
def test_an_amount_is_the_nearest_float_to_the_exact_quotient_by_its_assets_decimals(rows, sizes):
    assets, amounts = zip(*rows, strict=True) if rows else ((), ())
    decimals = pd.Series(dict(zip(DECIMALS, sizes, strict=True)))  # of numpy, as good as int
    units = ba.to_units(frame_of(amounts, asset=assets), dict(decimals.items()))
    assert units["balance"].dtype == "float64"
    for asset, amount, result in zip(assets, amounts, units["balance"], strict=True):
        exact = Fraction(amount, 10 ** int(decimals[asset]))
        distance = abs(Fraction(result) - exact)
        for neighbour in (np.nextafter(result, -np.inf), np.nextafter(result, np.inf)):
            assert distance <= abs(Fraction(float(neighbour)) - exact)


def test_an_asset_without_decimals_is_named():
    with pytest.raises(ValueError, match="assets xa43 have unknown decimals"):
        ba.to_units(frame_of([5]), {"VOTE": 0})


@pytest.mark.parametrize("amount", [10**20, Decimal(10**20), 10**18])
def test_balances_of_other_types_are_converted_too(amount):
    data = pd.DataFrame({"asset_id": "xa43", "balance": [amount], "rows": [3]})
    result = ba.to_units(data, {"xa43": 18})
    assert result["balance"].tolist() == [int(amount) / 10**18]
    assert result["rows"].tolist() == [3]
    with_gaps = pd.Series([amount, None, pd.NA, np.nan], dtype=object).to_frame("balance")
    assert ba.to_integers(with_gaps)["balance"].isna().tolist() == [False, True, True, True]


def test_a_frame_without_amounts_is_refused():
    with pytest.raises(TypeError, match="no column of amounts"):
        ba.to_units(pd.DataFrame({"asset_id": ["xa43"], "rows": [3]}), {"xa43": 18})


@pytest.mark.parametrize("value", ["changes", "active", "unknown"])
def test_counts_in_the_wide_layout_are_not_amounts(value):
    how = {"by": "asset_id", "freq": None, "layout": "wide", "value": value}
    counted = ba.flows(TABLE, **how)
    assert counted.iloc[0].tolist() == [2, 2]
    pd.testing.assert_frame_equal(ba.to_units(counted, DECIMALS), counted)


def test_decimals_come_from_a_file(tmp_path):
    (tmp_path / "b.toml").write_text("VOTE = 0\n[xa43]\nsymbol = 'E'\ndecimals = 18\n")
    assert ba.to_units(frame_of([10**18]), tmp_path / "b.toml")["balance"].tolist() == [1.0]


TABLE = table_of(
    [
        (asset, "ACCOUNT_TYPE_GENERAL", party, "", START + at * HOUR, level)
        for asset in DECIMALS
        for party, levels in {"a1": [5 * 10**18, 3 * 10**18], "b2": [10**18, 2 * 10**18]}.items()
        for at, level in enumerate(levels)
    ]
)
ASKED = {
    "balance_at": {"at": "2024-01-01"},
    "compare": {"at": ("2023-03-28T10:30Z", "2024-01-01")},
    "ohlc": {"freq": "1h"},
    "reconcile": {"flows": TABLE.assign(net=TABLE["balance"])},
}
"""What functions must be given."""

FUNCTIONS = {name: getattr(ba, name) for name in ba.__all__ if hasattr(getattr(ba, name), "frames")}
"""Functions of a table or an archive that return a frame."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_are_the_exact_amounts_divided_once(name):
    function, asked = FUNCTIONS[name], ASKED.get(name, {})
    exact = function(TABLE, **asked)
    result = ba.to_units(exact, DECIMALS)
    assert list(result.columns) == list(exact.columns)
    assert BALANCE_DTYPE in [*exact.dtypes]
    expected = exact.dtypes.where(exact.dtypes != BALANCE_DTYPE, np.dtype("float64"))
    assert [*result.dtypes] == [*expected]


def test_results_have_the_units_of_the_tables_assets():
    table = TABLE.copy()
    with pytest.raises(ValueError, match="VOTE, xa43 have unknown decimals"):
        ba.to_units(ba.balance_at(table, "2024-01-01"))
    table.attrs[ATTRS_KEY] = {"assets": DECIMALS}
    result = ba.to_units(ba.balance_at(table, "2024-01-01"))
    assert result["balance"].tolist() == [3e18, 2e18, 3.0, 2.0]


def test_an_archive_knows_its_own_units(sample):
    exact = ba.balance_at(sample, "2023-04-12")
    assert ba.to_units(exact).equals(ba.to_units(exact, sample.names().assets))


@given(rows)
def test_integers_are_the_exact_amounts_and_their_sum_is_python_s(rows):
    table = table_of(rows)
    exact = ba.to_integers(table)["balance"]
    assert exact.tolist() == [int(balance) for balance in table["balance"]]
    assert exact.sum() == sum(int(balance) for balance in table["balance"])
    assert exact.dtype == object


def test_integers_and_units_of_a_wide_series_are_missing_where_the_balance_is_unknown():
    wide = ba.balance_series(TABLE, freq="1h", start="2023-03-01")
    exact = ba.to_integers(wide)
    assert exact.columns.equals(wide.columns)
    assert exact.isna().equals(wide.isna())
    whole = ba.to_units(wide, DECIMALS)
    assert whole.isna().equals(wide.isna())
    assert [*whole.iloc[-1]] == [3e18, 2e18, 3.0, 2.0]
    assert [*exact.iloc[-1]] == [*map(int, wide.iloc[-1])]
    with pytest.raises(TypeError, match="in whole units are floats"):
        ba.to_integers(whole)
