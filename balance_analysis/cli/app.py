"""The command line as a whole: its name, its help, how commands are made, and how it ends."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from balance_analysis import __version__
from balance_analysis.cli.output import READER_LEFT, Messages, telling_errors

ROWS: Final = "Look at what a file or an archive holds"
NODE: Final = "Ask a node"
ARCHIVE: Final = "Fill, check and serve an archive"
PANELS: Final = (NODE, ARCHIVE, ROWS, "Try it")


UsageError: Final[Any] = typer.BadParameter.__bases__[0]
"""typer has no public name for it."""

FILE: Final = f"{__name__}.file"
"""Where a context tells which table of which file its `default_map` is."""

_PLAIN: Final = {
    "^Invalid value for '([^']+)'.*: Input should be ([^,]+).*": r"\1 must be \2",
    "^Invalid value for '([^']+)'[^:]*: (?:Value error, )?": r"\1: ",
}
"""What typer says, and how a person says it."""


@contextlib.contextmanager
def _telling_slips() -> Iterator[None]:
    """Tell an option or argument that can't be used in one line."""
    try:
        yield
    except UsageError as error:
        slip: Any = error
        option: Any = getattr(slip, "param", None)
        context = slip.ctx
        if getattr(option, "envvar", None):
            where = origin(context, option)
            slip.param_hint = f"'{where} {option.name}'" if "[" in where else f"'{where}'"
        said = slip.format_message().rstrip(".")
        if "\n" in said:  # the help, where nothing is asked for
            raise
        for pattern, plain in _PLAIN.items():
            said = re.sub(pattern, plain, said)
        messages = Messages(quiet=False)
        if context is not None:
            said += f" (`{context.command_path} --help` tells more)"
            messages.is_json = context.params.get("log_format") == "json"
        messages.fail(said, slip.exit_code)


def origin(context: Any, option: Any) -> str:  # noqa: ANN401 - typer's own
    """Return where an option has its value from: typed, a variable, a file, or "default"."""
    source = context.get_parameter_source(option.name)
    name: str = max(option.opts, key=len)
    found = {
        "COMMANDLINE": f"option {name}",
        "ENVIRONMENT": f"environment {option.envvar}",
        "DEFAULT_MAP": context.meta.get(FILE),
    }
    return found.get(source.name if source else "") or "default"


class Command(TyperCommand):
    """A command that refuses two values of an option that has one: the first would be lost."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        """Read the options and arguments."""
        *_, order = self.make_parser(ctx).parse_args(args=[*args])
        for option in order:
            twice: Any = option if order.count(option) > 1 else None
            if twice and not (twice.multiple or twice.is_flag or twice.count):
                name = max(twice.opts, key=len)
                raise UsageError(f"{name} is given twice; it takes one value", ctx)
        return super().parse_args(ctx, args)


class _Grouped(TyperGroup):
    """A group whose help lists its commands by what they are about, and slips take one line.

    typer does that with rich alone, which takes as long to import as all the rest.
    """

    def make_context(self, *args: Any, **how: Any) -> Any:  # noqa: ANN401 - typer's own
        """Read what stands before the command."""
        with _telling_slips():
            return super().make_context(*args, **how)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        """Run the command."""
        with _telling_slips():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        """Write a section for each panel."""
        for panel in PANELS:
            rows = [
                (name, each.get_short_help_str(limit=200))
                for name, each in self.commands.items()
                if isinstance(each, TyperCommand | TyperGroup) and each.rich_help_panel == panel
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
    "2023-04-01T12:00Z, 7d, now-1h; UTC. Durations: 90s, 10m, 2h, 7d.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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


def command(
    group: typer.Typer = app, *, panel: str = ROWS, kind: type[Command] = Command
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a function a command, which tells errors in one line and ends as documented.

    Help lists it in one of `PANELS`. The function's first parameter is how it tells, and what it
    returns is the exit code. A parameter whose type is a dataclass stands for the options that are
    its fields; those of `Verbosity` follow.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        _, *own = signature(function, eval_str=True).parameters.values()
        groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}

        @functools.wraps(function)
        def run(*, verbose: int, quiet: bool, **options: Any) -> None:  # noqa: ANN401 - of any kind
            with telling_errors(verbose, quiet=quiet) as messages:
                for name, record in groups.items():
                    options[name] = record(**{x.name: options.pop(x.name) for x in fields(record)})
                if code := function(messages, **options):
                    raise typer.Exit(code)

        parameters = [each for p in own for each in _options_of(p)]
        parameters += _fields_as_options(Verbosity)
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__name__ = function.__name__.rstrip("_")  # `import` is a word of Python's
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        group.command(cls=kind, rich_help_panel=panel)(run)
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
