"""An archive's files beside its rows: the network's limits over time, and names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
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

LIMITS_ADVICE: Final = (
    "restore a backup of it; otherwise remove it, and the next run starts a new one without the "
    "older limits"
)
_LIMITS: Final = pa.schema(
    {
        **dict.fromkeys(["first_seen", "last_seen"], pa.timestamp("us", "UTC")),
        "source": pa.string(),
        "block_height": pa.int64(),
        **{limit.name: pa.bool_() for limit in fields(NetworkLimits) if limit.type == "bool"},
        **dict.fromkeys(LIMIT_MOMENTS, pa.timestamp("ns", "UTC")),
        "extra": pa.string(),
    }
)
_SEEN: Final = _LIMITS.names[:4]
"""The columns of a snapshot's source and times."""


def read_limits(store: Store) -> pa.Table:
    """Return every distinct snapshot of the limits, in the order in which they were seen.

    Raises
    ------
    ArchiveDamagedError
        If the file is missing, damaged, or not the one that was written.
    """
    manifest, content = read_manifest(store), store.read(layout.LIMITS)
    if content is None and manifest.limits is None:
        return _LIMITS.empty_table()
    entries = manifest.entries(layout.LIMITS)
    faults = [entry.mismatch(content) for entry in entries] or ["is not in the manifest"]
    if "" in faults:
        return parse_limits(content or b"")
    if read_manifest(store) != manifest:  # a run has replaced the file meanwhile
        return read_limits(store)
    raise ArchiveDamagedError(f"{store.uri}/{layout.LIMITS} {faults[0]}: {LIMITS_ADVICE}")


def parse_limits(content: bytes) -> pa.Table:
    """Return the snapshots in the content of the limits' file.

    Raises
    ------
    Exception
        One of `DAMAGE_ERRORS`, if it isn't such a file.
    """
    return open_parquet(content).read().cast(_LIMITS)


def limits_without_source(rows: pa.Table) -> list[dict[str, Any]]:
    """Return snapshots of the limits without their source and times."""
    moments = [pa.int64() if pa.types.is_timestamp(x.type) else x.type for x in _LIMITS]
    plain = rows.cast(pa.schema(zip(_LIMITS.names, moments, strict=True)))
    snapshots: list[dict[str, Any]] = plain.drop_columns(_SEEN).to_pylist()
    return snapshots


def with_limits(rows: pa.Table, changes: Sequence[NetworkLimits], until: int | None) -> pa.Table:
    """Add limits to snapshots, and merge equal neighbours.

    Without `until`, `changes` are snapshots seen later than all others. With it, they are all
    changes of the limits up to that moment (in microseconds), and replace the snapshots of this
    stretch: each holds until the next one, the last one until the end.
    """
    if not changes:
        return rows
    seen, added = rows.to_pylist(), [*map(_limits_row, changes)]
    if until is None:
        return _merged([*seen, *added])
    begin, end = added[0]["first_seen"], pd.Timestamp(until, unit="us", tz="UTC")
    ends = [*(change.fetched_at for change in changes[1:]), end]
    during = [{**row, "last_seen": stop} for row, stop in zip(added, ends, strict=True)]
    before = [
        row | {"last_seen": min(row["last_seen"], begin)}
        for row in seen
        if row["first_seen"] < begin
    ]
    later = [row for row in seen if row["last_seen"] > end]
    after = [row | {"first_seen": max(row["first_seen"], end)} for row in later]
    return _merged([*before, *during, *after])


def _merged(seen: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of limits as distinct snapshots, merging equal neighbours."""
    rows: list[dict[str, Any]] = []
    for _, group in groupby(seen, lambda row: {x: row[x] for x in row if x not in _SEEN}):
        same = [*group]
        # If a clock was set back, a stretch must not end before it begins.
        ends = max(row["last_seen"] for row in same)
        rows.append({**same[-1], "first_seen": same[0]["first_seen"], "last_seen": ends})
    return pa.Table.from_pylist(rows, _LIMITS)


def _limits_row(limits: NetworkLimits) -> dict[str, Any]:
    """Return limits as a row of the file; moments that aren't set are `None`."""
    row = {name: getattr(limits, name) for name in _LIMITS.names if hasattr(limits, name)}
    seen = limits.fetched_at.floor("us")
    extra = json.dumps(limits.extra, sort_keys=True)
    return {**row, "first_seen": seen, "last_seen": seen, "extra": extra}


def read_names_file(store: Store, file: str) -> Any:  # noqa: ANN401 - assets, or labels
    """Return an archive's names of assets, or its labels; empty if it has none.

    Raises
    ------
    ArchiveDamagedError
        If the file is damaged.
    """
    kind, read = _NAMES[file]
    content = store.read(file)
    try:
        return read({} if content is None else msgspec.json.decode(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise ArchiveDamagedError(
            f"{store.uri}/{file} is damaged ({error}): pass the {kind} again with "
            f"`export --{kind}`, or remove it"
        ) from error


def read_archive_names(store: Store) -> Names:
    """Return an archive's names of assets and accounts: see `read_names_file`."""
    return Names(read_names_file(store, layout.ASSETS), read_names_file(store, layout.LABELS))


def write_archive_names(store: Store, names: Names) -> None:
    """Add names of assets and accounts to an archive's."""
    for file, (kind, _) in _NAMES.items():
        new: dict[Any, Any] = getattr(names, kind)
        old: dict[Any, Any] = {}
        with contextlib.suppress(ArchiveDamagedError):
            old = read_names_file(store, file) if new else {}
        if (merged := {**old, **new}) != old:
            content = Names(**{kind: merged}).to_json()[kind]
            store.write(file, (json.dumps(content, indent=1) + "\n").encode())
