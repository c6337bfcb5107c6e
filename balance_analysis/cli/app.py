"""The application: its help, the registration of commands, and its exit."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from balance_analysis import __version__
from balance_analysis.cli import options
from balance_analysis.cli.output import READER_LEFT, report_errors

ROWS: Final = "Show the contents of a file or an archive"
NODE: Final = "Query a node"
ARCHIVE: Final = "Fill, check and serve an archive"
PANELS: Final = (NODE, ARCHIVE, ROWS, "Try it")

Command = Callable[..., int | None]

COMMANDS: Final[dict[str, tuple[str, Command]]] = {}
"""The panel and the function of each command, by its name."""


class _Commands(TyperGroup):
    """The group of all commands, which builds only the one that runs.

    Help lists them in panels. typer can do that only with rich, which takes long to import.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**{**settings, "commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's own
        """Return a command, or `None` if there is none of that name."""
        return _build(cmd_name) if cmd_name in COMMANDS else None

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's own
        """Return the options: flags that are off by default, which typer needn't convert.

        It converts `None` with pydantic, which takes long to import.
        """
        options: list[Any] = super().get_params(ctx)
        for option in options:
            option.default = False
        return options

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        """Write one section per panel."""
        for panel in PANELS:
            rows = [
                (name, str(function.__doc__).partition("\n")[0])
                for name, (among, function) in COMMANDS.items()
                if among == panel
            ]
            with formatter.section(panel):
                formatter.write_dl(rows)


app: typer.Typer = typer.Typer(
    name="balance-analysis",
    cls=_Commands,
    help="Load, keep, reconstruct and plot the history of account balances of a trading network.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage, 3 incomplete or stale, 4 source "
    "unavailable, 5 bad data, 74 disk full or failing, 75 locked, 76 another network, "
    "130 interrupted, 141 broken pipe. Moments, in UTC: 2023-04-01, 2023-04-01T12:00Z, 7d, "
    "now-1h. Durations: 90s, 10m, 2h, 7d. Environment variables set options too: "
    "BALANCE_ANALYSIS_EXPORT_LAG=5m means `export --lag 5m`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "BALANCE_ANALYSIS",
    },
)


_VERBOSITY: Final = (
    Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=options.Verbose),
    Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=options.Quiet),
)
"""The options that every command has."""


def command(*, panel: str = ROWS) -> Callable[[Command], Command]:
    """Register a function as a command that reports errors in one line and sets the exit code.

    Help lists the command in one of `PANELS`. The function returns the exit code. A parameter whose
    type is a dataclass becomes one option per field; the options of verbosity follow.
    """

    def register(function: Command) -> Command:
        name = function.__name__.rstrip("_")  # `import` is a Python keyword
        COMMANDS[name] = panel, function
        return function

    return register


@functools.cache
def _build(name: str) -> Any:  # noqa: ANN401 - typer's own
    """Return typer's command of a name."""
    _, function = COMMANDS[name]
    own = signature(function).parameters.values()
    records: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}

    @functools.wraps(function)
    def run(*, verbose: int, quiet: bool, **values: Any) -> None:  # noqa: ANN401 - of any kind
        with report_errors(verbose=verbose, quiet=quiet):
            for key, record in records.items():
                values[key] = record(**{x.name: values.pop(x.name) for x in fields(record)})
            if code := function(**values):
                raise typer.Exit(code)

    parameters = [*(option for p in own for option in _options_of(p)), *_VERBOSITY]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in parameters}
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(run)
    return typer.main.get_command(single)


def _options_of(parameter: Parameter) -> list[Parameter]:
    kind: Any = parameter.annotation
    is_record = is_dataclass(parameter.annotation)
    own = signature(kind).parameters.values() if is_record else [parameter]
    return [option.replace(kind=Parameter.KEYWORD_ONLY) for option in own]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


_Version = typer.Option(
    "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
)


@app.callback()
def _root(*, version: Annotated[bool, _Version] = False) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # No command multiplies matrices, so numpy needs no threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A supervisor may have closed the streams, which are then None.
    sys.stdout, sys.stderr = (x or open(os.devnull, "w") for x in (sys.stdout, sys.stderr))  # noqa: PTH123, SIM115
    out = sys.stdout
    try:
        app()
    except SystemExit as end:
        # typer replaces the stream if its reader has closed it, as `| head` does.
        code = end.code if sys.stdout is out else READER_LEFT
        # An ordinary exit would wait for pending requests until their timeout, and Arrow threads
        # that still run then sometimes abort the process.
        if not isinstance(code, int) or not (
            code == READER_LEFT or {"pyarrow", "requests", "distributed"} & sys.modules.keys()
        ):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
