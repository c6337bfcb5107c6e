"""Commands that print or write tables: every column and digit, nothing for NA."""

from __future__ import annotations

import datetime as dt
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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
from balance_analysis.text import moment_text

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.assets import Asset, Assets


_WIDTHS: Final = {"asset": 11, "type": 19}
"""Characters of symbols and types in a narrow table, so that ids and an amount always fit."""

_LONGEST: Final = 12
"""Characters of an amount in a narrow table; a longer one is rounded to four digits."""

_ORDER: Final = ("rows", "minimum", "maximum", "closing", "balance", "last seen")
SUMMARY: Final = ("closing", "rows", "last seen", "maximum", "minimum")
"""What a summary shows of an account, the most important first."""

_Output = Annotated[
    Path | None,
    output_option(
        "Write it here: .csv, .json, .parquet or .xlsx. In CSV, text that a spreadsheet would run "
        "(it begins with =, +, -, @, a tab or a line break) has an apostrophe before it."
    ),
]
_Layout = Annotated[
    Literal["long", "wide"],
    Option(
        help="long: a row for each account and point, with ids; wide: a column an account, with "
        "a short name."
    ),
]


Units = Annotated[
    bool,
    Option("--units", help="Amounts as floats in whole units, not exact in the smallest ones."),
]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of commands that print a table or write a file."""

    output: _Output = None
    form: Annotated[TableFormat | None, form_option("a table")] = None
    limit: Annotated[int, Option(min=0, help="Rows in a table; 0 for all.")] = 20
    wide: Annotated[
        bool, Option("--wide", help="A table of all columns, whole ids and every digit.")
    ] = False

    def chosen(self, source: str) -> TableFormat:
        """Return how rows are to be printed or written; see `choose_format`."""
        return choose_format(self.form, self.output, source=source, otherwise="table")


@command()
def summary(
    messages: Messages, selection: Selection, listing: TableOptions, units: Units = False
) -> None:
    """Summarise the accounts of a file or archive: a row each, in a table the most active.

    A table is 80 characters wide: some columns, amounts in whole units of known assets, large ones
    with four digits (1.234e+22).
    """
    form, assets = listing.chosen(selection.file), selection.known_assets
    rows = selection.read(messages, into=listing.output)
    found = ba.summarize_accounts(rows.table, **selection.bounds, opening=rows.opening)
    list_accounts(found, SUMMARY, listing, form, messages, assets=assets, units=units)


@command()
def series(
    messages: Messages,
    selection: Selection,
    output: _Output = None,
    freq: Annotated[Text, Option(help="10min, 1h, 1D, MS ...; by default each change.")] = None,
    layout: _Layout = "long",
    units: Units = False,
    form: Annotated[ExactFormat | None, form_option("csv")] = None,
) -> None:
    """Tell what accounts held over time; where it is unknown, nothing stands."""
    chosen = choose_format(form, output, source=selection.file, otherwise="csv")
    rows = selection.read(messages, into=output)
    how: Any = {**selection.bounds, "opening": rows.opening}
    if units:
        how["units"] = selection.known_assets
    found = ba.balance_series(rows.table, freq=freq, layout=layout, **how)
    write_exact(found, chosen, output, messages)


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


def write_exact(
    rows: pd.DataFrame,
    form: TableFormat,
    output: Path | None,
    messages: Messages,
    *,
    what: str = "rows",
) -> None:
    """Write rows to stdout, or to a file that appears whole or not at all."""
    from balance_analysis.files.tables import WRITERS, to_rows, write_as

    if output is not None:
        write_as(rows, form, output)
        messages.say(f"{len(rows):,} {what}: {output}")
    elif sys.stdout.isatty():
        held = io.BytesIO()
        WRITERS[form](to_rows(rows), held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        WRITERS[form](to_rows(rows), sys.stdout.buffer)


def list_accounts(
    accounts: pd.DataFrame,
    first: Sequence[str],
    listing: TableOptions,
    form: TableFormat,
    messages: Messages,
    *,
    assets: Assets,
    units: bool,
) -> None:
    """Write accounts, or print them: see `print_accounts`, or all of their columns."""
    found = ba.to_units(accounts, assets) if units else accounts
    if form != "table":
        write_exact(found, form, listing.output, messages, what="accounts")
        return
    if not listing.wide:
        print_accounts(accounts, first, limit=listing.limit, assets=assets)
        return
    shown = _most_active(found, listing.limit)
    columns = {str(name): list(map(cell_text, shown[name])) for name in shown}
    print_table(columns, left=ba.ACCOUNT_KEY)
    _tell_rest(shown, found)


def _most_active(accounts: pd.DataFrame, limit: int) -> pd.DataFrame:
    found = accounts.sort_values("rows", ascending=False, kind="stable")
    return found.head(limit) if limit else found


def _tell_rest(shown: pd.DataFrame, accounts: pd.DataFrame) -> None:
    if len(shown) < len(accounts):
        echo(f"... the {len(shown)} most active of {len(accounts):,} accounts")


def print_accounts(
    accounts: pd.DataFrame,
    first: Sequence[str],
    *,
    limit: int,
    assets: Assets,
) -> None:
    """Print the most active accounts, a line each: short ids, whole units if they are known.

    Parameters
    ----------
    first
        What to show of them besides, as far as it fits 80 characters, the most important first.
    """
    from balance_analysis.labels import short_keys

    shown = _most_active(accounts, limit)
    columns = short_keys(shown, assets.labels(shown["asset_id"]))
    for name, most in _WIDTHS.items():
        columns[name] = [_clipped(text, most) for text in columns[name]]
    ids, known = tuple(columns), shown["asset_id"].map(assets.get)
    for name in (name for name in _ORDER if name in first):
        column = shown[name.replace(" ", "_")]
        if name == "last seen":
            columns[name] = list(column.dt.strftime("%Y-%m-%d").fillna("quiet"))
        elif name == "rows":
            columns[name] = list(map("{:,}".format, column))
        else:
            columns[name] = [_amount(*each) for each in zip(column, known, strict=True)]
    print_table(narrowed(columns, (*ids, *first)), left=ids)
    _tell_rest(shown, accounts)


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _amount(value: Any, asset: Asset | None) -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    text = f"{value:,}" if asset is None else f"{int(value) / 10**asset.decimals:,.2f}"
    if len(text) <= _LONGEST:
        return text
    return f"{Decimal(value).scaleb(0 if asset is None else -asset.decimals):.3e}"


def cell_text(value: Any, missing: str = UNKNOWN) -> str:  # noqa: ANN401 - a cell
    """Return a cell as it is, every digit of it."""
    from pandas import isna

    if not isinstance(value, list | dict) and isna(value):
        return missing
    return moment_text(value) if isinstance(value, dt.datetime) else str(value)
