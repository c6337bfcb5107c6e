"""The data behind the explorer: a state of an archive, read in small parts, or a table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.downsampling import first_and_last
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.steps import map_parallel
from balance_analysis.archive.datafile import Predicate, times_of
from balance_analysis.archive.sidecars import read_archive_names
from balance_analysis.archive.snapshot import File, LruCache, opened
from balance_analysis.archives import Archive
from balance_analysis.errors import logger
from balance_analysis.filters import Filters
from balance_analysis.frame import frame_of
from balance_analysis.known import Known, note_evidence
from balance_analysis.names import Names, rank_assets
from balance_analysis.rows import account_heads, canonical
from balance_analysis.schema import ARROW_SCHEMA, COLUMNS, from_microseconds
from balance_analysis.spans import EVER, Span, between
from balance_analysis.text import without_credentials

MOST_ROWS: Final = 3_000_000
"""Maximum rows in memory for one view: some 200 MB."""

KEPT_BYTES: Final = 200_000_000
"""Size of the cache of files and answers."""

_BYTES_A_COUNT: Final = 200

_DAY: Final = 86_400_000_000

_PART_ROWS: Final = 2_000_000
"""Rows of all assets in the files of a part of a view."""

_FILES: Final = 16
"""Files that are read before their rows are counted."""

_GROUPS: Final = 8
"""Row groups of a file that are read at once: more don't stay in a processor's cache."""

Edges = NDArray[np.int64] | None

Check = Callable[[], None]


class UnknownAssetError(Exception):
    """There is no such asset; the message says so."""


class ViewTooLargeError(Exception):
    """A view needs more rows or digits than fit; the message says which."""


_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)
logger.addFilter(lambda _: not _is_silent.get())


@contextmanager
def in_silence() -> Iterator[None]:
    """Keep back the warnings of functions: a page has its own words for what is not known."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def go_on() -> None:
    """Check nothing: someone waits for the answer, however long it takes."""


class TableState:
    """A history in memory, with the same attributes and methods as `ArchiveState`."""

    version = "0"

    def __init__(
        self,
        history: History,
        *,
        bounds: Span,
        names: Names,
        name: str = "Balances of a table of balance changes",
        notes: dict[str, pd.DataFrame] | None = None,
    ) -> None:
        self.history: History = history
        self.name: str = name
        self.start: int = bounds[0]
        self.end: int = bounds[1]
        self.known: Known | None = history.known
        self.names: Names = names
        self._notes = notes or {}
        self._selected: dict[bytes, History] = {}

    def rows(self, filters: Filters, span: Span, *, edges: Edges, check: Check) -> History:
        """Return every row of some accounts: see `ArchiveState`."""
        del span, edges
        check()
        accounts = self.history.accounts
        is_wanted = np.zeros(len(accounts), bool)
        is_wanted[filters.select(accounts).index] = True
        key = is_wanted.tobytes()
        if key not in self._selected:
            self._selected[key] = self.history.select(is_wanted)
        return self._selected[key]

    def parts(self, edges: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return all edges as one part: the rows are in memory anyway."""
        return [edges]

    def asset_ids(self) -> list[str]:
        """Return the assets that have an account, those with most rows first."""
        ranked = rank_assets(_count_assets(self.history.rows["asset_id"]))
        return [*ranked, *sorted({*self.history.accounts["asset_id"]} - {*ranked})]

    @property
    def left_out(self) -> list[str]:
        """Sentences on accounts that sums leave out."""
        return self.history.left_out

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return the coverage and the network limits of the archive it was read from, if any."""
        return self._notes


class ArchiveState:
    """One state of an archive: its balance changes at one moment, which never change.

    Balances need only the rows with which each account begins and ends a day. These rows of the
    files read last are kept, so that further views don't read the files again.

    Attributes
    ----------
    name
        The title of the page.
    version
        The identity of the state.
    start, end
        Its interval, half-open, microseconds; equal where it holds nothing.
    known
        The stretches in which every change is known; of a table `None` where nothing says.
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
        """Return the balance changes of some accounts in a span, microseconds.

        The last row of each account before the span is among them; there may be others. Accounts
        whose first row comes later are there too, so that every view counts the same accounts. With
        `edges`, ascending, only those rows need be there that make the balances at these and just
        before the end, and the changes between them. `check` is called between files and parts; an
        error that it raises ends the reading.
        """
        files = self._snapshot.files_since(*span)

        def read(file: File) -> pa.Table:
            check()
            if file.stop <= span[0] or (edges is not None and _has_days(file, edges)):
                rows = self._read(file, filters, check, ends=True)
            else:
                rows = self._read(file, filters, check)
                rows = rows if edges is None else _ends(rows, edges)
            return rows if file.stop <= span[1] else _within(rows, EVER[0], span[1])

        def read_last(file: File) -> pa.Table:
            check()
            return _within(self._read(file, filters, check, ends=True), span[1], self.end)

        parts: list[pa.Table] = []
        for place in range(0, len(files), _FILES):
            parts += map_parallel(read, files[place : place + _FILES])
            if sum(part.num_rows for part in parts) > MOST_ROWS:
                raise ViewTooLargeError(
                    f"this view needs more than {MOST_ROWS:,} rows: choose a shorter range"
                )
        if span[1] < self.end:
            parts += map_parallel(read_last, self._snapshot.files_since(self.end - 1, self.end))
        # An account's rows are in time order, in each file and from file to file.
        table = frame_of(canonical(_joined(parts)))
        note_evidence(table, self._snapshot.evidence.narrow(filters))
        return open_history(table)

    def _read(self, file: File, filters: Filters, check: Check, *, ends: bool = False) -> pa.Table:
        """Return rows of a file; with `ends`, those at the ends of its days are enough."""
        kept, asked = self._kept.peek(file), Predicate(filters.allowed(), file.bounds)
        if kept is None and not filters.party_ids:
            # The whole file has to be read, so that its ends cost little more.
            days, of_days, rows = np.arange(file.begin, file.stop, _DAY), [], []
            for part in self._iter_rows(file, Predicate(spans=file.bounds)):
                check()
                of_days.append(_ends(part, days))
                if not ends:
                    rows.append(asked.select(part))
            kept = _joined(of_days)
            self._kept.put(file, kept, kept.nbytes)
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
        """Return the edges of periods in parts that each need a limited number of rows."""
        files = self._snapshot.files_since(int(edges[0]), int(edges[-1]))
        sizes = np.cumsum([0, *(max(note.rows for note in file.notes) for file in files)])
        parts = sizes[np.searchsorted([file.begin for file in files], edges[:-1])] // _PART_ROWS
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(edges) - 1]
        return [edges[low : high + 1] for low, high in itertools.pairwise(bounds)]

    def asset_ids(self) -> list[str]:
        """Return the assets that have an account, those with most rows first."""

        def count(file: File) -> Counter[str]:
            def read() -> tuple[Counter[str], int]:
                parts = self._iter_rows(file, Predicate(spans=file.bounds), ["asset_id"])
                per_asset = sum(
                    (_count_assets(x["asset_id"].to_pandas()) for x in parts), Counter()
                )
                return per_asset, _BYTES_A_COUNT * (1 + len(per_asset))

            counts: Counter[str] = self._kept.get(("assets", file), read)
            return counts

        return rank_assets(sum(map_parallel(count, self._snapshot.files()), Counter[str]()))

    @property
    def left_out(self) -> list[str]:
        """Sentences on accounts that sums leave out."""
        return open_history(replace(self._snapshot.scan(), files=()).read()).left_out

    def notes(self) -> dict[str, pd.DataFrame]:
        """Return its coverage and its network limits."""
        return notes_of(self.archive)


State: TypeAlias = ArchiveState | TableState
"""The data that a view is computed from."""


def completeness(state: State) -> str:
    """Return how complete a state is; "confirmed" where another source has the same rows."""
    if state.known is None or state.start >= state.end:
        return "not known to be complete"
    if between(state.known, state.start, state.end):
        return "not complete"
    coverage = state.notes().get("coverage")
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
    """Return the coverage and the network limits of an archive."""
    return {"coverage": archive.coverage(), "limits": archive.limits()}


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of several parts in their order, without unused ids."""
    typed = (part.cast(ARROW_SCHEMA) for part in [ARROW_SCHEMA.empty_table(), *parts])
    return canonical(pa.concat_tables(typed), sort=False)


def _has_days(file: File, edges: NDArray[np.int64]) -> bool:
    """Whether the edges within a file are midnights."""
    return not np.any(edges[(edges > file.begin) & (edges < file.stop)] % _DAY)


def _ends(rows: pa.Table, edges: NDArray[np.int64]) -> pa.Table:
    """Return the first and the last row of each account between edges, in a file's order."""
    rows = rows.unify_dictionaries()
    return rows.filter(pa.array(first_and_last(account_heads(rows), times_of(rows), edges)))


def _within(rows: pa.Table, start: int, stop: int) -> pa.Table:
    """Return the rows in [start, stop)."""
    times = times_of(rows)
    return rows.filter(pa.array((times >= start) & (times < stop)))


def _count_assets(ids: pd.Series[Any]) -> Counter[str]:
    """Return the number of rows of each asset."""
    return Counter({str(asset): n for asset, n in ids.value_counts().items() if n})
