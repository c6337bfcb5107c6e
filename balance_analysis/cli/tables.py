"""Commands that print or write tables of a file or an archive, every digit kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from balance_analysis.cli.formats import choose_format, one_header, write_exact
from balance_analysis.cli.options import (
    AccountType,
    AssetId,
    ExactFormat,
    MarketId,
    Partial,
    PartyId,
    Quiet,
    SeriesLayout,
    Since,
    Source,
    TableFormat,
    UntilLast,
    Verbose,
)
from balance_analysis.cli.output import say, told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.selection import make_selection
from balance_analysis.cli.terminal import print_summary
from balance_analysis.cli.times import interval

Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write it here: .csv, .json or .parquet. In CSV, text that a spreadsheet would run "
        "(it begins with =, +, -, @, a tab or a line break) has an apostrophe before it.",
    ),
]


@app.command()
def summary(
    file: Source,
    output: Output = None,
    since: Since = None,
    until: UntilLast = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    form: Annotated[
        TableFormat | None,
        typer.Option("--format", help="How to print or write; by default a table, or as FILE."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Accounts in a table, the most active first; 0 for all.")
    ] = 20,
    partial: Partial = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Summarise the accounts of a file or archive: a row each, in smallest units, exact."""
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        chosen = choose_format(form, output, source=file, otherwise=TableFormat.table)
        selection = make_selection(
            *(file, asset_id, party_id, market_id, account_type),
            start=start,
            end=end,
            partial=partial,
            say=say(quiet),
        )
        from balance_analysis.analysis.summary import summarize_accounts

        rows = selection.read(into=output)
        accounts = summarize_accounts(rows.table, start=start, end=end, opening=rows.opening)
        if chosen is TableFormat.table:
            print_summary(accounts, limit=limit)
            return
        write_exact(accounts, chosen, output)
        if output is not None:
            say(quiet)(f"{len(accounts):,} accounts: {output}")


@app.command()
def series(
    file: Source,
    output: Output = None,
    freq: Annotated[
        str | None,
        typer.Option(help="Distance of the points: 10min, 1h, 1D, MS ...; by default each change."),
    ] = None,
    layout: Annotated[
        SeriesLayout,
        typer.Option(help="long: a row for each account and point; wide: a column an account."),
    ] = SeriesLayout.long,
    since: Since = None,
    until: UntilLast = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    form: Annotated[
        ExactFormat | None,
        typer.Option("--format", help="How to print or write; by default csv, or as FILE."),
    ] = None,
    partial: Partial = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Tell what accounts held over time, every digit of it.

    In smallest units; where it is unknown, nothing stands.
    """
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        chosen = choose_format(form, output, source=file, otherwise=TableFormat.csv)
        selection = make_selection(
            *(file, asset_id, party_id, market_id, account_type),
            start=start,
            end=end,
            partial=partial,
            say=say(quiet),
        )
        from balance_analysis.analysis.balances import balance_series

        rows = selection.read(into=output)
        found = balance_series(
            rows.table, freq=freq, start=start, end=end, opening=rows.opening, layout=layout.value
        )
        if layout is SeriesLayout.wide:
            found = one_header(found)
        write_exact(found, chosen, output)
        if output is not None:
            say(quiet)(f"{len(found):,} rows: {output}")
