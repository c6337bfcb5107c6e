from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.oracle import Grid
from tests.analysis.tables import (
    BEGIN,
    DAY,
    GENERAL,
    MARGIN,
    OTHER,
    START,
    asked,
    books,
    fixed_grids,
    instants,
    moment,
    opened,
    records,
    signed,
    since_openings,
    table_of,
)
from tests.columns import BALANCE_DTYPE, empty_table


def cells(wide):
    """Return a wide series as {(account, time): balance}."""
    assert wide.index.name == "timestamp"
    assert list(wide.columns.names) == ba.ACCOUNT_KEY
    return {
        (*account, moment(time)): None if pd.isna(value) else int(value)
        for account, column in wide.items()
        for time, value in column.items()
    }


@settings(max_examples=15)
@given(st.data(), books())
def test_wide_has_the_balances_of_long(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    wide = ba.balance_series(opened(rows, opening), **asked(grid))
    expected = {
        row[:5]: row[5] for row in oracle.series(rows, opening, since_openings(grid, opening))
    }
    assert cells(wide) == expected
    assert list(wide.columns) == list(oracle.book(rows, opening))
    points = since_openings(grid, opening).points(rows)
    assert [moment(time) for time in wide.index] == points


bounds = st.tuples(st.none() | instants, st.none() | instants).map(
    lambda ends: ends if None in ends or ends[0] < ends[1] else (ends[1], ends[0] + 1)
)


@settings(max_examples=25)
@given(books(signed), bounds)
def test_without_a_frequency_long_has_the_rows_and_the_start(book, ends):
    rows, opening = book
    grid = Grid(None, *ends)
    found = ba.balance_series(opened(rows, opening), **asked(grid), layout="long")
    assert records(found) == oracle.sparse_series(rows, opening, since_openings(grid, opening))


@settings(max_examples=15)
@given(books(), bounds)
def test_without_a_frequency_wide_has_every_change_of_any_account(book, ends):
    rows, opening = book
    grid = Grid(None, *ends)
    wide = ba.balance_series(opened(rows, opening), **asked(grid))
    points = grid.own(row[4] for row in rows)
    assert [moment(time) for time in wide.index] == points
    assert cells(wide) == {
        (*key, point): account.level(point)
        for key, account in oracle.book(rows, opening).items()
        for point in points
    }


def test_an_opening_alone_makes_no_grid():
    table = opened([], {GENERAL: (5, BEGIN - 1)})
    for layout in ("long", "wide"):
        assert len(ba.balance_series(table, freq="1D", layout=layout)) == 0


def test_cells_of_a_wide_series_are_decimals():
    wide = ba.balance_series(table_of([(*GENERAL, START, 1), (*OTHER, START + 1, 2)]))
    assert set(wide.dtypes) == {BALANCE_DTYPE}


def test_the_grid_begins_at_the_midnight_before_the_first_row():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START + DAY, 6)])
    found = ba.balance_series(table, freq="1D")
    assert [str(point) for point in found.index] == [
        f"2023-03-{day} 00:00:00+00:00" for day in (28, 29, 30)
    ]


def test_a_layout_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="layout"):
        ba.balance_series(empty_table(), layout="tall")
