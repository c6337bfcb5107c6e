"""What a report costs as a process: of the sample data, and of 5,000 accounts; both below 5 MB."""

from __future__ import annotations

import sys

import pytest

import balance_analysis as ba
from balance_analysis.demo import sample_data
from tests.benchmarks.levels import make_table
from tests.benchmarks.processes import run

MOST_BYTES = 5_000_000
SOURCES = {
    "the sample data": (3, lambda: ba.read_parquet(sample_data() / "changes.parquet")),
    "1,000,000 rows of 5,000 accounts": (15, lambda: make_table(1_000_000, 5000)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_takes_some_time(benchmark, tmp_path, name):
    target, make = SOURCES[name]
    table, path = tmp_path / "table.parquet", tmp_path / "report.html"
    ba.write_parquet(make(), table)
    command = [sys.executable, "-P", "-m", "balance_analysis", "report", table, "-o", path, "-q"]
    costs = []
    benchmark.pedantic(lambda: costs.append(run(list(map(str, command)))), rounds=3)
    benchmark.extra_info["seconds, at most"] = target
    benchmark.extra_info["seconds of processor"] = min(cost.cpu for cost in costs)
    benchmark.extra_info["bytes, at most 5,000,000"] = path.stat().st_size
    assert path.stat().st_size < MOST_BYTES
