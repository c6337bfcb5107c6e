"""What is wrong with one file of an archive, if anything is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive.datafile import FILE_KEY, FILE_ORDER, read_footer, wrong_schema
from balance_analysis.errors import ArchiveError
from balance_analysis.rows import account_numbers, canonical
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.text import iso_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from balance_analysis.archive.coverage import FileNote
    from balance_analysis.archive.store import Store
    from balance_analysis.spans import Span

EMPTY: Final = ARROW_SCHEMA.empty_table()

_CHUNK: Final = 1 << 20
_FAR: Final = 1 << 62


def fingerprint(store: Store, name: str) -> tuple[int, str] | None:
    """Return the size and digest of a file; `None` if there is none."""
    digest, size = hashlib.sha256(), 0
    try:
        with store.open(name) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        return None
    return size, digest.hexdigest()


def wrong_bytes(store: Store, name: str, note: FileNote) -> str | None:
    """Return how a file is not what was written."""
    try:
        found = fingerprint(store, name)
    except (OSError, ArchiveError) as error:
        return f"can't be read: {error}"
    if found is None:
        return "is missing"
    if found[0] != note.size:
        return f"is not what was written: it has {found[0]} bytes, not {note.size}"
    if found[1] != note.sha256:
        return f"is not what was written: its SHA-256 is {found[1]}, not {note.sha256}"
    return None


def wrong_note(note: FileNote, rows: int, ends: Span) -> str | None:
    """Return how a file has other rows than are noted: how many, and its first and last time."""
    if rows != note.rows or not rows:
        return f"has {rows} rows, not {note.rows}"
    if ends != (note.first, note.last):
        return (
            f"has rows from {_moment_text(ends[0])} to {_moment_text(ends[1])}, not from "
            f"{_moment_text(note.first)} to {_moment_text(note.last)}"
        )
    return None


def footer_digest(store: Store, name: str, note: FileNote) -> str | None:
    """Return the digest of the footer of a file, if that is what was written."""
    if wrong_bytes(store, name, note) is not None:
        return None
    with store.open(name) as source:
        return hashlib.sha256(read_footer(source)).hexdigest()


@dataclass(slots=True)
class Reading:
    """One file of rows being read.

    Attributes
    ----------
    begin, stop
        Its period, microseconds.
    spans
        What of the period is covered.
    rows, ends
        How many there are, and the first and last time.
    last
        The last row of each account, if nothing is wrong.
    strays, outside, repeats, steps_back
        How many rows are of another period, are not covered, repeat the account and timestamp of
        another, or stand before one that they belong behind.
    """

    begin: int
    stop: int
    spans: list[Span]
    rows: int = 0
    last: list[pa.Table] = field(default_factory=list)
    ends: Span = (_FAR, -_FAR)
    strays: int = 0
    outside: int = 0
    repeats: int = 0
    steps_back: int = 0

    def read(self, store: Store, name: str, note: FileNote) -> str | None:
        """Return what is wrong with the file, if anything is."""
        try:
            with store.open(name) as source, pq.ParquetFile(source) as file:
                wrong = wrong_schema(file.schema_arrow)
                if wrong is not None:
                    return wrong
                self._read_groups(file)
                if self.steps_back:
                    self.repeats = _count_repeats(canonical(file.read()))
        except (pa.ArrowException, OSError) as error:
            return f"can't be read: {error}"
        return "; ".join(self._findings(note)) or None

    def _findings(self, note: FileNote) -> Iterator[str]:
        if self.steps_back:
            yield f"its rows are not in the order {', '.join(FILE_ORDER)}"
        if self.repeats:
            yield f"{self.repeats} of its rows repeat the account and timestamp of another"
        if self.strays:
            yield f"{self.strays} of its rows are not of its period"
        if self.outside:
            yield f"{self.outside} of its rows are outside of what is covered"
        wrong = wrong_note(note, self.rows, self.ends)
        if wrong is not None:
            yield wrong

    def _read_groups(self, file: pq.ParquetFile) -> None:
        before = EMPTY
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            if not group.num_rows:
                continue
            self._check_times(group["timestamp"].cast(pa.int64()).to_numpy())
            rows = canonical(pa.concat_tables([before, group]), sort=False)
            accounts, times = _keys(rows)
            steps, later = np.sign(np.diff(accounts)), np.sign(np.diff(times))
            self.steps_back += int(np.sum((steps < 0) | ((steps == 0) & (later < 0))))
            self.repeats += int(np.sum((steps == 0) & (later == 0)))
            self.last.append(rows.take(pa.array(np.flatnonzero(steps))))
            before = rows.slice(rows.num_rows - 1)
        self.last.append(before)

    def _check_times(self, times: NDArray[np.int64]) -> None:
        self.rows += len(times)
        self.ends = (min(self.ends[0], int(times.min())), max(self.ends[1], int(times.max())))
        self.strays += int(np.sum((times < self.begin) | (times >= self.stop)))
        edges = np.array(self.spans, np.int64).ravel()
        self.outside += int(np.sum(np.searchsorted(edges, times, side="right") % 2 == 0))


def _keys(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return numbers that sort as accounts do in a file, and times; of canonical rows."""
    ids = [rows[name].chunk(0) for name in FILE_KEY]
    codes = [column.indices.to_numpy() for column in ids]
    accounts = account_numbers(codes, [len(column.dictionary) for column in ids])
    return accounts, rows["timestamp"].cast(pa.int64()).to_numpy()


def _count_repeats(rows: pa.Table) -> int:
    """Return how many rows, in a table's order, repeat the account and timestamp before them."""
    accounts, times = _keys(rows)
    return int(np.sum((np.diff(accounts) == 0) & (np.diff(times) == 0)))


def _moment_text(moment: int) -> str:
    """Return a moment in microseconds as ISO 8601."""
    try:
        return iso_text(moment)
    except OverflowError:
        return f"{moment} microseconds"
