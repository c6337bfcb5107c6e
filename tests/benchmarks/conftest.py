"""The options, the report and the nodes of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.contestants import serve
from tests.benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.contestants import Node

_REPORT = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("balance_analysis benchmarks")
    group.addoption("--rounds", type=int, default=5, help="how often each process runs")
    group.addoption("--dlt-python", default=sys.executable, help="a Python that can import dlt")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORT] = Report()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Before the contestants, so that a round runs all of them, one after the other.
    if "round_number" in metafunc.fixturenames:
        metafunc.parametrize("round_number", range(metafunc.config.getoption("--rounds")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report = terminalreporter.config.stash[_REPORT]
    if report.costs or report.weights or report.rows_per_second:
        terminalreporter.section("ratios")
        for line in report.lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash[_REPORT]


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> int:
    return pytestconfig.getoption("--rounds")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node with half a million rows."""
    with serve(500_000) as node:
        yield node


@pytest.fixture(scope="session")
def dlt_python(pytestconfig: pytest.Config) -> str:
    """A Python that has dlt, which this project doesn't need."""
    python = pytestconfig.getoption("--dlt-python")
    found = subprocess.run([python, "-c", "import dlt"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{python} can't import dlt; name one that can with --dlt-python")
    return python
