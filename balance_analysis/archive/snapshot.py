"""One state of an archive: what it is bound to, and what it held when its coverage was read.

Whatever is answered goes by one snapshot, so that an export that commits meanwhile can't give an
answer two states. A file that was replaced since is read all the same where its rows of the
snapshot's time are sure to be there; else the snapshot is gone, and the answer is made of the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.grid import to_times
from balance_analysis.archive import layout, manifest
from balance_analysis.archive.accounts import FILE_KEY, combine_accounts, times_of, uncounted
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.scan import File, LruCache, Scan, read_frame
from balance_analysis.archive.store import Store
from balance_analysis.errors import IncompleteError, SnapshotGoneError
from balance_analysis.filters import Filters
from balance_analysis.frame import frame_of
from balance_analysis.known import Known, note_known
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS, Instant, to_bounds, to_microseconds
from balance_analysis.spans import EVER, Span, clipped, joined
from balance_analysis.text import moment_text, range_text, spans_text

TAKE: Final = "`partial` takes what there is"

_TRIES: Final = 10
"""How often an answer is begun while one state after the other is gone before it is made."""

_PARSED: Final = LruCache(20_000)
"""States by their version; each counts as many as it has files."""

T = TypeVar("T")


class Readable(Protocol):
    """An archive, for what reads it: a function of one is a method of `Archive`."""

    store: Store
    _state: Store | Snapshot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of an archive. It pickles, and is equal where the archive held the same.

    Attributes
    ----------
    store
        The archive's files.
    about
        What it is bound to.
    coverage
        What it holds.
    version
        Another one for each state: a digest of the two files that tell it.
    """

    store: Store = field(compare=False)
    about: manifest.ArchiveSpec = field(compare=False)
    coverage: Coverage = field(compare=False)
    version: str

    @property
    def known(self) -> Known:
        """The intervals that are proven to be complete."""
        return self.coverage.known()

    def known_since(self, end: int) -> int:
        """Return since when every change up to `end` is known, in microseconds.

        What was seen last before that may have changed since.
        """
        return next((start for start, stop in self.known if start < end <= stop), end - 1)

    def note_known(self, table: pd.DataFrame) -> None:
        """Note in a table's attrs what is known, of which it has all that matters."""
        note_known(table, self.known, nothing_before=self.coverage.begins_with_first_block)

    def files(self, start: int = EVER[0], end: int = EVER[1]) -> list[File]:
        """Return the files that may have rows in [start, end) that is covered, in time order."""
        covered = joined(interval.span for interval in self.coverage.intervals)
        found, known = [], self.known
        for period in self.coverage.files:
            begin, stop = layout.period_bounds(period, self.about.partition)
            spans = tuple(clipped(covered, max(begin, start), min(stop, end)))
            if spans:
                name = layout.changes_file(period, self.about.partition)
                is_final = all(any(a <= c and d <= b for a, b in known) for c, d in spans)
                notes = self.coverage.notes(period)
                found.append(File(name, notes, begin, stop, spans, is_final=is_final))
        return found

    def checkpoint(self, moment: int) -> File | None:
        """Return the file of the last month's start up to a moment, if there is one.

        It has the last row before its `stop` of each account.
        """
        stop = max((at for at in self.coverage.checkpoints if at <= moment), default=None)
        if stop is None:
            return None
        note = self.coverage.checkpoints[stop]
        begin = note.first
        return File(self.about.checkpoint_file(stop), (note,), begin, stop, ((begin, stop),))

    def files_since(self, start: int, end: int) -> list[File]:
        """Return the files of [start, end), and those that tell what was held before it."""
        held = self.checkpoint(start)
        return [held, *self.files(held.stop, end)] if held else self.files(end=end)

    def scan(
        self, filters: Filters, start: Instant | None, end: Instant | None, *, partial: bool
    ) -> Scan:
        """Return what is asked for of this state: see `Archive.scan`."""
        self.about.check_holds(filters)
        span = self.interval(start, end, partial=partial)
        if not partial:
            self.check_complete(*span)
        state, known = self.coverage, tuple(clipped(self.known, *span))
        is_whole = state.begins_with_first_block and span[0] <= state.intervals[0].start
        return Scan(self.store, filters, tuple(self.files(*span)), known, nothing_before=is_whole)

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
        first, last = self.coverage.bounds(proven=not partial)
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

    def check_complete(self, start: int, end: int) -> None:
        """Raise IncompleteError where a row in [start, end) may be missing, with the gaps."""
        state = self.coverage
        gaps = state.missing(start, end)
        if not gaps:
            return
        why = "is unproven: the node may have forgotten rows of it before it was asked"
        if state.missing(*gaps[0], proven=False):
            why = "is not covered; an export that fills gaps asks for it"
        if state.intervals and gaps[0][1] <= state.intervals[0].start:
            why = f"is not covered: the archive begins at {moment_text(state.intervals[0].start)}"
        if state.intervals and gaps[0][0] >= state.intervals[-1].end:
            until = moment_text(state.intervals[-1].end)
            why = f"is not covered: the archive ends before {until}, where the next export goes on"
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
            note_known(table, scan.known, nothing_before=scan.nothing_before)
        return table

    def balance_at(self, filters: Filters, when: Instant, *, partial: bool) -> pd.DataFrame:
        """Return the balance of every account at an instant: see `Archive.balance_at`."""
        self.about.check_holds(filters)
        moment = to_microseconds(when)
        if not partial:
            self.check_complete(min(self.coverage.bounds()[0], moment), self.until(moment))
        seen = combine_accounts(self._look(filters, self.files_since(moment, moment + 1), COLUMNS))
        # Of what an account held before, nothing is asked: its last row is enough.
        table = frame_of(canonical(seen.select(COLUMNS)))
        self.note_known(table)
        return held_at(table, when)

    def until(self, moment: int) -> int:
        """Return up to where rows must be known to tell what was held at a moment."""
        # A row at that very instant would count, but where what is known ends.
        return moment + (moment not in {end for _, end in self.known})

    def accounts(self, filters: Filters, *, partial: bool) -> pd.DataFrame:
        """Return the accounts: see `Archive.accounts`."""
        self.about.check_holds(filters)
        span = self.interval(None, None, partial=partial)
        if not partial:
            self.check_complete(*span)
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
        scan = Scan(self.store, filters, tuple(files), ())
        return scan.each(lambda some: some.accounts(columns))

    def lost_files(self) -> list[str]:
        """Return the files that are gone, or of another size than what was written.

        Raises
        ------
        SnapshotGoneError
            If a run has replaced one of them since.
        """
        lost = manifest.lost_files(self.store, self.about, self.coverage)
        for name in lost:
            notes = manifest.noted_files(self.about, self.coverage)[name]
            manifest.check_not_replaced(self.store, name, notes)
        return lost


def read_snapshot(store: Store) -> Snapshot:
    """Return the state that an archive is in now.

    Its two small files are read each time, each once, and understood only where their bytes are
    others than before: unlike times and sizes, they can't be mistaken.

    Raises
    ------
    ArchiveError
        If there is no archive, or one of the two is damaged.
    """
    about, coverage = store.read(layout.ABOUT), store.read(layout.COVERAGE)
    version = hashlib.sha256((about or b"") + b"\0" + (coverage or b"")).hexdigest()[:16]

    def parse() -> tuple[tuple[manifest.ArchiveSpec, Coverage], int]:
        found = manifest.to_state(store, about, coverage)
        return found, len(found[1].files) + 1

    bound, state = _PARSED.get(version, parse)
    return Snapshot(store, bound, state, version)


def with_snapshot(archive: Store | Snapshot, read: Callable[[Snapshot], T]) -> T:
    """Return what is read of one state of an archive: a given one, or else of the first to stay."""
    if isinstance(archive, Snapshot):
        return read(archive)
    for _ in range(_TRIES - 1):
        try:
            return read(read_snapshot(archive))
        except SnapshotGoneError:
            continue
    return read(read_snapshot(archive))


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
