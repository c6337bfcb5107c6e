"""Fill an archive from a source of rows, period by period.

A period is committed as soon as all of its rows have arrived, so an interrupted run keeps what
it committed. Rows stay unproven until the source gives evidence for them. The next run asks again
for whatever a killed run left unproven.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import pyarrow as pa

from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Merged, Writer, merge_rows, moments_of
from balance_analysis.archive.datafile import NO_ROWS, encode_rows
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import BoundQuery, bound_manifest, lost_files, partition_of
from balance_analysis.archive.runs import Run, RunWriter
from balance_analysis.archive.store import Store
from balance_analysis.errors import (
    ArchiveDamagedError,
    BalanceAnalysisError,
    NetworkMismatchError,
    logger,
)
from balance_analysis.load.arguments import OnProgress, reporting
from balance_analysis.node.reach import call_in_thread
from balance_analysis.node.walk import Step
from balance_analysis.table.evidence import Evidence, SetAside
from balance_analysis.table.filters import make_filters
from balance_analysis.table.moments import EVER, Span, gaps_in, joined, range_text
from balance_analysis.table.names import Names
from balance_analysis.table.schema import ARROW_SCHEMA, accounts_in, canonical, within
from balance_analysis.table.text import spans_text

PATIENCE: Final = 3.0
"""Seconds to wait for a source to prove the rows that a cut-off run keeps."""

_MOST_DOUBTS: Final = 1000
"""Maximum differing rows that the evidence lists one by one."""

SECONDS_TO_PROOF: Final = 30.0
"""Seconds after which a run asks its source for evidence again."""


class Source(Protocol):
    """A source of rows, and of the evidence for them."""

    def plan(self, writer: Writer) -> list[Span]:
        """Return the stretches to ask for, in time order."""

    def check(self, writer: Writer) -> bool:
        """Return whether it has rows of the archive; called if no planned stretch can show that.

        Raises
        ------
        NetworkMismatchError
            If it reaches over the archive's rows, but has none of them.
        """

    def steps(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield all rows that it has in [start, end), in time order."""

    def evidence(self) -> Evidence:
        """Return the evidence for all rows so far; a node may be asked more to prove them."""

    def answered(self) -> Evidence:
        """Return the evidence for all rows so far, without asking the source."""
        return self.evidence()

    def finish(self, writer: Writer) -> None:
        """Write names and limits that came with the rows."""


def bind(
    store: Store, partition: layout.Partition | None, names: Names, ids: tuple[Any, ...]
) -> BoundQuery:
    """Return the query of an archive, or of a new one; ArchiveError if it is bound to another.

    `ids` are the requested asset, parties, markets and account types. `names` replace the
    archive's.
    """

    def known() -> Names:
        archived = sidecars.read_archive_names(store)
        return archived.overridden_by(names.assets or None, names.labels or None)

    filters = make_filters(*ids, names=known)
    query = BoundQuery(filters.sorted(), partition_of(store, partition))
    bound_manifest(store, query)
    return query


def fill(
    store: Store,
    query: BoundQuery,
    source: Source,
    run: RunWriter,
    *,
    progress: bool | OnProgress | None,
    dry_run: bool,
    on_report: Callable[[Run], object] | None,
) -> Run:
    """Bring an archive up to date with a source: see `export` and `import_segments`."""
    if dry_run:
        run.note_asked(source.plan(Writer(store, query)))
        run.note_requests()
        return run.record
    with one_writer(store):
        is_new = not store.has(layout.MANIFEST)
        writer, spans = Writer(store, query), list[Span]()
        if is_new:
            # Plan first: a source that fails at once must not leave an archive bound to its query.
            spans = source.plan(writer)
            writer.write_manifest(writer.manifest)
        with run.reported(writer, on_report):
            writer.recover()
            spans = spans if is_new else source.plan(writer)
            filler = _Filler(writer, source, run)
            filler.take_all(spans, progress)
            source.finish(writer)
            if filler.damage is not None:
                raise filler.damage
            writer.write_checkpoints()
            damaged = run.record.damaged
            damaged += [x for x in lost_files(store, writer.manifest) if x not in damaged]
    return run.record


class _Filler:
    """Fill an archive with rows as they arrive.

    Parameters
    ----------
    writer, source, run
        The archive's writer, the source, and the run's record.

    Attributes
    ----------
    before
        The evidence before the run.
    begin, front
        The start of the time without evidence in the manifest, and the end of the committed rows.
    waiting
        Steps from `front` on.
    committed
        The committed stretches.
    absent, missed
        Rows of the archive that weren't received again, and those of them that the source provably
        lacks.
    contradicted
        Received rows that an earlier complete answer lacks or has with another balance.
    is_known
        Whether the source is known to be of the archive's network; `None` before the check.
    proven_at
        When the source was last asked for evidence (in seconds of a monotonic clock).
    damage
        The error of the last damaged file, which ends the run once other periods are committed.
    """

    def __init__(self, writer: Writer, source: Source, run: RunWriter) -> None:
        self.writer, self.source, self.run = writer, source, run
        self.before = writer.manifest.evidence
        self.begin = self.front = 0
        self.waiting: list[Step] = []
        self.committed: list[Span] = []
        self.absent = self.missed = self.contradicted = NO_ROWS
        self.is_known = None if writer.manifest.files else True
        self.proven_at = time.monotonic()
        self.damage: ArchiveDamagedError | None = None

    def take_all(self, spans: Sequence[Span], progress: bool | OnProgress | None) -> None:
        """Ask for stretches, commit each complete period, and record the evidence for it."""
        total, done, rows = sum(end - start for start, end in spans), 0, 0
        if not spans:
            self.check()
        self.run.note_asked(spans)
        with reporting(progress) as report:
            try:
                # Begin with stretches that show whether the source is of the archive's network.
                for start, end in sorted(spans, key=self.is_beyond_rows):
                    self.begin = self.front = start
                    with contextlib.closing(self.source.steps(start, end)) as steps:
                        for step in steps:
                            self.waiting.append(step)
                            self._commit_periods()
                            rows += step.num_rows
                            report((done + step.end - start) / total, rows)
                    self._commit_periods(with_rest=True)
                    done += end - start
                self._join(self.source.evidence())
            except BaseException:
                self.keep()
                raise
        evidence = self.writer.manifest.evidence
        if gaps := joined(gap for span in spans for gap in evidence.incomplete(*span)):
            logger.warning(
                "the archive is not complete for %s: the source may have forgotten rows, may not "
                "have all of them yet or contradicts earlier ones, or a bad row was set aside",
                spans_text(gaps),
            )

    def is_beyond_rows(self, span: Span) -> bool:
        """Return whether the archive has no rows near a stretch."""
        files = self.writer.manifest.files.values()
        return not any(file.first < span[1] and span[0] <= file.last for file in files)

    def check(self) -> None:
        """Check once, by a row outside the stretches, that the source is of the same network."""
        if self.is_known is None:
            self.is_known = self.source.check(self.writer)

    def keep(self) -> None:
        """Commit what is complete, with evidence if the source answers in time.

        An error here is only logged, because the caller reports the error that ended the run.
        """
        try:
            # The error may have interrupted a commit.
            self.writer.recover()
            self._commit_periods(with_rest=True)
            self._join(self.source.answered())
            self._join(call_in_thread(self.source.evidence).result(PATIENCE))
        except (BalanceAnalysisError, OSError) as error:
            why = str(error) or "the node doesn't answer"
            logger.warning("the next run must ask for the last rows again: %s", why)

    def _commit_periods(self, *, with_rest: bool = False) -> None:
        """Commit each period that has fully arrived; with the rest, everything that has arrived."""
        partition = self.writer.manifest.partition
        while self.waiting:
            period, reached = layout.period_of(self.front, partition), self.waiting[-1].end
            _, end = layout.period_bounds(period, partition)
            if reached < end and not with_rest:
                return
            stop = min(end, reached)
            steps = [step.between(self.front, stop) for step in self.waiting if step.start < stop]
            try:
                self._commit(period, steps, stop)
            except ArchiveDamagedError as error:
                if self.damage is not None:
                    logger.warning("%s", self.damage)
                self.damage = error
                self.begin = self.front = stop
            self.waiting = [x.between(stop, x.end) for x in self.waiting if x.end > stop]
            if time.monotonic() - self.proven_at > SECONDS_TO_PROOF:
                self._join(self.source.evidence())

    def _commit(self, period: str, steps: list[Step], stop: int) -> None:
        """Commit the rows of a period in [front, stop)."""
        batches = [batch for step in steps for batch in step.batches]
        new, old = pa.Table.from_batches(batches, ARROW_SCHEMA), self.writer.rows_of(period)
        merged = merge_rows(old, new, self.front, stop)
        if not self.is_known:
            self._check_network(within(old, self.front, stop).num_rows, merged)
        # Write bad rows before the manifest shows the stretch as complete.
        self.run.write_bad_rows(bad for step in steps for bad in step.bad_rows)
        if new.num_rows:
            different = pa.concat_tables([merged.added, merged.changed])
            doubted = _inside(different, self.before.complete)
            self.contradicted = pa.concat_tables([self.contradicted, doubted])
            answered = self.source.answered().within(self.begin, stop)
            evidence = _doubting(self.writer.manifest.evidence.updated(answered), doubted)
            agreed = _inside(different, [span for span, _ in self.before.agreed])
            evidence = evidence.without_agreements(moments_of(agreed))
            is_losing = merged.changed.num_rows > 0
            self.writer.put(period, encode_rows(merged.rows), evidence, is_losing=is_losing)
            self.run.record.rows += merged.added.num_rows
            self.run.note_conflicts(merged.changed)
            self.begin = stop
        self.absent = pa.concat_tables([self.absent, merged.absent])
        self.committed = joined([*self.committed, (self.front, stop)])
        self.front = stop

    def _check_network(self, old: int, merged: Merged) -> None:
        """Raise if the node sent none of the `old` archive rows, though it reaches over them."""
        if old > merged.conflicts.num_rows:
            self.is_known = True
        elif not old:
            self.check()
        else:
            due = moments_of(_inside(merged.absent, self.source.evidence().complete))
            if due:
                raise NetworkMismatchError(
                    f"{self.writer.store.uri} has rows from {range_text(due[0][0], due[-1][1])}, "
                    "and the source has none of them: it is of another network, or has lost rows"
                )

    def _join(self, proof: Evidence) -> None:
        """Record which committed stretches the source proves, and which rows are disputed."""
        proof = proof.clipped(self.committed)
        evidence = self.writer.manifest.evidence.updated(proof)
        missed = _inside(self.absent, proof.complete)
        self.missed = pa.concat_tables([self.missed, missed])
        self.absent = _inside(self.absent, gaps_in(proof.complete, *EVER))
        # Each proof covers all rows so far, so it would lift earlier doubts: add them again. A row
        # with another balance is disputed by the node that sent it before; a row that wasn't sent,
        # by the node that didn't send it.
        for place, rows in enumerate([self.contradicted, self.missed]):
            evidence = _doubting(evidence, rows)
            for span in moments_of(rows):
                answers = [x.answer_at(span[0]) for x in (self.before, evidence)]
                nodes = [answer.node for answer in answers if answer is not None]
                if len({*nodes}) > 1:
                    evidence = evidence.with_verdict(nodes[place], [span], [span])
        self.writer.set_evidence(evidence)
        self.run.note_conflicts(canonical(missed))
        self.run.note_committed(self.committed)
        self.proven_at = time.monotonic()


def _inside(rows: pa.Table, spans: Sequence[Span]) -> pa.Table:
    """Return the rows that lie in some stretches of time."""
    return pa.concat_tables([NO_ROWS, *(within(rows, *span) for span in joined(spans))])


def _doubting(evidence: Evidence, rows: pa.Table) -> Evidence:
    """Return evidence that no longer proves rows on which two answers differ.

    The next answer that reaches over their moments and has the same rows proves them.
    """
    spans = moments_of(rows)
    if rows.num_rows > _MOST_DOUBTS:
        doubts = [SetAside((spans[0][0], spans[-1][1]))]
    else:
        times = rows["timestamp"].cast(pa.int64()).to_pylist()
        pairs = zip(times, accounts_in(rows), strict=True)
        doubts = [SetAside((time, time + 1), account) for time, account in pairs]
    return replace(evidence, set_aside=tuple(dict.fromkeys([*evidence.set_aside, *doubts])))
