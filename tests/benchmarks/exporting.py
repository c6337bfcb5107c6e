"""An export by worker processes: `python exporting.py URL SINCE UNTIL FOLDER WORKERS PAGE_SIZE`.

It prints, as a line of JSON, its seconds without imports and without the start of the cluster, and
the most memory of a worker.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import balance_analysis as ba
from tests.benchmarks.clustered import LIMIT, peak

CONNECTIONS = 8
"""Of each worker."""


def run(where: list[str], workers: int, page_size: int) -> dict[str, Any]:
    """Export and return what it cost."""
    url, since, until, folder = where
    from distributed import Client, LocalCluster  # noqa: PLC0415 - what is not measured

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None
        ) as local,
        Client(local) as cluster,
        ba.Client(url) as client,
    ):
        cluster.wait_for_workers(workers)
        cluster.run(_warm)
        began = time.perf_counter()
        ba.export(
            client,
            ba.Archive(folder),
            start=since,
            end=until,
            partition="hour",
            page_size=page_size,
            workers=CONNECTIONS,
            progress=False,
            executor=cluster,
        )
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "peak": max(cluster.run(peak).values())}


def _warm() -> None:
    """Import what a task needs, which is no part of it."""
    import balance_analysis.fill.export  # noqa: F401, PLC0415


if __name__ == "__main__":
    *where, workers, page_size = sys.argv[1:]
    print(json.dumps(run(where, int(workers), int(page_size))), flush=True)  # noqa: T201
