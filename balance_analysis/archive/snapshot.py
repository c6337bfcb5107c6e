"""One state of an archive, as its manifest had it when it was read.

Whatever is answered goes by one snapshot, so that an export that commits meanwhile can't give an
answer two states. A file that was replaced since is read all the same where its rows of the
snapshot's time are sure to be there; else the snapshot is gone, and the answer is made of the next.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.grid import to_times
from balance_analysis.archive import layout
from balance_analysis.archive.accounts import FILE_KEY, combine_accounts, times_of, uncounted
from balance_analysis.archive.manifest import (
    Manifest,
    check_not_replaced,
    lost_files,
    noted_files,
    parse,
)
from balance_analysis.archive.scan import File, LruCache, Scan, read_frame
from balance_analysis.archive.store import Store
from balance_analysis.errors import IncompleteError, SnapshotGoneError
from balance_analysis.evidence import Evidence
from balance_analysis.filters import Filters
from balance_analysis.frame import frame_of
from balance_analysis.known import Known, note_evidence
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS, Instant, to_bounds, to_microseconds
from balance_analysis.spans import EVER, Span, clipped
from balance_analysis.text import moment_text, range_text, spans_text

TAKE: Final = "`partial` takes what there is"

_TRIES: Final = 10
"""How often an answer is begun while one state after the other is gone before it is made."""

_PARSED: Final = LruCache(20_000)
"""States by their version; each counts as many as it has files."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of an archive. It pickles, and is equal where the archive held the same.

    Attributes
    ----------
    store
        The archive's files.
    manifest
        What it holds.
    version
        Another one for each state: a digest of the manifest.
    """

    store: Store = field(compare=False)
    manifest: Manifest = field(compare=False)
    version: str

    @property
    def evidence(self) -> Evidence:
        """What is proven of the rows."""
        return self.manifest.evidence

    @property
    def known(self) -> Known:
        """The intervals that are complete."""
        return tuple(self.evidence.complete)

    def known_since(self, end: int) -> int:
        """Return since when every change up to `end` is known, in microseconds.

        What was seen last before that may have changed since.
        """
        return next((start for start, stop in self.known if start < end <= stop), end - 1)

    def note_evidence(self, table: pd.DataFrame, filters: Filters) -> None:
        """Note in a table's attrs the evidence for some accounts."""
        note_evidence(table, self.evidence.narrow(filters))

    def files(self, start: int = EVER[0], end: int = EVER[1]) -> list[File]:
        """Return the files that may have rows in [start, end) that is covered, in time order."""
        answered = self.evidence.answered
        found, known = [], self.known
        for period in self.manifest.files:
            begin, stop = layout.period_bounds(period, self.manifest.partition)
            spans = tuple(clipped(answered, max(begin, start), min(stop, end)))
            if spans:
                name = self.manifest.changes_file(period)
                is_final = all(any(a <= c and d <= b for a, b in known) for c, d in spans)
                notes = self.manifest.notes(period)
                found.append(File(name, notes, begin, stop, spans, is_final=is_final))
        return found

    def checkpoint(self, moment: int) -> File | None:
        """Return the file of the last month's start up to a moment, if there is one.

        It has the last row before its `stop` of each account.
        """
        stop = max((at for at in self.manifest.checkpoints if at <= moment), default=None)
        if stop is None:
            return None
        note = self.manifest.checkpoints[stop]
        begin = note.first
        return File(layout.checkpoint_file(stop), (note,), begin, stop, ((begin, stop),))

    def files_since(self, start: int, end: int) -> list[File]:
        """Return the files of [start, end), and those that tell what was held before it."""
        held = self.checkpoint(start)
        return [held, *self.files(held.stop, end)] if held else self.files(end=end)

    def scan(
        self, filters: Filters, start: Instant | None, end: Instant | None, *, partial: bool
    ) -> Scan:
        """Return what is asked for of this state: see `Archive.scan`."""
        self.manifest.query.check_holds(filters)
        span = self.interval(start, end, partial=partial)
        evidence = self.evidence.narrow(filters)
        if not partial:
            self.check_complete(*span, evidence)
        return Scan(self.store, filters, tuple(self.files(*span)), evidence.within(*span))

    def interval(self, start: Instant | None, end: Instant | None, *, partial: bool) -> Span:
        """Return an interval in microseconds; by default from the first complete one to the last.

        With `partial` it may be turned round, and then holds nothing.

        Raises
        ------
        IncompleteError
            If nothing is complete in what was asked for, unless `partial`.
        ValueError
            If `start` is not before `end`.
        """
        first, last = self.evidence.bounds if partial else self.evidence.complete_bounds
        begin, stop = to_bounds(start, end)
        begin, stop = first if begin is None else begin, last if stop is None else stop
        if begin < stop or partial:
            return begin, stop
        if start is not None and end is not None:
            raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
        said = "nothing is known to be complete"
        if first < last:
            said = f"nothing of what is complete, {range_text(first, last)}, was asked for"
        raise IncompleteError(f"{self.store.uri}: {said}; {TAKE}")

    def check_complete(self, start: int, end: int, evidence: Evidence) -> None:
        """Raise IncompleteError where a row in [start, end) may be missing, with the gaps."""
        gaps = evidence.incomplete(start, end)
        if not gaps:
            return
        first, last = evidence.bounds
        why = "is unproven: the node may have forgotten rows, or a bad row was set aside"
        if evidence.missing(*gaps[0]):
            why = "is missing; `export --fill-gaps` asks for it"
        if evidence.answers and gaps[0][1] <= first:
            why = f"is missing: the archive begins at {moment_text(first)}"
        if evidence.answers and gaps[0][0] >= last:
            why = (
                f"is missing: the archive ends at {moment_text(last)}, where the next export "
                "continues"
            )
        raise IncompleteError(f"{self.store.uri}: {spans_text(gaps)} {why}; {TAKE}")

    def read(
        self,
        filters: Filters,
        columns: Sequence[str] = COLUMNS,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        partial: bool = False,
    ) -> pd.DataFrame:
        """Return balance changes as a table: see `Archive.read`."""
        scan = self.scan(filters, start, end, partial=partial)
        table = read_frame(scan, columns)
        if {*COLUMNS} <= {*columns}:
            note_evidence(table, scan.evidence)
        return table

    def balance_at(self, filters: Filters, when: Instant, *, partial: bool) -> pd.DataFrame:
        """Return the balance of every account at an instant: see `Archive.balance_at`."""
        self.manifest.query.check_holds(filters)
        moment, evidence = to_microseconds(when), self.evidence.narrow(filters)
        if not partial:
            first, _ = evidence.complete_bounds
            self.check_complete(min(first, moment), self.until(moment), evidence)
        seen = combine_accounts(self._look(filters, self.files_since(moment, moment + 1), COLUMNS))
        # Of what an account held before, nothing is asked: its last row is enough.
        table = frame_of(canonical(seen.select(COLUMNS)))
        self.note_evidence(table, filters)
        return held_at(table, when)

    def until(self, moment: int) -> int:
        """Return up to where rows must be known to tell what was held at a moment."""
        # A row at that very instant would count, but where what a node answered ends.
        return moment + (moment not in {end for _, end in self.evidence.reached})

    def accounts(self, filters: Filters, *, partial: bool) -> pd.DataFrame:
        """Return the accounts: see `Archive.accounts`."""
        self.manifest.query.check_holds(filters)
        span = self.interval(None, None, partial=partial)
        if not partial:
            self.check_complete(*span, self.evidence.narrow(filters))
        files, held = self.files(*span), self.checkpoint(span[1])
        since = held.stop if held else span[0]
        later = [file for file in files if file.stop > since]
        earlier = files[: len(files) - len(later)]
        # What accounts held before the checkpoint, that tells; its rows were counted before.
        parts = self._look(filters, earlier, [*FILE_KEY, "timestamp"])
        parts += map(uncounted, self._look(filters, [held] if held else [], COLUMNS))
        seen = combine_accounts([*parts, *self._look(filters, later, COLUMNS)])
        return _frame(seen.filter(pc.greater(seen["rows"], 0)), self.known_since(span[1]))

    def count_accounts(self) -> int:
        """Return how many accounts have a row, by the last checkpoint and the files since."""
        return int(self._keys().num_rows)

    def ids(self) -> dict[str, set[str]]:
        """Return the ids of all accounts, by column."""
        accounts = self._keys()
        return {name: {*accounts[name].to_pylist()} for name in ACCOUNT_KEY}

    def _keys(self) -> pa.Table:
        files = self.files_since(EVER[1], EVER[1])
        return combine_accounts(self._look(Filters(), files, FILE_KEY))

    def _look(
        self, filters: Filters, files: Sequence[File], columns: Sequence[str]
    ) -> list[pa.Table]:
        scan = Scan(self.store, filters, tuple(files), Evidence())
        return scan.each(lambda some: some.accounts(columns))

    def lost_files(self) -> list[str]:
        """Return the files that are gone, or of another size than what was written.

        Raises
        ------
        SnapshotGoneError
            If a run has replaced one of them since.
        """
        lost = lost_files(self.store, self.manifest)
        for name in lost:
            check_not_replaced(self.store, name, noted_files(self.manifest)[name])
        return lost


def read_snapshot(store: Store) -> Snapshot:
    """Return the state that an archive is in now.

    The manifest is read each time, but decoded only if its bytes differ from the last ones: unlike
    times and sizes, bytes can't mislead.

    Raises
    ------
    ArchiveError
        If there is no archive, or its manifest is damaged.
    """
    content = store.read(layout.MANIFEST)
    version = hashlib.sha256(content or b"").hexdigest()[:16]

    def decode() -> tuple[Manifest, int]:
        manifest = parse(store, content)
        return manifest, len(manifest.files) + 1

    return Snapshot(store, _PARSED.get(version, decode), version)


def with_snapshot(store: Store, read: Callable[[Snapshot], T]) -> T:
    """Return what a function reads of the current state; if that is replaced meanwhile, retry."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(SnapshotGoneError):
            return read(read_snapshot(store))
    return read(read_snapshot(store))


def _frame(seen: pa.Table, since: int) -> pd.DataFrame:
    frame = frame_of(canonical(seen.select(COLUMNS), sort=False))
    is_known = times_of(seen) >= since
    frame = frame.assign(
        first_seen=to_times(seen["first"].to_numpy()),
        rows=seen["rows"].to_numpy(),
        balance=frame["balance"].where(is_known),
    ).rename(columns={"timestamp": "last_seen"})
    names = [*ACCOUNT_KEY, "first_seen", "last_seen", "rows", "balance"]
    return frame[names].sort_values(list(ACCOUNT_KEY), ignore_index=True)
