"""Run all benchmarks, and write the page of results: `python -m tests.benchmarks [NAME ...]`.

Each file of benchmarks is a run of pytest of its own, so that one that fails or hangs takes none of
the others with it. With names, such as `decode growth`, only these are run anew: what the others
found last stands in `.benchmarks`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from tests.benchmarks.page import HERE, PAGE, publish
from tests.benchmarks.processes import CHECKOUT, environment
from tests.benchmarks.report import Report

if TYPE_CHECKING:
    from pathlib import Path

RECORDS: Final = CHECKOUT / ".benchmarks"
PLAN: Final[dict[str, list[str]]] = {
    "startup": ["--rounds=7"],
    "whole_processes": ["--rounds=3"],
    "latency": ["--rounds=2"],
    "memory": [],
    "decode": [],
    "reconstruct": ["--rounds=2"],
    "growth": [],
    "archive": ["--rounds=2"],
    "segments": ["--rounds=2"],
    "service": [],
    "explorer": [],
    "figures": [],
    "report": [],
    "cluster": ["--rounds=2", "-k", "20000000"],
}
"""Of each file the options, chosen so that all end within 20 minutes on two processors."""

LONGEST: Final = 900
"""Seconds after which a file is given up."""


def main(names: list[str]) -> int:
    if strangers := {*names} - {*PLAN}:
        sys.exit(f"there is no benchmark {min(strangers)}; there are {', '.join(PLAN)}")
    RECORDS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        ended = {name: run(name, data) for name in names or PLAN}
    report = Report.joined(
        record.read_bytes() for record in map(record_of, PLAN) if record.exists()
    )
    planned = {f"test_{name}.py" for name in PLAN}
    report.failed |= {
        **{name: ended.get(name, "not run") for name in PLAN if not record_of(name).exists()},
        **{file.name: "not planned" for file in HERE.glob("test_*.py") if file.name not in planned},
    }
    publish(report)
    print(f"{PAGE.name}: {len(report.failed)} failed or left out")  # noqa: T201
    return 1 if report.failed else 0


def record_of(name: str) -> Path:
    return RECORDS / f"{name}.json"


def run(name: str, data: str) -> str:
    """Run one file of benchmarks, and return how it ended."""
    record_of(name).unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    command += [
        *PLAN[name],
        "--record",
        str(record_of(name)),
        "--data",
        data,
        str(HERE / f"test_{name}.py"),
    ]
    try:
        done = subprocess.run(
            command, cwd=CHECKOUT, env=environment(), check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return f"given up after {LONGEST} s"
    return f"ended with {done.returncode} and no record"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
