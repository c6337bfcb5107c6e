"""What a segment tells of the network as of its last block: its assets, and its limits so far."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from balance_analysis.assets import Assets, read_assets
from balance_analysis.errors import DecodeError
from balance_analysis.schema import LIMIT_FLAGS, LIMIT_MOMENTS, NetworkLimits
from balance_analysis.segments.rows import id_text, moments_of, one_chunk
from balance_analysis.segments.segment import ASSETS, LIMITS, Segment

_VALUES: Final = {"t": True, "f": False}
_NOT_SET: Final = pd.Timestamp(0, tz="UTC")


def read_segment_assets(segment: Segment) -> Assets:
    """Return the assets, each as it is in a segment's last block.

    Raises
    ------
    DecodeError
        If their table is damaged.
    """
    table = segment.table(ASSETS, ("id", "symbol", "name", "decimals", "vega_time"))
    times = moments_of(one_chunk(table["vega_time"]), f"{segment}: an asset's vega_time").tolist()
    versions = sorted(zip(times, table.to_pylist(), strict=True), key=lambda version: version[0])
    try:
        return read_assets(
            {
                id_text(row["id"]): {
                    "symbol": row["symbol"],
                    "name": row["name"],
                    "decimals": int(row["decimals"]),
                }
                for _, row in versions
            }
        )
    except ValueError as error:
        raise DecodeError(f"{segment}: the table of assets is damaged: {error}") from error


def read_segment_limits(segment: Segment, source: str) -> list[NetworkLimits]:
    """Return the network's limits from each of their changes on, in time order.

    Raises
    ------
    DecodeError
        If their table is damaged.
    """
    table = segment.table(LIMITS, ("vega_time", *LIMIT_FLAGS, *LIMIT_MOMENTS))
    times = moments_of(one_chunk(table["vega_time"]), f"{segment}: the limits' vega_time").tolist()
    changes = sorted(zip(times, table.to_pylist(), strict=True), key=lambda change: change[0])
    try:
        return [
            NetworkLimits(
                **_values(row),
                fetched_at=pd.Timestamp(time, unit="us", tz="UTC"),
                source=source,
            )
            for time, row in changes
        ]
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{segment}: the table of network limits is damaged: {error}") from error


def _values(row: dict[str, str]) -> dict[str, Any]:
    """Return the fields of limits that a row has."""
    flags = {name: _VALUES[row[name]] for name in LIMIT_FLAGS}
    return {**flags, **{name: _moment(row[name]) for name in LIMIT_MOMENTS}}


def _moment(text: str) -> pd.Timestamp | None:
    """Return a moment; `None` where it is not set."""
    try:
        moment = pd.to_datetime(text, utc=True, format="ISO8601").as_unit("ns") if text else None
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment in UTC between 1678 and 2262") from error
    return None if moment == _NOT_SET else moment
