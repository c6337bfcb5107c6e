"""The files beside the rows: the network's limits over time, names of assets and accounts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import msgspec
import pandas as pd
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.files.parquet import open_parquet
from balance_analysis.table.names import Names, read_assets, read_labels
from balance_analysis.table.schema import LIMIT_MOMENTS, NetworkLimits

_NAMES: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    layout.ASSETS: ("assets", read_assets),
    layout.LABELS: ("labels", read_labels),
}

MEND_LIMITS: Final = (
    "put back a copy of it; else remove what is there, and the next run begins a new one, without "
    "the older limits"
)
_LIMITS: Final = pa.schema(
    {
        **dict.fromkeys(["first_seen", "last_seen"], pa.timestamp("us", "UTC")),
        "source": pa.string(),
        "block_height": pa.int64(),
        **{each.name: pa.bool_() for each in fields(NetworkLimits) if each.type == "bool"},
        **dict.fromkeys(LIMIT_MOMENTS, pa.timestamp("ns", "UTC")),
        "extra": pa.string(),
    }
)
_SEEN: Final = _LIMITS.names[:4]
"""The columns that say who showed a snapshot, and when."""


def read_limits(store: Store) -> pa.Table:
    """Return every distinct snapshot of the limits, in the order in which they were seen.

    Raises
    ------
    ArchiveDamagedError
        If the file is missing, damaged, or another one than was written.
    """
    before, wrong = None, ""
    # A run may replace the file after its manifest is read; then there is another manifest.
    while (manifest := read_manifest(store)) != before:
        content, before = store.read(layout.LIMITS), manifest
        if content is None and manifest.limits is None:
            return _LIMITS.empty_table()
        entries = manifest.entries(layout.LIMITS)
        wrongs = [entry.mismatch(content) for entry in entries] or ["is not in the manifest"]
        if "" in wrongs:
            return parse_limits(content or b"")
        wrong = wrongs[0]
    raise ArchiveDamagedError(f"{store.uri}/{layout.LIMITS} {wrong}: {MEND_LIMITS}")


def parse_limits(content: bytes) -> pa.Table:
    """Return the snapshots in the file of the limits; one of `DAMAGES` if it is another file."""
    return open_parquet(content).read().cast(_LIMITS)


def limits_without_source(rows: pa.Table) -> list[dict[str, Any]]:
    """Return snapshots of the limits without their source and times."""
    moments = [pa.int64() if pa.types.is_timestamp(x.type) else x.type for x in _LIMITS]
    plain = rows.cast(pa.schema(zip(_LIMITS.names, moments, strict=True)))
    snapshots: list[dict[str, Any]] = plain.drop_columns(_SEEN).to_pylist()
    return snapshots


def with_timeline(rows: pa.Table, changes: Sequence[NetworkLimits], until: int) -> pa.Table:
    """Replace the snapshots of a stretch of time by all changes of the limits in it.

    A change holds until the next one, and the last one until that moment, microseconds.
    """
    if not changes:
        return rows
    begin, end = (limits_row(changes[0])["first_seen"], pd.Timestamp(until, unit="us", tz="UTC"))
    ends = [*(each.fetched_at for each in changes[1:]), end]
    during = [{**limits_row(x), "last_seen": stop} for x, stop in zip(changes, ends, strict=True)]
    seen = rows.to_pylist()
    before = [
        row | {"last_seen": min(row["last_seen"], begin)}
        for row in seen
        if row["first_seen"] < begin
    ]
    after = [
        row | {"first_seen": max(row["first_seen"], end)} for row in seen if row["last_seen"] > end
    ]
    return to_timeline([*before, *during, *after])


def to_timeline(seen: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the distinct snapshots of rows as of `limits_row`, in the same order."""
    rows: list[dict[str, Any]] = []
    for row in seen:
        last = rows[-1] if rows else {}
        if last and all(last[name] == row[name] for name in row if name not in _SEEN):
            # A clock that was set back must not end a stretch before it begins.
            ends = max(last["last_seen"], row["last_seen"])
            rows[-1] = {**row, "first_seen": last["first_seen"], "last_seen": ends}
        else:
            rows.append({**row})
    return pa.Table.from_pylist(rows, _LIMITS)


def limits_row(limits: NetworkLimits) -> dict[str, Any]:
    """Return limits as a row of the file; `None` where a moment is not set."""
    row = {name: getattr(limits, name) for name in _LIMITS.names if hasattr(limits, name)}
    seen = limits.fetched_at.floor("us")
    extra = json.dumps(limits.extra, sort_keys=True)
    return {**row, "first_seen": seen, "last_seen": seen, "extra": extra}


def read_names_file(store: Store, file: str) -> Any:  # noqa: ANN401 - assets, or labels
    """Return the names of assets, or labels, that an archive keeps; maybe none.

    Raises
    ------
    ArchiveDamagedError
        If the file is damaged.
    """
    what, read = _NAMES[file]
    content = store.read(file)
    try:
        return read({} if content is None else msgspec.json.decode(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise ArchiveDamagedError(
            f"{store.uri}/{file} is damaged ({error}): give the {what} again with "
            f"`export --{what}`, or remove it"
        ) from error


def read_archive_names(store: Store) -> Names:
    """Return the names of assets and accounts: see `read_names_file`."""
    return Names(read_names_file(store, layout.ASSETS), read_names_file(store, layout.LABELS))


def write_archive_names(store: Store, names: Names) -> None:
    """Add names of assets and accounts to those that an archive keeps."""
    for file, (what, _) in _NAMES.items():
        given: dict[Any, Any] = getattr(names, what)
        kept: dict[Any, Any] = {}
        with contextlib.suppress(ArchiveDamagedError):
            kept = read_names_file(store, file) if given else {}
        if (now := {**kept, **given}) != kept:
            content = Names(**{what: now}).to_json()[what]
            store.write(file, (json.dumps(content, indent=1) + "\n").encode())
