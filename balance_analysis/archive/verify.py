"""Prove that an archive is what it says, or name what is not.

Each file is read once, row group by row group. Everything is checked against the coverage, and the
coverage against itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from balance_analysis.archive import layout
from balance_analysis.archive.commit import last_rows
from balance_analysis.archive.datafile import wrong_schema
from balance_analysis.archive.limits import read_limits
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.manifest import check_seen, noted_files, read_about, read_coverage
from balance_analysis.archive.store import is_leftover
from balance_analysis.archive.verify_files import (
    EMPTY,
    Reading,
    wrong_bytes,
    wrong_note,
)
from balance_analysis.archive.verify_report import Problem, VerifyReport
from balance_analysis.errors import ArchiveError
from balance_analysis.load.progress import reporting
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.spans import clipped, joined
from balance_analysis.text import iso_text, range_text, without_credentials

if TYPE_CHECKING:
    from balance_analysis.archive.coverage import Coverage, FileNote, Interval
    from balance_analysis.archive.manifest import About
    from balance_analysis.archive.store import Store
    from balance_analysis.archive.verify_report import Kind
    from balance_analysis.load.progress import Report
    from balance_analysis.spans import Span

_TRIES: Final = 3
"""How often an archive that somebody writes to is looked at again, where something seems wrong."""

LOST: Final = "put back a copy of it, or export anew into an empty folder"
_MONTH: Final = 31 * 86_400 * 1_000_000
_REBUILD: Final = "put back a copy of it, or `export --repair` rebuilds it from the files"

_WAITING: Final = 1 << 20
"""How many rows wait to be reduced to each account's last one."""


Looking = Callable[
    ["Callable[[FileToCheck], CheckedFile]", "Sequence[FileToCheck]"], "Iterator[CheckedFile]"
]
"""What looks at files: `map`, or what does the same elsewhere, some files ahead."""


@dataclass(frozen=True, slots=True)
class FileToCheck:
    """A file of rows, and what it must be. It pickles.

    Attributes
    ----------
    store, name, note
        The file.
    begin, stop
        Its period, microseconds.
    spans
        What of the period is covered.
    """

    store: Store
    name: str
    note: FileNote
    begin: int
    stop: int
    spans: list[Span]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What was found out about a file of rows.

    Attributes
    ----------
    wrong
        What is wrong with it, if anything is.
    is_damaged
        Whether it has other bytes than were written.
    rows
        How many it has.
    last
        The last row of each account, if nothing is wrong.
    """

    wrong: str | None
    is_damaged: bool
    rows: int
    last: pa.Table


def check_file(file: FileToCheck) -> CheckedFile:
    """Read a file of rows, and return what is wrong with it.

    Raises
    ------
    ArchiveError
        If the archive is not there: a worker may not reach its folder.
    """
    reading = Reading(file.begin, file.stop, file.spans)
    damage = wrong_bytes(file.store, file.name, file.note)
    if damage is not None:
        check_seen(file.store, layout.ABOUT)
    wrong = damage or reading.read(file.store, file.name, file.note)
    last = pa.concat_tables([EMPTY, *reading.last]) if wrong is None else EMPTY
    return CheckedFile(wrong, damage is not None, reading.rows, last)


def verify_archive(
    store: Store,
    *,
    progress: bool | Report | None = False,
    look: Looking = map,
    is_writer: bool = False,
) -> VerifyReport:
    """Check an archive against what it says of itself.

    Parameters
    ----------
    store
        The archive.
    progress
        As for `load_balance_changes`: by the bytes that were read.
    look
        What looks at the files: as `map` does, or elsewhere.
    is_writer
        Whether the caller holds the lock: what seems to be under way is then left over.

    Returns
    -------
    VerifyReport
        What is wrong with it.

    Raises
    ------
    ArchiveError
        If there is no archive, or what it is bound to can't be read.
    OSError
        If its files can't be listed.
    """
    about = read_about(store)
    report = VerifyReport(without_credentials(store.uri))
    for _ in range(_TRIES):
        try:
            state = read_coverage(store)
        except ArchiveError as error:
            said = without_credentials(str(error))
            problem = Problem("coverage", said, layout.COVERAGE, _REBUILD)
            return replace(report, problems=(problem,))
        checking = _Checking(store, about, state, report.uri, is_writer)
        with reporting(progress) as show:
            checking.run(show, look)
        # What seems wrong may only be what a run has replaced in the meantime.
        if not checking.problems or _is_unchanged(store, state):
            break
    return replace(
        report,
        problems=tuple(checking.problems),
        files=checking.files,
        rows=checking.rows,
        checkpoints=checking.compared,
        gaps=len(state.missing(*state.bounds(proven=False), proven=False)),
        unproven=sum(not interval.proven for interval in state.intervals),
    )


def _is_unchanged(store: Store, state: Coverage) -> bool:
    try:
        return read_coverage(store) == state
    except ArchiveError:
        return False


@dataclass(slots=True)
class _Checking:
    """One archive being checked.

    Attributes
    ----------
    store, about, state, uri
        The archive.
    is_writer
        Whether nobody else can be writing to it.
    problems
        What is wrong, so far.
    files, rows, compared
        How many files, rows and checkpoints were looked at.
    balances
        The last row of each account, up to where all files are as they should be.
    is_broken
        Whether a file is not, so that later checkpoints can't be recomputed.
    """

    store: Store
    about: About
    state: Coverage
    uri: str
    is_writer: bool
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    compared: int = 0
    balances: list[pa.Table] = field(default_factory=list)
    is_broken: bool = False

    def run(self, show: Report, look: Looking) -> None:
        self._check_pending()
        self._check_intervals()
        periods = self._periods()
        sizes = [self.state.files[period].size for period in periods]
        due = sorted(self.state.checkpoints)
        done, total = 0, max(sum(sizes), 1)
        files = [self._file(period, self.state) for period in periods]
        checked = look(check_file, files)
        for period, size, file in zip(periods, sizes, files, strict=True):
            while due and due[0] <= file.begin:
                self._check_checkpoint(due.pop(0))
            self._take(period, file, next(checked))
            done += size
            show(done / total, self.rows)
        for moment in due:
            self._check_checkpoint(moment)
        self._check_limits()
        self._check_names()

    def _add(self, kind: Kind, what: str, where: str, mend: str, *periods: str) -> None:
        self.problems.append(Problem(kind, without_credentials(what), where, mend, periods))

    def _command(self, options: str = "") -> str:
        return f"balance-analysis export URL {self.uri}{options}"

    def _check_pending(self) -> None:
        """Tell of a run that was cut off, and go by what it announced where that came about."""
        pending = self.state.pending
        if pending is None:
            return
        name = layout.changes_file(pending.period, self.about.partition)
        if not self._is_being_written():
            what = f"a run was cut off, or is under way: it replaces {name}"
            self._add("interrupted", what, layout.COVERAGE, f"{self._command()} recovers it")
        if wrong_bytes(self.store, name, pending.file) is None:
            self.state = self.state.settle()

    def _is_being_written(self) -> bool:
        return not self.is_writer and writer_of(self.store) is not None

    def _check_intervals(self) -> None:
        where, mend = layout.COVERAGE, self._command(" --repair")
        for interval in self.state.intervals:
            if interval.start >= interval.end:
                said = f"{range_text(*interval.span)} ends before it begins"
                self._add("coverage", said, where, mend)
        for before, after in pairwise(self.state.intervals):
            if after.start < before.end:
                what = "overlaps" if after.end > before.start else "stands before"
                said = f"{range_text(*after.span)} {what} {range_text(*before.span)}"
                self._add("coverage", said, where, mend, *sorted(self._periods_of(before, after)))

    def _periods_of(self, *intervals: Interval) -> set[str]:
        return {
            p
            for each in intervals
            for p in layout.periods_between(*each.span, self.about.partition)
        }

    def _periods(self) -> list[str]:
        """Return the periods that have a file, in time order."""
        names = list(self.state.files)
        known = []
        for name in names:
            try:
                layout.bounds_of(name, self.about.partition)
            except ValueError:
                what = f"names a period {name!r}, which is none"
                self._add("coverage", what, layout.COVERAGE, LOST)
            else:
                known.append(name)
        if names != sorted(names):
            mend = self._command(" --repair")
            self._add("coverage", "names files out of time order", layout.COVERAGE, mend)
        return sorted(known)

    def _file(self, period: str, state: Coverage) -> FileToCheck:
        begin, stop = layout.bounds_of(period, self.about.partition)
        name, note = layout.changes_file(period, self.about.partition), state.files[period]
        covered = (interval.span for interval in state.intervals)
        return FileToCheck(
            self.store, name, note, begin, stop, joined(clipped(covered, begin, stop))
        )

    def _looked_again(self, period: str, file: FileToCheck, found: CheckedFile) -> CheckedFile:
        """Look at a file that seems wrong by what the coverage says now, until that stays so."""
        tried = [file]
        while found.wrong is not None:
            now = read_coverage(self.store)
            files = [self._file(period, s) for s in (now, now.settle()) if period in s.files]
            others = [each for each in files if each not in tried]
            if not others:
                break
            for each in others:
                found = check_file(each)
                if found.wrong is None:
                    break
            tried += others
        return found

    def _take(self, period: str, file: FileToCheck, checked: CheckedFile) -> None:
        checked = self._looked_again(period, file, checked)
        self.files += 1
        self.rows += checked.rows
        if checked.wrong is None:
            self.balances.append(checked.last)
            if sum(part.num_rows for part in self.balances) > _WAITING:
                self.balances = [last_rows(pa.concat_tables(self.balances))]
            return
        self.is_broken = True
        if file.spans:
            self._add("rows", checked.wrong, file.name, self._command(" --repair"), period)
        else:
            since = iso_text(file.begin)
            covers = self._command(f" --since {since} --fill-gaps")
            self._add("rows", checked.wrong, file.name, LOST if checked.is_damaged else covers)

    def _check_checkpoint(self, moment: int) -> None:
        name, note = layout.checkpoint_file(moment), self.state.checkpoints[moment]
        found = wrong_bytes(self.store, name, note)
        if found is None and not self.is_broken:
            found = self._compare_checkpoint(name, note, moment)
            self.compared += 1
        # Where rows before it came meanwhile, it is not what the archive goes by any more.
        if found is not None and read_coverage(self.store).checkpoints.get(moment) == note:
            self._add("checkpoint", found, name, self._command(" --repair"))

    def _compare_checkpoint(self, name: str, note: FileNote, moment: int) -> str | None:
        self.balances = [last_rows(pa.concat_tables([EMPTY, *self.balances]))]
        try:
            with self.store.open(name) as source, pq.ParquetFile(source) as file:
                wrong = wrong_schema(file.schema_arrow)
                rows = EMPTY if wrong else canonical(file.read())
        except (pa.ArrowException, OSError, ArchiveError) as error:
            return f"can't be read: {error}"
        if wrong is not None:
            return wrong
        expected = canonical(self.balances[0])
        if not rows.equals(expected):
            made = f"is not what the rows before {iso_text(moment)} make"
            return f"{made}: {_first_difference(rows, expected)}"
        times = rows["timestamp"].cast(pa.int64())
        ends = (pc.min(times).as_py(), pc.max(times).as_py())
        return wrong_note(note, rows.num_rows, ends)

    def _check_limits(self) -> None:
        mend = f"put back a copy, or {self._command(' --repair')} makes it from the runs' reports"
        try:
            read_limits(self.store, self.state)
        except ArchiveError as error:
            self._add("limits", str(error), layout.LIMITS, mend)

    def _check_names(self) -> None:
        known = {layout.ABOUT, layout.COVERAGE, layout.LIMITS, layout.LOCK, layout.HOLDER}
        names = self._names()
        # In this order: what is written is announced before, and what nobody writes now and is
        # still there was left.
        is_being_written = self._is_being_written()
        for state in (self.state, read_coverage(self.store)):
            known |= noted_files(self.about, state).keys()
        partition = self.about.partition
        covered = {
            layout.changes_file(p, partition): p for p in self._periods_of(*self.state.intervals)
        }
        for name in names:
            if name in known or not self._stays(name, is_being_written=is_being_written):
                continue
            if is_leftover(name):
                what = "was left by an interrupted write, or is being written"
                self._add("leftover", what, name, f"{self._command()} removes it")
            elif name.startswith(layout.CHECKPOINTS) and self._is_checkpoint(name):
                what = "is not named by the coverage: an interrupted run left it"
                mend = f"{self._command()} writes it anew; else remove it"
                self._add("leftover", what, name, mend)
            elif name in covered:
                what = "is not named by the coverage, which has its time as complete"
                self._add("rows", what, name, self._command(" --repair"), covered[name])
            elif name.startswith(layout.CHANGES):
                what = "is not named by the coverage, but readers of the folder take its rows"
                self._add("stranger", what, name, "move it out of the archive")
            else:
                self._add("stranger", "is no part of an archive", name, "move it elsewhere")

    def _stays(self, name: str, *, is_being_written: bool) -> bool:
        """Whether a file that is not named by the coverage is there to stay, and should not be."""
        is_of_a_write = is_leftover(name) or name.startswith(layout.CHECKPOINTS)
        if name.startswith(layout.STAGED) and is_leftover(name):
            return False
        if name.startswith((layout.RUNS, layout.QUARANTINE)) and not is_leftover(name):
            return False
        return not (is_being_written and is_of_a_write) and self.store.has(name)

    def _names(self) -> list[str]:
        """Return the names of all files, but for links, which are told."""
        links = self.store.links()
        for link in links:
            what = "is a symbolic link, which is never followed"
            self._add("stranger", what, link, "put the file or folder itself in its place")
        behind = tuple(f"{link}/" for link in links)
        names = self.store.names()
        return [name for name in names if name not in links and not name.startswith(behind)]

    def _is_checkpoint(self, name: str) -> bool:
        start, end = _bounds(self.state)
        # The month after the end too: a coverage that was rebuilt ends with its last row.
        months = layout.month_starts(start, end + _MONTH)
        return name in set(map(layout.checkpoint_file, months))


def _bounds(state: Coverage) -> Span:
    starts, ends = zip(*(each.span for each in state.intervals), strict=True)
    return min(starts), max(ends)


def _first_difference(rows: pa.Table, expected: pa.Table) -> str:
    if rows.num_rows != expected.num_rows:
        return f"it has {rows.num_rows} balances, not {expected.num_rows}"
    pairs = zip(rows.to_pylist(), expected.to_pylist(), strict=True)
    found, wanted = next(pair for pair in pairs if pair[0] != pair[1])
    account = ", ".join(f"{name} {wanted[name]!r}" for name in ACCOUNT_KEY)
    return f"it has {found['balance']}, not {wanted['balance']} of {account}"
