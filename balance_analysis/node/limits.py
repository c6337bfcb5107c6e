"""Read the bytes of the network limits."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec
import pandas as pd

from balance_analysis.errors import DecodeError
from balance_analysis.node import wire
from balance_analysis.schema import NetworkLimits

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
        If the answer is not the network limits, or has a key twice.
    msgspec.DecodeError
        If the body is not JSON at all.
    """
    try:
        limits = wire.decode(wire.limits_decoder, body).limits
    except msgspec.ValidationError as error:
        raise DecodeError(f"the answer is not the network limits: {error}") from error
    wire.check_keys(body)
    return limits


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
    except (ValueError, OverflowError):
        pass
    raise DecodeError(f"network limits: {name} must be nanoseconds as text, not {text!r}")


def _iso(text: str) -> pd.Timestamp:
    dt.datetime.fromisoformat(text)  # pandas takes "now" and more
    stamp = pd.Timestamp(text)
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
