"""Read and write tables as Parquet with a note, and network limits as JSON.

This module reads and writes every Parquet file except an archive's files of rows: see
`archive.datafile`. The note describes the table: it is JSON, under one key of the
file's metadata. pandas is imported only where a table is built, as a download doesn't need it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter

from balance_analysis.errors import ArchiveError, check_frame, check_type, logger
from balance_analysis.files.atomic import DAMAGE_ERRORS, PathLike, archive_around, replacing
from balance_analysis.table import known, schema
from balance_analysis.table.names import AssetsLike, LabelsLike, note_names, read_names

if TYPE_CHECKING:
    import pandas as pd

METADATA_KEY: Final = b"balance_analysis"
FORMAT_VERSION: Final = 1


def make_note(content: dict[str, Any]) -> dict[bytes, str]:
    """Return metadata for a file: a note under one key, with a digest if it describes a load."""
    note = {"format_version": FORMAT_VERSION, **content}
    signed = {**note, "digest": _digest(note)} if "load" in note else note
    return {METADATA_KEY: json.dumps(signed, sort_keys=True)}


def _digest(note: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()


def read_note(file: ParquetFile) -> dict[str, Any]:
    """Return the note in a file's metadata, or the attrs that pandas wrote as its `load`.

    Raises
    ------
    ValueError
        If the note isn't the one that was written.
    """
    metadata = file.metadata.metadata or {}
    if METADATA_KEY in metadata:
        note: Any = json.loads(metadata[METADATA_KEY])
        if not isinstance(note, dict) or note.pop("digest", None) not in {None, _digest(note)}:
            raise ValueError("its note isn't the one that was written")
        return note
    try:
        return {"load": json.loads(metadata[b"PANDAS_ATTRS"])[schema.ATTRS_KEY]}
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}


def open_parquet(source: Path | BinaryIO | bytes) -> ParquetFile:
    """Open a file, or its content, for reading; pages with checksums are checked.

    Damaged files raise one of `files.atomic.DAMAGE_ERRORS`.
    """
    stream = pa.BufferReader(source) if isinstance(source, bytes) else source
    return ParquetFile(stream, page_checksum_verification=True)


def parquet_writer(sink: Path | BinaryIO, schema: pa.Schema) -> ParquetWriter:
    """Return a writer of tables with one schema to one file."""
    return ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)


def write_rows(rows: pa.Table, sink: Path | BinaryIO) -> None:
    """Write a table to a file, with its schema's metadata."""
    with parquet_writer(sink, rows.schema) as writer:
        writer.write_table(rows)


def write_parquet(table: pd.DataFrame, path: PathLike) -> None:
    """Write a table to one Parquet file with every digit.

    Parameters
    ----------
    table
        A table with rows in any order; they are sorted by account and time.
    path
        The file; an existing one is replaced as a whole.

    Raises
    ------
    ValueError, TypeError
        If it isn't a table, has other columns (`write_table` writes these too), or the file would
        lie in an archive.
    OSError
        If the file can't be written.
    """
    from balance_analysis.table.frame import frame_of, to_arrow  # noqa: PLC0415 - it imports pandas

    check_frame(table)
    if others := [str(name) for name in table if name not in schema.COLUMNS]:
        raise ValueError(
            f"write_parquet writes only a table's own columns, and this one also has "
            f"{', '.join(others)}; write_table writes all of them"
        )
    rows = schema.canonical(to_arrow(table))
    ordered, metadata = frame_of(rows), table.attrs.get(schema.ATTRS_KEY)
    ordered.attrs = table.attrs
    if known.notes_of(ordered, is_sorted=True).evidence is None:
        metadata = known.without_evidence(metadata)
    rows = rows.replace_schema_metadata(make_note({"load": metadata}))
    with replacing(path) as temporary:
        write_rows(rows, temporary)


def read_parquet(
    path: PathLike, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Read a table from a Parquet file.

    Parameters
    ----------
    path
        A file of `write_parquet`, or any Parquet file with a table's columns: ids as strings or
        dictionaries, timestamps in any unit that fits microseconds (without a zone they are UTC),
        balances as decimals without fraction or as integers. Other columns are dropped. Or a folder
        of such files, as `over_accounts` writes it: their known intervals are combined as by
        `pd.concat`. A part of an archive is read with a warning.
    assets
        Symbols and decimals of assets, as for `read_assets`; they are added to the file's.
    labels
        Your own names, as for `read_labels`; they are added to the file's.

    Returns
    -------
    pandas.DataFrame
        The table, sorted by account and time whatever the file's order. It has the rows and the
        evidence that were written; categories that no row uses are dropped.
        `attrs["balance_analysis"]` has the assets and labels and, if the file has it, the
        description of the load.

    Raises
    ------
    ArchiveError
        If the file isn't Parquet, or isn't a table, or the folder has lost a file.
    OSError
        If the file can't be opened.
    """
    from balance_analysis.table.frame import to_frame  # noqa: PLC0415 - it imports pandas

    names = read_names(assets, labels)
    check_type(path, (str, os.PathLike), "the path of a file")
    if (archive := archive_around(path)) is not None:
        logger.warning(
            "%s is a part of an archive, and only the archive knows where rows are missing: read "
            "ba.Archive(%r).read(start=..., end=..., opening=True)",
            os.fspath(path),
            os.fspath(archive),
        )
    parts = [Path(path)]
    if parts[0].is_dir():
        parts = sorted(parts[0].glob("*.parquet"))
        if not parts:
            fault = "is a folder without Parquet files; ba.Archive(...).read() reads an archive"
            raise IsADirectoryError(errno.EISDIR, fault, os.fspath(path))
        count = re.search(r"-of-(\d+)\.", parts[0].name)
        if count and int(count[1]) != len(parts):
            raise ArchiveError(f"{path} has {len(parts)} of {int(count[1])} files; write it again")
    read = [_read_part(part) for part in parts]
    tables: list[pd.DataFrame] = []
    for rows, load in read:
        table, metadata = to_frame(rows), note_names(load, names)
        if metadata:
            table.attrs[schema.ATTRS_KEY] = metadata
        if known.ROWS_KEY not in metadata:
            known.note_rows(table)
        tables.append(table)
    if len(tables) == 1:
        return tables[0]
    whole = to_frame(pa.concat_tables([rows for rows, _ in read]))
    known.merge_notes(whole, tables)
    return whole


def _read_part(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return a file's rows and how they were loaded, without evidence if it has lost rows."""
    with path.open("rb") as source:
        try:
            file = open_parquet(source)
            load: Any = read_note(file).get("load")
            load = load if isinstance(load, dict) else {}
            if known.noted_rows(load) != file.metadata.num_rows:
                load = known.without_evidence(load)
            return _read_rows(file), load
        except DAMAGE_ERRORS as error:
            fault = f"is not a Parquet file of balance changes, or is damaged: {error}"
            raise ArchiveError(f"{path} {fault}") from error


def _read_rows(file: ParquetFile) -> pa.Table:
    """Return a file's rows in a table's schema; ValueError if it isn't a table."""
    if missing := sorted(set(schema.COLUMNS) - set(file.schema_arrow.names)):
        raise ValueError(f"it has no column {', '.join(missing)}")
    rows = file.read([*schema.COLUMNS])
    kind = rows.schema.field("balance").type
    if not (pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)):
        raise ValueError(
            f"its column balance is {kind}, which may have lost digits; it must be "
            "decimal128(38, 0) or whole numbers"
        )
    if incomplete := [name for name in schema.COLUMNS if rows[name].null_count]:
        raise ValueError(f"its column {incomplete[0]} has missing values")
    ids = [rows[name].cast(pa.string()).dictionary_encode() for name in schema.ACCOUNT_KEY]
    others = [rows[x].cast(schema.ARROW_SCHEMA.field(x).type) for x in schema.COLUMNS[len(ids) :]]
    return pa.table([*ids, *others], schema=schema.ARROW_SCHEMA)


def write_network_limits(limits: schema.NetworkLimits, path: PathLike) -> None:
    """Write a snapshot of the network limits as JSON.

    Parameters
    ----------
    limits
        The snapshot.
    path
        The file; an existing one is replaced as a whole. It has the fields of `NetworkLimits` under
        their names: moments as ISO 8601 in UTC, with nanoseconds if need be, or `null` if unknown.

    Raises
    ------
    ValueError
        If the file would lie in an archive.
    OSError
        If it can't be written.
    """
    check_type(limits, schema.NetworkLimits, "a NetworkLimits", "load_network_limits returns one")
    with replacing(path) as temporary:
        temporary.write_text(limits.to_json() + "\n", encoding="utf-8")


def read_network_limits(path: PathLike) -> schema.NetworkLimits:
    """Read a snapshot of the network limits.

    Returns
    -------
    NetworkLimits
        Equal to the limits that `write_network_limits` wrote.

    Raises
    ------
    ArchiveError
        If the file isn't such a snapshot.
    OSError
        If the file can't be opened.
    """
    check_type(path, (str, os.PathLike), "the path of a file")
    from pandas import Timestamp  # noqa: PLC0415 - slow to import

    text = Path(path).read_bytes()
    try:
        content = json.loads(text)
        for name in (*schema.LIMIT_MOMENTS, "fetched_at"):
            content[name] = None if content[name] is None else Timestamp(content[name])
        return schema.NetworkLimits(**content)
    except DAMAGE_ERRORS as error:
        raise ArchiveError(
            f"{os.fspath(path)} is not a snapshot of network limits: {error}"
        ) from error
