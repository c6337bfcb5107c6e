"""Rows in Arrow: one form whatever order they came in, and repeats are seen."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY
from balance_analysis.rows import (
    account_numbers,
    canonical,
    has_repeats,
    within,
)
from tests.analysis.tables import arrow_of, rows
from tests.columns import ARROW_SCHEMA, COLUMNS


def tuples(table):
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def microseconds(moment):
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def arrow(rows):
    return arrow_of(list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS))


@given(rows, st.randoms(use_true_random=False), st.integers(0, 40))
def test_rows_have_one_form_whatever_order_and_chunks_they_came_in(rows, random, cut):
    whole = canonical(arrow(rows))
    random.shuffle(rows)
    parts = [arrow(rows[:cut]).cast(ARROW_SCHEMA), arrow(rows[cut:]).cast(ARROW_SCHEMA)]
    shared = [part.slice(at, 7) for part in parts for at in range(0, len(part), 7)]
    again = canonical(pa.concat_tables([ARROW_SCHEMA.empty_table(), *shared]))
    assert again.equals(whole)
    assert tuples(whole) == sorted(tuples(arrow(rows)), key=lambda row: row[:5])
    for name in ACCOUNT_KEY:
        values = whole[name].chunk(0).dictionary.to_pylist()
        assert values == sorted({row[COLUMNS.index(name)] for row in rows})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=300))
def test_rows_of_one_account_and_moment_stay_in_the_order_in_which_they_came(keys):
    table = arrow([("a", "b", *key[:1], "", key[1], place) for place, key in enumerate(keys)])
    placed = canonical(table)["balance"].to_pylist()
    assert placed == sorted(placed, key=lambda place: (*keys[int(place)], place))


@given(rows)
def test_unsorted_rows_keep_their_order(rows):
    assert tuples(canonical(arrow(rows), sort=False)) == tuples(arrow(rows))


@given(rows, st.lists(st.integers(0, 39), max_size=3), st.randoms(use_true_random=False))
def test_a_repeat_is_an_account_that_has_two_rows_at_one_time(rows, again, random):
    rows = [*rows, *(rows[i] for i in again if i < len(rows))]
    random.shuffle(rows)
    batch = arrow(rows).cast(ARROW_SCHEMA).combine_chunks().to_batches()
    keys = [row[:5] for row in rows]
    assert any(map(has_repeats, batch)) == (len(set(keys)) < len(keys))


@given(rows, st.booleans(), st.integers(0, 40), st.data())
def test_rows_within_an_interval_keep_their_order_in_tables_and_batches(rows, in_order, cut, data):
    rows = sorted(rows, key=lambda row: row[4]) if in_order else rows
    moments = st.sampled_from(sorted({row[4] for row in rows}) or [0])
    start, end = (data.draw(moments) + data.draw(st.integers(0, 1)) for _ in range(2))
    whole = arrow(rows).cast(ARROW_SCHEMA)
    table = pa.concat_tables([whole[:cut], whole[cut:]])
    kept = [within(table, start, end)]
    batches = [within(batch, start, end) for batch in table.combine_chunks().to_batches()]
    kept.append(pa.Table.from_batches(batches, ARROW_SCHEMA))
    expected = [row for row in tuples(arrow(rows)) if start <= microseconds(row[4]) < end]
    assert [tuples(each) for each in kept] == [expected] * 2


codes = st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 4), max_size=30)


@given(codes, st.sampled_from([2**31, 2**40, 2**61]))
def test_account_numbers_sort_as_accounts_do_even_where_they_would_overflow(accounts, size):
    columns = [np.array(column, np.int64) for column in zip(*accounts, strict=True)]
    if not accounts:
        columns = [np.array([], np.int64)] * 4
    numbers = account_numbers(columns, [size] * 4)
    order = sorted(range(len(accounts)), key=lambda i: (int(numbers[i]), accounts[i]))
    assert [accounts[i] for i in order] == sorted(accounts)
    assert len(set(numbers.tolist())) == len(set(accounts))
