"""An archive's Parquet files: the same rows give the same bytes, and one reader of their rows.

Rows are sorted by party first, so that one party's history is read without the rest: a row group
has few parties, and its statistics name the first and the last. The rows of an account are
together, in time order, so an account, or a range of accounts, is one stretch of rows. Timestamps
and balances are plain, which every engine reads. As blocks' times repeat, compression makes them
smaller than any encoding of differences.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from balance_analysis.archive.manifest import FileEntry
from balance_analysis.files.parquet import make_note
from balance_analysis.table.rows import account_heads, account_numbers, canonical, sorted_codes
from balance_analysis.table.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, to_microseconds
from balance_analysis.table.spans import Span

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
FILE_KEY: Final = FILE_ORDER[: len(ACCOUNT_KEY)]

Key = tuple[str, ...]
"""An account's ids in the order of files, or the first few of them."""

NO_ROWS: Final = ARROW_SCHEMA.empty_table()

_WAITING: Final = 1 << 20
"""Maximum number of last rows that wait to be merged."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of accounts, in the order of an archive's files.

    Attributes
    ----------
    low
        The lower bound, inclusive.
    high
        The upper bound, exclusive; `None` for no bound.
    """

    low: Key = ()
    high: Key | None = None

    def __str__(self) -> str:
        bounds = {"from": self.low, "before": self.high}
        said = [f"{word} {' '.join(map(repr, key))}" for word, key in bounds.items() if key]
        return f"accounts {' '.join(said)}" if said else "all accounts"

    def overlaps(self, first: Key, last: Key) -> bool:
        """Return whether the accounts from `first` to `last` overlap this range."""
        return last >= self.low and (self.high is None or first < self.high)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows of these accounts, from rows in a file's order."""
        if self == KeyRange():
            return rows
        columns = [rows[name] for name in FILE_KEY]

        def key(place: int) -> Key:
            return tuple(column[place].as_py() for column in columns)

        low, high = (
            rows.num_rows if bound is None else bisect_left(range(rows.num_rows), bound, key=key)
            for bound in (self.low, self.high)
        )
        return rows.slice(low, high - low)


ALL: Final = KeyRange()


def numbers_of(rows: pa.Table, names: Sequence[str] = FILE_KEY) -> NDArray[np.int64]:
    """Return for each canonical row a number that sorts as its account, by default as in files."""
    ids = [rows[name].chunk(0) for name in names]
    codes = [column.indices.to_numpy() for column in ids]
    return account_numbers(codes, [len(column.dictionary) for column in ids])


def times_of(rows: pa.Table) -> NDArray[np.int64]:
    """Return the timestamps of rows, microseconds."""
    times: NDArray[np.int64] = rows["timestamp"].cast(pa.int64()).to_numpy()
    return times


def last_rows(rows: pa.Table) -> pa.Table:
    """Return the last row of each account, from rows in a file's order: at least the ids."""
    rows = rows.unify_dictionaries()
    heads = account_heads(rows)
    return rows.take(pa.array(np.append(heads[1:], rows.num_rows)[: len(heads)] - 1))


def merge_last_rows(parts: Iterable[pa.Table], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return the last row of each account, of `last_rows` in time order, sorted as in a file."""
    total, waiting, size = NO_ROWS.select(columns), [], 0
    for some in parts:
        waiting.append(some)
        size += some.num_rows
        if size > max(_WAITING, total.num_rows):
            total, waiting, size = _merge([total, *waiting]), [], 0
    return _merge([total, *waiting])


def _merge(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    codes, ids = zip(*(sorted_codes(rows[name]) for name in FILE_KEY), strict=True)
    numbers = account_numbers(codes, [*map(len, ids)])
    order = np.argsort(numbers, kind="stable")
    tails = order[np.flatnonzero(np.diff(numbers[order], append=-1))]
    columns = {name: rows[name] for name in rows.column_names}
    for name, code, values in zip(FILE_KEY, codes, ids, strict=True):
        columns[name] = pa.chunked_array([pa.DictionaryArray.from_arrays(code, values)])
    return pa.table(columns, schema=rows.schema).take(pa.array(tails))


ROW_GROUP: Final = 1 << 13

BEYOND: Final = chr(sys.maxunicode)
"""A text that sorts behind every id."""

_GROUPS: Final = 16
"""Row groups that are read at once; more don't fit into a processor's cache."""

_TAIL: Final = 1 << 16
"""Bytes that are read at once of a file's end, where the footer is."""

_LEVELS: Final = dict.fromkeys(["party_id", "timestamp", "balance"], 6)
"""Compression levels. The few other ids of a row group would save little."""

_SORTING: Final = [pq.SortingColumn(ARROW_SCHEMA.get_field_index(name)) for name in FILE_ORDER]


def encode_rows(rows: pa.Table) -> tuple[bytes, FileEntry]:
    """Return rows as the content of a file, and its entry for the manifest.

    Parameters
    ----------
    rows
        `ARROW_SCHEMA`, in any order, each account and timestamp once; at least one row.
    """
    ordered = in_file_order(rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        ARROW_SCHEMA.with_metadata(make_note({"kind": "balance changes"})),
        compression={name: "zstd" if name in _LEVELS else "none" for name in COLUMNS},
        compression_level=_LEVELS,
        use_dictionary=ACCOUNT_KEY,
        write_statistics=list(FILE_ORDER),
        write_page_checksum=True,
        sorting_columns=_SORTING,
    ) as writer:
        for start in range(0, ordered.num_rows, ROW_GROUP):
            # With the ids of this row group only, or each had those of the whole file.
            writer.write_table(canonical(ordered.slice(start, ROW_GROUP), sort=False))
    content = sink.getvalue().to_pybytes()
    return content, entry_of(content, ordered["timestamp"])


def entry_of(content: bytes, times: pa.ChunkedArray) -> FileEntry:
    """Return the manifest's entry for a Parquet file, at least one row, and its rows' times."""
    digest, ends = hashlib.sha256(content).hexdigest(), pc.min_max(times.cast(pa.int64()))
    footer = Footer(read_footer(pa.BufferReader(content))).digest
    first, last = (int(ends[name].as_py()) for name in ("min", "max"))
    return FileEntry(len(times), len(content), digest, first, last, footer)


def in_file_order(rows: pa.Table) -> pa.Table:
    """Return canonical rows of `ARROW_SCHEMA`, sorted as in a file."""
    ordered = canonical(rows)
    # The rows are in time order within an account, which a stable sort keeps.
    return ordered.take(pa.array(np.argsort(numbers_of(ordered), kind="stable")))


def decode_rows(content: bytes) -> pa.Table:
    """Return the rows of a file's content, in its order.

    Raises
    ------
    OtherFileError, OSError, pyarrow.ArrowException
        If they are damaged, or the columns are not a table's.
    """
    source = pa.BufferReader(content)
    footer = Footer(read_footer(source))
    _check_schema(footer.metadata.schema.to_arrow_schema())
    return DataFile(source, footer).read(use_threads=True)


class OtherFileError(OSError):
    """A file differs from its note."""


def read_footer(source: pa.NativeFile) -> bytes:
    """Return the end of a Parquet file: its metadata, and in 8 bytes their length and the magic.

    If the file is too short to have one, that is an OtherFileError.
    """
    size = source.size()
    tail = source.read_at(min(size, _TAIL), max(size - _TAIL, 0))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size:
        raise OtherFileError("it has no footer")
    if length > len(tail):
        tail = source.read_at(length, size - length)
    return bytes(tail[-length:])


class Footer:
    """The footer of a Parquet file: its row groups and their statistics."""

    def __init__(self, content: bytes) -> None:
        self.digest: str = hashlib.sha256(content).hexdigest()
        self._content = content
        self.bounds = cache(self._bounds)
        """Like `_bounds`, computed once: of a row group and the name of a column."""

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        """The metadata, parsed by pyarrow."""
        return pq.read_metadata(pa.BufferReader(self._content))

    def _bounds(self, group: int, column: str) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a column in a row group; `None` if not stored."""
        statistics = self.metadata.row_group(group).column(COLUMNS.index(column)).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        if column == "timestamp":
            return to_microseconds(statistics.min), to_microseconds(statistics.max)
        return statistics.min, statistics.max

    def owners(self, group: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return bounds of the parties and assets of a row group, see `Scan.groups`."""
        bounds = [self.bounds(group, name) for name in FILE_ORDER[:2]]
        (first, last), (low, high) = (each or ("", BEYOND) for each in bounds)
        return (first, low if first == last else ""), (last, high if first == last else BEYOND)

    def groups_of(self, parties: Sequence[str]) -> range:
        """Return the range of row groups that may have these parties; without parties, all."""
        groups = range(self.metadata.num_row_groups)
        bounds: Callable[[int, str], Any] = self.bounds
        try:
            begin = bisect_left(groups, min(parties), key=lambda at: bounds(at, FILE_ORDER[0])[1])
            end = bisect_right(groups, max(parties), key=lambda at: bounds(at, FILE_ORDER[0])[0])
        except (ValueError, TypeError):  # no party, or one too long for stored bounds
            return groups
        return groups[begin:end]


_parsed = lru_cache(maxsize=256)(Footer)
"""Footers by their bytes, some 30 kB each; the last ones are kept."""


def check_footer(source: pa.NativeFile, notes: Iterable[FileEntry]) -> Footer:
    """Return the footer of a file of rows that matches one of the notes.

    Parameters
    ----------
    source, notes
        The file, and its notes; it must match one.

    Raises
    ------
    OtherFileError, pyarrow.ArrowException
        If it is another file.
    """
    size, footer, wrong = source.size(), _parsed(read_footer(source)), "it is not noted"
    for note in notes:
        if size != note.size:
            wrong = f"it has {size} bytes, not {note.size}"
        elif note.footer != footer.digest:
            wrong = "it has another footer than was written"
        elif footer.metadata.num_rows != note.rows:
            wrong = f"it has {footer.metadata.num_rows} rows, not {note.rows}"
        else:
            return footer
    raise OtherFileError(wrong)


def _check_schema(schema: pa.Schema) -> None:
    """Raise OtherFileError if a file's columns aren't those of a table."""
    names = ", ".join(schema.names), ", ".join(ARROW_SCHEMA.names)
    if names[0] != names[1]:
        raise OtherFileError(f"has the columns {names[0]}, not {names[1]}")
    for column, wanted in zip(schema, ARROW_SCHEMA, strict=True):
        if column.type != wanted.type:
            raise OtherFileError(f"its column {column.name} is {column.type}, not {wanted.type}")
        if column.nullable != wanted.nullable:
            raise OtherFileError(f"its column {column.name} may have missing values")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A choice of rows in a file.

    Attributes
    ----------
    allowed
        The allowed values of some id columns.
    spans
        The times, disjoint, microseconds; `None` for all.
    key_range
        The range of accounts.
    """

    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spans: tuple[Span, ...] | None = None
    key_range: KeyRange = ALL

    @property
    def columns(self) -> set[str]:
        """The columns that the choice needs."""
        key = () if self.key_range == ALL else FILE_KEY
        return {*self.allowed, *key, *(() if self.spans is None else ("timestamp",))}

    def may_match(self, footer: Footer, group: int) -> bool:
        """Return whether a row group may have a chosen row, by its statistics."""
        for name, values in self.allowed.items():
            bounds = footer.bounds(group, name)
            if bounds and not any(bounds[0] <= value <= bounds[1] for value in values):
                return False
        if self.spans is not None and (bounds := footer.bounds(group, "timestamp")):
            first, last = bounds
            if not any(start <= last and first < end for start, end in self.spans):
                return False
        if self.key_range == ALL:
            return True
        known = [bounds for name in FILE_KEY if (bounds := footer.bounds(group, name))]
        if len(known) < len(FILE_KEY):
            return True
        low, high = zip(*known, strict=True)
        return self.key_range.overlaps(low, high)

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the chosen rows, from rows in a file's order."""
        rows = self.key_range.rows(rows)
        masks = [mask_of(rows[name], values) for name, values in self.allowed.items()]
        if self.spans is not None:
            times = times_of(rows)
            within = [(times >= start) & (times < end) for start, end in self.spans]
            masks.append(np.logical_or.reduce(within, axis=0))
        return rows.filter(pa.array(np.logical_and.reduce(masks))) if masks else rows


class DataFile:
    """The rows of an open file; each page is checked as it is read."""

    def __init__(self, source: pa.NativeFile, footer: Footer) -> None:
        self.footer = footer
        self._file = pq.ParquetFile(
            source, metadata=footer.metadata, page_checksum_verification=True
        )

    def row_groups(self, predicate: Predicate) -> list[int]:
        """Return the row groups that may have chosen rows."""
        groups = self.footer.groups_of(predicate.allowed.get(FILE_ORDER[0], ()))
        return [number for number in groups if predicate.may_match(self.footer, number)]

    def read(
        self,
        groups: Sequence[int] | None = None,
        columns: Sequence[str] = COLUMNS,
        *,
        use_threads: bool = False,
    ) -> pa.Table:
        """Return some row groups, or all.

        If they are damaged, that is an OtherFileError, pyarrow.ArrowException or OSError.
        """
        groups = range(self.footer.metadata.num_row_groups) if groups is None else groups
        rows = self._file.read_row_groups(list(groups), list(columns), use_threads=use_threads)
        for name in ACCOUNT_KEY:
            # A page's header, which holds the number of ids, has no checksum.
            for chunk in rows[name].chunks if name in columns else ():
                if len(chunk) and chunk.indices.to_numpy().max() >= len(chunk.dictionary):
                    raise OtherFileError(f"its column {name} refers to ids that it doesn't have")
        return rows.replace_schema_metadata()

    def rows(
        self,
        predicate: Predicate,
        columns: Sequence[str] = COLUMNS,
        *,
        groups: Sequence[int] | None = None,
        at_once: int = _GROUPS,
        use_threads: bool = True,
    ) -> Iterator[pa.Table]:
        """Yield the chosen rows in the file's order, some row groups at a time.

        Parameters
        ----------
        predicate, columns
            Which rows, and which columns of them.
        groups
            The row groups to read; by default those that may have chosen rows.
        at_once
            Number of row groups in memory.
        use_threads
            Whether to read columns side by side.
        """
        groups = self.row_groups(predicate) if groups is None else groups
        needed = [name for name in COLUMNS if name in {*columns, *predicate.columns}]
        for begin in range(0, len(groups), at_once):
            rows = self.read(groups[begin : begin + at_once], needed, use_threads=use_threads)
            yield predicate.select(rows).select(list(columns))

    def matching(self, groups: Sequence[int], predicate: Predicate) -> list[int]:
        """Return the row groups that have a row with chosen ids; read only the id columns.

        This pays where statistics exclude little, as for a rare type of account.
        """
        rows = self.read(groups, list(predicate.allowed), use_threads=True)
        ends = np.cumsum([self.footer.metadata.row_group(number).num_rows for number in groups])
        masks = [mask_of(rows[name], values) for name, values in predicate.allowed.items()]
        counts = np.append(0, np.cumsum(np.logical_and.reduce(masks)))[np.append(0, ends)]
        return [number for number, count in zip(groups, np.diff(counts), strict=True) if count]

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)


def mask_of(column: pa.ChunkedArray, values: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the ids that are among the values."""
    wanted = pa.array(values, pa.string())
    masks = [
        pc.is_in(chunk.dictionary, wanted).to_numpy(zero_copy_only=False)[chunk.indices.to_numpy()]
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, np.bool_), *masks])
