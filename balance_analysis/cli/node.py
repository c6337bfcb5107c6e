"""Commands that ask a node, or an embedded one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import NODE, command
from balance_analysis.cli.listing import SUMMARY, print_accounts
from balance_analysis.cli.output import PARTIAL, Messages, echo, print_record
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
    import pyarrow as pa

    from balance_analysis.known import gaps_of

    # It gives back at once what a page took: a sixth less memory for the same processor time.
    pa.set_memory_pool(pa.system_memory_pool())
    with requests.client(url) as client:
        loaded = ba.load_to_parquet(
            client,
            output,
            start=since,
            end=until,
            opening=opening,
            **accounts.named(),
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
        messages.fail(f"{output} is incomplete: the node doesn't know all of the interval", PARTIAL)


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
    from balance_analysis.demo import run_demo, sample_assets
    from balance_analysis.names import Names

    result = run_demo(out, say=messages.say)
    echo(f"{result.status}\n")
    print_accounts(result.summary, SUMMARY, limit=12, names=Names(sample_assets()))
    messages.say("Wrote " + ", ".join(str(path) for path in result.files))
    messages.say("\nOpen next:\n" + "\n".join(f"  {line}" for line in _next_steps(out)))


def _next_steps(out: Path) -> Iterator[str]:
    """Yield what to open and to type after a demo, as it can be copied into this shell."""
    from balance_analysis.demo import sample_data

    archive, page, picture = (str(out / name) for name in ("archive", "report.html", "totals.png"))
    yield f"{out / 'balances-tUSD.png'}, a picture, and those beside it"
    yield f"{options.command_line('explore', archive)}    # all of it in the browser, until Ctrl-C"
    yield f"{options.command_line('report', archive, '-o', page)}    # the same as a file"
    totals = ("--kind", "totals", "--asset-id", "tUSD", "-o", picture)
    yield options.command_line("plot", archive, *totals)
    notebook = sample_data().parent / "notebooks" / "01_quickstart.ipynb"
    if notebook.is_file():
        yield f"{notebook}, the first of the notebooks"
