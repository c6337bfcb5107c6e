"""The explorer's data: a state of an archive, read in small parts, or a table in memory."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.downsampling import first_and_last
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.steps import map_parallel
from balance_analysis.archive.datafile import NO_ROWS, Predicate, times_of
from balance_analysis.archive.sidecars import read_archive_names
from balance_analysis.archive.snapshot import FileSlice, LruCache, Scan
from balance_analysis.archives import Archive
from balance_analysis.errors import logger
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import frame_of
from balance_analysis.table.known import Known, note_evidence
from balance_analysis.table.names import Names, rank_assets
from balance_analysis.table.rows import account_heads, canonical
from balance_analysis.table.schema import from_microseconds
from balance_analysis.table.spans import Span, between
from balance_analysis.table.text import without_credentials

MOST_ROWS: Final = 3_000_000
"""Maximum rows in memory for one view, about 200 MB."""

KEPT_BYTES: Final = 200_000_000
"""Size of the cache of files and answers (in bytes)."""

_ENTRY: Final = 10_000
"""Maximum overhead of a cache entry (in bytes)."""

_DAY: Final = 86_400_000_000

_PART_ROWS: Final = 2_000_000
"""Approximate number of rows, of all assets, in the files that one part of a view reads."""

Edges = NDArray[np.int64] | None

Check = Callable[[], None]


class UnknownAssetError(Exception):
    """No account has the requested asset; the message names it."""


class ViewTooLargeError(Exception):
    """A view needs too many rows or digits; the message says which."""


_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)
logger.addFilter(lambda _: not _is_silent.get())


@contextmanager
def in_silence() -> Iterator[None]:
    """Suppress warnings in this context: the page itself says what is unknown."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def never_cancel() -> None:
    """Never cancel."""


@dataclass
class TableState:
    """A history in memory, with the same attributes and methods as `ArchiveState`."""

    history: History
    start: int
    end: int
    known: Known | None
    names: Names
    name: str = "Balances of a table of balance changes"
    notes: dict[str, pd.DataFrame] = field(default_factory=dict)
    version: ClassVar[str] = "0"

    def __post_init__(self) -> None:
        self._selected: dict[Filters, History] = {}

    def rows(self, filters: Filters, span: Span, *, edges: Edges, check: Check) -> History:
        """Return all rows of the selected accounts; see `ArchiveState.rows`."""
        del span, edges
        check()
        if filters not in self._selected:
            accounts = self.history.accounts
            is_wanted = accounts.index.isin(filters.select(accounts).index)
            self._selected[filters] = self.history.select(is_wanted)
        return self._selected[filters]

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return all edges as one part: the rows are in memory anyway."""
        return [edges]

    def asset_ids(self) -> list[str]:
        """Return the assets of all accounts, those with most rows first."""
        ranked = rank_assets(_count_assets(self.history.rows["asset_id"]))
        return [*ranked, *sorted({*self.history.accounts["asset_id"]} - {*ranked})]

    @property
    def left_out(self) -> list[str]:
        """Sentences on accounts that are left out of sums."""
        return self.history.left_out


class ArchiveState:
    """One immutable state of an archive.

    Most views need only each account's first and last row of a day. These rows are cached for the
    files read most recently, so that further views needn't read the files again.

    Attributes
    ----------
    name
        The title of the page.
    version
        The identity of the state.
    start, end
        The half-open interval (in microseconds); both are equal if the archive is empty.
    known
        The stretches in which every change is known; `None` for a table that doesn't state them.
    names
        Names of assets, and of parties, markets and accounts.
    """

    def __init__(self, archive: Archive, kept: LruCache, given: Names) -> None:
        snapshot = archive.snapshot()
        self.archive: Archive = archive
        self._snapshot, self._kept = snapshot, kept
        self.name: str = title_of(archive)
        self.version: str = snapshot.version
        self.start: int = snapshot.evidence.bounds[0]
        self.end: int = snapshot.evidence.bounds[1]
        self.known: Known | None = snapshot.known
        self.names: Names = read_archive_names(snapshot.store).updated(given)

    def rows(self, filters: Filters, span: Span, *, edges: Edges, check: Check) -> History:
        """Return the selected accounts' balance changes in a span (in microseconds).

        Each account's last row before the span is included, and perhaps other rows. Accounts whose
        first row comes later are included too, so that every view counts the same accounts. With
        `edges` (ascending), only rows needed for the balances at them and just before the end, and
        for the changes between, are guaranteed. `check` is called between files and parts; an error
        that it raises ends the reading.
        """
        scan = self._snapshot.around(self._scan(filters), *span)
        sizes: list[int] = []

        def counted(rows: pa.Table) -> pa.Table:
            sizes.append(rows.num_rows)
            if sum(sizes) > MOST_ROWS:
                raise ViewTooLargeError(
                    f"this view needs more than {MOST_ROWS:,} rows: choose a shorter range"
                )
            return rows

        def outer(file: FileSlice) -> pa.Table:
            return counted(self._day_ends(scan, file, check))

        def inner(file: FileSlice) -> pa.Table:
            if edges is None:
                return counted(_joined(_parts(scan, file, check)))
            inside = edges[(edges > file.spans[0][0]) & (edges < file.spans[-1][1])]
            if not np.any(inside % _DAY):
                return outer(file)
            return counted(_joined(_ends(part, inside) for part in _parts(scan, file, check)))

        parts = [*map_parallel(outer, scan.openings), *map_parallel(inner, scan.files)]
        parts += map_parallel(outer, scan.later)
        table = frame_of(canonical(pa.concat_tables([NO_ROWS, *parts])))
        note_evidence(table, scan.evidence)
        return open_history(table)

    def _scan(self, filters: Filters) -> Scan:
        evidence = self._snapshot.evidence.narrow(filters)
        return Scan(self._snapshot.store, filters, (), evidence)

    def _day_ends(self, scan: Scan, file: FileSlice, check: Check) -> pa.Table:
        """Return a file's rows that begin or end an account's day."""
        # Without a party filter the whole file is read, so all of its accounts are cached.
        whole = scan if scan.filters.party_ids else replace(scan, filters=Filters())

        def read() -> tuple[pa.Table, int]:
            days = np.arange(file.begin, file.stop, _DAY)
            rows = _joined(_ends(part, days) for part in _parts(whole, file, check))
            return rows, rows.nbytes + _ENTRY

        check()
        kept: pa.Table = self._kept.get((file, whole.filters), read)
        return Predicate(scan.filters.allowed()).select(kept)

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split the edges of periods into parts that each need a limited number of rows."""
        files = self._snapshot.files_since(int(edges[0]), int(edges[-1]))
        sizes = np.cumsum([0, *(max(entry.rows for entry in file.entries) for file in files)])
        parts = sizes[np.searchsorted([file.begin for file in files], edges[:-1])] // _PART_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(edges) - 1]
        return [edges[low : high + 1] for low, high in itertools.pairwise(bounds)]

    def asset_ids(self) -> list[str]:
        """Return the assets of all accounts, those with most rows first."""
        scan = self._scan(Filters())

        def count(file: FileSlice) -> Counter[str]:
            def read() -> tuple[Counter[str], int]:
                counts = Counter[str]()
                for rows in scan.rows(file, ["asset_id"]):
                    counts += _count_assets(rows["asset_id"].to_pandas())
                return counts, _ENTRY

            counts: Counter[str] = self._kept.get(("assets", file), read)
            return counts

        return rank_assets(sum(map_parallel(count, self._snapshot.files()), Counter[str]()))

    @property
    def left_out(self) -> list[str]:
        """Sentences on accounts that are left out of sums."""
        return open_history(replace(self._snapshot.scan(), files=()).read()).left_out

    @property
    def notes(self) -> dict[str, pd.DataFrame]:
        """The archive's coverage and network limits."""
        return notes_of(self.archive)


State: TypeAlias = ArchiveState | TableState
"""The data that a view is computed from."""


def completeness(state: State) -> str:
    """Return how complete a state is; "confirmed" if another source has the same rows."""
    if state.known is None or state.start >= state.end:
        return "not known to be complete"
    if between(state.known, state.start, state.end):
        return "not complete"
    coverage = state.notes.get("coverage")
    if coverage is None:
        return "complete"
    start, end = from_microseconds(state.start), from_microseconds(state.end)
    stretches = coverage[(coverage["start"] < end) & (coverage["end"] > start)]
    return "confirmed" if (stretches["state"] == "confirmed").all() else "complete"


def title_of(archive: Archive) -> str:
    """Return the title of an archive's page."""
    name = without_credentials(archive.uri).rstrip("/").rpartition("/")[2]
    return f"Balances of {name or 'an archive'}"


def notes_of(archive: Archive) -> dict[str, pd.DataFrame]:
    """Return an archive's coverage and network limits."""
    return {"coverage": archive.coverage(), "limits": archive.limits()}


def _parts(scan: Scan, file: FileSlice, check: Check) -> Iterator[pa.Table]:
    for rows in scan.rows(file):
        check()
        yield rows


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Concatenate parts in the given order, and drop unused ids."""
    return canonical(pa.concat_tables([NO_ROWS, *parts]), sort=False)


def _ends(rows: pa.Table, edges: NDArray[np.int64]) -> pa.Table:
    """Return each account's first and last row between edges, in the file's order."""
    rows = rows.unify_dictionaries()
    return rows.filter(pa.array(first_and_last(account_heads(rows), times_of(rows), edges)))


def _count_assets(ids: pd.Series[Any]) -> Counter[str]:
    """Return each asset's number of rows."""
    return Counter({str(asset): n for asset, n in ids.value_counts().items() if n})
