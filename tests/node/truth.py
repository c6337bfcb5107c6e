"""The naive oracle: what a load must return, by a plain loop over the node's rows."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    import pyarrow as pa

    from tests.loopback import Row

Line = tuple[str, str, str, str, int, int]


def lines_of_rows(rows: Iterable[Row]) -> list[Line]:
    """Return rows as plain tuples in the table's order; times in microseconds."""
    return sorted(
        (
            row.asset_id,
            str(row.account_type),
            row.party_id,
            row.market_id,
            row.timestamp_ns // 1000,
            int(row.balance),
        )
        for row in rows
    )


def lines_of_table(table: pd.DataFrame) -> list[Line]:
    """Return a table's rows as plain tuples, in the table's order."""
    times = table["timestamp"].astype("int64")
    ids = [table[name].astype(object) for name in table.columns[:4]]
    return list(zip(*ids, times, map(int, table["balance"]), strict=True))


def lines_of_batch(batch: pa.RecordBatch) -> list[Line]:
    """Return a batch's rows as plain tuples, in the batch's order."""
    columns = batch.to_pydict()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    columns["timestamp"] = [
        (time - epoch) // dt.timedelta(microseconds=1) for time in columns["timestamp"]
    ]
    columns["balance"] = [int(balance) for balance in columns["balance"]]
    return list(zip(*columns.values(), strict=True))


def matching(
    rows: Iterable[Row],
    *,
    start: int | None = None,
    end: int | None = None,
    asset_id: str | None = None,
    party_ids: Iterable[str] = (),
    market_ids: Iterable[str] = (),
    account_types: Iterable[str] = (),
    **_: Any,
) -> list[Row]:
    """Return the rows that are asked for; `start` and `end` in microseconds."""
    found = []
    for row in rows:
        if start is not None and row.timestamp_ns < start * 1000:
            continue
        if end is not None and row.timestamp_ns >= end * 1000:
            continue
        if asset_id is not None and row.asset_id != asset_id:
            continue
        if party_ids and row.party_id not in party_ids:
            continue
        if market_ids and row.market_id not in market_ids:
            continue
        if account_types and str(row.account_type) not in account_types:
            continue
        found.append(row)
    return found
