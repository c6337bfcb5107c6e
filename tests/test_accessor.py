from __future__ import annotations

import inspect

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.accessor import METHODS
from tests.analysis.tables import START, table_of
from tests.columns import ATTRS_KEY, note_known
from tests.moments import from_microseconds

TABLE = table_of(
    [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "", START + at, level)
        for at, level in enumerate([5, 7, 3])
    ]
)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_tells_of_its_function(name):
    method, function = getattr(TABLE.balances, name), getattr(ba, METHODS[name])
    assert inspect.getdoc(method) == inspect.getdoc(function)
    own, whole = (list(inspect.signature(each).parameters) for each in (method, function))
    assert own == whole[1:]
    assert name in dir(TABLE.balances)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("at", {"when": "2023-03-29"}),
        ("at", {"when": "2023-04-29", "known": [("2023-03-01", "2023-04-01")]}),
        ("series", {"freq": "1us", "layout": "long"}),
        ("deltas", {}),
        ("totals", {"by": "asset_id"}),
        ("summarize", {}),
        ("to_units", {"assets": {"VOTE": 1}}),
    ],
)
def test_a_method_gives_what_its_function_gives(name, arguments):
    pd.testing.assert_frame_equal(
        getattr(TABLE.balances, name)(**arguments), getattr(ba, METHODS[name])(TABLE, **arguments)
    )


def test_a_table_plots_itself():
    ax = TABLE.balances.plot(end="2024-01-01")
    assert len(ax.lines) == 1


def test_every_function_that_takes_a_table_first_is_a_method():
    first = {
        name
        for name in ba.__all__
        if inspect.isfunction(getattr(ba, name))
        and next(iter(inspect.signature(getattr(ba, name)).parameters))
        in {"table", "data", "frame", "source"}
        and not name.startswith("read_")
    }
    assert {*METHODS.values()} == first


def test_a_frame_that_is_no_table_has_none():
    with pytest.raises(AttributeError, match=r"without the columns \['balance'\]"):
        _ = TABLE.drop(columns="balance").balances


def test_a_method_that_is_none_is_told_with_those_that_are():
    with pytest.raises(AttributeError, match=r"no 'att'; it has at, series"):
        _ = TABLE.balances.att


def test_it_shows_what_the_table_is_and_what_it_can_do():
    table = TABLE.copy()
    table.attrs[ATTRS_KEY] = {"assets": {"VOTE": {"symbol": "<b>", "decimals": 0}}}
    note_known(table, [(START, START + 10**6)])
    said, page = repr(table.balances), table.balances._repr_html_()
    assert said.splitlines()[0] == "3 balance changes of 1 account"
    assert f"known: {from_microseconds(START):%Y-%m-%dT%H:%M}" in said
    assert "<b>" in said
    assert "&lt;b&gt;" in page
    assert all(name in said and name in page for name in METHODS)
    assert "known: nothing tells" in repr(TABLE[:0].balances)
