"""Segments to measure with, and who reads them: `python segmented.py WORK FOLDER OUT`.

A segment has 1,000 blocks and 20,000 rows of 20,000 accounts, 25 of them a day.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

ACCOUNTS, BLOCKS, ROWS = 20_000, 1000, 20_000
STEP = 86_400_000_000 // (25 * BLOCKS)
START = 1_680_307_200_000_000
COLUMNS = ("account_id", "vega_time", "balance")
TYPES = (4, 3, 9, 1, 7)


def make(folder: Path, numbers: range) -> None:
    """Write segments."""
    ids = np.array(["\\x" + _digest("account", number) for number in range(ACCOUNTS)])
    current = {name: _csv(columns) for name, columns in _current(ids).items()}

    def write(number: int) -> None:
        rng = np.random.default_rng(number)
        heights = np.arange(number * BLOCKS + 1, (number + 1) * BLOCKS + 1)
        times = np.array([_moment(START + int(height) * STEP) for height in heights])
        txs = np.array(["\\x" + _digest("block", int(height)) for height in heights])
        # Each account once in ten blocks, so that none has two rows in a block.
        order = np.concatenate([rng.permutation(ACCOUNTS) for _ in range(ROWS // ACCOUNTS)])
        places = np.repeat(np.arange(BLOCKS), ROWS // BLOCKS)
        amounts = rng.integers(0, 10**18, ROWS).astype(str)
        wide = np.char.add(amounts, rng.integers(10**8, 10**9, ROWS).astype(str))
        tables = {
            "history/balances": {
                "account_id": ids[order],
                "vega_time": times[places],
                "tx_hash": txs[places],
                "balance": np.where(order % 3, wide, amounts),
            },
            "history/blocks": {"vega_time": times, "height": heights, "hash": txs},
            "history/ledger": dict.fromkeys(
                ("account_from_id", "account_to_id", "quantity", "vega_time"), np.array([], str)
            ),
        }
        contents = {name: _csv(columns) for name, columns in tables.items()} | current
        first, last = int(heights[0]), int(heights[-1])
        about = {"HeightFrom": first, "HeightTo": last, "DatabaseVersion": 34, "ChainID": "bench"}
        with zipfile.ZipFile(folder / f"bench-34-{first}-{last}.zip", "w") as file:
            file.writestr("metadata.json", json.dumps(about))
            for name, content in contents.items():
                file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, numbers))


def _current(ids: Any) -> dict[str, Any]:
    numbers = range(ACCOUNTS)
    parties, assets, markets = (
        ["\\x" + _digest(what, number) for number in range(count)]
        for what, count in (("party", ACCOUNTS // 4), ("asset", 7), ("market", 20))
    )
    flags = ("can_propose_market", "can_propose_asset", "propose_market_enabled")
    at = np.array([_moment(START)])
    return {
        "currentstate/accounts": {
            "id": ids,
            "party_id": np.array([parties[n % len(parties)] for n in numbers]),
            "asset_id": np.array([assets[n % 7] for n in numbers]),
            "market_id": np.array([markets[n % 20] for n in numbers]),
            "type": np.array([TYPES[n % 5] for n in numbers]),
        },
        "currentstate/assets": {
            "id": np.array(assets),
            **{name: np.array([f"{name}{n}" for n in range(7)]) for name in ("symbol", "name")},
            "decimals": np.full(7, 18),
            "vega_time": np.repeat(at, 7),
        },
        "currentstate/network_limits": {
            "vega_time": at,
            **{x: np.array(["t"]) for x in (*flags, "propose_asset_enabled", "genesis_loaded")},
            "propose_market_enabled_from": np.array([""]),
            "propose_asset_enabled_from": np.array([""]),
        },
    }


def _digest(what: str, number: int) -> str:
    return hashlib.sha256(f"{what} {number}".encode()).hexdigest()


def _moment(microseconds: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)  # noqa: DTZ001
    return moment.isoformat(" ", "microseconds").rstrip("0").rstrip(".") + "+00"


def _csv(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pacsv.write_csv(pa.table(columns), sink, pacsv.WriteOptions(quoting_style="none"))
    return sink.getvalue()


def alone(folder: Path, _: Path) -> None:
    """Unzip the balances and let pyarrow parse the three columns, typed, and no more."""
    types = (pa.string(), pa.timestamp("us", "UTC"), pa.decimal128(38, 0))
    how = pacsv.ConvertOptions(
        include_columns=COLUMNS, column_types=dict(zip(COLUMNS, types, strict=True))
    )
    rows = 0
    for path in sorted(folder.iterdir()):
        with zipfile.ZipFile(path) as file:
            content = pa.BufferReader(file.read("history/balances"))
        rows += pacsv.read_csv(content, convert_options=how).num_rows
    print(rows)  # noqa: T201


def rows(folder: Path, _: Path) -> None:
    """Read the rows, joined and proven, and let go of them: what an import reads."""
    from balance_analysis.filters import Filters  # noqa: PLC0415 - not of the others
    from balance_analysis.segments.rows import iter_rows  # noqa: PLC0415
    from balance_analysis.segments.segment import find_stretches  # noqa: PLC0415

    [stretch] = find_stretches(folder)
    print(sum(part.rows.num_rows for _, part in iter_rows(stretch.segments, Filters())))  # noqa: T201


def table(folder: Path, _: Path) -> None:
    """Read them into a table."""
    import balance_analysis as ba  # noqa: PLC0415 - not of the others

    print(len(ba.read_segments(folder)))  # noqa: T201


def duckdb(folder: Path, out: Path) -> None:
    """Unzip, as DuckDB reads no zips, and let it parse, join and sort the same rows."""
    import duckdb as db  # noqa: PLC0415 - not of the others

    with tempfile.TemporaryDirectory(dir=out.parent) as unzipped:
        paths = sorted(folder.iterdir())
        for number, path in enumerate(paths):
            with zipfile.ZipFile(path) as file:
                Path(unzipped, f"{number}.csv").write_bytes(file.read("history/balances"))
                Path(unzipped, "accounts").write_bytes(file.read("currentstate/accounts"))
        query = f"""
            COPY (SELECT asset_id, type, party_id, market_id, vega_time, balance
                  FROM read_csv('{unzipped}/*.csv', header = true, columns = {{
                      account_id: 'VARCHAR', vega_time: 'TIMESTAMPTZ', tx_hash: 'VARCHAR',
                      balance: 'DECIMAL(38, 0)'}})
                  JOIN read_csv('{unzipped}/accounts', all_varchar = true) ON account_id = id
                  ORDER BY asset_id, type, party_id, market_id, vega_time)
            TO '{out}' (FORMAT parquet, COMPRESSION zstd)"""
        db.execute(query)
    print(pq.read_metadata(out).num_rows)  # noqa: T201


WORKS = {work.__name__: work for work in (alone, rows, table, duckdb)}

if __name__ == "__main__":
    work, folder, out = sys.argv[1:]
    WORKS[work](Path(folder), Path(out))
