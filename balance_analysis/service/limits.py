"""The network limits: the newest snapshot that an archive holds, as the interface shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from starlette.responses import Response

from balance_analysis.archive.limits import read_limits
from balance_analysis.errors import ArchiveError
from balance_analysis.service.coverage import Catalog, unavailable
from balance_analysis.service.errors import Code, RefusedError

if TYPE_CHECKING:
    from balance_analysis.archive.archive import Archive

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


def answer_limits(archive: Archive) -> Response:
    """Return the limits: dates as nanoseconds since 1970 in a string, `"0"` where not set.

    Fields that the interface document doesn't list stand under their own names. When and where the
    limits were fetched is not part of the interface and is left out.

    Raises
    ------
    RefusedError
        If the archive holds none, or can't be read.
    """
    view = Catalog(archive.store).view()
    try:
        rows = read_limits(archive.store, view.coverage)
    except (ArchiveError, OSError) as error:
        raise unavailable(error) from error
    if not rows.num_rows:
        raise RefusedError("the archive holds no network limits", code=Code.NOT_FOUND)
    body = msgspec.json.encode({"limits": _fields(rows.slice(rows.num_rows - 1))})
    return Response(body, media_type="application/json", headers=view.headers())


def _fields(row: pa.Table) -> dict[str, Any]:
    flags = {wire: row[name][0].as_py() for name, wire in _FLAGS.items()}
    dates = {wire: row[name].cast(pa.int64())[0].as_py() or 0 for name, wire in _DATES.items()}
    extra = json.loads(row["extra"][0].as_py() or "{}")
    return {**extra, **flags, **{wire: str(date) for wire, date in dates.items()}}
