"""Write the sample's first blocks as network history segments: `python -m sample_data.segments`.

A network that began with the sample would have cut these. The writer is that of the tests.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from balance_analysis.table.moments import to_microseconds
from balance_analysis.table.names import read_assets
from balance_analysis.table.schema import ACCOUNT_KEY

FOLDER: Final = Path(__file__).parent
CHAIN: Final = "sample-network"
BLOCKS: Final = 120
"""Blocks a segment."""

SEGMENTS: Final = 3


def main(folder: Path = FOLDER / "segments") -> None:
    """Write them."""
    writer: Any = importlib.import_module("tests.segments.writer")
    row_of: Any = importlib.import_module("tests.loopback").Row
    table = pq.read_table(FOLDER / "changes.parquet").sort_by("timestamp")
    last = table["timestamp"].unique().sort()[: BLOCKS * SEGMENTS][-1]
    rows = [
        row_of(
            *(row[name] for name in ACCOUNT_KEY),
            to_microseconds(row["timestamp"]),
            int(row["balance"]),
        )
        for row in table.filter(pc.less_equal(table["timestamp"], last)).to_pylist()
    ]
    assets = read_assets(FOLDER / "assets.toml")
    about = {name: (one.symbol, one.decimals) for name, one in assets.items()}
    moments = (rows[0].time, rows[len(rows) // 2].time)
    limits = [_limits(at, can_propose=at > moments[0]) for at in moments]
    how = {"each": BLOCKS, "chain": CHAIN, "assets": about, "limits": limits}
    for path in folder.glob("*.zip"):
        path.unlink()
    writer.write_segments(folder, sorted(rows, key=lambda row: row.order), **how)


def _limits(at: int, *, can_propose: bool) -> dict[str, Any]:
    names = ("can_propose_asset", "propose_market_enabled", "propose_asset_enabled")
    flags = dict.fromkeys([*names, "genesis_loaded"], True)
    return {"vega_time": at, "can_propose_market": can_propose, **flags}


if __name__ == "__main__":
    main()
