"""Read the bytes of an answer into typed columns.

Here camelCase and numbers in strings end. A page whose rows are all right takes one pass, in
columns. Only a page with a bad row is read again, row by row, to tell which row is bad and why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import DecodeError
from balance_analysis.node import wire
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    BALANCE_DIGITS,
    NetworkLimits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_NANOSECOND: Final = pd.Timestamp("2015-01-01", tz="UTC").value
LAST_NANOSECOND: Final = pd.Timestamp("2100-01-01", tz="UTC").value
_NANOSECOND_DIGITS: Final = 19
_BALANCE: Final = re.compile(rf"-?[0-9]{{1,{BALANCE_DIGITS}}}", re.ASCII)
_TIMESTAMP: Final = re.compile(rf"[0-9]{{{_NANOSECOND_DIGITS}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the table can't hold.

    Attributes
    ----------
    raw
        The row as the node sent it, JSON.
    reason
        What is wrong with it.
    time
        Microseconds since 1970; `None` where its timestamp can't be read.
    """

    raw: str
    reason: str
    time: int | None


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """One page in columns.

    Attributes
    ----------
    rows
        The good rows in `ARROW_SCHEMA`, in the order in which the node sent them.
    times
        Microseconds of every row whose timestamp can be read, bad ones too, in the node's order.
    bad_rows
        The others.
    start_cursor, end_cursor, has_next_page, has_previous_page
        The page info.
    """

    rows: pa.RecordBatch
    times: pa.Int64Array
    bad_rows: tuple[BadRow, ...]
    start_cursor: str
    end_cursor: str
    has_next_page: bool
    has_previous_page: bool


def decode_page(body: bytes) -> DecodedPage:
    """Read one page of balance changes.

    Raises
    ------
    DecodeError
        If the answer as a whole is not a page of the interface. Bad rows don't raise: they are in
        `bad_rows`.
    msgspec.DecodeError
        If the body is not JSON at all.
    """
    try:
        page = wire.page_decoder.decode(body).balances
        rows = _columns([edge.node for edge in page.edges])
    except msgspec.ValidationError:
        rows = None
    if rows is None:
        return _decode_row_by_row(body)
    return _decoded(rows, rows["timestamp"].cast(pa.int64()), (), page.page_info)


def raise_bad_row(bad_rows: Sequence[BadRow]) -> None:
    """Raise DecodeError for the first bad row, if there is one."""
    for bad in bad_rows:
        raise DecodeError(
            f"the node sent a bad row: {bad.reason}; the row is {bad.raw}", row=bad.raw
        )


def _decoded(
    rows: pa.RecordBatch, times: pa.Int64Array, bad: tuple[BadRow, ...], info: wire.PageInfo
) -> DecodedPage:
    return DecodedPage(
        rows,
        times,
        bad,
        info.start_cursor,
        info.end_cursor,
        info.has_next_page,
        info.has_previous_page,
    )


def _columns(rows: list[wire.Row]) -> pa.RecordBatch | None:
    """Return rows as a batch of `ARROW_SCHEMA`, or `None` if one of them is bad."""
    ids = [_texts([getattr(row, name) for row in rows]).dictionary_encode() for name in ACCOUNT_KEY]
    times = _texts([row.timestamp for row in rows])
    balances = _texts([row.balance for row in rows])
    if not (_all_nanoseconds(times) and _all_balances(balances)):
        return None
    microseconds = pc.divide(times.cast(pa.int64()), 1000).cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(
        [*ids, microseconds, balances.cast(pa.decimal128(BALANCE_DIGITS, 0))], schema=ARROW_SCHEMA
    )


def _texts(values: list[str | int]) -> pa.StringArray:
    try:
        return pa.array(values, pa.string())
    except pa.ArrowTypeError:  # a bare number among them
        return pa.array([str(value) for value in values], pa.string())


def _all_nanoseconds(texts: pa.StringArray) -> bool:
    # Arrow's cast takes hexadecimal and any number of zeros: what it may see is checked first.
    shaped = pc.and_(
        pc.ascii_is_decimal(texts), pc.equal(pc.binary_length(texts), _NANOSECOND_DIGITS)
    )
    if not _all(shaped) or not _all(pc.less(texts, str(LAST_NANOSECOND))):
        return False
    times = texts.cast(pa.int64())
    whole = pc.equal(pc.multiply(pc.divide(times, 1000), 1000), times)
    return _all(whole) and _all(pc.greater_equal(times, FIRST_NANOSECOND))


def _all_balances(texts: pa.StringArray) -> bool:
    # Arrow's cast wraps silently past 38 digits (apache/arrow#49817) and takes "1e5".
    return _all(pc.match_substring_regex(texts, rf"\A{_BALANCE.pattern}\z"))


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _decode_row_by_row(body: bytes) -> DecodedPage:
    try:
        page = wire.raw_page_decoder.decode(body).balances
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
    return _decoded(rows, pa.array(times, pa.int64()), tuple(bad), page.page_info)


def _read_row(raw: bytes) -> tuple[wire.Row | None, str | None]:
    """Return a row and what is wrong with it; either may be `None`."""
    try:
        row = wire.row_decoder.decode(raw)
    except msgspec.ValidationError as error:
        return _row_of_text(raw), str(error)
    return row, _fault(row)


def _row_of_text(raw: bytes) -> wire.Row | None:
    """Return what can be read of a row whose shape is wrong, so that its time is known."""
    values = msgspec.json.decode(raw)
    timestamp = values.get("timestamp") if isinstance(values, dict) else None
    return wire.Row("", "", "", "", timestamp, "") if isinstance(timestamp, str) else None


def _time(row: wire.Row) -> int | None:
    return None if _timestamp_fault(str(row.timestamp)) else int(row.timestamp) // 1000


def _fault(row: wire.Row) -> str | None:
    return _timestamp_fault(str(row.timestamp)) or _balance_fault(row.balance)


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


_LIMIT_FIELDS: Final = {
    "canProposeMarket",
    "canProposeAsset",
    "proposeMarketEnabled",
    "proposeAssetEnabled",
    "genesisLoaded",
    "proposeMarketEnabledFrom",
    "proposeAssetEnabledFrom",
}


def decode_limits(body: bytes) -> dict[str, Any]:
    """Read the fields of the network limits, under the wire's names.

    Raises
    ------
    DecodeError
        If the answer is not the network limits.
    msgspec.DecodeError
        If the body is not JSON at all.
    """
    try:
        return wire.limits_decoder.decode(body).limits
    except msgspec.ValidationError as error:
        raise DecodeError(f"the answer is not the network limits: {error}") from error


def network_limits(
    fields: dict[str, Any], *, fetched_at: pd.Timestamp, source: str, block_height: int | None
) -> NetworkLimits:
    """Return the limits of `decode_limits`, typed; fields the interface doesn't list in `extra`.

    Raises
    ------
    DecodeError
        If a field is missing or has a wrong type.
    """
    return NetworkLimits(
        can_propose_market=_flag(fields, "canProposeMarket"),
        can_propose_asset=_flag(fields, "canProposeAsset"),
        propose_market_enabled=_flag(fields, "proposeMarketEnabled"),
        propose_asset_enabled=_flag(fields, "proposeAssetEnabled"),
        genesis_loaded=_flag(fields, "genesisLoaded"),
        propose_market_enabled_from=_date(fields, "proposeMarketEnabledFrom"),
        propose_asset_enabled_from=_date(fields, "proposeAssetEnabledFrom"),
        fetched_at=fetched_at,
        source=source,
        block_height=block_height,
        extra={name: value for name, value in fields.items() if name not in _LIMIT_FIELDS},
    )


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise DecodeError(f"network limits: {name} must be true or false, not {value!r}")
    return value


def _date(fields: dict[str, Any], name: str) -> pd.Timestamp | None:
    """Return a date of the limits: nanoseconds, or ISO 8601 on another server; "0" is not set."""
    text = fields.get(name)
    if text in ("0", ""):
        return None
    try:
        if isinstance(text, str):
            return pd.Timestamp(int(text), unit="ns", tz="UTC") if text.isdecimal() else _iso(text)
    except ValueError:
        pass
    raise DecodeError(f"network limits: {name} must be nanoseconds as text, not {text!r}")


def _iso(text: str) -> pd.Timestamp:
    stamp = pd.Timestamp(text)
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
