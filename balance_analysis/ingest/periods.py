"""Commit a span to an archive, part by part in time order, wherever the parts were loaded.

A part is what is known of one period's share of the span. Whoever loads it, in this process or in
another one, makes it here of the rows; the one writer takes it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive import layout
from balance_analysis.archive.commit import merge, uninterrupted, within
from balance_analysis.archive.coverage import Interval, covered_by
from balance_analysis.archive.datafile import NO_ROWS, encode_rows
from balance_analysis.archive.runs import keep_bad_rows
from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.ingest.continuity import started
from balance_analysis.load.stream import Load
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import clipped, joined
from balance_analysis.text import moment_text, spans_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from balance_analysis.archive.commit import Writer
    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.runs import Run
    from balance_analysis.archive.store import Store
    from balance_analysis.ingest.continuity import Continuity
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client
    from balance_analysis.spans import Span

PATIENCE: Final = 3.0
"""Seconds that a node may take to vouch for what an interrupted run keeps."""

_NEVER: Final = 1 << 62

logger: logging.Logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class LoadedPeriod:
    """What came of a period's share of a span; it pickles, and is small however many rows came.

    Attributes
    ----------
    start, end
        Which share: all of [start, end), microseconds.
    note
        What the period's file is going to be; `None` where there is no row in the share, neither a
        new one nor one that the archive holds.
    added
        How many rows more the file has then.
    changed, absent
        The rows that the archive holds and that came with another balance, or did not come again.
    last
        The rows of the last block that came.
    steps
        What was asked, without the rows.
    requests
        How many were sent.
    """

    start: int
    end: int
    note: FileNote | None = None
    added: int = 0
    changed: pa.Table = field(default_factory=lambda: NO_ROWS)
    absent: pa.Table = field(default_factory=lambda: NO_ROWS)
    last: pa.Table = field(default_factory=lambda: NO_ROWS)
    steps: tuple[Step, ...] = ()
    requests: int = 0


def make_period(known: pa.Table, new: pa.Table, start: int, end: int) -> tuple[LoadedPeriod, bytes]:
    """Return what becomes of a period's known rows with all of [start, end), and its file."""
    new = within(new, start, end)
    if not new.num_rows and not within(known, start, end).num_rows:
        return LoadedPeriod(start, end), b""
    merged = merge(known, new, start, end)
    content, note = encode_rows(merged.rows)
    added = merged.rows.num_rows - known.num_rows
    part = LoadedPeriod(start, end, note, added, merged.changed, merged.absent, _last_block(new))
    return part, content


def _last_block(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    latest = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
    return canonical(within(rows, latest, latest + 1))


Loaded = tuple[list[Step], pa.Table, int]
"""Steps without their rows, these, and how many requests were sent."""


def load_rows(client: Client, request: LoadRequest, finished: tuple[str, int] | None) -> Loaded:
    """Return the steps of a load without their rows, these, and how many requests were sent."""
    steps: list[Step] = []
    batches: list[pa.RecordBatch] = []
    load = Load(request, is_part=True)
    for step in until_behind(load.run_in_time_order(client, progress=False), finished):
        batches += step.batches
        steps.append(replace(step, batches=()))
    return steps, pa.Table.from_batches(batches, ARROW_SCHEMA), int(load.cost["requests"])


def until_behind(steps: Iterable[Step], finished: tuple[str, int] | None) -> Iterator[Step]:
    """Yield steps in time order, up to the first one of a node that didn't know all of it.

    Behind one address there may be nodes of which one lags: that step ends where it does. The last
    block that a node holds may be unfinished, unless it is the one that is `Run.finished`.
    """
    for step in steps:
        known = step.known_end
        if known < step.end and (step.address, step.head) == finished:
            known += 1
        if known < step.end:
            yield step.until(known)
            return
        yield step


@dataclass(slots=True)
class SpanWriter:
    """One span on its way into the archive, part by part.

    Attributes
    ----------
    store, writer, run
        Where to.
    continuity
        What tells whether the node is of the same network and has forgotten nothing; `None` where
        rows come from segments, which forget nothing.
    committed
        Up to where the span is in the archive.
    front
        Up to where parts were taken: those without rows are committed with the next one that has
        some, or at the end.
    end
        Up to where rows were loaded here.
    batches, steps
        The rows that were loaded here and not taken yet, and what is not committed yet.
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
    committed: int
    front: int = field(init=False)
    end: int = field(init=False)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    lacking: list[Span] = field(default_factory=list)
    forgotten: list[Span] = field(default_factory=list)
    deadline: float | None = None

    def __post_init__(self) -> None:
        self.front = self.end = self.committed

    @property
    def _period(self) -> str:
        """The period of the next part."""
        return layout.period_of(self.front, self.writer.about.partition)

    def add(self, step: Step) -> None:
        """Take the next step of a load, and each period that is complete with it."""
        self.batches += step.batches
        self._note([replace(step, batches=())])
        self.end = step.end
        self._take_periods()

    def take(self, part: LoadedPeriod, put_file: Callable[[str], None]) -> None:
        """Take the part from `front` on; `put_file` puts its file under the name that it gets."""
        self._note(part.steps)
        remembered = {} if part.note is None else self._remembered(part.end)
        with uninterrupted():
            if part.note is not None:
                self._commit(part, put_file, remembered)
            self.front = part.end

    def finish(self) -> None:
        """Take the rest, and commit all."""
        self._take_periods()
        if self.front < self.end:
            self._take_rows(self.end)
        if self.committed < self.front:
            remembered = self._remembered(self.front)
            with uninterrupted():
                self._commit(LoadedPeriod(self.front, self.front), lambda _: None, remembered)

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

    def tell(self, wanted: int) -> None:
        """Tell what of the span, up to where it is wanted, isn't known."""
        if self.lacking:
            lacking = spans_text(joined(self.lacking))
            logger.warning("the node says that it may lack rows of %s", lacking)
        if self.forgotten:
            unproven = spans_text(joined(self.forgotten))
            logger.warning("the node may have forgotten rows of %s: unproven", unproven)
        if self.committed < wanted:
            known = moment_text(self.committed)
            logger.warning("a node answered that knows blocks up to %s only", known)

    def _note(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.steps.append(step)
            self.lacking += step.incomplete
            self.run.bad_rows |= dict.fromkeys(step.bad_rows)

    def _take_periods(self) -> None:
        while (stop := layout.bounds_of(self._period, self.writer.about.partition)[1]) <= self.end:
            self._take_rows(stop)

    def _take_rows(self, end: int) -> None:
        rows = pa.Table.from_batches(self.batches, ARROW_SCHEMA)
        part, content = make_period(self.writer.rows_of(self._period), rows, self.front, end)
        self.take(part, lambda name: self.store.write(name, content))
        self.batches = within(rows, end, _NEVER).to_batches()

    def _keep(self) -> None:
        try:
            self.finish()
        except (BalanceAnalysisError, OSError) as error:
            why = str(error) or "the node does not answer"
            logger.warning("the rest that is complete can't be committed: %s", why)

    def _remembered(self, end: int) -> dict[str, int]:
        """Return from when on each node that answered has forgotten nothing up to `end`.

        That is `end` if it can't tell. Not under `uninterrupted`: a node may take long to answer.
        """
        sources = {step.source for step in self.steps if step.start < end}
        continuity = self.continuity
        if continuity is None:
            return dict.fromkeys(sources, self.committed)

        def ask() -> dict[str, int]:
            return {x: continuity.remembered(x, self.committed, end) for x in sources}

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
        self, part: LoadedPeriod, put_file: Callable[[str], None], remembered: dict[str, int]
    ) -> None:
        run = self.run
        intervals: tuple[Interval, ...] = ()
        doubted: list[Span] = []
        for step in self.steps:
            start, end = max(step.start, self.committed), min(step.end, part.end)
            if start >= end:
                continue
            said = Interval(start, end, True, step.address, step.block_height, run.asked_at)
            intervals = covered_by(intervals, said)
            forgotten = list(clipped([(start, remembered[step.source])], start, end))
            for begin, stop in (*forgotten, *clipped(step.incomplete, start, end)):
                unproven = replace(said, start=begin, end=stop, proven=False)
                intervals = covered_by(intervals, unproven)
                doubted.append((begin, stop))
            for span in forgotten:
                self.forgotten += self.writer.state.missing(*span)
        # Before the coverage says that nothing is missing.
        if any(step.bad_rows for step in self.steps):
            keep_bad_rows(self.store, run)
        self.writer.put(self._period, part.note, intervals, put_file)
        if self.continuity is not None:
            self.continuity.advance(part.last)
        for interval in intervals:
            run.commits(*interval.span)
        self.committed = part.end
        self.steps = [step for step in self.steps if step.end > part.end]
        run.rows += part.added
        conflicts = pa.concat_tables([part.changed, _outside(part.absent, doubted)])
        if conflicts.num_rows:
            run.conflicts.append(canonical(conflicts))


def _outside(rows: pa.Table, spans: Iterable[Span]) -> pa.Table:
    """Return the rows that lie in none of the spans."""
    for start, end in spans:
        times = rows["timestamp"].cast(pa.int64())
        rows = rows.filter(pc.or_(pc.less(times, start), pc.greater_equal(times, end)))
    return rows
