"""Commands that print or write tables of a file or an archive."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast, get_args

from typer import Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.listing import (
    COMPARISON,
    SUMMARY,
    cell_text,
    first_rows,
    print_accounts,
    tell_rest,
)
from balance_analysis.cli.output import Messages, echo, print_record, print_table
from balance_analysis.cli.selection import Selection
from balance_analysis.files.atomic import check_output
from balance_analysis.text import count_text

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.names import Names


_EXCEL_DIGITS: Final = 15
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
        help="long: one row per account and moment, with ids; wide: one column per account, under "
        "its symbol and label, or short ids."
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
        what: str = "account",
    ) -> None:
        """Write accounts, or print them: see `print_accounts`, or all of their columns."""
        # Units that nobody knows are refused, however the accounts are shown.
        found = ba.to_units(accounts, names.assets) if self.units else accounts
        if form == "xlsx":
            found = _with_exact(found, accounts)
        if form != "table":
            write_exact(found, form, self.output, messages, what=what)
        elif self.wide:
            shown = first_rows(found, self.limit)
            columns = {str(name): list(map(cell_text, shown[name])) for name in shown}
            print_table(columns, left=ba.ACCOUNT_KEY)
            tell_rest(shown, found, self.limit)
        else:
            print_accounts(accounts, first, limit=self.limit, names=names)


@command()
def summary(
    messages: Messages,
    selection: Selection,
    listing: AccountTableOptions,
    by: options.By = None,
) -> None:
    """Summarise the accounts of a file or an archive, one row per account.

    A printed table has the most active ones, and with --by the largest of each asset. It is 80
    characters wide, with some of the columns and amounts in whole units of known assets, large ones
    with four digits (1.234e+22).
    """
    form, names = listing.chosen(selection.file), selection.names
    from balance_analysis.analysis.holders import largest

    history = selection.read(messages, into=listing.output)
    if by is None:
        found = ba.summarize_accounts(history, **selection.bounds)
    else:
        found = ba.summarize_parties(history, by=options.BY[by], **selection.bounds)
        found = largest(found, found["closing"], None)
    listing.show(found, SUMMARY, form, messages, names, what="row" if by else "account")


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
    by: options.By = None,
) -> None:
    """Show what accounts held over time; unknown balances are empty."""
    chosen = choose_format(form, output, source=selection.file, otherwise="csv")
    history, how = selection.read(messages, into=output), selection.bounds
    if units:
        how = {**how, "units": selection.names.assets}
    found = ba.balance_series(history, freq=freq, layout=layout, by=options.columns_of(by), **how)
    write_exact(found, chosen, output, messages)


@command()
def compare(
    messages: Messages,
    file: options.Source,
    at: Annotated[
        list[str], Option(metavar="MOMENT", help="A moment; give it twice, before and after.")
    ],
    filters: options.AccountOptions,
    listing: AccountTableOptions,
    by: options.By = None,
    partial: options.Partial = False,
) -> None:
    """Compare what a file or an archive tells of two moments, the largest changes first.

    A printed table is 80 characters wide, with amounts in whole units of known assets. Its last
    line counts what is new, gone, changed, the same and unknown.
    """
    if len(at) != 2:  # noqa: PLR2004 - a pair
        raise ValueError("compare takes two moments: --at BEFORE --at AFTER")
    selection, form = Selection(file=file, partial=partial, **asdict(filters)), listing.chosen(file)
    if selection.is_archive:
        archive = ba.Archive(file).select(**filters.named())
        archive.scan(end=max(at), partial=partial)  # raises where rows may be missing
        found = ba.compare(archive, (at[0], at[1]), by=options.columns_of(by))
    else:
        history = selection.read(messages, into=listing.output)
        found = ba.compare(history, (at[0], at[1]), by=options.columns_of(by))
    listing.show(
        found, COMPARISON, form, messages, selection.names, what="row" if by else "account"
    )
    if form == "table":
        counts = found["state"].value_counts(sort=False)
        echo(", ".join(f"{count:,} {state}" for state, count in counts.items()))


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
    held, form = options.archive_at(archive), listing.chosen(archive)
    names = filters.with_given(held.names())
    chosen = held.select(**{**filters.named(), **names.keywords()})
    chosen.scan(partial=partial)  # raises where rows may be missing
    columns = ["first_seen", "last_seen", "rows", "closing"]
    found = ba.summarize_accounts(chosen, columns=columns)[[*ba.ACCOUNT_KEY, *columns]]
    found = found.rename(columns={"closing": "balance"})
    found = found.sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    listing.show(found, ("balance", "rows", "last seen"), form, messages, names)


@command(panel=ARCHIVE)
def explain(
    _: Messages,
    archive: options.ArchiveAt,
    accounts: options.AccountOptions,
    at: Annotated[str, Option(metavar="MOMENT", help="When the account held it.")],
    form: options.PrintFormat = "table",
) -> None:
    """Print where the balance of one account comes from: its row, the file, and the node.

    The options must name one account.
    """
    held = options.archive_at(archive)
    ids = held.select(**accounts.named()).read(columns=ba.ACCOUNT_KEY, partial=True)
    found = ids.drop_duplicates()
    if found.empty:
        raise ValueError(f"{archive} has no such account")
    if len(found) > 1:
        said = f"{archive} has {count_text(len(found), 'such account')}: name one"
        raise ValueError(f"{said} by --asset, --account-type, --party and --market")
    print_record(held.explain(found.iloc[0], at=at), form)


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
    from balance_analysis.files.tables import write_as, write_to

    if output is not None:
        write_as(rows, form, output)
        messages.say(f"{count_text(len(rows), what)}: {output}")
    elif sys.stdout.isatty():
        held = io.BytesIO()
        write_to(rows, form, held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        write_to(rows, form, sys.stdout.buffer)


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
