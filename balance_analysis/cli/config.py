"""Tell which settings hold, and why."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from balance_analysis.cli.archive import Config, resolve_settings
from balance_analysis.cli.options import LimitsFormat
from balance_analysis.cli.output import told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.terminal import aligned, echo

config = typer.Typer(help="Tell which settings hold, and why.", no_args_is_help=True)
app.add_typer(config, name="config")


@config.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which [export.NAME] of the file.")
    ] = None,
    config: Config = None,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
) -> None:
    """Tell each setting of `export` and where it comes from; credentials are not shown."""
    with told_errors(0, quiet=False):
        if name is not None and config is None:
            raise ValueError(f"--config FILE is missing, which has [export.{name}]")
        values = resolve_settings([] if name is None else [name], config, {})
        shown = {key: (value.shown(), value.origin) for key, value in values.items()}
        if form is LimitsFormat.json:
            content = {
                key: {"value": value, "from": origin} for key, (value, origin) in shown.items()
            }
            echo(json.dumps(content, indent=2))
            return
        columns = {
            "setting": list(shown),
            "value": [value for value, _ in shown.values()],
            "from": [origin for _, origin in shown.values()],
        }
        for line in aligned(columns, left=set(columns)):
            echo(line)
