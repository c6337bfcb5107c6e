"""Commands that print or write tables of a file or an archive, every digit kept."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import balance_analysis as ba
from balance_analysis.cli.app import command
from balance_analysis.cli.formats import choose_format, one_header, print_summary, write_exact
from balance_analysis.cli.options import ExactFormat, RowsFile, TableFormat
from balance_analysis.cli.output import Messages
from balance_analysis.cli.selection import Selection


@command()
def summary(
    messages: Messages,
    selection: Selection,
    output: RowsFile = None,
    form: Annotated[
        TableFormat | None,
        typer.Option("--format", help="How to print or write; by default a table, or as FILE."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Accounts in a table, the most active first; 0 for all.")
    ] = 20,
) -> None:
    """Summarise the accounts of a file or archive: a row each, in smallest units, exact."""
    form = choose_format(form, output, source=selection.file, otherwise="table")
    rows = selection.read(messages, into=output)
    accounts = ba.summarize_accounts(rows.table, **selection.bounds, opening=rows.opening)
    if form == "table":
        print_summary(accounts, limit=limit)
        return
    write_exact(accounts, form, output)
    if output is not None:
        messages.say(f"{len(accounts):,} accounts: {output}")


@command()
def series(
    messages: Messages,
    selection: Selection,
    output: RowsFile = None,
    freq: Annotated[
        str | None,
        typer.Option(help="Distance of the points: 10min, 1h, 1D, MS ...; by default each change."),
    ] = None,
    layout: Annotated[
        Literal["long", "wide"],
        typer.Option(help="long: a row for each account and point; wide: a column an account."),
    ] = "long",
    form: Annotated[
        ExactFormat | None,
        typer.Option("--format", help="How to print or write; by default csv, or as FILE."),
    ] = None,
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
