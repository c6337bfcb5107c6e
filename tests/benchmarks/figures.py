"""What a benchmark measured, and what a process costs.

As a program, `python figures.py COMMAND...`, this is the small process between a benchmark and the
command that it measures: a child's largest memory includes that of the process that forked it.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

CHECKOUT = Path(__file__).parents[2]
MB = 1e6


@dataclass(frozen=True)
class Cost:
    """What a process cost: seconds, seconds of processor time, and its largest memory in MB."""

    seconds: float
    cpu: float
    peak: float


@dataclass(frozen=True)
class Figure:
    """One figure of the page of results.

    Attributes
    ----------
    name
        What was measured.
    values
        One for each round; the page shows their median.
    unit
        Such as `s`, `MB` or `times`.
    at_most, at_least
        The goal, if there is one.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def is_missed(self) -> bool:
        is_above = self.at_most is not None and self.value > self.at_most
        return is_above or (self.at_least is not None and self.value < self.at_least)


def environment() -> dict[str, str]:
    """Return the environment of all processes: this checkout's package, and bytecode kept."""
    return os.environ | {
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_PROXY": "127.0.0.1",
    }


def run(command: Sequence[str]) -> Cost:
    """Run a command to its end.

    Raises
    ------
    RuntimeError
        If it fails; with what it wrote to stderr.
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


@contextlib.contextmanager
def running(command: Sequence[str], pattern: str) -> Iterator[tuple[int, str]]:
    """Run a server; give the number of its process, and what it printed that matches a pattern.

    Raises
    ------
    RuntimeError
        If it ends before it prints such a line.
    """
    with subprocess.Popen(
        command,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            said = next(filter(None, (re.search(pattern, line) for line in process.stdout)), None)
            if said is None:
                raise RuntimeError(f"{' '.join(command)} ended before it was ready")
            yield process.pid, said[0]
        finally:
            process.terminate()
            process.communicate()


def program(*arguments: str) -> list[str]:
    """Return the command line's command with arguments."""
    return [sys.executable, "-P", "-m", "balance_analysis", *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """Return the command of a module of this folder with arguments."""
    return [sys.executable, "-P", "-m", f"tests.benchmarks.{name}", *arguments]


def seconds(work: Callable[[], object], rounds: int) -> tuple[float, ...]:
    """Return how long some work took in each round, after it was done once."""
    work()
    measured = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        measured.append(time.perf_counter() - began)
    return tuple(measured)


def ratios(ones: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """Return the ratio of the two values of each round."""
    return tuple(one / other for one, other in zip(ones, others, strict=True))


def memory(name: str, process: int | str = "self") -> float:
    """Return a figure of a process' memory in MB: `VmHWM`, the largest, or `VmRSS`, the present."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / MB


def main(command: list[str]) -> int:
    began = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    cost = {
        "seconds": time.perf_counter() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024 / MB,
    }
    print(json.dumps(cost), flush=True)  # noqa: T201
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
