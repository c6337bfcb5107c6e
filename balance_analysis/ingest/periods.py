"""Commit a span to an archive, period by period in time order, wherever its rows were loaded.

Whoever loads rows, in this process or in another one, makes of them what becomes of a period; the
one writer takes it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, deferred_signals, merge, within
from balance_analysis.archive.coverage import FileEntry, Interval, covered_by
from balance_analysis.archive.datafile import NO_ROWS, encode_rows
from balance_analysis.archive.runs import Run, keep_bad_rows
from balance_analysis.archive.store import Store
from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.ingest.continuity import Continuity
from balance_analysis.load.nodes import NodePool, started
from balance_analysis.load.request import LoadRequest, Report
from balance_analysis.load.stream import Load
from balance_analysis.node.client import Client
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import Span, clipped, joined
from balance_analysis.text import moment_text, spans_text

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

logger: logging.Logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class LoadedPeriod:
    """What came of a period's share of a span; it pickles, and is small where its file is staged.

    Attributes
    ----------
    start, end
        Which share: all of [start, end), microseconds.
    note
        What the period's file is going to be; `None` where there is no row in the share, neither a
        new one nor one that the archive holds.
    content
        The file; `None` where it is staged in the archive under the name of its content.
    added
        How many rows more the file has then.
    changed, absent
        The rows that the archive holds and that came with another balance, or did not come again.
    last
        The rows of the last block that came.
    steps
        What was asked, without the rows.
    requests
        How many were sent elsewhere.
    """

    start: int
    end: int
    note: FileEntry | None = None
    content: bytes | None = None
    added: int = 0
    changed: pa.Table = field(default_factory=lambda: NO_ROWS)
    absent: pa.Table = field(default_factory=lambda: NO_ROWS)
    last: pa.Table = field(default_factory=lambda: NO_ROWS)
    steps: tuple[Step, ...] = ()
    requests: int = 0


def make_period(known: pa.Table, steps: Sequence[Step], start: int, end: int) -> LoadedPeriod:
    """Return what becomes of a period's known rows with those of steps in [start, end)."""
    bare = tuple(replace(step, batches=()).between(start, end) for step in steps)
    new = pa.Table.from_batches([each for step in steps for each in step.batches], ARROW_SCHEMA)
    new = within(new, start, end)
    if not new.num_rows and not within(known, start, end).num_rows:
        return LoadedPeriod(start, end, steps=bare)
    merged = merge(known, new, start, end)
    content, note = encode_rows(merged.rows)
    added = merged.rows.num_rows - known.num_rows
    return LoadedPeriod(
        start, end, note, content, added, merged.changed, merged.absent, _last_block(new), bare
    )


def _last_block(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    latest = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
    return canonical(within(rows, latest, latest + 1))


def load_steps(
    client: Client, request: LoadRequest, run: Run, progress: bool | Report | None = False
) -> Iterator[Step]:
    """Yield the steps of a load in time order, up to the first of a node that lags; count them."""
    load = Load(request)
    with NodePool(client, request.on_bad_rows) as pool:
        try:
            steps = load.in_time_order(load.steps(pool, progress))
            yield from _until_behind(steps, run.finished)
        finally:
            run.requests += pool.stats.requests


def _until_behind(steps: Iterable[Step], finished: tuple[str, int] | None) -> Iterator[Step]:
    """Yield steps in time order, up to the first one of a node that didn't know all of it.

    Behind one address there may be nodes of which one lags: that step ends where it does. The last
    block that a node holds may be unfinished, unless it is the one that is `Run.finished`.
    """
    for step in steps:
        known = step.known_end
        if known < step.end and (step.address, step.head) == finished:
            known += 1
        if known < step.end:
            yield step.between(step.start, known)
            return
        yield step


@dataclass(slots=True)
class SpanWriter:
    """One span on its way into the archive, period by period.

    Its rows are loaded here first, or come as periods that were loaded elsewhere; then they are
    taken; then they are in the archive. Each moment of the span is in one of these states.

    Attributes
    ----------
    store, writer, run
        Where to.
    continuity
        What tells whether the node is of the same network and has forgotten nothing; `None` where
        rows come from segments, which forget nothing.
    start, end
        What is wanted, microseconds.
    front
        Up to where periods were taken, and where the next one begins.
    loaded
        Steps that were loaded here, from `front` on.
    quiet
        Steps, up to `front`, of periods without rows: they are committed with the next period that
        has some, or at the end.
    lacking, forgotten
        Stretches of which a node says that it may lack rows; that it may have forgotten, and that
        nothing else proves.
    deadline
        Until when the node may vouch for what is kept, in seconds of `time.monotonic`; `None` where
        nobody waits for the end.
    """

    store: Store
    writer: Writer
    run: Run
    continuity: Continuity | None
    start: int
    end: int
    front: int = field(init=False)
    loaded: list[Step] = field(default_factory=list)
    quiet: list[Step] = field(default_factory=list)
    lacking: list[Span] = field(default_factory=list)
    forgotten: list[Span] = field(default_factory=list)
    deadline: float | None = None

    def __post_init__(self) -> None:
        self.front = self.start

    @property
    def committed(self) -> int:
        """Up to where the span is in the archive."""
        return self.quiet[0].start if self.quiet else self.front

    @property
    def _period(self) -> str:
        """The next period."""
        return layout.period_of(self.front, self.writer.about.partition)

    def periods(self) -> list[str]:
        """Return the periods that the span has a share of, in time order."""
        return [*layout.periods_between(self.start, self.end, self.writer.about.partition)]

    def add(self, step: Step) -> None:
        """Take the next step of a load, and each period that is complete with it."""
        self.loaded.append(step)
        self._take_periods()

    def take(self, part: LoadedPeriod) -> None:
        """Take what came of the period from `front` on; commit it, unless it is quiet."""
        steps = [*self.quiet, *(step for step in part.steps if step.start < step.end)]
        for step in part.steps:
            self.lacking += step.incomplete
            self.run.bad_rows |= dict.fromkeys(step.bad_rows)
        remembered = {} if part.note is None else self._remembered(steps, part.end)
        with deferred_signals():
            if part.note is not None:
                self._commit(part, steps, remembered)
                steps = []
            self.quiet, self.front = steps, part.end
            self.loaded = [x.between(part.end, x.end) for x in self.loaded if x.end > part.end]

    def finish(self) -> None:
        """Take the rest, and commit all."""
        self._take_periods()
        if self.loaded:
            self._take_until(self.loaded[-1].end)
        if self.quiet:
            remembered = self._remembered(self.quiet, self.front)
            with deferred_signals():
                self._commit(LoadedPeriod(self.front, self.front), self.quiet, remembered)
                self.quiet = []

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """Finish after the block, also after one that failed or was interrupted.

        What is complete is worth keeping, but what went wrong is what is told.
        """
        try:
            try:
                yield
            except Exception:
                self._keep()
                raise
            self.finish()
        except BaseException as error:
            if not isinstance(error, Exception):
                self.deadline = time.monotonic() + PATIENCE
                self._keep()
            raise

    def tell(self) -> None:
        """Tell what of the span isn't known."""
        if self.lacking:
            lacking = spans_text(joined(self.lacking))
            logger.warning("the node says that it may lack rows of %s", lacking)
        if self.forgotten:
            unproven = spans_text(joined(self.forgotten))
            logger.warning("the node may have forgotten rows of %s: unproven", unproven)
        if self.committed < self.end:
            known = moment_text(self.committed)
            logger.warning("a node answered that knows blocks up to %s only", known)

    def _take_periods(self) -> None:
        """Take each period that is loaded completely."""
        partition = self.writer.about.partition
        while self.loaded:
            _, end = layout.bounds_of(self._period, partition)
            if end > self.loaded[-1].end:
                return
            self._take_until(end)

    def _take_until(self, end: int) -> None:
        """Take what is loaded of the next period, up to a moment."""
        steps = [step for step in self.loaded if step.start < end]
        self.take(make_period(self.writer.rows_of(self._period), steps, self.front, end))

    def _keep(self) -> None:
        try:
            self.finish()
        except (BalanceAnalysisError, OSError) as error:
            why = str(error) or "the node does not answer"
            logger.warning("the rest that is complete can't be committed: %s", why)

    def _remembered(self, steps: Sequence[Step], end: int) -> dict[str, int]:
        """Return from when on each node that answered has forgotten nothing up to `end`.

        That is `end` if it can't tell. Not with signals deferred: a node may take long to answer.
        """
        sources, start = {step.source for step in steps}, steps[0].start
        continuity = self.continuity
        if continuity is None:
            return dict.fromkeys(sources, start)

        def ask() -> dict[str, int]:
            return {source: continuity.retention_start(source, start, end) for source in sources}

        if self.deadline is None:
            return ask()
        try:
            return started(ask).result(max(0.0, self.deadline - time.monotonic()))
        except (TimeoutError, RequestError):
            if not continuity.is_sure:
                raise
        logger.warning("the node does not vouch for what is kept: the next export asks again")
        return dict.fromkeys(sources, end)

    def _commit(
        self, part: LoadedPeriod, steps: Sequence[Step], remembered: dict[str, int]
    ) -> None:
        """Commit a period, and before it quiet ones."""
        run = self.run
        intervals: tuple[Interval, ...] = ()
        doubted: list[Span] = []
        for step in steps:
            said = Interval(
                step.start, step.end, True, step.address, step.block_height, run.asked_at
            )
            intervals = covered_by(intervals, said)
            forgotten = list(clipped([(step.start, remembered[step.source])], *said.span))
            for begin, stop in (*forgotten, *clipped(step.incomplete, *said.span)):
                unproven = replace(said, start=begin, end=stop, proven=False)
                intervals = covered_by(intervals, unproven)
                doubted.append((begin, stop))
            for span in forgotten:
                self.forgotten += self.writer.state.missing(*span)
        # Before the coverage says that nothing is missing.
        if any(step.bad_rows for step in steps):
            keep_bad_rows(self.store, run)
        self.writer.put(self._period, part.note, intervals, lambda name: self._put(part, name))
        if self.continuity is not None:
            self.continuity.advance(part.last)
        for interval in intervals:
            run.commits(*interval.span)
        run.rows += part.added
        conflicts = pa.concat_tables([part.changed, _outside(part.absent, doubted)])
        if conflicts.num_rows:
            run.conflicts.append(canonical(conflicts))

    def _put(self, part: LoadedPeriod, name: str) -> None:
        """Put a period's file under the name that it gets."""
        if part.content is not None:
            self.store.write(name, part.content)
        elif part.note is not None:
            self.store.move(layout.staged_file(part.note.sha256), name)


def _outside(rows: pa.Table, spans: Iterable[Span]) -> pa.Table:
    """Return the rows that lie in none of the spans."""
    for start, end in spans:
        times = rows["timestamp"].cast(pa.int64())
        rows = rows.filter(pc.or_(pc.less(times, start), pc.greater_equal(times, end)))
    return rows
