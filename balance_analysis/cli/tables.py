"""Commands that print or write tables: every column and digit, nothing for NA."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, Literal, cast, get_args

from typer import Option

import balance_analysis as ba
from balance_analysis.cli.app import command
from balance_analysis.cli.options import ExactFormat, TableFormat, Text, form_option, output_option
from balance_analysis.cli.output import UNKNOWN, Messages, echo, narrowed, print_table
from balance_analysis.cli.selection import Selection
from balance_analysis.files.atomic import check_output, replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from balance_analysis.assets import Asset, Assets

_MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"
_SPECIAL: Final = re.compile(r'[",\r\n]')
_RUN: Final = r"^([=+\-@\t\r\n])"
"""What a spreadsheet takes as the beginning of a formula, or skips before one."""

_IDS: Final = ("asset", "type", "party", "market")
_NARROW: Final = (*_IDS, "closing", "changes", "last seen", "maximum", "minimum", "rows")
"""The columns of a summary, the most important first."""

_MOST: Final = {"asset": 11, "type": 19}
"""Characters of symbols and types in a narrow table, so that ids and an amount always fit."""

_LONGEST: Final = 11
"""Characters of an amount in a narrow table; a longer one is rounded to four digits."""

_Output = Annotated[
    Path | None,
    output_option(
        "Write it here: .csv, .json or .parquet. In CSV, text that a spreadsheet would run "
        "(it begins with =, +, -, @, a tab or a line break) has an apostrophe before it."
    ),
]
_Layout = Annotated[
    Literal["long", "wide"],
    Option(help="long: a row for each account and point; wide: a column an account."),
]


@command()
def summary(
    messages: Messages,
    selection: Selection,
    output: _Output = None,
    form: Annotated[TableFormat | None, form_option("a table")] = None,
    limit: Annotated[
        int, Option(min=0, help="Accounts in a table, the most active first; 0 for all.")
    ] = 20,
    wide: Annotated[bool, Option("--wide", help="All columns of a table, exact amounts.")] = False,
) -> None:
    """Summarise the accounts of a file or archive: a row each, in smallest units, exact.

    A table is 80 characters wide: some columns, of large amounts four digits (1.234e+22).
    """
    form = choose_format(form, output, source=selection.file, otherwise="table")
    rows = selection.read(messages, into=output)
    accounts = ba.summarize_accounts(rows.table, **selection.bounds, opening=rows.opening)
    if form == "table":
        print_summary(accounts, limit=limit, assets=selection.known_assets, wide=wide)
        return
    write_exact(accounts, form, output)
    if output is not None:
        messages.say(f"{len(accounts):,} accounts: {output}")


@command()
def series(
    messages: Messages,
    selection: Selection,
    output: _Output = None,
    freq: Annotated[Text, Option(help="10min, 1h, 1D, MS ...; by default each change.")] = None,
    layout: _Layout = "long",
    form: Annotated[ExactFormat | None, form_option("csv")] = None,
) -> None:
    """Tell what accounts held over time, every digit of it.

    In smallest units; where it is unknown, nothing stands.
    """
    chosen = choose_format(form, output, source=selection.file, otherwise="csv")
    rows = selection.read(messages, into=output)
    found = ba.balance_series(
        rows.table, freq=freq, layout=layout, **selection.bounds, opening=rows.opening
    )
    if layout == "wide":
        found = one_header(found)
    write_exact(found, chosen, output)
    if output is not None:
        messages.say(f"{len(found):,} rows: {output}")


def choose_format(
    form: TableFormat | None, output: Path | None, *, source: str, otherwise: TableFormat
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
        if form == "parquet":
            raise ValueError("Parquet is not for a terminal; name a file with -o FILE.parquet")
        return form or otherwise
    if form == "table":
        raise ValueError("a table is for the terminal; a file takes --format csv, json or parquet")
    ending = output.suffix.removeprefix(".").lower()
    known = ending in get_args(ExactFormat)
    if form is None and not known:
        raise ValueError(f"{output}: name a .csv, .json or .parquet file, or give --format")
    if form is not None and known and ending != form:
        raise ValueError(f"{output}: name a .{form} file, or give --format {ending}")
    check_output(output, inputs=[source])
    return form or cast("ExactFormat", ending)


def write_exact(rows: pd.DataFrame, form: TableFormat, output: Path | None) -> None:
    """Write rows to stdout, or to a file that appears whole or not at all."""
    write = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[form]
    if output is not None:
        with replacing(output) as temporary, temporary.open("wb") as file:
            write(rows, file)
    elif sys.stdout.isatty():
        held = io.BytesIO()
        write(rows, held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        write(rows, sys.stdout.buffer)


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

    from balance_analysis.frame import to_plain_arrow

    arrow = to_plain_arrow(rows)
    texts = [*arrow.column_names]
    for place, field in enumerate(arrow.schema):
        column = arrow[field.name]
        if pa.types.is_timestamp(field.type):
            arrow = arrow.set_column(place, field.name, pc.strftime(column, _MOMENT))
        elif pa.types.is_dictionary(field.type):
            ids = rows[field.name].cat.categories
            texts.extend(ids)
            if any(re.match(_RUN, each) for each in ids):
                arrow = arrow.set_column(place, field.name, _as_text(column.cast(pa.string())))
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
        {name: _to_json(value) for name, value in row.items()} for row in rows.to_dict("records")
    ]
    file.write(f"{json.dumps(content, indent=2)}\n".encode())


def _to_json(value: Any) -> object:  # noqa: ANN401 - a cell of any column
    from pandas import isna

    if isna(value):
        return None
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _write_parquet(rows: pd.DataFrame, file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    from balance_analysis.frame import to_plain_arrow

    pq.write_table(to_plain_arrow(rows), file, compression="zstd")


def print_summary(
    accounts: pd.DataFrame, *, limit: int, assets: Assets, wide: bool = False
) -> None:
    """Print the most active accounts, a line each: short ids, whole units if they are known."""
    from balance_analysis.figures.styles import type_label
    from balance_analysis.text import short_ids

    shown = accounts.sort_values(["changes", "rows"], ascending=False, kind="stable")
    shown = shown.head(limit) if limit else shown
    names = {name: short_ids(shown[name]) for name in ("asset_id", "party_id", "market_id")}
    names["asset_id"] = assets.labels(names["asset_id"])
    seen = shown["last_seen"].dt.strftime("%Y-%m-%d %H:%M:%S" if wide else "%Y-%m-%d")
    columns = {
        "asset": shown["asset_id"].map(names["asset_id"]),
        "type": shown["account_type"].map(type_label),
        "party": shown["party_id"].map(names["party_id"]),
        "market": shown["market_id"].map(names["market_id"]),
        "rows": shown["rows"].map("{:,}".format),
        "changes": shown["changes"].map("{:,}".format),
        **{
            name: [
                _amount(value, assets.get(asset), wide=wide)
                for value, asset in zip(shown[name], shown["asset_id"], strict=True)
            ]
            for name in ("minimum", "maximum", "closing")
        },
        "last seen, UTC" if wide else "last seen": seen.fillna("quiet"),
    }
    texts = {name: list(column) for name, column in columns.items()}
    if not wide:
        texts |= {name: [_clipped(x, most) for x in texts[name]] for name, most in _MOST.items()}
        texts = narrowed(texts, _NARROW)
    print_table(texts, left=_IDS)
    if len(shown) < len(accounts):
        echo(f"... the {len(shown)} most active of {len(accounts):,} accounts")


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _amount(value: Any, asset: Asset | None, *, wide: bool) -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    text = f"{value:,}" if asset is None else f"{int(value) / 10**asset.decimals:,.2f}"
    if wide or len(text) <= _LONGEST:
        return text
    return f"{Decimal(value).scaleb(0 if asset is None else -asset.decimals):.3e}"
