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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY

_FIELDS: Final = {
    "party_id": "partyId",
    "asset_id": "assetId",
    "market_id": "marketId",
    "account_type": "accountType",
}
"""The columns of an account, as the interface names them and in its order."""

_IN_ID: Final = ("asset_id", "party_id", "market_id", "account_type")
"""What an account's id is the SHA-256 of, written one after the other."""


_IDS: Final = pa.schema([(name, pa.string()) for name in ACCOUNT_KEY])

ID_BYTES: Final = 32
"""SHA-256."""

_CURSOR: Final = re.compile(r"([\w-]{43})(0|-?[1-9][0-9]{0,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a row in the order of the rows.

    Attributes
    ----------
    time
        Microseconds since 1970-01-01 UTC.
    account_id
        SHA-256 of the account's asset, party, market and type: 32 bytes.
    """

    time: int
    account_id: bytes


@dataclass(frozen=True, slots=True)
class ListedRows:
    """Rows in the order of the list, oldest first.

    Attributes
    ----------
    times
        Of each row, microseconds.
    balances
        Of each row.
    accounts
        Of each row, its account's place among the accounts.
    ids
        Of each account, its id: 32 bytes; ascending.
    keys
        Of each account, asset, account type, party and market: `ACCOUNT_KEY`.
    """

    times: NDArray[np.int64]
    balances: pa.Array
    accounts: NDArray[np.int64]
    ids: NDArray[np.uint8]
    keys: pa.Table

    def __len__(self) -> int:
        return len(self.times)

    def beyond(self, place: Place, *, descending: bool) -> NDArray[np.bool_]:
        """Return which rows stand beyond a place."""
        account = np.searchsorted(_texts(self.ids), np.bytes_(place.account_id))
        is_older = self.times < place.time
        is_older |= (self.times == place.time) & (self.accounts < account)
        return is_older if descending else ~(is_older | self.at(place))

    def at(self, place: Place) -> NDArray[np.bool_]:
        """Return which row stands at a place: one, or none."""
        is_account = np.all(self.ids == np.frombuffer(place.account_id, np.uint8), axis=1)
        is_there: NDArray[np.bool_] = (self.times == place.time) & is_account[self.accounts]
        return is_there

    def take(self, rows: NDArray[np.int64]) -> ListedRows:
        """Return some of the rows, in the order in which they are named."""
        return replace(
            self,
            times=self.times[rows],
            balances=self.balances.take(pa.array(rows)),
            accounts=self.accounts[rows],
        )


def in_order(rows: pa.Table) -> ListedRows:
    """Return rows in the order of the list, oldest first.

    Parameters
    ----------
    rows
        `ARROW_SCHEMA`, in any order.
    """
    rows = rows.unify_dictionaries().combine_chunks()
    columns = {name: _whole(rows[name]) for name in rows.column_names}
    codes = [columns[name].indices.to_numpy() for name in ACCOUNT_KEY]
    numbers = account_numbers(codes, [len(columns[name].dictionary) for name in ACCOUNT_KEY])
    _, heads, accounts = np.unique(numbers, return_index=True, return_inverse=True)
    keys = rows.select(ACCOUNT_KEY).take(pa.array(heads)).cast(_IDS)
    ids = _account_ids(keys)
    sorting = np.argsort(_texts(ids))
    ranks = np.empty(len(ids), np.int64)
    ranks[sorting] = np.arange(len(ids))
    accounts = ranks[accounts]
    times = columns["timestamp"].cast(pa.int64()).to_numpy()
    listed = ListedRows(
        times, columns["balance"], accounts, ids[sorting], keys.take(pa.array(sorting))
    )
    return listed.take(np.lexsort([accounts, times]))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _account_ids(keys: pa.Table) -> NDArray[np.uint8]:
    columns = (keys[name].cast(pa.binary()) for name in _IN_ID)
    texts = pc.binary_join_element_wise(*columns, b"").to_pylist()
    digests = b"".join(map(_sha256, texts))
    return np.frombuffer(digests, np.uint8).reshape(-1, ID_BYTES)


@lru_cache(maxsize=1 << 16)
def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _texts(ids: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return ids as what numpy sorts by their bytes."""
    return np.ascontiguousarray(ids).view(f"S{ID_BYTES}").ravel()


def render(rows: ListedRows, *, has_next: bool, has_previous: bool) -> bytes:
    """Return a part of the list of rows as the body of an answer.

    Parameters
    ----------
    rows
        In the order of the page.
    has_next, has_previous
        Whether the list is known to go on after, or before, these rows. An empty page knows
        neither; the side that the page was not counted towards is known only with a cursor.
    """
    accounts = rows.keys.select([*_FIELDS]).rename_columns(list(_FIELDS.values())).to_pylist()
    beginnings = [base64.urlsafe_b64encode(each).decode().rstrip("=") for each in rows.ids]
    edges = [
        {
            "node": {"timestamp": f"{time}000", "balance": balance, **accounts[account]},
            "cursor": f"{beginnings[account]}{time}",
        }
        for time, balance, account in zip(
            rows.times.tolist(),
            rows.balances.cast(pa.string()).to_pylist(),
            rows.accounts.tolist(),
            strict=True,
        )
    ]
    info = {
        "hasNextPage": has_next,
        "hasPreviousPage": has_previous,
        "startCursor": edges[0]["cursor"] if edges else "",
        "endCursor": edges[-1]["cursor"] if edges else "",
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
        return Place(int(match[2]), base64.urlsafe_b64decode(f"{match[1]}="))
    raise foreign(name)


def foreign(name: str) -> HTTPException:
    """Return the refusal of a cursor that marks no row of the archive."""
    text = f"{name} is not a cursor of this service: send one that came with an edge or a pageInfo"
    return HTTPException(400, text)
