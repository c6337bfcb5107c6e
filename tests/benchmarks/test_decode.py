from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from balance_analysis.node.decode import decode_page
from tests.benchmarks.decoders import IN_PROCESSES, WAYS, objects, spent
from tests.benchmarks.history import FIRST, History
from tests.benchmarks.processes import Cost
from tests.benchmarks.report import DECODERS
from tests.benchmarks.server import page

ROWS, PAGES, THREADS = 5000, 60, 2


@pytest.fixture(scope="module")
def body():
    history = History(ROWS)
    asked = {
        "dateRange.startTimestamp": str(FIRST),
        "dateRange.endTimestamp": str(history.end),
        "pagination.first": str(ROWS),
    }
    return b"".join(page(history, asked))


@pytest.mark.benchmark(timer=time.process_time, min_rounds=50)
def test_a_page_is_decoded_whole(benchmark, body, report):
    decoded = benchmark(decode_page, body)

    assert decoded.rows.num_rows == ROWS
    if benchmark.stats:
        report.rows_per_second = ROWS / benchmark.stats.stats.median


@pytest.fixture(scope="module")
def processes(body):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(THREADS, mp_context=context) as pool:
        list(pool.map(objects, [body] * THREADS))
        yield pool


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("name", [*WAYS, IN_PROCESSES])
def test_every_way_decodes_two_pages_at_once(name, body, processes, report):
    with ThreadPoolExecutor(THREADS) as threads:
        pool, way = (processes, objects) if name == IN_PROCESSES else (threads, WAYS[name])
        began, spent_before = time.perf_counter(), spent()
        pages = list(pool.map(way, [body] * PAGES))
        seconds = time.perf_counter() - began

    assert all(page.num_rows == ROWS for page in pages)
    report.add(DECODERS, name, Cost(seconds, spent() - spent_before, 0.0))
