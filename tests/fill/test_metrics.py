"""A monitor gets the figures of each export, whatever its end."""

import time

from prometheus_client.parser import text_string_to_metric_families

from tests.archive.exporting import DAY, END, node_of, spread_history
from tests.cli.running import run
from tests.loopback import Fault
from tests.moments import moment_text

ROWS = spread_history(3, rows=150, accounts=12)
LAST, SUCCESS = "last_run_timestamp_seconds", "last_success_timestamp_seconds"


def exported(node, folder, *options, code=0):
    """Export by the command, and return the figures that it wrote."""
    path = folder.parent / "x.prom"
    run("export", folder, node.url, "--metrics-file", path, *options, code=code)
    families = [*text_string_to_metric_families(path.read_text())]
    assert {(each.type, bool(each.documentation)) for each in families} == {("gauge", True)}
    samples = [sample for each in families for sample in each.samples]
    assert all(sample.labels == {"archive": str(folder)} for sample in samples)
    return {x.name.removeprefix("balance_analysis_export_"): x.value for x in samples}


def test_metrics_describe_the_archive_and_the_run(tmp_path):
    began = int(time.time())
    with node_of(ROWS) as node:
        figures = exported(node, tmp_path / "a", "--until", moment_text(END))
    now = time.time()
    assert began <= figures.pop(SUCCESS) <= now
    assert began <= figures.pop(LAST) <= now
    assert began - END / 1e6 <= figures.pop("lag_seconds") <= now - END / 1e6
    zeros = ("missing_intervals", "unproven_intervals", "conflicts", "bad_rows", "exit_code")
    assert figures == {"archive_rows": len(ROWS), **dict.fromkeys(zeros, 0)}


def test_metrics_of_a_failed_run_keep_the_last_success(tmp_path):
    with node_of(ROWS) as node:
        first = exported(node, tmp_path / "a", "--until", moment_text(END - DAY))
        node.faults = lambda _, request: Fault.status(400) if request.params else None
        figures = exported(node, tmp_path / "a", code=4)
    assert (figures["exit_code"], figures[SUCCESS]) == (4, first[SUCCESS])
    assert figures[SUCCESS] <= figures[LAST]


def test_metrics_without_an_archive_omit_unknown_figures(tmp_path):
    with node_of(ROWS, faults=lambda *_: Fault.status(400)) as node:
        figures = exported(node, tmp_path / 'a"b', code=4)
    assert figures.pop(LAST) > 0
    assert figures == {"conflicts": 0, "bad_rows": 0, "exit_code": 4}
