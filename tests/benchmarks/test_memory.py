from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq

from tests.benchmarks.contestants import fetch_command, fetching, loaded, serve
from tests.benchmarks.processes import Cost, environment, run
from tests.benchmarks.report import HELD_OVER, LARGE

ROWS = 5_000_000


def test_a_large_fetch_brings_all_rows(tmp_path, report):
    file = tmp_path / "changes.parquet"
    with serve(ROWS) as node:
        cost = run(fetch_command(node, file, workers=4))

    assert loaded([file]) == (node.rows, node.total)
    assert pq.ParquetFile(file).num_row_groups > 1
    report.add(LARGE, fetching(4), cost)


def test_a_table_and_a_stream_are_held_over_what_the_process_held(report):
    with serve(ROWS) as node:
        for what in ("table", "stream"):
            module = ("-P", "-m", "tests.benchmarks.held")
            held = subprocess.run(
                [sys.executable, *module, what, node.url, node.since, node.until],
                env=environment(),
                capture_output=True,
                check=True,
            )
            told = json.loads(held.stdout)
            seconds = told["seconds"]
            report.add(HELD_OVER, what, Cost(seconds, seconds, told["peak"]))
            if what == "table":
                report.add(HELD_OVER, "its columns", Cost(seconds, seconds, told["size"]))
