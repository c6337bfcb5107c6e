"""Commands on archives: fill one, look after it, prove it."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from balance_analysis.cli.dask import connected
from balance_analysis.cli.export import Export
from balance_analysis.cli.options import (
    AccountType,
    ArchiveUri,
    AssetId,
    LimitsFormat,
    LogFormat,
    MarketId,
    PartitionName,
    PartyId,
    Quiet,
    Rate,
    Verbose,
)
from balance_analysis.cli.output import BAD, PARTIAL, told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.terminal import echo
from balance_analysis.cli.times import parse_duration
from balance_analysis.files.atomic import check_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from balance_analysis.cli.settings import Value

Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A TOML file with [export.NAME]; then name that."),
]


@app.command()
def export(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL... ARCHIVE",
            help="A node's address, or several, and the archive; with --config its NAME.",
        ),
    ] = None,
    config: Config = None,
    since: Annotated[
        str | None,
        typer.Option(help="Start, where the archive begins later. [the oldest row]"),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="End, exclusive; by default now, less --lag.")
    ] = None,
    lag: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How far behind now to end. [1m]")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How much of the end to ask for again. [10m]"),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the last block of a stopped node must stay so. [10s]"
        ),
    ] = None,
    fill_gaps: Annotated[
        bool | None,
        typer.Option(
            "--fill-gaps/--no-fill-gaps", help="Ask for what is missing or unproven in between."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be asked for; write nothing.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Ask again for what `verify` finds damaged, or --since on."),
    ] = False,
    partition: Annotated[
        PartitionName | None,
        typer.Option(help="What a file holds, chosen by an archive's first run. [day]"),
    ] = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    page_size: Annotated[int | None, typer.Option(min=1, help="Rows a request. [5000]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Requests at once. [4]")] = None,
    max_requests_per_second: Rate = None,
    on_bad_rows: Annotated[
        str | None,
        typer.Option(metavar="quarantine|raise", help="What becomes of them. [quarantine]"),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask cluster to load on, as tcp://host:8786."),
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write figures for Prometheus here.")
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How to write to stderr. [text]")
    ] = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Bring an archive up to date with a node; the first run makes it."""
    with told_errors(verbose, quiet, interrupted=PARTIAL) as telling:
        telling.is_json = log_format is LogFormat.json
        options: dict[str, Any] = {
            "since": since,
            "until": until,
            "lag": lag,
            "overlap": overlap,
            "settle": settle,
            "fill_gaps": fill_gaps,
            "partition": None if partition is None else partition.value,
            "asset_id": asset_id,
            "party_id": party_id,
            "market_id": market_id,
            "account_type": account_type,
            "page_size": page_size,
            "workers": workers,
            "max_requests_per_second": max_requests_per_second,
            "on_bad_rows": on_bad_rows,
            "scheduler": scheduler,
            "metrics_file": metrics_file,
            "log_format": None if log_format is None else log_format.value,
        }
        settings = read_settings(targets or [], config, options)
        telling.is_json = settings["log_format"] == LogFormat.json.value
        if dry_run and repair:
            raise ValueError("--repair has no --dry-run; `verify` tells what it would mend")
        if scheduler is not None and (repair or dry_run):
            option = "--repair" if repair else "--dry-run"
            raise ValueError(f"{option} works without a cluster: leave --scheduler out")
        if settings["metrics_file"] is not None and not dry_run:
            folder = settings["archive"].removeprefix("file://")
            check_output(settings["metrics_file"], inputs=[config, folder])
        if repair:
            # A schedule's interval is not meant to be asked for anew whenever a file is mended.
            settings |= {"since": since, "until": until}
        Export(settings, telling).run(dry_run=dry_run, repair=repair)


@app.command()
def status(
    archive: ArchiveUri,
    max_age: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Exit 3 if what is complete ends longer ago."),
    ] = None,
    fail_on_gaps: Annotated[
        bool, typer.Option("--fail-on-gaps", help="Exit 3 if there is a gap or unproven part.")
    ] = False,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Tell what an archive holds, and where something is missing; exit 5 if files are."""
    with told_errors(verbose, quiet) as telling:
        oldest = None if max_age is None else parse_duration(max_age)
        from balance_analysis.archive.archive import Archive

        found = Archive(archive).status()
        echo(found.to_json() if form is LimitsFormat.json else str(found))
        if found.lost:
            telling.fail(
                f"{len(found.lost)} of its files are gone, or not as written; `verify` tells more",
                BAD,
            )
        if oldest is not None and found.is_older_than(oldest):
            telling.fail(f"what is complete ends more than {max_age} ago", PARTIAL)
        if fail_on_gaps and not found.complete:
            telling.fail("nothing of it is known to be complete", PARTIAL)
        if fail_on_gaps and found.holes:
            telling.fail(
                "something is missing or unproven in between; `export --fill-gaps` asks a node "
                "that still remembers it",
                PARTIAL,
            )


@app.command()
def verify(
    archive: ArchiveUri,
    against: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask this node again, and compare.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="How many windows to ask again with --against.")
    ] = 10,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask cluster to look on, as tcp://host:8786."),
    ] = None,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Prove that an archive is whole, or tell what is wrong and which command mends it."""
    with told_errors(verbose, quiet):
        from balance_analysis.archive.archive import Archive
        from balance_analysis.node.client import Client

        options: dict[str, Any] = {"sample": sample, "progress": sys.stderr.isatty() and not quiet}
        with contextlib.ExitStack() as stack:
            if against is not None:
                options["against"] = stack.enter_context(Client(against))
            there = stack.enter_context(connected(scheduler))
            if there is None:
                found = Archive(archive).verify(**options)
            else:
                from balance_analysis.cluster import verify as verify_there

                found = verify_there(Archive(archive), client=there, **options)
        echo(found.to_json() if form is LimitsFormat.json else str(found))
        if not found.is_whole:
            raise typer.Exit(BAD)


def resolve_settings(
    targets: list[str], config: Path | None, options: Mapping[str, object]
) -> dict[str, Value]:
    """Return the settings of an export, with where each comes from."""
    from balance_analysis.cli.settings import resolve

    if config is not None:
        if len(targets) > 1:
            raise ValueError(f"with --config, give its NAME alone, not {' '.join(targets)}")
        name = targets[0] if targets else None
        return resolve(options, environ=os.environ, config=config, name=name)
    if len(targets) == 1:
        raise ValueError("give URL... ARCHIVE, or --config FILE NAME")
    named = {"url": targets[:-1], "archive": targets[-1]} if targets else {}
    return resolve({**options, **named}, environ=os.environ)


def read_settings(
    targets: list[str], config: Path | None, options: Mapping[str, object]
) -> dict[str, Any]:
    """Return the settings of an export, which has a node and an archive."""
    values = resolve_settings(targets, config, options)
    settings = {name: value.value for name, value in values.items()}
    for name, example in (("url", "https://node.example.org"), ("archive", "a folder")):
        if not settings[name]:
            raise ValueError(f"the setting {name} is missing: {example}; see `export --help`")
    return settings
