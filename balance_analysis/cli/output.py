"""What goes to the terminal: tables to stdout; the log, and errors in one line each, to stderr."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import typer

from balance_analysis import errors
from balance_analysis.presentation import Record
from balance_analysis.spans import Moments
from balance_analysis.text import moment_text, without_credentials

DISK: Final = 74
LOCKED: Final = 75
MISMATCH: Final = 76
PARTIAL: Final = 3
BAD: Final = 5
INTERRUPTED: Final = 130
READER_LEFT: Final = 141
"""What a shell has for a program that writes to `head` after that has seen enough."""

EXIT_CODES: Final[dict[type[Exception], int]] = {
    errors.ArchiveLockedError: LOCKED,
    errors.ArchiveDamagedError: BAD,
    errors.NetworkMismatchError: MISMATCH,
    errors.ArchiveError: 2,
    FileNotFoundError: 2,
    FileExistsError: 2,
    IsADirectoryError: 2,
    NotADirectoryError: 2,
    PermissionError: 2,
    BrokenPipeError: READER_LEFT,
    OSError: DISK,
    ValueError: 2,
    errors.IncompleteError: PARTIAL,
    errors.RequestError: 4,
    errors.DecodeError: BAD,
    errors.CheckError: BAD,
    OverflowError: BAD,
}

UNKNOWN: Final = "unknown"
WIDTH: Final = 80
_MINUTE: Final = 60
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

logger: logging.Logger = logging.getLogger("balance_analysis")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write lines to the terminal, with what it would obey in them written out."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Return a text with each character that a terminal obeys or hides as its code, \u001b.

    Texts and ids come from nodes. JSON means the same after it.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _code(each) for each in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"  # noqa: PLR2004


def print_table(columns: Mapping[str, list[str]], *, left: Collection[str]) -> None:
    """Print columns of text, the header first; those that are named in `left` to the left.

    On a terminal the header is bold, and what is not known is dim.
    """
    cells, is_plain = [], not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    for name, column in columns.items():
        texts = [name, *map(printable, column)]
        width = max(map(len, texts))
        padded = [f"{text:{'<' if name in left else '>'}{width}}" for text in texts]
        if not is_plain:
            padded = [
                typer.style(text, dim=True) if text.strip() == UNKNOWN else text for text in padded
            ]
            padded[0] = typer.style(padded[0], bold=True)
        cells.append(padded)
    for line in zip(*cells, strict=True):
        typer.echo("  ".join(line).rstrip())


def print_record(record: Record, form: str) -> None:
    """Print what a record tells, as a table or as JSON."""
    echo(record.to_json() if form == "json" else str(record))


def print_spans(spans: Sequence[Moments], *, none: str) -> None:
    """Print intervals, a line each, or what there is to say of none."""
    if not spans:
        echo(none)
        return
    columns = {
        "start": [moment_text(start) for start, _ in spans],
        "end": [moment_text(end) for _, end in spans],
    }
    print_table(columns, left=columns)


def narrowed(
    columns: Mapping[str, list[str]], names: Sequence[str], *, room: int = WIDTH
) -> dict[str, list[str]]:
    """Return as many columns as fit so many characters side by side, in their order.

    Parameters
    ----------
    columns
        Columns of text.
    names
        Of the columns, the most important first.
    """
    room, kept = room + 2, set[str]()
    for name in names:
        width = 2 + max(map(len, (name, *map(printable, columns[name]))))
        if width <= room:
            kept.add(name)
            room -= width
    return {name: column for name, column in columns.items() if name in kept}


class Messages(logging.Formatter):
    """How a command writes to stderr.

    Attributes
    ----------
    is_json
        Whether each line is a JSON object.
    quiet
        Whether only errors are told.
    on_failure
        Called with an error that ends the command; may give another exit code.
    content
        What JSON has beside the message of a failure.
    """

    def __init__(self, *, quiet: bool) -> None:
        super().__init__()
        self.is_json = False
        self.quiet = quiet
        self.on_failure: Callable[[BaseException, int], int] = lambda _, code: code
        self.content: Mapping[str, object] = {}
        self._warned: dict[str, logging.LogRecord] = {}

    @property
    def shows_progress(self) -> bool:
        """Whether a person looks on."""
        return sys.stderr.isatty() and not self.quiet and not self.is_json

    def is_news(self, record: logging.LogRecord) -> bool:
        """Whether a line is no warning of the last minute: all workers meet a node's failure."""
        if record.levelno != logging.WARNING:
            return True
        told = self._warned.setdefault(text := record.getMessage(), record)
        if is_stale := record.created - told.created > _MINUTE:
            self._warned[text] = record
        return told is record or is_stale

    def format(self, record: logging.LogRecord) -> str:
        """Return a line of the log."""
        text = without_credentials(super().format(record))
        if self.is_json:
            return _line(record.levelname.lower(), text)
        return "\n".join(map(printable, text.split("\n")))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return what a record says, in one line."""
        message = super().formatMessage(record)
        return message if self.is_json else printable(message)

    def say(self, line: str, **content: object) -> None:
        """Say how it went, unless quiet; JSON has the content beside it."""
        if not self.quiet:
            line = without_credentials(line)
            echo(_line("info", line, content) if self.is_json else line, err=True)

    def fail(self, message: str, code: int) -> None:
        """Say what went wrong, and end the command."""
        message = without_credentials(message)
        content = {"exit_code": code, **self.content}
        said = _line("error", message, content) if self.is_json else f"balance-analysis: {message}"
        echo(said, err=True)
        raise typer.Exit(code)


def _line(level: str, message: str, content: Mapping[str, object] | None = None) -> str:
    time = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    told = {"time": time, "level": level, "message": message, **(content or {})}
    return json.dumps(told, default=dt.datetime.isoformat)


@contextlib.contextmanager
def telling_errors(verbose: int, *, quiet: bool) -> Iterator[Messages]:
    """Log to stderr, and turn an error that can be expected into one line and an exit code."""
    messages, handler = Messages(quiet=quiet), logging.StreamHandler()
    handler.setFormatter(messages)
    handler.addFilter(messages.is_news)
    warned = logging.getLogger("py.warnings")
    logging.captureWarnings(True)
    for each in (logger, warned):
        each.addHandler(handler)
    heeded = [x for x in _SIGNALS if signal.getsignal(x) not in (signal.SIG_IGN, None)]
    level, handlers = logger.level, {number: signal.getsignal(number) for number in heeded}
    logger.setLevel(logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG))
    try:
        for number in handlers:
            signal.signal(number, signal.default_int_handler)
        yield messages
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        messages.fail("interrupted", messages.on_failure(error, INTERRUPTED))
    except (BrokenPipeError, typer.Exit):
        raise
    except (errors.BalanceAnalysisError, OSError, ValueError, OverflowError) as error:
        logger.debug("where it happened", exc_info=True)
        codes = [code for kind, code in EXIT_CODES.items() if isinstance(error, kind)]
        messages.fail(_said(error), messages.on_failure(error, codes[0] if codes else 1))
    except Exception as error:
        messages.on_failure(error, 1)
        raise
    finally:
        for each in (logger, warned):
            each.removeHandler(handler)
        logging.captureWarnings(False)
        logger.setLevel(level)
        for number, before in handlers.items():
            signal.signal(number, before)


def _said(error: BaseException) -> str:
    """Return what an error says and its notes, without line breaks."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    said = said.replace("`partial`", "`--partial`")  # Python's way to say it
    return " ".join("; ".join([said, *getattr(error, "__notes__", ())]).split())
