"""The functions of analysis over archives, by slices of accounts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from balance_analysis.analysis import averages, summary
from balance_analysis.analysis import flows as changes
from balance_analysis.analysis.balances import balance_series
from balance_analysis.analysis.groups import group_names
from balance_analysis.cluster.combine import add_flows, in_order, write_frames
from balance_analysis.cluster.tasks import make_job, make_span
from balance_analysis.cluster.totals import add_totals, partial_totals
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from balance_analysis.analysis.grid import Frequency, Grid, Zone
    from balance_analysis.archive.archive import Archive
    from balance_analysis.cluster.tasks import Options
    from balance_analysis.files.atomic import PathLike
    from balance_analysis.schema import Instant


def series(
    archive: Archive,
    *,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    tz: Zone | None = None,
    to: PathLike | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `balance_series` of an archive, in the long layout.

    Parameters
    ----------
    archive
        The archive. Its table is `archive.read(...)` with the filters of `options`, all of its
        time: `start` and `end` only bound the result.
    freq, start, end, opening, tz
        As for `balance_series`.
    to
        A Parquet file to write the result to, whole or not at all, instead of returning it: then no
        more than a few slices are in memory at once. Its rows stand by party, asset, type and
        market, then time, as in the files of an archive.
    **options
        Filters, `partial`, `client` and `progress`: see `cluster.Options`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_series(archive.read(...), layout="long", ...)`; `None` where `to` is
        given.

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
    job = make_job(archive, options, to)
    bounds: dict[str, Any] = {"start": start, "end": end, "tz": tz}
    if freq is None:
        work, cells = partial(balance_series, **bounds, layout="long"), 0
    else:
        grid: Any = make_span(job.chosen, freq=freq, **bounds)
        work, cells = partial(balance_series, freq=grid, layout="long"), len(grid.points)
    frames = job.each_slice(work, opening=opening, cells=cells, is_kept=to is None)
    return _by_account(frames, to)


def time_weighted_average(
    archive: Archive,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    freq: Frequency | None = None,
    opening: pd.DataFrame | None = None,
    tz: Zone | None = None,
    to: PathLike | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `time_weighted_average` of an archive.

    Parameters
    ----------
    archive, to, **options
        See `cluster.series`.
    start, end, freq, opening, tz
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
    job = make_job(archive, options, to)
    grid: Any = make_span(job.chosen, freq=freq, start=start, end=end, tz=tz)
    work = partial(averages.time_weighted_average, freq=grid)
    frames = job.each_slice(work, opening=opening, cells=len(grid), is_kept=to is None)
    return _by_account(frames, to)


def summarize_accounts(
    archive: Archive,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    to: PathLike | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `summarize_accounts` of an archive.

    Parameters
    ----------
    archive, to, **options
        See `cluster.series`.
    start, end, opening
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
    job = make_job(archive, options, to)
    grid = make_span(job.chosen, freq=None, start=start, end=end, tz=None)
    work = partial(summary.summarize_accounts, **_bounds(grid))
    frames = job.each_slice(work, opening=opening, cells=1, is_kept=to is None)
    return _by_account(frames, to)


def flows(
    archive: Archive,
    *,
    freq: Frequency | None = "1D",
    by: str | Sequence[str] = ACCOUNT_KEY,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    tz: Zone | None = None,
    to: PathLike | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `flows` of an archive.

    Parameters
    ----------
    archive, to, **options
        See `cluster.series`. Flows of groups are added up before they are written, and stand as
        `balance_analysis.flows` returns them.
    freq, by, start, end, opening, tz
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
    is_by_account = {*ACCOUNT_KEY} <= {*names}
    job = make_job(archive, options, to)
    grid: Any = make_span(job.chosen, freq=freq, start=start, end=end, tz=tz)
    work = partial(changes.flows, freq=grid, by=names)
    frames = job.each_slice(work, opening=opening, cells=len(grid))
    if is_by_account:
        return _by_account(frames, to, names)
    return _kept(add_flows(list(frames), names), to)


def totals(
    archive: Archive,
    *,
    by: str | Sequence[str] = ("asset_id", "account_type"),
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    tz: Zone | None = None,
    to: PathLike | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame | None:
    """Return `totals` of an archive.

    The totals of all slices come together in this process: a row for each group, point and slice.

    Parameters
    ----------
    archive, to, **options
        See `cluster.series`. In a file, rows stand as `balance_analysis.totals` returns them.
    by, freq, start, end, opening, tz
        As for `balance_analysis.totals`.

    Returns
    -------
    pandas.DataFrame
        Equal to `balance_analysis.totals(archive.read(...), ...)`; `None` where `to` is given.

    Raises
    ------
    OverflowError
        As `balance_analysis.totals`.
    IncompleteError, ArchiveError, ValueError, CheckError, OSError
        See `cluster.series`.
    """
    names = group_names(by)
    job = make_job(archive, options, to)
    grid = make_span(job.chosen, freq=freq, start=start, end=end, tz=tz)
    work = partial(partial_totals, by=names, grid=grid, is_at_changes=freq is None)
    slices = list(job.each_slice(work, opening=opening, cells=len(grid.points)))
    found = add_totals(
        [part for parts in slices for part in parts],
        by=names,
        grid=grid,
        is_at_changes=freq is None,
        from_start=start is not None,
    )
    return _kept(found, to)


def _bounds(grid: Grid) -> dict[str, Any]:
    """Return a grid's bounds as arguments; none where it has no period."""
    if not len(grid):
        return {}
    start, end = (from_microseconds(int(grid.edges[place])) for place in (0, -1))
    return {"start": start, "end": end}


def _by_account(
    frames: Iterator[pd.DataFrame], to: PathLike | None, names: Sequence[str] = ACCOUNT_KEY
) -> pd.DataFrame | None:
    """Return results of slices as one, or write them as they come."""
    if to is None:
        return in_order(list(frames), names)
    write_frames(frames, to, is_by_account=True)
    return None


def _kept(frame: pd.DataFrame, to: PathLike | None) -> pd.DataFrame | None:
    """Return a result, or write it."""
    if to is None:
        return frame
    write_frames([frame], to, is_by_account=False)
    return None
