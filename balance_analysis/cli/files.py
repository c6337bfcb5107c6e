"""Commands on single files: fetch one, look at one, or at an archive in the same way."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balance_analysis.archive.credentials import without_credentials
from balance_analysis.cli.moments import check_writable, interval
from balance_analysis.cli.options import (
    AccountType,
    AssetId,
    MarketId,
    Partial,
    PartyId,
    Quiet,
    Since,
    Source,
    TableFormat,
    Until,
    Urls,
    Verbose,
)
from balance_analysis.cli.printing import print_exact, print_summary
from balance_analysis.cli.root import app
from balance_analysis.cli.telling import say, told_errors
from balance_analysis.errors import BalanceAnalysisError, IncompleteError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    import pandas as pd

    from balance_analysis.node.query import Filters


@app.command()
def fetch(
    url: Urls,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="To write.")],
    since: Since = None,
    until: Until = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    page_size: Annotated[int, typer.Option(min=1, help="Rows a request.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 4,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted fetch to FILE stood.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Load all balance changes of an interval into one Parquet file, complete or not at all."""
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        check_writable(output)
        from balance_analysis.archive.download import load_to_parquet, partial_path
        from balance_analysis.node.client import Client

        side = partial_path(output)
        if side.exists() and not resume:
            say(quiet)(f"{side} holds a part of an earlier fetch; --resume would go on with it")
        with Client(url) as client, told_part(side, quiet):
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
            f"{rows:,} rows from {loaded['start']} to {loaded['end']} in {requests} "
            f"request{'' if requests == 1 else 's'}: {output}"
        )
        if not rows:
            say(quiet)("No row matches; the file holds an empty table")


@app.command()
def summary(
    file: Source,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(help="End, exclusive; by default the last row.")
    ] = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    form: Annotated[
        TableFormat, typer.Option("--format", help="How to print.")
    ] = TableFormat.table,
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
        from balance_analysis.analysis.summary import summarize_accounts

        table = read(
            file,
            asset_id,
            party_id,
            market_id,
            account_type,
            start=start,
            end=end,
            partial=partial,
        )
        accounts = summarize_accounts(table, start=start, end=end)
        if form is TableFormat.table:
            print_summary(accounts, limit=limit)
        else:
            print_exact(accounts, form)


@app.command()
def plot(
    file: Source,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PNG", help="To write.")],
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(help="End, exclusive; by default the last row.")
    ] = None,
    asset_id: Annotated[
        str | None, typer.Option(help="The asset; by default the one with most rows.")
    ] = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    decimals: Annotated[
        int | None, typer.Option(min=0, help="The asset's decimals, to draw whole units.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="What a whole unit is called.")] = None,
    partial: Partial = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Plot the balances of the accounts of one asset, as steps, to a PNG, SVG or PDF file."""
    with told_errors(verbose, quiet):
        start, end = interval(since, until)
        picture_kind(output)
        check_writable(output)
        table = read(
            file,
            asset_id,
            party_id,
            market_id,
            account_type,
            start=start,
            end=end,
            partial=partial,
        )
        if asset_id is None and not table.empty:
            asset_id = str(table["asset_id"].value_counts().idxmax())
            table = table[table["asset_id"] == asset_id]
            say(quiet)(f"Asset {asset_id}, which has most rows; choose with --asset-id")
        save_plot(table, output, start=start, end=end, decimals=decimals, unit=unit)
        say(quiet)(f"Wrote {output}")


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


def read(
    source: str,
    asset_id: str | None,
    party_ids: list[str] | None,
    market_ids: list[str] | None,
    account_types: list[str] | None,
    *,
    start: dt.datetime | str | None,
    end: dt.datetime | str | None,
    partial: bool,
) -> pd.DataFrame:
    """Return the rows of a file or an archive that the filters leave.

    Of an archive, those of the interval, and where it begins later than the archive the last row
    before it of each account.
    """
    from balance_analysis.archive.files import read_parquet
    from balance_analysis.node.query import make_filters

    filters = make_filters(
        asset_id=asset_id,
        party_ids=party_ids or (),
        market_ids=market_ids or (),
        account_types=account_types or (),
    )
    if is_archive(source):
        selected = _read_archive(source, filters, start=start, end=end, partial=partial)
        is_empty = False
    else:
        table = read_parquet(source)
        selected, is_empty = filters.select(table), table.empty
    if selected.empty and not is_empty:
        typer.echo(f"No row of {without_credentials(source)} matches the filters", err=True)
    return selected


def is_archive(source: str) -> bool:
    """Whether a source of rows is an archive, not a file."""
    return "://" in source or Path(source).is_dir()


def _read_archive(
    uri: str,
    filters: Filters,
    *,
    start: dt.datetime | str | None,
    end: dt.datetime | str | None,
    partial: bool,
) -> pd.DataFrame:
    import pyarrow as pa

    from balance_analysis.archive.archive import Archive
    from balance_analysis.frame import to_arrow, to_frame
    from balance_analysis.rows import canonical
    from balance_analysis.schema import from_microseconds, to_microseconds

    archive, wanted = Archive(uri), asdict(filters)
    table = archive.read(start=start, end=end, partial=partial, **wanted)
    if start is None:
        return table
    before = from_microseconds(to_microseconds(start) - 1)
    try:
        opening = archive.balance_at(before, **wanted)
    except IncompleteError:
        return table  # what accounts held before is unknown, and shown so
    opening = opening.rename(columns={"since": "timestamp"})[list(table.columns)]
    return to_frame(canonical(pa.concat_tables([to_arrow(opening), to_arrow(table)])))


def picture_kind(output: Path) -> str:
    """Return which kind of picture a file's name asks for."""
    kind = output.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"{output}: name a .png, .svg or .pdf file")
    return kind


def save_plot(
    table: pd.DataFrame,
    output: Path,
    *,
    start: dt.datetime | str | None,
    end: dt.datetime | str | None,
    decimals: int | None,
    unit: str | None,
) -> None:
    """Draw the balances of a table to a file."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import date2num

    from balance_analysis.archive.writing import replacing
    from balance_analysis.figures.plots import plot_balances
    from balance_analysis.schema import from_microseconds, to_microseconds

    figure, ax = plt.subplots(figsize=(10, 4.5), layout="constrained")
    plot_balances(table, ax=ax, decimals=decimals, unit=unit, end=end)
    for side, bound in (("left", start), ("right", end)):
        if bound is not None:
            ax.set_xlim(**{side: date2num(from_microseconds(to_microseconds(bound)))})  # type: ignore[no-untyped-call]
    with replacing(output) as temporary:
        figure.savefig(temporary, format=picture_kind(output), dpi=150)
    plt.close(figure)
