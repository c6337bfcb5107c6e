"""The network's limits over time: every distinct snapshot that an archive has seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from balance_analysis.archive.coverage import Coverage, LimitsNote
from balance_analysis.archive.manifest import export_command, gone
from balance_analysis.archive.snapshot import Snapshot, read_snapshot
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.files.arrow import encode_parquet, open_parquet
from balance_analysis.files.atomic import DAMAGES
from balance_analysis.schema import NetworkLimits

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


def read_limits(snapshot: Snapshot) -> pa.Table:
    """Return every distinct snapshot of the limits, in the order in which they were seen.

    Raises
    ------
    SnapshotGoneError
        If the file was replaced since.
    ArchiveError
        If it is not what is noted of it.
    """
    store, name, state = snapshot.store, snapshot.about.limits, snapshot.coverage
    content = store.read(name)
    if content is None and not state.snapshots:
        return _SCHEMA.empty_table()
    notes = _notes(state)
    wrong = "is gone" if content is None else "is not noted, or not what was written"
    if content is not None and any(is_noted(content, note) for note in notes):
        try:
            rows = open_parquet(content).read().cast(_SCHEMA)
        except DAMAGES as error:
            wrong = f"is damaged: {error}"
        else:
            if rows.num_rows >= min(note.snapshots for note in notes):
                return rows
            wrong = f"has {rows.num_rows} of {state.snapshots} snapshots"
    if _notes(read_snapshot(store).coverage) != notes:
        raise gone(store, name)
    raise ArchiveDamagedError(
        f"{store.uri}/{name} {wrong}; put back a copy of it, or make it anew from the "
        f"reports of the runs with `{export_command(store, '--repair')}`"
    )


def limits_frame(snapshot: Snapshot) -> pd.DataFrame:
    """Return the network's limits over time: see `Archive.limits`."""
    frame: pd.DataFrame = read_limits(snapshot).to_pandas(
        types_mapper={pa.int64(): pd.Int64Dtype()}.get
    )
    return frame


def _notes(state: Coverage) -> list[LimitsNote]:
    """Return what the file may be."""
    return [note for note in (state.limits, state.pending_limits) if note is not None]


def is_noted(content: bytes, note: LimitsNote) -> bool:
    """Whether a file of the limits is what is noted, as far as that tells."""
    return note.sha256 in (hashlib.sha256(content).hexdigest(), None)


def with_limits(rows: pa.Table, limits: NetworkLimits) -> pa.Table:
    """Return the snapshots with one that was seen after them."""
    return pa.Table.from_pylist(_noted(rows.to_pylist(), snapshot(limits)), _SCHEMA)


def with_timeline(rows: pa.Table, changes: Sequence[NetworkLimits], until: int) -> pa.Table:
    """Return snapshots with all changes of the limits up to a moment in the place of those then.

    A change holds until the next one, and the last one until that moment, microseconds.
    """
    if not changes:
        return rows
    ends = [*(each.fetched_at for each in changes[1:]), pd.Timestamp(until, unit="us", tz="UTC")]
    told = [{**snapshot(x), "last_seen": end} for x, end in zip(changes, ends, strict=True)]
    begin, end = told[0]["first_seen"], ends[-1]
    seen = rows.to_pylist()
    before = [
        row | {"last_seen": min(row["last_seen"], begin)}
        for row in seen
        if row["first_seen"] < begin
    ]
    after = [
        row | {"first_seen": max(row["first_seen"], end)} for row in seen if row["last_seen"] > end
    ]
    return to_timeline([*before, *told, *after])


def to_timeline(seen: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the distinct ones of snapshots, as of `snapshot`; moments may be text.

    They stand in the order in which they were seen.
    """
    moments = [field.name for field in _SCHEMA if pa.types.is_timestamp(field.type)]
    rows: list[dict[str, Any]] = []
    for row in seen:
        typed = {name: pd.Timestamp(row[name]) for name in moments if row[name] is not None}
        rows = _noted(rows, {**row, **typed})
    return pa.Table.from_pylist(rows, _SCHEMA)


def encode_limits(rows: pa.Table) -> tuple[bytes, LimitsNote]:
    """Return snapshots as the content of their file, and what is noted of it."""
    content = encode_parquet(rows)
    return content, note_limits(rows, content)


def note_limits(rows: pa.Table, content: bytes) -> LimitsNote:
    """Return what is noted of a file of snapshots."""
    return LimitsNote(rows.num_rows, len(content), hashlib.sha256(content).hexdigest())


def _noted(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows with a snapshot that was seen after them."""
    if rows and all(rows[-1][name] == row[name] for name in row if name not in _SEEN):
        *rows, last = rows
        # A clock that was set back must not end a stretch before it begins.
        ends = max(last["last_seen"], row["last_seen"])
        row = {**row, "first_seen": last["first_seen"], "last_seen": ends}
    return [*rows, row]


def snapshot(limits: NetworkLimits) -> dict[str, Any]:
    """Return limits as a row of the file; `None` where a moment is not set."""
    row = {name: getattr(limits, name) for name in _SCHEMA.names if hasattr(limits, name)}
    seen = limits.fetched_at.floor("us")
    extra = json.dumps(limits.extra, sort_keys=True)
    return {**row, "first_seen": seen, "last_seen": seen, "extra": extra}
