"""The list of rows: by time, and inside a block by account id, as nodes have it; and its JSON.

A cursor marks a row's place in it as short opaque text. It carries the whole place, time and
account, so that the page after it starts at the very next row, also inside a block. It depends on
the row alone: it outlives a restart and later exports, and another service over the same rows takes
it. Whoever reads the rows sees whether there is such a row.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec
import pyarrow as pa
from starlette.exceptions import HTTPException

from balance_analysis.archive.datafile import times_of

_CURSOR: Final = re.compile(r"([\w-]{43})(0|-?[1-9][0-9]{0,15})", re.ASCII)
_IDS: Final = ("party_id", "asset_id", "market_id", "account_type")

Place = tuple[int, bytes]
"""The place of a row in the list: microseconds since 1970-01-01 UTC, and its account's id."""


class ListedChange(msgspec.Struct, rename="camel", gc=False):
    """A row as the interface has it, its fields in the order of nodes."""

    timestamp: str
    balance: str
    party_id: str
    asset_id: str
    market_id: str
    account_type: str


class ListedEdge(msgspec.Struct, gc=False):
    """A row and its cursor as the interface has them."""

    node: ListedChange
    cursor: str


class Account(msgspec.Struct, frozen=True, gc=False):
    """An account of the list.

    Attributes
    ----------
    digest
        Its id: the SHA-256 of its asset, party, market and type, one after the other.
    cursor
        How the cursors of its rows begin.
    ids
        Party, asset, market and type.
    """

    digest: bytes
    cursor: str
    ids: tuple[str, str, str, str]


ListedRow = tuple[int, bytes, str, Account]
"""A row of the list: its place, which sorts it, its balance and its account."""


def in_order(rows: pa.Table) -> list[ListedRow]:
    """Return rows of `ARROW_SCHEMA`, in any order, as the list has them, oldest first."""
    balances, *ids = (rows[name].cast(pa.string()).to_pylist() for name in ("balance", *_IDS))
    accounts = [*map(_account, *ids)]
    digests = (account.digest for account in accounts)
    return sorted(zip(times_of(rows).tolist(), digests, balances, accounts, strict=True))


@lru_cache(maxsize=1 << 15)
def _account(party: str, asset: str, market: str, account_type: str) -> Account:
    digest = hashlib.sha256(f"{asset}{party}{market}{account_type}".encode()).digest()
    cursor = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return Account(digest, cursor, (party, asset, market, account_type))


def render(rows: Iterable[ListedRow], *, has_next: bool, has_previous: bool) -> bytes:
    """Return a part of the list of rows as the body of an answer.

    Parameters
    ----------
    rows
        In the order of the page.
    has_next, has_previous
        Whether the list is known to go on after, or before, these rows. An empty page knows
        neither; the side that the page was not counted towards is known only with a cursor.
    """
    edges = [
        ListedEdge(ListedChange(f"{time}000", balance, *own.ids), f"{own.cursor}{time}")
        for time, _, balance, own in rows
    ]
    info = {
        "hasNextPage": has_next,
        "hasPreviousPage": has_previous,
        "startCursor": edges[0].cursor if edges else "",
        "endCursor": edges[-1].cursor if edges else "",
    }
    return msgspec.json.encode({"balances": {"edges": edges, "pageInfo": info}})


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
    HTTPException
        If no such service made the cursor.
    """
    if match := _CURSOR.fullmatch(cursor):
        return int(match[2]), base64.urlsafe_b64decode(f"{match[1]}=")
    raise foreign(name)


def foreign(name: str) -> HTTPException:
    """Return the refusal of a cursor that marks no row of the archive."""
    text = f"{name} is not a cursor of this service: send one that came with an edge or a pageInfo"
    return HTTPException(400, text)
