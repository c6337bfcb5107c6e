"""A contestant as a process of its own, to be asked for one work after the other.

As a program, `python workers.py ENGINE FILE [HOUR DAY]`, this is that process; the last two are the
steps of the series and of the averages, microseconds. It prints a line when it has the rows, and
then a line of JSON for each line that it reads: `time WORK`, what the work costs, twice, just after
it was done once, with memory that is warm, or `weigh WORK`, what it holds.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather

from tests.benchmarks.processes import Cost, environment

FEW, TIMED = 1000, 2


@dataclass(frozen=True)
class Weight:
    """What a work held, in MB (10**6 bytes).

    Attributes
    ----------
    peak
        The most memory of the process while it ran, less what the process had before.
    result, table
        The work's result, and the table that it came from.
    """

    peak: float
    result: float
    table: float


class Worker:
    """An engine with the rows of a file, which it has within its context."""

    def __init__(self, engine: str, rows: Path, *steps: int) -> None:
        self.touched: int | None = None
        command = [sys.executable, "-P", "-W", "ignore", "-m", "tests.benchmarks.workers"]
        self._process = subprocess.Popen(
            [*command, engine, str(rows), *map(str, steps)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def time(self, work: str) -> list[Cost]:
        """Return what a work costs, some times, just after it was done once.

        Of this package, `touched` then has the MB of the table and of what was made of it.
        """
        *answers, self.touched = self._ask(f"time {work}")
        return [Cost(**answer) for answer in answers]

    def weigh(self, work: str) -> Weight:
        """Return what a work holds; the first thing to ask of a process."""
        return Weight(**self._ask(f"weigh {work}"))

    def _ask(self, question: str) -> Any:
        print(question, file=self._process.stdin, flush=True)
        if answer := self._process.stdout.readline():
            return json.loads(answer)
        raise RuntimeError(f"the process ended with {self._process.wait()} at {question!r}")


def _time(contestant: Any, work: str) -> list[Any]:
    result = getattr(contestant, work)()
    answers: list[Any] = []
    for _ in range(TIMED):
        del result
        gc.collect()
        _reset_peak()
        cpu, began = time.process_time(), time.perf_counter()
        result = getattr(contestant, work)()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        answers.append({"seconds": seconds, "cpu": cpu, "peak": _memory("VmHWM")})
    is_ours = isinstance(result, pd.DataFrame)
    return [*answers, _size(contestant.table) + _size(result) if is_ours else None]


def _weigh(contestant: Any, work: str, few: Any) -> dict[str, float]:
    getattr(few, work)()  # what is imported on the way is no part of it
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    _reset_peak()
    before = _memory("VmRSS")
    result = getattr(contestant, work)()
    return {
        "peak": _memory("VmHWM") - before,
        "result": _size(result),
        "table": _size(contestant.table),
    }


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def _size(frame: pd.DataFrame) -> float:
    return float(frame.memory_usage().sum()) / 1e6


def copy_rate() -> float:
    """Return how many MB a second a plain copy reads and writes, by all processors."""
    parts, seconds = os.cpu_count(), []
    source = np.ones((parts, 100_000_000 // 8 // parts))
    target = source.copy()
    with ThreadPoolExecutor(parts) as pool:
        for _ in range(9):
            began = time.perf_counter()
            list(pool.map(np.copyto, target, source))
            seconds.append(time.perf_counter() - began)
    return 2 * source.nbytes / 1e6 / statistics.median(seconds)


def main(engine: str, file: str, *steps: str) -> None:
    from tests.benchmarks.engines import ENGINES  # noqa: PLC0415 - Polars is asked for here only

    # The system's allocator gives all back that is not kept, so that it can't be used again unseen.
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    rows = pa.feather.read_table(file, memory_map=False)
    few = ENGINES[engine](rows.take(pa.array(range(FEW))))
    contestant = ENGINES[engine](rows, *map(int, steps))
    del rows
    pa.set_memory_pool(usual)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        question, work = line.split()
        answer = _time(contestant, work) if question == "time" else _weigh(contestant, work, few)
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
