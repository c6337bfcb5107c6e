"""Load straight into one Parquet file, in bounded memory.

Rows are written in time order, one row group after the other; inside a row group they stand in the
table's order. The file appears only when it is whole; a load that fails leaves no file.
"""

from __future__ import annotations

from typing import Any, Final, Unpack

import pyarrow as pa

from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.filters import make_filters, take_names, takes
from balance_analysis.labels import note_names
from balance_analysis.load.opening import begin_load
from balance_analysis.load.request import LoadKeywords, Report, make_request
from balance_analysis.node.client import Client
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA

ROW_GROUP: Final = 1 << 17
"""Rows that are sorted and written together, at least."""


@takes(LoadKeywords, make_request, make_filters)
def load_to_parquet(
    client: Client,
    path: PathLike,
    *,
    opening: bool = False,
    progress: bool | Report | None = None,
    **options: Unpack[LoadKeywords],
) -> dict[str, Any]:
    """Load all balance changes in [start, end) into a Parquet file, in bounded memory.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`.
    opening, page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`.
    path
        The file; one that stands there is replaced when the load is whole. `read_parquet` gives the
        table. A load that fails or is interrupted leaves no file: what shall go on where it stood
        is an archive's `export`.

    Returns
    -------
    dict
        How it was loaded, as in the `attrs` of a loaded table.

    Raises
    ------
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `load_balance_changes`; ValueError also if the file would lie in an archive.
    OSError
        If the file can't be written.
    """
    names = take_names(options)
    request, target = make_request(**options), check_output(path)
    load, batches = begin_load(client, request, opening=opening)
    with replacing(target) as temporary, parquet_writer(temporary, ARROW_SCHEMA) as writer:
        for step in load.steps(progress):
            batches += step.batches
            if sum(batch.num_rows for batch in batches) >= ROW_GROUP:
                writer.write_table(_group(batches))
                batches = []
        if batches:
            writer.write_table(_group(batches))
        told = note_names(load.describe(), names)
        writer.add_key_value_metadata(make_note({"load": told}))
    return told


def _group(batches: list[pa.RecordBatch]) -> pa.Table:
    return canonical(pa.Table.from_batches(batches, ARROW_SCHEMA))
