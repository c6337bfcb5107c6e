from __future__ import annotations

import inspect

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.accessor import BalancesAccessor
from tests.analysis.tables import START, table_of

TABLE = table_of(
    [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "", START + at, level)
        for at, level in enumerate([5, 7, 3])
    ]
)
NAMES = {
    "at": "balance_at",
    "check": "check_table",
    "series": "balance_series",
    "summarize": "summarize_accounts",
}
METHODS = [
    name for name, _ in inspect.getmembers(BalancesAccessor, inspect.isfunction) if name[0] != "_"
]


def function_of(name):
    return getattr(ba, NAMES.get(name, name))


@pytest.mark.parametrize("name", sorted({*METHODS} - {"plot"}))
def test_a_method_tells_of_its_function(name):
    assert inspect.getdoc(getattr(BalancesAccessor, name)) == inspect.getdoc(function_of(name))
    own, whole = (
        list(inspect.signature(function).parameters)
        for function in (getattr(TABLE.balances, name), function_of(name))
    )
    assert own == whole[1:]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("at", {"when": "2023-03-29"}),
        ("at", {"when": "2023-04-29", "known": [("2023-03-01", "2023-04-01")]}),
        ("series", {"freq": "1us", "layout": "long"}),
        ("series", {"freq": "1us", "known": [("2023-03-01", "2023-03-02")]}),
        ("deltas", {}),
        ("flows", {"freq": "1us"}),
        ("totals", {"by": "asset_id"}),
        ("summarize", {}),
        ("ohlc", {"freq": "1us"}),
        ("to_units", {"assets": {"VOTE": 1}}),
    ],
)
def test_a_method_gives_what_its_function_gives(name, arguments):
    pd.testing.assert_frame_equal(
        getattr(TABLE.balances, name)(**arguments), function_of(name)(TABLE, **arguments)
    )


def test_a_table_plots_itself():
    ax = TABLE.balances.plot(end="2024-01-01")
    assert len(ax.lines) == 1


def test_every_function_that_takes_a_table_first_is_a_method():
    first = {
        name
        for name in ba.__all__
        if inspect.isfunction(getattr(ba, name))
        and next(iter(inspect.signature(getattr(ba, name)).parameters)) in {"table", "data"}
        and not name.startswith(("write_", "plot_", "to_table"))
    }
    assert {NAMES.get(name, name) for name in METHODS} - {"plot"} == first


def test_a_frame_that_is_no_table_has_none():
    with pytest.raises(AttributeError, match=r"without the columns \['balance'\]"):
        _ = TABLE.drop(columns="balance").balances
