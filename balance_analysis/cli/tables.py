"""Commands that print or write tables of a file or an archive, every digit kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

import balance_analysis as ba
from balance_analysis.cli.app import command
from balance_analysis.cli.formats import choose_format, one_header, print_summary, write_exact
from balance_analysis.cli.options import ExactFormat, TableFormat, Text, form_option, output_option
from balance_analysis.cli.output import Messages
from balance_analysis.cli.selection import Selection

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
