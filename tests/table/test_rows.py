"""Rows in Arrow: their form doesn't depend on their order, and repeats are found."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.table.schema import has_repeats, within
from tests.analysis.tables import START, arrow_of, rows, rows_of, table_from
from tests.columns import ARROW_SCHEMA, TIMESTAMP_DTYPE


@given(rows, st.randoms(use_true_random=False), st.integers(0, 40))
def test_rows_have_one_form_whatever_order_and_chunks_they_came_in(rows, random, cut):
    whole = table_from(arrow_of(rows))
    random.shuffle(rows)
    parts = [arrow_of(rows[:cut]), arrow_of(rows[cut:])]
    shared = [part.slice(at, 7) for part in parts for at in range(0, len(part), 7)]
    again = table_from(pa.concat_tables([ARROW_SCHEMA.empty_table(), *shared]))
    pd.testing.assert_frame_equal(again, whole)
    assert rows_of(whole) == sorted(rows)
    for place, name in enumerate(ba.ACCOUNT_KEY):
        assert [*whole[name].cat.categories] == sorted({row[place] for row in rows})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=300))
def test_rows_of_one_account_and_moment_stay_in_the_order_in_which_they_came(keys):
    rows = [("a", "b", *key[:1], "", key[1], place) for place, key in enumerate(keys)]
    placed = rows_of(table_from(arrow_of(rows)))
    assert placed == sorted(rows, key=lambda row: row[:5])


@given(rows, st.lists(st.integers(0, 39), max_size=3), st.randoms(use_true_random=False))
def test_a_repeat_is_two_rows_of_an_account_at_one_time(rows, again, random):
    rows = [*rows, *(rows[i] for i in again if i < len(rows))]
    random.shuffle(rows)
    batches = arrow_of(rows).combine_chunks().to_batches()
    keys = [row[:5] for row in rows]
    assert any(map(has_repeats, batches)) == (len(set(keys)) < len(keys))


@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=9),
    st.booleans(),
    st.integers(0, 9),
    st.builds(lambda start, length: (start, start + length), st.integers(0, 3), st.integers(0, 2)),
)
def test_rows_within_an_interval_keep_their_order_in_tables_and_batches(times, in_order, cut, span):
    times = sorted(times) if in_order else times
    rows = [("a", "b", "c", "", time, place) for place, time in enumerate(times)]
    whole = arrow_of(rows)
    table = pa.concat_tables([whole[:cut], whole[cut:]])
    batches = [within(batch, *span) for batch in table.combine_chunks().to_batches()]
    expected = arrow_of([row for row in rows if span[0] <= row[4] < span[1]]).to_pylist()
    for kept in (within(table, *span), pa.Table.from_batches(batches, ARROW_SCHEMA)):
        assert kept.to_pylist() == expected


@pytest.mark.parametrize("bits", [28, 44])  # which fit into 64 beside an account, and don't
def test_accounts_and_times_that_exceed_64_bits_together_are_in_order(bits):
    count, again = 60_000, 2_000
    rng = np.random.default_rng(1)
    names = np.array([f"{number:05}" for number in range(count)])
    ids = [names[rng.permutation(count)] for _ in ba.ACCOUNT_KEY]
    for place, name in enumerate("123"):
        ids[place][:9] = name  # so that nine accounts differ in the last id alone
    times = rng.integers(START, START + (1 << bits), count)
    # Some accounts also have an earlier row, which comes later in the frame.
    ids = [np.append(column, column[:again]) for column in ids]
    times = np.append(times, times[:again] - 1)
    frame = pd.DataFrame(dict(zip(ba.ACCOUNT_KEY, ids, strict=True)), dtype="str")
    frame["timestamp"] = pd.array(times, dtype=TIMESTAMP_DTYPE)
    table = ba.to_table(frame.assign(balance=range(len(times))))
    rows = [*zip(*ids, times.tolist(), strict=True)]
    assert [int(x) for x in table["balance"]] == sorted(range(len(rows)), key=rows.__getitem__)
