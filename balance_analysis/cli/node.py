"""Commands that ask a node, or an embedded one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

from typer import Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import NODE, command
from balance_analysis.cli.output import INCOMPLETE, Messages, echo, print_frame, print_record
from balance_analysis.cli.tables import SUMMARY
from balance_analysis.files.atomic import check_output
from balance_analysis.text import count_text, range_text


@command(panel=NODE)
def fetch(
    messages: Messages,
    url: options.Urls,
    output: Annotated[Path, options.output_option("The .parquet file to write.")],
    accounts: options.AccountOptions,
    requests: options.RequestOptions,
    since: options.Since = None,
    until: options.Until = None,
    opening: Annotated[
        bool, Option("--opening", help="Add each account's last row before --since.")
    ] = False,
) -> None:
    """Load all balance changes of an interval into one Parquet file, complete or not at all."""
    for each in url:
        options.check_is("node", each)
    check_output(output, suffixes=("", ".parquet", ".pq"))
    from balance_analysis.known import gaps_of

    with requests.client(url) as client:
        loaded = ba.load_to_parquet(
            client,
            output,
            start=since,
            end=until,
            opening=opening,
            **accounts.given(),
            **requests.sizes(),
            progress=messages.shows_progress,
        )
    asked = dt.datetime.fromisoformat(loaded["start"]), dt.datetime.fromisoformat(loaded["end"])
    messages.say(
        f"{loaded['rows']:,} rows from {range_text(*asked)} in "
        f"{count_text(loaded['requests'], 'request')}: {output}"
    )
    if not loaded["rows"]:
        messages.say("No row matches; the file holds an empty table")
    if gaps_of(loaded):
        messages.fail(
            f"{output} is incomplete: the node doesn't know all of the interval", INCOMPLETE
        )


@command(panel=NODE)
def limits(
    messages: Messages,
    url: options.Url,
    output: Annotated[
        Path | None, options.output_option("Write them to this JSON file as well.")
    ] = None,
    form: options.PrintFormat = "table",
) -> None:
    """Show the network's limits as they are now."""
    options.check_is("node", url)
    if output is not None:
        check_output(output, suffixes=("", ".json"))
    with ba.Client(url) as client:
        snapshot = ba.load_network_limits(client)
    if output is not None:
        ba.write_network_limits(snapshot, output)
    print_record(snapshot, form)
    if output is not None:
        messages.say(f"The limits: {output}")


@command(panel=NODE)
def doctor(
    messages: Messages,
    url: options.Url,
    form: options.PrintFormat = "table",
) -> None:
    """Check whether a node can be trusted, in some 20 requests."""
    options.check_is("node", url)
    with ba.Client(url) as client:
        print_record(ba.diagnose_node(client), form)


@command(panel="Try it")
def demo(
    messages: Messages,
    out: Annotated[Path, Option(help="Folder for the files.")] = Path("demo"),
) -> None:
    """Try the main job on sample data: an embedded node, a load over HTTP, files and plots."""
    from balance_analysis.demo import run_demo
    from balance_analysis.names import names_of

    archive = run_demo(out, say=messages.say)
    echo(f"{archive.status()}\n")
    accounts = ba.summarize_accounts(archive).sort_values("rows", ascending=False, kind="stable")
    print_frame(accounts.head(12), total=len(accounts), first=SUMMARY, names=names_of(accounts))
    for words in (("serve", archive.uri, "--open"), ("report", archive.uri, "-o", "report.html")):
        messages.say(f"Open next: {options.command_line(*words)}")
