"""What is asked for of an archive, and reading it by slices of accounts.

A choice is fixed at one moment and pickles: others can read it, on other machines too, while the
archive grows. As rows stand by account in every file, a slice is one stretch of each of them.
"""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.archive import layout
from balance_analysis.archive.datafile import (
    FILE_ORDER,
    iter_bounds,
    mask_of,
    may_have,
    open_rows,
    read_groups,
    read_rows,
)
from balance_analysis.archive.manifest import check_seen, noted_files, read_about, read_coverage
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.frame import frame_of
from balance_analysis.known import note_known
from balance_analysis.rows import account_numbers, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS
from balance_analysis.spans import clipped, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from balance_analysis.archive.coverage import Coverage, FileNote
    from balance_analysis.archive.manifest import About
    from balance_analysis.filters import Filters
    from balance_analysis.known import Known
    from balance_analysis.spans import Span

FILE_KEY: Final = FILE_ORDER[: len(ACCOUNT_KEY)]

_WAITING: Final = 1 << 20
"""How many accounts of files wait to be added up."""

_ROUND: Final = 4
"""Of so many slices there is a multiple: two workers, or four, are all busy to the end."""

_ALWAYS: Final = (-(1 << 62), 1 << 62)

Key = tuple[str, ...]
"""An account's ids in the order of files, or the first few of them."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Accounts that stand side by side in an archive's files.

    Attributes
    ----------
    low
        The first of them, or what stands before it.
    high
        What stands behind the last of them; `None` where nothing does.
    """

    low: Key = ()
    high: Key | None = None

    def __str__(self) -> str:
        bounds = {"from": self.low, "before": self.high}
        said = [f"{word} {' '.join(map(repr, key))}" for word, key in bounds.items() if key]
        return f"accounts {' '.join(said)}" if said else "all accounts"


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows, and what of it is asked for.

    Attributes
    ----------
    name
        Its name in the archive.
    notes
        What it must be: one of these, as it may be replaced meanwhile.
    begin, stop
        Its period, microseconds.
    spans
        The covered parts of that which are asked for, disjoint, in time order.
    """

    name: str
    notes: tuple[FileNote, ...]
    begin: int
    stop: int
    spans: tuple[Span, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def is_whole(self) -> bool:
        """Whether all of its period is asked for."""
        return self.spans == ((self.begin, self.stop),)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is asked for of an archive.

    Attributes
    ----------
    store
        Its files.
    filters
        Which accounts.
    files
        Those that may have rows, in time order.
    known
        What of the interval is known to be complete.
    """

    store: Store
    filters: Filters
    files: tuple[File, ...]
    known: Known

    def __str__(self) -> str:
        if len(self.files) <= 1:
            return "".join(map(str, self.files))
        return f"{self.files[0]} to {self.files[-1]}"

    def split(self, count: int) -> list[Chosen]:
        """Return choices of so many of the files each, that are together all."""
        starts = range(0, len(self.files), count)
        return [replace(self, files=self.files[start : start + count]) for start in starts]

    def batches(self, file: File, columns: Sequence[str] = COLUMNS) -> Iterator[pa.Table]:
        """Yield the rows of a file that are asked for, in its order.

        Raises
        ------
        ArchiveError
            If it can't be read.
        """
        with opened(self.store, file.name, file.notes) as source:
            for start, end in file.spans:
                yield from read_rows(
                    source, start=start, end=end, allowed=self.filters.allowed(), columns=columns
                )

    def iter_batches(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yield all rows that are asked for, file by file; see `batches`."""
        schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
        for file in self.files:
            for rows in self.batches(file, columns):
                yield from rows.cast(schema).to_batches()

    def extent(self) -> list[int]:
        """Return the times of the first row and of the last one, microseconds; none without rows.

        Only the files up to the first one that has rows are read, from both ends.
        """
        ends: list[int] = []
        for files, function in ((self.files, pc.min), (reversed(self.files), pc.max)):
            found = (
                function(rows["timestamp"].cast(pa.int64())).as_py()
                for file in files
                for rows in [pa.concat_tables([_TIMES, *self.batches(file, ["timestamp"])])]
                if rows.num_rows
            )
            ends += itertools.islice(found, 1)
        return ends

    def count(self) -> pa.Table:
        """Return the accounts of all files, and how many rows each has there.

        Returns
        -------
        pyarrow.Table
            The ids in the order of `FILE_KEY`, as text, and `rows`. Rows of a time that isn't asked
            for count as well.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """
        return add_counts(map(self._count, self.files))

    def _count(self, file: File) -> pa.Table:
        with opened(self.store, file.name, file.notes) as source:
            rows = read_groups(source, self._needed(source), FILE_KEY)
        rows = self._of_accounts(rows).unify_dictionaries().combine_chunks()
        if not rows.num_rows:
            return _NOTHING
        is_first = np.ones(rows.num_rows, bool)
        is_first[1:] = False
        for column in rows.columns:
            codes = column.chunk(0).indices.to_numpy()
            is_first[1:] |= codes[1:] != codes[:-1]
        firsts = np.flatnonzero(is_first)
        counts = pa.array(np.diff(firsts, append=rows.num_rows))
        return rows.take(pa.array(firsts)).append_column("rows", counts).cast(_NOTHING.schema)

    def read(self, part: Slice) -> pd.DataFrame:
        """Return the rows of a slice as a table.

        Raises
        ------
        ArchiveError
            If a file can't be read.
        """
        parts = [rows for file in self.files for rows in self._read_file(file, part)]
        rows = pa.concat_tables([ARROW_SCHEMA.empty_table(), *parts])
        del parts  # or what was read stays in memory beside what is made of it
        # An account's rows stand in time order, in each file and from file to file.
        table = frame_of(canonical(rows, is_by_time=True))
        note_known(table, self.known)
        return table

    def _needed(self, file: pq.ParquetFile, part: Slice | None = None) -> list[int]:
        """Return the row groups that can have accounts that are asked for."""
        count = file.metadata.num_row_groups
        return [n for n in range(count) if self._may_have(file.metadata.row_group(n), part)]

    def _may_have(self, group: pq.RowGroupMetaData, part: Slice | None = None) -> bool:
        """Whether a row group can have accounts that are asked for, by its statistics."""
        bounds = dict(iter_bounds(group, FILE_KEY))
        if part is not None and len(bounds) == len(FILE_KEY):
            low, high = zip(*(bounds[name] for name in FILE_KEY), strict=True)
            if high < part.low or not _is_before(low, part.high):
                return False
        return may_have(bounds.items(), _ALWAYS, self.filters.allowed())

    def _read_file(self, file: File, part: Slice) -> Iterator[pa.Table]:
        with opened(self.store, file.name, file.notes) as source:
            # In one thread: as many slices are read at once as there are threads to do it.
            rows = read_groups(source, self._needed(source, part))
        rows = self._of_accounts(_stretch(rows, part))
        if not file.is_whole:
            times = rows["timestamp"].cast(pa.int64()).to_numpy()
            edges = np.array(file.spans, np.int64).ravel()
            rows = rows.filter(pa.array(np.searchsorted(edges, times, side="right") % 2 == 1))
        yield rows.cast(ARROW_SCHEMA)

    def _of_accounts(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the accounts that are asked for."""
        allowed = self.filters.allowed()
        return rows.filter(pa.array(mask_of(rows, allowed))) if allowed else rows

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what tells this choice from others: file systems don't."""
        return self.store.uri, self.filters, self.files, self.known


_NOTHING: Final = pa.schema(
    [*((name, pa.string()) for name in FILE_KEY), ("rows", pa.int64())]
).empty_table()
_TIMES: Final = ARROW_SCHEMA.empty_table().select(["timestamp"])


def anywhere(store: Store) -> Store:
    """Return a store whose address doesn't depend on the folder that a process works in."""
    return store if store.folder is None else Store(store.folder.absolute())


def files_of(about: About, state: Coverage, span: Span) -> Iterator[File]:
    """Yield the files that may have rows in an interval that are known."""
    for period in state.files:
        begin, stop = layout.bounds_of(period, about.partition)
        start, end = max(begin, span[0]), min(stop, span[1])
        spans = joined(clipped((interval.span for interval in state.intervals), start, end))
        if spans:
            name = layout.changes_file(period, about.partition)
            yield File(name, state.notes(period), begin, stop, tuple(spans))


def checkpoint_of(moment: int, note: FileNote) -> File:
    """Return the file of the balances at a month's start, all of it."""
    span = (note.first, note.last + 1)
    return File(layout.checkpoint_file(moment), (note,), *span, (span,))


def add_counts(counts: Iterable[pa.Table]) -> pa.Table:
    """Return each account once, in the order of files, with the sum of its counts."""
    total, waiting, size = _NOTHING, [_NOTHING], 0
    for part in counts:
        waiting.append(part)
        size += part.num_rows
        if size > max(_WAITING, total.num_rows):
            total, waiting, size = _added([total, *waiting]), [], 0
    return _added([total, *waiting])


def _added(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    ids = [pd.Categorical(rows[name].to_pandas()) for name in FILE_KEY]
    keys = account_numbers([x.codes for x in ids], [len(x.categories) for x in ids])
    _, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.zeros(len(firsts), np.int64)
    np.add.at(counts, places, rows["rows"].to_numpy())
    return rows.take(pa.array(firsts)).set_column(len(FILE_KEY), "rows", pa.array(counts))


def cut(counts: pa.Table, *, rows: int, accounts: float) -> list[Slice]:
    """Return slices of about equal work that are together all accounts.

    Parameters
    ----------
    counts
        What `add_counts` returns.
    rows, accounts
        How many a slice may have. An account is never split, whatever rows it has.
    """
    work = np.cumsum(counts["rows"].to_numpy() / rows + 1 / accounts)
    parts = int(np.ceil(work[-1])) if len(work) else 1
    parts += -parts % _ROUND if parts > _ROUND else 0
    ends = work[-1] / parts * np.arange(1, parts) if parts > 1 else []
    places = {int(place) for place in np.searchsorted(work, ends)} - {0}
    keys = counts.select(FILE_KEY).take(pa.array(sorted(places), pa.int64()))
    lows: list[Key] = [(), *zip(*keys.to_pydict().values(), strict=True)]
    return [Slice(low, high) for low, high in zip(lows, [*lows[1:], None], strict=True)]


def _is_before(key: Key, bound: Key | None) -> bool:
    return bound is None or key < bound


def _stretch(rows: pa.Table, part: Slice) -> pa.Table:
    """Return those of rows in a file's order that are of a slice."""
    columns = [rows[name] for name in FILE_KEY]

    def key(place: int) -> Key:
        return tuple(column[place].as_py() for column in columns)

    low, high = (
        rows.num_rows if bound is None else bisect_left(range(rows.num_rows), bound, key=key)
        for bound in (part.low, part.high)
    )
    return rows.slice(low, high - low)


@contextlib.contextmanager
def opened(store: Store, name: str, notes: Sequence[FileNote]) -> Iterator[pq.ParquetFile]:
    """Open a file of rows, which must be what is noted of it: then, or by now.

    Raises
    ------
    ArchiveError
        If it is not, or what is read of it in the block is damaged.
    """
    try:
        file = _open(store, name, notes)
        try:
            yield file
        finally:
            file.close(force=True)
    except (pa.ArrowException, OSError) as error:
        check_seen(store, layout.ABOUT)
        raise ArchiveDamagedError(
            f"{store.uri}/{name} can't be read: {error}; verify the archive to see what is wrong"
        ) from error


def _open(store: Store, name: str, notes: Sequence[FileNote]) -> pq.ParquetFile:
    while True:
        try:
            with contextlib.ExitStack() as stack:
                file, _ = open_rows(stack.enter_context(store.open(name)), notes)
                stack.pop_all()
                return file
        except (pa.ArrowException, OSError):
            check_seen(store, layout.ABOUT)
            # An export may have replaced it since the coverage was read.
            now = noted_files(read_about(store), read_coverage(store)).get(name)
            if now is None or now == tuple(notes):
                raise
            notes = now
