"""The network's limits over time: every distinct snapshot that an archive has seen."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive import layout
from balance_analysis.archive.writing import DAMAGES
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.schema import NetworkLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    except DAMAGES as error:
        raise ArchiveDamagedError(
            f"{store.uri}/{layout.LIMITS} is damaged: {error}; put back a copy of it, or make it "
            "anew from the reports of the runs with `export --repair`"
        ) from error


def keep_limits(store: Store, limits: NetworkLimits, *, known: int) -> int:
    """Note that the limits are these now, and return how many distinct snapshots there are.

    Parameters
    ----------
    store
        The archive.
    limits
        What was fetched.
    known
        How many distinct snapshots there must be.

    Raises
    ------
    ArchiveError
        If the file is damaged, or has lost some.
    """
    rows = read_limits(store)
    if rows.num_rows < known:
        raise ArchiveDamagedError(
            f"{store.uri}/{layout.LIMITS} has {rows.num_rows} of {known} snapshots: put back a "
            "copy of it, or make it anew from the reports of the runs with `export --repair`"
        )
    return _write(store, _noted(rows.to_pylist(), snapshot(limits)))


def restore_limits(store: Store, seen: Iterable[Mapping[str, Any]]) -> int:
    """Write the file anew from snapshots in the order in which they were seen; return how many.

    Parameters
    ----------
    store
        The archive.
    seen
        As of `snapshot`; moments may be text.
    """
    rows: list[dict[str, Any]] = []
    for row in seen:
        moments = {
            field.name: pd.Timestamp(row[field.name])
            for field in _SCHEMA
            if pa.types.is_timestamp(field.type) and row[field.name] is not None
        }
        rows = _noted(rows, {**row, **moments})
    return _write(store, rows)


def _noted(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows with a snapshot that was seen after them."""
    if rows and all(rows[-1][name] == row[name] for name in row if name not in _SEEN):
        *rows, last = rows
        # A clock that was set back must not end a stretch before it begins.
        ends = max(last["last_seen"], row["last_seen"])
        row = {**row, "first_seen": last["first_seen"], "last_seen": ends}
    return [*rows, row]


def _write(store: Store, rows: list[dict[str, Any]]) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="zstd")
    store.write(layout.LIMITS, sink.getvalue().to_pybytes())
    return len(rows)


def snapshot(limits: NetworkLimits) -> dict[str, Any]:
    """Return limits as a row of the file; `None` where a moment is not set."""
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
