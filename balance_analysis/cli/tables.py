"""Commands that print or write tables: every column and digit, nothing for NA."""

from __future__ import annotations

import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast, get_args

from typer import Option

import balance_analysis as ba
from balance_analysis.cli.app import command
from balance_analysis.cli.options import ExactFormat, TableFormat, Text, form_option, output_option
from balance_analysis.cli.output import UNKNOWN, Messages, echo, narrowed, print_table
from balance_analysis.cli.selection import Selection
from balance_analysis.files.atomic import check_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from balance_analysis.assets import Asset, Assets


_MOST: Final = {"asset": 11, "type": 19}
"""Characters of symbols and types in a narrow table, so that ids and an amount always fit."""

_LONGEST: Final = 12
"""Characters of an amount in a narrow table; a longer one is rounded to four digits."""

_Output = Annotated[
    Path | None,
    output_option(
        "Write it here: .csv, .json, .parquet or .xlsx. In CSV, text that a spreadsheet would run "
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
    from balance_analysis.files.tables import check_installed

    if output is None:
        if form in {"parquet", "xlsx"}:
            raise ValueError(f"{form} is not for a terminal; name a file with -o FILE.{form}")
        return form or otherwise
    if form == "table":
        raise ValueError(
            "a table is for the terminal; a file takes --format csv, json, parquet or xlsx"
        )
    ending = output.suffix.removeprefix(".").lower()
    known = ending in get_args(ExactFormat)
    if form is None and not known:
        raise ValueError(f"{output}: name a .csv, .json, .parquet or .xlsx file, or give --format")
    if form is not None and known and ending != form:
        raise ValueError(f"{output}: name a .{form} file, or give --format {ending}")
    check_installed(form or ending)
    check_output(output, inputs=[source])
    return form or cast("ExactFormat", ending)


def write_exact(rows: pd.DataFrame, form: TableFormat, output: Path | None) -> None:
    """Write rows to stdout, or to a file that appears whole or not at all."""
    from balance_analysis.files.tables import WRITERS, to_rows, write_as

    if output is not None:
        write_as(rows, form, output)
    elif sys.stdout.isatty():
        held = io.BytesIO()
        WRITERS[form](to_rows(rows), held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        WRITERS[form](to_rows(rows), sys.stdout.buffer)


def print_summary(
    accounts: pd.DataFrame, *, limit: int, assets: Assets, wide: bool = False
) -> None:
    """Print the most active accounts, a line each: short ids, whole units if they are known."""
    shown = accounts.sort_values(["changes", "rows"], ascending=False, kind="stable")
    shown = shown.head(limit) if limit else shown
    names = ("rows", "changes", "minimum", "maximum", "closing", "last seen")
    first = ("closing", "changes", "last seen", "maximum", "minimum", "rows")
    print_accounts(shown, assets, names, None if wide else first)
    if len(shown) < len(accounts):
        echo(f"... the {len(shown)} most active of {len(accounts):,} accounts")


def print_accounts(
    shown: pd.DataFrame, assets: Assets, names: Sequence[str], first: Sequence[str] | None
) -> None:
    """Print accounts, a line each: short ids, whole units if they are known.

    Parameters
    ----------
    names
        What to show of them besides.
    first
        The same, the most important first, to show what fits 80 characters; `None` for all.
    """
    from balance_analysis.text import short_ids, type_label

    columns = {
        "asset": list(shown["asset_id"].map(assets.labels(shown["asset_id"]))),
        "type": list(map(type_label, shown["account_type"])),
        "party": list(shown["party_id"].map(short_ids(shown["party_id"]))),
        "market": list(shown["market_id"].map(short_ids(shown["market_id"]))),
    }
    ids, known = tuple(columns), shown["asset_id"].map(assets.get)
    for name in names:
        column = shown[name.replace(" ", "_")]
        if name == "last seen":
            seen = column.dt.strftime("%Y-%m-%d" if first else "%Y-%m-%d %H:%M:%S")
            columns[name if first else f"{name}, UTC"] = list(seen.fillna("quiet"))
        elif name in ("rows", "changes"):
            columns[name] = list(map("{:,}".format, column))
        else:
            amounts = zip(column, known, strict=True)
            columns[name] = [_amount(*each, wide=first is None) for each in amounts]
    if first:
        columns |= {
            name: [_clipped(x, most) for x in columns[name]] for name, most in _MOST.items()
        }
        columns = narrowed(columns, (*ids, *first))
    print_table(columns, left=ids)


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
