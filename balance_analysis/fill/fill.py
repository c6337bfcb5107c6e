"""Fill an archive from a source of rows, a period at a time.

A period is committed as soon as all of its rows have come, so a run that is cut off keeps what it
committed. A node is asked what it may have forgotten once, after the rows: until then they are
unproven, and what a killed run leaves unproven the next run asks for again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Merged, Writer, merge_rows, moments_of
from balance_analysis.archive.datafile import NO_ROWS, encode_rows
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import (
    Query,
    check_bound,
    lost_files,
    partition_of,
)
from balance_analysis.archive.runs import Kind, Run, RunWriter, keep_bad_rows, reported
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import BalanceAnalysisError, NetworkMismatchError, logger
from balance_analysis.evidence import Evidence, SetAside
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import FilterKeywords
from balance_analysis.load.request import Report, reporting
from balance_analysis.node.reach import started
from balance_analysis.node.walk import Step
from balance_analysis.rows import accounts_in, canonical, within
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import EVER, Span, between, joined
from balance_analysis.text import range_text, spans_text

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

_MOST_DOUBTS: Final = 1000
"""Rows on which two answers differ that the evidence names one by one."""

_LONG: Final = 30.0
"""Seconds after which a run that goes on asks the node again what it may have forgotten."""


class Source(Protocol):
    """Where rows come from, and what proves them."""

    def rows(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield all rows in [start, end), in time order."""

    def answered(self, start: int, end: int) -> Evidence:
        """Return the evidence for the rows so far in [start, end), without asking anything."""

    def evidence(self) -> Evidence:
        """Return the evidence for all rows so far; a node is asked for its reach."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run does.

    Attributes
    ----------
    source
        Where the rows come from.
    plan
        Returns the stretches to ask for.
    finish
        Keeps what came besides rows.
    check
        Returns whether the source has rows of the archive, where no stretch shows it; raises
        NetworkMismatchError if it reaches over them and has none.
    last_block
        Returns the last block of a chain that rests, if a stretch ended before it.
    """

    source: Source
    plan: Callable[[Writer], Sequence[Span]]
    finish: Callable[[Writer], None]
    check: Callable[[Writer], bool] = lambda _: False
    last_block: Callable[[], Step | None] = lambda: None


class FillKeywords(FilterKeywords, total=False):
    """What functions take that fill an archive, and hand to `fill`."""

    partition: layout.Partition | None
    progress: bool | Report | None
    dry_run: bool
    on_report: Callable[[Run], object] | None


def fill(
    archive: Stored | PathLike,
    make_job: Callable[[Store, Query, RunWriter], Job],
    kind: Kind,
    *,
    partition: layout.Partition | None = None,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
    **filters: Any,  # noqa: ANN401 - FilterKeywords
) -> Run:
    """Bring an archive up to date with a source: see `export` and `import_segments`."""
    store = to_store(archive)
    accounts = sidecars.make_archive_filters(store, filters).sorted()  # type: ignore[arg-type]
    query = Query(accounts, partition_of(store, partition))
    is_new, run = check_bound(store, query), RunWriter(Run(kind=kind))
    job = make_job(store, query, run)
    if dry_run:
        for span in job.plan(Writer(store, query)):
            run.asks(*span)
        return run.result()
    with one_writer(store):
        is_new = check_bound(store, query)
        writer = Writer(store, query)
        # A source that fails at once leaves no archive that is bound to its query.
        spans = job.plan(writer) if is_new else None
        if is_new:
            writer.amend(writer.manifest)
        with reported(store, writer, run, on_report):
            writer.recover()
            spans = job.plan(writer) if spans is None else spans
            fill_spans(store, writer, job, run, spans, progress)
            job.finish(writer)
            writer.checkpoint()
            damaged = run.record.damaged
            damaged += [x for x in lost_files(store, writer.manifest) if x not in damaged]
    return run.record


def fill_spans(  # noqa: PLR0917 - as a run has them
    store: Store,
    writer: Writer,
    job: Job,
    run: RunWriter,
    spans: Sequence[Span],
    progress: bool | Report | None = False,
) -> None:
    """Ask the source of a job for stretches, and commit what comes."""
    filler = _Filler(store, writer, job, run)
    total, done, rows = sum(end - start for start, end in spans), 0, 0
    if not spans:
        filler.check()
    for span in spans:
        run.asks(*span)
    with reporting(progress) as report:
        try:
            # First those that show whether the source is of the archive's network.
            for start, end in sorted(spans, key=filler.is_beyond_rows):
                with contextlib.closing(filler.take(start, end)) as steps:
                    for step in steps:
                        rows += step.num_rows
                        report((done + step.end - start) / total, rows)
                done += end - start
            filler.prove()
        except BaseException as error:
            filler.keep(patience=None if isinstance(error, Exception) else PATIENCE)
            raise
    gaps = [gap for span in spans for gap in writer.manifest.evidence.incomplete(*span)]
    if gaps:
        logger.warning(
            "the archive is not complete for %s: the node may have forgotten rows, or doesn't hold "
            "all of them yet",
            spans_text(joined(gaps)),
        )


@dataclass(slots=True)
class _Filler:
    """Rows on their way into an archive.

    Attributes
    ----------
    store, writer, job, run
        As of `fill_spans`.
    before
        The evidence before the run.
    begin, front
        From where on the manifest has no evidence of the stretch, and up to where it is committed.
    waiting
        Steps from `front` on.
    committed
        The stretches that are committed.
    changed, absent
        Rows that the archive held: those that came with another balance, and those that didn't
        come.
    contradicted
        Rows that came, and that an earlier complete answer has otherwise, or lacks.
    is_known, is_checked
        Whether the source is known to be of the archive's network; whether it was checked.
    proven_at
        When the source was asked last what it may have forgotten, in seconds of a clock.
    """

    store: Store
    writer: Writer
    job: Job
    run: RunWriter
    before: Evidence = field(init=False)
    begin: int = 0
    front: int = 0
    waiting: list[Step] = field(default_factory=list)
    committed: list[Span] = field(default_factory=list)
    changed: pa.Table = field(default_factory=lambda: NO_ROWS)
    absent: pa.Table = field(default_factory=lambda: NO_ROWS)
    contradicted: pa.Table = field(default_factory=lambda: NO_ROWS)
    is_known: bool = False
    is_checked: bool = False
    proven_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.before = self.writer.manifest.evidence
        self.is_known = not self.writer.manifest.files

    def is_beyond_rows(self, span: Span) -> bool:
        """Whether the archive has no rows near a stretch."""
        files = self.writer.manifest.files.values()
        return not any(file.first < span[1] and span[0] <= file.last for file in files)

    def check(self) -> None:
        """Check once, by a row that no stretch asks for, that the source isn't a stranger."""
        if not (self.is_known or self.is_checked):
            self.is_checked, self.is_known = True, self.job.check(self.writer)

    def take(self, start: int, end: int) -> Generator[Step, None, None]:
        """Take the rows of a stretch, and commit each period that is complete."""
        self.begin = self.front = start
        self.waiting.clear()
        partition = self.writer.manifest.partition
        period = layout.period_of(start, partition)
        stop = min(end, layout.period_bounds(period, partition)[1])
        if not within(self.writer.rows_of(period), start, stop).num_rows:
            self.check()
        known = end
        with contextlib.closing(self.job.source.rows(start, end)) as steps:
            for step in steps:
                part = step.between(step.start, step.known_end)
                self._add(part)
                yield part
                if part.end < step.end:
                    # The node holds no later block: further answers would be as empty.
                    known = part.end
                    break
        last = self.job.last_block() if known < end else None
        if last is not None and last.start == known:
            self._add(last)
        self._commit_periods(with_rest=True)

    def _add(self, step: Step) -> None:
        self.waiting.append(step)
        self._commit_periods()

    def keep(self, patience: float | None) -> None:
        """Commit what is complete, and prove it if the source answers in time.

        The error that ended the run is the one to report, so one in here is only logged.
        """
        try:
            self._commit_periods(with_rest=True)
            self._join(self._proof(patience))
        except (BalanceAnalysisError, OSError) as error:
            logger.warning("what came last isn't kept: %s", error)

    def _proof(self, patience: float | None) -> Evidence:
        """Return the source's evidence; if it doesn't answer in time, what it answered so far."""
        try:
            return started(self.job.source.evidence).result(patience)
        except (BalanceAnalysisError, TimeoutError) as error:
            why = str(error) or "the node doesn't answer"
            logger.warning("what came last stays unproven until the next export: %s", why)
            return self.job.source.answered(*EVER)

    def prove(self) -> None:
        """Ask the source what it may have forgotten, and note what is proven."""
        self._join(self.job.source.evidence())
        self.proven_at = time.monotonic()

    def _commit_periods(self, *, with_rest: bool = False) -> None:
        """Commit each period that has come completely; with the rest, all that has come."""
        partition = self.writer.manifest.partition
        while self.waiting:
            period, reached = layout.period_of(self.front, partition), self.waiting[-1].end
            _, end = layout.period_bounds(period, partition)
            if reached < end and not with_rest:
                return
            stop = min(end, reached)
            steps = [step.between(self.front, stop) for step in self.waiting if step.start < stop]
            self._commit(period, steps, stop)
            self.waiting = [x.between(stop, x.end) for x in self.waiting if x.end > stop]
            if time.monotonic() - self.proven_at > _LONG:
                self.prove()

    def _commit(self, period: str, steps: list[Step], stop: int) -> None:
        """Commit the rows of a period in [front, stop)."""
        batches = [batch for step in steps for batch in step.batches]
        new, known = pa.Table.from_batches(batches, ARROW_SCHEMA), self.writer.rows_of(period)
        merged = merge_rows(known, new, self.front, stop)
        if not self.is_known:
            self._check_network(within(known, self.front, stop), merged)
        # Before the manifest says that nothing is missing.
        self.run.sets_aside(bad for step in steps for bad in step.bad_rows)
        if self.run.bad_rows:
            keep_bad_rows(self.store, self.run)
        if new.num_rows:
            other = pa.concat_tables([merged.added, merged.changed])
            doubted = _inside(other, self.before.complete)
            self.contradicted = pa.concat_tables([self.contradicted, doubted])
            answered = self.job.source.answered(self.begin, stop)
            evidence = _doubting(self.writer.manifest.evidence | answered, doubted)
            agreed = _inside(other, [span for span, _ in self.before.agreed])
            evidence = evidence.without_agreement(moments_of(agreed))
            self.writer.put(period, encode_rows(merged.rows), evidence)
            self.run.record.rows += merged.added.num_rows
            self.changed = pa.concat_tables([self.changed, merged.changed])
            self.begin = stop
        self.absent = pa.concat_tables([self.absent, merged.absent])
        self.committed = joined([*self.committed, (self.front, stop)])
        self.front = stop

    def _check_network(self, held: pa.Table, merged: Merged) -> None:
        """Raise if none of the rows that the archive holds came, though the node reaches there."""
        self.is_known = held.num_rows > merged.conflicts.num_rows
        if not held.num_rows:
            self.check()
        elif (
            not self.is_known
            and (due := _inside(merged.absent, self.job.source.evidence().complete)).num_rows
        ):
            first, last = pc.min_max(due["timestamp"].cast(pa.int64())).as_py().values()
            raise NetworkMismatchError(
                f"{self.store.uri} has rows from {range_text(first, last + 1)}, and the node sent "
                "none of them: it is of another network, or has lost rows"
            )

    def _join(self, found: Evidence) -> None:
        """Note what the source proves of what is committed, and which rows are disputed."""
        proof = found.clipped(self.committed)
        evidence = self.writer.manifest.evidence | proof
        missed = _inside(self.absent, proof.complete)
        for rows, by in ((self.contradicted, self.before), (missed, proof)):
            evidence = _doubting(evidence, rows)
            for span in moments_of(rows):
                answer, newer = by.answer_at(span[0]), evidence.answer_at(span[0])
                older = self.before.answer_at(span[0])
                if answer and newer and older and older.node != newer.node:
                    evidence = evidence.with_words(answer.node, [span], [span])
        self.writer.prove(evidence)
        conflicts = pa.concat_tables([self.changed, missed])
        if conflicts.num_rows:
            self.run.replaces(canonical(conflicts))
        self.absent = _inside(self.absent, between(proof.complete, *EVER))
        self.changed = self.contradicted = NO_ROWS
        for span in self.committed:
            self.run.commits(*span)


def _inside(rows: pa.Table, spans: Sequence[Span]) -> pa.Table:
    """Return the rows in some stretches."""
    return pa.concat_tables([NO_ROWS, *(within(rows, *span) for span in joined(spans))])


def _doubting(evidence: Evidence, rows: pa.Table) -> Evidence:
    """Return evidence that proves nothing of rows on which two answers differ.

    The next answer that reaches over their moments, and has the same rows, proves them.
    """
    spans = moments_of(rows)
    if rows.num_rows > _MOST_DOUBTS:
        doubts = [SetAside((spans[0][0], spans[-1][1]))]
    else:
        times = rows["timestamp"].cast(pa.int64()).to_pylist()
        pairs = zip(times, accounts_in(rows), strict=True)
        doubts = [SetAside((time, time + 1), account) for time, account in pairs]
    return replace(evidence, set_aside=tuple(dict.fromkeys([*evidence.set_aside, *doubts])))
