"""Read the bytes of an answer into typed columns.

Here camelCase and numbers in strings end. A page whose rows are all right takes one pass, in
columns. Only a page with a bad row is read again, row by row, to tell which row is bad and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.errors import DecodeError
from balance_analysis.node import wire
from balance_analysis.rows import BadRow, from_numbers, to_numbers
from balance_analysis.schema import (
    ARROW_SCHEMA,
    BALANCE_DIGITS,
    FIRST_MOMENT,
    LAST_MOMENT,
)

FIRST_NANOSECOND: Final = FIRST_MOMENT * 1000
LAST_NANOSECOND: Final = LAST_MOMENT * 1000
_NANOSECOND_DIGITS: Final = 19
_BETWEEN: Final = "\0"
_EMPTY: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, kind) for kind in ARROW_SCHEMA.types], schema=ARROW_SCHEMA
)
_BALANCE: Final = re.compile(rf"-?[0-9]{{1,{BALANCE_DIGITS}}}", re.ASCII)
_TIMESTAMP: Final = re.compile(rf"[0-9]{{{_NANOSECOND_DIGITS}}}", re.ASCII)

# Python refuses to read integers of thousands of digits with a ValueError.
_WRONG: Final = (msgspec.ValidationError, ValueError)


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """One page in columns.

    `rows` are the good ones in `ARROW_SCHEMA`, `times` the microseconds of every row whose
    timestamp can be read, bad ones too; both in the order in which the node sent them.
    """

    rows: pa.RecordBatch
    times: pa.Int64Array
    bad_rows: tuple[BadRow, ...]
    info: wire.PageInfo


def decode_page(body: bytes) -> DecodedPage:
    """Read one page of balance changes.

    Raises
    ------
    DecodeError
        If the answer as a whole is not a page of the interface, or has a key twice. Bad rows don't
        raise: they are in `bad_rows`.
    msgspec.DecodeError
        If the body is not JSON at all.
    """
    try:
        page = wire.decode(wire.page_decoder, body).balances
        rows = _columns([edge.node for edge in page.edges])
        is_plain = rows is not None and wire.has_just_its_keys(body, len(page.edges))
    except _WRONG as error:
        _raise_if_no_json(error)
        rows, is_plain = None, False
    if not is_plain:
        wire.check_keys(body)
    if rows is None:
        return _decode_row_by_row(body)
    return DecodedPage(rows, rows["timestamp"].cast(pa.int64()), (), page.page_info)


def raise_bad_row(bad_rows: Sequence[BadRow]) -> None:
    """Raise DecodeError for the first bad row, if there is one."""
    for bad in bad_rows:
        raise DecodeError(
            f"the node sent a bad row: {bad.reason}; the row is {bad.raw}", row=bad.raw
        )


def _columns(rows: list[wire.Row]) -> pa.RecordBatch | None:
    """Return rows as a batch of `ARROW_SCHEMA`, or `None` if one of them is bad."""
    if not rows:
        return _EMPTY
    ids = [
        _texts([row.asset_id for row in rows]),
        _texts([row.account_type for row in rows]),
        _texts([row.party_id for row in rows]),
        _texts([row.market_id for row in rows]),
    ]
    nanoseconds = _nanoseconds(_texts([row.timestamp for row in rows]))
    balances = _texts([row.balance for row in rows])
    if nanoseconds is None or not _all_balances(balances):
        return None
    times = from_numbers(nanoseconds // 1000, pa.timestamp("us", "UTC"))
    amounts = balances.cast(pa.decimal128(BALANCE_DIGITS, 0))
    codes = [each.dictionary_encode() for each in ids]
    return pa.RecordBatch.from_arrays([*codes, times, amounts], schema=ARROW_SCHEMA)


def _raise_if_no_json(error: Exception) -> None:
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        raise error


def _texts(values: Sequence[str | int]) -> pa.StringArray:
    # As one text that Arrow splits, without the interpreter, which `pa.array` would hold.
    try:
        joined = _BETWEEN.join(values).encode()  # type: ignore[arg-type]
    except TypeError:  # a bare number among them
        return _texts([str(value) for value in values])
    ends = pa.py_buffer(np.array([0, len(joined)], np.int32))
    one = pa.StringArray.from_buffers(1, ends, pa.py_buffer(joined))
    texts = pc.split_pattern(one, _BETWEEN).flatten()
    return texts if len(texts) == len(values) else pa.array(map(str, values), pa.string())


def _nanoseconds(texts: pa.StringArray) -> NDArray[np.int64] | None:
    # Arrow's cast takes hexadecimal and any number of zeros: what it may see is checked first.
    if not _all(pc.ascii_is_decimal(texts)) or np.any(_lengths(texts) != _NANOSECOND_DIGITS):
        return None
    times = to_numbers(texts.cast(pa.int64()))
    is_good = (times >= FIRST_NANOSECOND) & (times < LAST_NANOSECOND) & (times % 1000 == 0)
    return times if is_good.all() else None


def _all_balances(texts: pa.StringArray) -> bool:
    # Arrow's cast wraps silently past 38 digits (apache/arrow#49817) and takes "1e5".
    if _all(pc.ascii_is_decimal(texts)) and np.all(_lengths(texts) <= BALANCE_DIGITS):
        return True
    return _all(pc.match_substring_regex(texts, rf"\A{_BALANCE.pattern}\z"))


def _lengths(texts: pa.StringArray) -> NDArray[np.int32]:
    return to_numbers(pc.binary_length(texts))


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _decode_row_by_row(body: bytes) -> DecodedPage:
    try:
        page = wire.decode(wire.raw_page_decoder, body).balances
    except msgspec.ValidationError as error:
        raise DecodeError(
            f"the answer is not a page of balance changes: {error}; "
            "check that this is the address of a node"
        ) from error
    good, bad, times = [], [], []
    for edge in page.edges:
        row, reason = _read_row(bytes(edge.node))
        time = None if row is None else _time(row)
        if time is not None:
            times.append(time)
        if row is not None and reason is None:
            good.append(row)
        else:
            bad.append(BadRow(bytes(edge.node).decode(errors="replace"), str(reason), time))
    rows = _columns(good)
    if rows is None:
        raise AssertionError("a row was judged good by itself and bad in its column")
    numbers = from_numbers(np.array(times, np.int64), pa.int64())
    return DecodedPage(rows, numbers, tuple(bad), page.page_info)


def _read_row(raw: bytes) -> tuple[wire.Row | None, str | None]:
    """Return a row and what is wrong with it; either may be `None`."""
    try:
        row = wire.decode(wire.row_decoder, raw)
    except _WRONG as error:
        _raise_if_no_json(error)
        return _row_of_text(raw), str(error)
    return row, _timestamp_fault(str(row.timestamp)) or _balance_fault(row.balance)


def _row_of_text(raw: bytes) -> wire.Row | None:
    """Return what can be read of a row whose shape is wrong, so that its time is known."""
    try:
        timestamp = wire.decode(wire.timestamp_decoder, raw).timestamp
    except _WRONG:
        return None
    return wire.Row("", "", "", "", timestamp, "")


def _time(row: wire.Row) -> int | None:
    return None if _timestamp_fault(str(row.timestamp)) else int(row.timestamp) // 1000


def _timestamp_fault(text: str) -> str | None:
    if not _TIMESTAMP.fullmatch(text) or not FIRST_NANOSECOND <= int(text) < LAST_NANOSECOND:
        return f"timestamp {text!r} is not in nanoseconds between 2015 and 2100"
    if int(text) % 1000:
        return f"timestamp {text!r} is not a whole number of microseconds"
    return None


def _balance_fault(text: str) -> str | None:
    if _BALANCE.fullmatch(text):
        return None
    if re.fullmatch(r"-?[0-9]+", text, re.ASCII):
        return f"balance {text!r} has more than {BALANCE_DIGITS} digits"
    return f"balance {text!r} is not an integer"
