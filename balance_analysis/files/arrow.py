"""Arrow tables as Parquet, with a note in JSON that tells what they are.

Every Parquet file is read and written here, but those of an archive's rows: `archive.datafile`
knows how these stand. The note is under one key of a file's metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.schema import ATTRS_KEY

METADATA_KEY: Final = b"balance_analysis"
FORMAT_VERSION: Final = 1
PARTIAL: Final = "partial"
"""Where the note in a file says that it holds only a part of a load, and which."""


def make_note(content: dict[str, Any]) -> dict[bytes, str]:
    """Return what a file's metadata tells of it, as its one key and JSON."""
    return {METADATA_KEY: json.dumps({"format_version": FORMAT_VERSION, **content}, sort_keys=True)}


def read_note(file: pq.ParquetFile) -> dict[str, Any]:
    """Return what a file's metadata tells of it: ours, or as `load` the attrs that pandas wrote."""
    metadata = file.metadata.metadata or {}
    try:
        if METADATA_KEY in metadata:
            note = json.loads(metadata[METADATA_KEY])
        else:
            note = {"load": json.loads(metadata[b"PANDAS_ATTRS"])[ATTRS_KEY]}
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def open_parquet(source: Path | BinaryIO | bytes) -> pq.ParquetFile:
    """Open a file, or its content, for reading; pages that have checksums are checked.

    What damaged files raise is among `files.atomic.DAMAGES`.
    """
    where = pa.BufferReader(source) if isinstance(source, bytes) else source
    return pq.ParquetFile(where, page_checksum_verification=True)


def parquet_writer(
    sink: Path | BinaryIO | pa.NativeFile, schema: pa.Schema, **options: object
) -> pq.ParquetWriter:
    """Return what writes tables of one schema, one after the other; `options` are pyarrow's."""
    return pq.ParquetWriter(sink, schema, compression="zstd", **options)


def encode_parquet(rows: pa.Table, **options: object) -> bytes:
    """Return a table, with the metadata of its schema, as the content of a file."""
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, rows.schema, **options) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
