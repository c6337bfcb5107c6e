"""Print tables to stdout, the log and one-line errors to stderr, and choose exit codes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NoReturn

import typer

from balance_analysis import errors
from balance_analysis.table.moments import Interval, moment_text
from balance_analysis.table.text import Record, without_credentials
from balance_analysis.table.text import printable as with_codes

LOCKED: Final = 75
INCOMPLETE: Final = 3
BAD: Final = 5
INTERRUPTED: Final = 130
READER_LEFT: Final = 141
"""Exit code after SIGPIPE."""

EXIT_CODES: Final[dict[type[BaseException], int]] = {
    errors.ArchiveLockedError: LOCKED,
    errors.ArchiveDamagedError: BAD,
    errors.NetworkMismatchError: 76,
    errors.ArchiveError: 2,
    FileNotFoundError: 2,
    FileExistsError: 2,
    IsADirectoryError: 2,
    NotADirectoryError: 2,
    PermissionError: 2,
    BrokenPipeError: READER_LEFT,
    OSError: 74,
    ValueError: 2,
    errors.IncompleteError: INCOMPLETE,
    errors.RequestError: 4,
    errors.DecodeError: BAD,
    errors.CheckError: BAD,
    errors.BalanceAnalysisError: 1,
    OverflowError: BAD,
    KeyboardInterrupt: INTERRUPTED,
}
"""Exit codes by class of error; the first matching class counts."""

UNKNOWN: Final = "unknown"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

logger: logging.Logger = logging.getLogger("balance_analysis")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines, with control characters escaped."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Escape each character that a terminal obeys, hides or can't show, such as \u001b.

    Texts and ids come from nodes. Escaped JSON keeps its meaning.
    """
    if text.isascii() and text.isprintable():
        return text
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = with_codes(text)
    if not encoding.lower().startswith("utf"):
        escaped = escaped.replace("…", "..")
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def print_table(columns: Mapping[str, Sequence[str]], *, left: Collection[str]) -> None:
    """Print columns of text under their headers; those named in `left` are left-aligned.

    On a terminal the header is bold and unknown values are dim.
    """
    cells, is_plain = [], not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    for name, column in columns.items():
        texts = [*map(printable, (name, *column))]
        width = max(map(len, texts))
        padded = [f"{text:{'<' if name in left else '>'}{width}}" for text in texts]
        if not is_plain:
            padded = [typer.style(x, dim=True) if x.strip() == UNKNOWN else x for x in padded]
            padded[0] = typer.style(padded[0], bold=True)
        cells.append(padded)
    for line in zip(*cells, strict=True):
        typer.echo("  ".join(line).rstrip())


def print_record(record: Record, form: str) -> None:
    """Print a record as a table or as JSON."""
    echo(record.to_json() if form == "json" else str(record))


def print_spans(spans: Sequence[Interval], *, none: str) -> None:
    """Print one interval per line, or the line `none` if there are no intervals."""
    if not spans:
        echo(none)
        return
    starts, ends = zip(*spans, strict=True)
    columns = {"start": [*map(moment_text, starts)], "end": [*map(moment_text, ends)]}
    print_table(columns, left=columns)


def is_quiet() -> bool:
    """Return whether only errors are reported."""
    return not logger.isEnabledFor(logging.WARNING)


def shows_progress() -> bool:
    """Return whether to show progress: only to a person at a terminal."""
    return sys.stderr.isatty() and not is_quiet()


def say(line: str) -> None:
    """Print a line to stderr, unless quiet."""
    if not is_quiet():
        echo(without_credentials(line), err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print an error message, and end the command with an exit code."""
    echo(f"balance-analysis: {without_credentials(message)}", err=True)
    raise typer.Exit(code)


class _Lines(logging.Formatter):
    """Format log records for a terminal: each message is one line, control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, without_credentials(super().format(record)).split("\n")))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


@contextlib.contextmanager
def report_errors(*, verbose: int, quiet: bool) -> Iterator[None]:
    """Log to stderr, and turn an expected error into one line and an exit code."""
    handler, warned = logging.StreamHandler(), logging.getLogger("py.warnings")
    handler.setFormatter(_Lines())
    logging.captureWarnings(True)
    for each in (logger, warned):
        each.addHandler(handler)
    signals = [x for x in _SIGNALS if signal.getsignal(x) not in (signal.SIG_IGN, None)]
    level, handlers = logger.level, {number: signal.getsignal(number) for number in signals}
    logger.setLevel(logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG))
    try:
        for number in signals:
            signal.signal(number, signal.default_int_handler)
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except tuple(EXIT_CODES) as error:
        logger.debug("traceback", exc_info=True)
        fail(message_of(error), exit_code(error))
    finally:
        for each in (logger, warned):
            each.removeHandler(handler)
        logging.captureWarnings(False)
        logger.setLevel(level)
        for number, before in handlers.items():
            signal.signal(number, before)


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def message_of(error: BaseException) -> str:
    """Return an error's message and notes in one line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = text.replace("`partial`", "`--partial`")  # the library names its argument
    return " ".join("; ".join([text, *getattr(error, "__notes__", ())]).split())
