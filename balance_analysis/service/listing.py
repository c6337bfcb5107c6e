"""Order rows as nodes do, by time and inside a block by account id, and write them as JSON.

A cursor marks a row's place in the list as short opaque text. It contains the whole place, time and
account, so that the page after it starts at the very next row, even inside a block. It depends only
on the row: it stays valid after a restart and after later exports, and for other services over the
same rows. Only reading the rows shows whether its row exists.
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
"""A row's place in the list: its time (in microseconds since 1970-01-01 UTC) and account id."""


class ListedChange(msgspec.Struct, rename="camel", gc=False):
    """A row of the interface, with its fields in the order of nodes."""

    timestamp: str
    balance: str
    party_id: str
    asset_id: str
    market_id: str
    account_type: str


class ListedEdge(msgspec.Struct, gc=False):
    """A row of the interface and its cursor."""

    node: ListedChange
    cursor: str


class Account(msgspec.Struct, frozen=True, gc=False):
    """An account of the list.

    Attributes
    ----------
    digest
        The account's id: the SHA-256 of its asset, party, market and type, concatenated.
    cursor
        The beginning of its rows' cursors.
    ids
        Its party, asset, market and type.
    """

    digest: bytes
    cursor: str
    ids: tuple[str, str, str, str]


ListedRow = tuple[int, bytes, str, Account]
"""A row of the list: its time and account id, which sort it, its balance and its account."""


def in_order(rows: pa.Table) -> list[ListedRow]:
    """Return rows of `ARROW_SCHEMA`, given in any order, in the list's order, oldest first."""
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
    """Return a part of the list as the body of an answer.

    Parameters
    ----------
    rows
        In the order of the page.
    has_next, has_previous
        Whether further rows are known to follow, or to precede. Both are `False` for an empty page.
        Without a cursor, it isn't known whether rows lie before the page's starting side.
    """
    edges = [
        ListedEdge(ListedChange(f"{time}000", balance, *account.ids), f"{account.cursor}{time}")
        for time, _, balance, account in rows
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
        The cursor that the client sent.

    Raises
    ------
    HTTPException
        If the text isn't a cursor of this service.
    """
    if match := _CURSOR.fullmatch(cursor):
        return int(match[2]), base64.urlsafe_b64decode(f"{match[1]}=")
    raise cursor_error(name)


def cursor_error(name: str) -> HTTPException:
    """Return the error for a cursor that marks no row of the archive."""
    text = f"{name} is not a cursor of this service: send one that came with an edge or a pageInfo"
    return HTTPException(400, text)
