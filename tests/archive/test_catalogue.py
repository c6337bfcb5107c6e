"""Accounts of an archive are what pandas makes of its rows, and are found without reading all."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis.tables import arrow_from, table_from
from tests.archive.writing import writer_of
from tests.scale.archives import archive_of

KEY = list(ba.ACCOUNT_KEY)
PARTS = st.sampled_from([(0, 0), (0, 0.4), (0.3, 0.6), (0.6, 1), (0, 1)])


@pytest.fixture(scope="module")
def sample():
    """The sample data, as of three months."""
    table = ba.read_parquet(demo.sample_data() / "changes.parquet")
    begin = table["timestamp"].min()
    return table.assign(timestamp=begin + (table["timestamp"] - begin) * 3)


def some_of(sample, seed, count):
    return table_from(arrow_from(sample.sample(count, random_state=seed)))


def with_checkpoints(archive):
    writer_of(archive).checkpoint()
    return archive


@settings(max_examples=4)
@example(rows=(7, 300), files=("day", (0, 0.6)), has_checkpoints=True)
@example(rows=(7, 300), files=("month", (0.4, 1)), has_checkpoints=True)
@given(
    rows=st.tuples(st.integers(0, 99), st.integers(1, 60)),
    files=st.tuples(st.sampled_from(["day", "month", "hour"]), PARTS),
    has_checkpoints=st.booleans(),
)
def test_accounts_are_those_of_the_rows_with_what_is_known_at_the_end(
    sample, rows, files, has_checkpoints
):
    with archive_of(some_of(sample, *rows), *files) as archive:
        if has_checkpoints:
            with_checkpoints(archive)
        table, end = archive.read(partial=True), archive.coverage()["end"].max()
        wanted = table.groupby(KEY, observed=True)["timestamp"].agg(["min", "max", "size"])
        wanted = wanted.set_axis(["first_seen", "last_seen", "rows"], axis="columns").reset_index()
        found = ba.summarize_accounts(archive)
        pd.testing.assert_frame_equal(
            found[list(wanted)].astype(dict.fromkeys(KEY, "str")),
            wanted.astype(dict.fromkeys(KEY, "str")),
        )
        held = ba.balance_at(archive, end)
        pd.testing.assert_frame_equal(held, ba.balance_at(table, end))


def test_accounts_of_files_add_up_in_rounds(sample, monkeypatch):
    with archive_of(some_of(sample, 4, 3000)) as archive:
        whole = ba.balance_at(with_checkpoints(archive), "2023-05-15")
        monkeypatch.setattr("balance_analysis.archive.datafile._WAITING", 3)
        pd.testing.assert_frame_equal(ba.balance_at(archive, "2023-05-15"), whole)
