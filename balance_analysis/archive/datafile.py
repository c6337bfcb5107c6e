"""The content of an archive's Parquet files: the same rows give the same bytes.

Rows stand by party first, so that one party's history is read without reading the rest: a row group
has few parties, and its statistics tell which. Timestamps and balances are plain: every engine
reads them so, and as blocks' times come again and again, compression makes less of them than any
encoding of differences.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from balance_analysis.archive.coverage import FileNote
from balance_analysis.files.atomic import make_note
from balance_analysis.rows import account_numbers, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from balance_analysis.spans import Span

    Allowed = Mapping[str, Sequence[str]]

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
ROW_GROUP: Final = 1 << 14

_TAIL: Final = 1 << 16
"""Bytes that are read at once of a file's end, where the footer is."""

_END: Final = 8
"""Bytes of a footer's length and of the magic behind it."""

_SORTING: Final = [pq.SortingColumn(ARROW_SCHEMA.get_field_index(name)) for name in FILE_ORDER]


def encode_rows(rows: pa.Table) -> tuple[bytes, FileNote]:
    """Return rows as the content of a file, and what is noted of it.

    Parameters
    ----------
    rows
        `ARROW_SCHEMA`, in any order, each account and timestamp once; at least one row.
    """
    ordered = _in_file_order(canonical(rows))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        ARROW_SCHEMA.with_metadata(make_note({"kind": "balance changes"})),
        compression="zstd",
        compression_level=6,
        use_dictionary=list(ACCOUNT_KEY),
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=_SORTING,
    ) as writer:
        for start in range(0, ordered.num_rows, ROW_GROUP):
            # With the ids of this row group only, or each had those of the whole file.
            writer.write_table(canonical(ordered.slice(start, ROW_GROUP), sort=False))
    content = sink.getvalue().to_pybytes()
    times = ordered["timestamp"].cast(pa.int64())
    first, last = pc.min(times).as_py(), pc.max(times).as_py()
    digest = hashlib.sha256(content).hexdigest()
    footer = hashlib.sha256(read_footer(pa.BufferReader(content))).hexdigest()
    return content, FileNote(ordered.num_rows, len(content), digest, first, last, footer)


def _in_file_order(rows: pa.Table) -> pa.Table:
    """Return canonical rows in the order in which a file holds them."""
    ids = {name: rows[name].chunk(0) for name in ACCOUNT_KEY}
    names = FILE_ORDER[: len(ACCOUNT_KEY)]
    codes: list[NDArray[np.integer[Any]]] = [ids[name].indices.to_numpy() for name in names]
    keys = account_numbers(codes, [len(ids[name].dictionary) for name in names])
    # The rows are in time order within an account, which a stable sort keeps.
    return rows.take(pa.array(np.argsort(keys, kind="stable")))


class OtherFileError(OSError):
    """A file is not what is noted of it."""


def read_footer(source: pa.NativeFile) -> bytes:
    """Return the end of a Parquet file: its metadata, their length and the magic.

    Raises
    ------
    OtherFileError
        If the file is too short to have one.
    """
    size = source.size()
    tail = source.read_at(min(size, _TAIL), max(size - _TAIL, 0))
    length = int.from_bytes(tail[-_END:-4], "little") + _END
    if length > size:
        raise OtherFileError("it has no footer")
    if length > len(tail):
        tail = source.read_at(length, size - length)
    return bytes(tail[-length:])


def open_rows(
    source: pa.NativeFile,
    notes: Iterable[FileNote],
    known: Callable[[str], pq.FileMetaData | None] = lambda _: None,
) -> tuple[pq.ParquetFile, str]:
    """Open a file of rows, whose footer must be that of one of the notes.

    What is read of it then is checked page by page.

    Parameters
    ----------
    source, notes
        The file, and what it may be.
    known
        Returns what a footer of some digest tells, where it has been read before.

    Returns
    -------
    tuple
        The file, and the digest of its footer.

    Raises
    ------
    OtherFileError, pyarrow.ArrowException
        If it is another file.
    """
    size, footer, wrong = source.size(), read_footer(source), "it is not noted"
    digest = hashlib.sha256(footer).hexdigest()
    for note in notes:
        if size != note.size:
            wrong = f"it has {size} bytes, not {note.size}"
        elif note.footer not in (digest, None):
            wrong = "it has another footer than was written"
        else:
            metadata = known(digest) or pq.read_metadata(pa.BufferReader(footer))
            found = None if note.footer else wrong_schema(metadata.schema.to_arrow_schema())
            if metadata.num_rows != note.rows:
                found = f"it has {metadata.num_rows} rows, not {note.rows}"
            if found is None:
                file = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)
                return file, digest
            wrong = found
    raise OtherFileError(wrong)


def wrong_schema(schema: pa.Schema) -> str | None:
    """Return how a file has other columns than a table."""
    found = schema.remove_metadata()
    if found.equals(ARROW_SCHEMA):
        return None
    if found.names != ARROW_SCHEMA.names:
        return f"has the columns {', '.join(found.names)}, not {', '.join(ARROW_SCHEMA.names)}"
    pairs = zip(found, ARROW_SCHEMA, strict=True)
    column, wanted = next(pair for pair in pairs if not pair[0].equals(pair[1]))
    return f"its column {column.name} is {_type_text(column)}, not {_type_text(wanted)}"


def _type_text(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' without missing values'}"


def read_rows(
    file: pq.ParquetFile,
    *,
    start: int,
    end: int,
    allowed: Allowed,
    columns: Sequence[str] = COLUMNS,
) -> Iterator[pa.Table]:
    """Yield the rows of a file that are asked for, of each row group that may have some.

    Parameters
    ----------
    file
        A file of `encode_rows`.
    start, end
        Half-open, microseconds.
    allowed
        The values that are asked for of some columns of ids.
    columns
        Which columns to return.
    """
    bounding = {*allowed, "timestamp"}
    needed = [name for name in COLUMNS if name in {*columns, *bounding}]
    for number in range(file.num_row_groups):
        bounds = iter_bounds(file.metadata.row_group(number), bounding)
        if may_have(bounds, (start, end), allowed):
            rows = read_groups(file, [number], needed, use_threads=True)
            mask = mask_of(rows, allowed) & is_within(rows, (start, end))
            yield rows.filter(pa.array(mask)).select(list(columns))


def read_groups(
    file: pq.ParquetFile,
    numbers: Sequence[int],
    columns: Sequence[str] = COLUMNS,
    *,
    use_threads: bool = False,
) -> pa.Table:
    """Return row groups of a file.

    Raises
    ------
    OtherFileError, pyarrow.ArrowException, OSError
        If they are damaged.
    """
    rows = file.read_row_groups(numbers, list(columns), use_threads=use_threads)
    for name in ACCOUNT_KEY:
        # The head of a page, which has no checksum, tells how many ids there are.
        for chunk in rows[name].chunks if name in columns else ():
            if len(chunk) and chunk.indices.to_numpy().max() >= len(chunk.dictionary):
                raise OtherFileError(f"its column {name} lacks ids")
    return rows


def iter_bounds(
    group: pq.RowGroupMetaData, names: Collection[str]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the least and greatest value of some columns of a row group, where it tells them."""
    for place, name in enumerate(COLUMNS):
        if name not in names:
            continue
        found = group.column(place).statistics
        if found is not None and found.has_min_max:
            low, high = found.min, found.max
            if name == "timestamp":
                low, high = to_microseconds(low), to_microseconds(high)
            yield name, (low, high)


def may_have(bounds: Iterable[tuple[str, tuple[Any, Any]]], span: Span, allowed: Allowed) -> bool:
    """Whether a row group of such bounds can have a row that is asked for."""
    for name, (low, high) in bounds:
        if name == "timestamp":
            if high < span[0] or low >= span[1]:
                return False
        elif name in allowed and not any(low <= value <= high for value in allowed[name]):
            return False
    return True


def mask_of(rows: pa.Table, allowed: Allowed) -> NDArray[np.bool_]:
    """Return which rows have the ids that are asked for."""
    mask = np.ones(rows.num_rows, np.bool_)
    for name, values in allowed.items():
        wanted = pa.array(values, pa.string())
        parts = [
            pc.is_in(chunk.dictionary, wanted).to_numpy(zero_copy_only=False)[
                chunk.indices.to_numpy()
            ]
            for chunk in rows[name].chunks
        ]
        mask &= np.concatenate([np.zeros(0, np.bool_), *parts])
    return mask


def is_within(rows: pa.Table, span: Span) -> NDArray[np.bool_]:
    """Return which rows are of a span of time."""
    times = times_of(rows)
    return (times >= span[0]) & (times < span[1])


def times_of(rows: pa.Table) -> NDArray[np.int64]:
    """Return the timestamps of rows, microseconds."""
    times: NDArray[np.int64] = rows["timestamp"].cast(pa.int64()).to_numpy()
    return times
