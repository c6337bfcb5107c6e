"""The command line as a whole: its name, its help, and how it ends."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from balance_analysis import __version__

app = typer.Typer(
    name="balance-analysis",
    help="Load, keep, reconstruct and plot the history of account balances of a trading network.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage, 3 incomplete or stale, 4 source "
    "unavailable, 5 bad data, 74 disk full or failing, 75 locked, 76 another network, "
    "130 interrupted. Moments: 2023-04-01, 2023-04-01T12:00Z, 7d, now-1h; UTC. "
    "Durations: 90s, 10m, 2h, 7d.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SystemExit as end:
        # At an ordinary exit a request under way would be waited for until its timeout, and Arrow's
        # threads, if they still run then, now and then abort the process.
        if not isinstance(end.code, int) or not ({"pyarrow", "requests"} & sys.modules.keys()):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # whoever read has gone, or what it said already
                stream.flush()
        os._exit(end.code)
