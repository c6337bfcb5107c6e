"""What goes to the terminal: tables to stdout; the log, and errors in one line each, to stderr."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import logging
import os
import shutil
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from balance_analysis import errors
from balance_analysis.text import (
    LONG_ID,
    clipped,
    decimal_text,
    list_text,
    moment_text,
    short_ids,
    without_credentials,
)
from balance_analysis.text import printable as with_codes

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.names import Asset, Names
    from balance_analysis.presentation import Record
    from balance_analysis.spans import Moments

DISK: Final = 74
LOCKED: Final = 75
MISMATCH: Final = 76
INCOMPLETE: Final = 3
BAD: Final = 5
INTERRUPTED: Final = 130
READER_LEFT: Final = 141
"""Exit code after SIGPIPE."""

EXIT_CODES: Final[dict[type[BaseException], int]] = {
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
    errors.IncompleteError: INCOMPLETE,
    errors.RequestError: 4,
    errors.DecodeError: BAD,
    errors.CheckError: BAD,
    errors.BalanceAnalysisError: 1,
    OverflowError: BAD,
    KeyboardInterrupt: INTERRUPTED,
}
"""Exit codes by the class of an error; the first class that fits counts."""

UNKNOWN: Final = "unknown"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_WIDTHS: Final = (64, 19, 11)
"""Characters of a name, and where amounts find no room beside it."""

_LONGEST: Final = 10
"""Characters of an amount; a longer one is rounded to whole units, or to four digits."""

_FIRST: Final = 3
"""Columns beside the names for which names are shortened."""

logger: logging.Logger = logging.getLogger("balance_analysis")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write lines to the terminal, with what it would obey in them written out."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Return a text with each character that a terminal obeys, hides or lacks as its code, \u001b.

    Texts and ids come from nodes. JSON means the same after it.
    """
    if text.isascii() and text.isprintable():
        return text
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = with_codes(text)
    if not encoding.lower().startswith("utf"):
        escaped = escaped.replace("…", "..")
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def print_table(columns: Mapping[str, Sequence[str]], *, left: Collection[str]) -> None:
    """Print columns of text, the header first; those that are named in `left` to the left.

    On a terminal the header is bold, and what is not known is dim.
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


def print_frame(
    frame: pd.DataFrame,
    *,
    total: int,
    first: Sequence[str],
    names: Names | None = None,
    missing: str = UNKNOWN,
    wide: bool = False,
) -> None:
    """Print rows as wide as the terminal, 80 characters without a terminal.

    Parameters
    ----------
    frame
        The rows.
    total
        The number of all rows; `frame` may have fewer.
    first
        The columns that get room first, after the ids.
    names
        What ids are called, and the decimals of amounts; `None` to print amounts as they are.
    missing
        What stands for a missing value.
    wide
        Print all columns, whole ids and every digit instead.
    """
    from pandas.api.types import is_numeric_dtype

    from balance_analysis.schema import ACCOUNT_KEY

    left = {str(name) for name in frame if not is_numeric_dtype(frame[name].dtype)}
    if wide:
        texts = {str(name): [cell_text(x, missing) for x in frame[name]] for name in frame}
        print_table(texts, left=left)
    else:
        ids = [name for name in ACCOUNT_KEY if name in frame and names is not None]
        texts = {str(name): _short_texts(frame, str(name), names, missing) for name in frame}
        _print_fitting(texts, [*ids, *first], ids, left)
    if len(frame) < total:
        echo(f"... {len(frame):,} of {total:,} rows; --limit 0 shows all")


def _print_fitting(
    columns: dict[str, list[str]], order: list[str], ids: list[str], left: Collection[str]
) -> None:
    """Print the columns that find room side by side, in their own order.

    Those that come first in `order` get room first; ids are cut where that makes room.
    """
    order = [name for name in order if name in columns]
    titles = {x: x.removeprefix("account_").removesuffix("_id") if x in ids else x for x in order}
    shown: dict[str, list[str]] = {}
    for width in _WIDTHS:
        room, shown = shutil.get_terminal_size().columns + 2, {}
        for name in order:
            texts = [clipped(x, width) if name in ids else x for x in columns[name]]
            needed = 2 + max(map(len, (titles[name], *map(printable, texts))))
            if needed <= room:
                shown[name], room = texts, room - needed
        if {*order[: len(ids) + _FIRST]} <= {*shown}:
            break
    kept = [name for name in columns if name in shown]
    print_table({titles[x]: shown[x] for x in kept}, left={titles[x] for x in kept if x in left})
    if hidden := [name for name in columns if name in order and name not in shown and not ids]:
        echo(f"... without {list_text(hidden)}; --wide shows all columns")


def _short_texts(frame: pd.DataFrame, name: str, names: Names | None, missing: str) -> list[str]:
    """Return the cells of a column: ids by their names, whole units, of moments the day.

    Without names they are as in the frame, but for short ids and account types.
    """
    from pandas.api.types import is_datetime64_any_dtype

    from balance_analysis.schema import ACCOUNT_KEY

    column = frame[name]
    if names is None:
        texts = [cell_text(each, missing) for each in column]
        short = short_ids(filter(LONG_ID.fullmatch, texts))
        return [short.get(text, text.removeprefix("ACCOUNT_TYPE_")) for text in texts]
    if name in ACCOUNT_KEY:
        ids = column.astype("str")
        return list(ids.map(names.shown(name, ids)))
    if "decimal" in str(column.dtype):
        known = frame["asset_id"].map(names.assets.get)
        return [_amount(*each) for each in zip(column, known, strict=True)]
    if is_datetime64_any_dtype(column.dtype):
        return list(column.dt.strftime("%Y-%m-%d").fillna(missing))
    if column.dtype.kind == "f":
        return [f"{each:+z,.1f}".replace("+nan", "").replace("+0.0", "0.0") for each in column]
    return [f"{each:,}" if isinstance(each, int) else cell_text(each) for each in column]


def _amount(value: Any, asset: Asset | None) -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    whole = Decimal(value).scaleb(0 if asset is None else -asset.decimals)
    texts = [f"{whole:,.{0 if asset is None else 2}f}", f"{whole:,.0f}", f"{whole:.3e}"]
    return next((text for text in texts if len(text) <= _LONGEST), texts[-1])


def cell_text(value: Any, missing: str = UNKNOWN) -> str:  # noqa: ANN401 - a cell
    """Return a cell as it is, every digit of it; moments as `moment_text` does."""
    from pandas import isna

    if not isinstance(value, list | dict) and isna(value):
        return missing
    if isinstance(value, Decimal):
        return decimal_text(value)
    return moment_text(value) if isinstance(value, dt.datetime) else str(value)


def write_rows(rows: pd.DataFrame, form: str) -> None:
    """Write rows to stdout, exactly, in a format of files."""
    from balance_analysis.files.tables import write_to

    if sys.stdout.isatty():
        held = io.BytesIO()
        write_to(rows, form, held)
        echo(held.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        write_to(rows, form, sys.stdout.buffer)


def print_record(record: Record, form: str) -> None:
    """Print a record, as a table or as JSON."""
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


def is_quiet() -> bool:
    """Return whether only errors are written."""
    return not logger.isEnabledFor(logging.WARNING)


def shows_progress() -> bool:
    """Return whether a person looks on."""
    return sys.stderr.isatty() and not is_quiet()


def say(line: str) -> None:
    """Say how it went, unless quiet."""
    if not is_quiet():
        echo(without_credentials(line), err=True)


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong, and end the command."""
    echo(f"balance-analysis: {without_credentials(message)}", err=True)
    raise typer.Exit(code)


class _Lines(logging.Formatter):
    """Records of the log as lines that a terminal only shows; what one says is one line."""

    def format(self, record: logging.LogRecord) -> str:
        text = without_credentials(super().format(record))
        return "\n".join(map(printable, text.split("\n")))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


@contextlib.contextmanager
def report_errors(*, verbose: int, quiet: bool) -> Iterator[None]:
    """Log to stderr, and turn an error that can be expected into one line and an exit code."""
    handler, warned = logging.StreamHandler(), logging.getLogger("py.warnings")
    handler.setFormatter(_Lines())
    logging.captureWarnings(True)
    for each in (logger, warned):
        each.addHandler(handler)
    heeded = [x for x in _SIGNALS if signal.getsignal(x) not in (signal.SIG_IGN, None)]
    level, handlers = logger.level, {number: signal.getsignal(number) for number in heeded}
    logger.setLevel(logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG))
    try:
        for number in heeded:
            signal.signal(number, signal.default_int_handler)
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except tuple(EXIT_CODES) as error:
        logger.debug("where it happened", exc_info=True)
        fail(message_of(error), exit_code(error))
    finally:
        for each in (logger, warned):
            each.removeHandler(handler)
        logging.captureWarnings(False)
        logger.setLevel(level)
        for number, before in handlers.items():
            signal.signal(number, before)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that an error ends."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def message_of(error: BaseException) -> str:
    """Return what an error says and its notes, without line breaks."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    said = said.replace("`partial`", "`--partial`")  # Python's way to say it
    return " ".join("; ".join([said, *getattr(error, "__notes__", ())]).split())
