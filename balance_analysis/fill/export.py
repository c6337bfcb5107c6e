"""Fill an archive from nodes: each run goes on where the archive ends.

A run asks for the end of the archive again, so that a node of another network, or a row that has
changed, shows; then for what follows.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
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
        rest = Rest(to_microseconds(lagging), to_duration(settle).total_seconds())
        exporting = _Export(
            client=client,
            store=store,
            names=names,
            request=request,
            run=run,
            overlap=to_duration(overlap) // dt.timedelta(microseconds=1),
            fill_gaps=fill_gaps,
            rest=rest,
        )
        return Job(exporting.source, exporting.plan, exporting.finish)

    return fill(archive, job, "export", **options)
