"""What an explorer looks at: an archive, of which little is read at once, or a table."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.checks import to_table
from balance_analysis.archive import layout
from balance_analysis.archive.manifest import read_about, read_archive_assets, read_coverage
from balance_analysis.archive.scan import Scan, checkpoint_of, files_of
from balance_analysis.assets import assets_of
from balance_analysis.filters import Filters
from balance_analysis.frame import empty_table, frame_of
from balance_analysis.known import known_of, note_known
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    from_microseconds,
    to_microseconds,
)
from balance_analysis.spans import between, clipped
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.scan import File
    from balance_analysis.assets import Assets, AssetsLike
    from balance_analysis.known import Known
    from balance_analysis.spans import Span

MOST_ROWS: Final = 3_000_000
"""Rows that one view may need: some 200 MB."""

_KEPT_ROWS: Final = 3_000_000
"""Rows of tables that are kept for the next view."""


Key = tuple[str, str, str, str]


class TooLargeError(Exception):
    """A view needs more rows than fit; the message says what to ask for instead."""


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

    @property
    def gaps(self) -> list[Span]:
        """What of the interval is not known to be complete."""
        return [] if self.known is None else between(self.known, self.start, self.end)


class Source(Protocol):
    """Where an explorer's rows come from."""

    name: str

    def state(self) -> State:
        """Return what it holds now."""

    def rows(self, filters: Filters, start: int, end: int) -> pd.DataFrame:
        """Return the balance changes of some accounts in [start, end), microseconds."""

    def held(self, asset: str, at: int) -> pd.DataFrame:
        """Return what every account of an asset held at a moment, as `balance_at` does."""

    def opening(self, filters: Filters) -> pd.DataFrame | None:
        """Return what accounts held before the first row, where that is told."""

    def asset_ids(self) -> list[str]:
        """Return the assets of which there is an account."""

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return its coverage and its network limits, of an archive."""


class TableSource:
    """A table of balance changes, and what its accounts held before, as a source."""

    def __init__(
        self,
        table: pd.DataFrame,
        *,
        name: str = "a table of balance changes",
        opening: pd.DataFrame | None = None,
        bounds: Span | None = None,
        assets: AssetsLike | None = None,
        notes: dict[str, pd.DataFrame] | None = None,
    ) -> None:
        self.name: str = name
        self._opening, self._notes = opening, notes or {}
        self._table = to_table(table)
        known = known_of(self._table)
        if bounds is None:
            bounds = 0, 0
            ends = [bound for span in known or () for bound in span]
            if len(self._table):
                times = self._table["timestamp"]
                ends += [to_microseconds(times.min()), to_microseconds(times.max()) + 1]
            if ends:
                bounds = min(ends), max(ends)
        self._state = State("0", *bounds, known, assets_of(table, assets))

    def state(self) -> State:
        """Return what it holds: always the same."""
        return self._state

    def rows(self, filters: Filters, start: int, end: int) -> pd.DataFrame:
        """Return rows: see `Source`."""
        times = self._table["timestamp"]
        is_inside = (times >= from_microseconds(start)) & (times < from_microseconds(end))
        rows = filters.select(self._table[is_inside]).reset_index(drop=True)
        if self._state.known is not None:
            note_known(rows, clipped(self._state.known, start, end))
        return rows

    def held(self, asset: str, at: int) -> pd.DataFrame:
        """Return balances: see `Source`."""
        rows = self._table[self._table["asset_id"] == asset].reset_index(drop=True)
        opening = self.opening(Filters(asset))
        return balance_at(rows, from_microseconds(at), opening=opening, known=_pairs(self._state))

    def opening(self, filters: Filters) -> pd.DataFrame | None:
        """Return the opening: see `Source`."""
        if self._opening is None:
            return None
        return filters.select(self._opening).reset_index(drop=True)

    def asset_ids(self) -> list[str]:
        """Return assets: see `Source`."""
        frames = [self._table] if self._opening is None else [self._table, self._opening]
        return sorted({str(one) for frame in frames for one in frame["asset_id"].unique()})

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `Source`."""
        return self._notes


def _pairs(state: State) -> list[tuple[Any, Any]] | None:
    if state.known is None:
        return None
    return [(from_microseconds(start), from_microseconds(end)) for start, end in state.known]


class ArchiveSource:
    """An archive as a source: what exports add meanwhile is there from then on."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._store = archive, archive.store
        self.name: str = (
            without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "archive"
        )
        self._kept = Kept(_KEPT_ROWS)

    def state(self) -> State:
        """Return what it holds now."""
        content = self._store.read(layout.COVERAGE) or b""
        version = hashlib.sha256(content).hexdigest()[:16]
        state: State
        state = self._kept.get(("state", version), lambda: (self._read_state(version), 1))
        return state

    def _read_state(self, version: str) -> State:
        coverage = read_coverage(self._store)
        start, end = coverage.bounds(proven=False) if coverage.intervals else (0, 0)
        return State(version, start, end, coverage.known(), read_archive_assets(self._store))

    def rows(self, filters: Filters, start: int, end: int) -> pd.DataFrame:
        """Return rows: see `Source`."""
        about, coverage = read_about(self._store), read_coverage(self._store)
        files = tuple(files_of(about, coverage, (start, end)))
        return self._read(Scan(self._store, filters, files, coverage.known()))

    def _read(self, scan: Scan) -> pd.DataFrame:
        batches, count = [], 0
        for batch in scan.iter_batches():
            batches.append(batch)
            count += batch.num_rows
            if count > MOST_ROWS:
                raise TooLargeError(
                    f"this view needs more than {MOST_ROWS:,} rows: choose a shorter range"
                )
        rows = pa.Table.from_batches(batches, ARROW_SCHEMA)
        table = frame_of(canonical(rows, is_by_time=True))
        note_known(table, scan.known)
        return table

    def held(self, asset: str, at: int) -> pd.DataFrame:
        """Return balances: see `Source`. What was held when the last file begins is kept."""
        about, coverage = read_about(self._store), read_coverage(self._store)
        scan, version = (
            Scan(self._store, Filters(asset), (), coverage.known()),
            self.state().version,
        )
        since = max((begin for begin in coverage.checkpoints if begin <= at), default=None)
        begin = coverage.bounds(proven=False)[0] if since is None else since
        files = list(files_of(about, coverage, (begin, at + 1)))
        first, held = 0, None
        for place, file in reversed(list(enumerate(files))):
            held = self._kept.peek((version, asset, file.begin))
            if held is not None:
                first = place
                break
        if held is None and since is not None:
            files.insert(0, checkpoint_of(about, since, coverage.checkpoints[since]))
        for part in _parts(files[first:-1]):
            moment = files[files.index(part[-1]) + 1].begin
            held = self._fold(replace(scan, files=part), moment - 1, held)
            self._kept.put((version, asset, moment), held, len(held))
        return self._fold(replace(scan, files=tuple(files[first:][-1:])), at, held)

    def _fold(self, scan: Scan, at: int, opening: pd.DataFrame | None) -> pd.DataFrame:
        return balance_at(self._read(scan), from_microseconds(at), opening=opening)

    def opening(self, filters: Filters) -> None:
        """Return nothing: an archive begins with its first row."""

    def asset_ids(self) -> list[str]:
        """Return assets: see `Source`."""
        found: list[str]
        found = self._kept.get(
            ("assets", self.state().version), lambda: (self._read_asset_ids(), 1)
        )
        return found

    def _read_asset_ids(self) -> list[str]:
        about, coverage = read_about(self._store), read_coverage(self._store)
        newest = max(coverage.checkpoints, default=None)
        begin = coverage.bounds(proven=False)[0] if newest is None else newest
        files = (
            [] if newest is None else [checkpoint_of(about, newest, coverage.checkpoints[newest])]
        )
        files += files_of(about, coverage, (begin, coverage.bounds(proven=False)[1]))
        scan = Scan(self._store, Filters(), tuple(files), coverage.known())
        found = {
            str(one)
            for batch in scan.iter_batches(["asset_id"])
            for one in batch.column(0).dictionary_decode().unique().to_pylist()
        }
        return sorted(found)

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return notes: see `Source`."""
        return {"coverage": self._archive.coverage(), "limits": self._archive.limits()}


def _parts(files: list[File]) -> Iterator[tuple[File, ...]]:
    """Yield some files after the others, together of not too many rows."""
    part: list[File] = []
    for file in files:
        rows = sum(max(note.rows for note in each.notes) for each in [*part, file])
        if part and rows > MOST_ROWS:
            yield tuple(part)
            part = []
        part.append(file)
    if part:
        yield tuple(part)


class Kept:
    """What was read last, up to so many rows, for any number of threads."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return what is kept under a key, or else make it; `make` tells its rows as well."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key][0]
        made = make()
        self.put(key, *made)
        return made[0]

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return what is kept under a key, or `None`."""
        with self._lock:
            return self._found.get(key, (None, 0))[0]

    def put(self, key: Hashable, made: Any, size: int) -> None:  # noqa: ANN401 - likewise
        """Keep something of so many rows."""
        with self._lock:
            self._found[key] = made, size
            while len(self._found) > 1 and sum(n for _, n in self._found.values()) > self._most:
                self._found.popitem(last=False)


def nothing(asset: str) -> pd.DataFrame:
    """Return a table without rows, for what is told of an opening alone."""
    return empty_table().assign(asset_id=pd.Categorical([], categories=[asset]))


def keys_of(frame: pd.DataFrame) -> list[Key]:
    """Return the account of each row."""
    return list(frame[list(ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None))
