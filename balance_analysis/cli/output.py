"""What goes to stderr: the log, errors in one line each, and how a command ends."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

import typer

from balance_analysis.cli.terminal import echo, printable
from balance_analysis.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveLockedError,
    BalanceAnalysisError,
    CheckError,
    DecodeError,
    IncompleteError,
    NetworkMismatchError,
    RequestError,
)
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DISK: Final = 74
LOCKED: Final = 75
MISMATCH: Final = 76
PARTIAL: Final = 3
BAD: Final = 5
INTERRUPTED: Final = 130
EXIT_CODES: Final[dict[type[Exception], int]] = {
    ArchiveLockedError: LOCKED,
    ArchiveDamagedError: BAD,
    NetworkMismatchError: MISMATCH,
    ArchiveError: 2,
    FileNotFoundError: 2,
    FileExistsError: 2,
    IsADirectoryError: 2,
    NotADirectoryError: 2,
    PermissionError: 2,
    OSError: DISK,
    ValueError: 2,
    IncompleteError: PARTIAL,
    RequestError: 4,
    DecodeError: BAD,
    CheckError: BAD,
    OverflowError: BAD,
}

logger = logging.getLogger("balance_analysis")


class Telling(logging.Formatter):
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
        if self.quiet:
            return
        line = without_credentials(line)
        echo(_line("info", line, content) if self.is_json else line, err=True)

    def fail(self, message: str, code: int) -> None:
        """Say what went wrong, and end the command."""
        message = without_credentials(message)
        said = f"balance-analysis: {message}"
        if self.is_json:
            said = _line("error", message, {"exit_code": code, **self.content})
        echo(said, err=True)
        raise typer.Exit(code)


def _line(level: str, message: str, content: Mapping[str, object] | None = None) -> str:
    time = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "level": level, "message": message, **(content or {})})


@contextlib.contextmanager
def told_errors(verbose: int, quiet: bool, interrupted: int = INTERRUPTED) -> Iterator[Telling]:
    """Log to stderr, and turn an error that can be expected into one line and an exit code."""
    telling, handler = Telling(quiet=quiet), logging.StreamHandler()
    handler.setFormatter(telling)
    warned = logging.getLogger("py.warnings")
    logging.captureWarnings(True)
    for each in (logger, warned):
        each.addHandler(handler)
    terminated, level = signal.signal(signal.SIGTERM, signal.default_int_handler), logger.level
    logger.setLevel(logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG))
    try:
        yield telling
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        telling.fail("interrupted", telling.on_failure(error, interrupted))
    except (BrokenPipeError, typer.Exit):
        raise
    except (BalanceAnalysisError, OSError, ValueError, OverflowError) as error:
        logger.debug("where it happened", exc_info=True)
        codes = [code for kind, code in EXIT_CODES.items() if isinstance(error, kind)]
        telling.fail(one_line(error), telling.on_failure(error, codes[0] if codes else 1))
    except Exception as error:
        telling.on_failure(error, 1)
        raise
    finally:
        for each in (logger, warned):
            each.removeHandler(handler)
        logging.captureWarnings(False)
        logger.setLevel(level)
        signal.signal(signal.SIGTERM, terminated)


def one_line(error: BaseException) -> str:
    """Return what an error says and its notes, without line breaks."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join("; ".join([said, *getattr(error, "__notes__", ())]).split())


def say(quiet: bool) -> Callable[[str], None]:
    """Return the function that writes a line to stderr, unless quiet."""
    return lambda line: None if quiet else echo(line, err=True)
