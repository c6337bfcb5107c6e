"""Run a command as a process of its own and tell what it cost.

As a program this is the small process in between: `python processes.py COMMAND...`. A child's
largest memory includes that of the process it was forked from, which pytest's would hide.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cost:
    """What a process cost.

    Attributes
    ----------
    seconds
        From its start to its end.
    cpu
        Seconds of processor time, of all its threads.
    peak
        The most memory that it held, in MB (10**6 bytes).
    """

    seconds: float
    cpu: float
    peak: float


def environment() -> dict[str, str]:
    """Return the environment of all processes: this checkout's package, no proxy, no telemetry.

    Bytecode is written whatever the shell says, as an installed package has it.
    """
    return os.environ | {
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_PROXY": "127.0.0.1",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
    }


def kept_memory() -> dict[str, str]:
    """Return the environment of a cluster's workers: as `environment`, and what is advised."""
    return environment() | {
        "MALLOC_MMAP_THRESHOLD_": str(1 << 26),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    }


def run(command: Sequence[str]) -> Cost:
    """Run a command to its end.

    Raises
    ------
    RuntimeError
        If it fails; with what it said.
    """
    done = subprocess.run(
        [sys.executable, "-S", "-E", __file__, *command],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def main(command: list[str]) -> int:
    began = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - began
    cost = {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024 / 1e6,
    }
    print(json.dumps(cost), flush=True)  # noqa: T201
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
