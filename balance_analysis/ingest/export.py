"""Fill an archive from a node: each run goes on where coverage ends.

A run asks for the last stretch of what is covered again, so that a node of another network, or a
row that has changed, shows; then for what follows, in time order. Each period is committed as soon
as it is complete, so what was loaded is never lost.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, within
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import (
    About,
    check_empty,
    lost_files,
    read_about,
    read_coverage,
    write_about,
)
from balance_analysis.archive.runs import Run, reported
from balance_analysis.errors import ArchiveError
from balance_analysis.ingest.continuity import Witness, up_to_head
from balance_analysis.ingest.executor import Pool
from balance_analysis.ingest.parallel import fill_elsewhere
from balance_analysis.ingest.periods import Filling, keeping, make_part, until_behind
from balance_analysis.load.request import LoadRequest, OnBadRows, make_request
from balance_analysis.load.session import Asking
from balance_analysis.load.stream import Load
from balance_analysis.schema import ARROW_SCHEMA, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distributed import Client as Cluster

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.layout import Partition
    from balance_analysis.archive.runs import RunReport
    from balance_analysis.archive.store import Store
    from balance_analysis.ingest.executor import Executor
    from balance_analysis.load.progress import Report
    from balance_analysis.node.client import Client
    from balance_analysis.node.walk import Step
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

logger = logging.getLogger("balance_analysis")

LAG: Final = dt.timedelta(minutes=1)
OVERLAP: Final = dt.timedelta(minutes=10)
SETTLE: Final = dt.timedelta(seconds=10)

NEVER: Final = 1 << 62
DAY: Final = 86_400_000_000


def plan(
    state: Coverage, *, start: int | None, end: int, overlap: int, fill_gaps: bool
) -> list[Span]:
    """Return what to ask for, in time order.

    Parameters
    ----------
    state
        What the archive holds; not nothing.
    start, end
        The interval that is wanted; `start=None` is that of the coverage.
    overlap
        How much of the end of the coverage to ask for again, microseconds.
    fill_gaps
        Whether to ask for what is missing between what is covered.
    """
    first, last = state.intervals[0].start, state.intervals[-1].end
    spans = [(start, min(first, end))] if start is not None and start < first else []
    if fill_gaps:
        spans += state.missing(first, last, proven=False)
    if end > last:
        # The last row as well: it is the likeliest to have changed.
        rows = [note.last for note in state.files.values() if note.last > last - DAY]
        spans.append((max(min([last - overlap, *rows[-1:]]), state.intervals[-1].start), end))
    return [(begin, stop) for begin, stop in spans if begin < stop]


def export(
    client: Client,
    archive: Archive,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    partition: Partition = "day",
    lag: dt.timedelta = LAG,
    overlap: dt.timedelta = OVERLAP,
    settle: dt.timedelta = SETTLE,
    fill_gaps: bool = False,
    page_size: int = 5000,
    workers: int = 4,
    on_bad_rows: OnBadRows = "quarantine",
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[RunReport], object] | None = None,
    executor: Executor | Cluster | None = None,
) -> Run:
    """Bring an archive up to date with a node; the first run makes it.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        Where to. It is bound to the filters and the partition of its first run.
    start
        From where on, where the archive doesn't reach back so far; without a time zone UTC. By
        default from the end of its coverage; for the first run from the oldest row that the node
        holds.
    end
        Until when, exclusive; by default now, less `lag`. Never beyond the last block that the node
        holds, and without that block where it may be unfinished.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    partition
        What a file holds: a "day" in UTC, a "month" or an "hour".
    lag
        How far behind now the default end lies.
    overlap
        How much of the end of the coverage is asked for again and compared.
    settle
        A last block that is older than `lag`, and that the node still has as its last one after so
        long, is finished, and belongs to what it holds. Nothing is waited for where the archive has
        that block, or the node's last one is newer.
    fill_gaps
        Whether to ask as well for what is missing between the covered intervals, and for unproven
        ones as far as the node remembers them.
    page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`. Rows that are set aside are kept with their reasons.
    dry_run
        Write nothing, and ask the node only for what the plan takes: the `spans` of the result.
    on_report
        Called with the run's report when the run begins and when it has ended, also by an error;
        not in a dry run, nor where the archive is refused.
    executor
        Where to load periods side by side: an executor of `concurrent.futures`, or a
        `distributed.Client`; by default here, one after the other. Each of its workers asks the
        node by itself, with `workers` requests at once and its share of the client's rate, and
        must reach the archive under the same path: a shared folder, or an object store. Only this
        process commits, in time order, so that the archive is the same. The client's headers and
        session are sent to the workers.

    Returns
    -------
    Run
        What was done.

    Raises
    ------
    ArchiveLockedError
        If another run is writing to the archive, or has taken over its lock in an object store.
        Without conditional puts an object store has no lock.
    NetworkMismatchError
        If the archive is of another network than the node.
    ArchiveError
        If the archive is bound to another query, is damaged, or there are other files in its place.
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `load_balance_changes`. What was complete before is committed.
    OSError
        If a file can't be written.
    TypeError
        If `executor` is none.
    """
    pool = None if executor is None else Pool.of(executor)
    lagging = dt.datetime.now(dt.UTC) - lag
    request = make_request(
        start=start,
        end=lagging if end is None else end,
        asset_id=asset_id,
        party_ids=party_ids,
        market_ids=market_ids,
        account_types=account_types,
        page_size=page_size,
        workers=workers,
        on_bad_rows=on_bad_rows,
    )
    store, about, run = archive.store, About(request.filters.sorted(), partition), Run()
    requested = partial(
        up_to_head,
        client,
        run,
        request,
        before=to_microseconds(lagging),
        settle=settle,
        fill_gaps=fill_gaps,
    )
    _check_bound(store, about)
    if dry_run:
        is_new = store.read(layout.ABOUT) is None
        state = Coverage() if is_new else read_coverage(store)
        request = requested(state)
        run.spans = _spans(client, state, request, overlap, run, fill_gaps=fill_gaps)
        return run
    with one_writer(store):
        _check_bound(store, about)
        first = None
        if store.read(layout.ABOUT) is None:
            # A node that doesn't answer must not leave an archive that is bound to its query.
            request = requested(Coverage())
            first = _spans(client, Coverage(), request, overlap, run, fill_gaps=False)
            write_about(store, about)
        writer = Writer(store)
        with reported(store, writer, run, on_report):
            writer.recover()
            if first is None:
                request = requested(writer.state)
            last = list(writer.state.files)[-1:]
            witness = Witness(client, request, run, *map(writer.rows_of, last))
            try:
                spans = first
                if spans is None:
                    spans = _spans(client, writer.state, request, overlap, run, fill_gaps=fill_gaps)
                for start_at, end_at in spans:
                    run.spans.append((start_at, end_at))
                    span = replace(request, start=start_at, end=end_at)
                    filling = Filling(store, writer, run, witness, start_at)
                    if pool is None:
                        _fill(client, span, filling, progress)
                    else:
                        fill_elsewhere(pool, client, span, filling, progress)
                if not spans:
                    witness.check()
                writer.checkpoint()
            finally:
                witness.close()
                if witness.is_sure:
                    _keep_limits(writer, run)
            lost = lost_files(store, about, writer.state)
            run.damaged += [name for name in lost if name not in run.damaged]
    return run


def _keep_limits(writer: Writer, run: Run) -> None:
    """Note the limits; what is wrong with their file doesn't fail a run."""
    if run.limits is None:
        return
    try:
        writer.keep_limits(run.limits)
    except ArchiveError as error:
        run.damaged.append(layout.LIMITS)
        logger.warning("%s", error)


def _check_bound(store: Store, about: About) -> None:
    """Raise if an archive is bound to something else, or can't be made; touch nothing."""
    if store.read(layout.ABOUT) is None:
        check_empty(store)
        return
    bound = read_about(store)
    if bound != about:
        raise ArchiveError(
            f"{store.uri} is bound to another query: {bound.describe()}, not {about.describe()}; "
            "export the same, or into another folder"
        )


def _spans(
    client: Client,
    state: Coverage,
    request: LoadRequest,
    overlap: dt.timedelta,
    run: Run,
    *,
    fill_gaps: bool,
) -> list[Span]:
    asking = Asking(client, request.on_bad_rows)
    try:
        if not state.intervals:
            start, end = asking.interval(request)
            return [(start, end)] if start < end else []
        spans = plan(
            state,
            start=request.start,
            end=request.end,
            overlap=overlap // dt.timedelta(microseconds=1),
            fill_gaps=fill_gaps,
        )
        unproven = [each for each in state.intervals if not each.proven]
        if not fill_gaps:
            # What an interrupted run left may be unproven just for want of time.
            last = state.intervals[-1]
            unproven = [last] if not last.proven and last.end < request.end else []
        spans += [(asking.remembered(each.start, each.end), each.end) for each in unproven]
    finally:
        run.requests += asking.tally.requests
    return sorted((start, end) for start, end in spans if start < end)


def _fill(
    client: Client, request: LoadRequest, filling: Filling, progress: bool | Report | None
) -> None:
    """Load a span and commit it, period by period."""
    load, loaded = Load(request, is_part=True), _Loaded(filling)
    try:
        with keeping(filling, loaded.finish):
            finished = filling.run.finished
            for step in until_behind(load.run_in_time_order(client, progress), finished):
                loaded.add(step)
        logger.info("%d rows in %d requests", load.rows, load.cost["requests"])
        filling.tell(request.end)
    finally:
        filling.run.requests += int(load.cost.get("requests", 0))


class _Loaded:
    """The rows of a span that were loaded here and not taken yet.

    Attributes
    ----------
    end
        Up to where all are loaded.
    """

    def __init__(self, filling: Filling) -> None:
        self.end = filling.front
        self._filling = filling
        self._batches: list[pa.RecordBatch] = []

    def add(self, step: Step) -> None:
        """Take the next step, and give on each period that is complete with it."""
        self._batches += step.batches
        self._filling.note(step)
        self.end = step.end
        self._give_periods()

    def finish(self) -> None:
        """Give on the rest, and commit all."""
        self._give_periods()
        if self._filling.front < self.end:
            self._give(self.end)
        self._filling.finish()

    def _give_periods(self) -> None:
        while (stop := self._filling.period_end) <= self.end:
            self._give(stop)

    def _give(self, end: int) -> None:
        filling, start = self._filling, self._filling.front
        rows = pa.Table.from_batches(self._batches, ARROW_SCHEMA)
        known = filling.writer.rows_of(filling.period)
        part, content = make_part(known, within(rows, start, end), start, end)
        filling.take(part, lambda name: filling.store.write(name, content))
        self._batches = within(rows, end, NEVER).to_batches()
