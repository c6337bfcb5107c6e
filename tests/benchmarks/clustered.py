"""Analysis of an archive by worker processes, or by one: `python clustered.py WORK FOLDER WORKERS`.

As a program it does one work and prints, as a line of JSON, its seconds without imports and without
the start of the cluster, the most memory of a worker (without workers, of this process), and what
it found. No workers means the function of the whole table, read at once.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

import balance_analysis as ba
from balance_analysis.archive import layout
from balance_analysis.archive.datafile import encode_rows
from balance_analysis.archive.store import Store
from balance_analysis.frame import to_arrow
from tests.archive.writing import answered, begin
from tests.benchmarks.levels import DAY, DAYS, SINCE, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT: Final = "2GB"
STRETCH: Final = 10
"""How many days of rows are made at once."""

WORKS: Final[dict[str, tuple[Callable[..., Any], dict[str, Any]]]] = {
    "totals an hour": (ba.totals, {"freq": "1h"}),
    "averages a day": (ba.time_weighted_average, {"freq": "1D"}),
}


def make_archive(folder: Path, rows: int, accounts: int, days: int = 100) -> None:
    """Write an archive of so many days, every ten of which have the same rows, later."""
    writer, store, files = begin(folder, "day"), Store(folder), {}
    for first in range(0, days, STRETCH):
        table = to_arrow(make_table(rows * STRETCH // days, accounts))
        times = table["timestamp"].cast(pa.int64()).to_numpy()
        # 90 days, squeezed into ten that follow those before.
        times = SINCE + first * DAY + (times - SINCE) * STRETCH // DAYS
        moved = pa.array(times, pa.timestamp("us", "UTC"))
        table = table.set_column(4, table.schema.field("timestamp"), moved)
        for day in range(first, first + STRETCH):
            start = SINCE + day * DAY
            own = table.filter(pa.array((times >= start) & (times < start + DAY)))
            period = layout.period_of(start, "day")
            content, files[period] = encode_rows(_once(own))
            store.write(layout.changes_file(period, "day"), content)
    evidence = answered((SINCE, SINCE + days * DAY), "made", "2023-08-01T00:00Z")
    writer.amend(replace(writer.manifest, evidence=evidence, files=files))


def _once(rows: pa.Table) -> pa.Table:
    """Return rows, sorted, without those that squeezing put on the time of the one before."""
    keys = [rows[name].combine_chunks().indices.to_numpy() for name in ba.ACCOUNT_KEY]
    times = rows["timestamp"].cast(pa.int64()).to_numpy()
    is_same = np.logical_and.reduce([np.diff(each) == 0 for each in [*keys, times]])
    return rows.filter(pa.array(np.append(True, ~is_same)[: rows.num_rows]))


def summary_of(frame: pd.DataFrame) -> str:
    """Return what two equal results have in common."""
    amounts = next(frame[name] for name in ("total", "average") if name in frame)
    return f"{len(frame)} rows, {sum(map(int, amounts.dropna()))}, {amounts.isna().sum()} unknown"


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024 / 1e6


def _warm() -> None:
    """Import what a task needs, which is no part of it."""
    ba.totals(ba.to_table(pd.DataFrame(columns=[*ba.ACCOUNT_KEY, "timestamp", "balance"])))


def run(work: str, folder: str, workers: int) -> dict[str, Any]:
    """Do one work and return what it cost."""
    function, how = WORKS[work]
    archive = ba.Archive(folder)
    if not workers:
        began = time.perf_counter()
        found = function(archive.read(), **how)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "peak": peak(), "found": summary_of(found)}
    from distributed import Client, LocalCluster  # noqa: PLC0415 - not for the others

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=LIMIT,
            dashboard_address="127.0.0.1:0",
        ) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(workers)
        client.run(_warm)
        began = time.perf_counter()
        found = function(archive, **how)
        seconds = time.perf_counter() - began
        peaks = client.run(peak).values()
    return {"seconds": seconds, "peak": max(peaks), "found": summary_of(found)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]))), flush=True)  # noqa: T201
