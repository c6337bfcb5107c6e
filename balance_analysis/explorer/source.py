"""What an explorer looks at: an archive, of which little is read at once, or a table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.cuts import settled
from balance_analysis.analysis.downsampling import first_and_last
from balance_analysis.analysis.steps import NEVER, map_parallel
from balance_analysis.archive.accounts import times_of
from balance_analysis.archive.datafile import Predicate
from balance_analysis.archive.network import limits_frame, read_archive_assets
from balance_analysis.archive.scan import File, LruCache, opened
from balance_analysis.archive.snapshot import Snapshot, read_snapshot, with_snapshot
from balance_analysis.assets import Assets, AssetsLike, assets_of
from balance_analysis.errors import SnapshotGoneError
from balance_analysis.filters import Filters
from balance_analysis.frame import frame_of
from balance_analysis.known import Known, known_of
from balance_analysis.rows import account_heads, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS
from balance_analysis.spans import Span
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from balance_analysis.archives import Archive

MOST_ROWS: Final = 3_000_000
"""Rows that are in memory for one view: some 200 MB."""

KEPT_BYTES: Final = 200_000_000
"""Of what was read or answered last, so much is kept for the next question."""

_BYTES_A_COUNT: Final = 200

_DAY: Final = 86_400_000_000

_PART_ROWS: Final = 2_000_000
"""Rows of all assets in the files of a part of a view."""

_STATES: Final = 8
"""So many states can be asked about, the newest of those that were."""

_FILES: Final = 16
"""So many files are read before it is looked at how many rows there are."""

_GROUPS: Final = 8
"""So many row groups of a file are read at once: more don't stay in a processor's cache."""

Key = tuple[str, str, str, str]

History = tuple[pd.DataFrame, pd.DataFrame | None]
"""Balance changes, and what accounts held before them, where that is told: an opening."""

Edges = NDArray[np.int64] | None

Check = Callable[[], None]

T = TypeVar("T")


class ViewTooLargeError(Exception):
    """A view needs more rows than fit; the message says what to ask for instead."""


def go_on() -> None:
    """Check nothing: what is asked for is wanted, however long it takes."""


class State(Protocol):
    """What a source holds at one moment, which never changes.

    Attributes
    ----------
    version
        Another one as soon as the source holds something else.
    start, end
        Its interval, half-open, microseconds; the same where it holds nothing.
    known
        The stretches of it in which every change is known; `None` where nothing says.
    assets
        What assets are called.
    """

    version: str
    start: int
    end: int
    known: Known | None
    assets: Assets

    def rows(
        self, filters: Filters, start: int, end: int, *, edges: Edges = None, check: Check = go_on
    ) -> History:
        """Return the balance changes of some accounts in [start, end), microseconds.

        Of each account the last one before `start` is among them; there may be others before it.
        With `edges`, ascending, there may be only those that tell the balances at these and just
        before `end`, and what they moved by in between. `check` is called between files and parts;
        what it raises ends the reading.
        """

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return edges of periods cut into parts, which have not too many rows each."""

    def asset_ids(self) -> list[str]:
        """Return the assets of which there is an account, those that have most rows first."""

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return its coverage and its network limits, of an archive."""


class Source(Protocol):
    """Where an explorer's rows come from."""

    name: str

    def look(self, version: str, read: Callable[[State], T]) -> T:
        """Return what is read of the state of this version, or of the current one where it is "".

        Raises
        ------
        SnapshotGoneError
            If there is no such state any more.
        """


class TableSource:
    """A table of balance changes, and what its accounts held before: a source in its one state."""

    def __init__(
        self,
        table: pd.DataFrame,
        *,
        bounds: Span,
        name: str = "a table of balance changes",
        opening: pd.DataFrame | None = None,
        assets: AssetsLike | None = None,
        notes: dict[str, pd.DataFrame] | None = None,
    ) -> None:
        self.name: str = name
        self.version: str = "0"
        self.start: int = bounds[0]
        self.end: int = bounds[1]
        self.assets: Assets = assets_of(table, assets)
        self._opening, self._notes, self._kept = opening, notes or {}, LruCache(1)
        self._table = settled(table)
        self.known: Known | None = known_of(self._table)
        self._times = microseconds(self._table)
        heads = np.flatnonzero(~self._table.duplicated(list(ACCOUNT_KEY)))
        self._accounts = self._table.iloc[heads].reset_index(drop=True)
        self._sizes = np.diff(heads, append=len(self._table))
        self._nexts = np.append(self._times[1:], NEVER)[: len(self._times)]
        self._nexts[heads[1:] - 1] = NEVER

    def look(self, version: str, read: Callable[[State], T]) -> T:
        """Return what is read of it: see `Source`. It has but one state."""
        del version
        return read(self)

    def rows(
        self, filters: Filters, start: int, end: int, *, edges: Edges = None, check: Check = go_on
    ) -> History:
        """Return rows: see `State`. They are all there, and those asked for last are kept."""
        del edges
        check()

        def select() -> tuple[History, int]:
            return self._select(filters.select, start, end), 1

        found: History = self._kept.get((filters, start, end), select)
        return found

    def of(self, accounts: Iterable[Key]) -> History:
        """Return all rows of some accounts, as `rows` does."""
        keys = set(accounts)
        near = Filters(None, *(tuple({key[place] for key in keys}) for place in (2, 3, 1)))

        def choose(frame: pd.DataFrame) -> pd.DataFrame:
            frame = near.select(frame)
            return frame[[key in keys for key in keys_of(frame)]]

        return self._select(choose, self.start, self.end)

    def _select(
        self, choose: Callable[[pd.DataFrame], pd.DataFrame], start: int, end: int
    ) -> History:
        asked = self._accounts.index.isin(choose(self._accounts).index)
        is_asked = np.repeat(asked, self._sizes) & (self._times < end) & (self._nexts >= start)
        opening = self._opening
        if opening is not None:
            opening = choose(opening).reset_index(drop=True)
        rows = self._table[is_asked].reset_index(drop=True)
        for name in ACCOUNT_KEY:
            rows[name] = rows[name].cat.remove_unused_categories()
        return rows, opening

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return all edges together: the rows are there anyway."""
        return [edges]

    def asset_ids(self) -> list[str]:
        """Return assets: see `State`."""
        ranked = _ranked([_count_assets(self._table["asset_id"])])
        quiet = [] if self._opening is None else sorted({*self._opening["asset_id"]} - {*ranked})
        return [*ranked, *quiet]

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `State`."""
        return self._notes


class ArchiveSource:
    """An archive as a source: what exports add meanwhile is there from then on.

    Parameters
    ----------
    archive
        The archive.
    cache
        Where to keep what was read last, in bytes; by default one of its own.
    """

    def __init__(self, archive: Archive, *, cache: LruCache | None = None) -> None:
        self._store = archive.store
        self.name: str = (
            without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "archive"
        )
        self._cache: LruCache = LruCache(KEPT_BYTES) if cache is None else cache
        self._seen = LruCache(_STATES)

    def look(self, version: str, read: Callable[[State], T]) -> T:
        """Return what is read of a state: see `Source`."""
        if not version:
            return with_snapshot(self._store, lambda now: read(self._state(now)))
        found = self._seen.peek(version)
        if found is None and (found := self._state(read_snapshot(self._store))).version != version:
            raise SnapshotGoneError(self._store.uri, version)
        return read(found)

    def _state(self, snapshot: Snapshot) -> ArchiveState:
        def make() -> tuple[ArchiveState, int]:
            return ArchiveState(snapshot, self._cache), 1

        state: ArchiveState = self._seen.get(snapshot.version, make)
        return state


class ArchiveState:
    """An archive in one state.

    Balances need of a file only where each account's rows of a day begin and end. That much of the
    files that were read last is kept, so that they are read once for any number of views.
    """

    def __init__(self, snapshot: Snapshot, cache: LruCache) -> None:
        self._snapshot, self._cache = snapshot, cache
        self.version: str = snapshot.version
        self.start: int
        self.end: int
        self.start, self.end = snapshot.coverage.bounds(proven=False)
        self.known: Known | None = snapshot.known
        self.assets: Assets = read_archive_assets(snapshot.store)

    def rows(
        self, filters: Filters, start: int, end: int, *, edges: Edges = None, check: Check = go_on
    ) -> History:
        """Return rows: see `State`."""
        files = self._snapshot.files_since(start, end)

        def read(file: File) -> pa.Table:
            check()
            if file.stop <= start or (edges is not None and _has_days(file, edges)):
                return self._read(file, filters, check, ends=True)
            rows = self._read(file, filters, check)
            return rows if edges is None else _ends(rows, edges)

        parts: list[pa.Table] = []
        for place in range(0, len(files), _FILES):
            parts += map_parallel(read, files[place : place + _FILES])
            if sum(part.num_rows for part in parts) > MOST_ROWS:
                raise ViewTooLargeError(
                    f"this view needs more than {MOST_ROWS:,} rows: choose a shorter range"
                )
        # An account's rows stand in time order, in each file and from file to file.
        table = frame_of(canonical(_joined(parts), is_by_time=True))
        self._snapshot.note_known(table)
        return table, None

    def _read(self, file: File, filters: Filters, check: Check, *, ends: bool = False) -> pa.Table:
        """Return rows of a file; where the ends of its days are enough, maybe only these."""
        kept, asked = self._cache.peek(file), Predicate(filters.allowed(), file.bounds)
        if kept is None and not filters.party_ids:
            # All of the file has to be read, so that its ends cost little more.
            days, found, rows = np.arange(file.begin, file.stop, _DAY), [], []
            for part in self._iter_rows(file, Predicate(spans=file.bounds)):
                check()
                found.append(_ends(part, days))
                if not ends:
                    rows.append(asked.select(part))
            kept = _joined(found)
            self._cache.put(file, kept, kept.nbytes)
            if not ends:
                return _joined(rows)
        if kept is not None and ends:
            return asked.select(kept)
        return _joined(self._iter_rows(file, asked))

    def _iter_rows(
        self, file: File, predicate: Predicate, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.Table]:
        with opened(self._snapshot.store, file) as data:
            yield from data.rows(predicate, columns, at_once=_GROUPS, use_threads=False)

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return edges in parts: see `State`."""
        files = self._snapshot.files_since(int(edges[0]), int(edges[-1]))
        sizes = np.cumsum([0, *(max(note.rows for note in file.notes) for file in files)])
        parts = sizes[np.searchsorted([file.begin for file in files], edges[:-1])] // _PART_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(edges) - 1]
        return [edges[low : high + 1] for low, high in itertools.pairwise(bounds)]

    def asset_ids(self) -> list[str]:
        """Return assets: see `State`."""

        def count(file: File) -> Counter[str]:
            def read() -> tuple[Counter[str], int]:
                parts = self._iter_rows(file, Predicate(spans=file.bounds), ["asset_id"])
                found = sum((_count_assets(x["asset_id"].to_pandas()) for x in parts), Counter())
                return found, _BYTES_A_COUNT * (1 + len(found))

            counts: Counter[str] = self._cache.get(("assets", file), read)
            return counts

        return _ranked(map_parallel(count, self._snapshot.files()))

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `State`."""
        limits = limits_frame(self._snapshot)
        return {"coverage": self._snapshot.coverage.to_frame(), "limits": limits}


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Return rows of several parts, as they stand, with no id that none of them has."""
    found = (part.cast(ARROW_SCHEMA) for part in [ARROW_SCHEMA.empty_table(), *parts])
    return canonical(pa.concat_tables(found), sort=False)


def _has_days(file: File, edges: NDArray[np.int64]) -> bool:
    """Whether edges that lie within a file are midnights."""
    return not np.any(edges[(edges > file.begin) & (edges < file.stop)] % _DAY)


def _ends(rows: pa.Table, edges: NDArray[np.int64]) -> pa.Table:
    """Return the first and the last row of each account between edges; in a file's order."""
    rows = rows.unify_dictionaries()
    return rows.filter(pa.array(first_and_last(account_heads(rows), times_of(rows), edges)))


def _count_assets(ids: pd.Series[Any]) -> Counter[str]:
    """Return how many rows each asset has."""
    return Counter({str(asset): n for asset, n in ids.value_counts().items() if n})


def _ranked(counts: Iterable[Counter[str]]) -> list[str]:
    """Return assets that are counted, those first that have most rows."""
    total = sum(counts, Counter[str]())
    return sorted(total, key=lambda asset: (-total[asset], asset))


def keys_of(frame: pd.DataFrame) -> list[Key]:
    """Return the account of each row."""
    return list(zip(*(frame[name].tolist() for name in ACCOUNT_KEY), strict=True))
