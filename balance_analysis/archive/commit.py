"""Write to an archive, so that a crash at any moment leaves it whole.

A period's file is replaced in three steps: the coverage says what the file is going to be, the file
is replaced, the coverage says that it is. What a crash leaves is one of three: the next writer
finds the old file, and forgets what was announced; or the new one, and takes it as done.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from balance_analysis.analysis.steps import make_steps
from balance_analysis.archive import layout
from balance_analysis.archive.coverage import to_json
from balance_analysis.archive.rowfiles import encode_rows
from balance_analysis.archive.state import read_about, read_coverage
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.frame import to_arrow, to_frame
from balance_analysis.rows import canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from balance_analysis.archive.coverage import Coverage, FileNote, Interval
    from balance_analysis.archive.store import Store


_KEY: Final = [*ACCOUNT_KEY, "timestamp"]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a period's rows and newly loaded ones are together.

    Attributes
    ----------
    rows
        Each account and timestamp once; where two differ, the newer one.
    changed
        The rows that were there and differ from a new one.
    absent
        The rows that were there and have none, though their time was asked for again.
    """

    rows: pa.Table
    changed: pa.Table
    absent: pa.Table


class Writer:
    """The one writer of an archive; whoever makes it holds the lock.

    Attributes
    ----------
    about
        What the archive is bound to.
    state
        What it holds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.about = read_about(store)
        self.state = read_coverage(store)

    def recover(self) -> None:
        """Finish or forget what an interrupted writer announced, and sweep up after it."""
        self._store.sweep()
        pending = self.state.pending
        if pending is None:
            return
        found = self._store.read(layout.changes_file(pending.period, self.about.partition))
        is_done = found is not None and hashlib.sha256(found).hexdigest() == pending.file.sha256
        self._write(self.state.settle() if is_done else replace(self.state, pending=None))

    def rows_of(self, period: str) -> pa.Table:
        """Return the rows of a period.

        Raises
        ------
        ArchiveError
            If its file is not what the coverage says.
        """
        name = layout.changes_file(period, self.about.partition)
        return read_noted(self._store, name, self.state.files.get(period))

    def commit(self, period: str, rows: pa.Table, intervals: Sequence[Interval]) -> None:
        """Make rows those of a period, and intervals covered."""
        if not rows.num_rows:
            self.put(period, None, intervals, _put_nothing)
            return
        content, note = encode_rows(rows)
        self.put(period, note, intervals, lambda name: self._store.write(name, content))

    def put(
        self,
        period: str,
        note: FileNote | None,
        intervals: Sequence[Interval],
        put_file: Callable[[str], None],
    ) -> None:
        """Put a period's file in its place, and make intervals covered.

        Parameters
        ----------
        period
            Whose file it is.
        note
            What the file is; `None` where it stays as it is, or there is none.
        intervals
            The coverage then.
        put_file
            Puts the file under the name that it gets, whole; not called where it is there already.
        """
        state = self._without_checkpoints(min(interval.start for interval in intervals))
        if note is None or state.files.get(period) == note:
            self._write(state.covers(intervals))
            return
        self._write(state.announce(period, note, intervals))
        put_file(layout.changes_file(period, self.about.partition))
        self._write(self.state.settle())

    def _without_checkpoints(self, moment: int) -> Coverage:
        """Return the state without the balances that rows from a moment on may change."""
        kept = {begin: note for begin, note in self.state.checkpoints.items() if begin <= moment}
        return replace(self.state, checkpoints=kept)

    def amend(self, state: Coverage) -> None:
        """Put a state in the place of this one: for a repair, which knows better."""
        self._write(state)

    def checkpoint(self) -> None:
        """Keep the balances of each month's start up to which there is no gap, and no others."""
        self._make_checkpoints()
        self._sweep_checkpoints()

    def _make_checkpoints(self) -> None:
        if not self.state.intervals:
            return
        start, end = self.state.intervals[0].start, self.state.intervals[-1].end
        before: int | None = None
        for moment in layout.month_starts(start, end):
            if self.state.missing(start, moment, proven=False):
                return
            if moment not in self.state.checkpoints:
                self._checkpoint(before, start, moment)
            before = moment

    def _sweep_checkpoints(self) -> None:
        """Delete balances that rows from before them made wrong, where none took their place."""
        for moment in layout.month_starts(*self.state.bounds(proven=False)):
            if moment not in self.state.checkpoints:
                self._store.delete(layout.checkpoint_file(moment))

    def _checkpoint(self, before: int | None, start: int, moment: int) -> None:
        """Keep the balances at a month's start, from those at the last one before it."""
        known = None if before is None else self._balances_at(before)
        since = start if before is None or known is None else before
        parts = [] if known is None else [known]
        rows = last_rows(
            pa.concat_tables([ARROW_SCHEMA.empty_table(), *parts, *self._between(since, moment)])
        )
        if not rows.num_rows:
            return
        content, note = encode_rows(rows)
        self._store.write(layout.checkpoint_file(moment), content)
        found = {**self.state.checkpoints, moment: note}
        self._write(replace(self.state, checkpoints=dict(sorted(found.items()))))

    def _balances_at(self, moment: int) -> pa.Table | None:
        """Return the rows of a checkpoint; `None` if it is not what was written."""
        note = self.state.checkpoints.get(moment)
        content = self._store.read(layout.checkpoint_file(moment))
        if note is None or content is None or not _is(content, note):
            return None
        return pq.read_table(pa.BufferReader(content)).cast(ARROW_SCHEMA)

    def _between(self, start: int, end: int) -> list[pa.Table]:
        parts = []
        for period in self.state.files:
            begin, stop = layout.bounds_of(period, self.about.partition)
            if begin < end and stop > start:
                parts.append(within(self.rows_of(period), start, end))
        return parts

    def _write(self, state: Coverage) -> None:
        self._store.write(layout.COVERAGE, to_json(state))
        self.state = state


def _is(content: bytes, note: FileNote) -> bool:
    return hashlib.sha256(content).hexdigest() == note.sha256


def _put_nothing(_: str) -> None:
    pass


def read_noted(store: Store, name: str, note: FileNote | None) -> pa.Table:
    """Return the rows of a file, which must be what is noted of it; none where it isn't noted.

    Raises
    ------
    ArchiveError
        If it is not.
    """
    if note is None:
        return ARROW_SCHEMA.empty_table()
    content = store.read(name)
    if content is None or not _is(content, note):
        found = "is gone" if content is None else "is not what was written"
        raise ArchiveDamagedError(
            f"{store.uri}/{name} {found}: put back a copy of it, or mend the archive with "
            "`export --repair`"
        )
    return pq.read_table(pa.BufferReader(content)).cast(ARROW_SCHEMA)


def within(rows: pa.Table, start: int, end: int) -> pa.Table:
    """Return the rows in [start, end), microseconds."""
    times = rows["timestamp"].cast(pa.int64())
    return rows.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))


def last_rows(rows: pa.Table) -> pa.Table:
    """Return the last row of each account."""
    table = to_frame(rows)
    steps = make_steps(table)
    return to_arrow(table.iloc[steps.bounds[1:] - 1])


def merge(known: pa.Table, new: pa.Table, start: int, end: int) -> Merged:
    """Return known rows of a period and new ones, which are all of [start, end), together."""
    if not known.num_rows:
        return Merged(new, known, known)
    again = within(known, start, end)
    # The sort is stable: of two rows of an account at one time, the newer stands second.
    both = canonical(pa.concat_tables([known, new]))
    table = to_frame(both, sort=False)
    is_older = table.duplicated(_KEY, keep="last").to_numpy()
    is_other = is_older & ~table.duplicated(keep="last").to_numpy()
    # Of new rows there are two here at least, so what stands alone is known and didn't come.
    twice = canonical(pa.concat_tables([again, new, new]))
    is_absent = ~to_frame(twice, sort=False).duplicated(_KEY, keep=False).to_numpy()
    return Merged(
        both.filter(pa.array(~is_older)),
        both.filter(pa.array(is_other)),
        twice.filter(pa.array(is_absent)),
    )
