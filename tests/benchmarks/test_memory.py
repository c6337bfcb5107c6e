from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq

from balance_analysis.schema import from_microseconds
from tests.benchmarks.archived import ARCHIVE, make_archive
from tests.benchmarks.contestants import fetch_command, fetching, loaded, serve
from tests.benchmarks.levels import SINCE, UNTIL
from tests.benchmarks.processes import Cost, environment, run
from tests.benchmarks.report import COLUMNS_OF, HELD_OVER, HELD_OVER_READ, LARGE

ROWS, ACCOUNTS = 5_000_000, 5000


def test_a_large_fetch_brings_all_rows(tmp_path, report):
    file = tmp_path / "changes.parquet"
    with serve(ROWS) as node:
        cost = run(fetch_command(node, file, workers=4))

    assert loaded([file]) == (node.rows, node.total)
    assert pq.ParquetFile(file).num_row_groups > 1
    report.add(LARGE, fetching(4), cost)


def test_a_table_and_a_stream_are_held_over_what_the_process_held(report):
    with serve(ROWS) as node:
        tell_held(report, HELD_OVER, "table", node.url, node.since, node.until)
        tell_held(report, HELD_OVER, "stream", node.url, node.since, node.until)


def test_a_table_of_an_archive_is_held_over_what_the_process_held(tmp_path, report):
    make_archive(tmp_path, ROWS, ACCOUNTS)
    bounds = (f"{from_microseconds(moment):%Y-%m-%d}" for moment in (SINCE, UNTIL))
    tell_held(report, HELD_OVER_READ, "archive", str(tmp_path / ARCHIVE), *bounds)


def tell_held(report, group, what, *where):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.benchmarks.held", what, *where],
        env=environment(),
        capture_output=True,
        check=True,
    )
    told = json.loads(done.stdout)
    seconds = told["seconds"]
    report.add(group, what, Cost(seconds, seconds, told["peak"]))
    if told["size"]:
        report.add(group, COLUMNS_OF, Cost(seconds, seconds, told["size"]))
