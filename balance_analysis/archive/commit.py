"""Write to an archive, so that a crash at any moment leaves it whole.

A period's file is replaced in three steps: the coverage says what the file is going to be, the file
is replaced, the coverage says that it is. What a crash leaves is one of three: the next writer
finds the old file, and forgets what was announced; or the new one, and takes it as done.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import FrameType
from typing import Any, Final

import pyarrow as pa

from balance_analysis.archive import layout, network
from balance_analysis.archive.accounts import combine_accounts, find_accounts
from balance_analysis.archive.coverage import Coverage, FileEntry, Interval, to_json
from balance_analysis.archive.datafile import NO_ROWS, decode_rows, encode_rows
from balance_analysis.archive.manifest import ArchiveSpec, export_command
from balance_analysis.archive.snapshot import Snapshot, read_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.files.parquet import encode_parquet
from balance_analysis.frame import to_frame
from balance_analysis.rows import canonical, within
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, NetworkLimits

_KEY: Final = [*ACCOUNT_KEY, "timestamp"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block.

    Python runs handlers in the main thread alone, between any two steps of it: an exception that
    one raises would leave an archive's writer with half of a change. Other threads see none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def wait(number: int, _: FrameType | None) -> None:
        waiting.append(number)

    # A handler that Python didn't set can't be set again, and is left alone.
    ours = [number for number in _SIGNALS if signal.getsignal(number) is not None]
    before = {number: signal.signal(number, wait) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for waited in waiting:
            signal.raise_signal(waited)


class Writer:
    """The one writer of an archive, which is bound to `about` and holds `state`.

    Whoever makes it holds the lock.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        snapshot = read_snapshot(store)
        self.about: ArchiveSpec = snapshot.about
        self.state: Coverage = snapshot.coverage

    def recover(self) -> None:
        """Finish or forget what an interrupted writer announced, and sweep up after it."""
        self._store.sweep()
        state, pending, limits = self.state, self.state.pending, self.state.pending_limits
        if pending is not None:
            found = self._store.read(layout.changes_file(pending.period, self.about.partition))
            is_done = not pending.file.mismatch(found)
            state = state.settle() if is_done else replace(state, pending=None)
        if limits is not None:
            found = self._store.read(self.about.limits)
            is_done = found is not None and limits.matches(found)
            state = replace(state, limits=limits if is_done else state.limits, pending_limits=None)
        if state.limits is not None and state.limits.sha256 is None:
            with contextlib.suppress(ArchiveDamagedError):  # what version 1 noted has no digest
                rows, content = self._limits(state), self._store.read(self.about.limits)
                note = network.note_limits(rows, content) if content else None
                state = replace(state, limits=note)
        if state is not self.state:
            self.amend(state)

    def amend(self, state: Coverage) -> None:
        """Put a state in the place of this one."""
        self._store.write(layout.COVERAGE, to_json(state))
        self.state = state

    def keep_limits(self, limits: NetworkLimits) -> None:
        """Note that the network's limits are these now; ArchiveError if their file is damaged."""
        self._put_limits(
            network.to_timeline([*self._limits(self.state).to_pylist(), network.limits_row(limits)])
        )

    def keep_timeline(self, changes: Sequence[NetworkLimits], until: int) -> None:
        """Note all changes of the limits up to a moment; ArchiveError if their file is damaged."""
        known = self._limits(self.state)
        rows = network.with_timeline(known, changes, until)
        if not rows.equals(known):
            self._put_limits(rows)

    def restore_limits(self, seen: Iterable[Mapping[str, Any]]) -> None:
        """Write the file of the limits anew from snapshots: see `to_timeline`."""
        self._put_limits(network.to_timeline(seen))

    def _limits(self, state: Coverage) -> pa.Table:
        return network.read_limits(Snapshot(self._store, self.about, state, ""))

    def _put_limits(self, rows: pa.Table) -> None:
        content = encode_parquet(rows)
        note = network.note_limits(rows, content)
        self.amend(replace(self.state, pending_limits=note))
        self._store.write(self.about.limits, content)
        self.amend(replace(self.state, limits=note, pending_limits=None))

    def _file(self, period: str) -> str:
        return layout.changes_file(period, self.about.partition)

    def rows_of(self, period: str) -> pa.Table:
        """Return the rows of a period; ArchiveError if its file is not what the coverage says."""
        return read_noted(self._store, self._file(period), self.state.files.get(period))

    def commit(self, period: str, rows: pa.Table, intervals: Sequence[Interval]) -> None:
        """Make rows those of a period, and intervals covered."""
        content, note = encode_rows(rows) if rows.num_rows else (b"", None)
        self.put(period, note, intervals, lambda name: self._store.write(name, content))

    def put(
        self,
        period: str,
        note: FileEntry | None,
        intervals: Sequence[Interval],
        put_file: Callable[[str], object],
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
        # Rows may change the balances at all later months' starts.
        since = min(interval.start for interval in intervals)
        kept = {moment: note for moment, note in self.state.checkpoints.items() if moment <= since}
        state = replace(self.state, checkpoints=kept)
        if note is None or state.files.get(period) == note:
            self.amend(state.covers(intervals))
            return
        self.amend(state.announce(period, note, intervals))
        put_file(self._file(period))
        self.amend(self.state.settle())

    def checkpoint(self) -> None:
        """Keep the balances of each month's start up to which there is no gap, and no others."""
        start, end = self.state.bounds(proven=False)
        moments, before = [*layout.month_starts(start, end)], start
        for moment in moments:
            if self.state.missing(start, moment, proven=False):
                break
            if moment not in self.state.checkpoints:
                self._checkpoint(start, before, moment)
            before = moment
        for moment in moments:
            if moment not in self.state.checkpoints:
                self._store.delete(self.about.checkpoint_file(moment))

    def _checkpoint(self, start: int, before: int, moment: int) -> None:
        """Keep the balances at a month's start, from those at the last one before it."""
        known, since = NO_ROWS, start
        if note := self.state.checkpoints.get(before):
            with contextlib.suppress(ArchiveDamagedError):
                name = self.about.checkpoint_file(before)
                known, since = read_noted(self._store, name, note), before
        seen = combine_accounts(map(find_accounts, chain([known], self._between(since, moment))))
        if not seen.num_rows:
            return
        rows = seen.select(COLUMNS).cast(ARROW_SCHEMA)
        content, new = encode_rows(rows)
        self._store.write(self.about.checkpoint_file(moment), content)
        checkpoints = dict(sorted({**self.state.checkpoints, moment: new}.items()))
        self.amend(replace(self.state, checkpoints=checkpoints))

    def _between(self, start: int, end: int) -> Iterator[pa.Table]:
        for period in self.state.files:
            begin, stop = layout.period_bounds(period, self.about.partition)
            if begin < end and stop > start:
                yield within(self.rows_of(period), start, end)


def read_noted(store: Store, name: str, note: FileEntry | None) -> pa.Table:
    """Return the rows of a file, or ArchiveError if it is not what is noted; none without note."""
    if note is None:
        return NO_ROWS
    content = store.read(name)
    wrong = note.mismatch(content)
    if content is None or wrong:
        raise ArchiveDamagedError(
            f"{store.uri}/{name} {wrong}: put back a copy of it, or mend the archive with "
            f"`{export_command(store, '--repair')}`"
        )
    return decode_rows(content)


def merge_rows(
    known: pa.Table, new: pa.Table, start: int, end: int
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return what known rows of a period and new ones are together.

    Parameters
    ----------
    known, new
        The rows that are there, and all of [start, end) that came.

    Returns
    -------
    rows
        Each account and timestamp once; where two differ, the newer one.
    changed
        Known rows that differ from a new one.
    absent
        Known rows that have no new one, though their time was asked for again.
    """
    if not known.num_rows:
        return new, known, known
    # The sort is stable: of two rows of an account at one time, the newer stands second.
    both = canonical(pa.concat_tables([known, new]))
    table = to_frame(both, sort=False)
    is_older = table.duplicated(_KEY, keep="last").to_numpy()
    is_other = is_older & ~table.duplicated(keep="last").to_numpy()
    # Of new rows there are two here at least, so what stands alone is known and didn't come.
    twice = canonical(pa.concat_tables([within(known, start, end), new, new]))
    is_absent = ~to_frame(twice, sort=False).duplicated(_KEY, keep=False).to_numpy()
    rows, changed = both.filter(pa.array(~is_older)), both.filter(pa.array(is_other))
    return rows, changed, twice.filter(pa.array(is_absent))
