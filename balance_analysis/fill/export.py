"""Fill an archive from nodes: each run continues where the archive ends.

A run first asks for the end of the archive again, to detect nodes of another network and changed
rows; then for newer rows and, if wanted, for gaps. Metrics of the run are written for Prometheus.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

import pandas as pd

from balance_analysis import errors
from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.runs import Run, RunWriter, iter_reports, last_success
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.files.atomic import PathLike
from balance_analysis.fill import LAG, ON_BAD_ROWS, OVERLAP
from balance_analysis.fill.fill import Source, bind, fill
from balance_analysis.load import PAGE_SIZE, WORKERS
from balance_analysis.load.arguments import OnBadRows, OnProgress, make_bounds
from balance_analysis.load.nodes import NodeSource
from balance_analysis.node.client import Client, RequestStats, Response, Retry
from balance_analysis.node.limits import fetch_limits, network_limits
from balance_analysis.node.walk import Step
from balance_analysis.table import moments
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, read_names
from balance_analysis.table.schema import last_block, within
from balance_analysis.table.text import without_credentials

_GAUGES: Final = {
    "last_success_timestamp_seconds": "When the last successful run ended, with or without gaps.",
    "last_run_timestamp_seconds": "When the last run began.",
    "archive_rows": "Rows in the archive.",
    "lag_seconds": "How far the end of the archive lies behind now.",
    "missing_intervals": "Stretches inside the archive that no node answered for.",
    "unproven_intervals": "Stretches in which rows may be missing.",
    "conflicts": "Archive rows that the last run received with another balance, or not at all.",
    "bad_rows": "Rows that the last run set aside.",
    "exit_code": "Exit code of the last run; 0 if nothing is wrong or missing.",
}
"""The figures of `write_metrics` and their help texts."""

_NO_LIMITS: Final = (404, 501)
"""Statuses of a node that has no limits, but serves balance changes."""


def export(
    client: Client,
    archive: Stored | PathLike,
    *,
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
    lag: moments.Duration = LAG,
    overlap: moments.Duration = OVERLAP,
    fill_gaps: bool = False,
    page_size: int = PAGE_SIZE,
    workers: int = WORKERS,
    on_bad_rows: OnBadRows = ON_BAD_ROWS,
    partition: layout.Partition | None = None,
    progress: bool | OnProgress | None = None,
    dry_run: bool = False,
    on_report: Callable[[Run], object] | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Run:
    """Bring an archive up to date with a node; the first run creates it.

    Parameters
    ----------
    client
        The node, or several nodes of one network in any order. A node that lags behind the archive,
        fails at the start, or turns out to be of another network is left out with a warning.
    archive
        The Archive to fill, or its path. It is bound to the filters and the partition of its first
        run.
    start
        The start, if the archive doesn't reach back that far; UTC if without a time zone. By
        default the run continues where the archive ends; the first run starts at the node's oldest
        row.
    end
        The end (exclusive); by default now, less `lag`. The archive never ends beyond the node's
        last block; without block headers, that is the block of its newest row. The block is left
        out if it is newer than `lag`, as the node may still add rows to it. An older one is
        included once it is complete: ten seconds later it is still the last one, or a later one has
        followed. An export waits for that only if the archive lacks the block.
    asset_id, party_ids, market_ids, account_types
        The accounts to export, as for `load_balance_changes`.
    assets, labels
        Symbols and decimals of assets, as for `read_assets`, and your own names, as for
        `read_labels`. The archive adds them to its own, and passes them to its readers.
    partition
        The period of a file: a "day" in UTC, a "month" or an "hour"; by default the archive's, or a
        day for a new one. From files of a month, one party's rows are read several times faster,
        but each run writes the whole file of its month again.
    lag
        How far behind now the default end lies: a timedelta, or text such as "90s", "2m", "1h".
    overlap
        How much of the archive's end to ask for again and compare, whenever newer rows are asked
        for.
    fill_gaps
        Whether to ask also for missing and unproven stretches inside the archive. After a run that
        failed or was killed, they are always asked for.
    page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`. Rows that are set aside are kept with their reasons.
    dry_run
        Write nothing, and send only the requests that planning needs. The result's `spans` are the
        plan.
    on_report
        Called with the run's record when the run begins, and when it has succeeded or failed; not
        in a dry run, nor if the archive is refused.

    Returns
    -------
    Run
        The run's record.

    Notes
    -----
    A period is committed once all of its rows have arrived. A run that fails or is interrupted also
    commits the part of the current period that has arrived, and the next run continues there. After
    a killed process, the next run asks for that period again from its start.

    Raises
    ------
    ArchiveLockedError
        If another run is writing to the archive, or has taken over its lock in an object store.
        An object store without conditional puts has no lock.
    NetworkMismatchError
        If the archive is of another network than the node, or it is new and the nodes are of
        different ones.
    ArchiveError
        If the archive is bound to another query, is damaged, or the folder has other files.
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `load_balance_changes`. What was complete before is committed.
    OSError
        If a file can't be written.
    """
    store, names = to_store(archive), read_names(assets, labels)
    query = bind(store, partition, names, (asset_id, party_ids, market_ids, account_types))
    run = RunWriter(store, Run(kind="export"), stats=RequestStats())
    old = dt.datetime.now(dt.UTC) - moments.to_duration(lag)
    asked = _Asked(
        names,
        *make_bounds(start, old if end is None else end),
        moments.to_microseconds(old),
        moments.to_duration(overlap) // dt.timedelta(microseconds=1),
        fill_gaps,
    )
    sizes: Any = {"page_size": page_size, "workers": workers, "on_bad_rows": on_bad_rows}
    source = _Nodes(store, run, asked, client=client, filters=query.filters, **sizes)
    return fill(store, query, source, run, progress=progress, dry_run=dry_run, on_report=on_report)


class _Asked(NamedTuple):
    """The arguments of an export, with times in microseconds.

    `old` is now less the lag: only a last block before it is asked for. `overlap` is how much of
    the archive's end to ask for again.
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
        The export's arguments.
    options
        Arguments of `NodeSource`.
    """

    def __init__(self, store: Store, run: RunWriter, asked: _Asked, **options: Any) -> None:  # noqa: ANN401 - NodeSource's
        super().__init__(**options, stats=run.stats)
        self.store, self.run, self.asked = store, run, asked
        self.limits: dict[str, Response[dict[str, Any]]] = {}

    def plan(self, writer: Writer) -> list[moments.Span]:
        """Return the stretches to ask for, in time order."""
        manifest, record = writer.manifest, self.run.record
        evidence, (_, start, end, *_) = manifest.evidence, self.asked
        self._ask_addresses(writer)
        record.source = self.urls[0]
        if self.limits:
            best = max(self.limits.values(), key=lambda answer: answer.block_time or 0)
            record.source, record.block_height = best.source, best.block_height
            self.run.limits = network_limits(best, pd.Timestamp(record.started))
        if not evidence.answers:
            begin, end = self.interval(start, end)
            return self._planned([(begin, self._known_end(begin, end))], begin, end)
        first, last = evidence.bounds
        begin, known = last - self.asked.overlap, self._known_end(last - self.asked.overlap, end)
        spans = [] if start is None else [(start, first)]
        if known > last:
            row = max((entry.last for entry in manifest.files.values()), default=last)
            spans.append((max(min(begin, row), evidence.answered[-1][0]), known))
        elif known + 1 < min(last, end):
            record.lagging = True
            errors.logger.warning(
                "lagging behind the archive: %s, with rows before %s; the archive ends at %s",
                " and ".join(self.urls),
                moments.moment_text(known),
                moments.moment_text(last),
            )
        # A run that failed or was killed may have left gaps or unproven stretches.
        before = next((run for run in iter_reports(self.store) if run.id != record.id), None)
        is_all = self.asked.fill_gaps or not (before is None or before.is_success)
        spans += [span for span in evidence.incomplete(first, last) if is_all or span[1] == last]
        return self._planned(spans, moments.EVER[0], known)

    def _planned(self, spans: list[moments.Span], start: int, end: int) -> list[moments.Span]:
        """Return the parts of stretches in [start, end), after asking once for the nodes' reach."""
        spans = moments.joined(moments.clipped(spans, start, end))
        if spans and len(self.urls) > 1:
            self.reaches(spans[0][0], spans[-1][1])
        return spans

    def _known_end(self, begin: int, end: int) -> int:
        """Return the end of the part of [begin, end) in which an address may know all rows.

        The last block is included if the chain may be idle. Without block headers it is the time of
        the newest row.
        """
        ends = [
            # A served archive reports its end, which isn't a block.
            head + (head < self.asked.old and "X-Origins" not in answer.headers)
            for answer in self.limits.values()
            if (head := answer.block_time) is not None
        ]
        if not ends and begin < end:
            reaches = self.reaches(begin, end)
            ends = [x.end + (x.height is not None and x.end < self.asked.old) for x in reaches]
        return min(end, max(ends, default=end))

    def _ask_limits(self, url: str) -> None:
        # Don't wait for an address that refuses connections while there are others.
        is_last = url == self.urls[-1]
        retry = Retry(attempts=1) if self.limits else Retry(refusals=is_last)
        try:
            options: Any = {"base_url": url, "stats": self.stats, "retry": retry}
            self.limits[url] = fetch_limits(self.client, **options)
        except errors.RequestError as error:
            # A node without limits still serves balance changes.
            if error.status not in _NO_LIMITS:
                raise

    def _ask_addresses(self, writer: Writer) -> None:
        """Ask each address once for the limits; leave out other networks and addresses that fail.

        If no address is left, one's error is raised, preferably not a NetworkMismatchError.
        """
        urls, good, failures = self.urls, list[str](), list[errors.BalanceAnalysisError]()
        for url in urls:
            try:
                self._ask_limits(url)
                if len(urls) > 1 and writer.manifest.files and has_rows(self, writer, url):
                    self._compared.add(url)
                good.append(url)
            except (
                errors.RequestError,
                errors.IncompleteError,
                errors.NetworkMismatchError,
            ) as error:
                failures.append(error)
                if len(urls) > 1:
                    errors.logger.warning("%s; it is left out", error)
        if not good:
            raise min(failures, key=lambda error: isinstance(error, errors.NetworkMismatchError))
        self.limits = {url: answer for url, answer in self.limits.items() if url in good}
        self.keep(good)

    def check(self, writer: Writer) -> bool:
        """Return whether the node has a row of the archive, and warn if not: see `has_rows`."""
        # Of several addresses, the plan has already left out those of other networks.
        if len(self.urls) > 1 or has_rows(self, writer, self.urls[0]):
            return True
        errors.logger.warning(
            "%s no longer has the archive's rows: nothing shows that it is of the same network",
            self.urls[0],
        )
        return False

    def steps(self, start: int, end: int) -> Generator[Step, None, None]:
        """Yield the rows: see `known_rows`."""
        return self.known_rows(start, end, self.asked.old)

    def finish(self, writer: Writer) -> None:
        """Write the limits, and the names that the caller passed."""
        sidecars.write_archive_names(self.store, self.asked.names)
        if self.run.limits is not None:
            with self.run.noting_damage(layout.LIMITS):
                writer.keep_limits(self.run.limits)


def has_rows(source: NodeSource, writer: Writer, url: str) -> bool:
    """Return whether an address has the last of the archive's rows that lie in its reach.

    False if none lies in its reach.

    Raises
    ------
    NetworkMismatchError
        If its answers prove that it knows all rows of a moment, but lacks the archive's. Nodes that
        keep different histories may share one address.
    """
    single = source.alone(url, source.filters)
    (first, last), files, tries = writer.manifest.evidence.bounds, {**writer.manifest.files}, 2
    while tries:
        period = max((name for name, file in files.items() if file.first < last), default=None)
        if period is None:
            break
        try:
            old = writer.rows_of(period)
        except errors.ArchiveDamagedError:
            del files[period]
            continue
        tries -= 1
        moment, rows = last_block(within(old, moments.EVER[0], last))
        if single.has_any(rows, moment, writer.store.uri):
            return True
        last = min([moment, *(reach.end for reach in single.reaches(first, last))])
    return False


def write_metrics(path: PathLike, store: Store, *, report: Run | None, exit_code: int) -> None:
    """Write an export's metrics for Prometheus' node exporter (textfile collector).

    Parameters
    ----------
    path
        The file, which must end in `.prom` for the collector; it is replaced as a whole.
    store
        The archive; figures that can't be read from it are left out.
    report
        The run's record; `None` if the command failed before the run began, as on a held lock.
    exit_code
        The command's exit code.

    Raises
    ------
    OSError
        If it can't be written.
    """
    import prometheus_client  # noqa: PLC0415 - few ask for these figures

    run = report or Run()
    values = {
        "last_run_timestamp_seconds": run.started.timestamp(),
        "conflicts": run.conflicts,
        "bad_rows": run.bad_rows,
        "exit_code": exit_code,
    }
    with contextlib.suppress(errors.ArchiveError, OSError):
        manifest = read_manifest(store)
        evidence = manifest.evidence
        values["archive_rows"] = sum(entry.rows for entry in manifest.files.values())
        values["missing_intervals"] = len(evidence.missing(*evidence.bounds))
        values["unproven_intervals"] = len(evidence.unproven)
        if evidence.answers:
            values["lag_seconds"] = time.time() - evidence.bounds[1] / 1e6
        success = last_success(store)
        if success is not None and success.ended is not None:
            values["last_success_timestamp_seconds"] = success.ended.timestamp()
    registry = prometheus_client.CollectorRegistry()
    for name in filter(values.__contains__, _GAUGES):
        title = f"balance_analysis_export_{name}"
        gauge = prometheus_client.Gauge(title, _GAUGES[name], ["archive"], registry=registry)
        gauge.labels(without_credentials(store.uri)).set(round(values[name], 3))
    prometheus_client.write_to_textfile(os.fspath(path), registry)
