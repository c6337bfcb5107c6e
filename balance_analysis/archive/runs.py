"""One report for each run, and the bad rows that it met.

A report is written when the run begins, as incomplete, and again when it ends: one that was killed
leaves the first.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import re
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from balance_analysis.archive import layout
from balance_analysis.archive.limits import snapshot
from balance_analysis.archive.run import STAMP
from balance_analysis.archive.signals import uninterrupted
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, ArchiveLockedError
from balance_analysis.text import exact_text, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from balance_analysis.archive.commit import Writer
    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.run import Run
    from balance_analysis.archive.store import Store

logger = logging.getLogger("balance_analysis")

Kind = Literal["export", "repair"]
Outcome = Literal["incomplete", "complete", "nothing new", "partial", "failed"]
SUCCESSES: Final = ("complete", "nothing new")
MOST_CONFLICTS: Final = 100
"""Rows of conflicts that stand in a report; the archive holds the newer ones."""

KEPT: Final = 400
"""Reports of so many runs are kept, the newest."""

FAILED_FOR: Final = dt.timedelta(days=30)
"""So long those are kept as well that tell of a failure."""

_REPORT: Final = re.compile(rf"{layout.RUNS}\d{{8}}T\d{{6}}\.\d{{6}}Z-[0-9a-f]{{6}}\.json")


@dataclass(slots=True)
class Report:
    """What one run did, as its file tells.

    Attributes
    ----------
    id
        The run's name; sorted, runs stand in time order.
    kind
        "export" or "repair".
    started, ended
        ISO 8601 in UTC; `ended=None` while it runs, or of one that was killed.
    outcome
        "incomplete" while it runs; "complete"; "nothing new", where no row came that the archive
        didn't hold; "partial", where it failed or was interrupted, but committed something;
        "failed", where it committed nothing.
    error
        Why it failed.
    spans
        What it asked for, [start, end) each, ISO 8601 in UTC.
    committed
        What of it the archive holds now, likewise.
    rows
        How many new ones came.
    conflicts
        How many rows that the archive held came with another balance, or not again.
    conflicting_rows
        These as they were before, at most `MOST_CONFLICTS`; balances as text.
    bad_rows
        How many were set aside.
    damaged
        Files of the archive that are gone, or not as they were written.
    requests, seconds
        What it cost.
    source, block_height
        The node, and the last block that it held.
    limits
        The network's limits then, as a row of `limits.parquet`; `None` where the node has none.
    coverage_end
        Where the archive's coverage ends now, ISO 8601 in UTC; `None` where it has none.
    """

    id: str
    started: str
    kind: Kind = "export"
    ended: str | None = None
    outcome: Outcome = "incomplete"
    error: str | None = None
    spans: list[list[str]] = field(default_factory=list)
    committed: list[list[str]] = field(default_factory=list)
    rows: int = 0
    conflicts: int = 0
    conflicting_rows: list[dict[str, str]] = field(default_factory=list)
    bad_rows: int = 0
    damaged: list[str] = field(default_factory=list)
    requests: int = 0
    seconds: float = 0.0
    source: str = ""
    block_height: int | None = None
    limits: dict[str, Any] | None = None
    coverage_end: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the run did all of what it was asked to."""
        return self.outcome in SUCCESSES


@contextlib.contextmanager
def reported(
    store: Store,
    writer: Writer,
    run: Run,
    on_report: Callable[[Report], object] | None = None,
    *,
    kind: Kind = "export",
) -> Iterator[None]:
    """Write a run's report around the run.

    Parameters
    ----------
    store, writer, run
        The archive, and what is told of the run.
    on_report
        Called with the report when the run begins and when it has ended, however it did.

    Raises
    ------
    OSError
        If the report can't be written, unless the run failed anyway.
    """
    began = dt.datetime.now(dt.UTC)
    report = Report(run.id, _iso(began), kind, coverage_end=_end_of(writer.state))
    _write(store, report)
    if on_report is not None:
        on_report(report)
    before = writer.state.intervals
    try:
        yield
    except BaseException as error:
        report.outcome = "partial" if writer.state.intervals != before else "failed"
        report.error = _told(error)
        with _logged():
            _end(store, writer, run, report, began)
        raise
    else:
        is_news = run.rows or run.conflicts or run.bad_rows or kind == "repair"
        report.outcome = "complete" if is_news else "nothing new"
        _end(store, writer, run, report, began)
    finally:
        if on_report is not None:
            on_report(report)


def _end(store: Store, writer: Writer, run: Run, report: Report, began: dt.datetime) -> None:
    """Note what a run did, and write its report."""
    ended = dt.datetime.now(dt.UTC)
    report.ended, report.seconds = _iso(ended), round((ended - began).total_seconds(), 3)
    report.spans = [[exact_text(start), exact_text(end)] for start, end in run.spans]
    report.committed = [[exact_text(start), exact_text(end)] for start, end in run.committed]
    report.damaged = list(run.damaged)
    report.limits = None if run.limits is None else _as_json(snapshot(run.limits))
    report.rows, report.requests, report.bad_rows = run.rows, run.requests, len(run.bad_rows)
    report.conflicts = sum(part.num_rows for part in run.conflicts)
    report.conflicting_rows = _first_rows(run)
    report.source, report.block_height = run.source, run.block_height
    report.coverage_end = _end_of(writer.state)
    with uninterrupted():
        keep_bad_rows(store, run)
        _write(store, report)
        _forget_reports(store, ended)


def keep_bad_rows(store: Store, run: Run) -> None:
    """Keep a run's bad rows so far, raw and with reasons: one JSON object a line."""
    if not run.bad_rows:
        return
    lines = [
        {
            "row": bad.raw,
            "reason": bad.reason,
            "timestamp": None if bad.time is None else exact_text(bad.time),
        }
        for bad in run.bad_rows
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    store.write(f"{layout.QUARANTINE}{run.id}.jsonl", content.encode())


def iter_reports(store: Store) -> Iterator[Report]:
    """Yield the reports of an archive's runs, the last one first; a damaged one is only told."""
    for name in _report_names(store):
        try:
            report = _read(store, name)
        except (ArchiveDamagedError, OSError) as error:
            logger.warning("%s", error)
        else:
            yield report


def _report_names(store: Store) -> Iterator[str]:
    return filter(_REPORT.fullmatch, sorted(store.listed(layout.RUNS), reverse=True))


def _forget_reports(store: Store, now: dt.datetime) -> None:
    """Delete the reports of old runs, but for those that tell of a recent failure."""
    since = f"{layout.RUNS}{now - FAILED_FOR:{STAMP}}"
    try:
        for name in islice(_report_names(store), KEPT, None):
            if name < since or _is_success(store, name):
                store.delete(name)
    except (OSError, ArchiveError) as error:
        logger.warning("the reports of old runs can't be deleted: %s", error)


def _is_success(store: Store, name: str) -> bool:
    try:
        return _read(store, name).is_success
    except ArchiveDamagedError:
        return False


def last_success(store: Store) -> Report | None:
    """Return the report of the last run that did all of what it was asked to."""
    exports = (report for report in iter_reports(store) if report.kind == "export")
    return next((report for report in exports if report.is_success), None)


def _first_rows(run: Run) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for part in run.conflicts:
        rows += map(_as_text, part.slice(0, MOST_CONFLICTS - len(rows)).to_pylist())
    return rows


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.isoformat() if isinstance(value, dt.datetime) else value
        for key, value in row.items()
    }


def _as_text(row: dict[str, Any]) -> dict[str, str]:
    return {**row, "timestamp": _iso(row["timestamp"]), "balance": str(row["balance"])}


def _write(store: Store, report: Report) -> None:
    content = json.dumps(asdict(report), indent=1) + "\n"
    store.write(f"{layout.RUNS}{report.id}.json", content.encode())


def _read(store: Store, name: str) -> Report:
    try:
        report = msgspec.json.decode(store.read(name) or b"", type=Report)
        for moment in (report.started, report.ended or report.started):
            dt.datetime.fromisoformat(moment)
    except (ValueError, RecursionError) as error:
        raise ArchiveDamagedError(f"{store.uri}/{name} is damaged: {error!r}; remove it") from error
    return report


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Log that a file can't be written, where that is not the first thing to go wrong."""
    try:
        yield
    except (OSError, ArchiveLockedError) as error:
        logger.warning("the run's report can't be written: %s", error)


def _told(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = " ".join(str(error).split()) or type(error).__name__
    return without_credentials(text)


def _end_of(state: Coverage) -> str | None:
    return exact_text(state.intervals[-1].end) if state.intervals else None


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="microseconds")
