"""Fetch balance changes into a single file."""

# ruff: noqa: TC001, TC003 - typer reads the annotations of a command when it runs

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balance_analysis.cli.options import (
    AccountType,
    AssetId,
    MarketId,
    PartyId,
    Quiet,
    Rate,
    Since,
    Until,
    Urls,
    Verbose,
)
from balance_analysis.cli.output import PARTIAL, say, told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.times import interval
from balance_analysis.errors import BalanceAnalysisError
from balance_analysis.files.atomic import check_output
from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@app.command()
def fetch(
    url: Urls,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="To write, .parquet.")
    ],
    since: Since = None,
    until: Until = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    page_size: Annotated[int, typer.Option(min=1, help="Rows a request.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 4,
    max_requests_per_second: Rate = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted fetch to FILE stood.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Load all balance changes of an interval into one Parquet file, complete or not at all."""
    with told_errors(verbose, quiet) as telling:
        start, end = interval(since, until)
        check_output(output, suffixes=("", ".parquet", ".pq"))
        from balance_analysis.known import lacking
        from balance_analysis.load.to_parquet import load_to_parquet, partial_path
        from balance_analysis.node.client import Client

        side = partial_path(output)
        check_output(side)
        if side.exists() and not resume:
            say(quiet)(f"{side} holds a part of an earlier fetch; --resume would go on with it")
        with (
            Client(url, max_requests_per_second=max_requests_per_second) as client,
            told_part(side, quiet),
        ):
            loaded = load_to_parquet(
                client,
                output,
                start=start,
                end=end,
                asset_id=asset_id,
                party_ids=party_id or (),
                market_ids=market_id or (),
                account_types=account_type or (),
                page_size=page_size,
                workers=workers,
                progress=sys.stderr.isatty() and not quiet,
                resume=resume,
            )
        rows, requests = loaded["rows"], loaded["requests"]
        say(quiet)(
            f"{rows:,} rows from {loaded['start']} to {loaded['end']} in "
            f"{count_text(requests, 'request')}: {output}"
        )
        if not rows:
            say(quiet)("No row matches; the file holds an empty table")
        if lacking(loaded):
            telling.fail(
                f"{output} holds what there is, but not all of what was asked for is known", PARTIAL
            )


@contextlib.contextmanager
def told_part(side: Path, quiet: bool) -> Iterator[None]:
    """Say after a failure where what is complete has been kept."""
    before = side.stat().st_mtime_ns if side.exists() else None
    try:
        yield
    except (KeyboardInterrupt, BalanceAnalysisError):
        if side.exists() and side.stat().st_mtime_ns != before:
            say(quiet)(f"What is complete stands in {side}; go on with --resume")
        raise
