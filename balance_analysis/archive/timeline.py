"""The network's limits over time: every distinct snapshot that an archive has seen."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive import layout
from balance_analysis.errors import ArchiveError
from balance_analysis.schema import NetworkLimits

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.archive.store import Store

_FLAGS: Final = tuple(f.name for f in fields(NetworkLimits) if f.type == "bool")
_MOMENT: Final = pa.timestamp("ns", "UTC")
_SCHEMA: Final = pa.schema(
    [
        pa.field("first_seen", pa.timestamp("us", "UTC")),
        pa.field("last_seen", pa.timestamp("us", "UTC")),
        pa.field("source", pa.string()),
        pa.field("block_height", pa.int64()),
        *(pa.field(name, pa.bool_()) for name in _FLAGS),
        pa.field("propose_market_enabled_from", _MOMENT),
        pa.field("propose_asset_enabled_from", _MOMENT),
        pa.field("extra", pa.string()),
    ]
)
_SEEN: Final = ("first_seen", "last_seen", "source", "block_height")


def read_limits(store: Store) -> pa.Table:
    """Return every distinct snapshot, in the order in which they were seen.

    Raises
    ------
    ArchiveError
        If the file is damaged.
    """
    content = store.read(layout.LIMITS)
    if content is None:
        return _SCHEMA.empty_table()
    try:
        return pq.read_table(pa.BufferReader(content)).cast(_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArchiveError(
            f"{store.uri}/{layout.LIMITS} is damaged: {error}; remove it, and the next export "
            "begins a new one"
        ) from error


def keep_limits(store: Store, limits: NetworkLimits | None) -> None:
    """Note that the limits are these now; a node that has none changes nothing."""
    if limits is None:
        return
    rows = read_limits(store).to_pylist()
    row = _row(limits)
    if rows and all(rows[-1][name] == row[name] for name in row if name not in _SEEN):
        row["first_seen"] = rows.pop()["first_seen"]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([*rows, row], _SCHEMA), sink, compression="zstd")
    store.write(layout.LIMITS, sink.getvalue().to_pybytes())


def _row(limits: NetworkLimits) -> dict[str, Any]:
    seen = _rounded(limits.fetched_at)
    row = {name: getattr(limits, name) for name in _SCHEMA.names if hasattr(limits, name)}
    return {
        **row,
        "first_seen": seen,
        "last_seen": seen,
        "extra": json.dumps(limits.extra, sort_keys=True),
    }


def _rounded(moment: pd.Timestamp) -> pd.Timestamp:
    return moment.floor("us")
