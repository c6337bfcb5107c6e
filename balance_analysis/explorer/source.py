"""What an explorer looks at: an archive, of which little is read at once, or a table."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.cuts import settled
from balance_analysis.analysis.steps import NEVER, map_parallel
from balance_analysis.archive.datafile import Predicate, times_of
from balance_analysis.archive.manifest import read_archive_assets
from balance_analysis.archive.scan import opened
from balance_analysis.assets import assets_of
from balance_analysis.frame import frame_of
from balance_analysis.known import known_of
from balance_analysis.rows import account_heads, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.scan import File
    from balance_analysis.archive.snapshot import Snapshot
    from balance_analysis.assets import Assets, AssetsLike
    from balance_analysis.filters import Filters
    from balance_analysis.known import Known
    from balance_analysis.spans import Span

DAY: Final = 86_400_000_000

MOST_ROWS: Final = 3_000_000
"""Rows that are in memory for one view: some 200 MB."""

_PART_ROWS: Final = 2_000_000
"""Rows of all assets in the files of a part of a view."""

_KEPT_ROWS: Final = 2_000_000
"""Rows of files' ends that are kept for the next view."""

_STATES: Final = 16
"""Of so many states it is kept what the archive holds."""

_FILES: Final = 16
"""So many files are read before it is looked at how many rows there are."""

_GROUPS: Final = 8
"""So many row groups of a file are read at once: more don't stay in a processor's cache."""

Key = tuple[str, str, str, str]

History = tuple[pd.DataFrame, pd.DataFrame | None]
"""Balance changes, and what accounts held before them, where that is told: an opening."""


class TooLargeError(Exception):
    """A view needs more rows than fit; the message says what to ask for instead."""


def go_on() -> None:
    """Check nothing: what is asked for is wanted, however long it takes."""


@dataclass(frozen=True, slots=True)
class State:
    """What a source holds at one moment.

    Attributes
    ----------
    version
        Another one as soon as it holds something else.
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


class Source(Protocol):
    """Where an explorer's rows come from."""

    name: str

    def state(self) -> State:
        """Return what it holds now."""

    def rows(
        self,
        filters: Filters,
        start: int,
        end: int,
        *,
        step: int | None = None,
        check: Callable[[], None] = go_on,
    ) -> History:
        """Return the balance changes of some accounts in [start, end), microseconds.

        Of each account the last one before `start` is among them; there may be others before it.
        With a `step`, which fills a day or is days, only the first and the last one of each account
        in each period may be there, so that balances at `start`, at the periods' ends and just
        before `end` can be told, and what they moved by. `check` is called between files and parts;
        what it raises ends the reading.
        """

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return edges of periods cut into parts, which have not too many rows each."""

    def asset_ids(self) -> list[str]:
        """Return the assets of which there is an account, those that have most rows first."""

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return its coverage and its network limits, of an archive."""


class TableSource:
    """A table of balance changes, and what its accounts held before, as a source."""

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
        self._opening, self._notes, self._kept = opening, notes or {}, Kept(1)
        self._table = settled(table)
        self._times = microseconds(self._table)
        heads = np.flatnonzero(~self._table.duplicated(list(ACCOUNT_KEY)))
        self._accounts = self._table.iloc[heads].reset_index(drop=True)
        self._sizes = np.diff(heads, append=len(self._table))
        self._nexts = np.append(self._times[1:], NEVER)[: len(self._times)]
        self._nexts[heads[1:] - 1] = NEVER
        self._state = State("0", *bounds, known_of(self._table), assets_of(table, assets))

    def state(self) -> State:
        """Return what it holds: always the same."""
        return self._state

    def rows(
        self,
        filters: Filters,
        start: int,
        end: int,
        *,
        step: int | None = None,
        check: Callable[[], None] = go_on,
    ) -> History:
        """Return rows: see `Source`. They are all there, and those asked for last are kept."""
        del step
        check()

        def select() -> tuple[History, int]:
            asked = self._accounts.index.isin(filters.select(self._accounts).index)
            is_asked = np.repeat(asked, self._sizes) & (self._times < end) & (self._nexts >= start)
            opening = self._opening
            if opening is not None:
                opening = filters.select(opening).reset_index(drop=True)
            rows = self._table[is_asked].reset_index(drop=True)
            for name in ACCOUNT_KEY:
                rows[name] = rows[name].cat.remove_unused_categories()
            return (rows, opening), 1

        found: History = self._kept.get((filters, start, end), select)
        return found

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return all edges together: the rows are there anyway."""
        return [edges]

    def asset_ids(self) -> list[str]:
        """Return assets: see `Source`."""
        frames = [frame for frame in (self._table, self._opening) if frame is not None]
        return _ranked(frame["asset_id"].value_counts().to_dict() for frame in frames)

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `Source`."""
        return self._notes


class ArchiveSource:
    """An archive as a source: what exports add meanwhile is there from then on.

    Balances need of a file only where each account's rows of a day begin and end. That much of the
    files that were read last is kept, so that they are read once for any number of views.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive, self._store = archive, archive.store
        self.name: str = (
            without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "archive"
        )
        self._kept, self._ends = Kept(_STATES), Kept(_KEPT_ROWS)

    def state(self) -> State:
        """Return what it holds now."""
        return self._noted()[0]

    def _noted(self) -> tuple[State, Snapshot]:
        snapshot = self._archive.snapshot()

        def read() -> tuple[tuple[State, Snapshot], int]:
            start, end = snapshot.coverage.bounds(proven=False)
            assets = read_archive_assets(self._store)
            return (State(snapshot.version, start, end, snapshot.known, assets), snapshot), 1

        found: tuple[State, Snapshot] = self._kept.get(snapshot, read)
        return found

    def rows(
        self,
        filters: Filters,
        start: int,
        end: int,
        *,
        step: int | None = None,
        check: Callable[[], None] = go_on,
    ) -> History:
        """Return rows: see `Source`."""
        snapshot = self._noted()[1]
        files = snapshot.files_since(start, end)

        def read(file: File) -> pa.Table:
            check()
            is_inside = file.begin >= start and step is not None and step >= DAY
            if file.stop <= start or is_inside:
                return self._read(file, filters, check, ends=True)
            rows = self._read(file, filters, check)
            return rows if step is None else _ends(rows, step, start)

        parts: list[pa.Table] = []
        for place in range(0, len(files), _FILES):
            parts += map_parallel(read, files[place : place + _FILES])
            if sum(part.num_rows for part in parts) > MOST_ROWS:
                raise TooLargeError(
                    f"this view needs more than {MOST_ROWS:,} rows: choose a shorter range"
                )
        # An account's rows stand in time order, in each file and from file to file.
        table = frame_of(canonical(_joined(parts), is_by_time=True))
        snapshot.note_known(table)
        return table, None

    def _files(self, start: int, end: int) -> list[File]:
        """Return the files of [start, end), and those that tell what was held before it."""
        return self._noted()[1].files_since(start, end)

    def _read(
        self, file: File, filters: Filters, check: Callable[[], None], *, ends: bool = False
    ) -> pa.Table:
        """Return rows of a file; where its ends are enough, maybe only these."""
        kept, asked = self._ends.peek(file), Predicate(filters.allowed(), file.bounds)
        if kept is None and not filters.party_ids:
            # All of the file has to be read, so that its ends cost little more.
            found, rows = [], []
            for part in self._iter_rows(file, Predicate(spans=file.bounds)):
                check()
                found.append(_ends(part, DAY))
                if not ends:
                    rows.append(asked.select(part))
            kept = _joined(found)
            self._ends.put(file, kept, kept.num_rows)
            if not ends:
                return _joined(rows)
        if kept is not None and ends:
            return asked.select(kept)
        return _joined(self._iter_rows(file, asked))

    def _iter_rows(
        self, file: File, predicate: Predicate, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.Table]:
        with opened(self._store, file) as data:
            yield from data.rows(predicate, columns, at_once=_GROUPS, use_threads=False)

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return edges in parts: see `Source`."""
        files = self._files(int(edges[0]), int(edges[-1]))
        sizes = np.cumsum([0, *(max(note.rows for note in file.notes) for file in files)])
        parts = sizes[np.searchsorted([file.begin for file in files], edges[:-1])] // _PART_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(edges) - 1]
        return [edges[low : high + 1] for low, high in itertools.pairwise(bounds)]

    def asset_ids(self) -> list[str]:
        """Return assets: see `Source`."""
        state = self.state()

        def read() -> tuple[list[str], int]:
            files = self._files(state.end, state.end)
            return _ranked(itertools.chain.from_iterable(map_parallel(count, files))), 1

        def count(file: File) -> list[dict[str, int]]:
            parts = self._iter_rows(file, Predicate(spans=file.bounds), ["asset_id"])
            return [part["asset_id"].to_pandas().value_counts().to_dict() for part in parts]

        found: list[str] = self._kept.get(("assets", state.version), read)
        return found

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `Source`."""
        return {"coverage": self._archive.coverage(), "limits": self._archive.limits()}


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Return rows of several parts, as they stand, with no id that none of them has."""
    found = (part.cast(ARROW_SCHEMA) for part in [ARROW_SCHEMA.empty_table(), *parts])
    return canonical(pa.concat_tables(found), sort=False)


def _ends(rows: pa.Table, step: int, start: int = 0) -> pa.Table:
    """Return the first and the last row of each account in each period, also of one from `start`.

    The rows stand in a file's order.
    """
    rows = rows.unify_dictionaries()
    times = times_of(rows)
    periods = times // step * 2 + (times >= start)
    is_end = np.ones(len(times) + 1, bool)
    is_end[1:-1] = periods[1:] != periods[:-1]
    is_end[account_heads(rows)] = True
    return rows.filter(pa.array(is_end[:-1] | is_end[1:]))


def _ranked(counts: Iterable[Mapping[Any, int]]) -> list[str]:
    """Return assets that are counted, those first that have most."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update({str(asset): count for asset, count in each.items() if count})
    return sorted(total, key=lambda asset: (-total[asset], asset))


class Kept:
    """What was read last, up to so many rows, for any number of threads."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return what is kept under a key, or else make it; `make` tells its rows as well."""
        found = self.peek(key)
        if found is None:
            found, size = make()
            self.put(key, found, size)
        return found

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return what is kept under a key, or `None`."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key, (None, 0))[0]

    def put(self, key: Hashable, made: Any, size: int) -> None:  # noqa: ANN401 - likewise
        """Keep something of so many rows."""
        with self._lock:
            self._found[key] = made, size
            while len(self._found) > 1 and sum(n for _, n in self._found.values()) > self._most:
                self._found.popitem(last=False)


def keys_of(frame: pd.DataFrame) -> list[Key]:
    """Return the account of each row."""
    return list(zip(*(frame[name].tolist() for name in ACCOUNT_KEY), strict=True))
