"""Cursors: the place of a row in the server's order, as short opaque text.

A cursor carries the whole place, time and account, so that the page after it starts at the very
next row, also inside a block. It depends on the row alone: it outlives a restart and later exports,
and another service over the same rows takes it. Check digits show most slips; whether there is
such a row shows the rest, which is for whoever reads the rows.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from balance_analysis.service.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ID_BYTES: Final = 32
"""SHA-256."""

_ID_CHARACTERS: Final = 43
_CHECKS: Final = 1000
_FACTORS: Final = np.array([0x9E3779B97F4A7C15**n % 2**64 for n in (1, 3, 5, 7)], np.uint64)
"""Powers of 2**64 over the golden ratio: odd factors that spread every bit upwards."""

_SHIFT: Final = 40
_CURSOR: Final = re.compile(r"([\w-]{43})(-?[0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands in the order of the rows.

    Attributes
    ----------
    time
        Microseconds since 1970-01-01 UTC.
    account_id
        SHA-256 of the account's asset, party, market and type: 32 bytes.
    """

    time: int
    account_id: bytes


def encode_accounts(ids: NDArray[np.uint8]) -> list[str]:
    """Return the beginnings of the cursors of accounts.

    Parameters
    ----------
    ids
        Account ids, 32 bytes each, a row for each account.
    """
    # 33 bytes are 44 characters without a rest, of which the last tells nothing.
    padded = np.zeros((len(ids), ID_BYTES + 1), np.uint8)
    padded[:, :ID_BYTES] = ids
    text = base64.urlsafe_b64encode(padded.tobytes()).decode("ascii")
    step = _ID_CHARACTERS + 1
    return [text[begin : begin + _ID_CHARACTERS] for begin in range(0, len(text), step)]


def encode_times(times: NDArray[np.int64], ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the numbers that cursors end with, one for each row: time and check digits.

    Parameters
    ----------
    times
        Of the rows, microseconds since 1970-01-01 UTC.
    ids
        The ids of their accounts, 32 bytes a row.
    """
    words = np.ascontiguousarray(ids).view(">u8").astype(np.uint64)
    mixed = ((words * _FACTORS).sum(axis=1) ^ times.view(np.uint64)) * _FACTORS[0]
    checks = (mixed >> np.uint64(_SHIFT)) % np.uint64(_CHECKS)
    numbers: NDArray[np.int64] = times * _CHECKS + checks.astype(np.int64)
    return numbers


def encode_cursor(place: Place) -> str:
    """Return the cursor that marks a place."""
    ids = np.frombuffer(place.account_id, np.uint8).reshape(1, ID_BYTES)
    number = encode_times(np.array([place.time], np.int64), ids)[0]
    return f"{encode_accounts(ids)[0]}{number}"


def decode_cursor(name: str, cursor: str) -> Place:
    """Return the place that a cursor marks, if its digits are right.

    Parameters
    ----------
    name
        The parameter that carries the cursor, for the message.
    cursor
        What the client sent.

    Raises
    ------
    RefusedError
        If no such service made the cursor.
    """
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise foreign(name, cursor)
    try:
        account_id = base64.b64decode(f"{found[1]}=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise foreign(name, cursor) from error
    number = int(found[2])
    place = Place(number // _CHECKS, account_id)
    if not -(2**63) <= number < 2**63 or encode_cursor(place) != cursor:
        raise foreign(name, cursor)
    return place


def foreign(name: str, cursor: str) -> RefusedError:
    """Return the refusal of a cursor that marks no row of the archive."""
    return RefusedError(
        f"{name}={cursor!r} is not a cursor of this service: "
        "send one that came with an edge or a pageInfo"
    )
