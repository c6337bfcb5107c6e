"""Every error that this package raises on purpose.

    BalanceAnalysisError
    ├── RequestError        a node could not be asked, or refused
    │   └── TooLargeError   its answer would have been larger than it can send
    ├── DecodeError         an answer that is not what the interface describes, or a bad row in it
    ├── IncompleteError     the pages don't add up to one complete list
    ├── CheckError          data that breaks a rule of the table
    └── ArchiveError        a file or archive that can't be read or written
        ├── ArchiveDamagedError  a file of an archive is lost, or not what was written
        ├── ArchiveLockedError  another run is writing to it
        ├── NetworkMismatchError  a node is of another network than the archive
        └── SnapshotGoneError  a run has replaced what was being read

A caller's bug is a `ValueError` or a `TypeError`. No rows is an empty table, not an error.
All of them pickle.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


logger: logging.Logger = logging.getLogger("balance_analysis")
"""The package's logger. It emits nothing until the program configures logging."""


@dataclass(eq=False, repr=False)
class BalanceAnalysisError(Exception):
    """The base of all errors of this package."""

    message: str


@dataclass(eq=False, repr=False)
class RequestError(BalanceAnalysisError):
    """A node could not be asked, or refused to answer.

    Attributes
    ----------
    url
        What was asked, with its parameters.
    status
        HTTP status; `None` when there was no answer.
    code
        The code in the error body (gRPC's numbers: 3 is an invalid argument); `None` without one.
    retryable
        Whether the same request may succeed later.
    retry_after
        Seconds that the node asked to wait; `None` when it didn't say.
    timed_out
        Whether the node was reached but took too long: less may be answered in time.
    refused
        Whether there was no connection, so that nothing was asked.
    """

    _: KW_ONLY
    url: str = ""
    status: int | None = None
    code: int | None = None
    retryable: bool = False
    retry_after: float | None = None
    timed_out: bool = False
    refused: bool = False


class TooLargeError(RequestError):
    """The answer would have been larger than the node can send: ask for less."""


@dataclass(eq=False, repr=False)
class DecodeError(BalanceAnalysisError):
    """An answer is well-formed JSON but not what the interface describes.

    Attributes
    ----------
    row
        The bad row as the node sent it, raw JSON; `None` when the whole answer is wrong.
    """

    _: KW_ONLY
    row: str | None = None


class IncompleteError(BalanceAnalysisError):
    """The pages don't add up to one complete list; the message says what is missing."""


@dataclass(eq=False, repr=False)
class CheckError(BalanceAnalysisError):
    """Data breaks a rule of the table.

    Attributes
    ----------
    rows
        The rows at fault; `None` when the rule is not about rows.
    """

    _: KW_ONLY
    rows: pd.DataFrame | None = None


class ArchiveError(BalanceAnalysisError):
    """A file or archive can't be read or written as what it should be."""


class ArchiveDamagedError(ArchiveError):
    """A file of an archive is lost, or not what was written."""


class SnapshotGoneError(ArchiveError):
    """A run has replaced a file of the archive since the snapshot was taken that is read."""


class NetworkMismatchError(ArchiveError):
    """A node is of another network than the archive, or has lost the rows that would show it."""


@dataclass(eq=False, repr=False)
class ArchiveLockedError(ArchiveError):
    """Another run is writing to the archive.

    Attributes
    ----------
    holder
        Who it is: `pid`, `host` and `since`, ISO 8601 in UTC; empty where it isn't known.
    """

    _: KW_ONLY
    holder: dict[str, Any] = field(default_factory=dict)


def check_type(
    value: object, kinds: type | tuple[type, ...], wanted: str, hint: str | None = None
) -> None:
    """Raise TypeError, with what was wanted and what was given, unless a value is of a type."""
    if not isinstance(value, kinds):
        came = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        raise TypeError(f"{wanted} is wanted, not {came}" + (f": {hint}" if hint else ""))


def check_frame(table: object) -> None:
    """Raise TypeError, which says how to get a table, unless it is a frame."""
    import pandas as pd  # noqa: PLC0415 - heavy

    hint = "the table comes first; ba.load_balance_changes, ba.read_parquet, Archive.read give one"
    check_type(table, pd.DataFrame, "a table as a pandas DataFrame", hint)
