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

_SPECIAL: Final = r"[^ !#-\[\]-~]"
"""Any character but those that JSON writes as they are in ASCII."""

_IN_ID: Final = ("asset_id", "party_id", "market_id", "account_type")
"""What an account's id is the SHA-256 of, written one after the other."""


_IDS: Final = pa.schema([(name, pa.string()) for name in ACCOUNT_KEY])

ID_BYTES: Final = 32
"""SHA-256."""

_ID_CHARACTERS: Final = 43
_CURSOR: Final = re.compile(r"([\w-]{43})(0|-?[1-9][0-9]{0,15})", re.ASCII)


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
    edges, first, last = _edges(rows)
    flags = {"hasNextPage": has_next, "hasPreviousPage": has_previous}
    info = msgspec.json.encode({**flags, "startCursor": first, "endCursor": last})
    return b"".join([b'{"balances":{"edges":[', edges, b'],"pageInfo":', info, b"}}"])


def _edges(rows: ListedRows) -> tuple[bytes | pa.Buffer, str, str]:
    """Return the edges, with commas, and the first and the last cursor."""
    if not len(rows):
        return b"", "", ""
    beginnings = pa.array(_encode_accounts(rows.ids))
    accounts = pa.array(rows.accounts)
    times = pa.array(rows.times).cast(pa.string())
    edges = pc.binary_join_element_wise(
        '{"node":{"timestamp":"',
        times,
        '000","balance":"',
        rows.balances.cast(pa.string()),
        _nodes(rows, beginnings).take(accounts),
        times,
        '"}',
        "",
    )
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(edges)], edges), ",")
    cursors = [f"{beginnings[accounts[end].as_py()]}{times[end]}" for end in (0, len(edges) - 1)]
    return joined[0].as_buffer(), cursors[0], cursors[1]


def _nodes(rows: ListedRows, beginnings: pa.StringArray) -> pa.StringArray:
    """Return for each account what stands between a row's balance and its cursor's number."""
    ids = {name: _quoted(rows.keys[name]) for name in rows.keys.column_names}
    return pc.binary_join_element_wise(
        '","partyId":',
        ids["party_id"],
        ',"assetId":',
        ids["asset_id"],
        ',"marketId":',
        ids["market_id"],
        ',"accountType":',
        ids["account_type"],
        '},"cursor":"',
        beginnings,
        "",
    )


def _quoted(ids: pa.ChunkedArray) -> pa.StringArray:
    """Return ids as strings of JSON: they may hold anything."""
    encoded = ids.combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        quoted = [msgspec.json.encode(text).decode() for text in texts.to_pylist()]
        return pa.array(quoted, pa.string()).take(encoded.indices)
    return pc.binary_join_element_wise('"', texts, '"', "").take(encoded.indices)


def _encode_accounts(ids: NDArray[np.uint8]) -> list[str]:
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
    if found := _CURSOR.fullmatch(cursor):
        return Place(int(found[2]), base64.urlsafe_b64decode(f"{found[1]}="))
    raise foreign(name)


def foreign(name: str) -> HTTPException:
    """Return the refusal of a cursor that marks no row of the archive."""
    text = f"{name} is not a cursor of this service: send one that came with an edge or a pageInfo"
    return HTTPException(400, text)
