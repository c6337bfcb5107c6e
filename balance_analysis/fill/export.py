"""Fill an archive from nodes: each run goes on where the archive ends.

A run asks for the end of the archive again, so that a node of another network, or a row that has
changed, shows; then for what follows.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

import pandas as pd

from balance_analysis import defaults
from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.runs import Run, RunWriter, iter_reports, last_success
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import (
    ArchiveError,
    BalanceAnalysisError,
    IncompleteError,
    NetworkMismatchError,
    RequestError,
    logger,
)
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill.fill import Source, bind, fill
from balance_analysis.load.request import OnBadRows, Report, make_bounds
from balance_analysis.load.source import NodeSource
from balance_analysis.node.client import (
    NETWORK_LIMITS,
    Client,
    RequestStats,
    Response,
    Retry,
    check_client,
)
from balance_analysis.node.limits import decode_limits, network_limits
from balance_analysis.node.walk import Step
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, read_names
from balance_analysis.table.rows import accounts_in, last_block, within
from balance_analysis.table.schema import Instant, to_microseconds
from balance_analysis.table.spans import EVER, Span, clipped, joined
from balance_analysis.table.text import Duration, moment_text, to_duration, without_credentials

_GAUGES: Final = {
    "last_success_timestamp_seconds": "When the last complete run ended.",
    "last_run_timestamp_seconds": "When the last run began.",
    "archive_rows": "Rows that the archive holds.",
    "lag_seconds": "How far the end of the archive lies behind now.",
    "missing_intervals": "Stretches inside the archive that no node answered for.",
    "unproven_intervals": "Stretches in which rows may be missing.",
    "conflicts": "Rows that came with another balance in the last run, or not again.",
    "bad_rows": "Rows that the last run set aside.",
    "exit_code": "What the last run ended with; 0 is success.",
}
"""The figures of `write_metrics`, with what each says."""

_NO_LIMITS: Final = (404, 501)
"""The statuses of a node that has no limits, and serves balance changes all the same."""


def export(
    client: Client,
    archive: Stored | PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    lag: Duration = defaults.LAG,
    overlap: Duration = defaults.OVERLAP,
    fill_gaps: bool = False,
    page_size: int = defaults.PAGE_SIZE,
    workers: int = defaults.WORKERS,
    on_bad_rows: OnBadRows = defaults.ON_BAD_ROWS,
    partition: layout.Partition | None = None,
    progress: bool | Report | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Run:
    """Bring an archive up to date with a node; the first run makes it.

    Parameters
    ----------
    client
        The node, or several nodes of one network; their order doesn't matter. One that lags behind
        the archive, fails at the start, or turns out to be of another network, is left out with a
        warning.
    archive
        Where to: an Archive, or its path. It is bound to the filters and the partition of its first
        run.
    start
        The beginning, if the archive doesn't reach back so far; without a time zone UTC. By default
        the run goes on where the archive ends; the first run begins at the oldest row that the node
        holds.
    end
        The end, exclusive; by default now, less `lag`. The archive never ends beyond the last block
        that the node holds; without block headers the newest row is that block. It is left out
        while the chain moves, as the node may still add rows to it. It is included once the chain
        rests: the block is older than `lag`, and still the last one after ten seconds. An export
        waits so only if the archive lacks that block.
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
        How much of the end of the coverage is asked for again and compared, where there is
        something newer to ask for.
    fill_gaps
        Whether to ask also for stretches inside the archive that are missing or unproven. After a
        run that failed or was killed they are asked for in any case.
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

    Notes
    -----
    A period is committed once all of its rows have come. A run that fails or is interrupted also
    commits what had come of the period under way, so the next one goes on there. A process that is
    killed can't: the next run asks for that period again from its beginning.

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
    store, names = to_store(archive), read_names(assets, labels)
    query = bind(store, partition, names, (asset_id, party_ids, market_ids, account_types))
    run = RunWriter(store, Run(kind="export"), stats=RequestStats())
    old = dt.datetime.now(dt.UTC) - to_duration(lag)
    asked = _Asked(
        names,
        *make_bounds(start, old if end is None else end),
        to_microseconds(old),
        to_duration(overlap) // dt.timedelta(microseconds=1),
        fill_gaps,
    )
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": on_bad_rows}
    source = _Nodes(store, run, asked, client=client, filters=query.filters, **sizes)
    return fill(store, query, source, run, progress=progress, dry_run=dry_run, on_report=on_report)


class _Asked(NamedTuple):
    """What the caller of an export asks for.

    Moments are microseconds. Only a last block before `old` may be that of a chain that rests.
    `overlap`, microseconds, is how much of the archive's end is asked for again.
    """

    names: Names
    start: int | None
    end: int
    old: int
    overlap: int
    fill_gaps: bool


class _Nodes(NodeSource, Source):
    """Nodes as a source of an archive's rows.

    Parameters
    ----------
    store, run
        The archive, and the run's record.
    asked
        What the caller asks for.
    how
        As of `NodeSource`.
    """

    def __init__(self, store: Store, run: RunWriter, asked: _Asked, **how: Any) -> None:  # noqa: ANN401 - NodeSource's
        super().__init__(**how, stats=run.stats)
        self.store, self.run, self.asked = store, run, asked
        self.limits: dict[str, Response[dict[str, Any]]] = {}

    def plan(self, writer: Writer) -> list[Span]:
        """Return the stretches to ask for, in time order."""
        manifest, record = writer.manifest, self.run.record
        evidence, (_, start, end, *_) = manifest.evidence, self.asked
        self._ask_addresses(writer)
        record.source = self.urls[0]
        if self.limits:
            best = max(self.limits.values(), key=lambda each: each.block_time or 0)
            record.source, record.block_height = best.source, best.block_height
            self.run.limits = network_limits(best, pd.Timestamp(record.started))
        if not evidence.answers:
            begin, end = self.interval(start, end)
            return [*clipped([(begin, self._known_end(begin, end))], begin, end)]
        first, last = evidence.bounds
        begin, known = last - self.asked.overlap, self._known_end(last - self.asked.overlap, end)
        spans = [] if start is None else [(start, first)]
        if known > last:
            row = max((note.last for note in manifest.files.values()), default=last)
            spans.append((max(min(begin, row), evidence.answered[-1][0]), known))
        elif known + 1 < min(last, end):
            record.lagging = True
            logger.warning(
                "%s lags behind the archive: it holds rows before %s, and the archive ends at %s",
                " and ".join(self.urls),
                moment_text(known),
                moment_text(last),
            )
        # A run that failed or was killed may have left gaps, or proven too little.
        before = next((run for run in iter_reports(self.store) if run.id != record.id), None)
        is_all = self.asked.fill_gaps or not (before is None or before.is_success)
        spans += [span for span in evidence.incomplete(first, last) if is_all or span[1] == last]
        spans = joined(clipped(spans, EVER[0], known))
        if spans and len(self.urls) > 1:
            # One look at the addresses for all stretches.
            self.reaches(spans[0][0], spans[-1][1])
        return spans

    def _known_end(self, begin: int, end: int) -> int:
        """Return up to where in [begin, end) an address may know all rows.

        A last block belongs to it if the chain may rest; without last blocks it is the newest row.
        """
        ends = [
            # An archive that is served names where it ends, which is no block.
            head + (head < self.asked.old and "X-Origins" not in answer.headers)
            for answer in self.limits.values()
            if (head := answer.block_time) is not None
        ]
        if not ends and begin < end:
            reaches = self.reaches(begin, end)
            ends = [x.end + (x.height is not None and x.end < self.asked.old) for x in reaches]
        return min(end, max(ends, default=end))

    def _ask_limits(self, url: str) -> None:
        # An address that takes no connection is not waited for while there are others.
        is_last = url == self.urls[-1]
        retry = Retry(attempts=1) if self.limits else Retry(refusals=is_last)
        try:
            self.limits[url] = self.client.get(
                NETWORK_LIMITS, [], decode_limits, base_url=url, stats=self.stats, retry=retry
            )
        except RequestError as error:
            # A node without limits serves balance changes all the same.
            if error.status not in _NO_LIMITS:
                raise

    def _ask_addresses(self, writer: Writer) -> None:
        """Ask each address for the limits, once, and leave out strangers and those that fail.

        The error of the only address that there is, or of the last one, is raised.
        """
        urls, kept, failures = self.urls, list[str](), list[BalanceAnalysisError]()
        for url in urls:
            try:
                self._ask_limits(url)
                if len(urls) > 1 and writer.manifest.files:
                    has_rows(self, writer, url)
                kept.append(url)
            except (RequestError, IncompleteError, NetworkMismatchError) as error:
                failures.append(error)
                if len(urls) > 1:
                    logger.warning("%s; it is left out", error)
        if not kept:
            raise min(failures, key=lambda error: isinstance(error, NetworkMismatchError))
        self.limits = {url: each for url, each in self.limits.items() if url in kept}
        self.keep(kept)

    def check(self, writer: Writer) -> bool:
        """Return whether the node has a row of the archive: see `has_rows`."""
        # Of several addresses the plan has left out the strangers.
        return len(self.urls) > 1 or has_rows(self, writer, self.urls[0])

    def steps(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield the rows: see `known_rows`."""
        return self.known_rows(start, end, self.asked.old)

    def finish(self, writer: Writer) -> None:
        """Keep the limits, and the names that the caller gave."""
        sidecars.write_archive_names(self.store, self.asked.names)
        if self.run.limits is not None:
            with self.run.noting_damage(layout.LIMITS):
                writer.keep_limits(self.run.limits)


def has_rows(source: NodeSource, writer: Writer, url: str) -> bool:
    """Return whether an address has the last row of the archive that it reaches over.

    False if it reaches over none.

    Raises
    ------
    NetworkMismatchError
        If its answers prove that it knows all of a row's moment, and doesn't have the row. Nodes
        of different memory may stand behind one address.
    """
    how: Any = {"workers": 1, "on_bad_rows": "quarantine", "stats": source.stats}
    alone = NodeSource(source.client, source.filters, **how)
    alone.keep([url])
    (first, last), files = writer.manifest.evidence.bounds, writer.manifest.files
    for _ in range(2):
        period = max((name for name, file in files.items() if file.first < last), default=None)
        if period is None:
            break
        moment, held = last_block(within(writer.rows_of(period), EVER[0], last))
        accounts = {*accounts_in(held)}
        for step in alone.rows(moment, moment + 1):
            # Whose a bad row is can't be known.
            if step.bad_rows or any(accounts & {*accounts_in(batch)} for batch in step.batches):
                return True
        if not alone.evidence().incomplete(moment, moment + 1):
            raise NetworkMismatchError(
                f"{url} has none of the rows of {writer.store.uri} from {moment_text(moment)}: "
                "it is of another network, or has lost rows"
            )
        last = min([moment, *(reach.end for reach in alone.reaches(first, last))])
    return False


def write_metrics(path: PathLike, store: Store, *, report: Run | None, exit_code: int) -> None:
    """Write an export's figures for Prometheus, as the node exporter's textfile collector reads it.

    Parameters
    ----------
    path
        The file, whose name the collector wants to end in `.prom`; it is replaced, whole.
    store
        The archive; what can't be read of it has no figures.
    report
        The run's; `None` where it ended before it began, as on a held lock.
    exit_code
        What the command ended with.

    Raises
    ------
    OSError
        If it can't be written.
    """
    from prometheus_client import (  # noqa: PLC0415 - few ask for these figures
        CollectorRegistry,
        Gauge,
        write_to_textfile,
    )

    run = report or Run()
    values = {
        "last_run_timestamp_seconds": run.started.timestamp(),
        "conflicts": run.conflicts,
        "bad_rows": run.bad_rows,
        "exit_code": exit_code,
    }
    with contextlib.suppress(ArchiveError, OSError):
        manifest = read_manifest(store)
        evidence = manifest.evidence
        values["archive_rows"] = sum(note.rows for note in manifest.files.values())
        values["missing_intervals"] = len(evidence.missing(*evidence.bounds))
        values["unproven_intervals"] = len(evidence.unproven)
        if evidence.answers:
            values["lag_seconds"] = time.time() - evidence.bounds[1] / 1e6
        success = last_success(store)
        if success is not None and success.ended is not None:
            values["last_success_timestamp_seconds"] = success.ended.timestamp()
    registry = CollectorRegistry()
    for name in filter(values.__contains__, _GAUGES):
        title = f"balance_analysis_export_{name}"
        gauge = Gauge(title, _GAUGES[name], ["archive"], registry=registry)
        gauge.labels(without_credentials(store.uri)).set(round(values[name], 3))
    write_to_textfile(os.fspath(path), registry)
