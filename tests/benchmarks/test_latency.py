from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.contestants import fetch_command, fetching, loaded, serve
from tests.benchmarks.processes import run
from tests.benchmarks.report import SLOW, SLOW_SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.contestants import Node

LATENCY = 0.05
SIZES = {SLOW: (500_000, 5000), SLOW_SMALL: (100_000, 500)}


@pytest.fixture(scope="module", params=SIZES)
def slow(request) -> Iterator[tuple[str, Node, int]]:
    rows, page_size = SIZES[request.param]
    with serve(rows, LATENCY) as node:
        yield request.param, node, page_size


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("workers", [8, 1])
def test_more_workers_bring_the_same_rows_from_a_slow_node(workers, slow, tmp_path, report):
    group, node, page_size = slow
    file = tmp_path / "changes.parquet"

    cost = run(fetch_command(node, file, workers=workers, page_size=page_size))

    assert loaded([file]) == (node.rows, node.total)
    report.add(group, fetching(workers), cost)
