from __future__ import annotations

import time

import pytest

from balance_analysis.node.decode import decode_page
from tests.benchmarks.history import FIRST, History
from tests.benchmarks.server import page

ROWS = 5000


@pytest.mark.benchmark(timer=time.process_time, min_rounds=50)
def test_a_page_is_decoded_whole(benchmark, report):
    history = History(ROWS)
    asked = {
        "dateRange.startTimestamp": str(FIRST),
        "dateRange.endTimestamp": str(history.end),
        "pagination.first": str(ROWS),
    }
    body = b"".join(page(history, asked))

    decoded = benchmark(decode_page, body)

    assert decoded.rows.num_rows == ROWS
    if benchmark.stats:
        report.rows_per_second = ROWS / benchmark.stats.stats.median
