"""Rows in Arrow: one form whatever order they came in, and repeats are seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.rows import has_repeats, within
from tests.analysis.tables import START, arrow_of, rows, rows_of, table_from
from tests.columns import ARROW_SCHEMA, COLUMNS, TIMESTAMP_DTYPE


def arrow(rows):
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    return arrow_of(columns).cast(ARROW_SCHEMA)


@given(rows, st.randoms(use_true_random=False), st.integers(0, 40))
def test_rows_have_one_form_whatever_order_and_chunks_they_came_in(rows, random, cut):
    whole = table_from(arrow(rows))
    random.shuffle(rows)
    parts = [arrow(rows[:cut]), arrow(rows[cut:])]
    shared = [part.slice(at, 7) for part in parts for at in range(0, len(part), 7)]
    again = table_from(pa.concat_tables([ARROW_SCHEMA.empty_table(), *shared]))
    pd.testing.assert_frame_equal(again, whole)
    assert rows_of(whole) == sorted(rows)
    for place, name in enumerate(ba.ACCOUNT_KEY):
        assert [*whole[name].cat.categories] == sorted({row[place] for row in rows})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=300))
def test_rows_of_one_account_and_moment_stay_in_the_order_in_which_they_came(keys):
    rows = [("a", "b", *key[:1], "", key[1], place) for place, key in enumerate(keys)]
    placed = rows_of(table_from(arrow(rows)))
    assert placed == sorted(rows, key=lambda row: row[:5])


@given(rows, st.lists(st.integers(0, 39), max_size=3), st.randoms(use_true_random=False))
def test_a_repeat_is_an_account_that_has_two_rows_at_one_time(rows, again, random):
    rows = [*rows, *(rows[i] for i in again if i < len(rows))]
    random.shuffle(rows)
    batches = arrow(rows).combine_chunks().to_batches()
    keys = [row[:5] for row in rows]
    assert any(map(has_repeats, batches)) == (len(set(keys)) < len(keys))


@given(rows, st.booleans(), st.integers(0, 40), st.data())
def test_rows_within_an_interval_keep_their_order_in_tables_and_batches(rows, in_order, cut, data):
    rows = sorted(rows, key=lambda row: row[4]) if in_order else rows
    moments = st.sampled_from(sorted({row[4] for row in rows}) or [0])
    start, end = (data.draw(moments) + data.draw(st.integers(0, 1)) for _ in range(2))
    whole = arrow(rows)
    table = pa.concat_tables([whole[:cut], whole[cut:]])
    batches = [within(batch, start, end) for batch in table.combine_chunks().to_batches()]
    expected = arrow([row for row in rows if start <= row[4] < end]).to_pylist()
    for kept in (within(table, start, end), pa.Table.from_batches(batches, ARROW_SCHEMA)):
        assert kept.to_pylist() == expected


def test_more_accounts_than_64_bits_can_number_are_in_order():
    count = 50_000
    rng = np.random.default_rng(1)
    names = np.array([f"{number:05}" for number in range(count)])
    ids = [names[rng.permutation(count)] for _ in ba.ACCOUNT_KEY]
    ids[0][:9], ids[1][:9], ids[2][:9] = "1", "2", "3"  # which differ in the last id alone
    frame = pd.DataFrame(dict(zip(ba.ACCOUNT_KEY, ids, strict=True)), dtype="str")
    frame["timestamp"] = pd.array(np.full(count, START), dtype=TIMESTAMP_DTYPE)
    table = ba.to_table(frame.assign(balance=range(count)))
    assert [int(x) for x in table["balance"]] == sorted(
        range(count), key=lambda place: tuple(column[place] for column in ids)
    )
