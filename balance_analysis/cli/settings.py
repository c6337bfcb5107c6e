"""The settings of an export, and the command that tells them.

They come from options, then from the environment, then from a TOML file.

What nobody reads is refused: a misspelt setting would otherwise be as good as none.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer import Argument, Option

from balance_analysis import defaults
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, FILE, Command, UsageError, app, command, origin
from balance_analysis.cli.output import Messages, echo, print_table
from balance_analysis.text import without_credentials

PREFIX: Final = "BALANCE_ANALYSIS_"
TABLE: Final = "export"

ConfigFile = Annotated[
    Path | None,
    Option(metavar="FILE", help="A TOML file of settings, as [export.NAME]; then give NAME."),
]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(options.FillOptions, options.RequestOptions, options.AccountOptions):
    """The options that are settings too."""

    url: Annotated[options.Texts, Option(hidden=True)] = None
    archive: Annotated[options.Text, Option(hidden=True)] = None
    since: Annotated[
        options.Text, Option(help="Start, if the archive begins later; by default the oldest row.")
    ] = None
    until: Annotated[options.Text, Option(help="End, exclusive; by default now, less --lag.")] = (
        None
    )
    lag: Annotated[str, options.duration_option("How far behind the present to stop.")] = (
        defaults.LAG
    )
    overlap: Annotated[str, options.duration_option("How much of the end to request again.")] = (
        defaults.OVERLAP
    )
    fill_gaps: Annotated[bool, Option(help="Request what is missing or unproven.")] = False
    confirm: Annotated[
        int | None,
        Option(min=2, max=2, metavar="2", help="Confirm what isn't yet by the last URL."),
    ] = None
    max_age: options.MaxAge = None
    metrics_file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            callback=options.expanded,
            help="Write metrics for Prometheus to this file.",
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"], Option(is_eager=True, help="Format of the lines on stderr.")
    ] = "text"


class ExportCommand(Command):
    """A command that reads `ExportOptions` from the environment and a TOML file as well."""

    def __init__(self, *args: Any, **how: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(*args, **how)
        names = {field.name for field in fields(ExportOptions)}
        self.settings: dict[str, Any] = {p.name: p for p in self.params if p.name in names}
        for name, option in self.settings.items():
            option.show_envvar = option.envvar is not None
            option.envvar = f"{PREFIX}{name.upper()}"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        """Read the options and arguments, and what they leave open from elsewhere."""
        given, *_ = self.make_parser(ctx).parse_args(args=[*args])
        try:
            self._check_variables()
            if (config := given.get("config")) is not None:
                ctx.meta[FILE], table = _read_table(Path(config), given.get("targets") or [])
                ctx.default_map = {
                    name: self._as_variable(f"{ctx.meta[FILE]} {name}", name, value)
                    for name, value in table.items()
                }
        except ValueError as error:
            raise UsageError(str(error), ctx) from error
        except OSError as error:
            raise UsageError(f"{config}: {error.strerror}", ctx) from error
        return super().parse_args(ctx, args)

    def _check_variables(self) -> None:
        for name, value in os.environ.items():
            if name.startswith(PREFIX) and value:
                self._check_known(f"environment: {name}", name.removeprefix(PREFIX).lower())

    def _check_known(self, where: str, name: str) -> None:
        if name not in self.settings:
            raise ValueError(
                f"{where} is not a setting; the settings are {', '.join(self.settings)}"
            )

    def _as_variable(self, where: str, name: str, value: Any) -> str | list[str]:  # noqa: ANN401 - of TOML
        """Return a value of TOML as click takes it: as text, or several of that."""
        self._check_known(where, name)
        is_list = isinstance(value, list)
        if self.settings[name].multiple:
            return [str(each) for each in (value if is_list else str(value).split())]
        if is_list:
            raise ValueError(f"{where}: one value a section, not a list; make a section for each")
        return value.isoformat() if isinstance(value, dt.date) else str(value)


def _read_table(config: Path, names: list[str]) -> tuple[str, dict[str, Any]]:
    """Return one `[export.NAME]` of a file, behind how messages call it."""
    if len(names) > 1:
        raise ValueError(f"with --config, give its NAME alone, not {' '.join(names)}")
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{config} is not TOML: {error}") from error
    tables = content.pop(TABLE, None)
    settings = tables.values() if isinstance(tables, dict) else [None]
    if content or not all(isinstance(each, dict) for each in settings):
        raise ValueError(f"{config}: settings stand under [{TABLE}.NAME], and nowhere else")
    name = next(iter(names or tables)) if names or len(tables) == 1 else None
    if name not in tables:
        asked = "" if name is None else f" no [{TABLE}.{name}], but"
        raise ValueError(f"{config} has{asked} {', '.join(tables) or 'nothing'}: name one of them")
    table = {key.replace("-", "_"): value for key, value in tables[name].items()}
    return f"{config} [{TABLE}.{name}]", table


_config = typer.Typer(help="Show the settings of `export`.", no_args_is_help=True)
app.add_typer(_config, name="config", rich_help_panel=ARCHIVE)


@command(_config)
def show(
    messages: Messages,
    context: typer.Context,
    name: Annotated[
        options.Text, Argument(metavar="NAME", help="Which [export.NAME] of FILE.")
    ] = None,
    config: ConfigFile = None,
    form: options.PrintFormat = "table",
) -> None:
    """Show each setting of `export` and where it comes from, without credentials."""
    if name is not None and config is None:
        raise ValueError(f"--config FILE is missing, which has [export.{name}]")
    root: Any = context.find_root()
    arguments = [] if config is None else [f"--config={config}"]
    arguments += [] if name is None else [name]
    with root.command.commands["export"].make_context("export", arguments, parent=root) as found:
        held = found.command.settings.items()
        values = {each: _shown(found.params[each]) for each, _ in held}
        origins = {each: origin(found, option) for each, option in held}
    if form == "json":
        content = {each: {"value": values[each], "from": origins[each]} for each in values}
        echo(json.dumps(content, indent=2))
        return
    columns = {"setting": [*values], "value": [*values.values()], "from": [*origins.values()]}
    print_table(columns, left=columns)


def _shown(value: object) -> str:
    """Return a setting's value as it can be given, credentials aside."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(map(without_credentials, value))
    text = str(value)
    return without_credentials(text.lower() if isinstance(value, bool) else text)
