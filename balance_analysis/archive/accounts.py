"""The accounts of a file's rows, without sorting these.

In a file, an account's rows stand together, in time order. So its accounts are known by where they
begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.archive.datafile import numbers_of, times_of
from balance_analysis.rows import account_heads, canonical
from balance_analysis.schema import ARROW_SCHEMA, COLUMNS, NETWORK_PARTY, NO_MARKET

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
    tails = pa.array(firsts + sizes - 1)
    times = times_of(rows)[firsts] if "timestamp" in rows.column_names else 0 * firsts
    lasts = [
        rows[field.name].combine_chunks().take(tails)
        if field.name in rows.column_names
        else pa.nulls(len(firsts), field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.table([*lasts, pa.array(sizes), pa.array(times)], ACCOUNTS.names).cast(ACCOUNTS)


def uncounted(accounts: pa.Table) -> pa.Table:
    """Return accounts as if they had no rows, which are counted where they stand."""
    none, never = np.zeros(len(accounts), np.int64), np.full(len(accounts), np.iinfo(np.int64).max)
    columns = [*accounts.select(COLUMNS).columns, pa.array(none), pa.array(never)]
    return pa.table(columns, schema=accounts.schema)


def combine_accounts(parts: Iterable[pa.Table]) -> pa.Table:
    """Return each account once, in the order of files, of accounts of files in time order."""
    total, waiting, size = ACCOUNTS.empty_table(), [], 0
    for part in parts:
        waiting.append(part)
        size += part.num_rows
        if size > max(_WAITING, total.num_rows):
            total, waiting, size = _combine([total, *waiting]), [], 0
    return _combine([total, *waiting])


def _combine(parts: Sequence[pa.Table]) -> pa.Table:
    seen = pa.concat_tables(parts)
    lasts = canonical(seen.select(COLUMNS), sort=False)
    numbers = numbers_of(lasts)
    order = np.argsort(numbers, kind="stable")
    firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    tails = np.append(firsts[1:], len(order))[: len(firsts)] - 1
    counts = [
        how.reduceat(seen[name].to_numpy()[order], firsts) if len(firsts) else firsts
        for name, how in (("rows", np.add), ("first", np.minimum))
    ]
    columns = [*lasts.take(pa.array(order[tails])).columns, *map(pa.array, counts)]
    return pa.table(columns, schema=ACCOUNTS)


def count_by(accounts: pd.DataFrame, name: Literal["party_id", "market_id"]) -> pd.DataFrame:
    """Return accounts counted by party or by market: see `Archive.parties`, `Archive.markets`."""
    others, other, nobody = {
        "party_id": ("markets", "market_id", NO_MARKET),
        "market_id": ("parties", "party_id", NETWORK_PARTY),
    }[name]
    some = accounts[accounts[name] != NO_MARKET]
    some = some.assign(**{other: some[other].where(some[other] != nobody)})
    return (
        some.groupby(name, observed=True)
        .agg(
            accounts=("rows", "size"),
            assets=("asset_id", "nunique"),
            **{others: (other, "nunique")},
            rows=("rows", "sum"),
            first_seen=("first_seen", "min"),
            last_seen=("last_seen", "max"),
        )
        .reset_index()
    )
