"""The answers of the interface as typed shapes, under the wire's own structure.

`msgspec` decodes and validates in one pass. A page is decoded strictly first; the loose shape,
which keeps every row as raw JSON, serves only pages on which a row is not as the interface says.
Cursors of single rows are not decoded: `pageInfo` has the two that paging needs.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from balance_analysis.schema import FIELD_NAMES


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
    """One place in the list."""

    node: Row


class RawEdge(msgspec.Struct, gc=False):
    """One place in the list, its row unread."""

    node: msgspec.Raw


class Connection(msgspec.Struct, rename="camel"):
    """One page."""

    edges: list[Edge]
    page_info: PageInfo


class RawConnection(msgspec.Struct, rename="camel"):
    """One page, its rows unread."""

    edges: list[RawEdge]
    page_info: PageInfo


class BalanceChanges(msgspec.Struct):
    """The answer of operation A."""

    balances: Connection


class RawBalanceChanges(msgspec.Struct):
    """The answer of operation A, its rows unread."""

    balances: RawConnection


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
        If it is not JSON, is not UTF-8, or is nested too deep to be read.
    """
    try:
        return decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


page_decoder = msgspec.json.Decoder(BalanceChanges)
raw_page_decoder = msgspec.json.Decoder(RawBalanceChanges)
row_decoder = msgspec.json.Decoder(Row)
timestamp_decoder = msgspec.json.Decoder(RowTime)
limits_decoder = msgspec.json.Decoder(NetworkLimitsAnswer)
error_decoder = msgspec.json.Decoder(ErrorBody)
