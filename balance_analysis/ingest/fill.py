"""Fill an archive from a source of rows, a period at a time: a node, or segments.

A source says what to ask for and loads it, here in one stream or elsewhere by periods. Either way
periods are committed by this process, in time order, so what was loaded is never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import TYPE_CHECKING, Final, Protocol, Unpack

from balance_analysis.archive import manifest, network
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.runs import Kind, Run, RunWriter, reported
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import logger
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
)
from balance_analysis.ingest.span import SpanWriter
from balance_analysis.load.request import Report, reporting
from balance_analysis.node.walk import Step
from balance_analysis.spans import Span

if TYPE_CHECKING:
    from distributed import Client as Cluster

_AHEAD: Final = 8
"""How many times as many parts as are loaded at once may be done before their turn has come."""


class RowSource(Protocol):
    """Where the rows of an archive come from."""

    @property
    def run(self) -> RunWriter:
        """What fills the run's record."""

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
    on_report: Callable[[Run], object] | None
    executor: Executor | Cluster | None


def fill(
    archive: Stored | PathLike,
    make_source: Callable[[Store, manifest.ArchiveSpec], RowSource],
    *,
    partition: Partition | None = None,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
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
        return run.result()
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
            damaged = run.record.damaged
            damaged += [name for name in lost if name not in damaged]
    return run.record


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
            new_rows, requests = run.record.rows, run.stats.requests
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
            new_rows, requests = run.record.rows - new_rows, run.stats.requests - requests
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
