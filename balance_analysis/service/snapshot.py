"""Read a snapshot of the network limits from a file, as the interface shows it."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from balance_analysis.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")


class _Snapshot(msgspec.Struct):
    can_propose_market: bool
    can_propose_asset: bool
    propose_market_enabled: bool
    propose_asset_enabled: bool
    genesis_loaded: bool
    propose_market_enabled_from: str | None
    propose_asset_enabled_from: str | None
    extra: dict[str, Any] = {}


def read_limits(path: Path) -> dict[str, Any]:
    """Return the `limits` object of the interface.

    Parameters
    ----------
    path
        A JSON object with the fields of `schema.NetworkLimits`; dates are ISO 8601 text in UTC with
        up to nine decimals, or null. When and where it was fetched is not part of the interface and
        is left out.

    Returns
    -------
    dict
        The interface's fields, dates as nanoseconds since 1970 in a string (`"0"` where not set),
        and the fields of `extra` under their own names.

    Raises
    ------
    ArchiveError
        If the file can't be read, or is not such a snapshot.
    """
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=_Snapshot)
        return {
            **snapshot.extra,
            "canProposeMarket": snapshot.can_propose_market,
            "canProposeAsset": snapshot.can_propose_asset,
            "proposeMarketEnabled": snapshot.propose_market_enabled,
            "proposeAssetEnabled": snapshot.propose_asset_enabled,
            "genesisLoaded": snapshot.genesis_loaded,
            "proposeMarketEnabledFrom": _nanoseconds(snapshot.propose_market_enabled_from),
            "proposeAssetEnabledFrom": _nanoseconds(snapshot.propose_asset_enabled_from),
        }
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise ArchiveError(f"{path} can't be read as a snapshot of the limits: {error}") from error


def _nanoseconds(moment: str | None) -> str:
    if moment is None:
        return "0"
    match = _MOMENT.fullmatch(moment)
    if match is None:
        raise ValueError(f"{moment!r} is not an ISO 8601 moment in UTC")
    seconds = (dt.datetime.fromisoformat(f"{match[1]}+00:00") - _EPOCH) // dt.timedelta(seconds=1)
    return str(seconds * 10**9 + int((match[2] or "").ljust(9, "0")))
