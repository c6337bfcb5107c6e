"""Fill an archive from a source of rows, a period at a time: a node, or segments.

A source says what to ask for and loads it, here in one stream or elsewhere by periods. Either way
periods are committed by this process, in time order, so what was loaded is never lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Protocol

from balance_analysis.archive import manifest
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.runs import Kind, Run, RunReport, reported
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.ingest.continuity import Continuity
from balance_analysis.ingest.executor import LoadElsewhere, Pool, load_on_executor
from balance_analysis.ingest.periods import LoadedPeriod, SpanWriter
from balance_analysis.load.request import Report, reporting
from balance_analysis.node.walk import Step
from balance_analysis.spans import Span

logger: logging.Logger = logging.getLogger("balance_analysis")


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

    def steps(self, start: int, end: int, report: Report) -> Iterator[Step]:
        """Load all of a span here; yield its steps in time order."""

    def elsewhere(self, width: int) -> tuple[LoadElsewhere, int | None]:
        """Return what loads a part of a span elsewhere, and how many may at once, if that counts.

        `width` is how many tasks the executor runs at once.
        """

    def note_committed(self, until: int) -> None:
        """Note up to where the rows of the present span are committed."""


def fill(
    store: Store,
    about: manifest.ArchiveSpec,
    source: RowSource,
    *,
    pool: Pool | None,
    progress: bool | Report | None,
    dry_run: bool,
    on_report: Callable[[RunReport], object] | None,
) -> Run:
    """Bring an archive up to date with a source, as `export` and `import_segments` tell."""
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
    run, total, done = source.run, sum(span.end - span.start for span in spans), 0
    with ExitStack() as stack:
        report = stack.enter_context(reporting(progress))
        parts = None
        if pool is not None:
            load, at_once = source.elsewhere(pool.width)
            parts = stack.enter_context(closing(load_on_executor(pool, load, spans, at_once)))
        for span in spans:
            run.asks(span.start, span.end)
            rows, requests, size = run.rows, run.requests, span.end - span.start

            def tell(share: float, count: int) -> None:
                report((done + share * size) / total, rows + count)  # noqa: B023 - called here

            try:
                with span.finishing():
                    loaded = _load_here(source, span, tell)
                    for _ in loaded if parts is None else _take(parts, span, tell):
                        source.note_committed(span.committed)
            finally:
                source.note_committed(span.committed)
            span.tell()
            logger.info("%d new rows in %d requests", run.rows - rows, run.requests - requests)
            done += size


def _load_here(source: RowSource, span: SpanWriter, report: Report) -> Iterator[None]:
    """Load a span here, and take each period that is complete."""
    for step in source.steps(span.start, span.end, report):
        span.add(step)
        yield


def _take(parts: Iterator[LoadedPeriod], span: SpanWriter, report: Report) -> Iterator[None]:
    """Take what comes next: the periods of a span that were loaded elsewhere."""
    rows = 0
    for _ in span.periods():
        part = next(parts)
        span.run.requests += part.requests
        if part.start == span.front:  # or a node that lags ended a period before early
            span.take(part)
            rows += part.added
            report((part.end - span.start) / (span.end - span.start), rows)
        yield
