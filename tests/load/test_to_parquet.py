"""A load into a file is whole or absent, and stays small in memory."""

from __future__ import annotations

import signal
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.load import changes
from tests.cli.running import child
from tests.loopback import Fault, LoopbackNode, histories, random_history

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(11, rows=900, accounts=120, largest_block=40)
START = "2023-04-01"
LATE = 4_000_000_000 * 10**9


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch):
    monkeypatch.setattr(changes, "ROW_GROUP", 100)


def failing_after(count):
    return lambda index, _: Fault.status(503) if index >= count else None


def load_all(node, **options):
    with ba.Client(node.url) as client:
        return ba.load_balance_changes(client, start=START, **options)


@settings(max_examples=6)
@given(histories(), st.sampled_from([3, 40, 1000]), st.integers(1, 3))
def test_the_file_holds_the_table_that_a_load_gives(tmp_path_factory, rows, page_size, workers):
    path = tmp_path_factory.mktemp("files") / "changes.parquet"
    with LoopbackNode(rows) as node, ba.Client(node.url) as client:
        ba.load_to_parquet(client, path, start=START, page_size=page_size, workers=workers)
        expected = load_all(node)
    pd.testing.assert_frame_equal(ba.read_parquet(path), expected)


def test_row_groups_follow_in_time_and_are_sorted_inside(tmp_path):
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        ba.load_to_parquet(client, tmp_path / "x.parquet", start=START, page_size=50)
    file = pq.ParquetFile(tmp_path / "x.parquet")
    groups = [file.read_row_group(number).to_pandas() for number in range(file.num_row_groups)]
    file.close()
    assert len(groups) > 3
    ends = [group["timestamp"].max() for group in groups]
    starts = [group["timestamp"].min() for group in groups]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
    for group in groups:
        keys = group.astype(dict.fromkeys(ba.ACCOUNT_KEY, "str"))
        pd.testing.assert_frame_equal(
            keys, keys.sort_values([*ba.ACCOUNT_KEY, "timestamp"], kind="stable")
        )


def failed(node, path, **options):
    with ba.Client(node.url) as client, pytest.raises(ba.RequestError):
        ba.load_to_parquet(client, path, start=START, page_size=20, workers=1, **options)


@pytest.mark.parametrize(("served", "earlier"), [(0, None), (30, b"an earlier load")])
def test_a_failed_load_leaves_the_folder_as_it_was(served, earlier, tmp_path):
    path = tmp_path / "x.parquet"
    if earlier:
        path.write_bytes(earlier)
    with LoopbackNode(ROWS, faults=failing_after(served)) as node:
        failed(node, path)
        assert [*tmp_path.iterdir()] == ([path] if earlier else [])
        assert not earlier or path.read_bytes() == earlier
        node.faults = []
        with ba.Client(node.url) as client:
            ba.load_to_parquet(client, path, start=START)
    assert len(ba.read_parquet(path)) == len(ROWS)


def test_quarantined_rows_are_noted_in_the_file(tmp_path):
    bad = {str(ROWS[3].timestamp_ns), str(ROWS[-3].timestamp_ns)}

    def spoil(row):
        return {**row, "balance": "1e5"} if row["timestamp"] in bad else row

    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, edit_row=spoil) as node, ba.Client(node.url) as client:
        loaded = ba.load_to_parquet(
            client, path, start=START, page_size=20, on_bad_rows="quarantine"
        )
    spoiled = [row for row in ROWS if str(row.timestamp_ns) in bad]
    assert len(loaded["quarantined"]) == len(spoiled)
    assert loaded["rows"] == len(ROWS) - len(spoiled) == len(ba.read_parquet(path))


def test_an_interrupted_fetch_leaves_no_file(tmp_path):
    path = tmp_path / "x.parquet"
    options = ("--since", START, "--until", "2023-05-01", "--page-size", "20", "--workers", "2")
    with LoopbackNode(ROWS, block_timestamp=LATE, latency=0.05) as node:
        process = child("fetch", node.url, "-o", path, *options)
        while len(node.requests) < 20:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
