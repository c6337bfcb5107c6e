"""One span of an archive, committed period by period, with what is proven of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, deferred_signals
from balance_analysis.archive.coverage import Interval, covered_by
from balance_analysis.archive.runs import RunWriter, keep_bad_rows
from balance_analysis.archive.store import Store
from balance_analysis.errors import BalanceAnalysisError, RequestError, logger
from balance_analysis.ingest.continuity import Continuity
from balance_analysis.ingest.executor import LoadedPeriod, LoadElsewhere, PeriodTask, make_period
from balance_analysis.load.evidence import Evidence, gaps_text
from balance_analysis.load.nodes import started
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical, within
from balance_analysis.spans import Span, between, clipped
from balance_analysis.text import range_text

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""


@dataclass(slots=True)
class SpanWriter:
    """One span on its way into the archive, period by period.

    What is before `front` was taken: a period with rows is in the archive as soon as it is taken;
    those without rows since then are `quiet`, and are committed with the next one that has some, or
    at the end. What was loaded here from `front` on waits until a period of it is complete.

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
        The steps of the quiet periods, up to `front`, without rows.
    incomplete, forgotten
        Stretches of which a node says that it may lack rows; that it may have forgotten, and that
        nothing else proves.
    deadline
        Until when the node may vouch for what is kept, in seconds of `time.monotonic`; `None` where
        nobody waits for the end.
    """

    store: Store
    writer: Writer
    run: RunWriter
    continuity: Continuity | None
    start: int
    end: int
    front: int = field(init=False)
    loaded: list[Step] = field(default_factory=list)
    quiet: list[Step] = field(default_factory=list)
    incomplete: list[Span] = field(default_factory=list)
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

    def task(self, period: str, load: LoadElsewhere) -> PeriodTask:
        """Return what loads a period's share of the span elsewhere."""
        partition = self.writer.about.partition
        begin, stop = layout.period_bounds(period, partition)
        return PeriodTask(
            period,
            max(begin, self.start),
            min(stop, self.end),
            load,
            self.store,
            f"{layout.RUNS}{self.run.record.id}.json",
            layout.changes_file(period, partition),
            self.writer.state.files.get(period),
        )

    def add(self, step: Step) -> None:
        """Take the next step of a load, and each period that is complete with it."""
        self.loaded.append(step)
        self._take_loaded()

    def take(self, part: LoadedPeriod) -> None:
        """Take what came of the period from `front` on; commit it, unless it is quiet."""
        steps = [*self.quiet, *(step for step in part.steps if step.start < step.end)]
        self.run.sets_aside(bad for step in part.steps for bad in step.bad_rows)
        evidence = None if part.note is None else self._evidence_of(steps)
        with deferred_signals():
            if evidence is not None:
                self._commit(part, steps, evidence)
                steps = []
            self.quiet, self.front = steps, part.end
            self.loaded = [x.between(part.end, x.end) for x in self.loaded if x.end > part.end]

    def finish(self) -> None:
        """Take the rest, and commit all."""
        self._take_loaded(with_rest=True)
        if self.quiet:
            evidence = self._evidence_of(self.quiet)
            with deferred_signals():
                self._commit(LoadedPeriod(self.front, self.front), self.quiet, evidence)
                self.quiet = []

    @contextmanager
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
        """Warn of what of the span isn't known."""
        until = self.committed if self.committed < self.end else None
        if why := gaps_text(self.incomplete, self.forgotten, until):
            span = range_text(self.start, self.end)
            logger.warning("the archive is not known to be complete for all of %s: %s", span, why)

    def _take_loaded(self, *, with_rest: bool = False) -> None:
        """Take each period that is loaded completely; with the rest, all that is loaded."""
        partition = self.writer.about.partition
        while self.loaded:
            end, reached = layout.period_bounds(self._period, partition)[1], self.loaded[-1].end
            if reached < end and not with_rest:
                return
            end = min(end, reached)
            steps = [step for step in self.loaded if step.start < end]
            self.take(make_period(self.writer.rows_of(self._period), steps, self.front, end))

    def _keep(self) -> None:
        try:
            self.finish()
        except (BalanceAnalysisError, OSError) as error:
            why = str(error) or "the node does not answer"
            logger.warning("the rest of what is complete can't be committed: %s", why)

    def _evidence_of(self, steps: Sequence[Step]) -> Evidence:
        """Return what steps prove, by what each node that answered may have forgotten.

        Not with signals deferred: a node may take long to answer.
        """
        continuity, sources = self.continuity, {step.source for step in steps}
        start, end = steps[0].start, steps[-1].end
        if continuity is None:
            return Evidence.of(steps, dict.fromkeys(sources, start))

        def ask() -> dict[str, int]:
            return {source: continuity.retention_start(source, start, end) for source in sources}

        if self.deadline is None:
            return Evidence.of(steps, ask())
        try:
            in_time = max(0.0, self.deadline - time.monotonic())
            return Evidence.of(steps, started(ask).result(in_time))
        except (TimeoutError, RequestError):
            if not continuity.is_sure:
                raise
        logger.warning("the node doesn't vouch for what is kept; the next export asks for it again")
        return Evidence.of(steps, {})

    def _commit(self, part: LoadedPeriod, steps: Sequence[Step], evidence: Evidence) -> None:
        """Commit a period, and before it quiet ones, with what their steps prove."""
        run, proven = self.run, evidence.proven()
        intervals: tuple[Interval, ...] = ()
        for step in steps:
            asked = Interval(
                step.start, step.end, True, step.address, step.block_height, run.asked_at
            )
            for start, end in clipped(proven, *asked.span):
                intervals = covered_by(intervals, replace(asked, start=start, end=end))
            for start, end in between(proven, *asked.span):
                unproven = replace(asked, start=start, end=end, proven=False)
                intervals = covered_by(intervals, unproven)
        self.incomplete += evidence.incomplete
        for span in evidence.forgotten():
            self.forgotten += self.writer.state.missing(*span)
        # Before the coverage says that nothing is missing.
        if any(step.bad_rows for step in steps):
            keep_bad_rows(self.store, run)
        self.writer.put(self._period, part.note, intervals, lambda name: self._put(part, name))
        if self.continuity is not None:
            self.continuity.advance(part.last)
        for interval in intervals:
            run.commits(*interval.span)
        run.record.rows += part.added
        # A row that isn't sent again was none only where all rows were sent.
        absent = [within(part.absent, *span) for span in proven]
        conflicts = pa.concat_tables([part.changed, *absent])
        if conflicts.num_rows:
            run.replaces(canonical(conflicts))

    def _put(self, part: LoadedPeriod, name: str) -> None:
        """Put a period's file under the name that it gets."""
        if part.content is not None:
            self.store.write(name, part.content)
        elif part.note is not None:
            self.store.move(layout.staged_file(part.note.sha256), name)
