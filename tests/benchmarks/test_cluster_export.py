from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from tests.benchmarks.contestants import loaded, serve
from tests.benchmarks.processes import Cost, kept_memory

LATENCY = 0.05
SIZES = ((1_008_000, 5000), (720_000, 500))
"""28 and 20 hours, each a task, which two workers can share alike."""
WORKERS = (2, 1)


@pytest.fixture(scope="module", params=SIZES, ids=str)
def slow(request):
    rows, page_size = request.param
    with serve(rows, LATENCY) as node:
        yield node, page_size


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("workers", WORKERS)
def test_worker_processes_export_the_same_rows_from_a_slow_node(workers, slow, tmp_path, report):
    node, page_size = slow
    folder = tmp_path / "archive"
    command = [sys.executable, "-P", "-m", "tests.benchmarks.exporting"]
    where = [node.url, node.since, node.until, str(folder)]

    began = time.perf_counter()
    done = subprocess.run(
        [*command, *where, str(workers), str(page_size)],
        env=kept_memory(),
        check=True,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])

    assert loaded(sorted(folder.glob("changes/*/*.parquet"))) == (node.rows, node.total)
    cost = Cost(said["seconds"], time.perf_counter() - began, said["peak"])
    report.add(group_of(node.rows, page_size), name_of(workers), cost)


def group_of(rows: int, page_size: int) -> str:
    return f"export of {rows:,} rows, {page_size:,} a page, 50 ms a request"


def name_of(workers: int) -> str:
    return f"{workers} worker process{'es' * (workers > 1)} of 8 connections"
