"""One job: a function of analysis on every slice of an archive, and what becomes of the results."""

from __future__ import annotations

import itertools
import numbers
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

import numpy as np
import pyarrow as pa

from balance_analysis.analysis.grid import check_cells, make_grid
from balance_analysis.analysis.history import check_opening
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.archive.archive import Archive
from balance_analysis.archive.datafile import FILE_KEY, Slice
from balance_analysis.archive.scan import Chosen, add_counts, cut
from balance_analysis.cluster.runner import running
from balance_analysis.files.atomic import PathLike, check_output
from balance_analysis.load.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    import pandas as pd
    from distributed import Client

    from balance_analysis.analysis.grid import Frequency, Grid, Zone
    from balance_analysis.load.progress import Report
    from balance_analysis.schema import Instant

ROWS: Final = 3_000_000
"""How many rows a task has: with what is made of them, a worker needs a gigabyte."""

_CELLS: Final = 2
"""How many accounts times points, for each of these rows, a task has: likewise."""

_FILES: Final = 8
"""How many files a task counts the accounts of."""

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What every function here takes.

    Attributes
    ----------
    asset_id, party_ids, market_ids, account_types, partial
        As for `Archive.read`: the table is what that returns.
    rows_per_task
        How many rows a task may read at once. The default, 3,000,000, takes a gigabyte of memory;
        more take in proportion, and read a little less twice.
    client
        Where to run: a `distributed.Client`, or an executor of `concurrent.futures`; by default
        the client that the caller has made, else some threads of this process.
    progress
        As for `load_balance_changes`: by the slices that are done.
    """

    asset_id: str | None
    party_ids: str | Iterable[str]
    market_ids: str | Iterable[str]
    account_types: str | Iterable[str]
    partial: bool
    rows_per_task: int
    client: Client | Executor | None
    progress: bool | Report | None


@dataclass(frozen=True, slots=True)
class Share:
    """What a task gets.

    Attributes
    ----------
    part
        Its slice of the accounts.
    opening
        What these held before the rows.
    """

    part: Slice
    opening: pd.DataFrame | None = None

    def __str__(self) -> str:
        return str(self.part)


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """A function of a table and opening balances, to be called on slices, wherever that is.

    Attributes
    ----------
    chosen
        The rows.
    function
        What is called.
    """

    chosen: Chosen
    function: Callable[..., T]

    def __call__(self, share: Share) -> tuple[int, T]:
        """Return how many rows a slice has, and what the function makes of them."""
        table = self.chosen.read(share.part)
        with in_one_thread():
            return len(table), self.function(table, opening=share.opening)


@dataclass(frozen=True, slots=True)
class Job:
    """What is chosen of an archive, and where to work on it.

    Attributes
    ----------
    chosen
        The rows.
    rows_per_task, client, progress
        See `Options`.
    """

    chosen: Chosen
    rows_per_task: int
    client: Client | Executor | None
    progress: bool | Report | None

    def each_slice(
        self,
        function: Callable[..., T],
        *,
        opening: pd.DataFrame | None,
        cells: int = 0,
        is_kept: bool = False,
    ) -> Iterator[T]:
        """Yield what a function makes of each slice, in the order of the files.

        Parameters
        ----------
        function
            Gets a slice's table, and `opening`.
        opening
            What accounts held before the rows: of all slices.
        cells
            How many cells each account has in the result.
        is_kept
            Whether all results are held in memory in the end.

        Raises
        ------
        ValueError
            If they don't fit there.
        """
        task = Task(self.chosen, function)
        texts = None if opening is None else check_opening(opening)[list(FILE_KEY)]
        with running(self.client) as runner, reporting(self.progress) as show:
            found = runner.map(Chosen.count, self.chosen.split(_FILES))
            counts = add_counts(found if texts is None else itertools.chain(found, [_once(texts)]))
            if is_kept:
                check_cells(counts.num_rows, cells)
            rows = self.rows_per_task
            accounts = _CELLS * rows / max(cells, 1)
            parts = cut(counts, rows=rows, accounts=accounts)
            done = 0
            shares = _shares(parts, opening, texts)
            for number, (size, result) in enumerate(runner.map(task, shares), start=1):
                done += size
                show(number / len(parts), done)
                yield result


def make_job(archive: Archive, options: Options, to: PathLike | None) -> Job:
    """Return what `options` ask for of an archive, fixed at this moment, and to be written to `to`.

    Raises
    ------
    OSError
        If no file can be written there.
    IncompleteError, ArchiveError, ValueError
        As `Archive.read`, or if `rows_per_task` is not positive.
    TypeError
        If it is no archive, or an option is unknown.
    """
    how: dict[str, Any] = {**options}
    unknown = sorted(set(how) - set(Options.__annotations__))
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"{unknown[0]!r} is no option of a cluster's functions: {known}")
    if not isinstance(archive, Archive):
        raise TypeError(f"an Archive is wanted, as ba.Archive(path), not {archive!r:.80}")
    client, progress = how.pop("client", None), how.pop("progress", None)
    rows = how.pop("rows_per_task", ROWS)
    _check_rows(rows)
    if to is not None:
        check_output(to)
    return Job(archive.choose(**how), rows, client, progress)


def make_span(
    chosen: Chosen,
    *,
    freq: Frequency | None,
    start: Instant | None,
    end: Instant | None,
    tz: Zone | None,
) -> Grid:
    """Return the periods and points of all slices together: those of the whole table."""
    times = np.array(chosen.extent(), np.int64)
    return make_grid(times, freq=freq, start=start, end=end, tz=tz, known=chosen.known)


def _once(ids: pd.DataFrame) -> pa.Table:
    """Return accounts as `Chosen.count` does, each as if it had a row."""
    columns = {name: pa.array(ids[name], pa.string()) for name in FILE_KEY}
    return pa.table({**columns, "rows": pa.array(np.ones(len(ids), np.int64))})


def _shares(
    parts: Sequence[Slice], opening: pd.DataFrame | None, texts: pd.DataFrame | None
) -> list[Share]:
    """Return slices, each with what its accounts, whose ids are given as text, held before."""
    if opening is None or texts is None:
        return [Share(part) for part in parts]
    keys = list(texts.itertuples(index=False, name=None))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[place] for place in order]
    edges = [bisect_left(ordered, part.low) for part in parts] + [len(ordered)]
    return [
        Share(part, opening.iloc[order[first:stop]])
        for part, (first, stop) in zip(parts, itertools.pairwise(edges), strict=True)
    ]


def _check_rows(rows: object) -> None:
    if not isinstance(rows, numbers.Integral) or isinstance(rows, bool):
        raise TypeError(f"rows_per_task must be a whole number, not {rows!r}")
    if rows < 1:
        raise ValueError(f"rows_per_task must be positive, not {rows!r}")
