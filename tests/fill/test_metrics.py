"""A monitor gets the figures of each export, whatever its end."""

from __future__ import annotations

import re
import time

import pytest

from balance_analysis import Archive, RequestError
from balance_analysis.archive.runs import iter_reports, last_success
from balance_analysis.fill.export import write_metrics
from tests.archive.exporting import DAY, END, node_of, run_export, spread_history
from tests.loopback import Fault

ROWS = spread_history(3, rows=150, accounts=12)


def metrics(path):
    text = path.read_text()
    for name in re.findall(r"^(\w+)\{", text, re.MULTILINE):
        assert f"# HELP {name} " in text
        assert f"# TYPE {name} gauge\n" in text
    found = re.findall(
        r"^balance_analysis_export_(\w+)\{archive=\"[^\"]*\"\} (\S+)$", text, re.MULTILINE
    )
    return {name: float(value) for name, value in found}


def test_metrics_tell_the_archive_and_the_run(tmp_path):
    began = int(time.time())
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "a")
    store = Archive(tmp_path / "a").store
    report = last_success(store)
    write_metrics(tmp_path / "x.prom", store, report=report, exit_code=0)
    found = metrics(tmp_path / "x.prom")
    assert list(found) == [
        *("last_success_timestamp_seconds", "last_run_timestamp_seconds"),
        *("archive_rows", "lag_seconds", "gaps", "unproven_intervals"),
        *("conflicts", "bad_rows", "exit_code"),
    ]
    assert found["archive_rows"] == len(ROWS)
    assert found["gaps"] == found["unproven_intervals"] == found["exit_code"] == 0
    now = time.time()
    assert began - END / 1e6 <= found["lag_seconds"] <= now - END / 1e6
    assert began <= found["last_success_timestamp_seconds"] <= now


def test_metrics_of_a_failed_run_keep_the_last_success(tmp_path):
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "a", end=END - DAY)
        node.faults = lambda _, request: Fault.status(400) if request.params else None
        with pytest.raises(RequestError):
            run_export(node, tmp_path / "a")
    store = Archive(tmp_path / "a").store
    failed, succeeded = iter_reports(store)
    write_metrics(tmp_path / "x.prom", store, report=failed, exit_code=4)
    found = metrics(tmp_path / "x.prom")
    assert found["exit_code"] == 4
    assert last_success(store) == succeeded
    assert found["last_success_timestamp_seconds"] <= found["last_run_timestamp_seconds"]


def test_metrics_without_an_archive_leave_out_what_is_not_known(tmp_path):
    store = Archive(tmp_path / 'a"b').store
    write_metrics(tmp_path / "x.prom", store, report=None, exit_code=75)
    text = (tmp_path / "x.prom").read_text()
    assert "archive_rows" not in text
    assert "last_success" not in text
    assert r"a\"b" in text
    assert re.search(r"exit_code\{.*\} 75\.0$", text, re.MULTILINE)
