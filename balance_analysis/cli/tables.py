"""Commands that print or write tables of a file or an archive."""

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
from balance_analysis.cli import options
from balance_analysis.cli.app import command
from balance_analysis.cli.output import UNKNOWN, Messages, echo, narrowed, print_table
from balance_analysis.cli.selection import Selection
from balance_analysis.files.atomic import check_output
from balance_analysis.text import count_text, moment_text

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.assets import Asset
    from balance_analysis.labels import Names


_WIDTHS: Final = {"asset": 11, "type": 19, "party": 19, "market": 19}
"""Characters of names in a narrow table, so that they and an amount always fit."""

_LONGEST: Final = 12
"""Characters of an amount in a narrow table; a longer one is rounded to four digits."""

_EXCEL_DIGITS: Final = 15
_ORDER: Final = ("rows", "minimum", "maximum", "closing", "balance", "last seen")
SUMMARY: Final = ("closing", "rows", "last seen", "maximum", "minimum")
"""What a summary shows of an account, the most important first."""

TableFormat = Literal["table", "csv", "json", "parquet", "xlsx"]
ExactFormat = Literal["csv", "json", "parquet", "xlsx"]
_Output = Annotated[
    Path | None,
    options.output_option(
        "The file to write: .csv, .json, .parquet or .xlsx. In CSV, text that a spreadsheet would "
        "run (it begins with =, +, -, @, a tab or a line break) gets an apostrophe in front."
    ),
]
_Layout = Annotated[
    Literal["long", "wide"],
    Option(
        help="long: one row per account and moment, with ids; wide: one column per account, with "
        "a short name."
    ),
]


Units = Annotated[
    bool,
    Option("--units", help="Amounts as floats in whole units, not exact in the smallest unit."),
]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of commands that print a table or write a file."""

    output: _Output = None
    form: Annotated[TableFormat | None, options.form_option("a table")] = None
    limit: Annotated[int, Option(min=0, help="Most rows in a table; 0 shows all.")] = 20
    wide: Annotated[bool, Option("--wide", help="Show all columns, whole ids and every digit.")] = (
        False
    )

    def chosen(self, source: str) -> TableFormat:
        """Return how rows are to be printed or written; see `choose_format`."""
        return choose_format(self.form, self.output, source=source, otherwise="table")


@dataclass(frozen=True, kw_only=True)
class AccountTableOptions(TableOptions):
    """The options of commands that print a table of accounts, or write it to a file."""

    units: Units = False

    def show(
        self,
        accounts: pd.DataFrame,
        first: Sequence[str],
        form: TableFormat,
        messages: Messages,
        names: Names,
    ) -> None:
        """Write accounts, or print them: see `print_accounts`, or all of their columns."""
        # Units that nobody knows are refused, however the accounts are shown.
        found = ba.to_units(accounts, names.assets) if self.units else accounts
        if form == "xlsx":
            found = _with_exact(found, accounts)
        if form != "table":
            write_exact(found, form, self.output, messages, what="account")
        elif self.wide:
            shown = _most_active(found, self.limit)
            columns = {str(name): list(map(cell_text, shown[name])) for name in shown}
            print_table(columns, left=ba.ACCOUNT_KEY)
            _tell_rest(shown, found)
        else:
            print_accounts(accounts, first, limit=self.limit, names=names)


@command()
def summary(messages: Messages, selection: Selection, listing: AccountTableOptions) -> None:
    """Summarise the accounts of a file or an archive, one row per account.

    A printed table has the most active ones. It is 80 characters wide, with some of the columns and
    amounts in whole units of known assets, large ones with four digits (1.234e+22).
    """
    form, names = listing.chosen(selection.file), selection.names
    history = selection.read(messages, into=listing.output)
    found = ba.summarize_accounts(history, **selection.bounds)
    listing.show(found, SUMMARY, form, messages, names)


@command()
def series(
    messages: Messages,
    selection: Selection,
    output: _Output = None,
    freq: Annotated[
        options.Text, Option(help="Period: 10min, 1h, 1D, MS ...; by default every change.")
    ] = None,
    layout: _Layout = "long",
    units: Units = False,
    form: Annotated[ExactFormat | None, options.form_option("csv")] = None,
) -> None:
    """Show what accounts held over time; unknown balances are empty."""
    chosen = choose_format(form, output, source=selection.file, otherwise="csv")
    history, how = selection.read(messages, into=output), selection.bounds
    if units:
        how = {**how, "units": selection.names.assets}
    found = ba.balance_series(history, freq=freq, layout=layout, **how)
    write_exact(found, chosen, output, messages)


@command()
def accounts(
    messages: Messages,
    archive: options.ArchiveAt,
    filters: options.AccountOptions,
    listing: AccountTableOptions,
    partial: options.Partial = False,
) -> None:
    """List the accounts of an archive, the most active first, with what they hold at its end.

    A printed table is 80 characters wide, with amounts in whole units of known assets.
    """
    from balance_analysis.archive.network import read_archive_names

    held = options.archive_at(archive)
    form = listing.chosen(archive)
    names = filters.with_given(read_archive_names(held.store))
    found = held.accounts(partial=partial, **{**filters.named(), **names.keywords()})
    found = found.sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    listing.show(found, ("balance", "rows", "last seen"), form, messages, names)


def choose_format(
    form: TableFormat | None,
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
    what: str = "row",
) -> None:
    """Write rows to stdout, or to a file that appears whole or not at all."""
    from balance_analysis.files.tables import WRITERS, to_rows, write_as

    if output is not None:
        write_as(rows, form, output)
        messages.say(f"{count_text(len(rows), what)}: {output}")
    elif sys.stdout.isatty():
        held = io.BytesIO()
        WRITERS[form](to_rows(rows), held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        WRITERS[form](to_rows(rows), sys.stdout.buffer)


def _with_exact(whole: pd.DataFrame, exact: pd.DataFrame) -> pd.DataFrame:
    """Return amounts in whole units, and beside those that lose digits these in the smallest unit.

    Excel keeps 15 digits.
    """
    found = whole.copy()
    for name in exact.columns[exact.dtypes != whole.dtypes]:
        texts = exact[name].astype("str")
        if texts.str.strip("-0").str.len().gt(_EXCEL_DIGITS).any():
            place = [*found.columns].index(name) + 1
            found.insert(place, f"{name} (smallest unit)", texts.where(exact[name].notna()))
    return found


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
    names: Names,
) -> None:
    """Print the most active accounts, a line each: short ids, whole units if they are known.

    Parameters
    ----------
    first
        What to show of them besides, as far as it fits 80 characters, the most important first.
    """
    from balance_analysis.labels import short_keys

    shown = _most_active(accounts, limit)
    columns = short_keys(shown, names)
    for name, most in _WIDTHS.items():
        columns[name] = [_clipped(text, most) for text in columns[name]]
    ids, known = tuple(columns), shown["asset_id"].map(names.assets.get)
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
