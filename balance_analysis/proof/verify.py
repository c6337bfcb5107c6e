"""Verify an archive: check its files against the manifest, and report each problem.

Each file is read once. If a run replaces a file meanwhile, the check starts again. Rows can also be
compared with another source, and balance changes with the ledger of network history segments: an
account's change must be what the ledger moved to it less what it moved away.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.flows import reconcile
from balance_analysis.archive import datafile, layout
from balance_analysis.archive.layout import period_bounds
from balance_analysis.archive.manifest import (
    FileEntry,
    Manifest,
    check_not_replaced,
    export_command,
)
from balance_analysis.archive.sidecars import LIMITS_ADVICE, read_limits, read_names_file
from balance_analysis.archive.snapshot import Snapshot, interval_of, with_snapshot
from balance_analysis.archive.store import Store, is_leftover
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.files.atomic import PathLike
from balance_analysis.load.arguments import OnProgress, reporting
from balance_analysis.proof import diff
from balance_analysis.segments.rows import read_accounts, read_blocks, read_flows
from balance_analysis.segments.segment import Stretch, find_stretches, heights_text, missing_blocks
from balance_analysis.table import moments
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import to_frame, to_table
from balance_analysis.table.schema import ATTRS_KEY, canonical
from balance_analysis.table.text import Record, count_text, spans_text, without_credentials

_BUFFER_ROWS: Final = 1 << 20
"""Maximum buffered rows before they are reduced to each account's last one."""

_UNLISTED: Final = (layout.RUNS, layout.QUARANTINE, layout.DISPUTES, layout.CHECKPOINTS)
"""Folders of an archive whose files needn't be in the manifest."""

_SIDECARS: Final[dict[str, Callable[[Store], object]]] = {
    layout.LIMITS: read_limits,
    layout.ASSETS: partial(read_names_file, file=layout.ASSETS),
    layout.LABELS: partial(read_names_file, file=layout.LABELS),
}
"""The function that reads each of an archive's files without rows."""

_DIFFERS: Final = "at {timestamp}, {account}: the balance changes by {delta}, the ledger by {net}"
_CONTRADICTION: Final = "the segments contradict themselves or the archive: find out which is wrong"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an archive.

    Attributes
    ----------
    kind
        "rows" (a file of balance changes), "manifest", "checkpoint", "limits", "assets", "labels",
        "difference" (from another source), "ledger" (a change that differs from the segments'
        ledger), "foreign" (a file that isn't part of an archive). Leftovers of an interrupted run
        aren't problems: the next run recovers them.
    what
        A description of the problem.
    where
        The file, or the compared time.
    remedy
        What to do about it; by default a repair.
    periods
        The periods to ask for again.
    """

    kind: str
    what: str
    where: str
    remedy: str = ""
    periods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport(Record):
    """The result of verifying an archive. As text it is a list for the terminal.

    Attributes
    ----------
    uri
        The archive's address.
    problems
        Problems in what was checked and compared.
    files, rows, checkpoints
        How many were checked.
    compared
        The comparisons with other sources.
    changes
        Number of balance changes that were compared with a ledger.
    not_compared
        What could not be compared with a ledger, and why.
    missing, unproven
        Number of missing and of unproven stretches. These aren't counted as problems.
    """

    uri: str
    problems: tuple[Problem, ...] = ()
    files: int = 0
    rows: int = 0
    checkpoints: int = 0
    compared: tuple[diff.Difference, ...] = ()
    changes: int = 0
    not_compared: tuple[str, ...] = ()
    missing: int = 0
    unproven: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether no problem was found in what was checked and compared."""
        return not self.problems

    @property
    def compared_nothing(self) -> bool:
        """Whether another source has no complete stretch in common with the archive."""
        return any(not difference.shared for difference in self.compared)

    _header = ("where", "what", "what to do")
    _also = ("is_whole",)

    def _title(self) -> str:
        names, count = ("file", "row", "checkpoint"), len(self.problems)
        checked = ", ".join(count_text(getattr(self, f"{name}s"), name) for name in names)
        problems = count_text(count, "problem") if count else "no problem"
        return f"{self.uri}: {problems} ({checked} checked)"

    def _findings(self) -> Iterator[tuple[str, str, str]]:
        if self.missing or self.unproven:
            unproven = count_text(self.unproven, "unproven part")
            parts = f"{self.missing:,} missing and {unproven}"
            command = shlex.join(["balance-analysis", "status", self.uri])
            yield "coverage", parts, f"`{command}` lists them"
        for problem in self.problems:
            yield problem.where, problem.what, problem.remedy
        for difference in self.compared:
            rows, spans = count_text(difference.compared[0], "row"), spans_text(difference.shared)
            what = f"{rows} of {spans}" if difference.shared else "no stretch complete in both"
            yield f"compared with {difference.other}", what, ""
            yield from ((how, why, "") for how, why in difference.left_out())
        if self.changes:
            yield "compared with the ledger", count_text(self.changes, "change"), ""
        for what in self.not_compared:
            yield "not compared", what, ""


def verify(
    store: Store,
    *,
    against: diff.Comparable | None = None,
    segments: PathLike | Iterable[PathLike] | None = None,
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
    progress: bool | OnProgress | None = False,
) -> VerifyReport:
    """Verify an archive: see `Archive.verify`.

    Raises
    ------
    SnapshotGoneError
        If runs keep replacing files that seem wrong.
    """
    span, uri = interval_of(start, end), without_credentials(store.uri)
    repair = export_command(store, "--repair")

    def check(snapshot: Snapshot) -> tuple[Snapshot, int, list[Problem]]:
        checking = _Checking(store, snapshot.manifest)
        with reporting(progress) as show:
            problems = list(checking.problems(show))
        for problem in problems:
            check_not_replaced(store, problem.where, snapshot.manifest.entries(problem.where))
        return snapshot, checking.rows, problems

    try:
        snapshot, rows, problems = with_snapshot(store, check)
    except ArchiveDamagedError as error:  # the manifest's; problems of other files are yielded
        what = without_credentials(str(error))
        return VerifyReport(uri, (Problem("manifest", what, layout.MANIFEST, repair),))
    manifest, evidence = snapshot.manifest, snapshot.evidence
    # Wrong files prove nothing.
    wrong = [period_bounds(name, manifest.partition) for x in problems for name in x.periods]
    sound = replace(manifest, evidence=evidence.clipped(moments.gaps_in(wrong, *moments.EVER)))
    snapshot = replace(snapshot, manifest=sound)
    archive: Any = diff.archive_side(snapshot)
    others: list[Any] = [] if against is None else [against]
    stretches = [] if segments is None else find_stretches(segments)
    others += [diff.segments_side(stretches)] if stretches else []
    compared = [diff.diff(archive, other, start=start, end=end) for other in others]
    for difference in compared:
        problems += _differences(store, difference)
    ledger = _Ledger(snapshot.store, snapshot.evidence.within(*span))
    problems += ledger.problems(stretches)
    return VerifyReport(
        uri,
        tuple(
            replace(one, what=without_credentials(one.what), remedy=one.remedy or repair)
            for one in problems
        ),
        files=len(manifest.files),
        rows=rows,
        checkpoints=len(manifest.checkpoints),
        compared=tuple(compared),
        changes=ledger.changes,
        not_compared=tuple(ledger.not_compared),
        missing=len(evidence.missing(*evidence.bounds)),
        unproven=len(evidence.unproven),
    )


def _differences(store: Store, difference: diff.Difference) -> Iterator[Problem]:
    """Yield a problem for each day that differs, with a description of its first rows."""
    template = "at {timestamp}, {account}: the archive has {balance}, {other} has {other_balance}"
    rows = difference.rows.assign(other=difference.other)
    for day, differing in rows.groupby(rows["timestamp"].dt.floor("D")):
        begin, stop = moments.moment_text(day), moments.moment_text(day + pd.Timedelta(days=1))
        # The archive's own node would only repeat its rows.
        repair = export_command(store, "--repair", "--since", begin, "--until", stop, url="URL")
        remedy = f"ask a third source which is right; `{repair}` takes the rows of the node at URL"
        what = diff.rows_text(differing, template)
        yield Problem("difference", what, f"{begin} to {stop}", remedy)


@dataclass(slots=True)
class _Checking:
    """The check of one state of an archive.

    Attributes
    ----------
    rows
        Number of rows checked so far.
    balances
        Each account's last row in the files so far; `None` after a wrong file, as checkpoints then
        can't be recomputed.
    """

    store: Store
    manifest: Manifest
    rows: int = 0
    balances: list[pa.Table] | None = field(default_factory=list)

    def problems(self, show: OnProgress) -> Iterator[Problem]:
        """Check all files, and yield each problem."""
        manifest, pending = self.manifest, self.manifest.pending
        announced = pending and layout.period_named(pending.name, manifest.partition)
        periods = {*manifest.files, *([announced] if announced else [])}
        # A checkpoint holds the balances before its moment.
        steps = [(moment, "") for moment in manifest.checkpoints]
        steps += [(period_bounds(period, manifest.partition)[0], period) for period in periods]
        for done, (moment, period) in enumerate(sorted(steps), 1):
            yield from self._check_period(period) if period else self._check_checkpoint(moment)
            show(done / len(steps), self.rows)
        yield from self._check_others()
        yield from self._check_names()

    def _check_period(self, period: str) -> Iterator[Problem]:
        name = self.manifest.changes_file(period)
        rows, entry, fault = _read(self.store, name, self.manifest.entries(name))
        if entry != self.manifest.files.get(period):
            if fault:
                return  # announced, but not written yet
            self.manifest = self.manifest.settle()
        bounds = period_bounds(period, self.manifest.partition)
        spans = moments.overlap(self.manifest.evidence.answered, [bounds])
        fault = fault or find_wrong_rows(rows, entry, bounds, spans)
        if fault:
            self.balances, remedy = None, ""
            if not spans:
                since = ("--since", moments.moment_text(bounds[0]), "--fill-gaps")
                command = export_command(self.store, *since)
                remedy = f"restore a backup of it, or cover its time with `{command}`"
            yield Problem("rows", fault, name, remedy, (period,) if spans else ())
        self.rows += 0 if fault else rows.num_rows
        if self.balances is not None:
            self.balances.append(datafile.last_rows(rows))
            if sum(part.num_rows for part in self.balances) > _BUFFER_ROWS:
                self.balances = [datafile.merge_last_rows(self.balances)]

    def _check_checkpoint(self, moment: int) -> Iterator[Problem]:
        name = layout.checkpoint_file(moment)
        rows, _, fault = _read(self.store, name, (self.manifest.checkpoints[moment],))
        if not fault and self.balances is not None:
            self.balances = [datafile.merge_last_rows(self.balances)]
            if not canonical(rows).equals(canonical(self.balances[0])):
                fault = f"differs from the balances before {moments.moment_text(moment)}"
        if fault:
            yield Problem("checkpoint", fault, name)

    def _check_others(self) -> Iterator[Problem]:
        """Read the files without rows, and yield each problem."""
        for name, read in _SIDECARS.items():
            try:
                read(self.store)
            except ArchiveError as error:
                kind = name[1:].partition(".")[0]
                remedy = f"remove it; the next run with --{kind} writes a new one"
                remedy = LIMITS_ADVICE if name == layout.LIMITS else remedy
                yield Problem(kind, str(error).removesuffix(f": {remedy}"), name, remedy)

    def _check_names(self) -> Iterator[Problem]:
        """Yield a problem for each file that should not be there."""
        known = {layout.MANIFEST, layout.LOCK, layout.HOLDER, *_SIDECARS, *self.manifest.committed}
        known |= {self.manifest.pending.name} if self.manifest.pending else set()
        for name in self.store.names():
            if name in known or name.startswith(_UNLISTED) or is_leftover(name):
                continue
            what, remedy = "is not part of the archive", "move it out of the archive"
            if layout.period_named(name, self.manifest.partition) is not None:
                what, rebuild = "is not in the manifest", export_command(self.store, "--repair")
                remedy = (
                    "restore a newer manifest, or move the file out of the archive, and export "
                    f"again; if no node has its rows any more, remove {layout.MANIFEST} and "
                    f"rebuild it with `{rebuild}`, which leaves nothing proven"
                )
            yield Problem("foreign", what, name, remedy)


def _read(store: Store, name: str, entries: Sequence[FileEntry]) -> tuple[pa.Table, FileEntry, str]:
    """Return a file's rows, the entry that it matches, and its fault; empty if it has none."""
    try:
        content = store.read(name)
        faults = [entry.mismatch(content) for entry in entries]
        if content is None or all(faults):
            return datafile.NO_ROWS, entries[0], faults[0]
        return canonical(datafile.decode_rows(content), sort=False), entries[faults.index("")], ""
    except datafile.OtherFileError as error:
        return datafile.NO_ROWS, entries[0], str(error)
    except (pa.ArrowException, OSError, ArchiveError) as error:
        return datafile.NO_ROWS, entries[0], f"can't be read: {error}"


def find_wrong_rows(
    rows: pa.Table, entry: FileEntry, bounds: moments.Span, spans: Sequence[moments.Span]
) -> str:
    """Return how rows contradict a file's entry, period or answered time; "" if they don't."""
    accounts, times, faults = datafile.numbers_of(rows), datafile.times_of(rows), list[str]()
    order = np.lexsort([times, accounts])
    if np.any(np.diff(order) < 0):
        faults.append(f"its rows are not in the order {', '.join(datafile.FILE_ORDER)}")
    is_same = (np.diff(accounts[order]) == 0) & (np.diff(times[order]) == 0)
    outside = np.searchsorted(np.array(spans, np.int64).ravel(), times, side="right") % 2 == 0
    for is_wrong, what in (
        (is_same, "repeat the account and timestamp of another"),
        ((times < bounds[0]) | (times >= bounds[1]), "are outside its period"),
        (outside, "are outside the answered time"),
    ):
        if count := np.sum(is_wrong):
            faults.append(f"{count} of its rows {what}")
    ends = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    actual, expected = (
        f"{count_text(count, 'row')} from {moments.range_text(*span)}"
        for count, span in ((len(times), ends), (entry.rows, (entry.first, entry.last)))
    )
    if actual != expected or not entry.rows:
        faults.append(f"it has {actual}, not {expected}")
    return "; ".join(faults)


@dataclass(slots=True)
class _Ledger:
    """The comparison of an archive's changes with the ledger of segments.

    Attributes
    ----------
    store, evidence
        The archive's files, and the evidence: changes are compared where it is complete.
    changes
        Number of changes compared so far.
    not_compared
        What could not be compared so far, and why.
    """

    store: Store
    evidence: Evidence
    changes: int = 0
    not_compared: list[str] = field(default_factory=list)

    def problems(self, stretches: list[Stretch]) -> Iterator[Problem]:
        """Compare the segments of about a day at a time, and yield a problem where they differ."""
        for gap in missing_blocks(stretches):
            self.not_compared.append(f"blocks {heights_text([gap])}: no segment has them")
        for stretch in stretches:
            accounts = read_accounts(stretch.segments[-1], self.evidence.filters)
            start, is_whole = 0, stretch.is_from_first
            spans = ((segment, read_blocks(segment).span) for segment in stretch.segments)
            # A segment belongs to the day it begins on.
            for _, group in groupby(spans, lambda x: layout.period_of(x[1][0], "day")):
                segments, times = zip(*group, strict=True)
                span = start or times[0][0], times[-1][1]
                start = span[1]
                if self.evidence.incomplete(*span):
                    what = f"{moments.range_text(*span)}: the archive is not complete there"
                    self.not_compared.append(what)
                    is_whole = False
                    continue
                flows = [read_flows(segment, accounts) for segment in segments]
                if fault := self._compare(span, flows, nothing_before=is_whole):
                    yield Problem("ledger", fault, moments.range_text(*span), _CONTRADICTION)

    def _compare(
        self, span: moments.Span, flows: list[pa.RecordBatch], *, nothing_before: bool
    ) -> str:
        """Compare a stretch of time, and describe the differences; empty if there are none.

        With `nothing_before`, accounts without an older row held nothing.
        """
        start, end = map(moments.from_microseconds, span)
        options: Any = {"start": start, "end": end, "opening": True, "partial": True}
        table = with_snapshot(self.store, lambda x: x.scan(Filters(), **options).read())
        if nothing_before:
            table = to_table(table, nothing_before=True)
        ledger = to_frame(pa.Table.from_batches(flows), sort=False)
        try:
            differing = reconcile(table, ledger.rename(columns={"balance": "net"}))
        except OverflowError as error:
            return str(error)
        count = differing.attrs[ATTRS_KEY]["not_compared"]
        self.changes += int((table["timestamp"] >= start).sum()) - count
        if count:
            what = f"{count_text(count, 'change')} of accounts with unknown balances before"
            self.not_compared.append(f"{moments.range_text(*span)}: {what}")
        return diff.rows_text(differing, _DIFFERS) if len(differing) else ""
