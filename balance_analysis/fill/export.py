"""Fill an archive from nodes: each run goes on where the archive ends.

A run asks for the end of the archive again, so that a node of another network, or a row that has
changed, shows; then for what follows.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Unpack

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis import defaults
from balance_analysis.archive import layout, network
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import Query
from balance_analysis.archive.runs import Run, RunWriter
from balance_analysis.archive.store import Store, Stored
from balance_analysis.errors import (
    IncompleteError,
    NetworkMismatchError,
    RequestError,
    logger,
)
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill.fill import FillKeywords, Job, fill
from balance_analysis.filters import make_filters, take_names, takes
from balance_analysis.labels import Names
from balance_analysis.load.request import LoadRequest, OnBadRows, make_request
from balance_analysis.load.source import NodeSource
from balance_analysis.node.client import NETWORK_LIMITS, ONCE, Client, Retry, check_client
from balance_analysis.node.exchange import Answer
from balance_analysis.node.limits import decode_limits, network_limits
from balance_analysis.rows import accounts_in, within
from balance_analysis.schema import Instant, to_microseconds
from balance_analysis.spans import EVER, Span, joined
from balance_analysis.text import Duration, moment_text, to_duration

_NO_LIMITS: Final = (404, 501)
"""The statuses of a node that has no limits, and serves balance changes all the same."""


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
        The node, or several nodes of one network; their order doesn't matter. One that lags behind
        the archive, or turns out to be of another network, is left out with a warning.
    archive
        Where to: an Archive, or its path. It is bound to the filters and the partition of its first
        run.
    start
        The beginning, if the archive doesn't reach back so far; without a time zone UTC. By default
        the run goes on where the archive ends; the first run begins at the oldest row that the node
        holds.
    end
        The end, exclusive; by default now, less `lag`. The archive never ends beyond the last block
        that the node holds, and without that block while the node may still add rows to it. Without
        block headers the newest row is the last block.
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
        How long to wait for a next block if the last one is older than `lag`. If none comes, the
        chain rests, and the last block is complete. Nothing is waited for if the archive has it.
    fill_gaps
        Whether to ask as well for what is missing or unproven inside the archive.
    page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`. Rows that are set aside are kept with their reasons.
    dry_run
        Write nothing, and ask the node only for what the plan takes: the `spans` of the result.
    on_report
        Called with the run's record when the run begins and when it has ended, also by an error;
        not in a dry run, nor where the archive is refused.

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
    """
    check_client(client)
    names = take_names(options)
    lagging = dt.datetime.now(dt.UTC) - to_duration(lag)
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": on_bad_rows}
    last = lagging if end is None else end

    def job(store: Store, query: Query, run: RunWriter) -> Job:
        request = make_request(start, last, filters=query.filters, **sizes)
        before, seconds = to_microseconds(lagging), to_duration(settle).total_seconds()
        overlapping = to_duration(overlap) // dt.timedelta(microseconds=1)
        planned = _Export(client, store, names, request, run, before, overlapping, fill_gaps)
        last_block = partial(planned.source.last_block, before, seconds)
        return Job(planned.source, planned.plan, planned.finish, last_block)

    return fill(archive, job, "export", **options)


@dataclass(slots=True)
class _Export:
    """What an export asks nodes for.

    Attributes
    ----------
    client, store, names, request, run
        From where to where, and what the caller asked for.
    before
        The default end, microseconds: a last block before it may be the last of a resting chain.
    overlap
        How much of the archive's end is asked for again, microseconds.
    fill_gaps
        Whether to ask for what is missing or unproven inside.
    source
        The rows of the nodes.
    """

    client: Client
    store: Store
    names: Names
    request: LoadRequest
    run: RunWriter
    before: int
    overlap: int
    fill_gaps: bool
    source: NodeSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = NodeSource(
            self.client,
            self.request.filters,
            page_size=self.request.page_size,
            workers=self.request.workers,
            on_bad_rows=self.request.on_bad_rows,
            stats=self.run.stats,
        )

    def plan(self, writer: Writer) -> list[Span]:
        """Return the stretches to ask for, in time order."""
        evidence, (start, end) = writer.manifest.evidence, (self.request.start, self.request.end)
        head = self._ask_limits()
        if head is not None:
            # A last block may belong to the archive if the chain rests.
            end = min(end, head + (head < self.before))
        if not evidence.answers:
            begin, end = self.source.interval(start, end)
            return [(begin, end)] if begin < end else []
        self._leave_out_strangers(writer)
        first, last = evidence.bounds
        spans = [] if start is None else [(start, min(first, end))]
        if self.fill_gaps:
            inside = [*evidence.missing(first, last), *evidence.unproven]
            spans += [(_row_before(writer, begin), min(stop, end)) for begin, stop in inside]
        if end > last:
            rows = max((note.last for note in writer.manifest.files.values()), default=last)
            left = [begin for begin, stop in evidence.unproven if stop == last]
            begin = min([last - self.overlap, rows, *left])
            spans.append((max(begin, evidence.answered[-1][0]), end))
        elif head is not None and head + 1 < last:
            self.run.record.lagging = True
            logger.warning(
                "the node lags behind the archive: its last block is of %s, and the archive ends "
                "at %s",
                moment_text(head),
                moment_text(last),
            )
        spans = joined((begin, stop) for begin, stop in spans if begin < stop)
        if self.fill_gaps and spans:
            # What the node has forgotten isn't asked for.
            self.source.reaches(spans[0][0], spans[-1][1])
        return spans

    def _ask_limits(self) -> int | None:
        """Ask each address for the limits, once; return the latest last block that one names.

        `None` if none names one.
        """
        run, asked_at = self.run, pd.Timestamp.now("UTC")
        answers: list[Answer[dict[str, Any]]] = []
        failure: RequestError | None = None
        urls = self.client.order
        for url in urls:
            retry = Retry() if len(urls) == 1 else ONCE
            try:
                options: dict[str, Any] = {"base_url": url, "stats": run.stats, "retry": retry}
                answers.append(self.client.get(NETWORK_LIMITS, [], decode_limits, **options))
            except RequestError as error:
                # A node without limits serves balance changes all the same.
                if error.status not in _NO_LIMITS:
                    failure = error
                    logger.log(logging.WARNING if len(urls) > 1 else logging.DEBUG, "%s", error)
        run.record.source = urls[0]
        if not answers:
            if failure is not None:
                raise failure
            return None
        best = max(answers, key=lambda each: each.block_time or 0)
        run.record.source, run.record.block_height = best.source, best.block_height
        run.limits = network_limits(best, asked_at)
        return best.block_time

    def _leave_out_strangers(self, writer: Writer) -> None:
        """Leave out each of several addresses that has none of the archive's rows.

        Of one address the rows of the overlap show it.
        """
        urls = self.client.base_urls
        if len(urls) == 1 or not writer.manifest.files:
            return
        kept = [url for url in urls if not self._is_stranger(writer, url)]
        if not kept:
            raise NetworkMismatchError(
                f"{self.store.uri}: no address has any of the archive's rows: they are of another "
                "network, or have lost rows"
            )
        if len(kept) < len(urls):
            self.client = self.client.only(*kept)
            self.source.use(self.client)

    def _is_stranger(self, writer: Writer, url: str) -> bool:
        """Whether an address reaches over rows that the archive holds, and has none of them."""
        client = self.client.only(url)
        alone = NodeSource(
            client, self.request.filters, on_bad_rows="quarantine", stats=self.run.stats
        )
        first, last = writer.manifest.evidence.bounds
        try:
            reach = next(iter(alone.reaches(first, last).values()), None)
            moment = _row_before(writer, last if reach is None else min(reach.end, last))
            if reach is None or not reach.start <= moment < reach.end:
                return False
            came = [b for step in alone.rows(moment, moment + 1) for b in step.batches]
        except (RequestError, IncompleteError):
            return False
        period = layout.period_of(moment, writer.manifest.partition)
        held = within(writer.rows_of(period), moment, moment + 1)
        accounts = {*accounts_in(held)}
        if not accounts or any(accounts & {*accounts_in(batch)} for batch in came):
            return False
        logger.warning(
            "%s is left out: it has none of the archive's rows of %s, so it is of another network, "
            "or has lost rows",
            url,
            moment_text(moment),
        )
        return True

    def finish(self, writer: Writer) -> None:
        """Keep the limits, and the names that the caller gave."""
        network.write_archive_names(self.store, self.names)
        if self.run.limits is not None:
            with self.run.noting_damage(layout.LIMITS):
                writer.keep_limits(self.run.limits)


def _row_before(writer: Writer, moment: int) -> int:
    """Return the time of the archive's last row before a moment; the moment without one."""
    for period, note in reversed(writer.manifest.files.items()):
        if note.first < moment:
            rows = within(writer.rows_of(period), EVER[0], moment)
            return int(pc.max(rows["timestamp"].cast(pa.int64())).as_py())
    return moment
