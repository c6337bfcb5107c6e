"""Commands that ask a node, or an embedded one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from balance_analysis.cli.options import (
    LimitsFormat,
    Quiet,
    Url,
    Verbose,
)
from balance_analysis.cli.output import say, told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.terminal import echo, plain, print_summary, printable
from balance_analysis.files.atomic import check_output


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo"),
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Do the main job on sample data: an embedded node, a load over HTTP, files, plots."""
    with told_errors(verbose, quiet):
        from balance_analysis.analysis.units import to_units
        from balance_analysis.demo import run_demo, sample_assets

        result = run_demo(out, say=say(quiet))
        echo(f"{result.status}\n")
        assets = sample_assets()
        decimals = {asset: int(about["decimals"]) for asset, about in assets.items()}
        names = {asset: str(about["symbol"]) for asset, about in assets.items()}
        print_summary(to_units(result.summary, decimals), limit=12, asset_names=names)
        say(quiet)("Wrote " + ", ".join(str(path) for path in result.files))


@app.command()
def limits(
    url: Url,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write JSON here as well.")
    ] = None,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Show the network's limits as they are now."""
    with told_errors(verbose, quiet):
        if output is not None:
            check_output(output, suffixes=("", ".json"))
        from balance_analysis.files.parquet import (
            limits_to_json,
            write_network_limits,
        )
        from balance_analysis.node.client import Client
        from balance_analysis.node.limits import load_network_limits

        with Client(url) as client:
            snapshot = load_network_limits(client)
        if output is not None:
            write_network_limits(snapshot, output)
        text = limits_to_json(snapshot)
        if form is LimitsFormat.table:
            content = json.loads(text)
            extra = {printable(name): value for name, value in content.pop("extra").items()}
            content = extra | content
            width = max(map(len, content))
            text = "".join(f"{name:{width}}  {plain(value)}\n" for name, value in content.items())
        echo(text, nl=False)


@app.command()
def doctor(
    url: Url,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Tell what a node does and where it misbehaves, in at most 40 requests."""
    with told_errors(verbose, quiet):
        from balance_analysis.node.client import Client
        from balance_analysis.node.doctor.checks import diagnose_node

        with Client(url) as client:
            report = diagnose_node(client)
        echo(report.to_json() if form is LimitsFormat.json else str(report))
