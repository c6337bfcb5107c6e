"""Run a function of analysis on every slice of an archive, and gather the results."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.grid import check_cells, make_grid, memory
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.analysis.units import in_units
from balance_analysis.archive.accounts import (
    FILE_KEY,
    KeyRange,
    combine_accounts,
    cut,
    find_accounts,
)
from balance_analysis.archive.sidecars import read_archive_names
from balance_analysis.archive.snapshot import Scan
from balance_analysis.archives import Archive, to_archive
from balance_analysis.cluster.combine import write_frames
from balance_analysis.cluster.pool import Pool
from balance_analysis.files.atomic import PathLike, check_output
from balance_analysis.filters import FilterKeywords
from balance_analysis.load.request import Report, check_positive, reporting
from balance_analysis.names import Names, note_names
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY

if TYPE_CHECKING:
    from distributed import Client


ROWS: Final = 3_000_000
"""How many rows a task has: with what is made of them, a worker needs a gigabyte."""

_CELLS: Final = 2
"""How many accounts times points, for each of these rows, a task has: likewise."""

_FILES: Final = 8
"""How many files a task counts the accounts of."""

_BYTES: Final = 150
"""What a row takes at least, of one account in one task."""

_LOCAL: Final = 4
"""The most threads that are used without a cluster: each holds a task's rows."""


class Options(FilterKeywords, total=False):
    """What every function here takes.

    Attributes
    ----------
    asset_id, party_ids, market_ids, account_types, assets, labels, partial
        As for `Archive.read`: the table is what that returns.
    opening
        What accounts held before, as for the functions of a table.
    to
        A Parquet file to write the result to, whole or not at all, instead of returning it: then no
        more than a few slices are in memory at once. Its rows stand by party, asset, type and
        market, then time, as in the files of an archive.
    rows_per_task
        How many rows a task may read at once. The default, 3,000,000, takes a gigabyte of memory;
        more take in proportion. An account that has more is read whole: ValueError if its rows
        don't fit into a worker's memory.
    client
        Where to run: a `distributed.Client`, or an executor of `concurrent.futures`; by default
        the client that the caller has made, else some threads of this process.
    progress
        As for `load_balance_changes`: by the slices that are done.
    """

    partial: bool
    opening: pd.DataFrame | None
    to: PathLike | None
    rows_per_task: int
    client: Client | Executor | None
    progress: bool | Report | None


@dataclass(frozen=True, slots=True)
class Share:
    """What a task gets: a slice of the accounts, and what these held before the rows."""

    part: KeyRange
    opening: pd.DataFrame | None

    def __str__(self) -> str:
        return str(self.part)


def _work(
    scan: Scan, function: Callable[..., pd.DataFrame], share: Share
) -> tuple[int, pd.DataFrame]:
    """Return how many rows a slice has, and what a function makes of them."""
    with in_one_thread():  # as many slices are worked on at once as there are threads to do it
        table = scan.read(share.part)
        result = function(table)
        return len(table), result


@dataclass(frozen=True, slots=True)
class Job:
    """What is read of an archive, where to work on it, and where the result goes."""

    scan: Scan
    grid: Any
    """The periods of all slices together, those of the whole table; it stands for a `freq`."""
    names: Names
    opening: pd.DataFrame | None = None
    to: PathLike | None = None
    rows_per_task: int = ROWS
    client: Client | Executor | None = None
    progress: bool | Report | None = None

    def __post_init__(self) -> None:
        check_positive("rows_per_task", self.rows_per_task)
        if self.to is not None:
            check_output(self.to)

    def each_slice(
        self,
        function: Callable[..., pd.DataFrame],
        *,
        cells: int,
        is_kept: bool = False,
    ) -> Iterator[pd.DataFrame]:
        """Yield what a function makes of each slice's table and `opening`, in the files' order.

        Parameters
        ----------
        function
            Gets a slice's table, and `opening`.
        cells
            How many cells each account has in the result.
        is_kept
            Whether all results are held in memory in the end.

        Raises
        ------
        ValueError
            If they don't fit there, or the rows of a task not where it runs.
        """
        texts = None
        with running(self.client) as pool, reporting(self.progress) as show:
            found = pool.map(Scan.accounts, self.scan.split(_FILES))
            counts = combine_accounts(
                itertools.chain(found, [] if texts is None else [_once(texts)])
            )
            if is_kept:
                check_cells(counts.num_rows, cells)
            parts = self._parts(pool, counts, cells)
            shares, done = self._shares(parts, texts), 0
            results = pool.map(partial(_work, self.scan, function), shares)
            for number, (size, result) in enumerate(results, start=1):
                done += size
                show(number / len(parts), done)
                yield result

    def _parts(self, pool: Pool, counts: pa.Table, cells: int) -> list[KeyRange]:
        """Return slices of accounts; one that has more rows than a task is read whole."""
        most = self.rows_per_task
        large = counts.filter(pc.greater(counts["rows"], most))
        for account, rows in zip(_keys(large), large["rows"].to_pylist(), strict=True):
            check_memory(pool, account, rows)
        return cut(counts, rows=most, accounts=_CELLS * most / max(cells, 1))

    def gather(
        self,
        function: Callable[..., pd.DataFrame],
        combine: Callable[[Sequence[pd.DataFrame]], pd.DataFrame],
        *,
        cells: int,
        is_by_account: bool = True,
    ) -> pd.DataFrame | None:
        """Return what a function makes of all slices, combined, or write it.

        See `each_slice`. What is by account is written as it comes.
        """
        is_kept = is_by_account and self.to is None
        frames = self.each_slice(function, cells=cells, is_kept=is_kept)
        if self.to is None:
            return in_units(combine(list(frames)), None, {ATTRS_KEY: note_names({}, self.names)})
        found = frames if is_by_account else [combine(list(frames))]
        write_frames(found, self.to, is_by_account=is_by_account)
        return None

    def _shares(self, parts: Sequence[KeyRange], texts: pd.DataFrame | None) -> list[Share]:
        """Return slices, each with what its accounts, whose ids are given as text, held before."""
        opening = self.opening
        if opening is None or texts is None:
            return [Share(part, None) for part in parts]
        keys = sorted(zip(texts.itertuples(index=False, name=None), range(len(texts)), strict=True))

        def share(part: KeyRange) -> Share:
            first, stop = (
                len(keys) if key is None else bisect_left(keys, key, key=itemgetter(0))
                for key in (part.low, part.high)
            )
            held = opening.iloc[[place for _, place in keys[first:stop]]]
            return Share(part, held)

        return list(map(share, parts))


def check_memory(pool: Pool, account: tuple[str, ...], rows: int) -> None:
    """Raise ValueError if so many rows of an account don't fit into a worker's memory."""
    workers = pool.executor.scheduler_info()["workers"] if pool.workers else {}
    limits = [each["memory_limit"] for each in workers.values() if each["memory_limit"]]
    needed, limit = rows * _BYTES, min([*limits, memory()])
    if needed > limit:
        raise ValueError(
            f"the account {' '.join(map(repr, account))} has {rows:,} rows that one task needs at "
            f"once: they take {needed / 1e9:,.1f} GB or more, but a worker has {limit / 1e9:,.1f}. "
            "Give workers more memory"
        )


def _keys(accounts: pa.Table) -> Iterator[tuple[str, ...]]:
    """Yield the ids of accounts, as they stand in files."""
    return zip(*accounts.select(FILE_KEY).to_pydict().values(), strict=True)


def make_job(archive: Archive, given: Options, **how: Any) -> Job:  # noqa: ANN401 - of `make_grid`
    """Return what is asked for of an archive, fixed at this moment.

    Raises
    ------
    OSError
        If no file can be written there.
    IncompleteError, ArchiveError, ValueError
        As `Archive.read`, or if `rows_per_task` is not positive, or the periods are none.
    TypeError
        If it is no archive.
    """
    archive, options = to_archive(archive), dict[str, Any](given)
    own = {each.name: options.pop(each.name) for each in fields(Job) if each.name in options}
    scan, names = archive.scan(**options), read_archive_names(archive.store)
    grid = make_grid(np.array(scan.extent(), np.int64), **how, known=tuple(scan.evidence.complete))
    return Job(scan, grid, names.but(given.get("assets"), given.get("labels")), **own)


def _once(ids: pd.DataFrame) -> pa.Table:
    """Return accounts as `Scan.accounts` does, each as if it had a row."""
    columns = {name: pa.array(ids[name], pa.string()).dictionary_encode() for name in ACCOUNT_KEY}
    return find_accounts(pa.table(columns))


@contextlib.contextmanager
def running(client: Client | Executor | None) -> Iterator[Pool]:
    """Give what runs tasks.

    Parameters
    ----------
    client
        A client of a cluster or an executor; `None` stands for the client that the caller has made,
        and where there is none for threads, which end with the context.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or its workers can't do the work.
    """
    if client is None and "distributed" in sys.modules:
        with contextlib.suppress(ValueError):  # the caller has made none
            client = sys.modules["distributed"].Client.current()
    if client is not None:
        yield Pool.of(client)
        return
    width = min(os.cpu_count() or 1, _LOCAL)
    with ThreadPoolExecutor(width, "balance-analysis") as pool:
        yield Pool(pool, width)
