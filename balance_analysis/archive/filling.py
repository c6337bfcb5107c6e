"""Commit a span to an archive, part by part in time order, wherever the parts were loaded.

A part is what is known of one period's share of the span. Whoever loads it, in this process or in
another one, makes it here of the rows; the one writer takes it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive import layout
from balance_analysis.archive.commit import merge, within
from balance_analysis.archive.coverage import Interval, covered_by
from balance_analysis.archive.rowfiles import encode_rows
from balance_analysis.archive.runs import keep_bad_rows
from balance_analysis.archive.uninterrupted import uninterrupted
from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from balance_analysis.archive.commit import Writer
    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.export import Run
    from balance_analysis.archive.store import Store
    from balance_analysis.archive.witness import Witness
    from balance_analysis.node.decode import BadRow
    from balance_analysis.node.walk import Step
    from balance_analysis.spans import Span

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class Part:
    """What came of a period's share of a span; it pickles, and is small however many rows came.

    Attributes
    ----------
    start, end
        Which share: all of [start, end), microseconds.
    has_rows
        Whether there are rows in it, new ones or ones that the archive holds.
    added
        How many rows more the period's file has now.
    note
        What the file is going to be; `None` where it stays as it is.
    changed, absent
        The rows that the archive holds and that came with another balance, or did not come again.
    last
        The rows of the last block that came.
    incomplete
        Stretches of which the node says that it may lack rows.
    bad_rows
        Rows that the table can't hold.
    requests
        How many were sent.
    """

    start: int
    end: int
    has_rows: bool = False
    added: int = 0
    note: FileNote | None = None
    changed: pa.Table = field(default_factory=ARROW_SCHEMA.empty_table)
    absent: pa.Table = field(default_factory=ARROW_SCHEMA.empty_table)
    last: pa.Table = field(default_factory=ARROW_SCHEMA.empty_table)
    incomplete: tuple[Span, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    requests: int = 0


def make_part(known: pa.Table, new: pa.Table, start: int, end: int) -> tuple[Part, bytes]:
    """Return what becomes of a period's rows with new ones, and the content of its file.

    Parameters
    ----------
    known
        The rows that the period has.
    new
        All rows of [start, end).
    """
    if not new.num_rows and not within(known, start, end).num_rows:
        return Part(start, end), b""
    merged = merge(known, new, start, end)
    content, note = encode_rows(merged.rows)
    part = Part(
        start,
        end,
        has_rows=True,
        added=merged.rows.num_rows - known.num_rows,
        note=note,
        changed=merged.changed,
        absent=merged.absent,
        last=_last_block(new),
    )
    return part, content


def _last_block(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    latest = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
    return canonical(within(rows, latest, latest + 1))


def until_behind(steps: Iterable[Step], finished: tuple[str, int] | None = None) -> Iterator[Step]:
    """Yield steps in time order, up to the first one of a node that didn't know all of it.

    Behind one address there may be nodes of which one lags: that step ends where it does. The last
    block that a node holds may be unfinished, unless it is the one that is `Run.finished`.
    """
    for step in steps:
        known = step.end if step.head is None else step.head
        if (step.source, step.head) == finished:
            known += 1
        if known >= step.end:
            yield step
            continue
        end = max(step.start, known)
        rows = within(pa.Table.from_batches(step.batches, ARROW_SCHEMA), step.start, end)
        yield replace(step, end=end, batches=tuple(rows.to_batches()))
        return


@dataclass(slots=True)
class Filling:
    """One span on its way into the archive.

    Attributes
    ----------
    store, writer, run
        Where to.
    witness
        What tells whether the node is of the same network and has forgotten nothing.
    committed
        Up to where the span is in the archive.
    front
        Up to where parts were taken: those without rows are committed with the next one that has
        some, or at the end.
    doubted
        Stretches of which the node says that it may lack rows.
    kept
        How many bad rows are on disk.
    deadline
        Until when the node may vouch for what is kept, in seconds of `time.monotonic`; `None` where
        nobody waits for the end.
    """

    store: Store
    writer: Writer
    run: Run
    witness: Witness
    committed: int
    front: int = field(init=False)
    doubted: list[Span] = field(default_factory=list)
    kept: int = 0
    deadline: float | None = None

    def __post_init__(self) -> None:
        self.front = self.committed

    @property
    def period(self) -> str:
        """The period of the next part."""
        return layout.period_of(self.front, self.writer.about.partition)

    @property
    def period_end(self) -> int:
        """When the period of the next part ends, in microseconds."""
        return layout.bounds_of(self.period, self.writer.about.partition)[1]

    def note(self, incomplete: Iterable[Span], bad_rows: Iterable[BadRow]) -> None:
        """Note what the node says of rows that are taken later."""
        self.doubted += incomplete
        self.run.bad_rows |= dict.fromkeys(bad_rows)

    def take(self, part: Part, put_file: Callable[[str], None]) -> None:
        """Take the part from `front` on; `put_file` puts its file under the name that it gets."""
        remembered = self._remembered(part.end) if part.has_rows else part.end
        with uninterrupted():
            if part.has_rows:
                self._commit(part, put_file, remembered)
            self.front = part.end

    def finish(self) -> None:
        """Commit what was taken and had no rows."""
        if self.committed < self.front:
            remembered = self._remembered(self.front)
            with uninterrupted():
                self._commit(Part(self.front, self.front), _put_nothing, remembered)

    @staticmethod
    def tell_end(end: int, wanted: int) -> None:
        """Tell where the span ends, if that is short of what is wanted."""
        if end < wanted:
            known = from_microseconds(end)
            logger.warning("a node answered that knows blocks up to %s only", known)

    def _remembered(self, end: int) -> int:
        """Return from when on the node has forgotten nothing up to `end`: `end` if it can't tell.

        Not under `uninterrupted`: a node may take long to answer.
        """
        if self.deadline is None:
            return self.witness.remembered(self.committed, end)
        answer: Future[int] = Future()

        def ask() -> None:
            try:
                answer.set_result(self.witness.remembered(self.committed, end))
            except BaseException as error:  # noqa: BLE001 - it is the future's
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(max(0.0, self.deadline - time.monotonic()))
        except (TimeoutError, RequestError):
            if not self.witness.is_sure:
                raise
        logger.warning("the node does not vouch for what is kept: the next export asks again")
        return end

    def _commit(self, part: Part, put_file: Callable[[str], None], remembered: int) -> None:
        doubted = [(self.committed, min(remembered, part.end)), *self.doubted]
        run = self.run
        said = (run.source, run.block_height, run.asked_at)
        intervals: tuple[Interval, ...] = (Interval(self.committed, part.end, True, *said),)
        for begin, stop in doubted:
            start, until = max(begin, self.committed), min(stop, part.end)
            if start < until:
                intervals = covered_by(intervals, Interval(start, until, False, *said))
        # Before the coverage says that nothing is missing.
        if len(run.bad_rows) > self.kept:
            keep_bad_rows(self.store, run)
            self.kept = len(run.bad_rows)
        self.writer.put(self.period, part.note, intervals, put_file)
        self.witness.see(part.last)
        run.commits(self.committed, part.end)
        self.committed = part.end
        run.rows += part.added
        conflicts = pa.concat_tables([part.changed, _outside(part.absent, doubted)])
        if conflicts.num_rows:
            run.conflicts.append(canonical(conflicts))


@contextlib.contextmanager
def keeping(filling: Filling, finish: Callable[[], None]) -> Iterator[None]:
    """Finish after the block, also after one that failed or was interrupted.

    What is complete is worth keeping, but what went wrong is what is told.
    """
    try:
        try:
            yield
        except Exception:
            _keep(finish)
            raise
        finish()
    except BaseException as error:
        if not isinstance(error, Exception):
            filling.deadline = time.monotonic() + PATIENCE
            _keep(finish)
        raise


def _keep(finish: Callable[[], None]) -> None:
    try:
        finish()
    except (BalanceAnalysisError, OSError) as error:
        why = str(error) or "the node does not answer"
        logger.warning("the rest that is complete can't be committed: %s", why)


def _outside(rows: pa.Table, spans: Iterable[Span]) -> pa.Table:
    """Return the rows that lie in none of the spans."""
    times = rows["timestamp"].cast(pa.int64())
    for start, end in spans:
        inside = pc.and_(pc.greater_equal(times, start), pc.less(times, end))
        rows = rows.filter(pc.invert(inside))
        times = rows["timestamp"].cast(pa.int64())
    return rows


def _put_nothing(_: str) -> None:
    pass
