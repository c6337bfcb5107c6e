"""The options, the report and the nodes of the benchmarks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.archived import make_archive
from tests.benchmarks.contestants import serve
from tests.benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.contestants import Node

_REPORT = pytest.StashKey[Report]()
_BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("balance_analysis benchmarks")
    group.addoption("--rounds", type=int, default=5, help="how often each process runs")
    group.addoption("--record", type=Path, help="a file to write what was measured into")
    group.addoption("--data", type=Path, help="a folder to keep a large archive in, for others")
    group.addoption("--dlt-python", default=sys.executable, help="a Python that can import dlt")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORT] = Report()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Before the contestants, so that a round runs all of them, one after the other.
    if "round_number" in metafunc.fixturenames:
        metafunc.parametrize("round_number", range(metafunc.config.getoption("--rounds")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    found = yield
    if not found.passed:
        said = found.longrepr[2] if found.skipped else call.excinfo.exconly()
        item.config.stash[_REPORT].fail(item.nodeid, said.splitlines()[0])
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take over what pytest-benchmark timed, and write the record."""
    report, file = session.config.stash[_REPORT], session.config.getoption("--record")
    for timed in session.config._benchmarksession.benchmarks:
        if timed.stats.data:
            what, _, which = timed.name.removeprefix("test_").removesuffix("]").partition("[")
            says = re.sub(" takes? some time", "", what.replace("_", " "))
            says += which and f": {which.replace('-', ', ')}"
            most = timed.extra_info.get("seconds, at most")
            report.tell(_room(timed.fullname), says, *timed.stats.data, unit="s", most=most)
    if file is not None:
        rooms = {_room(item.nodeid) for item in session.items}
        report.took = dict.fromkeys(rooms, time.monotonic() - _BEGAN)
        file.write_bytes(report.to_json())


def _room(name: str) -> str:
    return Path(name.partition("::")[0]).stem.removeprefix("test_")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report = terminalreporter.config.stash[_REPORT]
    from tests.benchmarks.page import found, goals  # noqa: PLC0415 - drawing is not measured

    for line in [*found(report), *goals(report)]:
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
def large_archive(pytestconfig: pytest.Config, tmp_path_factory) -> tuple[Path, str]:
    """A folder with 20,000,000 rows as an archive and as plain files, and a party in them."""
    data = pytestconfig.getoption("--data") or tmp_path_factory.mktemp("data")
    folder, made = data / "large", data / "party"
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made.write_text(make_archive(folder, 20_000_000, 5000), encoding="ascii")
    return folder, made.read_text(encoding="ascii")


@pytest.fixture(scope="session")
def dlt_python(pytestconfig: pytest.Config) -> str:
    """A Python that has dlt, which this project doesn't need."""
    python = pytestconfig.getoption("--dlt-python")
    found = subprocess.run([python, "-c", "import dlt"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{python} can't import dlt; name one that can with --dlt-python")
    return python
