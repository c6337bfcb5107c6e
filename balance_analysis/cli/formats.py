"""Rows on stdout or in a file, as CSV, JSON or Parquet: every column and digit, nothing for NA."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, BinaryIO, Final

from balance_analysis.cli.options import ExactFormat, TableFormat
from balance_analysis.cli.terminal import echo
from balance_analysis.files.atomic import check_output

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

_MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"
_SPECIAL: Final = re.compile(r'[",\r\n]')
_RUN: Final = r"^([=+\-@\t\r\n])"
"""What a spreadsheet takes as the beginning of a formula, or skips before one."""


def choose_format(
    form: TableFormat | ExactFormat | None,
    output: Path | None,
    *,
    source: str,
    otherwise: TableFormat,
) -> TableFormat:
    """Return how rows are to be printed or written, checked before any work.

    Raises
    ------
    ValueError
        If neither the format nor the file's name tells, or they don't go together, or if the file
        is what is read, or lies in an archive.
    OSError
        If the file can't be written there.
    """
    if output is None:
        if form == TableFormat.parquet.value:
            raise ValueError("Parquet is not for a terminal; name a file with -o FILE.parquet")
        return otherwise if form is None else TableFormat(form.value)
    ending = output.suffix.removeprefix(".").lower()
    if form is None and ending not in set(ExactFormat):
        raise ValueError(f"{output}: name a .csv, .json or .parquet file, or give --format")
    if form == TableFormat.table.value:
        raise ValueError("a table is for the terminal; a file takes --format csv, json or parquet")
    if form is not None and ending in set(ExactFormat) and ending != form.value:
        raise ValueError(f"{output}: name a .{form.value} file, or give --format {ending}")
    check_output(output, inputs=[source])
    return TableFormat(ending if form is None else form.value)


def write_exact(rows: pd.DataFrame, form: TableFormat, output: Path | None) -> None:
    """Write rows to stdout, or to a file that appears whole or not at all."""
    write = {
        TableFormat.csv: _write_csv,
        TableFormat.json: _write_json,
        TableFormat.parquet: _write_parquet,
    }[form]
    if output is None and sys.stdout.isatty():
        held = io.BytesIO()
        write(rows, held)
        echo(held.getvalue().decode(), nl=False)
        return
    if output is None:
        sys.stdout.flush()
        write(rows, sys.stdout.buffer)
        return
    from balance_analysis.files.atomic import replacing

    with replacing(output) as temporary, temporary.open("wb") as file:
        write(rows, file)


def one_header(wide: pd.DataFrame) -> pd.DataFrame:
    """Return a wide series with one name a column: its account's ids, joined by slashes.

    Raises
    ------
    ValueError
        If two accounts would have one name.
    """
    names = ["/".join(ids) for ids in wide.columns]
    if len({*names, "timestamp"}) <= len(names):
        raise ValueError("ids with slashes give two columns one name; take --layout long")
    return wide.set_axis(names, axis="columns").reset_index()


def _write_csv(rows: pd.DataFrame, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    arrow = _to_arrow(rows)
    for place, field in enumerate(arrow.schema):
        if pa.types.is_timestamp(field.type):
            arrow = arrow.set_column(place, field.name, pc.strftime(arrow[field.name], _MOMENT))
    texts = [*arrow.column_names]
    for name in rows.select_dtypes("category"):
        ids = rows[name].cat.categories
        texts.extend(ids)
        if any(re.match(_RUN, each) for each in ids):
            place = arrow.column_names.index(name)
            arrow = arrow.set_column(place, name, _as_text(arrow[name].cast(pa.string())))
    arrow = arrow.rename_columns(_as_text(pa.array(arrow.column_names)).to_pylist())
    quoting = "needed" if any(map(_SPECIAL.search, texts)) else "none"
    csv.write_csv(arrow, file, csv.WriteOptions(quoting_style=quoting, quoting_header=quoting))


def _as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return text with an apostrophe before what a spreadsheet would run."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, _RUN, r"'\1")


def _write_json(rows: pd.DataFrame, file: BinaryIO) -> None:
    """Write JSON; amounts are text in it, since JSON's numbers are floats."""
    content = [
        {name: exact(value) for name, value in row.items()} for row in rows.to_dict("records")
    ]
    file.write(f"{json.dumps(content, indent=2)}\n".encode())


def exact(value: object) -> object:
    """Return a cell as JSON has it, every digit kept."""
    if isinstance(value, dt.datetime):
        return None if value != value else value.isoformat()  # noqa: PLR0124 - NaT differs from itself
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return None if value != value else value  # noqa: PLR0124 - NaN differs from itself
    return value if isinstance(value, int | str) else None


def _write_parquet(rows: pd.DataFrame, file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_to_arrow(rows), file, compression="zstd")


def _to_arrow(rows: pd.DataFrame) -> pa.Table:
    """Return rows as plain Arrow, ids as in an archive."""
    import pyarrow as pa

    from balance_analysis.schema import ID_TYPE

    arrow = pa.Table.from_pandas(rows, preserve_index=False)
    fields = [
        field.with_type(ID_TYPE) if pa.types.is_dictionary(field.type) else field
        for field in arrow.schema
    ]
    return arrow.cast(pa.schema(fields))
