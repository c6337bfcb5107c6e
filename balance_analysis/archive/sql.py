"""Views of an archive in DuckDB, which reads its files in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.manifest import lost_files
from balance_analysis.archive.sidecars import read_archive_names, read_limits
from balance_analysis.archive.snapshot import Snapshot
from balance_analysis.archive.status import coverage_frame
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.table.moments import EVER, Span, iso_text
from balance_analysis.table.names import Asset, Names
from balance_analysis.table.schema import ACCOUNT_KEY, ARROW_SCHEMA, BALANCE_DIGITS
from balance_analysis.table.text import list_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyarrow.dataset import Dataset


_TEXT: Final = pa.string()
_ASSETS: Final = pa.schema(
    {"asset_id": _TEXT, "symbol": _TEXT, "name": _TEXT, "decimals": pa.int32()}
)
_LABELS: Final = pa.schema({"id": _TEXT, "label": _TEXT})
_MOST_DECIMALS: Final = 18
"""Maximum decimals of an exact `amount`: most contracts have 18, which leave 20 digits to units."""

_ACCOUNTS: Final = """
    create view accounts as
    select {key}, min(timestamp) as first_seen, max(timestamp) as last_seen, count(*) as rows,
        case when max(timestamp) >= timestamptz '{since}' then arg_max(balance, timestamp) end
            as balance
    from changes group by {key}
"""


def views_of(snapshot: Snapshot, *, is_restricted: bool = False) -> DuckDBPyConnection:
    """Return a connection to views of an archive: see `Archive.connect`.

    Parameters
    ----------
    snapshot
        The archive's state.
    is_restricted
        Whether to keep queries from reading other files, and from writing any.
    """
    try:
        duckdb: Any = import_module("duckdb")  # an extra
    except ModuleNotFoundError as error:
        message = "SQL needs DuckDB: pip install 'balance-analysis[sql]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    store, manifest = snapshot.store, snapshot.manifest
    if lost := lost_files(store, manifest):
        message = f"{store.uri}: missing or truncated: {list_text(lost)}; run `verify`"
        raise ArchiveDamagedError(message)
    connection: DuckDBPyConnection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    changes = [*map(manifest.changes_file, manifest.files)]
    # An export may replace a file meanwhile: hide rows newer than the snapshot.
    spans = snapshot.evidence.answered
    names = read_archive_names(store)
    rows = _within(_rows(connection, store, changes), spans)
    rows.project(f"*, {_columns_of(names.assets)}").create_view("changes")
    intervals = pa.Table.from_pandas(coverage_frame(snapshot.evidence).astype({"state": "str"}))
    tables = {"coverage": intervals, "limits": read_limits(store), **_tables_of(names)}
    for name, table in tables.items():
        connection.from_arrow(table).create(name)
    # Balances last seen before `since` may have changed.
    end = snapshot.evidence.bounds[1]
    complete = snapshot.evidence.complete
    since = next((start for start, stop in complete if start < end <= stop), end - 1)
    connection.execute(
        _ACCOUNTS.format(key=", ".join(ACCOUNT_KEY), since=iso_text(since, "microseconds"))
    )
    if is_restricted:
        files = changes if store.folder is not None else []
        _restrict(connection, [_path(store, name) for name in files])
    return connection


def _restrict(connection: DuckDBPyConnection, paths: list[str]) -> None:
    """Restrict a connection to these files."""
    connection.execute("set allowed_paths = ?", [paths])
    # DuckDB would still allow the folder that it spills to.
    connection.execute("set temp_directory = ''")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _tables_of(names: Names) -> dict[str, pa.Table]:
    """Return the names of assets and accounts as tables."""
    assets = [
        {name: None if value == "" else value for name, value in asdict(asset).items()}
        for asset in names.assets.values()
    ]
    labels = [{"id": key, "label": label} for key, label in names.to_json()["labels"].items()]
    return {
        "assets": pa.Table.from_pylist(assets, _ASSETS),
        "labels": pa.Table.from_pylist(labels, _LABELS),
    }


def _columns_of(assets: Mapping[str, Asset]) -> str:
    """Return SQL for the columns `symbol` and `amount`."""
    scale = max((asset.decimals for asset in assets.values()), default=0)
    kind = f"decimal({BALANCE_DIGITS}, {scale})" if scale <= _MOST_DECIMALS else "double"
    symbols = {x.asset_id: _quoted(x.symbol) for x in assets.values() if x.symbol}
    # A product of decimals is exact or an error; a quotient would be a float.
    amounts = {x.asset_id: f"balance * '1e-{x.decimals}'::{kind}" for x in assets.values()}
    return f"{_case(symbols, 'varchar')} as symbol, {_case(amounts, kind)} as amount"


def _case(values: Mapping[str, str], kind: str) -> str:
    whens = " ".join(f"when {_quoted(asset)} then {value}" for asset, value in values.items())
    return f"case asset_id {whens} else null::{kind} end" if values else f"null::{kind}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows(connection: DuckDBPyConnection, store: Store, files: Sequence[str]) -> DuckDBPyRelation:
    if not files:
        return connection.from_arrow(ARROW_SCHEMA.empty_table())
    if store.folder is None:
        connection.register("_changes", _dataset(store, files))
        return connection.table("_changes")
    return connection.read_parquet([_path(store, name) for name in files], hive_partitioning=False)


def _within(rows: DuckDBPyRelation, spans: Sequence[Span]) -> DuckDBPyRelation:
    """Return the rows inside spans."""
    if EVER in spans:
        return rows
    bounds = ([f"timestamptz '{iso_text(at, 'microseconds')}'" for at in span] for span in spans)
    inside = " or ".join(f"timestamp >= {start} and timestamp < {end}" for start, end in bounds)
    return rows.filter(inside or "false")


def _path(store: Store, name: str) -> str:
    """Return a file's absolute path."""
    return str(Path(store.place(name)[1]).absolute())


def _dataset(store: Store, files: Sequence[str]) -> Dataset:
    ds: Any = import_module("pyarrow.dataset")  # slow to import, and rarely needed
    parquet, (system, _) = ds.ParquetFileFormat(), store.place(layout.CHANGES)
    fragments = [parquet.make_fragment(store.place(name)[1], system) for name in files]
    dataset: Dataset = ds.FileSystemDataset(fragments, ARROW_SCHEMA, parquet, system)
    return dataset
