"""Results as files: Parquet, CSV, JSON and Excel, with every column, row and digit.

A frame becomes rows with one name a column; what each format can't hold as a number or a moment
stands in it as text.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, BinaryIO, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from balance_analysis.errors import check_type
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.frame import to_amounts, to_plain_arrow
from balance_analysis.labels import carried
from balance_analysis.naming import header_of, labelled
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY

EXCEL_ROWS: Final = 1_048_576
EXCEL_COLUMNS: Final = 16_384
_EXCEL_DIGITS: Final = 15
_EXCEL_TEXT: Final = 32_767
"""What a sheet of Excel holds, its header included, a number in it, and a cell."""

_GENERAL: Final = "General"
_GROUPED: Final = "#,##0"
_FRACTION: Final = "#,##0.00####"
_DAY: Final = "yyyy-mm-dd"
_SECOND: Final = "yyyy-mm-dd hh:mm:ss"
_NARROWEST: Final = {_FRACTION: 21, _DAY: 12, _SECOND: 20}
"""Characters of a column, at least: autofit knows no formats."""

_WIDEST: Final = 285
"""Pixels of a column, at most: ids are longer, and nobody reads them to the end."""

_THOUSAND: Final = 1000

_SPECIAL: Final = re.compile(r'[",\r\n]')
_RUN: Final = r"^([=+\-@\t\r\n])"
"""What a spreadsheet takes as the beginning of a formula, or skips before one."""


def write_table(frame: pd.DataFrame | pd.Series[Any], path: PathLike) -> None:
    """Write a table, or what a function made of one, to a file with every digit of it.

    Parameters
    ----------
    frame
        Any frame or series. An index that has a name, or is not of integers, becomes columns. The
        names of columns of several levels are joined by slashes; those of accounts and other
        holders, as a wide series has them, are what these are called, or short, such as
        `tUSD/general/c2071f..76b5`. A long one has the ids, and where it knows names the columns
        `symbol` and `label` in front, as of `labelled`; in Parquet the metadata tells the names.
    path
        A .parquet, .csv, .json or .xlsx file; one that stands there is replaced, whole.

        - .parquet: amounts are decimal128(38, 0), moments keep their time zone. A file with a
          table's columns is read by `read_parquet`, which knows what the table knew.
        - .csv: moments as ISO 8601. Text that a spreadsheet would run (it begins with =, +, -, @, a
          tab or a line break) has an apostrophe before it. Nothing stands where a value is unknown.
        - .json: a list of objects; amounts are text, as JSON's numbers are floats, moments are ISO
          8601, and what is unknown is null.
        - .xlsx (extra `excel`): one sheet, to be filtered, with thousands separators. Excel keeps
          15 digits and milliseconds: a column of amounts or moments that needs more is text, with
          all digits. For numbers to calculate with, make the frame with `units=`: whole units are
          floats. Excel has no time zones: moments are in UTC, which the header says. Text is never
          a formula.

        pandas rounds such digits to floats when it reads these files, unless it is told to keep the
        text: `pd.read_json(path, dtype={"balance": str})`, and so `read_csv` and `read_excel`.

    Raises
    ------
    ValueError
        If the name ends otherwise, two columns would have one name, whole numbers have more than 38
        digits, a sheet is too small for the rows, XlsxWriter is not installed, or the file would
        lie in an archive.
    TypeError
        If it is no frame.
    OSError
        If the file can't be written.

    Examples
    --------
    >>> import balance_analysis as ba
    >>> from balance_analysis.demo import sample_data
    >>> table = ba.read_parquet(sample_data() / "changes.parquet")
    >>> write_table(ba.balance_at(table, "2023-04-12"), getfixture("tmp_path") / "held.csv")
    """
    target = check_output(path, suffixes=[f".{form}" for form in WRITERS])
    write_as(frame, target.suffix[1:].lower(), target)


def write_as(frame: pd.DataFrame | pd.Series[Any], form: str, path: PathLike) -> None:
    """Write a frame in a format, whatever the file's name: see `write_table`."""
    check_installed(form)
    with replacing(path) as temporary, temporary.open("wb") as file:
        write_to(frame, form, file)


def write_to(frame: pd.DataFrame | pd.Series[Any], form: str, file: BinaryIO) -> None:
    """Write a frame in a format to what is open; the metadata of Parquet tells its names."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    check_type(frame, pd.DataFrame, "a frame or series of pandas")
    names = carried(frame.attrs.get(ATTRS_KEY))
    if names and form != "parquet" and {*ACCOUNT_KEY} & {*frame.columns}:
        frame = labelled(frame)
        for name in {"symbol", "label"} & {*frame} if form == "csv" else ():
            frame[name] = frame[name].map(_in_ascii)
    WRITERS[form](to_rows(frame), file)


def _in_ascii(name: str) -> str:
    """Return a name without our signs: spreadsheets take a CSV to be something else than UTF-8."""
    return name.replace("…", "..").replace(" · ", "/")


def check_installed(form: str) -> None:
    """Raise ValueError if a format needs what is not installed."""
    if form == "xlsx":
        try:
            importlib.import_module("xlsxwriter")
        except ModuleNotFoundError as error:
            raise ValueError(
                "an Excel file needs XlsxWriter: pip install 'balance-analysis[excel]'"
            ) from error


def to_rows(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as Arrow, its index as columns, each column with a name of its own.

    Raises
    ------
    ValueError, TypeError
        As `write_table`.
    """
    flat = frame.set_axis([*map(_in_ascii, header_of(frame))], axis="columns")
    names = flat.index.names
    if any(name is not None for name in names) or not pd.api.types.is_integer_dtype(flat.index):
        flat.index = flat.index.set_names(["index" if n is None else str(n) for n in names])
        index = flat.index.to_frame(index=False)
        flat = pd.concat([index, flat.reset_index(drop=True)], axis="columns")
    if not flat.columns.is_unique:
        twice = flat.columns[flat.columns.duplicated()][0]
        raise ValueError(f"two columns would be called {twice!r}; take the long layout, or rename")
    for name, column in flat.items():
        if column.dtype == object and pd.api.types.infer_dtype(column) == "integer":
            exact = pd.arrays.ArrowExtensionArray(to_amounts(column, may_lack=True))
            flat = flat.assign(**{str(name): exact})
    rows = to_plain_arrow(flat)
    metadata = frame.attrs.get(ATTRS_KEY)
    return rows.replace_schema_metadata(make_note({"load": metadata})) if metadata else rows


def _write_parquet(rows: pa.Table, file: BinaryIO) -> None:
    with parquet_writer(file, rows.schema) as writer:
        writer.write_table(rows)


def _write_csv(rows: pa.Table, file: BinaryIO) -> None:
    texts = [*rows.column_names]
    for place, field in enumerate(rows.schema):
        column = rows[field.name]
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, _iso(column))
        elif _is_text(field.type):
            distinct = _distinct(column)
            texts += distinct
            if any(re.match(_RUN, each) for each in distinct):
                rows = rows.set_column(place, field.name, _quoted(column.cast(pa.string())))
    rows = rows.rename_columns(_quoted(pa.array(rows.column_names, pa.string())).to_pylist())
    quoting = "needed" if any(map(_SPECIAL.search, texts)) else "none"
    if rows.num_columns == 1:  # of which a missing value would be a blank line, which readers skip
        filled = rows.column(0).cast(pa.string()).fill_null("")
        rows, quoting = pa.table([filled], names=rows.column_names), "all_valid"
    csv.write_csv(rows, file, csv.WriteOptions(quoting_style=quoting, quoting_header=quoting))


def _is_text(kind: Any) -> bool:  # noqa: ANN401 - a type of Arrow
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string())


def _distinct(column: pa.ChunkedArray) -> list[str]:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return [text for chunk in encoded.chunks for text in chunk.dictionary.to_pylist() if text]


def _quoted(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return text with an apostrophe before what a spreadsheet would run."""
    return pc.replace_substring_regex(column, _RUN, r"'\1")


def _iso(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as ISO 8601: Z in UTC, else the offset of their zone, if they have one."""
    zone = {"UTC": "Z", None: ""}.get(column.type.tz, "%Ez")
    return pc.strftime(column, f"%Y-%m-%dT%H:%M:%S{zone}")


def _write_json(rows: pa.Table, file: BinaryIO) -> None:
    content = [{name: _to_json(value) for name, value in row.items()} for row in rows.to_pylist()]
    file.write(f"{json.dumps(content, indent=2, default=str)}\n".encode())


def _to_json(value: Any) -> object:  # noqa: ANN401 - a cell of any column
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else _finite(value)


def _finite(value: object) -> object:
    """Return a value; of floats that are no numbers NaN as nothing, and infinity as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _write_excel(rows: pa.Table, file: BinaryIO) -> None:
    if rows.num_rows >= EXCEL_ROWS or rows.num_columns > EXCEL_COLUMNS:
        raise ValueError(
            f"a sheet of Excel has {EXCEL_ROWS - 1:,} rows below its header and {EXCEL_COLUMNS:,} "
            f"columns, not {rows.num_rows:,} and {rows.num_columns:,}: write .parquet or .csv"
        )
    xlsxwriter = importlib.import_module("xlsxwriter")
    content = io.BytesIO()  # as a zip can't be ended in order when its disk has failed
    with xlsxwriter.Workbook(content, {"in_memory": True}) as book:
        # The same rows give the same bytes.
        book.set_properties({"created": dt.datetime(1980, 1, 1)})  # noqa: DTZ001 - as Excel has it
        sheet, plain, bold = book.add_worksheet(), book.add_format(), book.add_format({"bold": 1})
        sheet.freeze_panes(1, 0)
        write = {
            **dict.fromkeys([dt.date, dt.datetime], sheet.write_datetime),
            **dict.fromkeys([int, float], sheet.write_number),
            bool: sheet.write_boolean,
            str: sheet.write_string,
            type(None): sheet.write_blank,
        }
        for place, header in enumerate(rows.column_names):
            name, shape, values = _to_excel(header, rows[header])
            form = book.add_format({"num_format": shape})
            sheet.set_column(place, place, _NARROWEST.get(shape))
            sheet.write_string(0, place, _to_cell(name), bold)
            for row, value in enumerate(map(_to_cell, values), 1):
                # An empty cell has a format, or a row of these would not be there.
                write[type(value)](row, place, value, plain if value is None else form)
        if rows.num_columns:
            sheet.autofilter(0, 0, rows.num_rows, rows.num_columns - 1)
            sheet.autofit(_WIDEST)
    file.write(content.getbuffer())


def _to_cell(value: object) -> object:
    """Return a value as a cell holds it."""
    if value is None or isinstance(value, bool | int | float | dt.date):
        return _finite(value)
    text = str(value)
    if len(text) > _EXCEL_TEXT:
        raise ValueError(
            f"a cell of Excel has at most {_EXCEL_TEXT:,} characters, not {len(text):,}: "
            "write .parquet or .csv"
        )
    return text


def _to_excel(name: str, column: pa.ChunkedArray) -> tuple[str, str, list[Any]]:
    """Return the header, format and values of a column: text where Excel would lose digits."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        plain = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
        if not pc.all(pc.equal(pc.floor_temporal(plain, unit="millisecond"), plain)).as_py():
            exact = _iso(column.cast(pa.timestamp(kind.unit, kind.tz and "UTC")))
            return name, _GENERAL, exact.to_pylist()
        is_day = pc.all(pc.equal(pc.floor_temporal(plain, unit="day"), plain)).as_py()
        moments = plain.cast(pa.timestamp("us")).to_pylist()
        return f"{name} (UTC)" if kind.tz else name, _DAY if is_day else _SECOND, moments
    values = column.to_pylist()
    known = [value for value in values if value is not None]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        texts = [None if value is None else f"{Decimal(value):f}" for value in values]
        if any(len(text.replace(".", "").strip("-0")) > _EXCEL_DIGITS for text in texts if text):
            return name, _GENERAL, texts
        is_whole = pa.types.is_integer(kind) or kind.scale == 0
        numbers = [None if value is None else float(value) for value in values]
        return name, _GROUPED if is_whole else _FRACTION, numbers
    is_large = pa.types.is_floating(kind) and any(_THOUSAND <= abs(x) < math.inf for x in known)
    return name, _FRACTION if is_large else _GENERAL, values


WRITERS: Final[dict[str, Callable[[pa.Table, BinaryIO], None]]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "json": _write_json,
    "xlsx": _write_excel,
}
