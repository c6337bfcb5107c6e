"""What an export tells a monitor, as a file that Prometheus' node exporter collects."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from balance_analysis.archive.runs import RunReport, last_success
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike, replacing
from balance_analysis.redact import without_credentials
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.store import Store


def write_metrics(
    path: PathLike,
    *,
    store: Store,
    state: Coverage | None,
    report: RunReport | None,
    exit_code: int,
) -> None:
    """Write an export's figures for Prometheus, as the node exporter's textfile collector reads it.

    Parameters
    ----------
    path
        The file, whose name the collector wants to end in `.prom`; it is replaced, whole.
    store, state
        The archive and what it holds; `state=None` where there is none, or it can't be read.
    report
        The run's; `None` where it ended before it began, as on a held lock.
    exit_code
        What the command ended with.

    Raises
    ------
    OSError
        If it can't be written.
    """
    label = without_credentials(store.uri)
    registry = CollectorRegistry()
    for name, (about, value) in _figures(store, state, report, exit_code).items():
        if value is not None:
            gauge = Gauge(f"balance_analysis_export_{name}", about, ["archive"], registry=registry)
            gauge.labels(label).set(value)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(generate_latest(registry))


def _figures(
    store: Store, state: Coverage | None, report: RunReport | None, exit_code: int
) -> dict[str, tuple[str, float | None]]:
    now = dt.datetime.now(dt.UTC)
    success = None
    if state is not None:
        with contextlib.suppress(ArchiveError, OSError):
            success = last_success(store)
    ended = None if success is None or success.ended is None else _seconds(success.ended)
    run = RunReport("", "") if report is None else report
    began = now.timestamp() if report is None else _seconds(report.started)
    rows = gaps = unproven = lag = None
    if state is not None:
        rows = sum(note.rows for note in state.files.values())
        unproven = sum(not interval.proven for interval in state.intervals)
        gaps = 0
        if state.intervals:
            end = state.intervals[-1].end
            gaps = len(state.missing(state.intervals[0].start, end, proven=False))
            lag = round(now.timestamp() - from_microseconds(end).timestamp(), 3)
    return {
        "last_success_timestamp_seconds": ("When the last complete run ended.", ended),
        "last_run_timestamp_seconds": ("When the last run began.", began),
        "archive_rows": ("Rows that the archive holds.", rows),
        "new_rows": ("New rows of the last run.", run.rows),
        "lag_seconds": ("How far the end of the coverage lies behind now.", lag),
        "gaps": ("Gaps between the covered intervals.", gaps),
        "unproven_intervals": (
            "Covered intervals of which the node may have forgotten rows.",
            unproven,
        ),
        "conflicts": (
            "Rows of the archive that came with another balance in the last run, or not again.",
            run.conflicts,
        ),
        "bad_rows": ("Rows that the last run set aside.", run.bad_rows),
        "requests": ("Requests of the last run.", run.requests),
        "duration_seconds": ("How long the last run took.", run.seconds),
        "exit_code": ("What the last run ended with; 0 is success.", exit_code),
    }


def _seconds(moment: str) -> float:
    return round(dt.datetime.fromisoformat(moment).timestamp(), 3)
