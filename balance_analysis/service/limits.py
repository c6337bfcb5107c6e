"""The network limits: the newest snapshot that an archive holds, as the interface shows it."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from balance_analysis.archive.limits import read_limits
from balance_analysis.errors import ArchiveError
from balance_analysis.service.catalog import Watch, away
from balance_analysis.service.changes import Answer
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

logger = logging.getLogger("balance_analysis")


class Limits:
    """The newest snapshot of the network limits in an archive, for any number of threads.

    Parameters
    ----------
    archive
        The archive; it is read anew each time.
    """

    def __init__(self, archive: Archive) -> None:
        self._store, self._watch = archive.store, Watch(archive.store)

    def answer(self) -> Answer:
        """Return the limits: dates as nanoseconds since 1970 in a string, `"0"` where not set.

        Fields that the interface document doesn't list stand under their own names. When and where
        the limits were fetched is not part of the interface and is left out.

        Raises
        ------
        RefusedError
            If the archive holds none, or can't be read.
        """
        held = self._watch.now()
        try:
            rows = read_limits(self._store, held.coverage)
        except (ArchiveError, OSError) as error:
            logger.warning("the limits can't be read: %s", error)
            raise away() from error
        if not rows.num_rows:
            raise RefusedError("the archive holds no network limits", code=Code.NOT_FOUND)
        content = {"limits": _fields(rows.slice(rows.num_rows - 1))}
        return Answer(msgspec.json.encode(content), held.headers())


def _fields(row: pa.Table) -> dict[str, Any]:
    flags = {wire: row[name][0].as_py() for name, wire in _FLAGS.items()}
    dates = {wire: row[name].cast(pa.int64())[0].as_py() or 0 for name, wire in _DATES.items()}
    extra = json.loads(row["extra"][0].as_py() or "{}")
    return {**extra, **flags, **{wire: str(date) for wire, date in dates.items()}}
