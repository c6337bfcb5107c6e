"""The figures of an export for a monitor, as a file that Prometheus' node exporter collects."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.runs import Run, last_success
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike, replacing
from balance_analysis.text import without_credentials

_GAUGES: Final = {
    "last_success_timestamp_seconds": "When the last complete run ended.",
    "last_run_timestamp_seconds": "When the last run began.",
    "archive_rows": "Rows that the archive holds.",
    "lag_seconds": "How far the end of the archive lies behind now.",
    "gaps": "Stretches inside the archive that no node answered for.",
    "unproven_intervals": "Stretches of which rows may be missing.",
    "conflicts": "Rows that came with another balance in the last run, or not again.",
    "bad_rows": "Rows that the last run set aside.",
    "exit_code": "What the last run ended with; 0 is success.",
}


def write_metrics(path: PathLike, store: Store, *, report: Run | None, exit_code: int) -> None:
    """Write an export's figures for Prometheus, as the node exporter's textfile collector reads it.

    Parameters
    ----------
    path
        The file, whose name the collector wants to end in `.prom`; it is replaced, whole.
    store
        The archive; what can't be read of it has no figures.
    report
        The run's; `None` where it ended before it began, as on a held lock.
    exit_code
        What the command ended with.

    Raises
    ------
    OSError
        If it can't be written.
    """
    run = report or Run()
    values = {
        "last_run_timestamp_seconds": run.started.timestamp(),
        "conflicts": run.conflicts,
        "bad_rows": run.bad_rows,
        "exit_code": exit_code,
    }
    with contextlib.suppress(ArchiveError, OSError):
        manifest = read_manifest(store)
        evidence = manifest.evidence
        values["archive_rows"] = sum(note.rows for note in manifest.files.values())
        values["gaps"] = len(evidence.missing(*evidence.bounds))
        values["unproven_intervals"] = len(evidence.unproven)
        if evidence.answers:
            values["lag_seconds"] = time.time() - evidence.bounds[1] / 1e6
        success = last_success(store)
        if success is not None and success.ended is not None:
            values["last_success_timestamp_seconds"] = success.ended.timestamp()
    registry = CollectorRegistry()
    for name in filter(values.__contains__, _GAUGES):
        title = f"balance_analysis_export_{name}"
        gauge = Gauge(title, _GAUGES[name], ["archive"], registry=registry)
        gauge.labels(without_credentials(store.uri)).set(round(values[name], 3))
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(generate_latest(registry))
