"""The naive oracle: what a load must return, by a plain loop over the node's rows."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from tests.loopback import Row

Line = tuple[str, str, str, str, int, int]


def lines_of_rows(rows: Iterable[Row]) -> list[Line]:
    """Return rows as plain tuples in the table's order; times in microseconds."""
    return sorted(
        row._replace(account_type=str(row.account_type), balance=int(row.balance)) for row in rows
    )


def lines_of_table(table: pd.DataFrame) -> list[Line]:
    """Return a table's rows as plain tuples, in the table's order."""
    times = table["timestamp"].astype("int64")
    ids = [table[name].astype(object) for name in table.columns[:4]]
    return list(zip(*ids, times, map(int, table["balance"]), strict=True))


def matching(
    rows: Iterable[Row],
    *,
    start: int | None = None,
    end: int | None = None,
    asset_id: str | None = None,
    **lists: Any,
) -> list[Row]:
    """Return the rows that are asked for; `start` and `end` in microseconds."""
    columns = {name.removesuffix("s"): values for name, values in lists.items() if values}
    wanted = {**columns, "asset_id": [asset_id]} if asset_id else columns
    bounds = (-math.inf if start is None else start), (math.inf if end is None else end)
    return [
        row
        for row in rows
        if bounds[0] <= row.time < bounds[1]
        and all(str(getattr(row, name)) in values for name, values in wanted.items())
    ]
