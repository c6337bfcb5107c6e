from __future__ import annotations

import pyarrow.parquet as pq

from tests.benchmarks.contestants import fetch_command, fetching, loaded, serve
from tests.benchmarks.processes import run
from tests.benchmarks.report import LARGE

ROWS = 5_000_000


def test_a_large_fetch_brings_all_rows(tmp_path, report):
    file = tmp_path / "changes.parquet"
    with serve(ROWS) as node:
        cost = run(fetch_command(node, file, workers=4))

    assert loaded([file]) == (node.rows, node.total)
    assert pq.ParquetFile(file).num_row_groups > 1
    report.add(LARGE, fetching(4), cost)
