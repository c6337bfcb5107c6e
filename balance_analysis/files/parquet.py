"""Single files: a table as Parquet, the network limits as JSON."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from balance_analysis.assets import Assets, AssetsLike, assets_in, note_assets
from balance_analysis.errors import ArchiveError, check_type
from balance_analysis.files.arrow import (
    PARTIAL,
    make_note,
    open_parquet,
    parquet_writer,
    read_note,
)
from balance_analysis.files.atomic import DAMAGES, PathLike, replacing
from balance_analysis.frame import check_frame, to_arrow, to_frame
from balance_analysis.row_counts import ROWS_KEY, note_rows
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    COLUMNS,
    LIMIT_MOMENTS,
    NetworkLimits,
)


def write_parquet(table: pd.DataFrame, path: PathLike) -> None:
    """Write a table to one Parquet file, every digit kept.

    Parameters
    ----------
    table
        A table, rows in any order: they are written in the table's order.
    path
        The file; one that stands there is replaced, whole.

    Raises
    ------
    ValueError, TypeError
        If it is not a table, has columns besides a table's (`write_table` writes these too), or the
        file would lie in an archive.
    OSError
        If the file can't be written.
    """
    check_frame(table)
    if more := [str(name) for name in table if name not in COLUMNS]:
        raise ValueError(
            f"write_parquet writes a table's own columns, and this one has {', '.join(more)} "
            "besides; write_table writes all of them"
        )
    rows = canonical(to_arrow(table))
    rows = rows.replace_schema_metadata(make_note({"load": table.attrs.get(ATTRS_KEY)}))
    with replacing(path) as temporary, parquet_writer(temporary, rows.schema) as writer:
        writer.write_table(rows)


def read_parquet(path: PathLike, *, assets: AssetsLike | None = None) -> pd.DataFrame:
    """Read a table from a Parquet file.

    Parameters
    ----------
    path
        A file of `write_parquet`, or any Parquet file with a table's columns: ids as strings or
        dictionaries, timestamps in any unit that microseconds hold (without a zone they are UTC),
        balances as decimals without fraction or as integers. Other columns are left out.
    assets
        Symbols and decimals of assets, as for `read_assets`, beside those that the file tells.

    Returns
    -------
    pandas.DataFrame
        The table, in the table's order whatever the file's; equal to what was written.
        `attrs["balance_analysis"]` tells how it was loaded, where the file says so, and the assets.

    Raises
    ------
    ArchiveError
        If the file is not Parquet, or holds no table.
    OSError
        If the file can't be opened.
    """
    check_type(path, (str, os.PathLike), "the path of a file")
    if Path(path).is_dir():
        said = "is a folder; an archive is read with ba.Archive(...).read()"
        raise IsADirectoryError(errno.EISDIR, said, os.fspath(path))
    with Path(path).open("rb") as source:
        try:
            file = open_parquet(source)
        except DAMAGES as error:
            said = "is not a Parquet file of balance changes, or is damaged"
            raise ArchiveError(f"{os.fspath(path)} {said}") from error
        try:
            note = read_note(file)
            _check_whole(note, path)
            table = to_frame(_typed(_read_columns(file, path), path))
        except DAMAGES as error:
            raise ArchiveError(f"{os.fspath(path)} can't be read as a table: {error}") from error
    metadata = note_assets(note["load"] if isinstance(note.get("load"), dict) else {}, assets)
    if metadata:
        table.attrs[ATTRS_KEY] = metadata
    if ROWS_KEY not in metadata:
        note_rows(table)
    return table


def read_file_assets(path: PathLike) -> Assets:
    """Return the assets that a file of a table tells of; maybe none, as of any other file."""
    try:
        with Path(path).open("rb") as source:
            return assets_in(read_note(open_parquet(source)).get("load"))
    except DAMAGES:
        return Assets({})


def _check_whole(note: dict[str, Any], path: PathLike) -> None:
    if PARTIAL in note:
        raise ArchiveError(
            f"{os.fspath(path)} holds only a part of a load; finish it with `fetch --resume`"
        )


def _read_columns(file: ParquetFile, path: PathLike) -> pa.Table:
    missing = sorted(set(COLUMNS) - set(file.schema_arrow.names))
    if missing:
        raise ArchiveError(
            f"{os.fspath(path)} is no table of balance changes: it has no column "
            f"{', '.join(missing)}"
        )
    return file.read(list(COLUMNS))


def _typed(rows: pa.Table, path: PathLike) -> pa.Table:
    kind = rows.schema.field("balance").type
    if not (pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)):
        raise ArchiveError(
            f"{os.fspath(path)}: column balance is {kind}, which may have lost digits; "
            "it must be decimal128(38, 0) or whole numbers"
        )
    for name in COLUMNS:
        if rows[name].null_count:
            raise ArchiveError(f"{os.fspath(path)}: column {name} has missing values")
    ids = [rows[name].cast(pa.string()).dictionary_encode() for name in ACCOUNT_KEY]
    others = [rows[name].cast(ARROW_SCHEMA.field(name).type) for name in COLUMNS[len(ids) :]]
    return pa.table([*ids, *others], schema=ARROW_SCHEMA)


def write_network_limits(limits: NetworkLimits, path: PathLike) -> None:
    """Write a snapshot of the network limits as JSON.

    Parameters
    ----------
    limits
        The snapshot.
    path
        The file; one that stands there is replaced, whole. It holds the fields of `NetworkLimits`
        under their names, moments as ISO 8601 in UTC with nanoseconds, `null` where unknown.

    Raises
    ------
    ValueError
        If the file would lie in an archive.
    OSError
        If it can't be written.
    """
    check_type(limits, NetworkLimits, "a NetworkLimits", "load_network_limits returns one")
    with replacing(path) as temporary:
        temporary.write_text(limits.to_json() + "\n", encoding="utf-8")


def read_network_limits(path: PathLike) -> NetworkLimits:
    """Read a snapshot of the network limits.

    Returns
    -------
    NetworkLimits
        Equal to what `write_network_limits` was given.

    Raises
    ------
    ArchiveError
        If the file holds no such snapshot.
    OSError
        If the file can't be opened.
    """
    check_type(path, (str, os.PathLike), "the path of a file")
    text = Path(path).read_bytes()
    try:
        content = json.loads(text)
        for name in (*LIMIT_MOMENTS, "fetched_at"):
            content[name] = None if content[name] is None else pd.Timestamp(content[name])
        return NetworkLimits(**content)
    except DAMAGES as error:
        raise ArchiveError(
            f"{os.fspath(path)} is no snapshot of network limits: {error}"
        ) from error
