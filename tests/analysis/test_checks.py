from __future__ import annotations

import pickle

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.analysis.checks import check_table, drop_identical_duplicates
from balance_analysis.errors import CheckError
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY
from tests.analysis.tables import START, rows, rows_of, table_of

GENERAL = ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "")
OTHER = ("VOTE", "ACCOUNT_TYPE_GENERAL", "b2", "m1")


@pytest.fixture
def table():
    return table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])


def raised(table):
    with pytest.raises(CheckError) as caught:
        check_table(table)
    return caught.value


@given(rows)
def test_what_to_frame_returns_is_a_table(rows):
    check_table(table_of(rows))


def test_an_empty_table_is_a_table():
    check_table(empty_table())


@given(rows)
def test_a_selection_of_rows_is_a_table(rows):
    table = table_of(rows)
    check_table(table[table["party_id"] == "a1"])


@given(rows.filter(lambda rows: len(rows) > 1), st.randoms(use_true_random=False))
def test_rows_out_of_order_are_never_accepted(rows, random):
    table = table_of(rows)
    order = list(range(len(table)))
    random.shuffle(order)
    if order == sorted(order):
        return
    assert "sorted by" in str(raised(table.iloc[order]))


def test_the_order_of_categories_does_not_decide_the_order_of_rows(table):
    table["party_id"] = table["party_id"].cat.reorder_categories(["b2", "a1"])
    check_table(table)


def test_the_row_that_belongs_before_the_one_above_is_given(table):
    error = raised(table.iloc[[0, 2, 1]])
    assert rows_of(error.rows) == [(*GENERAL, START + 1, 6)]


def test_a_missing_column_is_named(table):
    assert "lacks the columns ['market_id']" in str(raised(table.drop(columns="market_id")))


def test_a_further_column_is_named(table):
    assert "'delta'" in str(raised(table.assign(delta=0)))


def test_columns_in_another_order_are_refused(table):
    assert "the table's columns are" in str(raised(table[table.columns[::-1]]))


@pytest.mark.parametrize(
    ("column", "dtype", "shown"),
    [
        ("asset_id", "str", "category of str, not str"),
        ("timestamp", "datetime64[ns, UTC]", "not datetime64[ns, UTC]"),
        ("timestamp", "datetime64[us, Europe/Berlin]", "not datetime64[us, Europe/Berlin]"),
        ("balance", "float64", "decimal128(38, 0)[pyarrow], not float64"),
        ("balance", "object", "not object"),
    ],
)
def test_a_column_of_another_dtype_is_refused(table, column, dtype, shown):
    error = raised(table.astype({column: dtype}))
    assert f"column {column!r}" in str(error)
    assert shown in str(error)


def test_a_category_of_numbers_is_refused(table):
    error = raised(table.assign(party_id=pd.Categorical([1, 1, 2])))
    assert "column 'party_id' must be category of str, not category of int64" in str(error)


@pytest.mark.parametrize("column", [*ACCOUNT_KEY, "timestamp", "balance"])
def test_a_missing_value_is_refused_with_its_row(table, column):
    table.loc[1, column] = pd.NA if column != "timestamp" else pd.NaT
    error = raised(table)
    assert f"no value in [{column!r}]" in str(error)
    assert error.rows.index.tolist() == [1]


def test_conflicting_duplicates_are_refused_with_their_rows(table):
    broken = pd.concat([table.iloc[:1], table]).assign(
        balance=pd.array([9, *table["balance"]], dtype=table["balance"].dtype)
    )
    error = raised(broken)
    assert "conflicting duplicates, the first two, 9 and 5" in str(error)
    assert rows_of(error.rows) == [(*GENERAL, START, 9), (*GENERAL, START, 5)]


def test_identical_duplicates_are_refused_with_their_rows(table):
    error = raised(pd.concat([table.iloc[:1], table]))
    assert "identical duplicates" in str(error)
    assert rows_of(error.rows) == [(*GENERAL, START, 5)] * 2


def test_a_negative_balance_is_refused_with_its_row():
    error = raised(table_of([(*GENERAL, START, 5), (*OTHER, START, -1)]))
    assert "never negative" in str(error)
    assert rows_of(error.rows) == [(*OTHER, START, -1)]


def test_a_message_says_of_which_account_and_when():
    error = raised(table_of([(*OTHER, START, -1)]))
    assert "party_id='b2', market_id='m1', timestamp=2023-03-28 10:40:00+00:00" in str(error)


def test_the_error_pickles_with_its_rows():
    error = pickle.loads(pickle.dumps(raised(table_of([(*OTHER, START, -1)]))))
    assert rows_of(error.rows) == [(*OTHER, START, -1)]


@given(rows, st.randoms(use_true_random=False))
def test_dropping_identical_duplicates_restores_the_table(rows, random):
    table = table_of(rows)
    order = [*range(len(table)), *(random.randrange(len(table)) for _ in rows)]
    random.shuffle(order)
    pd.testing.assert_frame_equal(drop_identical_duplicates(table.iloc[order]), table)


@given(rows.filter(bool), st.randoms(use_true_random=False))
def test_a_duplicate_of_another_balance_is_never_dropped(rows, random):
    chosen = random.choice(rows)
    doubled = [*rows, chosen, (*chosen[:5], chosen[5] + 1)]
    with pytest.raises(CheckError, match="conflicting") as caught:
        drop_identical_duplicates(table_of(doubled))
    assert {row[:5] for row in rows_of(caught.value.rows)} == {chosen[:5]}


def test_dropping_from_no_rows_gives_no_rows():
    pd.testing.assert_frame_equal(drop_identical_duplicates(empty_table()), empty_table())
