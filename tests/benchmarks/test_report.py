"""What a report costs: of the sample data, and of 5,000 accounts, which must stay below 5 MB."""

from __future__ import annotations

import pytest

import balance_analysis as ba
from balance_analysis.demo import sample_data
from tests.benchmarks.levels import make_table

MOST_BYTES = 5_000_000
SOURCES = {
    "the sample data": lambda: ba.read_parquet(sample_data() / "changes.parquet"),
    "1,000,000 rows of 5,000 accounts": lambda: make_table(1_000_000, 5000),
}


@pytest.mark.parametrize("name", SOURCES)
def test_report(benchmark, tmp_path, name):
    table = SOURCES[name]()
    path = tmp_path / "report.html"
    assets = dict.fromkeys(table["asset_id"].cat.categories, 18)

    def write():
        path.unlink(missing_ok=True)
        ba.write_report(table, path, assets=assets)

    benchmark.pedantic(write, rounds=3, warmup_rounds=1)
    benchmark.extra_info["bytes"] = path.stat().st_size
    assert path.stat().st_size < MOST_BYTES
