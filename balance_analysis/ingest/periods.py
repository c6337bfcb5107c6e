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
from balance_analysis.archive.commit import merge, uninterrupted, within
from balance_analysis.archive.coverage import Interval, covered_by
from balance_analysis.archive.datafile import encode_rows
from balance_analysis.archive.runs import keep_bad_rows
from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA, from_microseconds
from balance_analysis.spans import clipped, joined
from balance_analysis.text import spans_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from balance_analysis.archive.commit import Writer
    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.runs import Run
    from balance_analysis.archive.store import Store
    from balance_analysis.ingest.continuity import Witness
    from balance_analysis.node.decode import BadRow
    from balance_analysis.node.walk import Step
    from balance_analysis.spans import Span

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class Answered:
    """What one node answered without a break: all of [start, end), microseconds.

    Attributes
    ----------
    start, end
        Which stretch.
    source, address
        The node: as it was asked, and as what it answered, after redirects.
    block_height
        The last block that it held, at the answer that knew least; `None` where it didn't say.
    """

    start: int
    end: int
    source: str
    address: str
    block_height: int | None


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
    answered
        Which node answered what.
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
    answered: tuple[Answered, ...] = ()
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
        known = step.known_end
        if known < step.end and (step.address, step.head) == finished:
            known += 1
        if known == step.end:
            yield step
            continue
        yield step.until(known)
        return


def answered_by(steps: Iterable[Step]) -> tuple[Answered, ...]:
    """Return which node answered what, of steps in time order."""
    found: list[Answered] = []
    for step in steps:
        each = Answered(step.start, step.end, step.source, step.address, step.block_height)
        if found and (found[-1].end, found[-1].source) == (each.start, each.source):
            before = found.pop()
            heights = (before.block_height, each.block_height)
            least = min((height for height in heights if height is not None), default=None)
            each = replace(each, start=before.start, block_height=least)
        found.append(each)
    return tuple(found)


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
    answered
        Which node answered what is taken later or not committed yet.
    doubted
        Stretches of which a node says that it may lack rows.
    forgotten
        Stretches that a node may have forgotten, and that nothing else proves.
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
    answered: list[Answered] = field(default_factory=list)
    doubted: list[Span] = field(default_factory=list)
    forgotten: list[Span] = field(default_factory=list)
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

    def note(self, what: Step | Part) -> None:
        """Note what is said of rows that are taken later."""
        self.answered += what.answered if isinstance(what, Part) else answered_by([what])
        self.doubted += what.incomplete
        self.run.bad_rows |= dict.fromkeys(what.bad_rows)

    def take(self, part: Part, put_file: Callable[[str], None]) -> None:
        """Take the part from `front` on; `put_file` puts its file under the name that it gets."""
        remembered = self._remembered(part.end) if part.has_rows else {}
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

    def tell(self, wanted: int) -> None:
        """Tell what of the span, up to where it is wanted, isn't known."""
        if self.doubted:
            lacking = spans_text(joined(self.doubted))
            logger.warning("the node says that it may lack rows of %s", lacking)
        if self.forgotten:
            unproven = spans_text(joined(self.forgotten))
            logger.warning("the node may have forgotten rows of %s: unproven", unproven)
        if self.committed < wanted:
            known = from_microseconds(self.committed)
            logger.warning("a node answered that knows blocks up to %s only", known)

    def _remembered(self, end: int) -> dict[str, int]:
        """Return from when on each node that answered has forgotten nothing up to `end`.

        That is `end` if it can't tell. Not under `uninterrupted`: a node may take long to answer.
        """
        sources = dict.fromkeys(each.source for each in self.answered if each.start < end)

        def ask() -> dict[str, int]:
            return {
                source: self.witness.remembered(source, self.committed, end) for source in sources
            }

        if self.deadline is None:
            return ask()
        answer: Future[dict[str, int]] = Future()

        def ask_beside() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - it is the future's
                answer.set_exception(error)

        threading.Thread(target=ask_beside, daemon=True).start()
        try:
            return answer.result(max(0.0, self.deadline - time.monotonic()))
        except (TimeoutError, RequestError):
            if not self.witness.is_sure:
                raise
        logger.warning("the node does not vouch for what is kept: the next export asks again")
        return dict.fromkeys(sources, end)

    def _commit(
        self, part: Part, put_file: Callable[[str], None], remembered: dict[str, int]
    ) -> None:
        answered = [each for each in self.answered if each.start < part.end]
        run = self.run
        intervals: tuple[Interval, ...] = ()
        doubted = list(clipped(self.doubted, self.committed, part.end))
        for each in answered:
            start, end = max(each.start, self.committed), min(each.end, part.end)
            said = (each.address, each.block_height, run.asked_at)
            intervals = covered_by(intervals, Interval(start, end, True, *said))
            forgotten = list(clipped([(start, remembered[each.source])], start, end))
            for begin, until in (*forgotten, *clipped(self.doubted, start, end)):
                intervals = covered_by(intervals, Interval(begin, until, False, *said))
            for gap in forgotten:
                self.forgotten += self.writer.state.missing(*gap)
            doubted += forgotten
        # Before the coverage says that nothing is missing.
        if len(run.bad_rows) > self.kept:
            keep_bad_rows(self.store, run)
            self.kept = len(run.bad_rows)
        self.writer.put(self.period, part.note, intervals, put_file)
        self.witness.see(part.last)
        for interval in intervals:
            run.commits(*interval.span)
        self.committed = part.end
        self.answered = [each for each in self.answered if each.end > part.end]
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
