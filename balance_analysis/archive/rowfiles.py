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
from balance_analysis.archive.writing import make_note
from balance_analysis.rows import account_numbers, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
ROW_GROUP: Final = 1 << 14

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
    return content, FileNote(
        ordered.num_rows, len(content), hashlib.sha256(content).hexdigest(), first, last
    )


def _in_file_order(rows: pa.Table) -> pa.Table:
    """Return canonical rows in the order in which a file holds them."""
    ids = {name: rows[name].chunk(0) for name in ACCOUNT_KEY}
    names = FILE_ORDER[: len(ACCOUNT_KEY)]
    codes: list[NDArray[np.integer[Any]]] = [ids[name].indices.to_numpy() for name in names]
    keys = account_numbers(codes, [len(ids[name].dictionary) for name in names])
    # The rows are in time order within an account, which a stable sort keeps.
    return rows.take(pa.array(np.argsort(keys, kind="stable")))


def read_rows(
    file: pq.ParquetFile,
    *,
    start: int,
    end: int,
    allowed: Mapping[str, Sequence[str]],
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
    needed = [name for name in COLUMNS if name in {*columns, *allowed, "timestamp"}]
    for number in range(file.num_row_groups):
        if not _may_have(file.metadata.row_group(number), start, end, allowed):
            continue
        rows = file.read_row_group(number, needed)
        times = rows["timestamp"].cast(pa.int64())
        mask = pc.and_(pc.greater_equal(times, start), pc.less(times, end))
        for name, values in allowed.items():
            mask = pc.and_(mask, _is_one_of(rows[name], values))
        yield rows.filter(mask).select(list(columns))


def _may_have(
    group: pq.RowGroupMetaData, start: int, end: int, allowed: Mapping[str, Sequence[str]]
) -> bool:
    """Whether a row group can have a row that is asked for, by its statistics."""
    for place in range(group.num_columns):
        column = group.column(place)
        found = column.statistics
        if found is None or not found.has_min_max:
            continue
        if column.path_in_schema == "timestamp":
            low, high = to_microseconds(found.min), to_microseconds(found.max)
            if high < start or low >= end:
                return False
        values = allowed.get(column.path_in_schema, ())
        if values and not any(found.min <= value <= found.max for value in values):
            return False
    return True


def _is_one_of(ids: pa.ChunkedArray, values: Sequence[str]) -> pa.ChunkedArray:
    wanted = pa.array(values, pa.string())
    masks = [
        pc.is_in(chunk.dictionary, wanted).take(chunk.indices)
        if pa.types.is_dictionary(chunk.type)
        else pc.is_in(chunk, wanted)
        for chunk in ids.chunks
    ]
    return pa.chunked_array(masks, pa.bool_())
