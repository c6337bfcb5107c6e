"""The parameters of a request, and the answers as typed shapes, under the wire's own structure.

`msgspec` decodes and validates in one pass. A page is decoded strictly first; the loose shape,
which keeps every row as raw JSON, serves only pages on which a row is not as the interface says.
Cursors of single rows are not decoded: `pageInfo` has the two that paging needs.

Of a key that an object has twice, `msgspec` takes the last and says nothing: `check_keys` does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from balance_analysis.errors import DecodeError
from balance_analysis.filters import Filters
from balance_analysis.schema import FIELD_NAMES

Parameters = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of balance changes in a range of microseconds, from a cursor on or from an end."""

    filters: Filters
    start: int
    end: int
    page_size: int
    newest_first: bool = False
    cursor: str | None = None
    backward: bool = False

    def parameters(self) -> Parameters:
        """Return the wire's parameters; both bounds are always sent.

        A node that is asked without a range scans its whole table and may never answer.
        """
        size, cursor = ("last", "before") if self.backward else ("first", "after")
        return [
            *filter_parameters(self.filters),
            (f"pagination.{size}", str(self.page_size)),
            *([] if self.cursor is None else [(f"pagination.{cursor}", self.cursor)]),
            ("pagination.newestFirst", "true" if self.newest_first else "false"),
            ("dateRange.startTimestamp", str(self.start * 1000)),
            ("dateRange.endTimestamp", str(self.end * 1000)),
        ]


def filter_parameters(filters: Filters) -> Parameters:
    """Return the filters as the wire's repeated keys."""
    return [
        *([("filter.assetId", filters.asset_id)] if filters.asset_id is not None else []),
        *(("filter.partyIds", party) for party in filters.party_ids),
        *(("filter.marketIds", market) for market in filters.market_ids),
        *(("filter.accountTypes", name) for name in filters.account_types),
    ]


class Row(msgspec.Struct, rename=FIELD_NAMES, gc=False):
    """One balance change. A number as `account_type` is a type that the node has no name for."""

    asset_id: str
    account_type: str | int
    party_id: str
    market_id: str
    timestamp: str | int
    balance: str


class RowTime(msgspec.Struct):
    """What is read of a row that is not as the interface says."""

    timestamp: str | int


class PageInfo(msgspec.Struct, rename="camel"):
    """Where a page stands in its list."""

    start_cursor: str
    end_cursor: str
    has_next_page: bool
    has_previous_page: bool


class Edge(msgspec.Struct, gc=False):
    """One place in the list. The cursor is a key like any other when keys are counted."""

    node: Row
    cursor: msgspec.Raw


class RawEdge(msgspec.Struct, gc=False):
    """One place in the list, its row unread."""

    node: msgspec.Raw


E = TypeVar("E", Edge, RawEdge)


class Connection(msgspec.Struct, Generic[E], rename="camel"):
    """One page."""

    edges: list[E]
    page_info: PageInfo


class BalanceChanges(msgspec.Struct, Generic[E]):
    """The answer of operation A."""

    balances: Connection[E]


class Limits(msgspec.Struct, rename="camel"):
    """The network limits; a date is nanoseconds as text."""

    can_propose_market: bool
    can_propose_asset: bool
    propose_market_enabled: bool
    propose_asset_enabled: bool
    genesis_loaded: bool
    propose_market_enabled_from: str
    propose_asset_enabled_from: str


class NetworkLimitsAnswer(msgspec.Struct):
    """The answer of operation B."""

    limits: dict[str, Any]


class ErrorDetail(msgspec.Struct):
    """One detail of an error; `inner` has the useful text."""

    inner: str = ""


class ErrorBody(msgspec.Struct):
    """The body of an answer that is not a success."""

    code: int | None = None
    message: str = ""
    details: list[ErrorDetail] = []


T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return what a body holds.

    Raises
    ------
    msgspec.ValidationError
        If it is JSON of another shape.
    msgspec.DecodeError
        If it is not JSON, is not UTF-8, or is nested too deep or too large to be read.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        raise
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise msgspec.DecodeError(str(error) or type(error).__name__) from error


_PAGE_KEYS: Final = 7
_EDGE_KEYS: Final = 8
_PIECE: Final = 1 << 18


def has_just_its_keys(body: bytes, edges: int) -> bool:
    """Whether a page that was decoded strictly has each key once and no others: fast.

    Each key has a colon, so that no more colons than required keys leave none for a second one.
    """
    # In pieces that stay in the heap: a mask as large as a page is mapped and unmapped each time.
    letters = np.frombuffer(body, np.uint8)
    pieces = (letters[place : place + _PIECE] for place in range(0, len(body), _PIECE))
    colons = sum(np.count_nonzero(piece == ord(":")) for piece in pieces)
    return bool(colons == _PAGE_KEYS + _EDGE_KEYS * edges)


def check_keys(body: bytes) -> None:
    """Check that no object of a body, JSON, has a key twice.

    Raises
    ------
    DecodeError
        If one does.
    """
    try:
        json.loads(body.decode(errors="replace"), object_pairs_hook=_check_pairs, parse_int=len)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the answer can't be read: {error}") from error


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        key = next(key for key in keys if keys.count(key) > 1)
        raise DecodeError(f"the answer has the key {key!r} twice in one object")


page_decoder: msgspec.json.Decoder[BalanceChanges[Edge]] = msgspec.json.Decoder(
    BalanceChanges[Edge]
)
raw_page_decoder: msgspec.json.Decoder[BalanceChanges[RawEdge]] = msgspec.json.Decoder(
    BalanceChanges[RawEdge]
)
row_decoder: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Row)
timestamp_decoder: msgspec.json.Decoder[RowTime] = msgspec.json.Decoder(RowTime)
limits_decoder: msgspec.json.Decoder[NetworkLimitsAnswer] = msgspec.json.Decoder(
    NetworkLimitsAnswer
)
error_decoder: msgspec.json.Decoder[ErrorBody] = msgspec.json.Decoder(ErrorBody)
