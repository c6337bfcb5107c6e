"""The network's limits, as a node tells them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pandas as pd

from balance_analysis.errors import DecodeError
from balance_analysis.node import wire
from balance_analysis.node.client import NETWORK_LIMITS, Client
from balance_analysis.schema import NetworkLimits

if TYPE_CHECKING:
    from balance_analysis.node.exchange import Answer

_FLAGS: Final = {
    "can_propose_market": "canProposeMarket",
    "can_propose_asset": "canProposeAsset",
    "propose_market_enabled": "proposeMarketEnabled",
    "propose_asset_enabled": "proposeAssetEnabled",
    "genesis_loaded": "genesisLoaded",
}
_DATES: Final = {
    "propose_market_enabled_from": "proposeMarketEnabledFrom",
    "propose_asset_enabled_from": "proposeAssetEnabledFrom",
}
_KNOWN: Final = {*_FLAGS.values(), *_DATES.values()}


def load_network_limits(client: Client) -> NetworkLimits:
    """Load the network's limits as they are now.

    Returns
    -------
    NetworkLimits
        With the moment of asking, the source, and the node's last block.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses; before a network's first block a node answers 404.
    DecodeError
        If the answer is not what the interface describes.
    """
    fetched_at = pd.Timestamp.now("UTC")
    return network_limits(client.get(NETWORK_LIMITS, [], decode_limits), fetched_at)


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


def network_limits(answer: Answer[dict[str, Any]], fetched_at: pd.Timestamp) -> NetworkLimits:
    """Return limits, typed; fields the interface doesn't list in `extra`.

    Raises
    ------
    DecodeError
        If a field is missing or has a wrong type.
    """
    fields = answer.value
    flags: dict[str, Any] = {name: _flag(fields, wired) for name, wired in _FLAGS.items()}
    dates: dict[str, Any] = {name: _date(fields, wired) for name, wired in _DATES.items()}
    return NetworkLimits(
        **flags,
        **dates,
        fetched_at=fetched_at,
        source=answer.source,
        block_height=answer.block_height,
        extra={name: value for name, value in fields.items() if name not in _KNOWN},
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
    return pd.to_datetime(text, utc=True)
