"""Check that an archive is what it says, or name what is not.

Each file is read once, and checked against the manifest. Where an export replaces a file meanwhile,
the file is checked against the manifest of then. The rows can be compared with another source.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.archive import layout
from balance_analysis.archive.accounts import (
    ACCOUNTS,
    FILE_ORDER,
    combine_accounts,
    find_accounts,
    numbers_of,
)
from balance_analysis.archive.datafile import OtherFileError, decode_rows
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    check_seen,
    export_command,
    noted_files,
    read_manifest,
)
from balance_analysis.archive.sidecars import read_limits, read_names_file
from balance_analysis.archive.snapshot import File, Snapshot, read_snapshot
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
from balance_analysis.spans import EVER, Span, between, clipped
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

_CONTRADICTION: Final = "the segments contradict themselves or the archive: find out what is right"

NOBODY: Final = ACCOUNTS.empty_table()

Kind = Literal[
    "rows",
    "manifest",
    "checkpoint",
    "limits",
    "assets",
    "labels",
    "difference",
    "interrupted",
    "ledger",
    "leftover",
    "stranger",
]


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

    kind: Kind
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


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of rows that was checked.

    Attributes
    ----------
    wrong
        What is wrong with it; empty if nothing is.
    rows
        How many it has.
    accounts
        Those that it has rows of, if nothing is wrong.
    """

    wrong: str
    rows: int
    accounts: pa.Table


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
    spans = between([layout.period_bounds(period, partition) for period in wrong], *EVER)
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
        begin, stop = layout.period_bounds(str(period), partition)
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
    """
    report = VerifyReport(without_credentials(store.uri))
    try:
        snapshot = read_snapshot(store)
    except ArchiveDamagedError as error:
        said, mend = without_credentials(str(error)), export_command(store, "--repair")
        return replace(report, problems=(Problem("manifest", said, layout.MANIFEST, mend),))
    verification = _Verification(store, snapshot.manifest, is_writer)
    with reporting(progress) as show:
        verification.run(show)
    evidence = snapshot.evidence
    return replace(
        report,
        problems=tuple(verification.problems),
        files=verification.files,
        rows=verification.rows,
        checkpoints=verification.checkpoints,
        gaps=len(evidence.missing(*evidence.bounds)),
        unproven=len(evidence.unproven),
    )


@dataclass(slots=True)
class _Verification:
    """One archive that is being checked.

    Attributes
    ----------
    problems
        What is wrong, so far.
    files, rows, checkpoints
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
    files: int = 0
    rows: int = 0
    checkpoints: int = 0
    balances: list[pa.Table] = field(default_factory=list)
    is_broken: bool = False

    def run(self, show: Report) -> None:
        """Check all files."""
        self._check_pending()
        due, notes = sorted(self.manifest.checkpoints), self.manifest.files
        done, total = 0, max(sum(note.size for note in notes.values()), 1)
        for period, note in notes.items():
            begin, _ = layout.period_bounds(period, self.manifest.partition)
            while due and due[0] <= begin:
                self._check_checkpoint(due.pop(0))
            self._check_period(period)
            done += note.size
            show(done / total, self.rows)
        for moment in due:
            self._check_checkpoint(moment)
        self._check_others()
        self._check_names()

    def _add(self, kind: Kind, what: str, where: str, mend: str, *periods: str) -> None:
        self.problems.append(Problem(kind, without_credentials(what), where, mend, periods))

    def _command(self, *options: str) -> str:
        return export_command(self.store, *options)

    def _is_being_written(self) -> bool:
        return not self.is_writer and writer_of(self.store) is not None

    def _check_pending(self) -> None:
        """Report a run that was cut off, and take its file as done if it is there."""
        pending = self.manifest.pending
        if pending is None:
            return
        name = self.manifest.changes_file(pending.period)
        if not self._is_being_written():
            what = f"a run was cut off, or is under way: it replaces {name}"
            self._add("interrupted", what, layout.MANIFEST, f"{self._command()} recovers it")
        if not _read_noted(self.store, name, pending.file)[1]:
            self.manifest = self.manifest.settle()

    def _check_period(self, period: str) -> None:
        file = _file_of(self.manifest, period)
        checked = check_file(self.store, file)
        while checked.wrong:
            # A run may have replaced it since.
            now = read_manifest(self.store)
            files = [_file_of(x, period) for x in (now, now.settle()) if period in x.files]
            other = next((each for each in files if each != file), None)
            if other is None or now == self.manifest:
                break
            self.manifest, file = now, other
            checked = check_file(self.store, file)
        self.files += 1
        self.rows += checked.rows
        if not checked.wrong:
            self.balances.append(checked.accounts)
            if sum(part.num_rows for part in self.balances) > _WAITING:
                self.balances = [combine_accounts(self.balances)]
            return
        self.is_broken = True
        if file.spans:
            self._add("rows", checked.wrong, file.name, self._command("--repair"), period)
        else:
            covers = self._command("--since", moment_text(file.begin), "--fill-gaps")
            mend = f"put back a copy of it, or cover its time with `{covers}`"
            self._add("rows", checked.wrong, file.name, mend)

    def _check_checkpoint(self, moment: int) -> None:
        name, note = layout.checkpoint_file(moment), self.manifest.checkpoints.get(moment)
        if note is None:
            return  # a run has replaced rows before it since
        content, wrong = _read_noted(self.store, name, note)
        if not wrong and not self.is_broken:
            wrong = self._compare_checkpoint(content, moment)
            self.checkpoints += 1
        # Where rows before it came meanwhile, it is not what the archive goes by any more.
        if wrong and read_manifest(self.store).checkpoints.get(moment) == note:
            self._add("checkpoint", wrong, name, self._command("--repair"))

    def _compare_checkpoint(self, content: bytes, moment: int) -> str:
        self.balances = [combine_accounts(self.balances)]
        expected = canonical(self.balances[0].select(COLUMNS))
        try:
            rows = decode_rows(content)
        except (pa.ArrowException, OSError) as error:
            return _unreadable(error)
        is_right = canonical(rows).equals(expected)
        return "" if is_right else f"is not what the rows before {moment_text(moment)} add up to"

    def _check_others(self) -> None:
        """Read the files that have no rows."""
        again = "remove it; the next run writes a new one"
        self._try_reading("limits", layout.LIMITS, lambda _: read_limits(self.store), again)
        names: tuple[Kind, ...] = ("assets", "labels")
        for kind, file in zip(names, (layout.ASSETS, layout.LABELS), strict=True):
            written = f"{self._command(f'--{kind}', 'FILE')} writes a new one"
            self._try_reading(kind, file, partial(read_names_file, self.store), written)

    def _try_reading(self, kind: Kind, name: str, read: Callable[[str], object], mend: str) -> None:
        try:
            read(name)
        except ArchiveError as error:
            self._add(kind, str(error), name, mend)

    def _check_names(self) -> None:
        """Look for files that should not be there."""
        known = {layout.MANIFEST, layout.ASSETS, layout.LABELS, layout.LIMITS, layout.LOCK}
        known.add(layout.HOLDER)
        names = self.store.names()
        # In this order: what is written is announced before, and what nobody writes now and is
        # still there was left.
        is_being_written = self._is_being_written()
        for manifest in (self.manifest, read_manifest(self.store)):
            known |= noted_files(manifest).keys()
        for name in names:
            if name in known:
                continue
            try:
                if not self._is_expected(name, is_being_written=is_being_written):
                    self._add_stranger(name)
            except ArchiveDamagedError as error:
                self._add("stranger", str(error), name, "move it elsewhere")

    def _is_expected(self, name: str, *, is_being_written: bool) -> bool:
        """Whether a file that the manifest doesn't name may be there, or is gone by now."""
        if is_leftover(name) or name.startswith(layout.CHECKPOINTS):
            may_be = is_being_written
        else:
            may_be = name.startswith(_BESIDE)
        return may_be or not self.store.has(name)

    def _add_stranger(self, name: str) -> None:
        period = layout.period_named(name, self.manifest.partition)
        if is_leftover(name):
            what = "was left by an interrupted write, or is being written"
            self._add("leftover", what, name, f"{self._command()} removes it")
        elif name.startswith(layout.CHECKPOINTS):
            what = "is not in the manifest: an interrupted run left it"
            self._add("leftover", what, name, f"{self._command()} writes a new one; else remove it")
        elif period is not None and _covered(self.manifest, period):
            what = "is not in the manifest, which says that its rows came"
            mend = f"{self._command('--repair')}; if it stays, move it out of the archive"
            self._add("rows", what, name, mend, period)
        elif name.startswith(layout.CHANGES):
            what = "is not in the manifest, but engines that read the folder take its rows"
            self._add("stranger", what, name, "move it out of the archive")
        else:
            self._add("stranger", "is no part of an archive", name, "move it elsewhere")


def _file_of(manifest: Manifest, period: str) -> File:
    bounds = layout.period_bounds(period, manifest.partition)
    notes, spans = (manifest.files[period],), _covered(manifest, period)
    return File(manifest.changes_file(period), notes, *bounds, tuple(spans))


def _covered(manifest: Manifest, period: str) -> Sequence[Span]:
    """Return the answered stretches of a period."""
    bounds = layout.period_bounds(period, manifest.partition)
    return [*clipped(manifest.evidence.answered, *bounds)]


def check_file(store: Store, file: File) -> CheckedFile:
    """Read a file of rows, and compare it with its note.

    Raises
    ------
    ArchiveError
        If the archive is not there: a worker may not reach its folder.
    """
    content, wrong = _read_noted(store, file.name, file.notes[0])
    if wrong:
        check_seen(store, layout.MANIFEST)
        return CheckedFile(wrong, 0, NOBODY)
    try:
        rows = canonical(decode_rows(content), sort=False)
    except (pa.ArrowException, OSError) as error:
        return CheckedFile(_unreadable(error), 0, NOBODY)
    accounts = numbers_of(rows)
    wrong = "; ".join(_findings(file, accounts, rows["timestamp"].cast(pa.int64()).to_numpy()))
    return CheckedFile(wrong, rows.num_rows, NOBODY if wrong else find_accounts(rows))


def _read_noted(store: Store, name: str, note: FileEntry) -> tuple[bytes, str]:
    """Return a file's content, and how it is not what was written; nothing where it is."""
    try:
        content = store.read(name)
    except (OSError, ArchiveError) as error:
        return b"", f"can't be read: {error}"
    return content or b"", note.mismatch(content)


def _unreadable(error: Exception) -> str:
    """Return how a file is wrong that can't be read, or has other columns than a table."""
    return str(error) if isinstance(error, OtherFileError) else f"can't be read: {error}"


def _findings(file: File, accounts: NDArray[np.int64], times: NDArray[np.int64]) -> Iterator[str]:
    note = file.notes[0]
    steps = np.sign(np.diff(accounts))
    if np.any((steps < 0) | ((steps == 0) & (np.diff(times) < 0))):
        yield f"its rows are not in the order {', '.join(FILE_ORDER)}"
    order = np.lexsort([times, accounts])
    is_same = (np.diff(accounts[order]) == 0) & (np.diff(times[order]) == 0)
    edges = np.array(file.spans, np.int64).ravel()
    for count, what in (
        (np.sum(is_same), "repeat the account and timestamp of another"),
        (np.sum((times < file.begin) | (times >= file.stop)), "are not of its period"),
        (
            np.sum(np.searchsorted(edges, times, side="right") % 2 == 0),
            "are outside of the answered time",
        ),
    ):
        if count:
            yield f"{count} of its rows {what}"
    if len(times) != note.rows or not note.rows:
        yield f"has {len(times)} rows, not {note.rows}"
    elif (times.min(), times.max()) != (note.first, note.last):
        found = range_text(int(times.min()), int(times.max()))
        yield f"has rows from {found}, not from {range_text(note.first, note.last)}"
