"""Read the bytes of an answer into typed columns.

This module renames camelCase and parses numbers. If all edges of a page look alike, as they
usually do, their values are cut from its bytes; `msgspec` decodes and validates everything else. A
page with a bad row is read again, row by row, to find the row and the reason. Cursors of single
rows aren't decoded: `pageInfo` has the two that paging needs. If an object repeats a key, `msgspec`
takes the last value.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Final, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.errors import DecodeError
from balance_analysis.table import schema

FIRST_NANOSECOND: Final = schema.FIRST_MOMENT * 1000
LAST_NANOSECOND: Final = schema.LAST_MOMENT * 1000
_NANOSECOND_DIGITS: Final = 19
_TIMESTAMP: Final = re.compile(rf"[0-9]{{{_NANOSECOND_DIGITS}}}", re.ASCII)

T = TypeVar("T")


NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class AccountIds(msgspec.Struct, rename="camel", gc=False):
    """An account. A node sends `account_type` as a number if it has no name for the type."""

    asset_id: NotEmpty
    account_type: NotEmpty | int
    party_id: str
    market_id: str

    def __post_init__(self) -> None:
        if isinstance(sent := self.account_type, int):
            self.account_type = schema.TYPES_BY_NUMBER.get(sent, str(sent))


class Row(AccountIds, rename="camel", gc=False):
    """One balance change."""

    timestamp: str | int
    balance: str


_NAMES: Final = {field.encode_name.encode(): field.name for field in msgspec.structs.fields(Row)}
_QUOTES: Final = 2 * (3 + 2 * len(_NAMES))
"""Quotes per edge: around its two keys, the cursor, and the keys and values of its node."""

_CHUNK: Final = 1 << 16
"""Bytes to search at once. Arrays as large as a page would cost more than the search."""

_PAIR: Final = rb' *"(\w+)" *: *"[^"]*" *'
_EDGE: Final = re.compile(
    rb'"node" *: *\{'
    + b",".join([_PAIR] * len(_NAMES))
    + rb'\} *, *"cursor" *: *"[^"]*" *\} *, *\{ *'
)
"""An edge, from its first quote to that of the next edge; the groups are the keys of its node."""


class PageInfo(msgspec.Struct, rename="camel"):
    """A page's place in its list: its cursors, and whether more pages follow or precede."""

    start_cursor: str
    end_cursor: str
    has_next_page: bool
    has_previous_page: bool


N = TypeVar("N", Row, msgspec.Raw)


class Edge(msgspec.Struct, Generic[N], gc=False):
    """A list entry; its row is decoded, or raw."""

    node: N


class Connection(msgspec.Struct, Generic[N], rename="camel"):
    """A page of the list."""

    edges: list[Edge[N]]
    page_info: PageInfo


class BalanceChanges(msgspec.Struct, Generic[N]):
    """The answer of operation A."""

    balances: Connection[N]


_page_decoder: Final = msgspec.json.Decoder(BalanceChanges[Row])
_raw_page_decoder: Final = msgspec.json.Decoder(BalanceChanges[msgspec.Raw])
_row_decoder: Final = msgspec.json.Decoder(Row)
_account_decoder: Final = msgspec.json.Decoder(AccountIds)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body's decoded content.

    Raises
    ------
    msgspec.ValidationError
        If the body is JSON of another shape.
    msgspec.DecodeError
        If the body isn't JSON or UTF-8, or is too large or nested too deeply to be read.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        raise
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise msgspec.DecodeError(str(error) or type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """A page in columns.

    `rows` are the good rows in `ARROW_SCHEMA`; `times` are the timestamps (in microseconds) of all
    rows whose timestamp is readable, bad ones too. Both are in the order in which the node sent
    them.
    """

    rows: pa.RecordBatch
    times: NDArray[np.int64]
    bad_rows: tuple[schema.BadRow, ...]
    info: PageInfo


def decode_page(body: bytes) -> DecodedPage:
    """Read one page of balance changes.

    Raises
    ------
    DecodeError
        If the answer as a whole isn't a page of balance changes. Bad rows don't raise: they are in
        `bad_rows`.
    msgspec.DecodeError
        If the body isn't JSON.
    """
    with contextlib.suppress(msgspec.ValidationError):
        texts, info = _cut_page(body) or _read_page(body)
        rows = _columns(texts)
        if rows is not None:
            times = schema.to_numbers(rows["timestamp"].cast(pa.int64()))
            return DecodedPage(rows, times, (), info)
    return _decode_row_by_row(body)


def raise_bad_row(bad_rows: Sequence[schema.BadRow]) -> None:
    """Raise DecodeError for the first bad row, if there is one."""
    for bad in bad_rows:
        raise DecodeError(f"the node sent a bad row: {bad.reason}; it is {bad.raw}", row=bad.raw)


Texts = list[pa.StringArray]
"""The columns of `COLUMNS` as text."""


def _read_page(body: bytes) -> tuple[Texts, PageInfo]:
    """Return a page's columns and its place; `msgspec` decodes each edge."""
    page = decode(_page_decoder, body).balances
    return _texts_of([edge.node for edge in page.edges]), page.page_info


def _texts_of(rows: Sequence[Row]) -> Texts:
    return [pa.array(map(str, map(attrgetter(x), rows)), pa.string()) for x in schema.COLUMNS]


def _cut_page(body: bytes) -> tuple[Texts, PageInfo] | None:
    """Return what `_read_page` does, cutting the values from the bytes, which takes half the time.

    `None` unless there are several edges that differ only in values and cursors, and all text is
    printable ASCII without escapes. Every quote then begins or ends a text.
    """
    begin, end = body.find(b"[") + 1, body.rfind(b"]")
    text = np.frombuffer(body, np.uint8)[begin:end]
    if not (body.isascii() and len(text) and text.min() >= ord(" ")) or b"\\" in body:
        return None
    parts = (text[at : at + _CHUNK] == ord('"') for at in range(0, len(text), _CHUNK))
    places = np.concatenate([np.flatnonzero(x) + i * _CHUNK for i, x in enumerate(parts)])
    if len(places) < 2 * _QUOTES or len(places) % _QUOTES:
        return None
    quotes = begin + places.astype(np.int32).reshape(-1, _QUOTES)
    first, second, last = quotes[0, 0], quotes[1, 0], quotes[-1, -1]
    edge = _EDGE.fullmatch(body, first, second)
    around = body[begin:first] + body[last + 1 : end]
    if edge is None or around.replace(b" ", b"") != b"{}":
        return None
    starts, stops = quotes[:, 4::4] + 1, quotes[:, 5::4]
    glue = body[stops[0, -1] : second] + body[first : starts[0, 0]]
    separators = [glue, *(body[i:j] for i, j in zip(stops[0], starts[0, 1:], strict=False))]
    names = map(_NAMES.get, edge.groups())
    columns = dict(zip(names, zip(starts.T, stops.T, strict=True), strict=False))
    try:
        for after, expected in zip([stops[:-1, -1], *stops[1:, :-1].T], separators, strict=True):
            if _cut(body, after, len(expected)).tobytes() != expected * len(after):
                return None
        texts = [_cut_texts(body, *columns[name]) for name in schema.COLUMNS]
        is_filled = all(np.all(np.less(*columns[name])) for name in ("asset_id", "account_type"))
        info = decode(_page_decoder, body[:begin] + body[end:]).balances.page_info
    except (KeyError, IndexError, msgspec.DecodeError):
        return None
    return (texts, info) if is_filled else None


def _cut(body: bytes, starts: NDArray[np.int32], width: int) -> NDArray[np.void]:
    """Return the `width` bytes that begin at each start."""
    return np.ndarray((len(body) - width + 1,), f"V{width}", body, strides=(1,))[starts]


def _cut_texts(body: bytes, starts: NDArray[np.int32], stops: NDArray[np.int32]) -> pa.StringArray:
    lengths = stops - starts
    width = max(int(lengths.max()), 1)
    characters = _cut(body, starts, width).view(np.uint8).reshape(-1, width)
    if np.any(lengths < width):
        characters = characters[np.arange(width, dtype=np.int32) < lengths[:, None]]
    ends = np.append(np.int32(0), np.cumsum(lengths, dtype=np.int32))
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(ends), pa.py_buffer(characters))


def _columns(texts: Texts) -> pa.RecordBatch | None:
    """Return rows as a batch of `ARROW_SCHEMA`, or `None` if one of them is bad."""
    *ids, times, balances = texts
    nanoseconds = _nanoseconds(times)
    if nanoseconds is None or not _all(schema.are_balances(balances)):
        return None
    moments = schema.from_numbers(nanoseconds // 1000, pa.timestamp("us", "UTC"))
    amounts = balances.cast(pa.decimal128(schema.BALANCE_DIGITS, 0))
    codes = [column.dictionary_encode() for column in ids]
    return pa.RecordBatch.from_arrays([*codes, moments, amounts], schema=schema.ARROW_SCHEMA)


def _nanoseconds(texts: pa.StringArray) -> NDArray[np.int64] | None:
    # Check the texts first: Arrow's cast accepts hexadecimal and any number of zeros.
    lengths = schema.to_numbers(pc.binary_length(texts))
    if not _all(pc.ascii_is_decimal(texts)) or np.any(lengths != _NANOSECOND_DIGITS):
        return None
    # Unsigned: 19 digits may be more than a signed number holds.
    times = schema.to_numbers(texts.cast(pa.uint64()))
    is_good = (times >= FIRST_NANOSECOND) & (times < LAST_NANOSECOND) & (times % 1000 == 0)
    return times.view(np.int64) if is_good.all() else None


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _decode_row_by_row(body: bytes) -> DecodedPage:
    try:
        page = decode(_raw_page_decoder, body).balances
    except msgspec.ValidationError as error:
        raise DecodeError(
            f"the answer is not a page of balance changes: {error}; "
            "check that this is the address of a node"
        ) from error
    read = [_read_row(bytes(edge.node)) for edge in page.edges]
    rows = _columns(_texts_of([row for row, bad in read if row is not None and not bad.reason]))
    if rows is None:
        raise AssertionError("a row is good on its own but bad in its column")
    times = [bad.time for _, bad in read if bad.time is not None]
    bad_rows = tuple(bad for _, bad in read if bad.reason)
    return DecodedPage(rows, np.array(times, np.int64), bad_rows, page.page_info)


def _read_row(raw: bytes) -> tuple[Row | None, schema.BadRow]:
    """Return a row, or `None` if its shape is wrong, and a BadRow that names the fault, if any."""
    row, account = None, None
    try:
        row = decode(_row_decoder, raw)
        time, fault = _read_time(row.timestamp)
        fault = fault or schema.balance_fault(row.balance)
    except msgspec.ValidationError as error:
        sent = msgspec.json.decode(raw)
        time, _ = _read_time(sent.get("timestamp") if isinstance(sent, dict) else None)
        fault = str(error)
    with contextlib.suppress(msgspec.DecodeError):
        ids = decode(_account_decoder, raw)
        account = (ids.asset_id, str(ids.account_type), ids.party_id, ids.market_id)
    return row, schema.BadRow(raw.decode(errors="replace"), fault, time, account)


def _read_time(timestamp: object) -> tuple[int | None, str]:
    """Return a timestamp (in microseconds) and "", or `None` and what is wrong with it."""
    text = str(timestamp)
    if not _TIMESTAMP.fullmatch(text) or not FIRST_NANOSECOND <= int(text) < LAST_NANOSECOND:
        return None, f"timestamp {text!r} is not in nanoseconds between 2015 and 2100"
    if int(text) % 1000:
        return None, f"timestamp {text!r} is not a whole number of microseconds"
    return int(text) // 1000, ""
