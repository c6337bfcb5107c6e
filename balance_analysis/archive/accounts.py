"""The accounts of a file's rows, and their rows as one table, without sorting these.

In a file, an account's rows stand together, in time order. So its accounts are known by where they
begin and end; and rows of many files become a table by putting such stretches side by side: only
the stretches are sorted, which are few, and each row is copied once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.archive.datafile import FILE_KEY, account_heads, times_of
from balance_analysis.frame import frame_of
from balance_analysis.rows import account_numbers, canonical
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

ACCOUNTS: Final = pa.schema(
    [
        *(field.with_nullable(True) for field in ARROW_SCHEMA),
        *((name, pa.int64()) for name in ("rows", "first")),
    ]
)
"""Accounts: the last row of each, how many rows it has, and the time of its first, microseconds."""

_WAITING: Final = 1 << 20
"""How many accounts of files wait to be added up."""


def accounts_of(rows: pa.Table) -> pa.Table:
    """Return the accounts of rows in a file's order.

    Parameters
    ----------
    rows
        The ids at least; of what they lack, the accounts have null, and 0 as the first time.
    """
    rows = rows.unify_dictionaries()
    firsts = account_heads(rows)
    sizes = np.diff(firsts, append=rows.num_rows)[: len(firsts)]
    lasts = rows.take(pa.array(firsts + sizes - 1))
    times = times_of(rows)[firsts] if "timestamp" in rows.column_names else 0 * firsts
    columns = [
        lasts[field.name] if field.name in rows.column_names else pa.nulls(len(firsts), field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.table([*columns, pa.array(sizes), pa.array(times)], ACCOUNTS.names).cast(ACCOUNTS)


def merged(parts: Iterable[pa.Table]) -> pa.Table:
    """Return each account once, in the order of files, of accounts of files in time order."""
    total, waiting, size = ACCOUNTS.empty_table(), [], 0
    for part in parts:
        waiting.append(part)
        size += part.num_rows
        if size > max(_WAITING, total.num_rows):
            total, waiting, size = _merged([total, *waiting]), [], 0
    return _merged([total, *waiting])


def _merged(parts: Sequence[pa.Table]) -> pa.Table:
    seen = pa.concat_tables(parts)
    lasts, numbers = _numbered(seen, FILE_KEY)
    order = np.argsort(numbers, kind="stable")
    firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    tails = np.append(firsts[1:], len(order))[: len(firsts)] - 1
    counts = [
        how.reduceat(seen[name].to_numpy()[order], firsts) if len(firsts) else firsts
        for name, how in (("rows", np.add), ("first", np.minimum))
    ]
    columns = [*lasts.take(pa.array(order[tails])).columns, *map(pa.array, counts)]
    return pa.table(columns, schema=ACCOUNTS)


def table_of(parts: list[tuple[pa.Table, pa.Table]]) -> pd.DataFrame:
    """Return rows of files as a table.

    Parameters
    ----------
    parts
        Of each file, in time order, its accounts and its rows in its own order. The list is empty
        afterwards: what was read doesn't stay in memory beside what is made of it.
    """
    seen = pa.concat_tables([ACCOUNTS.empty_table(), *(accounts for accounts, _ in parts)])
    names = COLUMNS[len(ACCOUNT_KEY) :]
    rows = pa.concat_tables([ARROW_SCHEMA.empty_table().select(names), *(x for _, x in parts)])
    parts.clear()
    lasts, numbers = _numbered(seen, ACCOUNT_KEY)
    order = np.argsort(numbers, kind="stable")
    sizes = seen["rows"].to_numpy()
    begins, sizes = (np.cumsum(sizes) - sizes)[order], sizes[order]
    # Where each row of the table stands among those that were read.
    places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(rows.num_rows)
    heads = frame_of(lasts.take(pa.array(order)).combine_chunks())
    columns: dict[str, Any] = {}
    for name in ACCOUNT_KEY:
        ids = heads[name].array
        columns[name] = pd.Categorical.from_codes(np.repeat(ids.codes, sizes), dtype=ids.dtype)
    for name in names:
        whole = rows[name].combine_chunks()
        rows = rows.drop_columns(name)
        columns[name] = whole.take(pa.array(places))
    times = columns["timestamp"].cast(pa.int64()).to_numpy().view("M8[us]")
    columns["timestamp"] = pd.Series(times).dt.tz_localize("UTC")
    columns["balance"] = pd.arrays.ArrowExtensionArray(pa.chunked_array([columns["balance"]]))
    return pd.DataFrame(columns)


def _numbered(seen: pa.Table, names: Sequence[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the last rows of accounts as they stand, and numbers that sort as some ids do."""
    lasts = canonical(seen.select(COLUMNS), sort=False)
    ids = [lasts[name].chunk(0) for name in names]
    codes = [column.indices.to_numpy() for column in ids]
    return lasts, account_numbers(codes, [len(column.dictionary) for column in ids])
