"""Commands that make something to look at: a picture, or a page."""

# ruff: noqa: TC003 - typer reads the annotations of a command when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from balance_analysis.cli.options import (
    AccountType,
    AssetId,
    MarketId,
    Partial,
    PartyId,
    PictureKind,
    Quiet,
    Since,
    Source,
    UntilLast,
    Verbose,
)
from balance_analysis.cli.output import say, told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.selection import make_selection
from balance_analysis.cli.times import interval
from balance_analysis.files.atomic import check_output


@app.command()
def plot(
    file: Source,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="To write: .png, .svg or .pdf.")
    ],
    kind: Annotated[PictureKind, typer.Option(help="What to show.")] = PictureKind.balances,
    since: Since = None,
    until: UntilLast = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    freq: Annotated[
        str | None,
        typer.Option(
            help="Period of flows, totals or the largest holders (concentration), such as 1h, 1D, "
            "MS; of activity 1h for hours of the week."
        ),
    ] = None,
    decimals: Annotated[
        int | None, typer.Option(min=0, help="The asset's decimals, to draw whole units.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="What a whole unit is called.")] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Light on dark.")] = False,
    partial: Partial = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Draw a picture of a file or an archive.

    What the options leave open is chosen, and said.
    """
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        check_output(output, inputs=[file], suffixes=(".png", ".svg", ".pdf"))
        selection = make_selection(
            *(file, asset_id, party_id, market_id, account_type),
            start=start,
            end=end,
            partial=partial,
            say=say(quiet),
        )
        from balance_analysis.cli.draw import Picture, draw_picture

        picture = Picture(
            kind=kind, selection=selection, freq=freq, decimals=decimals, unit=unit, dark=dark
        )
        picture.check()
        draw_picture(picture, output, form=output.suffix[1:].lower())
        say(quiet)(f"Wrote {output}")


@app.command()
def report(
    file: Source,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write, .html.")
    ],
    since: Since = None,
    until: UntilLast = None,
    largest: Annotated[
        int, typer.Option(min=0, help="How many accounts of each asset have their own section.")
    ] = 10,
    party_id: Annotated[
        list[str] | None,
        typer.Option(
            "--party-id",
            "--party",
            metavar="ID",
            help="Give this party's accounts the sections instead; repeatable.",
        ),
    ] = None,
    assets: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="What a whole unit of each asset is: [ID] with decimals = 18, symbol = 'VOTE'.",
        ),
    ] = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Write a page on what a file or an archive holds.

    It tells how complete that is, and needs no network.
    """
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        check_output(output, inputs=[file, assets], suffixes=(".html", ".htm"))
        from balance_analysis.report.report import write_report

        selection = make_selection(
            *(file, None, party_id, None, None),
            start=start,
            end=end,
            partial=True,
            say=say(quiet),
        )
        write_report(
            selection.whole(),
            output,
            start=start,
            end=end,
            accounts=selection.accounts() if party_id else (),
            largest=largest,
            decimals=assets,
        )
        say(quiet)(f"Wrote {output}")
