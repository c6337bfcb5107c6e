"""Write results to Parquet, CSV, JSON and Excel, with every column, row and digit.

A frame becomes rows with one name per column. A value that doesn't fit a format's numbers or
moments is written as text.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import io
import json
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import infer_dtype, is_float_dtype, is_integer_dtype, is_string_dtype
from pyarrow import csv

from balance_analysis.errors import check_type
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.files.parquet import make_note, write_rows
from balance_analysis.table import schema
from balance_analysis.table.display import UNITS_KEY, header_of, units_of, with_names
from balance_analysis.table.frame import is_amounts, to_amounts, to_plain_arrow
from balance_analysis.table.known import read_notes
from balance_analysis.table.names import carried, names_in
from balance_analysis.table.text import decimal_text

EXCEL_ROWS: Final = 1_048_576
EXCEL_COLUMNS: Final = 16_384
_DIGITS: Final = Context(prec=15)
_EXCEL_TEXT: Final = 32_767
"""Excel's limits: rows of a sheet (with its header), columns, digits, characters of a cell."""

_GENERAL: Final = "General"
_GROUPED: Final = "#,##0"
_FRACTION: Final = "#,##0.00####"
_DAY: Final = "yyyy-mm-dd"
_SECOND: Final = "yyyy-mm-dd hh:mm:ss"
_NARROWEST: Final = {_FRACTION: 21, _DAY: 12, _SECOND: 20}
"""Minimum width of a column in characters, by its format: autofit ignores formats."""

_WIDEST: Final = 285
"""Maximum width of a column in pixels; ids are longer, and would fill the screen."""

_THOUSAND: Final = 1000

_FIRST_DAY: Final = dt.datetime(1900, 3, 1)  # noqa: DTZ001 - Excel's moments have no zone
"""Earlier moments are text, as Excel takes 1900 for a leap year."""

_SPECIAL: Final = re.compile(r'[",\r\n]')
_FORMULA: Final = r"^([=+\-@\t\r\n])"
"""Start of a text that a spreadsheet takes as a formula."""


def write_table(frame: pd.DataFrame | pd.Series[Any], path: PathLike) -> None:
    """Write a table, or a function's result, to a file with every digit.

    Parameters
    ----------
    frame
        Any frame or series. An index that has a name or isn't of integers becomes columns. The
        column `opening` marks a table's openings (rows older than its `start`), if any. Periods are
        text, such as `2023-04`. Names of columns with several levels are joined by slashes.
        Accounts and other holders in a wide series' header have their names or short ids, and the
        unit of their amounts: `tUSD/general/c2071f..76b5 [10^-5 tUSD]`. A long frame has the ids;
        if it carries names, the columns `symbol` and `label` come first, as in `labelled`, except
        for a table in Parquet. A long frame with amounts has the column `unit`: `tUSD` for whole
        units, else `10^-5 tUSD`, or `smallest` if the decimals are unknown. In Parquet the metadata
        has the names.
    path
        A .parquet, .csv, .json or .xlsx file; an existing one is replaced as a whole.

        - .parquet: amounts are decimal128(38, 0), moments keep their time zone. `read_parquet`
          reads a file with a table's columns, with the table's known intervals.
        - .csv: moments and durations are ISO 8601. Text that a spreadsheet would take as a formula
          (it starts with =, +, -, @, a tab or a line break) gets an apostrophe in front. Unknown
          values are empty.
        - .json: a list of objects; amounts are text, as JSON's numbers are floats, moments and
          durations are ISO 8601, and unknown values are null.
        - .xlsx (extra `excel`): one sheet with a filter and thousands separators. Excel keeps 15
          digits and milliseconds: a column of amounts or moments that needs more is text, with all
          digits. For numbers to calculate with, write `to_units(frame)`: whole units are floats.
          Excel has no time zones: moments are in UTC, and the header says so. Durations and moments
          before March 1900 are ISO 8601. Text is never a formula.

        pandas rounds such digits to floats when it reads these files, unless you keep the text:
        `pd.read_json(path, dtype={"balance": str})`; likewise with `read_csv` and `read_excel`.

    Raises
    ------
    ValueError
        If the file has another suffix, two columns would have the same name, whole numbers have
        more than 38 digits, a sheet is too small for the rows, XlsxWriter isn't installed, or the
        file would lie in an archive.
    TypeError
        If it isn't a frame or series.
    OSError
        If the file can't be written.

    Examples
    --------
    >>> import balance_analysis as ba
    >>> from balance_analysis.demo import sample_data
    >>> table = ba.read_parquet(sample_data() / "changes.parquet")
    >>> write_table(ba.balance_at(table, "2023-04-12"), getfixture("tmp_path") / "held.csv")
    """
    check_output(path, suffixes=[f".{form}" for form in WRITERS])
    write_as(frame, Path(path).suffix[1:].lower(), path)


def write_as(frame: pd.DataFrame | pd.Series[Any], form: str, path: PathLike) -> None:
    """Write a frame in a format, whatever the file's name: see `write_table`."""
    check_installed(form)
    with replacing(path) as temporary, temporary.open("wb") as file:
        write_to(frame, form, file)


def write_to(frame: pd.DataFrame | pd.Series[Any], form: str, file: BinaryIO) -> None:
    """Write a frame in a format to an open file; Parquet's metadata has its names."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    check_type(frame, pd.DataFrame, "a frame or series of pandas")
    metadata, is_table = frame.attrs.get(schema.ATTRS_KEY), {*schema.COLUMNS} <= {*frame.columns}
    if (
        carried(metadata)
        and {*schema.ACCOUNT_KEY} & {*frame.columns}
        and not (form == "parquet" and is_table)
    ):
        frame = with_names(frame, names_in(metadata))
    for name in {"symbol", "label"} & {*frame.columns} if form == "csv" else ():
        frame = frame.assign(**{name: frame[name].map(_in_ascii, na_action="ignore")})
    WRITERS[form](to_rows(frame), file)


def _in_ascii(name: str) -> str:
    """Return a name with our non-ASCII signs replaced: spreadsheets don't take a CSV as UTF-8."""
    return name.replace("…", "..").replace(" · ", "/")


def check_installed(form: str) -> None:
    """Raise ValueError if a format needs a package that is not installed."""
    if form == "xlsx" and importlib.util.find_spec("xlsxwriter") is None:
        raise ValueError("an Excel file needs XlsxWriter: pip install 'balance-analysis[excel]'")


def to_rows(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as Arrow, with its index as columns and unique names.

    Raises
    ------
    ValueError, TypeError
        As `write_table`.
    """
    flat = _with_units(frame)
    names = flat.index.names
    if any(name is not None for name in names) or not is_integer_dtype(flat.index):
        headers = ["index" if name is None else str(name) for name in names]
        flat = flat.reset_index(names=headers, allow_duplicates=True)
    if not flat.columns.is_unique:
        twice = flat.columns[flat.columns.duplicated()][0]
        raise ValueError(f"two columns would be called {twice!r}; use the long layout, or rename")
    metadata = frame.attrs.get(schema.ATTRS_KEY) or {}
    flat = _with_openings(flat, read_notes(metadata).start)
    flat = flat.assign(**{str(name): _readable(column) for name, column in flat.items()})
    rows = to_plain_arrow(flat)
    return rows.replace_schema_metadata(make_note({"load": metadata})) if metadata else rows


def _with_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with plain headers and its amounts' units, in headers or a column `unit`."""
    header = [*map(_in_ascii, header_of(frame))]
    is_whole = UNITS_KEY in (frame.attrs.get(schema.ATTRS_KEY) or {})
    columns = [column for _, column in frame.items()]
    has_amounts = [is_amounts(x) or (is_whole and is_float_dtype(x)) for x in columns]
    if "asset_id" in frame.columns.names:
        assets = [*frame.columns.get_level_values("asset_id").astype("str")]
        units = units_of(frame, assets)
        header = [
            f"{name} [{_in_ascii(units[asset])}]" if has_amount else name
            for name, asset, has_amount in zip(header, assets, has_amounts, strict=True)
        ]
    flat = frame.set_axis(header, axis="columns")
    if "asset_id" not in frame.columns or "unit" in frame.columns or not any(has_amounts):
        return flat
    ids = pd.Categorical(frame["asset_id"])
    units = units_of(frame, ids.categories.astype("str"))
    texts = pd.array([_in_ascii(unit) for unit in units.values()], dtype="str")
    return flat.assign(unit=texts.take(ids.codes, allow_fill=True))


def _with_openings(table: pd.DataFrame, start: int | None) -> pd.DataFrame:
    """Return a table with the column `opening`, if it has rows before `start`."""
    if start is None or not {*schema.COLUMNS} <= {*table}:
        return table
    times = pd.to_datetime(table["timestamp"], utc=True).to_numpy("M8[us]").view("i8")
    opening = times < start
    return table.assign(opening=opening) if opening.any() else table


def _readable(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of a common type: periods as text, Python's integers as amounts."""
    if isinstance(column.dtype, pd.CategoricalDtype) and not is_string_dtype(column.cat.categories):
        column = column.astype(column.cat.categories.dtype)
    kind = infer_dtype(column) if column.dtype == object else ""
    if kind.startswith("timedelta"):
        return column.infer_objects()
    if kind == "period" or isinstance(column.dtype, pd.PeriodDtype):
        return column.astype("str").str.replace(" ", "T")
    if kind == "integer":
        exact = pd.arrays.ArrowExtensionArray(to_amounts(column, allow_missing=True))
        return pd.Series(exact, column.index)
    return column


def _write_csv(rows: pa.Table, file: BinaryIO) -> None:
    columns = [*map(_to_csv, rows.columns)]
    texts = [*rows.column_names]
    for name, column in zip(rows.column_names, columns, strict=True):
        is_moment = pa.types.is_timestamp(rows[name].type)
        texts += _distinct(column) if _is_text(column.type) and not is_moment else []
    headers = _quoted(pa.array(rows.column_names, pa.string())).to_pylist()
    quoting = "needed" if any(map(_SPECIAL.search, texts)) else "none"
    if len(columns) == 1:  # a missing value would be a blank line, which readers skip
        columns, quoting = [columns[0].cast(pa.string()).fill_null("")], "all_valid"
    options = csv.WriteOptions(quoting_style=quoting, quoting_header=quoting)
    csv.write_csv(pa.table(columns, headers), file, options)


def _to_csv(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column for Arrow's CSV writer: as text if Arrow would write it differently."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _iso(column)
    if _is_text(kind):
        has_formulas = any(re.match(_FORMULA, text) for text in _distinct(column))
        return _quoted(column.cast(pa.string())) if has_formulas else column
    is_plain = pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)
    if is_plain or pa.types.is_date(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return column
    return pa.chunked_array([_texts(column)], pa.string())


def _is_text(kind: Any) -> bool:  # noqa: ANN401 - a type of Arrow
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string())


def _distinct(column: pa.ChunkedArray) -> list[str]:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return [text for chunk in encoded.chunks for text in chunk.dictionary.to_pylist() if text]


def _quoted(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return text with an apostrophe in front of formulas."""
    return pc.replace_substring_regex(column, _FORMULA, r"'\1")


def _iso(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as ISO 8601 with Z for UTC, or their zone's offset if they have a zone."""
    zone = {"UTC": "Z", None: ""}.get(column.type.tz, "%Ez")
    return pc.strftime(column, f"%Y-%m-%dT%H:%M:%S{zone}")


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else _text(value) for value in column.to_pylist()]


def _text(value: Any) -> str:  # noqa: ANN401 - a cell of any column
    """Return a value as text with every digit; times are ISO 8601."""
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, dt.timedelta):
        return pd.Timedelta(value).isoformat()
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _write_json(rows: pa.Table, file: BinaryIO) -> None:
    content = [{name: _finite(value) for name, value in row.items()} for row in rows.to_pylist()]
    file.write(f"{json.dumps(content, indent=2, default=_text)}\n".encode())


def _finite(value: object) -> object:
    """Return a value, with NaN replaced by `None` and infinity by text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _write_excel(rows: pa.Table, file: BinaryIO) -> None:
    if rows.num_rows >= EXCEL_ROWS or rows.num_columns > EXCEL_COLUMNS:
        raise ValueError(
            f"an Excel sheet has {EXCEL_ROWS - 1:,} rows below its header and {EXCEL_COLUMNS:,} "
            f"columns, not {rows.num_rows:,} and {rows.num_columns:,}: write .parquet or .csv"
        )
    xlsxwriter = importlib.import_module("xlsxwriter")
    content = io.BytesIO()  # in memory, as a zip can't be closed cleanly if the disk fails
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(content, options) as book:
        # The same rows give the same bytes.
        book.set_properties({"created": dt.datetime(1980, 1, 1)})  # noqa: DTZ001 - Excel's moments have no zone
        sheet, bold = book.add_worksheet(), book.add_format({"bold": 1})
        sheet.freeze_panes(1, 0)
        for place, header in enumerate(rows.column_names):
            name, shape, values = _to_excel(header, rows[header])
            form = book.add_format({"num_format": shape})
            sheet.set_column(place, place, _NARROWEST.get(shape))
            sheet.write(0, place, _fitting(name), bold)
            # Empty cells need a format, or a row of empty cells would be missing.
            sheet.write_column(1, place, map(_fitting, values), form)
        if rows.num_columns:
            sheet.autofilter(0, 0, rows.num_rows, rows.num_columns - 1)
            sheet.autofit(_WIDEST)
    file.write(content.getbuffer())


def _fitting(value: object) -> object:
    """Return a cell's value; ValueError if it is too long."""
    if isinstance(value, str) and len(value) > _EXCEL_TEXT:
        raise ValueError(
            f"an Excel cell has at most {_EXCEL_TEXT:,} characters, not {len(value):,}: "
            "write .parquet or .csv"
        )
    return _finite(value)


def _to_excel(name: str, column: pa.ChunkedArray) -> tuple[str, str, list[Any]]:
    """Return a column's header, format and values: text if Excel would lose digits."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    kind, values = column.type, column.to_pylist()
    known = [value for value in values if value is not None]
    if pa.types.is_timestamp(kind):
        utc = column.cast(pa.timestamp(kind.unit, kind.tz and "UTC"))
        plain = utc.cast(pa.int64()).cast(pa.timestamp(kind.unit))
        if not all(_fits_excel(moment) for moment in plain.to_pylist() if moment is not None):
            return name, _GENERAL, _iso(utc).to_pylist()
        moments = plain.cast(pa.timestamp("us")).to_pylist()
        is_day = all(moment.time() == dt.time() for moment in moments if moment is not None)
        return f"{name} (UTC)" if kind.tz else name, _DAY if is_day else _SECOND, moments
    if pa.types.is_floating(kind):
        is_large = any(_THOUSAND <= abs(value) < math.inf for value in known)
        return name, _FRACTION if is_large else _GENERAL, values
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if is_number and all(_DIGITS.create_decimal(value) == value for value in known):
        return name, _FRACTION if getattr(kind, "scale", 0) else _GROUPED, values
    return name, _GENERAL, values if pa.types.is_boolean(kind) else _texts(column)


def _fits_excel(moment: dt.datetime) -> bool:
    is_finer = moment.microsecond % 1000 or getattr(moment, "nanosecond", 0)
    return moment >= _FIRST_DAY and not is_finer


WRITERS: Final[dict[str, Callable[[pa.Table, BinaryIO], None]]] = {
    "parquet": write_rows,
    "csv": _write_csv,
    "json": _write_json,
    "xlsx": _write_excel,
}
"""The function that writes each format."""
