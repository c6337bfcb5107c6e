"""How long commands take that do little: most of it is imports.

What the sample's table takes stands beside the imports of pandas and pyarrow, which it needs.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from balance_analysis.archive.runs import Run
from balance_analysis.demo import sample_archive, sample_data
from tests.benchmarks.processes import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "start-up"
BARE, PANDAS = "python -c pass", "import pandas, pyarrow.parquet"
HOURS = 2 * 365 * 24


class Refusing(BaseHTTPRequestHandler):
    """Answers each request with 501, after which a load ends."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def reported(tmp_path) -> Path:
    """An archive with the reports of two years of hours."""
    with sample_archive() as archive:
        shutil.copytree(archive.uri, tmp_path / "archive")
    (tmp_path / "archive" / "_runs").mkdir(exist_ok=True)
    began = dt.datetime(2023, 5, 1, tzinfo=dt.UTC)
    for hour in range(HOURS):
        name = f"{began + dt.timedelta(hours=hour):%Y%m%dT%H%M%S.%fZ}-{hour:06x}"
        content = json.dumps(asdict(Run(name, began, outcome="complete")), default=str)
        (tmp_path / "archive" / "_runs" / f"{name}.json").write_text(content, encoding="utf-8")
    return tmp_path / "archive"


def commands(url: str, archive: Path) -> dict[str, list[str]]:
    program = [sys.executable, "-P", "-m", "balance_analysis"]
    fetching = [*program, "fetch", url, "-o", str(archive.parent / "x.parquet"), "-q"]
    sample = str(sample_data() / "changes.parquet")
    table = f"import balance_analysis as ba; ba.read_parquet({sample!r})"
    return {
        BARE: [sys.executable, "-P", "-c", "pass"],
        "--help": [*program, "--help"],
        "fetch, to its first answer": ["sh", "-c", '"$@" || true', "-", *fetching],
        PANDAS: [sys.executable, "-P", "-c", PANDAS],
        "the sample as a table": [sys.executable, "-P", "-c", table],
        f"status, {HOURS:,} reports": [*program, "status", str(archive)],
    }


def test_a_start_takes_some_time(refusing, reported, report, pytestconfig):
    costs = {}
    for _ in range(pytestconfig.getoption("--rounds")):
        for name, command in commands(refusing, reported).items():
            costs.setdefault(name, []).append(run(command))
    for name, each in costs.items():
        for cost in each:
            report.add(GROUP, name, cost)

    def over(name: str, base: str, most: float) -> None:
        pairs = zip(costs[name], costs[base], strict=True)
        more = [1000 * (one.seconds - other.seconds) for one, other in pairs]
        report.tell(GROUP, f"{name}, over {base}", *more, unit="ms", most=most)

    over("--help", BARE, 150)
    over("fetch, to its first answer", BARE, 350)
    over("the sample as a table", PANDAS, 150)
    over("the sample as a table", BARE, 600)
    over(f"status, {HOURS:,} reports", PANDAS, 150)
