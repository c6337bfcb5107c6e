"""The network's blocks, as segments told of them: when each was, and which segments were imported.

They stand in a file for each period, which is written after the period's rows: a crash in between
leaves segments that the next import takes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.archive import layout
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.files.arrow import encode_parquet, make_note, open_parquet, read_note
from balance_analysis.files.atomic import DAMAGES

BLOCK_HEIGHT: Final = "block_height"
"""The column that rows have on request."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("height", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A segment that the archive holds: its content's digest, chain, heights and microseconds.

    `begin` is the time of its first block, `end` behind that of its last one.
    """

    digest: str
    chain: str
    first: int
    last: int
    begin: int
    end: int


def keep_blocks(
    store: Store,
    partition: Partition,
    heights: NDArray[np.int64],
    times: NDArray[np.int64],
    segments: Iterable[Imported],
) -> None:
    """Keep blocks, and that segments were imported whose last block is one of them."""
    told = list(segments)
    while len(times):
        period = layout.period_of(int(times[0]), partition)
        stop = layout.bounds_of(period, partition)[1]
        size = int(np.searchsorted(times, stop))
        ends = [each for each in told if layout.period_of(each.end - 1, partition) == period]
        _keep(store, period, heights[:size], times[:size], ends)
        heights, times = heights[size:], times[size:]


def _keep(
    store: Store,
    period: str,
    heights: NDArray[np.int64],
    times: NDArray[np.int64],
    segments: list[Imported],
) -> None:
    known, imported = read_blocks_file(store, layout.blocks_file(period))
    both = np.append(known["height"].to_numpy(), heights)
    moments = np.append(known["timestamp"].cast(pa.int64()).to_numpy(), times)
    # Of a block that is told twice the newer time counts.
    places = len(both) - 1 - np.unique(both[::-1], return_index=True)[1]
    columns = [pa.array(both[places]), pa.array(moments[places]).cast(pa.timestamp("us", "UTC"))]
    rows = pa.table(columns, schema=_SCHEMA)
    notes = sorted({*imported, *segments}, key=lambda each: (each.first, each.digest))
    note = make_note({"segments": [asdict(each) for each in notes]})
    content = encode_parquet(
        rows.replace_schema_metadata(note),
        use_dictionary=False,
        column_encoding=dict.fromkeys(_SCHEMA.names, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )
    store.write(layout.blocks_file(period), content)


def read_blocks_file(store: Store, name: str) -> tuple[pa.Table, list[Imported]]:
    """Return the blocks of a file, and the segments that end there."""
    content = store.read(name)
    if content is None:
        return _SCHEMA.empty_table(), []
    try:
        file = open_parquet(content)
        note = read_note(file)
        return file.read().cast(_SCHEMA), [Imported(**each) for each in note["segments"]]
    except (*DAMAGES, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ArchiveDamagedError(
            f"{store.uri}/{name} is damaged ({error}): remove it, and import its segments again"
        ) from error


def read_blocks(store: Store) -> pa.Table:
    """Return the heights and times of all blocks that segments told of, ascending.

    Raises
    ------
    ArchiveDamagedError
        If one of their files is damaged.
    """
    parts = [read_blocks_file(store, name)[0] for name in blocks_files(store)]
    return pa.concat_tables([_SCHEMA.empty_table(), *parts])


def read_imported(store: Store) -> dict[str, Imported]:
    """Return the segments that were imported, by the digest of their content.

    Raises
    ------
    ArchiveDamagedError
        If a file of blocks is damaged.
    """
    return {
        each.digest: each
        for name in blocks_files(store)
        for each in read_blocks_file(store, name)[1]
    }


def blocks_files(store: Store) -> list[str]:
    """Return the files of blocks, in time order."""
    return [name for name in store.names(layout.BLOCKS) if name.endswith(".pq")]


def read_blocks_frame(store: Store) -> pd.DataFrame:
    """Return the blocks as a frame: see `Archive.blocks`."""
    blocks = read_blocks(store)
    times = blocks["timestamp"].cast(pa.int64()).to_numpy().view("M8[us]")
    return pd.DataFrame(
        {
            "height": blocks["height"].to_numpy(),
            "timestamp": pd.Series(times).dt.tz_localize("UTC"),
        }
    )


def add_heights(store: Store, table: pd.DataFrame) -> None:
    """Add the column `block_height` to rows."""
    times = table["timestamp"].dt.tz_localize(None).to_numpy("M8[us]").view(np.int64)
    heights = heights_at(read_blocks(store), times)
    table[BLOCK_HEIGHT] = heights.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def time_of_block(store: Store, height: int) -> int:
    """Return the time of a block, microseconds; of the next one to come, what is behind the last.

    Raises
    ------
    ValueError
        If the archive doesn't know it.
    """
    blocks = read_blocks(store)
    heights = blocks["height"].to_numpy()
    times: NDArray[np.int64] = blocks["timestamp"].cast(pa.int64()).to_numpy()
    if not len(heights):
        raise ValueError(f"{store.uri} knows no blocks: segments tell them, which `import` takes")
    if height == heights[-1] + 1:
        return int(times[-1]) + 1
    place = int(np.searchsorted(heights, height))
    if place == len(heights) or heights[place] != height:
        known = f"{heights[0]:,} to {heights[-1]:,}"
        raise ValueError(f"{store.uri} doesn't know the block {height:,}, of {known}")
    return int(times[place])


def heights_at(blocks: pa.Table, times: NDArray[np.int64]) -> pa.Array:
    """Return the heights of the blocks at moments, microseconds; null where none is known."""
    known = blocks["timestamp"].cast(pa.int64()).to_numpy()
    if not len(known):
        return pa.nulls(len(times), pa.int64())
    places = np.minimum(np.searchsorted(known, times), len(known) - 1)
    return pa.array(blocks["height"].to_numpy()[places], mask=known[places] != times)
