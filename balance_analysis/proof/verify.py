"""Check that an archive is what it says, or name what is not.

Each file is read once, and checked against the manifest. Where a run replaces a file meanwhile, the
check begins again. The rows can be compared with another source.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.accounts import (
    FILE_ORDER,
    combine_accounts,
    find_accounts,
    numbers_of,
    times_of,
)
from balance_analysis.archive.datafile import NO_ROWS, OtherFileError, decode_rows
from balance_analysis.archive.layout import period_bounds
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    check_not_replaced,
    export_command,
    noted_files,
)
from balance_analysis.archive.sidecars import read_limits, read_names_file
from balance_analysis.archive.snapshot import Snapshot, read_snapshot, with_snapshot
from balance_analysis.archive.store import Store, is_leftover
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.files.atomic import PathLike
from balance_analysis.load.request import Report, reporting
from balance_analysis.presentation import Record
from balance_analysis.proof.compare import (
    Comparable,
    Difference,
    archive_side,
    compare,
    interval_of,
    opened,
    segments_side,
)
from balance_analysis.proof.ledger import check_ledger
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS, Instant, to_microseconds
from balance_analysis.spans import EVER, Span, between, overlap
from balance_analysis.text import (
    count_text,
    list_text,
    moment_text,
    range_text,
    spans_text,
    without_credentials,
)

_WAITING: Final = 1 << 20
"""How many rows wait to be reduced to each account's last one."""

_BESIDE: Final = (layout.RUNS, layout.QUARANTINE, layout.DISPUTES)
"""Folders of an archive whose files the manifest doesn't name."""

_PLAIN: Final = (layout.LIMITS, layout.ASSETS, layout.LABELS)
"""Files of an archive that have no rows."""

_AWAY: Final = "move it out of the archive"

_CONTRADICTION: Final = "the segments contradict themselves or the archive: find out what is right"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an archive.

    Attributes
    ----------
    kind
        "rows" (a file of balance changes), "manifest", "checkpoint", "limits", "assets", "labels",
        "difference" (from another source), "ledger" (a change that segments' ledger has otherwise),
        "interrupted" (a run that was cut off, or is under way), "leftover" (of an interrupted
        write), "stranger" (a file that is no part of an archive).
    what
        What is wrong, in words.
    where
        The file, or the time that was compared.
    mend
        What to do about it.
    periods
        The periods that are to be asked for again.
    """

    kind: str
    what: str
    where: str
    mend: str
    periods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport(Record):
    """What was checked of an archive, and what is wrong. As text it is a list for the terminal.

    Attributes
    ----------
    uri
        Its address.
    problems
        Problems in what was checked and compared.
    files, rows, checkpoints
        How many were checked.
    compared
        The comparisons with other sources: what was compared, and what only one has.
    changes
        How many changes of balances were compared with a ledger.
    not_compared
        What could not be compared with a ledger, and why.
    gaps, unproven
        How many gaps and unproven stretches it has: no problems, but not proven either.
    """

    uri: str
    problems: tuple[Problem, ...] = ()
    files: int = 0
    rows: int = 0
    checkpoints: int = 0
    compared: tuple[Difference, ...] = ()
    changes: int = 0
    not_compared: tuple[str, ...] = ()
    gaps: int = 0
    unproven: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether there is no problem in what was checked and compared."""
        return not self.problems

    @property
    def compared_nothing(self) -> bool:
        """Whether there was another source to compare with, but nothing in common."""
        return any(not each.shared for each in self.compared)

    _header = ("where", "what", "what to do")

    def _content(self) -> dict[str, Any]:
        own = asdict(replace(self, compared=()))
        return {"is_whole": self.is_whole, **own, "compared": [x.content() for x in self.compared]}

    def _title(self) -> str:
        names, count = ("file", "row", "checkpoint"), len(self.problems)
        checked = ", ".join(count_text(getattr(self, f"{name}s"), name) for name in names)
        found = count_text(count, "problem") if count else "no problem"
        return f"{self.uri}: {found} ({checked} checked)"

    def _findings(self) -> Iterator[tuple[str, str, str]]:
        if self.gaps or self.unproven:
            unproven = count_text(self.unproven, "unproven part")
            parts = f"{count_text(self.gaps, 'gap')} and {unproven}"
            which = shlex.join(["balance-analysis", "status", self.uri])
            yield "coverage", parts, f"`{which}` shows which"
        for problem in self.problems:
            yield problem.where, problem.what, problem.mend
        for found in self.compared:
            said = f"{count_text(found.compared[0], 'row')} of {spans_text(found.shared)}"
            yield f"compared with {found.other}", said if found.shared else "nothing", ""
            yield from (("not compared", what, "") for what in found.left_out())
        if self.changes:
            yield "compared with the ledger", count_text(self.changes, "change"), ""
        for said in self.not_compared:
            yield "not compared", said, ""


def verify(
    store: Store,
    *,
    against: Comparable | None = None,
    segments: PathLike | Iterable[PathLike] | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    progress: bool | Report | None = False,
) -> VerifyReport:
    """Check that an archive is what it says: see `Archive.verify`."""
    span, report = interval_of(start, end), verify_store(store, progress=progress)
    if any(problem.kind == "manifest" for problem in report.problems):
        return report
    if against is not None:
        report = _compared(report, store, against, span)
    if segments is not None:
        report = _compared(report, store, segments_side(segments), span)
        manifest = _sound(read_snapshot(store), report).manifest
        ledger = check_ledger(store, manifest.evidence.within(*span), segments)
        wrong = (Problem("ledger", x, range_text(*at), _CONTRADICTION) for at, x in ledger.wrong)
        report = replace(
            report,
            problems=(*report.problems, *wrong),
            changes=ledger.changes,
            not_compared=tuple(ledger.skipped),
        )
    return report


def _sound(snapshot: Snapshot, report: VerifyReport) -> Snapshot:
    """Return a state of an archive without the evidence for periods whose files are wrong."""
    partition = snapshot.manifest.partition
    wrong = {period for each in report.problems for period in each.periods}
    spans = between([period_bounds(period, partition) for period in wrong], *EVER)
    evidence = snapshot.evidence.clipped(spans)
    return replace(snapshot, manifest=replace(snapshot.manifest, evidence=evidence))


def _compared(report: VerifyReport, store: Store, other: Any, span: Span) -> VerifyReport:  # noqa: ANN401 - Comparable
    """Return a report with a comparison, and a problem for each period that differs."""
    snapshot = _sound(read_snapshot(store), report)
    with opened(archive_side(snapshot), other, *span) as sides:
        found = compare(*sides, *span)
    partition, problems = snapshot.manifest.partition, []
    times = found.rows["timestamp"].map(to_microseconds)
    periods = times.map(lambda time: layout.period_of(time, partition))
    for period, rows in found.rows.groupby(periods):
        begin, stop = period_bounds(str(period), partition)
        options = ("--repair", "--since", moment_text(begin), "--until", moment_text(stop))
        url = other.base_url if hasattr(other, "base_url") else None
        mend, what = export_command(store, *options, url=url), _difference_text(rows, found.other)
        where = range_text(begin, stop)
        problems.append(Problem("difference", without_credentials(what), where, mend))
    return replace(
        report, problems=(*report.problems, *problems), compared=(*report.compared, found)
    )


def _difference_text(rows: pd.DataFrame, other: str) -> str:
    """Return the first rows that differ, in words."""
    said = []
    for row in rows.sort_values("timestamp").astype(object).to_dict("records"):
        ours, theirs = (
            "no row" if pd.isna(row[name]) else str(row[name])
            for name in ("balance", "other_balance")
        )
        account = ", ".join(f"{name} {row[name]!r}" for name in ACCOUNT_KEY)
        at = moment_text(row["timestamp"])
        said.append(f"at {at} the archive has {ours}, {other} {theirs} of {account}")
    return list_text(said, sep="; ", rest="{} rows more differ")


def verify_store(
    store: Store, *, progress: bool | Report | None = False, is_writer: bool = False
) -> VerifyReport:
    """Check an archive's files against its manifest.

    Parameters
    ----------
    is_writer
        Whether the caller holds the lock: what seems to be under way is then left over.

    Raises
    ------
    SnapshotGoneError
        If runs replace files that seem wrong, again and again.
    """

    def check(snapshot: Snapshot) -> VerifyReport:
        checking = _Checking(store, snapshot.manifest, is_writer)
        with reporting(progress) as show:
            return checking.run(show)

    try:
        read_snapshot(store)
    except ArchiveDamagedError as error:
        said, mend = without_credentials(str(error)), export_command(store, "--repair")
        wrong = Problem("manifest", said, layout.MANIFEST, mend)
        return VerifyReport(without_credentials(store.uri), (wrong,))
    return with_snapshot(store, check)


@dataclass(slots=True)
class _Checking:
    """One state of an archive that is being checked.

    A file that seems wrong, and that a run has replaced meanwhile, is a SnapshotGoneError.

    Attributes
    ----------
    problems
        What is wrong, so far.
    rows, checkpoints
        How many were checked.
    balances
        The last row of each account, of the files so far.
    is_broken
        Whether one of these is wrong, so that later checkpoints can't be recomputed.
    """

    store: Store
    manifest: Manifest
    is_writer: bool
    problems: list[Problem] = field(default_factory=list)
    rows: int = 0
    checkpoints: int = 0
    balances: list[pa.Table] = field(default_factory=list)
    is_broken: bool = False

    def run(self, show: Report) -> VerifyReport:
        """Check all files."""
        partition, pending = self.manifest.partition, self.manifest.pending
        periods = [*self.manifest.files]
        if pending is not None:
            periods += {pending.period}.difference(periods)
            if not self._is_being_written():
                name = self.manifest.changes_file(pending.period)
                what = f"a run was cut off, or is under way: it replaces {name}"
                mend = f"{self._command()} recovers it"
                self._add("interrupted", what, layout.MANIFEST, mend)
        # A checkpoint holds the balances before its moment.
        steps: list[tuple[int, Callable[[], None]]] = [
            *((at, partial(self._check_checkpoint, at)) for at in self.manifest.checkpoints),
            *((period_bounds(x, partition)[0], partial(self._check_period, x)) for x in periods),
        ]
        for done, (_, check) in enumerate(sorted(steps, key=itemgetter(0)), 1):
            check()
            show(done / len(steps), self.rows)
        self._check_others()
        self._check_names()
        evidence = self.manifest.evidence
        return VerifyReport(
            without_credentials(self.store.uri),
            tuple(self.problems),
            files=len(self.manifest.files),
            rows=self.rows,
            checkpoints=self.checkpoints,
            gaps=len(evidence.missing(*evidence.bounds)),
            unproven=len(evidence.unproven),
        )

    def _add(self, kind: str, what: str, where: str, mend: str, *periods: str) -> None:
        self.problems.append(Problem(kind, without_credentials(what), where, mend, periods))

    def _command(self, *options: str) -> str:
        return export_command(self.store, *options)

    def _is_being_written(self) -> bool:
        return not self.is_writer and writer_of(self.store) is not None

    def _check_period(self, period: str) -> None:
        name, notes = self.manifest.changes_file(period), self.manifest.notes(period)
        found = [_read(self.store, name, note) for note in notes]
        at = next((n for n, (_, wrong) in enumerate(found) if not wrong), 0)
        (rows, wrong), note = found[at], notes[at]
        if note != self.manifest.files.get(period):
            if wrong:
                return  # it is announced, and not there yet
            self.manifest = self.manifest.settle()
        bounds, spans = self._covered(period)
        wrong = wrong or find_wrong_rows(rows, note, bounds, spans)
        if not wrong:
            self.rows += rows.num_rows
            self.balances.append(find_accounts(rows))
            if sum(part.num_rows for part in self.balances) > _WAITING:
                self.balances = [combine_accounts(self.balances)]
            return
        check_not_replaced(self.store, name, notes)
        self.is_broken = True
        if spans:
            self._add("rows", wrong, name, self._command("--repair"), period)
        else:
            covers = self._command("--since", moment_text(bounds[0]), "--fill-gaps")
            mend = f"put back a copy of it, or cover its time with `{covers}`"
            self._add("rows", wrong, name, mend)

    def _covered(self, period: str) -> tuple[Span, list[Span]]:
        """Return the bounds of a period, and its answered stretches."""
        bounds = period_bounds(period, self.manifest.partition)
        return bounds, overlap(self.manifest.evidence.answered, [bounds])

    def _check_checkpoint(self, moment: int) -> None:
        name, note = layout.checkpoint_file(moment), self.manifest.checkpoints[moment]
        rows, wrong = _read(self.store, name, note)
        if not wrong and not self.is_broken:
            self.balances = [combine_accounts(self.balances)]
            self.checkpoints += 1
            if not canonical(rows).equals(canonical(self.balances[0].select(COLUMNS))):
                wrong = f"is not what the rows before {moment_text(moment)} add up to"
        if wrong:
            check_not_replaced(self.store, name, (note,))
            self._add("checkpoint", wrong, name, self._command("--repair"))

    def _check_others(self) -> None:
        """Read the files that have no rows."""
        for name in _PLAIN:
            kind = name[1:].partition(".")[0]
            try:
                if name == layout.LIMITS:
                    read_limits(self.store)
                else:
                    read_names_file(self.store, name)
            except ArchiveError as error:
                mend = f"{self._command(f'--{kind}', 'FILE')} writes a new one"
                if name == layout.LIMITS:
                    mend = "remove it; the next run writes a new one"
                self._add(kind, str(error), name, mend)

    def _check_names(self) -> None:
        """Look for files that should not be there."""
        known = {layout.MANIFEST, layout.LOCK, layout.HOLDER, *_PLAIN, *noted_files(self.manifest)}
        names = [name for name in self.store.names() if name not in known]
        # After the names: what nobody writes now, and is still there, was left.
        is_being_written = self._is_being_written()
        for name in names:
            is_left = is_leftover(name) or name.startswith(layout.CHECKPOINTS)
            if is_being_written if is_left else name.startswith(_BESIDE):
                continue
            try:
                if not self.store.has(name):
                    continue
            except ArchiveDamagedError as error:
                self._add("stranger", str(error), name, _AWAY)
                continue
            check_not_replaced(self.store, name, ())
            period = layout.period_named(name, self.manifest.partition)
            if is_left:
                mend = f"{self._command()} removes it, or writes a new one; else remove it"
                self._add("leftover", "an interrupted run left it", name, mend)
            elif period is not None and self._covered(period)[1]:
                what = "is not in the manifest, which says that its rows came"
                mend = f"{self._command('--repair')}; if it stays, {_AWAY}"
                self._add("rows", what, name, mend, period)
            else:
                self._add("stranger", "is no part of the archive", name, _AWAY)


def _read(store: Store, name: str, note: FileEntry) -> tuple[pa.Table, str]:
    """Return a file's rows, and how it is not what was written; empty if it is."""
    try:
        content = store.read(name)
        if content is None or (wrong := note.mismatch(content)):
            return NO_ROWS, "is missing" if content is None else wrong
        return canonical(decode_rows(content), sort=False), ""
    except OtherFileError as error:
        return NO_ROWS, str(error)
    except (pa.ArrowException, OSError, ArchiveError) as error:
        return NO_ROWS, f"can't be read: {error}"


def find_wrong_rows(rows: pa.Table, note: FileEntry, bounds: Span, spans: Sequence[Span]) -> str:
    """Return how rows contradict a file's note, its period or its answered stretches, in words."""
    accounts, times, said = numbers_of(rows), times_of(rows), list[str]()
    steps = np.sign(np.diff(accounts))
    if np.any((steps < 0) | ((steps == 0) & (np.diff(times) < 0))):
        said.append(f"its rows are not in the order {', '.join(FILE_ORDER)}")
    order = np.lexsort([times, accounts])
    is_same = (np.diff(accounts[order]) == 0) & (np.diff(times[order]) == 0)
    outside = np.searchsorted(np.array(spans, np.int64).ravel(), times, side="right") % 2 == 0
    for is_wrong, what in (
        (is_same, "repeat the account and timestamp of another"),
        ((times < bounds[0]) | (times >= bounds[1]), "are not of its period"),
        (outside, "are outside of the answered time"),
    ):
        if count := np.sum(is_wrong):
            said.append(f"{count} of its rows {what}")
    if len(times) != note.rows or not note.rows:
        said.append(f"has {len(times)} rows, not {note.rows}")
    elif (times.min(), times.max()) != (note.first, note.last):
        found = range_text(int(times.min()), int(times.max()))
        said.append(f"has rows from {found}, not from {range_text(note.first, note.last)}")
    return "; ".join(said)
