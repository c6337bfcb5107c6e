"""The errors that this package raises.

    BalanceAnalysisError
    ├── RequestError        a request to a node failed
    │   └── TooLargeError   an answer is larger than the client allows or the node can send
    ├── DecodeError         an answer or a segment is malformed, or has a bad row
    ├── IncompleteError     rows are missing, or can't be shown to be complete
    ├── CheckError          data that breaks a rule of the table
    └── ArchiveError        a file or archive that can't be read or written
        ├── ArchiveDamagedError  a file of an archive is missing or was altered
        ├── ArchiveLockedError  another run is writing to the archive
        ├── NetworkMismatchError  sources, or a source and an archive, are of different networks
        └── SnapshotGoneError  a run replaced a file of the snapshot being read

Wrong arguments raise `ValueError` or `TypeError`. A result without rows is an empty table, not an
error. All errors can be pickled. `cli.output` maps them to exit codes.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


logger: logging.Logger = logging.getLogger("balance_analysis")
"""The package's logger. Warnings go to stderr until the program configures logging."""


@dataclass(eq=False, repr=False)
class BalanceAnalysisError(Exception):
    """The base class of this package's errors."""

    message: str


@dataclass(eq=False, repr=False)
class RequestError(BalanceAnalysisError):
    """A request to a node failed: it wasn't reached, took too long or answered with an error.

    Attributes
    ----------
    url
        The URL of the request, with its parameters.
    status
        HTTP status; `None` without an answer.
    code
        The code in the error body (gRPC's numbers: 3 is an invalid argument); `None` without one.
    retryable
        Whether the same request may succeed later.
    retry_after
        Seconds to wait before the next try, as the node asked; `None` if it didn't.
    timed_out
        Whether the node was reached but took too long. A smaller request may be answered in time.
    refused
        Whether the connection failed, so that the request wasn't sent.
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
    """An answer is larger than the client allows or the node can send: request less."""


@dataclass(eq=False, repr=False)
class DecodeError(BalanceAnalysisError):
    """An answer of a node, or a segment, doesn't match the interface, or has a bad row.

    Attributes
    ----------
    row
        The bad row as it was sent, as text; `None` if the fault isn't in one row.
    """

    _: KW_ONLY
    row: str | None = None


class IncompleteError(BalanceAnalysisError):
    """Rows are missing, or can't be shown to be complete; the message says which."""


@dataclass(eq=False, repr=False)
class CheckError(BalanceAnalysisError):
    """Data breaks a rule of the table.

    Attributes
    ----------
    rows
        The rows at fault; `None` if the rule isn't about rows.
    """

    _: KW_ONLY
    rows: pd.DataFrame | None = None


class ArchiveError(BalanceAnalysisError):
    """A file or an archive can't be read or written."""


class ArchiveDamagedError(ArchiveError):
    """A file of an archive is missing, or its content isn't what was written."""


class SnapshotGoneError(ArchiveError):
    """A run replaced a file of the archive after the snapshot being read was taken."""


class NetworkMismatchError(ArchiveError):
    """Sources, or a source and an archive, are of different networks, or one lost common rows."""


@dataclass(eq=False, repr=False)
class ArchiveLockedError(ArchiveError):
    """Another run is writing to the archive.

    Attributes
    ----------
    holder
        The other run: `pid`, `host` and `since` (ISO 8601 in UTC); empty if unknown.
    """

    _: KW_ONLY
    holder: dict[str, Any] = field(default_factory=dict)


def check_type(
    value: object, kinds: type | tuple[type, ...], wanted: str, hint: str | None = None
) -> None:
    """Raise TypeError, naming the wanted type and the value, unless the value has the type."""
    if not isinstance(value, kinds):
        got = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        raise TypeError(f"expected {wanted}, not {got}" + (f": {hint}" if hint else ""))


def check_frame(table: object) -> None:
    """Raise TypeError, saying how to get a table, unless a value is a frame."""
    import pandas as pd  # noqa: PLC0415 - heavy

    hint = (
        "the table comes first; ba.load_balance_changes, ba.read_parquet, Archive.read return one"
    )
    check_type(table, pd.DataFrame, "a table as a pandas DataFrame", hint)
