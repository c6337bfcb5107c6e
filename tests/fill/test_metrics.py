"""A monitor gets the figures of each export, whatever its end."""

from __future__ import annotations

import re
import time

import pytest

from tests.archive.exporting import DAY, END, node_of, spread_history
from tests.cli.running import run
from tests.loopback import Fault
from tests.moments import moment_text

pytestmark = pytest.mark.usefixtures("without_waits")

ROWS = spread_history(3, rows=150, accounts=12)


def metrics(path):
    text = path.read_text()
    for name in re.findall(r"^(\w+)\{", text, re.MULTILINE):
        assert f"# HELP {name} " in text
        assert f"# TYPE {name} gauge\n" in text
    figures = re.findall(
        r"^balance_analysis_export_(\w+)\{archive=\"[^\"]*\"\} (\S+)$", text, re.MULTILINE
    )
    return {name: float(value) for name, value in figures}


def exported(node, folder, *options, code=0):
    """Export by the command, and return the figures that it wrote."""
    path = folder.parent / "x.prom"
    run("export", folder, node.url, "--metrics-file", path, *options, code=code)
    return metrics(path)


def test_metrics_are_of_the_archive_and_the_run(tmp_path):
    began = int(time.time())
    with node_of(ROWS) as node:
        figures = exported(node, tmp_path / "a", "--until", moment_text(END))
    assert list(figures) == [
        *("last_success_timestamp_seconds", "last_run_timestamp_seconds"),
        *("archive_rows", "lag_seconds", "missing_intervals", "unproven_intervals"),
        *("conflicts", "bad_rows", "exit_code"),
    ]
    assert figures["archive_rows"] == len(ROWS)
    assert (
        figures["missing_intervals"] == figures["unproven_intervals"] == figures["exit_code"] == 0
    )
    now = time.time()
    assert began - END / 1e6 <= figures["lag_seconds"] <= now - END / 1e6
    assert began <= figures["last_success_timestamp_seconds"] <= now


def test_metrics_of_a_failed_run_keep_the_last_success(tmp_path):
    with node_of(ROWS) as node:
        first = exported(node, tmp_path / "a", "--until", moment_text(END - DAY))
        node.faults = lambda _, request: Fault.status(400) if request.params else None
        figures = exported(node, tmp_path / "a", code=4)
    last = "last_success_timestamp_seconds"
    assert (figures["exit_code"], figures[last]) == (4, first[last])
    assert figures[last] <= figures["last_run_timestamp_seconds"]


def test_metrics_without_an_archive_leave_out_what_is_not_known(tmp_path):
    with node_of(ROWS, faults=lambda *_: Fault.status(400)) as node:
        exported(node, tmp_path / 'a"b', code=4)
    text = (tmp_path / "x.prom").read_text()
    assert "archive_rows" not in text
    assert "last_success" not in text
    assert r"a\"b" in text
    assert re.search(r"exit_code\{.*\} 4\.0$", text, re.MULTILINE)
