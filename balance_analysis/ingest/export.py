"""Fill an archive from a node: each run goes on where coverage ends.

A run asks for the last stretch of what is covered again, so that a node of another network, or a
row that has changed, shows; then for what follows, in time order. Each period is committed as soon
as it is complete, so what was loaded is never lost.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Unpack

from balance_analysis import defaults
from balance_analysis.archive import network
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.manifest import ArchiveSpec
from balance_analysis.archive.runs import Kind, Run, RunWriter
from balance_analysis.archive.store import Store, Stored
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import make_filters, take_names, takes
from balance_analysis.ingest.continuity import Continuity, ask_latest_block, is_finished, load_steps
from balance_analysis.ingest.fill import FillKeywords, fill
from balance_analysis.labels import Names
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, OnBadRows, make_request
from balance_analysis.node.client import Client, check_client
from balance_analysis.node.walk import Step
from balance_analysis.schema import Instant, to_microseconds
from balance_analysis.spans import Span
from balance_analysis.text import Duration, to_duration

_DAY: Final = 86_400_000_000


@takes(FillKeywords, fill, make_filters)
def export(
    client: Client,
    archive: Stored | PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    lag: Duration = defaults.LAG,
    overlap: Duration = defaults.OVERLAP,
    settle: Duration = defaults.SETTLE,
    fill_gaps: bool = False,
    page_size: int = defaults.PAGE_SIZE,
    workers: int = defaults.WORKERS,
    on_bad_rows: OnBadRows = defaults.ON_BAD_ROWS,
    **options: Unpack[FillKeywords],
) -> Run:
    """Bring an archive up to date with a node; the first run makes it.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        Where to: an Archive, or its path. It is bound to the filters and the partition of its first
        run.
    start
        From where on, where the archive doesn't reach back so far; without a time zone UTC. By
        default from the end of its coverage; for the first run from the oldest row that the node
        holds.
    end
        Until when, exclusive; by default now, less `lag`. Never beyond the last block that the node
        holds, and without that block where it may be unfinished.
    asset_id, party_ids, market_ids, account_types
        Which accounts, as for `load_balance_changes`.
    assets, labels
        Symbols and decimals of assets, as for `read_assets`, and own names, as for `read_labels`.
        The archive keeps them beside those that it has, and gives them to whoever reads it.
    partition
        What a file holds: a "day" in UTC, a "month" or an "hour"; by default as the archive has it,
        a day for a new one.
    lag
        How far behind now the default end lies: a timedelta, or text such as "90s", "2m", "1h".
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
        Called with the run's record when the run begins and when it has ended, also by an error;
        not in a dry run, nor where the archive is refused.
    executor
        Where to load periods, of all spans, side by side: an executor of `concurrent.futures`, or a
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
    check_client(client)
    names = take_names(options)
    lagging = dt.datetime.now(dt.UTC) - to_duration(lag)
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": on_bad_rows}
    last = lagging if end is None else end

    def source(store: Store, about: ArchiveSpec) -> _Nodes:
        return _Nodes(
            client=client,
            store=store,
            names=names,
            request=make_request(start, last, filters=about.filters, **sizes),
            before=to_microseconds(lagging),
            overlap=to_duration(overlap) // dt.timedelta(microseconds=1),
            settle=to_duration(settle),
            fill_gaps=fill_gaps,
        )

    return fill(archive, source, **options)


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Loads rows from nodes, with a task's share of the request rate; the client is copied."""

    client: Client
    request: LoadRequest
    finished: tuple[str, int] | None

    def __call__(self, start: int, end: int) -> tuple[list[Step], int]:
        """Load all of [start, end)."""
        if self.client.max_requests_per_second is not None:
            # For the last request of the task before, and the driver's own before it commits.
            time.sleep(2 / self.client.max_requests_per_second)
        run, request = (
            RunWriter(finished=self.finished),
            replace(self.request, start=start, end=end),
        )
        with copy(self.client) as client:
            return list(load_steps(client, request, run)), run.stats.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """A node, or several of one network, as a source of rows.

    Attributes
    ----------
    before
        Which last blocks may be finished, microseconds: those that are older.
    overlap
        Microseconds.
    """

    client: Client
    store: Store
    names: Names
    request: LoadRequest
    before: int
    overlap: int
    settle: dt.timedelta
    fill_gaps: bool
    run: RunWriter = field(default_factory=RunWriter)

    kind: ClassVar[Kind] = "export"

    def spans(self, state: Coverage) -> list[Span]:
        """Return what to ask for, in time order."""
        request = replace(self.request, end=self._end(state))
        nodes = NodePool(self.client, request.on_bad_rows, self.run.stats)
        if state.intervals:
            spans = self._beside(state, request.end)
            unproven = self._unproven(state, request.end)
            spans += [(nodes.best_retention_start(*each), each[1]) for each in unproven]
        else:
            spans = [nodes.interval(request)]
        return sorted((start, end) for start, end in spans if start < end)

    def _beside(self, state: Coverage, end: int) -> list[Span]:
        """Return what to ask for before, after and, if wanted, between what is covered."""
        start, (first, last) = self.request.start, state.bounds(proven=False)
        spans = [] if start is None else [(start, min(first, end))]
        if self.fill_gaps:
            spans += state.missing(first, last, proven=False)
        if end > last:
            # The last row as well: it is the likeliest to have changed.
            rows = [note.last for note in state.files.values() if note.last > last - _DAY]
            begin = min([last - self.overlap, *rows[-1:]])
            spans.append((max(begin, state.intervals[-1].start), end))
        return spans

    def _unproven(self, state: Coverage, end: int) -> list[Span]:
        """Return what is covered, but is to be asked for again as it isn't proven."""
        last = state.intervals[-1]
        # What an interrupted run left may be unproven just for want of time.
        is_left = not last.proven and last.end < end
        chosen = state.intervals if self.fill_gaps else [last] if is_left else []
        return [each.span for each in chosen if not each.proven]

    def _end(self, state: Coverage) -> int:
        """Return up to where the node can tell: through a finished last block.

        Nothing is waited for where the last block is new, as the chain goes on then, nor where the
        archive has that block.
        """
        found, end = ask_latest_block(self.client, self.run), self.request.end
        if found is None:
            return end
        source, head = found
        is_wanted = (self.request.start or 0) <= head < min(self.before, end)
        is_wanted = is_wanted and bool(state.missing(head, head + 1, proven=self.fill_gaps))
        if is_wanted and is_finished(self.client, source, head, self.settle, self.run):
            self.run.finished = found
            head += 1
        return min(end, head)

    @contextmanager
    def opened(self, writer: Writer, spans: Sequence[Span]) -> Iterator[Continuity]:
        """Give what tells whether the node goes on where the archive ends; keep the limits."""
        network.write_archive_names(self.store, self.names)
        last = list(writer.state.files)[-1:]
        continuity = Continuity(
            self.client, self.request, self.run.stats, *map(writer.rows_of, last)
        )
        with closing(continuity):
            try:
                if not spans:
                    continuity.check()
                yield continuity
            finally:
                if continuity.is_sure and self.run.limits is not None:
                    with self.run.noting_damage(writer.about.limits):
                        writer.keep_limits(self.run.limits)

    def steps(self, start: int, end: int) -> Iterator[Step]:
        """Load all of [start, end)."""
        return load_steps(self.client, replace(self.request, start=start, end=end), self.run)

    def elsewhere(self, width: int) -> tuple[NodeLoad, int | None]:
        """Return what loads with a share of the client's rate."""
        rate = self.client.max_requests_per_second
        client = self.client.paced(rate and rate / width)
        # A cluster may grow meanwhile: where there is a rate to keep, no task waits for that.
        return NodeLoad(client, self.request, self.run.finished), None if rate is None else width

    def note_committed(self, until: int) -> None:
        """Nothing goes by it."""
