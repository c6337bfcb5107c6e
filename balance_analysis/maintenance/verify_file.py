"""One file of rows: whether it is what was written, and its rows are what the coverage says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.archive import layout
from balance_analysis.archive.accounts import ACCOUNTS, FILE_ORDER, find_accounts, numbers_of
from balance_analysis.archive.coverage import FileEntry
from balance_analysis.archive.datafile import OtherFileError, decode_rows
from balance_analysis.archive.manifest import check_seen
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError
from balance_analysis.rows import canonical
from balance_analysis.spans import Span
from balance_analysis.text import range_text

NOBODY: Final = ACCOUNTS.empty_table()


@dataclass(frozen=True, slots=True)
class FileToCheck:
    """A file of rows, and what it must be: `spans` is what is covered of its period. It pickles."""

    store: Store
    name: str
    note: FileEntry
    period: Span
    spans: list[Span]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What was found out about a file of rows.

    Attributes
    ----------
    wrong
        What is wrong with it; nothing where it is as it should be.
    rows
        How many it has.
    accounts
        Those that it has rows of, if nothing is wrong.
    """

    wrong: str
    rows: int
    accounts: pa.Table


def check_file(file: FileToCheck) -> CheckedFile:
    """Read a file of rows, and return what is wrong with it.

    Raises
    ------
    ArchiveError
        If the archive is not there: a worker may not reach its folder.
    """
    content, wrong = read_written(file.store, file.name, file.note)
    if wrong:
        check_seen(file.store, layout.ABOUT)
        return CheckedFile(wrong, 0, NOBODY)
    try:
        rows = canonical(decode_rows(content), sort=False)
    except (pa.ArrowException, OSError) as error:
        return CheckedFile(unreadable(error), 0, NOBODY)
    accounts = numbers_of(rows)
    wrong = "; ".join(_findings(file, accounts, rows["timestamp"].cast(pa.int64()).to_numpy()))
    return CheckedFile(wrong, rows.num_rows, NOBODY if wrong else find_accounts(rows))


def read_written(store: Store, name: str, note: FileEntry) -> tuple[bytes, str]:
    """Return a file's content, and how it is not what was written; nothing where it is."""
    try:
        content = store.read(name)
    except (OSError, ArchiveError) as error:
        return b"", f"can't be read: {error}"
    return content or b"", note.mismatch(content)


def unreadable(error: Exception) -> str:
    """Return how a file is wrong that can't be read, or has other columns than a table."""
    return str(error) if isinstance(error, OtherFileError) else f"can't be read: {error}"


def _findings(
    file: FileToCheck, accounts: NDArray[np.int64], times: NDArray[np.int64]
) -> Iterator[str]:
    note, (begin, stop) = file.note, file.period
    steps = np.sign(np.diff(accounts))
    if np.any((steps < 0) | ((steps == 0) & (np.diff(times) < 0))):
        yield f"its rows are not in the order {', '.join(FILE_ORDER)}"
    order = np.lexsort([times, accounts])
    is_same = (np.diff(accounts[order]) == 0) & (np.diff(times[order]) == 0)
    edges = np.array(file.spans, np.int64).ravel()
    for count, what in (
        (np.sum(is_same), "repeat the account and timestamp of another"),
        (np.sum((times < begin) | (times >= stop)), "are not of its period"),
        (
            np.sum(np.searchsorted(edges, times, side="right") % 2 == 0),
            "are outside of what is covered",
        ),
    ):
        if count:
            yield f"{count} of its rows {what}"
    if len(times) != note.rows or not note.rows:
        yield f"has {len(times)} rows, not {note.rows}"
    elif (times.min(), times.max()) != (note.first, note.last):
        found = range_text(int(times.min()), int(times.max()))
        yield f"has rows from {found}, not from {range_text(note.first, note.last)}"
