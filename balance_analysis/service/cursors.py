"""Cursors: the place of a row in the server's order, as opaque text.

A cursor carries the whole place, time and account, so that the page after it starts at the very
next row, also inside a block. It depends on the row alone: it outlives a restart of the server.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

import msgspec

from balance_analysis.service.refusals import RefusedError

_MICROSECONDS: Final = 2**63 // 1000
"""The moments that an int64 of nanoseconds can name lie this far from 1970 at most."""


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a row stands in the order of the rows.

    Attributes
    ----------
    time
        Microseconds since 1970-01-01 UTC.
    account_id
        SHA-256 hex of the account's asset, party, market and type.
    """

    time: Annotated[int, msgspec.Meta(ge=-_MICROSECONDS, le=_MICROSECONDS)]
    account_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


def encode_cursor(place: Place) -> str:
    """Return a place as a cursor."""
    return base64.b64encode(msgspec.json.encode(place)).decode("ascii")


def decode_cursor(name: str, cursor: str) -> Place:
    """Return the place that a cursor marks.

    Parameters
    ----------
    name
        The parameter that carries the cursor, for the message.
    cursor
        What the client sent.

    Raises
    ------
    RefusedError
        If this service did not make the cursor.
    """
    try:
        return msgspec.json.decode(base64.b64decode(cursor, validate=True), type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise RefusedError(
            f"{name}={cursor!r} is not a cursor of this service: "
            "send one that came with an edge or a pageInfo"
        ) from error
