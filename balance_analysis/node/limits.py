"""Load the network limits from a node."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec
import pandas as pd

from balance_analysis.errors import DecodeError
from balance_analysis.node.client import NETWORK_LIMITS, Client, Response, check_client
from balance_analysis.node.decode import decode
from balance_analysis.table.schema import LIMIT_FLAGS, LIMIT_MOMENTS, NetworkLimits

_Limits: Final = msgspec.defstruct(
    "_Limits",
    [*((name, bool) for name in LIMIT_FLAGS), *((name, str) for name in LIMIT_MOMENTS)],
    rename="camel",
)
"""The network limits on the wire; dates are nanoseconds as text."""

_Answer: Final = msgspec.defstruct("_Answer", [("limits", dict[str, Any])])
"""The answer of operation B."""

_limits_decoder: Final = msgspec.json.Decoder(_Answer)


def load_network_limits(client: Client) -> NetworkLimits:
    """Load the network's limits as they are now.

    Returns
    -------
    NetworkLimits
        The limits, the time of the request, the source and the node's last block.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses; before a network's first block a node answers 404.
    DecodeError
        If the answer isn't what the interface describes.
    """
    check_client(client)
    fetched_at = pd.Timestamp.now("UTC")
    return network_limits(fetch_limits(client), fetched_at)


def fetch_limits(client: Client, **options: Any) -> Response[dict[str, Any]]:  # noqa: ANN401 - arguments of `Client.get`
    """Return the network limits under the wire's names; raise as `load_network_limits`."""
    return client.get(NETWORK_LIMITS, [], _decode_limits, **options)


def _decode_limits(body: bytes) -> dict[str, Any]:
    """Return the fields of the network limits under the wire's names.

    Raises
    ------
    DecodeError
        If the answer isn't the network limits.
    msgspec.DecodeError
        If the body isn't JSON.
    """
    try:
        answer: Any = decode(_limits_decoder, body)
    except msgspec.ValidationError as error:
        raise DecodeError(f"the answer is not the network limits: {error}") from error
    return dict(answer.limits)


def network_limits(answer: Response[dict[str, Any]], fetched_at: pd.Timestamp) -> NetworkLimits:
    """Return an answer's limits, typed; fields that the interface doesn't list are in `extra`.

    Raises
    ------
    DecodeError
        If a field is missing or has a wrong type.
    """
    try:
        limits = msgspec.convert(answer.value, _Limits)
    except msgspec.ValidationError as error:
        raise DecodeError(f"network limits: {error}") from error
    names = dict(zip(limits.__struct_fields__, limits.__struct_encode_fields__, strict=True))
    known = {name: _value(label, getattr(limits, name)) for name, label in names.items()}
    extra = answer.value.keys() - {*names.values()}
    return NetworkLimits(
        **known,
        fetched_at=fetched_at,
        source=answer.source,
        block_height=answer.block_height,
        extra={name: value for name, value in answer.value.items() if name in extra},
    )


def _value(name: str, value: bool | str) -> Any:  # noqa: ANN401 - depends on the field
    """Return a flag unchanged, and a date (nanoseconds or ISO 8601) as a moment; `None` for "0"."""
    if isinstance(value, bool):
        return value
    if value in ("0", ""):
        return None
    try:
        if value.isdecimal():
            return pd.Timestamp(int(value), unit="ns", tz="UTC")
        dt.datetime.fromisoformat(value)  # pandas takes "now" and more
        return pd.to_datetime(value, utc=True)
    except (ValueError, OverflowError) as error:
        message = f"network limits: {name} must be nanoseconds as text, not {value!r}"
        raise DecodeError(message) from error
