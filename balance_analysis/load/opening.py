"""Load openings: of each account, its last row before an interval starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from balance_analysis.load.request import LoadRequest
from balance_analysis.load.source import Load
from balance_analysis.node.client import Client
from balance_analysis.rows import account_heads, canonical, within
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA

_WAITING: Final = 1 << 17
"""Rows that wait, at least, before those that are no account's last one are dropped."""


def begin_load(
    client: Client, request: LoadRequest, *, opening: bool
) -> tuple[Load, list[pa.RecordBatch]]:
    """Return the load of an interval, and its openings if they are wanted, in the table's order.

    A load of all rows from the node's oldest one to the start keeps the last row of each account.
    A row is no opening where the node may lack later ones of before the start.
    """
    start = request.start
    if not opening or start is None:
        return Load(client, request), []
    before = Load(client, replace(request, start=None, end=start, is_until_now=False))
    rows = ARROW_SCHEMA.empty_table()
    waiting: list[pa.RecordBatch] = []
    for step in before.steps(progress=False):
        waiting += step.batches
        if sum(batch.num_rows for batch in waiting) >= max(_WAITING, rows.num_rows):
            rows, waiting = _last_rows(rows, waiting), []
    complete = (first for first, end in before.evidence.complete if end == start)
    openings = within(_last_rows(rows, waiting), next(complete, start), start)
    return Load(client, request, before), openings.to_batches()


def _last_rows(rows: pa.Table, batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the last row of each account."""
    rows = canonical(pa.concat_tables([rows, pa.Table.from_batches(batches, ARROW_SCHEMA)]))
    heads = account_heads(rows.select(ACCOUNT_KEY))
    return rows.take(pa.array(np.append(heads[1:], rows.num_rows)[: len(heads)] - 1))
