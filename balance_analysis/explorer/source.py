"""The explorer's data: a state of an archive, read in small parts, or a table in memory."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.steps import first_and_last, map_parallel
from balance_analysis.archive.datafile import NO_ROWS, Predicate, times_of
from balance_analysis.archive.snapshot import FileSlice, LruCache, Scan
from balance_analysis.archives import Archive
from balance_analysis.errors import logger
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import frame_of
from balance_analysis.table.known import Known, note_evidence
from balance_analysis.table.moments import DAY, EVER, Span, from_microseconds, gaps_in
from balance_analysis.table.names import Names, rank_assets
from balance_analysis.table.schema import ACCOUNT_KEY, ARROW_SCHEMA, account_heads, canonical
from balance_analysis.table.text import without_credentials

MOST_ROWS: Final = 3_000_000
"""Maximum rows in memory for one view, about 200 MB."""

KEPT_BYTES: Final = 200_000_000
"""Size of the cache of files and answers (in bytes)."""

_ENTRY: Final = 10_000
"""Maximum overhead of a cache entry (in bytes)."""

_PART_ROWS: Final = 2_000_000
"""Approximate number of rows, of all assets, in the files that one part of a view reads."""

_SHARED_ROWS: Final = 2_600_000
"""Maximum rows of an asset in a range whose views share all of them."""

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
    """Suppress warnings in this context: the page itself shows what is unknown."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def never_cancel() -> None:
    """Do nothing: a `Check` that never cancels."""


@dataclass(frozen=True)
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

    def rows(self, filters: Filters, _: Span, *, edges: Edges, check: Check) -> History:
        """Return all rows of the selected accounts; see `ArchiveState.rows`."""
        del edges
        check()
        accounts = self.history.accounts
        is_wanted = accounts.index.isin(filters.select(accounts).index)
        return self.history if is_wanted.all() else self.history.select(is_wanted)

    def in_memory(self, asset: str) -> TableState:
        """Return the state of one asset."""
        history = self.rows(Filters(asset), EVER, edges=None, check=never_cancel)
        return replace(self, history=history)

    def parts(self, _: str, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return all edges as one part: the rows are in memory anyway."""
        return [edges]

    @property
    def changes(self) -> Counter[str]:
        """The number of changes of each asset."""
        return _count_assets(self.history.rows["asset_id"])

    @property
    def outline(self) -> History:
        """The history itself; see `ArchiveState.outline`."""
        return self.history


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
        The half-open interval (in microseconds), by default that of the archive; both are equal if
        the archive is empty.
    known
        The stretches in which every change is known; `None` for a table that doesn't state them.
    names
        Names of assets, and of parties and markets.
    """

    def __init__(
        self, archive: Archive, kept: LruCache, given: Names, span: Span | None = None
    ) -> None:
        snapshot = archive.snapshot()
        self.archive: Archive = archive
        self._snapshot, self._kept = snapshot, kept
        folder = without_credentials(archive.uri).rstrip("/").rpartition("/")[2]
        self.name: str = f"Balances of {folder or 'an archive'}"
        self.version: str = snapshot.version
        self.start: int
        self.end: int
        self.start, self.end = span or snapshot.evidence.bounds
        self.known: Known | None = tuple(snapshot.evidence.complete)
        self.names: Names = archive.names().updated(given)
        self._shared: dict[Filters, Span] = {}

    def rows(self, filters: Filters, span: Span, *, edges: Edges, check: Check) -> History:
        """Return the selected accounts' balance changes in a span (in microseconds).

        Each account's last row before the span is included, and perhaps other rows. Accounts whose
        first row comes later are included too, so that every view counts the same accounts. With
        `edges` (ascending), only rows needed for the balances at them and just before the end, and
        for the changes between, are guaranteed. `check` is called between files and parts; an error
        that it raises ends the reading. Views of one span share one history.
        """
        wider = self._shared.get(filters)
        if wider and wider[0] <= span[0] and span[1] <= wider[1]:
            span, edges = wider, None
        elif self._is_shared(filters, span):
            self._shared[filters], edges = span, None
        elif edges is None:
            return self._read(filters, span, None, check)[0]
        else:
            edges = edges[edges % DAY != 0]  # days' ends are read in any case
        key = "rows", self.version, filters, span, None if edges is None else edges.tobytes()
        history: History = self._kept.get(key, lambda: self._read(filters, span, edges, check))
        return history

    def _is_shared(self, filters: Filters, span: Span) -> bool:
        """Whether views of a span, and of spans within it, share all of its rows.

        They do if omitting rows that neither begin nor end an account's day would save little.
        """
        files = self._snapshot.files(*span)
        accounts = [entry.rows for entry in self._snapshot.manifest.checkpoints.values()]
        most = 2 * max(accounts, default=0) * (span[1] - span[0]) / DAY
        is_sparse = 0 < sum(file.most_rows for file in files) <= most and not filters.party_ids
        return is_sparse and self._count(files)[filters.asset_id or ""] <= _SHARED_ROWS

    def _read(
        self, filters: Filters, span: Span, edges: Edges, check: Check
    ) -> tuple[History, int]:
        """Return the history of `rows`, and its size (in bytes)."""
        scan = self._snapshot.around(self._whole(filters), *span)
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
            if not len(inside):
                return outer(file)
            ends = np.union1d(inside, _days(file))
            return counted(_joined(_ends(part, ends) for part in _parts(scan, file, check)))

        parts = [*map_parallel(outer, scan.openings), *map_parallel(inner, scan.files)]
        parts += map_parallel(outer, scan.later)
        rows = canonical(pa.concat_tables([NO_ROWS, *parts]))
        table = frame_of(rows)
        note_evidence(table, scan.evidence)
        return open_history(table), rows.nbytes + _ENTRY

    def _whole(self, filters: Filters = Filters()) -> Scan:
        """Return a scan of the whole interval, with openings."""
        both = self.archive.filters.intersection(filters) or filters
        start, end = from_microseconds(self.start), from_microseconds(self.end)
        return self._snapshot.scan(both, start, end, opening=True)

    def in_memory(self, asset: str) -> TableState:
        """Return the state of one asset, with all of its rows in memory."""
        history = open_history(self._whole(Filters(asset)).read())
        return TableState(history, self.start, self.end, self.known, self.names)

    def _day_ends(self, scan: Scan, file: FileSlice, check: Check) -> pa.Table:
        """Return a file's rows that begin or end an account's day."""
        # Without a party filter all accounts of the asset are cached.
        only = scan.filters if scan.filters.party_ids else Filters(scan.filters.asset_id)
        whole = replace(scan, filters=only)

        def read() -> tuple[pa.Table, int]:
            rows = _joined(_ends(part, _days(file)) for part in _parts(whole, file, check))
            return rows, rows.nbytes + _ENTRY

        check()
        kept: pa.Table = self._kept.get((file, whole.filters), read)
        return Predicate(scan.filters.allowed()).select(kept)

    def parts(self, asset: str, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split the edges of periods into parts that each need a limited number of rows."""
        span = int(edges[0]), int(edges[-1])
        if self._is_shared(Filters(asset), span):
            return [edges]
        files = self._snapshot.files_since(*span)
        sizes = np.cumsum([0, *(file.most_rows for file in files)])
        parts = sizes[np.searchsorted([file.begin for file in files], edges[:-1])] // _PART_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(edges) - 1]
        return [edges[low : high + 1] for low, high in itertools.pairwise(bounds)]

    @property
    def changes(self) -> Counter[str]:
        """The number of changes of each asset; 0 if it has only earlier rows."""
        scan = self._whole()
        older, changes = map(self._count, (scan.openings, scan.files))
        return Counter({**dict.fromkeys(older, 0), **changes})

    def _count(self, files: Sequence[FileSlice]) -> Counter[str]:
        """Return each asset's number of rows in some files."""
        scan = self._whole()

        def count(file: FileSlice) -> Counter[str]:
            def read() -> tuple[Counter[str], int]:
                ids = (rows["asset_id"].to_pandas() for rows in scan.rows(file, ["asset_id"]))
                return sum(map(_count_assets, ids), Counter[str]()), _ENTRY

            counts: Counter[str] = self._kept.get(("assets", file), read)
            return counts

        return sum(map_parallel(count, files), Counter[str]())

    @property
    def outline(self) -> History:
        """A history without changes, with the interval, the names and the known intervals."""
        return open_history(replace(self._whole(), files=()).read())

    @property
    def notes(self) -> dict[str, pd.DataFrame]:
        """The archive's coverage and network limits."""
        return {"coverage": self.archive.coverage(), "limits": self.archive.limits()}


State: TypeAlias = ArchiveState | TableState
"""The data that a view is computed from."""


def asset_ids(state: State) -> list[str]:
    """Return the assets of all accounts, those with most changes first."""
    return rank_assets(state.changes)


def gaps_of(state: State) -> list[Span]:
    """Return the stretches of a state's interval in which rows may be missing."""
    return [] if state.known is None else gaps_in(state.known, state.start, state.end)


def completeness(state: State) -> str:
    """Return how complete a state is; "confirmed" if another source has the same rows."""
    if state.known is None or state.start >= state.end:
        return "not known to be complete"
    if gaps_of(state):
        return "not complete"
    if isinstance(state, TableState):
        return "complete"
    confirmed = state.archive.snapshot().evidence.confirmed
    return "complete" if gaps_in(confirmed, state.start, state.end) else "confirmed"


def _parts(scan: Scan, file: FileSlice, check: Check) -> Iterator[pa.Table]:
    for rows in scan.rows(file):
        check()
        yield rows


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Concatenate parts in the given order, and drop unused ids."""
    rows = pa.concat_tables([NO_ROWS, *parts])
    # Row groups repeat ids of all assets: encoding those in use is faster than `canonical`.
    ids = [rows[name].cast(pa.string()).dictionary_encode() for name in ACCOUNT_KEY]
    return pa.table([*ids, *rows.columns[len(ids) :]], schema=ARROW_SCHEMA).combine_chunks()


def _days(file: FileSlice) -> NDArray[np.int64]:
    """Return where the days of a file's period begin."""
    return np.arange(file.begin, file.stop, DAY)


def _ends(rows: pa.Table, edges: NDArray[np.int64]) -> pa.Table:
    """Return each account's first and last row between edges, in the file's order.

    An account in two row groups may have more rows.
    """
    parts = (pa.Table.from_batches([batch]) for batch in rows.to_batches())
    chosen = (first_and_last(account_heads(x), times_of(x), edges) for x in parts)
    return rows.filter(pa.array(np.concatenate([np.zeros(0, np.bool_), *chosen])))


def _count_assets(ids: pd.Series[Any]) -> Counter[str]:
    """Return each asset's number of rows; 0 for a category without rows."""
    return Counter({str(asset): n for asset, n in ids.value_counts().items()})
