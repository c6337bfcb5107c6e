"""What an export tells a monitor, as a file that Prometheus' node exporter collects."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from balance_analysis.archive.manifest import Manifest, read_manifest
from balance_analysis.archive.runs import Run, last_success
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike, replacing
from balance_analysis.text import without_credentials

_GAUGES: Final = {
    "last_success_timestamp_seconds": "When the last complete run ended.",
    "last_run_timestamp_seconds": "When the last run began.",
    "archive_rows": "Rows that the archive holds.",
    "new_rows": "New rows of the last run.",
    "lag_seconds": "How far the end of the coverage lies behind now.",
    "gaps": "Gaps between the covered intervals.",
    "unproven_intervals": "Covered intervals of which the node may have forgotten rows.",
    "conflicts": (
        "Rows of the archive that came with another balance in the last run, or not again."
    ),
    "bad_rows": "Rows that the last run set aside.",
    "requests": "Requests of the last run.",
    "duration_seconds": "How long the last run took.",
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
    now = dt.datetime.now(dt.UTC)
    run = Run() if report is None else report
    values = {
        "last_run_timestamp_seconds": round(run.started.timestamp(), 3),
        "new_rows": run.rows,
        "conflicts": run.conflicts,
        "bad_rows": run.bad_rows,
        "requests": run.requests,
        "duration_seconds": run.seconds,
        "exit_code": exit_code,
    }
    with contextlib.suppress(ArchiveError, OSError):
        values |= _figures(read_manifest(store), now.timestamp())
        success = last_success(store)
        if success is not None and success.ended is not None:
            values["last_success_timestamp_seconds"] = round(success.ended.timestamp(), 3)
    registry = CollectorRegistry()
    for name, said in _GAUGES.items():
        if name in values:
            gauge = Gauge(f"balance_analysis_export_{name}", said, ["archive"], registry=registry)
            gauge.labels(without_credentials(store.uri)).set(values[name])
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(generate_latest(registry))


def _figures(manifest: Manifest, now: float) -> dict[str, float]:
    evidence = manifest.evidence
    figures = {
        "archive_rows": float(sum(note.rows for note in manifest.files.values())),
        "gaps": len(evidence.missing(*evidence.bounds)),
        "unproven_intervals": len(evidence.unproven),
    }
    if evidence.answers:
        figures["lag_seconds"] = round(now - evidence.bounds[1] / 1e6, 3)
    return figures
