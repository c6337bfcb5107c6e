"""What one run does to an archive: as its caller gets it, and as a report in a file.

A report is written when the run begins, as incomplete, and again when it ends: one that was killed
leaves the first. The bad rows that a run meets stand in a file beside it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.archive.manifest import Manifest
from balance_analysis.archive.network import limits_row
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, ArchiveLockedError, logger
from balance_analysis.node.stats import RequestStats
from balance_analysis.presentation import facts_html
from balance_analysis.rows import BadRow
from balance_analysis.schema import NetworkLimits, from_microseconds
from balance_analysis.spans import Moments, joined
from balance_analysis.text import exact_text, range_text, without_credentials

Kind = Literal["export", "import", "repair"]
Outcome = Literal["incomplete", "complete", "nothing new", "partial", "failed"]
MOST_CONFLICTS: Final = 100
"""Rows of conflicts that stand in a report; the archive holds the newer ones."""

KEPT: Final = 400
"""Reports of so many runs are kept, the newest."""

FAILED_FOR: Final = dt.timedelta(days=30)
"""So long those are kept as well that tell of a failure."""

_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
_REPORT: Final = re.compile(rf"{layout.RUNS}\d{{8}}T\d{{6}}\.\d{{6}}Z-[0-9a-f]{{6}}\.json")


def new_id() -> str:
    """Return a name for a run that begins now; names sort by time."""
    return f"{dt.datetime.now(dt.UTC):{_STAMP}}-{secrets.token_hex(3)}"


@dataclass(slots=True)
class Run:
    """What one export did.

    Attributes
    ----------
    id
        Its name: that of its report in `_runs`, and of its bad rows in `_quarantine`.
    spans
        What it asked for: pairs of a start and an end, datetimes in UTC.
    committed
        What of it the archive holds now, as `spans`.
    rows
        How many rows came that the archive didn't hold.
    conflicts
        Rows that the archive held and that came with another balance, which it holds now, or did
        not come again.
    bad_rows
        Rows that the table can't hold, kept aside.
    damaged
        Files of the archive that are gone, or of another size than what was written.
    stats
        What its requests cost, counted while they are sent.
    source, block_height, limits
        The node, the last block that it held, and the network's limits, if it has any.
    asked_at
        When it was asked, ISO 8601 in UTC.
    finished
        A node whose chain stands still, and the time of its last block, microseconds: that block is
        finished. `None` where a chain goes on, or the archive needs nothing of the block.
    """

    id: str = field(default_factory=new_id)
    spans: list[Moments] = field(default_factory=list)
    committed: list[Moments] = field(default_factory=list)
    rows: int = 0
    conflicts: list[pa.Table] = field(default_factory=list)
    bad_rows: dict[BadRow, None] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    stats: RequestStats = field(default_factory=RequestStats)
    source: str = ""
    block_height: int | None = None
    limits: NetworkLimits | None = None
    asked_at: str = field(
        default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    )
    finished: tuple[str, int] | None = None

    @property
    def requests(self) -> int:
        """How many were sent."""
        return self.stats.requests

    def asks(self, start: int, end: int) -> None:
        """Note that [start, end), microseconds, is asked for."""
        self.spans.append((from_microseconds(start), from_microseconds(end)))

    def commits(self, start: int, end: int) -> None:
        """Note that [start, end) is in the archive."""
        stretch = from_microseconds(start), from_microseconds(end)
        self.committed = joined([*self.committed, stretch])

    @contextlib.contextmanager
    def noting_damage(self, name: str) -> Iterator[None]:
        """Note that a file beside the rows is damaged; that doesn't fail a run."""
        try:
            yield
        except ArchiveError as error:
            self.damaged.append(name)
            logger.warning("%s", error)

    def _repr_html_(self) -> str:
        facts = {
            "run": self.id,
            "asked for": _lines(self.spans),
            "committed": _lines(self.committed),
            "new rows": self.rows,
            "conflicts": sum(rows.num_rows for rows in self.conflicts),
            "bad rows": len(self.bad_rows),
            "damaged files": ", ".join(self.damaged) or "none",
            "requests": self.requests,
            "node": self.source or "unknown",
            "block height": "unknown" if self.block_height is None else self.block_height,
            "asked at": dt.datetime.fromisoformat(self.asked_at),
        }
        return facts_html("An export", facts.items())


def _lines(spans: Iterable[Moments]) -> str:
    """Return intervals for a person, one a line."""
    return "\n".join(range_text(*span) for span in spans) or "nothing"


@dataclass(slots=True)
class RunReport:
    """What one run did, as its file tells.

    Attributes
    ----------
    id
        The run's name; sorted, runs stand in time order.
    kind
        "export", "import" or "repair".
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
        The network's limits then, as a row of its file of limits; `None` where the node has none.
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
        return self.outcome in {"complete", "nothing new"}


@contextlib.contextmanager
def reported(
    store: Store,
    writer: Writer,
    run: Run,
    on_report: Callable[[RunReport], object] | None = None,
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
    report = RunReport(run.id, _now(), kind, coverage_end=_end_of(writer.manifest))
    tell = on_report or (lambda _: None)
    _write(store, report)
    tell(report)
    before = writer.manifest.evidence
    try:
        yield
    except BaseException as error:
        report.outcome = "partial" if writer.manifest.evidence != before else "failed"
        report.error = error_text(error)
        try:
            _end(store, writer.manifest, run, report)
        except (OSError, ArchiveLockedError) as other:
            logger.warning("the run's report can't be written: %s", other)
        raise
    else:
        is_news = run.rows or run.conflicts or run.bad_rows or kind == "repair"
        report.outcome = "complete" if is_news else "nothing new"
        _end(store, writer.manifest, run, report)
    finally:
        tell(report)


def _end(store: Store, state: Manifest, run: Run, report: RunReport) -> None:
    """Note what a run did, and write its report."""
    report.ended = _now()
    lasted = dt.datetime.fromisoformat(report.ended) - dt.datetime.fromisoformat(report.started)
    report.seconds = round(lasted.total_seconds(), 3)
    report.spans = [list(map(_iso, span)) for span in run.spans]
    report.committed = [list(map(_iso, span)) for span in run.committed]
    report.damaged = list(run.damaged)
    if run.limits is not None:
        report.limits = {
            name: value.isoformat() if isinstance(value, dt.datetime) else value
            for name, value in limits_row(run.limits).items()
        }
    report.rows, report.requests, report.bad_rows = run.rows, run.requests, len(run.bad_rows)
    conflicts = pa.concat_tables([NO_ROWS, *run.conflicts])
    report.conflicts = conflicts.num_rows
    report.conflicting_rows = [
        {**row, "timestamp": _iso(row["timestamp"]), "balance": str(row["balance"])}
        for row in conflicts.slice(0, MOST_CONFLICTS).to_pylist()
    ]
    report.source, report.block_height = run.source, run.block_height
    report.coverage_end = _end_of(state)
    keep_bad_rows(store, run)
    _write(store, report)
    _forget_reports(store)


def keep_bad_rows(store: Store, run: Run) -> None:
    """Keep a run's bad rows so far, raw and with reasons: one JSON object a line."""
    if not run.bad_rows:
        return
    content = ""
    for bad in run.bad_rows:
        moment = None if bad.time is None else exact_text(bad.time)
        line = {"row": bad.raw, "reason": bad.reason, "timestamp": moment}
        content += json.dumps(line) + "\n"
    store.write(f"{layout.QUARANTINE}{run.id}.jsonl", content.encode())


def iter_reports(store: Store, names: Iterable[str] | None = None) -> Iterator[RunReport]:
    """Yield the reports of an archive's runs, the last one first; a damaged one is only told.

    Files may be named; else it is all of them.
    """
    for name in _report_names(store) if names is None else names:
        try:
            report = _read(store, name)
        except (ArchiveDamagedError, OSError) as error:
            logger.warning("%s", error)
        else:
            yield report


def last_success(store: Store) -> RunReport | None:
    """Return the report of the last export that did all of what it was asked to."""
    reports = iter_reports(store)
    return next((each for each in reports if each.kind == "export" and each.is_success), None)


def _report_names(store: Store) -> list[str]:
    return sorted(filter(_REPORT.fullmatch, store.names(layout.RUNS)), reverse=True)


def _forget_reports(store: Store) -> None:
    """Delete the reports of old runs, but for those that tell of a recent failure."""
    since = f"{layout.RUNS}{dt.datetime.now(dt.UTC) - FAILED_FOR:{_STAMP}}"
    try:
        for name in _report_names(store)[KEPT:]:
            if name < since or any(each.is_success for each in iter_reports(store, [name])):
                store.delete(name)
    except (OSError, ArchiveError) as error:
        logger.warning("the reports of old runs can't be deleted: %s", error)


def _write(store: Store, report: RunReport) -> None:
    content = json.dumps(asdict(report), indent=1) + "\n"
    store.write(f"{layout.RUNS}{report.id}.json", content.encode())


def _read(store: Store, name: str) -> RunReport:
    try:
        report = msgspec.json.decode(store.read(name) or b"", type=RunReport)
        for moment in (report.started, report.ended or report.started):
            dt.datetime.fromisoformat(moment)
    except (ValueError, RecursionError) as error:
        raise ArchiveDamagedError(f"{store.uri}/{name} is damaged ({error}): remove it") from error
    return report


def error_text(error: BaseException) -> str:
    """Return an error as its report has it: in one line, without credentials."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return without_credentials(" ".join(str(error).split()) or type(error).__name__)


def _end_of(manifest: Manifest) -> str | None:
    evidence = manifest.evidence
    return exact_text(evidence.bounds[1]) if evidence.answers else None


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _now() -> str:
    return _iso(dt.datetime.now(dt.UTC))
