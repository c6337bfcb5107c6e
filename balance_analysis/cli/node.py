"""Commands that query a node; `demo` starts one of its own."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import NODE, command
from balance_analysis.cli.options import Option
from balance_analysis.cli.output import INCOMPLETE, echo, fail, print_record, say, shows_progress
from balance_analysis.cli.tables import SUMMARY, TableOptions
from balance_analysis.files.atomic import check_output
from balance_analysis.table.moments import range_text
from balance_analysis.table.text import count_text


@command(panel=NODE)
def fetch(
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
    """Load all balance changes of an interval into one Parquet file, as far as a node has them."""
    from balance_analysis.table.known import gaps_of

    check_output(output, suffixes=("", ".parquet", ".pq"))
    more = {**accounts.given(), **requests.sizes(), "progress": shows_progress()}
    with requests.client(url) as client:
        loaded = ba.load_to_parquet(client, output, start=since, end=until, opening=opening, **more)
    span = dt.datetime.fromisoformat(loaded["start"]), dt.datetime.fromisoformat(loaded["end"])
    cost = count_text(loaded["requests"], "request")
    say(f"{loaded['rows']:,} rows from {range_text(*span)} in {cost}: {output}")
    if not loaded["rows"]:
        say("No row matches; the file has an empty table")
    if gaps_of(loaded):
        fail(f"{output} is incomplete: the node may lack rows of the interval", INCOMPLETE)


@command(panel=NODE)
def limits(
    url: options.Url,
    output: Annotated[Path | None, options.output_option("JSON file for the limits.")] = None,
    form: options.PrintFormat = "table",
) -> None:
    """Show the network's current limits."""
    if output is not None:
        check_output(output, suffixes=("", ".json"))
    with options.client_of(url) as client:
        snapshot = ba.load_network_limits(client)
    if output is not None:
        ba.write_network_limits(snapshot, output)
        say(f"Wrote {output}")
    print_record(snapshot, form)


@command(panel=NODE)
def doctor(url: options.Url, form: options.PrintFormat = "table") -> None:
    """Check with about 20 requests whether a node can be trusted."""
    with options.client_of(url) as client:
        print_record(ba.diagnose_node(client), form)


@command(panel="Try it")
def demo(out: Annotated[Path, Option(help="Folder for the files.")] = Path("demo")) -> None:
    """Try the package on sample data: an embedded node, a load over HTTP, files and plots."""
    from balance_analysis.demo import run_demo
    from balance_analysis.table.names import names_of

    archive = run_demo(out, say=say)
    echo(f"{archive.status()}\n")
    accounts = ba.summarize_accounts(archive).sort_values("rows", ascending=False, kind="stable")
    TableOptions(limit=12).show(accounts, "table", SUMMARY, names=names_of(accounts))
    for words in (("serve", archive.uri, "--open"), ("report", archive.uri, "-o", "report.html")):
        say(f"Open next: {options.command_line(*words)}")
