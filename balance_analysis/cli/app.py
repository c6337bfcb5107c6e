"""The command line as a whole: its name, its help, how commands are made, and how it ends."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from balance_analysis import __version__
from balance_analysis.cli.output import READER_LEFT, report_errors

ROWS: Final = "Look at what a file or an archive holds"
NODE: Final = "Ask a node"
ARCHIVE: Final = "Fill, check and serve an archive"
PANELS: Final = (NODE, ARCHIVE, ROWS, "Try it")


class _Grouped(TyperGroup):
    """A group whose help lists its commands by what they are about.

    typer does that with rich alone, which takes as long to import as all the rest.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        """Write a section for each panel."""
        for panel in PANELS:
            rows = [
                (name, each.get_short_help_str(limit=200))
                for name, each in self.commands.items()
                if isinstance(each, TyperCommand) and each.rich_help_panel == panel
            ]
            with formatter.section(panel):
                formatter.write_dl(rows)


app: typer.Typer = typer.Typer(
    name="balance-analysis",
    cls=_Grouped,
    help="Load, keep, reconstruct and plot the history of account balances of a trading network.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage, 3 incomplete or stale, 4 source "
    "unavailable, 5 bad data, 74 disk full or failing, 75 locked, 76 another network, "
    "130 interrupted, 141 the reader of the output left. Moments: 2023-04-01, "
    "2023-04-01T12:00Z, 7d, now-1h; UTC. Durations: 90s, 10m, 2h, 7d. An option may be set by "
    "the environment: BALANCE_ANALYSIS_EXPORT_LAG=5m for `export --lag 5m`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "BALANCE_ANALYSIS",
    },
)


@dataclass(frozen=True, kw_only=True)
class Verbosity:
    """The options that every command has."""

    verbose: Annotated[
        int,
        Option(
            "-v",
            "--verbose",
            count=True,
            show_default=False,
            help="Say more; -vv says every request.",
        ),
    ] = 0
    quiet: Annotated[bool, Option("-q", "--quiet", help="Say nothing but errors.")] = False


def command(*, panel: str = ROWS) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a function a command, which reports errors in one line and ends as documented.

    Help lists it in one of `PANELS`. The function's first parameter is how it writes messages, and
    what it returns is the exit code. A parameter whose type is a dataclass stands for the options
    that are its fields; those of `Verbosity` follow.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        _, *own = signature(function, eval_str=True).parameters.values()
        groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}

        @functools.wraps(function)
        def run(*, verbose: int, quiet: bool, **options: Any) -> None:  # noqa: ANN401 - of any kind
            with report_errors(verbose, quiet=quiet) as messages:
                for name, record in groups.items():
                    options[name] = record(**{x.name: options.pop(x.name) for x in fields(record)})
                if code := function(messages, **options):
                    raise typer.Exit(code)

        parameters = [each for p in own for each in _options_of(p)]
        parameters += _fields_as_options(Verbosity)
        for each in parameters:
            for option in getattr(each.annotation, "__metadata__", ()):
                option.show_envvar = bool(option.envvar)  # every option has one; help says so once
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__name__ = function.__name__.rstrip("_")  # `import` is a word of Python's
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(rich_help_panel=panel)(run)
        return run

    return register


def _options_of(parameter: Parameter) -> list[Parameter]:
    if is_dataclass(parameter.annotation):
        return _fields_as_options(parameter.annotation)
    return [parameter.replace(kind=Parameter.KEYWORD_ONLY)]


def _fields_as_options(kind: Any) -> list[Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    own = signature(kind).parameters
    return [each.replace(annotation=hints[name]) for name, each in own.items()]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # Nothing here multiplies matrices: numpy needs no threads for that. Imports make many objects
    # and no garbage.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000)
    out = sys.stdout
    try:
        app()
    except SystemExit as end:
        # typer has put another stream there if whoever read it has gone, as `| head` does.
        code = end.code if sys.stdout is out else READER_LEFT
        # At an ordinary exit a request under way would be waited for until its timeout, and Arrow's
        # threads, if they still run then, now and then abort the process.
        if not isinstance(code, int) or not (
            code == READER_LEFT or {"pyarrow", "requests", "distributed"} & sys.modules.keys()
        ):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
