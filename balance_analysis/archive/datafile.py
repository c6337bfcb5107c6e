"""Encode and read an archive's Parquet files; the same rows give the same bytes.

Rows are sorted by party first, so that one party's history is read without the rest: a row group
has few parties, and its statistics name the first and the last. An account's rows are together, in
time order, so an account, or a range of accounts, is one slice of rows. Timestamps and balances use
plain encoding, which every engine reads. Blocks' times repeat, so compression makes them smaller
than any encoding of differences.
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
from balance_analysis.table import schema
from balance_analysis.table.moments import Span, to_microseconds

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
FILE_KEY: Final = FILE_ORDER[: len(schema.ACCOUNT_KEY)]

Key = tuple[str, ...]
"""An account's ids in the order of files, or the first few of them."""

NO_ROWS: Final = schema.ARROW_SCHEMA.empty_table()

_BUFFER_ROWS: Final = 1 << 20
"""Number of last rows to buffer before they are merged; a larger result buffers more."""


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
        texts = [f"{word} {' '.join(map(repr, key))}" for word, key in bounds.items() if key]
        return f"accounts {' '.join(texts)}" if texts else "all accounts"

    def overlaps(self, first: Key, last: Key) -> bool:
        """Return whether the accounts from `first` to `last` overlap this range."""
        return last >= self.low and (self.high is None or first < self.high)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return these accounts' rows, given rows in a file's order."""
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
    """Return numbers that sort canonical rows by account, by default as in files."""
    ids = [rows[name].chunk(0) for name in names]
    codes = [column.indices.to_numpy() for column in ids]
    return schema.account_numbers(codes, [len(column.dictionary) for column in ids])


def times_of(rows: pa.Table) -> NDArray[np.int64]:
    """Return the rows' timestamps (in microseconds)."""
    times: NDArray[np.int64] = rows["timestamp"].cast(pa.int64()).to_numpy()
    return times


def last_rows(rows: pa.Table) -> pa.Table:
    """Return each account's last row, given rows in a file's order that have at least the ids."""
    rows = rows.unify_dictionaries()
    heads = schema.account_heads(rows)
    return rows.take(pa.array(np.append(heads[1:], rows.num_rows)[: len(heads)] - 1))


def merge_last_rows(parts: Iterable[pa.Table], columns: Sequence[str] = schema.COLUMNS) -> pa.Table:
    """Return each account's last row, given results of `last_rows` in time order.

    The rows are sorted as in a file.
    """
    total, buffer, size = NO_ROWS.select(columns), [], 0
    for part in parts:
        buffer.append(part)
        size += part.num_rows
        if size > max(_BUFFER_ROWS, total.num_rows):
            total, buffer, size = _merge([total, *buffer]), [], 0
    return _merge([total, *buffer])


def _merge(parts: Sequence[pa.Table]) -> pa.Table:
    parts = [part for part in parts if part.num_rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_tables(parts)
    codes, ids = zip(*(schema.sorted_codes(rows[name]) for name in FILE_KEY), strict=True)
    numbers = schema.account_numbers(codes, [*map(len, ids)])
    order = np.argsort(numbers, kind="stable")
    tails = order[np.flatnonzero(np.diff(numbers[order], append=-1))]
    columns = {name: rows[name] for name in rows.column_names}
    for name, code, values in zip(FILE_KEY, codes, ids, strict=True):
        columns[name] = pa.chunked_array([pa.DictionaryArray.from_arrays(code, values)])
    return pa.table(columns, schema=rows.schema).take(pa.array(tails))


ROW_GROUP: Final = 1 << 13

BEYOND: Final = chr(sys.maxunicode)
"""A text that sorts after every id."""

_GROUPS: Final = 16
"""Row groups to read at once; more don't fit into a processor's cache."""

_GROUPS_OF_IDS: Final = 64
"""Row groups whose ids alone to read at once."""

_TAIL: Final = 1 << 16
"""Bytes to read first from a file's end, where the footer is."""

_LEVELS: Final = dict.fromkeys(["party_id", "timestamp", "balance"], 6)
"""Compression level by column. A row group has few distinct other ids, which would save little."""

_SORTING: Final = [
    pq.SortingColumn(schema.ARROW_SCHEMA.get_field_index(name)) for name in FILE_ORDER
]


def encode_rows(rows: pa.Table) -> tuple[bytes, FileEntry]:
    """Return a file's content with these rows, and its entry for the manifest.

    Parameters
    ----------
    rows
        `ARROW_SCHEMA`, in any order, each account and timestamp once; at least one row.
    """
    ordered = in_file_order(rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema.ARROW_SCHEMA.with_metadata(make_note({"kind": "balance changes"})),
        compression={name: "zstd" if name in _LEVELS else "none" for name in schema.COLUMNS},
        compression_level=_LEVELS,
        use_dictionary=schema.ACCOUNT_KEY,
        write_statistics=list(FILE_ORDER),
        write_page_checksum=True,
        sorting_columns=_SORTING,
    ) as writer:
        for start in range(0, ordered.num_rows, ROW_GROUP):
            # `canonical` drops other row groups' ids, which each dictionary would repeat.
            writer.write_table(schema.canonical(ordered.slice(start, ROW_GROUP), sort=False))
    content = sink.getvalue().to_pybytes()
    return content, entry_of(content, ordered["timestamp"])


def entry_of(content: bytes, times: pa.ChunkedArray) -> FileEntry:
    """Return the manifest's entry for a Parquet file, given its rows' times, at least one."""
    digest, ends = hashlib.sha256(content).hexdigest(), pc.min_max(times.cast(pa.int64()))
    footer = Footer(read_footer(pa.BufferReader(content))).digest
    first, last = (int(ends[name].as_py()) for name in ("min", "max"))
    return FileEntry(len(times), len(content), digest, first, last, footer)


def in_file_order(rows: pa.Table) -> pa.Table:
    """Return rows of `ARROW_SCHEMA` in canonical form, sorted as in a file."""
    ordered = schema.canonical(rows)
    # An account's rows are in time order, which a stable sort keeps.
    return ordered.take(pa.array(np.argsort(numbers_of(ordered), kind="stable")))


def decode_rows(content: bytes) -> pa.Table:
    """Return the rows in a file's content, in its order.

    Raises
    ------
    OtherFileError, OSError, pyarrow.ArrowException
        If the file is damaged, or its columns aren't a table's.
    """
    source = pa.BufferReader(content)
    footer = Footer(read_footer(source))
    _check_schema(footer.metadata.schema.to_arrow_schema())
    return DataFile(source, footer).read(use_threads=True)


class OtherFileError(OSError):
    """A file differs from its manifest entry."""


def read_footer(source: pa.NativeFile) -> bytes:
    """Return a Parquet file's footer: its metadata, then 8 bytes with their length and the magic.

    Raises
    ------
    OtherFileError
        If the file is too short to have a footer.
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
        self.bounds: Callable[[int, str], tuple[Any, Any] | None] = cache(self._bounds)
        """Like `_bounds`, but computed only once for a row group and the name of a column."""

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        """The metadata, parsed by pyarrow."""
        return pq.read_metadata(pa.BufferReader(self._content))

    def _bounds(self, group: int, column: str) -> tuple[Any, Any] | None:
        """Return a column's least and greatest value in a row group; `None` if not stored."""
        statistics = self.metadata.row_group(group).column(schema.COLUMNS.index(column)).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        if column == "timestamp":
            return to_microseconds(statistics.min), to_microseconds(statistics.max)
        return statistics.min, statistics.max

    def owners(self, group: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return bounds of a row group's parties and assets: see `Scan.groups`."""
        bounds = [self.bounds(group, name) for name in FILE_ORDER[:2]]
        (first, last), (low, high) = (bound or ("", BEYOND) for bound in bounds)
        return (first, low if first == last else ""), (last, high if first == last else BEYOND)

    def groups_of(self, parties: Sequence[str]) -> range:
        """Return the range of row groups that may have these parties; all if there are none."""
        groups = range(self.metadata.num_row_groups)
        bounds: Callable[[int, str], Any] = self.bounds
        try:
            begin = bisect_left(groups, min(parties), key=lambda at: bounds(at, FILE_ORDER[0])[1])
            end = bisect_right(groups, max(parties), key=lambda at: bounds(at, FILE_ORDER[0])[0])
        except (ValueError, TypeError):  # no parties, or one is too long to have stored bounds
            return groups
        return groups[begin:end]


_parsed = lru_cache(maxsize=256)(Footer)
"""Return a parsed footer, given its bytes (some 30 kB); the last ones are cached."""


def check_footer(source: pa.NativeFile, entries: Iterable[FileEntry]) -> Footer:
    """Return a file's footer, after checking that the file matches one of its manifest entries.

    Parameters
    ----------
    source, entries
        The file, and its entries.

    Raises
    ------
    OtherFileError, pyarrow.ArrowException
        If the file matches none of them.
    """
    size, footer, fault = source.size(), _parsed(read_footer(source)), "it isn't in the manifest"
    for entry in entries:
        if size != entry.size:
            fault = f"it has {size} bytes, not {entry.size}"
        elif entry.footer != footer.digest:
            fault = "its footer isn't the one that was written"
        elif footer.metadata.num_rows != entry.rows:
            fault = f"it has {footer.metadata.num_rows} rows, not {entry.rows}"
        else:
            return footer
    raise OtherFileError(fault)


def _check_schema(columns: pa.Schema) -> None:
    """Raise OtherFileError if a file's columns aren't those of a table."""
    names = ", ".join(columns.names), ", ".join(schema.ARROW_SCHEMA.names)
    if names[0] != names[1]:
        raise OtherFileError(f"it has the columns {names[0]}, not {names[1]}")
    for column, wanted in zip(columns, schema.ARROW_SCHEMA, strict=True):
        if column.type != wanted.type:
            raise OtherFileError(f"its column {column.name} is {column.type}, not {wanted.type}")
        if column.nullable != wanted.nullable:
            raise OtherFileError(f"its column {column.name} may have missing values")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A selection of rows in a file.

    Attributes
    ----------
    allowed
        The allowed values of some id columns.
    spans
        Disjoint spans of time (in microseconds); `None` for all time.
    key_range
        The range of accounts.
    """

    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spans: tuple[Span, ...] | None = None
    key_range: KeyRange = ALL

    @property
    def columns(self) -> set[str]:
        """The columns that the selection needs."""
        key = () if self.key_range == ALL else FILE_KEY
        return {*self.allowed, *key, *(() if self.spans is None else ("timestamp",))}

    def may_match(self, footer: Footer, group: int) -> bool:
        """Return whether a row group may have a selected row, by its statistics."""
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
        """Return the selected rows, given rows in a file's order."""
        rows = self.key_range.rows(rows)
        # Rows of few parties are a short slice, which makes the other columns' masks short too.
        for name in filter(self.allowed.__contains__, FILE_KEY):
            rows = _filtered(rows, mask_of(rows[name], self.allowed[name]))
        if self.spans is not None:
            times = times_of(rows)
            within = [(times >= start) & (times < end) for start, end in self.spans]
            rows = _filtered(rows, np.logical_or.reduce(within, axis=0))
        return rows


def _filtered(rows: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a mask, filtering only the slice that has them: filters are slow."""
    places = np.flatnonzero(mask)
    if len(places) == len(mask):
        return rows
    begin, end = (places[0], places[-1] + 1) if len(places) else (0, 0)
    return rows.slice(begin, end - begin).filter(pa.array(mask[begin:end]))


class DataFile:
    """The rows of an open file; each page is checked as it is read."""

    def __init__(self, source: pa.NativeFile, footer: Footer) -> None:
        self.footer = footer
        self._file = pq.ParquetFile(
            source, metadata=footer.metadata, page_checksum_verification=True
        )

    def row_groups(self, predicate: Predicate) -> list[int]:
        """Return the row groups that may have selected rows."""
        groups = self.footer.groups_of(predicate.allowed.get(FILE_ORDER[0], ()))
        return [number for number in groups if predicate.may_match(self.footer, number)]

    def read(
        self,
        groups: Sequence[int] | None = None,
        columns: Sequence[str] = schema.COLUMNS,
        *,
        use_threads: bool = False,
    ) -> pa.Table:
        """Return the rows of some row groups, by default of all.

        Raises
        ------
        OtherFileError, pyarrow.ArrowException, OSError
            If they are damaged.
        """
        groups = range(self.footer.metadata.num_row_groups) if groups is None else groups
        rows = self._file.read_row_groups(list(groups), list(columns), use_threads=use_threads)
        for name in schema.ACCOUNT_KEY:
            # A page's header, which holds the number of ids, has no checksum.
            for chunk in rows[name].chunks if name in columns else ():
                if len(chunk) and chunk.indices.to_numpy().max() >= len(chunk.dictionary):
                    raise OtherFileError(f"its column {name} refers to ids that it doesn't have")
        return rows.replace_schema_metadata()

    def rows(
        self,
        predicate: Predicate,
        columns: Sequence[str] = schema.COLUMNS,
        *,
        groups: Sequence[int] | None = None,
        at_once: int = _GROUPS,
        use_threads: bool = True,
    ) -> Iterator[pa.Table]:
        """Yield the selected rows in the file's order, some row groups at a time.

        Parameters
        ----------
        predicate, columns
            The rows and the columns to read.
        groups
            The row groups to read; by default those that may have selected rows.
        at_once
            Number of row groups in memory.
        use_threads
            Whether to read columns in parallel.
        """
        groups = self.row_groups(predicate) if groups is None else groups
        needed = [name for name in schema.COLUMNS if name in {*columns, *predicate.columns}]
        for begin in range(0, len(groups), at_once):
            rows = self.read(groups[begin : begin + at_once], needed, use_threads=use_threads)
            yield predicate.select(rows).select(list(columns))

    def matching(self, groups: Sequence[int], predicate: Predicate) -> list[int]:
        """Return the row groups that have a row with the selected ids; read only the id columns.

        This pays off where statistics exclude little, as for a rare account type.
        """
        rows = self.read(groups, list(predicate.allowed), use_threads=True)
        ends = np.cumsum([self.footer.metadata.row_group(number).num_rows for number in groups])
        masks = [mask_of(rows[name], values) for name, values in predicate.allowed.items()]
        counts = np.append(0, np.cumsum(np.logical_and.reduce(masks)))[np.append(0, ends)]
        return [number for number, count in zip(groups, np.diff(counts), strict=True) if count]

    def with_others(self, groups: Sequence[int], known: pa.Table) -> list[int]:
        """Return the row groups with the last row of an account not in `known`; read only ids."""
        others: list[int] = []
        for begin in range(0, len(groups), _GROUPS_OF_IDS):
            some = groups[begin : begin + _GROUPS_OF_IDS]
            rows = self.read(some, FILE_KEY)
            last = last_rows(rows.append_column("place", pa.array(np.arange(rows.num_rows))))
            both = pa.concat_tables([known.select(FILE_KEY), last.select(FILE_KEY)])
            codes, ids = zip(*(schema.sorted_codes(both[name]) for name in FILE_KEY), strict=True)
            numbers = schema.account_numbers(codes, [*map(len, ids)])
            is_other = ~np.isin(numbers[known.num_rows :], numbers[: known.num_rows])
            ends = np.cumsum([self.footer.metadata.row_group(number).num_rows for number in some])
            places = np.searchsorted(ends, last["place"].to_numpy()[is_other], side="right")
            others += [some[place] for place in np.unique(places)]
        return others

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)


def mask_of(column: pa.ChunkedArray, values: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the rows whose id is among the values."""
    wanted = pa.array(values, pa.string())
    masks = [
        pc.is_in(chunk.dictionary, wanted).to_numpy(zero_copy_only=False).take(chunk.indices)
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, np.bool_), *masks])
