"""A load into a file is whole or absent, goes on where it stood, and stays small in memory."""

from __future__ import annotations

import signal
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.load import to_parquet as download
from balance_analysis.load.to_parquet import partial_path
from tests.cli.running import child, run
from tests.loopback import Fault, LoopbackNode, histories, random_history

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = random_history(11, rows=900, accounts=120, largest_block=40)
START = "2023-04-01"
LATE = 4_000_000_000 * 10**9


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch):
    monkeypatch.setattr(download, "ROW_GROUP", 100)


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


@settings(max_examples=6)
@given(st.integers(0, 60), st.sampled_from([7, 50]), st.integers(1, 4))
def test_a_failed_load_goes_on_where_it_stood(tmp_path_factory, served, page_size, workers):
    path = tmp_path_factory.mktemp("files") / "x.parquet"
    options = {"start": START, "end": "2023-05-01", "page_size": page_size, "workers": workers}
    with LoopbackNode(ROWS, faults=failing_after(served)) as node, ba.Client(node.url) as client:
        expected = None
        try:
            ba.load_to_parquet(client, path, **options)
        except ba.RequestError:
            assert not path.exists()
            node.faults = []
            ba.load_to_parquet(client, path, resume=True, **options)
        node.faults = []
        expected = load_all(node, end="2023-05-01")
    pd.testing.assert_frame_equal(ba.read_parquet(path), expected)
    assert [path] == list(path.parent.iterdir())


def interrupted(node, path, **options):
    with ba.Client(node.url) as client, pytest.raises(ba.RequestError):
        ba.load_to_parquet(client, path, start=START, page_size=20, workers=1, **options)
    node.faults = []


def test_what_is_complete_is_not_asked_for_again(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, faults=failing_after(30)) as node:
        interrupted(node, path)
        before = len(node.requests)
        with ba.Client(node.url) as client:
            ba.load_to_parquet(client, path, start=START, page_size=20, workers=1, resume=True)
        pages = [r for r in node.requests[before:] if r.get("pagination.first") != "1"]
        starts = [int(page.get("dateRange.startTimestamp")) for page in pages]
    assert min(starts) > ROWS[200].timestamp_ns


def test_the_side_file_is_not_passed_off_as_a_table(tmp_path):
    with LoopbackNode(ROWS, faults=failing_after(30)) as node:
        interrupted(node, tmp_path / "x.parquet")
    with pytest.raises(ba.ArchiveError, match="only a part"):
        ba.read_parquet(partial_path(tmp_path / "x.parquet"))


def test_a_resumed_load_keeps_its_end_though_time_has_passed(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, block_timestamp=LATE, faults=failing_after(30)) as node:
        interrupted(node, path)
        failed = pd.Timestamp.now("UTC")
        with ba.Client(node.url) as client:
            loaded = ba.load_to_parquet(client, path, start=START, page_size=20, resume=True)
        assert type(loaded["requests"]) is int
    assert pd.Timestamp(loaded["end"]) < failed
    assert loaded["rows"] == len(ROWS) == len(ba.read_parquet(path))


def test_another_query_is_not_mixed_in(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, faults=failing_after(30)) as node:
        interrupted(node, path)
        with (
            ba.Client(node.url) as client,
            pytest.raises(ba.ArchiveError, match="of a load of all accounts; give the same"),
        ):
            ba.load_to_parquet(client, path, resume=True, account_types="general")
    assert partial_path(path).exists()


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"end": "2023-05-02"}, "2023-04-01T00:00Z to 2023-05-02T00:00Z"),
        ({"start": "2023-03-01"}, "2023-03-01T00:00Z to 2023-05-01T00:00Z"),
        ({"start": "9d"}, "not of"),
        ({"start": "2023-04-01T00:00Z"}, None),
        ({"start": pd.Timestamp(START), "end": "2023-05-01"}, None),
        ({}, None),
    ],
)
def test_another_interval_is_not_mixed_in(bounds, told, tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, block_timestamp=LATE, faults=failing_after(30)) as node:
        interrupted(node, path, end="2023-05-01")
        with ba.Client(node.url) as client:
            if told is None:
                ba.load_to_parquet(client, path, resume=True, **bounds)
                return
            with pytest.raises(ba.ArchiveError, match=told) as refused:
                ba.load_to_parquet(client, path, resume=True, **bounds)
    assert "of a load of 2023-04-01T00:00Z to 2023-05-01T00:00Z" in str(refused.value)
    assert [partial_path(path)] == list(tmp_path.iterdir())


def test_the_same_command_line_goes_on_though_its_moments_are_relative(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, block_timestamp=LATE, faults=failing_after(30)) as node:
        command = ("fetch", node.url, "-o", path, "--since", START, "--until", "now-1h")
        options = ("--page-size", 20, "--workers", 1)
        told = run(*command, *options, code=4).stderr
        assert "--resume continues it" in told
        node.faults = []
        for other in (("--until", "now-2h"), ("--since", "7d"), ("--party-id", "network")):
            refused = run("fetch", node.url, "-o", path, "--resume", *other, code=2).stderr
            assert refused.count("to resume it") == refused.count("\n") == 1
        run(*command, *options, "--resume")
    assert len(ba.read_parquet(path)) == len(ROWS)


def test_another_network_is_not_mixed_in(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, faults=failing_after(30)) as node:
        interrupted(node, path)
    other = random_history(12, rows=900, accounts=120, largest_block=40)
    with (
        LoopbackNode(other) as node,
        ba.Client(node.url) as client,
        pytest.raises(ba.IncompleteError, match="another network"),
    ):
        ba.load_to_parquet(client, path, resume=True)
    assert not path.exists()


def test_a_damaged_side_file_is_told(tmp_path):
    partial_path(tmp_path / "x.parquet").write_bytes(b"PAR1 damaged")
    with (
        ba.Client("http://127.0.0.1:9") as client,
        pytest.raises(ba.ArchiveError, match="load again"),
    ):
        ba.load_to_parquet(client, tmp_path / "x.parquet", resume=True)


def test_resuming_without_a_side_file_loads_anew(tmp_path):
    with LoopbackNode(ROWS) as node, ba.Client(node.url) as client:
        ba.load_to_parquet(client, tmp_path / "x.parquet", start=START, resume=True)
    assert len(ba.read_parquet(tmp_path / "x.parquet")) == len(ROWS)


def test_with_nothing_to_resume_and_no_interval_a_file_is_left_alone(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"an earlier load")
    with LoopbackNode(ROWS) as node:
        said = run("fetch", node.url, "-o", path, "--resume", code=2).stderr
        assert not node.requests
    assert "there is nothing to resume" in said
    assert path.read_bytes() == b"an earlier load"


def test_a_failure_before_the_first_row_leaves_nothing(tmp_path):
    with LoopbackNode(ROWS, faults=failing_after(0)) as node:
        interrupted(node, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_second_failure_keeps_the_progress_of_both_runs(tmp_path):
    path = tmp_path / "x.parquet"
    with LoopbackNode(ROWS, faults=failing_after(20)) as node:
        interrupted(node, path)
        kept = [pq.read_metadata(partial_path(path)).num_rows]
        for more in (10, 0):
            node.faults = failing_after(len(node.requests) + more)
            interrupted(node, path, resume=True)
            kept.append(pq.read_metadata(partial_path(path)).num_rows)
        assert 0 < kept[0] < kept[1] == kept[2]
        with ba.Client(node.url) as client:
            ba.load_to_parquet(client, path, resume=True)
    assert len(ba.read_parquet(path)) == len(ROWS)


def test_quarantined_rows_are_told_across_runs(tmp_path):
    path = tmp_path / "x.parquet"
    bad = {str(ROWS[3].timestamp_ns), str(ROWS[-3].timestamp_ns)}

    def spoil(row):
        return {**row, "balance": "1e5"} if row["timestamp"] in bad else row

    with LoopbackNode(ROWS, faults=failing_after(30), edit_row=spoil) as node:
        interrupted(node, path, on_bad_rows="quarantine")
        with ba.Client(node.url) as client:
            loaded = ba.load_to_parquet(client, path, resume=True, on_bad_rows="quarantine")
    spoiled = [row for row in ROWS if str(row.timestamp_ns) in bad]
    assert len(loaded["quarantined"]) == len(spoiled)
    assert loaded["rows"] == len(ROWS) - len(spoiled)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fetch_is_resumed_on_the_command_line(sent, tmp_path):
    path = tmp_path / "x.parquet"
    options = ("--since", START, "--until", "2023-05-01", "--page-size", "20", "--workers", "2")
    with LoopbackNode(ROWS, block_timestamp=LATE, latency=0.05) as node:
        process = child("fetch", node.url, "-o", path, *options)
        while len(node.requests) < 20:
            time.sleep(0.02)
        process.send_signal(sent)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "--resume" in said
        assert [partial_path(path)] == list(tmp_path.iterdir())
        node.latency = 0
        again = run("fetch", node.url, "-o", path, *options, "--resume", "-q")
        assert again.stderr == ""
        expected = load_all(node, end="2023-05-01")
    pd.testing.assert_frame_equal(ba.read_parquet(path), expected)
    assert [path] == list(tmp_path.iterdir())
