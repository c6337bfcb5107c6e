from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import balance_analysis as ba
from tests.benchmarks.contestants import serve
from tests.benchmarks.processes import run
from tests.benchmarks.report import MANY_SEGMENTS, SEGMENTS
from tests.benchmarks.segmented import ROWS, make
from tests.benchmarks.test_archive import export_command

if TYPE_CHECKING:
    from pathlib import Path

COUNT, MANY = 100, 400


@pytest.fixture(scope="module")
def segments(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("segments")
    make(folder, range(COUNT))
    return folder


def import_command(folder: Path, segments: Path) -> list[str]:
    command = [sys.executable, "-P", "-m", "balance_analysis", "import"]
    return [*command, str(folder), str(segments), "-q"]


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("work", ["alone", "rows", "table", "duckdb"])
def test_segments_are_read(work, segments, tmp_path, report):
    command = [sys.executable, "-P", "-m", "tests.benchmarks.segmented", work]
    report.add(SEGMENTS, work, run([*command, str(segments), str(tmp_path / "out.parquet")]))


@pytest.mark.usefixtures("round_number")
def test_segments_are_imported(segments, tmp_path, report):
    cost = run(import_command(tmp_path / "archive", segments))
    assert ba.Archive(tmp_path / "archive").status(count_accounts=False).rows == COUNT * ROWS
    report.add(SEGMENTS, "import", cost)


@pytest.fixture(scope="module")
def node():
    with serve(COUNT * ROWS) as node:
        yield node


@pytest.mark.usefixtures("round_number")
def test_the_same_number_of_rows_is_exported_from_a_node(node, tmp_path, report):
    report.add(SEGMENTS, "export from a node", run(export_command(node, tmp_path / "archive")))


def test_400_segments_take_no_more_memory(segments, tmp_path, report):
    make(segments, range(COUNT, MANY))
    cost = run(import_command(tmp_path / "archive", segments))
    assert ba.Archive(tmp_path / "archive").status(count_accounts=False).rows == MANY * ROWS
    report.add(MANY_SEGMENTS, "import", cost)
