"""The functions of analysis over archives of any size, on this machine or on a Dask cluster.

A slice of accounts, over all time, is one task: it is read out of every file of the archive, and
the function that works on tables runs on it. So nothing has to be carried from day to day, and no
row is read twice or moved between machines. Each slice has a bounded size, unless one account has
more rows than that; only results come back.

Nothing here starts a cluster. `client` is a `distributed.Client`, or any executor of
`concurrent.futures`; by default the active Dask client, or else some threads of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import pandas as pd

from balance_analysis.analysis import flows as changes
from balance_analysis.analysis import statistics, summary
from balance_analysis.analysis import totals as sums
from balance_analysis.analysis.balances import balance_series
from balance_analysis.analysis.grid import Frequency, Zone
from balance_analysis.analysis.totals import group_names
from balance_analysis.archives import Archive
from balance_analysis.cluster.combine import add_up, in_order, total_changes, totals_of
from balance_analysis.cluster.tasks import Job, Options, make_job
from balance_analysis.filters import takes
from balance_analysis.schema import ACCOUNT_KEY, Instant, from_microseconds

__all__ = [
    "Options",
    "flows",
    "series",
    "summarize_accounts",
    "time_weighted_average",
    "totals",
]


@takes(Options, Job, Archive.scan)
def series(
    archive: Archive,
    *,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `balance_series` of an archive, in the long layout.

    Parameters
    ----------
    archive
        The archive. Its table is `archive.read(...)` with the filters of `options`, all of its
        time: `start` and `end` only bound the result.
    freq, start, end, tz
        As for `balance_series`.
    **options
        Filters, names, `opening`, `partial`, `to`, `client` and more: see `cluster.Options`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_series(archive.read(...), layout="long", ...)`, with the names in its
        attrs; `None` where `to` is given.

    Raises
    ------
    IncompleteError, ArchiveError
        As `archive.read`.
    ValueError, CheckError
        As `balance_series`, or if a worker has not the packages that this process has. What a task
        raises arrives as it was raised, with a note of the accounts that it was about.
    OSError
        If `to` can't be written: before any work, where that is known.
    concurrent.futures.CancelledError
        If the cluster is lost.
    """
    job = make_job(archive, options, freq=freq, start=start, end=end, tz=tz)
    work: Any = partial(balance_series, freq=job.grid, layout="long")
    if freq is None:
        work = partial(balance_series, start=start, end=end, tz=tz, layout="long")
        return job.gather(work, in_order, cells=0)
    return job.gather(work, in_order, cells=len(job.grid.points))


@takes(Options, Job, Archive.scan)
def time_weighted_average(
    archive: Archive,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    freq: Frequency | None = None,
    tz: Zone | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `time_weighted_average` of an archive.

    Parameters
    ----------
    archive, options
        See `cluster.series`.
    start, end, freq, tz
        As for `balance_analysis.time_weighted_average`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_analysis.time_weighted_average(archive.read(...), ...)`; `None` where `to`
        is given.

    Raises
    ------
    IncompleteError, ArchiveError, ValueError, CheckError, OSError
        See `cluster.series`.
    """
    job = make_job(archive, options, freq=freq, start=start, end=end, tz=tz)
    work = partial(statistics.time_weighted_average, freq=job.grid)
    return job.gather(work, in_order, cells=len(job.grid))


@takes(Options, Job, Archive.scan)
def summarize_accounts(
    archive: Archive,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `summarize_accounts` of an archive.

    Parameters
    ----------
    archive, options
        See `cluster.series`.
    start, end
        As for `balance_analysis.summarize_accounts`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_analysis.summarize_accounts(archive.read(...), ...)`; `None` where `to` is
        given.

    Raises
    ------
    OverflowError
        As `balance_analysis.summarize_accounts`.
    IncompleteError, ArchiveError, ValueError, CheckError, OSError
        See `cluster.series`.
    """
    job = make_job(archive, options, start=start, end=end)
    edges = [from_microseconds(int(edge)) for edge in job.grid.edges]
    bounds: dict[str, Any] = {"start": edges[0], "end": edges[-1]} if len(job.grid) else {}
    work = partial(summary.summarize_accounts, **bounds)
    return job.gather(work, in_order, cells=1)


@takes(Options, Job, Archive.scan)
def flows(
    archive: Archive,
    *,
    freq: Frequency | None = "1D",
    by: str | Sequence[str] = ACCOUNT_KEY,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `flows` of an archive.

    Parameters
    ----------
    archive, options
        See `cluster.series`. Flows of groups are added up before they are written, and stand as
        `balance_analysis.flows` returns them.
    freq, by, start, end, tz
        As for `balance_analysis.flows`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_analysis.flows(archive.read(...), ...)`; `None` where `to` is given.

    Raises
    ------
    OverflowError
        As `balance_analysis.flows`.
    IncompleteError, ArchiveError, ValueError, CheckError, OSError
        See `cluster.series`.
    """
    names = group_names(by)
    job = make_job(archive, options, freq=freq, start=start, end=end, tz=tz)
    work = partial(changes.flows, freq=job.grid, by=names)
    is_by_account = {*ACCOUNT_KEY} <= {*names}
    combine = partial(in_order if is_by_account else add_up, names=names)
    return job.gather(work, combine, cells=len(job.grid), is_by_account=is_by_account)


@takes(Options, Job, Archive.scan)
def totals(
    archive: Archive,
    *,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    tz: Zone | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `totals` of an archive.

    The totals of all slices come together in this process: a row for each group, point and slice.

    Parameters
    ----------
    archive, options
        See `cluster.series`. In a file, rows stand as `balance_analysis.totals` returns them.
    by, freq, start, end, tz
        As for `balance_analysis.totals`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_analysis.totals(archive.read(...), ...)`; `None` where `to` is given.

    Raises
    ------
    OverflowError
        As `balance_analysis.totals`; where balances are negative, also for a part of the accounts.
    IncompleteError, ArchiveError, ValueError, CheckError, OSError
        See `cluster.series`.
    """
    names = group_names(by)
    job = make_job(archive, options, freq=freq, start=start, end=end, tz=tz)
    work: Any = partial(sums.totals, by=names, freq=job.grid)
    combine: Any = partial(add_up, names=names)
    if freq is None:
        work = partial(total_changes, by=names, grid=job.grid)
        combine = partial(totals_of, names=names, from_start=start is not None)
    cells = len(job.grid.points)
    return job.gather(work, combine, cells=cells, is_by_account=False)
