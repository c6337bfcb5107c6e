"""Fill an archive from a source of rows, a period at a time: a node, or segments.

A source says what to ask for and loads it, here in one stream or elsewhere by periods. Either way
periods are committed by this process, in time order, so what was loaded is never lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, Unpack

import pyarrow as pa

from balance_analysis.archive import layout, manifest, network
from balance_analysis.archive.commit import Writer, deferred_signals
from balance_analysis.archive.coverage import Coverage, Interval, covered_by
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.runs import Kind, Run, RunReport, keep_bad_rows, reported
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import BalanceAnalysisError, RequestError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import FilterKeywords
from balance_analysis.ingest.continuity import Continuity
from balance_analysis.ingest.executor import (
    Executor,
    LoadedPeriod,
    LoadElsewhere,
    PeriodTask,
    Pool,
    load_period,
    make_period,
)
from balance_analysis.load.evidence import Evidence, gaps_text
from balance_analysis.load.nodes import started
from balance_analysis.load.request import Report, reporting
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical, within
from balance_analysis.spans import Span, between, clipped
from balance_analysis.text import range_text

if TYPE_CHECKING:
    from distributed import Client as Cluster

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

_AHEAD: Final = 8
"""How many times as many parts as are loaded at once may be done before their turn has come."""


class RowSource(Protocol):
    """Where the rows of an archive come from."""

    @property
    def run(self) -> Run:
        """What the run did so far."""

    @property
    def kind(self) -> Kind:
        """What a run is called that fills an archive from it."""

    def spans(self, state: Coverage) -> list[Span]:
        """Return what to ask for beside what an archive holds, in time order."""

    def opened(
        self, writer: Writer, spans: Sequence[Span]
    ) -> AbstractContextManager[Continuity | None]:
        """Check that it is of the archive's network; keep, in the end, what comes with the rows.

        What is given tells what a node may have forgotten, for a source that forgets.
        """

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Load all of a span here; yield its steps in time order."""

    def elsewhere(self, width: int) -> tuple[LoadElsewhere, int | None]:
        """Return what loads a part of a span elsewhere, and how many may at once, if that counts.

        `width` is how many tasks the executor runs at once.
        """

    def note_committed(self, until: int) -> None:
        """Note up to where the rows of the present span are committed."""


class FillKeywords(FilterKeywords, total=False):
    """What functions take that fill an archive, and hand to `fill`."""

    partition: Partition | None
    progress: bool | Report | None
    dry_run: bool
    on_report: Callable[[RunReport], object] | None
    executor: Executor | Cluster | None


def fill(
    archive: Stored | PathLike,
    make_source: Callable[[Store, manifest.ArchiveSpec], RowSource],
    *,
    partition: Partition | None = None,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[RunReport], object] | None = None,
    executor: Executor | Cluster | None = None,
    **filters: Unpack[FilterKeywords],
) -> Run:
    """Bring an archive up to date with a source, as `export` and `import_segments` tell."""
    store = to_store(archive)
    pool = None if executor is None else Pool.of(executor)
    accounts = network.make_archive_filters(store, filters).sorted()
    about = manifest.ArchiveSpec(accounts, manifest.partition_of(store, partition))
    source = make_source(store, about)
    run = source.run
    is_new = manifest.check_bound(store, about)
    if dry_run:
        for span in source.spans(Coverage() if is_new else read_snapshot(store).coverage):
            run.asks(*span)
        return run
    with one_writer(store):
        spans = None
        if manifest.check_bound(store, about):
            # A source that fails must not leave an archive that is bound to its query.
            spans = source.spans(Coverage())
            manifest.write_about(store, about)
        writer = Writer(store)
        with reported(store, writer, run, on_report, kind=source.kind):
            writer.recover()
            spans = source.spans(writer.state) if spans is None else spans
            with source.opened(writer, spans) as continuity:
                writers = [SpanWriter(store, writer, run, continuity, *span) for span in spans]
                _fill_spans(source, writers, pool, progress)
                writer.checkpoint()
            lost = manifest.lost_files(store, writer.about, writer.state)
            run.damaged += [name for name in lost if name not in run.damaged]
    return run


def _fill_spans(
    source: RowSource, spans: list[SpanWriter], pool: Pool | None, progress: bool | Report | None
) -> None:
    run, total = source.run, sum(span.end - span.start for span in spans)
    done = rows = 0
    with ExitStack() as stack:
        report = stack.enter_context(reporting(progress))
        parts = None
        if pool is not None:
            load, at_once = source.elsewhere(pool.width)
            parts = stack.enter_context(closing(_load_on(pool, load, spans, at_once)))
        for span in spans:
            run.asks(span.start, span.end)
            new_rows, requests = run.rows, run.requests
            try:
                with span.finishing():
                    taken = _load_here(source, span) if parts is None else _take(parts, span)
                    for end, count in taken:
                        rows += count
                        source.note_committed(span.committed)
                        report((done + end - span.start) / total, rows)
            finally:
                source.note_committed(span.committed)
            span.tell()
            new_rows, requests = run.rows - new_rows, run.requests - requests
            logger.info("%d new rows in %d requests", new_rows, requests)
            done += span.end - span.start


def _load_here(source: RowSource, span: SpanWriter) -> Iterator[tuple[int, int]]:
    """Load a span here, and take each period that is complete; yield how far it is, and rows."""
    for step in source.steps(span.start, span.end):
        span.add(step)
        yield step.end, step.num_rows


def _take(parts: Iterator[LoadedPeriod], span: SpanWriter) -> Iterator[tuple[int, int]]:
    """Take what comes next: the periods of a span that were loaded elsewhere; yield likewise."""
    for _ in span.periods():
        part = next(parts)
        span.run.stats.add(requests=part.requests)
        if part.start == span.front:  # or a node that lags ended a period before early
            span.take(part)
            yield part.end, part.added


def _load_on(
    pool: Pool, load: LoadElsewhere, spans: Iterable[SpanWriter], at_once: int | None
) -> Generator[LoadedPeriod]:
    """Yield what comes of the periods of spans, in time order: all are loaded side by side.

    Each must have been taken when the next one is asked for.
    """
    taken = 0

    def ready() -> Iterator[PeriodTask | None]:
        """Yield tasks; `None` as long as the next one's file waits for a share before it."""
        waits: dict[str, int] = {}
        shares = ((span, period) for span in spans for period in span.periods())
        for number, (span, period) in enumerate(shares, 1):
            while waits.get(period, 0) > taken:
                yield None
            waits[period] = number
            yield span.task(period, load)

    with closing(pool.map(load_period, ready(), at_once, ahead=_AHEAD)) as parts:
        for part in parts:
            yield part
            taken += 1


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
    run: Run
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
            f"{layout.RUNS}{self.run.id}.json",
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
        self.run.bad_rows |= {bad: None for step in part.steps for bad in step.bad_rows}
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
        run.rows += part.added
        # A row that isn't sent again was none only where all rows were sent.
        absent = [within(part.absent, *span) for span in proven]
        conflicts = pa.concat_tables([part.changed, *absent])
        if conflicts.num_rows:
            run.conflicts.append(canonical(conflicts))

    def _put(self, part: LoadedPeriod, name: str) -> None:
        """Put a period's file under the name that it gets."""
        if part.content is not None:
            self.store.write(name, part.content)
        elif part.note is not None:
            self.store.move(layout.staged_file(part.note.sha256), name)
