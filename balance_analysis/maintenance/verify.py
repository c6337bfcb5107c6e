"""Prove that an archive is what it says, or name what is not.

Each file is read once. Everything is checked against the coverage, and the coverage against itself.
Where an export writes meanwhile, what seems wrong is looked at again by the coverage of then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis import defaults
from balance_analysis.archive import layout, manifest, network
from balance_analysis.archive.accounts import (
    ACCOUNTS,
    FILE_ORDER,
    combine_accounts,
    find_accounts,
    numbers_of,
)
from balance_analysis.archive.coverage import Coverage, FileEntry, contradictions
from balance_analysis.archive.datafile import OtherFileError, decode_rows
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.scan import File
from balance_analysis.archive.snapshot import read_snapshot, with_snapshot
from balance_analysis.archive.status import Kind, Problem, VerifyReport
from balance_analysis.archive.store import Store, is_leftover
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike
from balance_analysis.load.request import Report, reporting
from balance_analysis.maintenance.comparison import compare_with_node, compare_with_segments
from balance_analysis.node.client import Client
from balance_analysis.rows import canonical
from balance_analysis.schema import COLUMNS
from balance_analysis.spans import Span, clipped, joined
from balance_analysis.text import moment_text, range_text, without_credentials

_WAITING: Final = 1 << 20
"""How many rows wait to be reduced to each account's last one."""

_BESIDE: Final = (layout.RUNS, layout.QUARANTINE, layout.DISPUTES)
"""What stands in an archive without being noted in its coverage."""

NOBODY: Final = ACCOUNTS.empty_table()

Look = Callable[[Callable[[File], "CheckedFile"], Iterable[File]], Iterator["CheckedFile"]]
"""What looks at files: `map`, or what does the same elsewhere, some files ahead."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What was found out about a file of rows.

    Attributes
    ----------
    wrong
        What is wrong with it; nothing where it is as it should be.
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
    against: Client | None = None,
    segments: PathLike | Iterable[PathLike] | None = None,
    sample: int = defaults.SAMPLE,
    seed: int | None = None,
    progress: bool | Report | None = False,
    look: Look = map,
) -> VerifyReport:
    """Check that an archive is what it says: see `Archive.verify`; `look` looks at the files."""
    report = verify_store(store, progress=progress, look=look)
    if any(problem.kind == "coverage" for problem in report.problems):
        return report
    if against is not None:
        report = compare_with_node(report, store, against, sample=sample, seed=seed)
    if segments is not None:
        report = compare_with_segments(report, store, segments, progress=progress)
    return report


def verify_store(
    store: Store,
    *,
    progress: bool | Report | None = False,
    look: Look = map,
    is_writer: bool = False,
) -> VerifyReport:
    """Check an archive against what it says of itself.

    Parameters
    ----------
    is_writer
        Whether the caller holds the lock: what seems to be under way is then left over.
    """
    about, report = manifest.read_about(store), VerifyReport(without_credentials(store.uri))
    try:
        snapshot = read_snapshot(store)
    except ArchiveError as error:
        said = without_credentials(str(error))
        problem = Problem("coverage", said, layout.COVERAGE, _rebuilding(store))
        return replace(report, problems=(problem,))
    state = snapshot.coverage
    verification = _Verification(store, about, state, is_writer)
    with reporting(progress) as show:
        verification.run(show, look)
    return replace(
        report,
        problems=tuple(verification.problems),
        files=verification.files,
        rows=verification.rows,
        checkpoints=verification.checkpoints,
        gaps=len(state.missing(*state.bounds(proven=False), proven=False)),
        unproven=sum(not interval.proven for interval in state.intervals),
    )


def _rebuilding(store: Store) -> str:
    mend = manifest.export_command(store, "--repair")
    return f"put back a copy of it, or `{mend}` rebuilds it from the files"


@dataclass(slots=True)
class _Verification:
    """One archive being checked.

    Attributes
    ----------
    problems
        What is wrong, so far.
    files, rows, checkpoints
        How many were looked at.
    balances
        The last row of each account, up to where all files are as they should be.
    is_broken
        Whether a file is not, so that later checkpoints can't be recomputed.
    """

    store: Store
    about: manifest.ArchiveSpec
    state: Coverage
    is_writer: bool
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    checkpoints: int = 0
    balances: list[pa.Table] = field(default_factory=list)
    is_broken: bool = False

    def run(self, show: Report, look: Look) -> None:
        self._check_pending()
        for said in contradictions(self.state, self.about.partition):
            self._add("coverage", said, layout.COVERAGE, _rebuilding(self.store))
        if any(problem.kind == "coverage" for problem in self.problems):
            return
        files = [self._file(period, self.state) for period in self.state.files]
        due = sorted(self.state.checkpoints)
        done, total = 0, max(sum(file.notes[0].size for file in files), 1)
        looked = look(partial(check_file, self.store), files)
        for period, file, checked in zip(self.state.files, files, looked, strict=True):
            while due and due[0] <= file.begin:
                self._check_checkpoint(due.pop(0))
            self._take(period, file, self._looked_again(period, file, checked))
            done += file.notes[0].size
            show(done / total, self.rows)
        for moment in due:
            self._check_checkpoint(moment)
        self._check_others()
        self._check_names()

    def _add(self, kind: Kind, what: str, where: str, mend: str, *periods: str) -> None:
        self.problems.append(Problem(kind, without_credentials(what), where, mend, periods))

    def _command(self, *options: str) -> str:
        return manifest.export_command(self.store, *options)

    def _is_being_written(self) -> bool:
        return not self.is_writer and writer_of(self.store) is not None

    def _check_pending(self) -> None:
        """Tell of a run that was cut off, and go by what it announced where that came about."""
        pending = self.state.pending
        if pending is None:
            return
        name = layout.changes_file(pending.period, self.about.partition)
        if not self._is_being_written():
            what = f"a run was cut off, or is under way: it replaces {name}"
            self._add("interrupted", what, layout.COVERAGE, f"{self._command()} recovers it")
        if not _read_noted(self.store, name, pending.file)[1]:
            self.state = self.state.settle()

    def _file(self, period: str, state: Coverage) -> File:
        name = layout.changes_file(period, self.about.partition)
        bounds = layout.period_bounds(period, self.about.partition)
        return File(name, (state.files[period],), *bounds, tuple(self._covered(period, state)))

    def _covered(self, period: str, state: Coverage) -> list[Span]:
        """Return what of a period is covered."""
        bounds = layout.period_bounds(period, self.about.partition)
        return joined(clipped((each.span for each in state.intervals), *bounds))

    def _looked_again(self, period: str, file: File, found: CheckedFile) -> CheckedFile:
        """Look at a file that seems wrong by what the coverage says now, until that stays so."""
        tried = [file]
        while found.wrong:
            now = read_snapshot(self.store).coverage
            files = [self._file(period, s) for s in (now, now.settle()) if period in s.files]
            other = next((each for each in files if each not in tried), None)
            if other is None:
                break
            tried.append(other)
            found = check_file(self.store, other)
        return found

    def _take(self, period: str, file: File, checked: CheckedFile) -> None:
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
        name, note = self.about.checkpoint_file(moment), self.state.checkpoints[moment]
        content, wrong = _read_noted(self.store, name, note)
        if not wrong and not self.is_broken:
            wrong = self._compare_checkpoint(content, moment)
            self.checkpoints += 1
        # Where rows before it came meanwhile, it is not what the archive goes by any more.
        if wrong and read_snapshot(self.store).coverage.checkpoints.get(moment) == note:
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
        store = self.store
        made = f"put back a copy, or {self._command('--repair')} makes it from the runs' reports"
        self._try_reading(
            "limits", self.about.limits, lambda _: with_snapshot(store, network.read_limits), made
        )
        names: tuple[Kind, ...] = ("assets", "labels")
        for kind, file in zip(names, (layout.ASSETS, layout.LABELS), strict=True):
            written = f"{self._command(f'--{kind}', 'FILE')} writes it anew"
            self._try_reading(kind, file, partial(network.read_names_file, store), written)

    def _try_reading(self, kind: Kind, name: str, read: Callable[[str], object], mend: str) -> None:
        try:
            read(name)
        except ArchiveError as error:
            self._add(kind, str(error), name, mend)

    def _check_names(self) -> None:
        """Look for files that should not be there."""
        links = self.store.links()
        for link in links:
            what = "is a symbolic link, which is never followed"
            self._add("stranger", what, link, "put the file or folder itself in its place")
        known = {layout.ABOUT, layout.ASSETS, layout.LABELS, layout.COVERAGE, layout.LOCK}
        known |= {layout.HOLDER, self.about.limits, *links}
        behind = tuple(f"{link}/" for link in links)
        names = [name for name in self.store.names() if not name.startswith(behind)]
        # In this order: what is written is announced before, and what nobody writes now and is
        # still there was left.
        is_being_written = self._is_being_written()
        for state in (self.state, read_snapshot(self.store).coverage):
            known |= manifest.noted_files(self.about, state).keys()
        for name in names:
            if name not in known and not self._is_expected(name, is_being_written=is_being_written):
                self._add_stranger(name)

    def _is_expected(self, name: str, *, is_being_written: bool) -> bool:
        """Whether a file that is not named by the coverage may be there, or is there no more."""
        if is_leftover(name) or name.startswith(self.about.checkpoints):
            may_be = is_being_written or name.startswith(layout.STAGED)
        else:
            may_be = name.startswith(_BESIDE)
        return may_be or not self.store.has(name)

    def _add_stranger(self, name: str) -> None:
        period = layout.period_named(name, self.about.partition)
        if is_leftover(name):
            what = "was left by an interrupted write, or is being written"
            self._add("leftover", what, name, f"{self._command()} removes it")
        elif name.startswith(self.about.checkpoints):
            what = "is not in the coverage: an interrupted run left it"
            self._add("leftover", what, name, f"{self._command()} writes it anew; else remove it")
        elif period is not None and self._covered(period, self.state):
            what = "is not in the coverage, which says that its time is complete"
            mend = f"{self._command('--repair')}; if it stays, move it out of the archive"
            self._add("rows", what, name, mend, period)
        elif name.startswith(layout.CHANGES):
            what = "is not in the coverage, but engines that read the folder take its rows"
            self._add("stranger", what, name, "move it out of the archive")
        else:
            self._add("stranger", "is no part of an archive", name, "move it elsewhere")


def check_file(store: Store, file: File) -> CheckedFile:
    """Read a file of rows, and return how it, or what it holds, is not what its note says.

    Raises
    ------
    ArchiveError
        If the archive is not there: a worker may not reach its folder.
    """
    content, wrong = _read_noted(store, file.name, file.notes[0])
    if wrong:
        manifest.check_seen(store, layout.ABOUT)
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
            "are outside of what is covered",
        ),
    ):
        if count:
            yield f"{count} of its rows {what}"
    if len(times) != note.rows or not note.rows:
        yield f"has {len(times)} rows, not {note.rows}"
    elif (times.min(), times.max()) != (note.first, note.last):
        found = range_text(int(times.min()), int(times.max()))
        yield f"has rows from {found}, not from {range_text(note.first, note.last)}"
