"""Small tables, built from tuples or drawn by hypothesis."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from balance_analysis.frame import to_frame
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS

START = 1_680_000_000_000_000
LARGEST = 10**38 - 1


def table_of(rows):
    """Return a table of (asset, type, party, market, microseconds, balance) tuples."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    return to_frame(arrow_of(columns))


def arrow_of(columns):
    types = [pa.string()] * len(ACCOUNT_KEY)
    types += [pa.timestamp("us", "UTC"), pa.decimal128(38, 0)]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def recorded_table(recorded_rows):
    return table_of(
        [(*row.account, row.timestamp_ns // 1000, row.balance) for row in recorded_rows]
    )


def rows_of(table):
    """Return a table's rows as the tuples that `table_of` takes."""
    return [
        (*(str(name) for name in row[:4]), moment(row[4]), int(row[5]))
        for row in table[list(COLUMNS)].itertuples(index=False)
    ]


def by_account(rows):
    """Return {account: [(time, balance), ...]}, accounts and times ascending."""
    histories = defaultdict(list)
    for *account, time, balance in sorted(rows):
        histories[tuple(account)].append((time, balance))
    return dict(histories)


def amount(value):
    """Return a value of a table as a Python integer, None where it is missing."""
    return None if pd.isna(value) else int(value)


def moment(value):
    """Return a timestamp as microseconds, None where it is missing."""
    return None if pd.isna(value) else value.value // 1000


accounts = st.tuples(
    st.sampled_from(["VOTE", "ea43"]),
    st.sampled_from(["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"]),
    st.sampled_from(["b2", "a1", "network"]),
    st.sampled_from(["", "m1"]),
)
times = st.integers(START, START + 12)
balances = st.one_of(
    st.integers(0, 3),
    st.integers(0, LARGEST // 100),
)
rows = st.dictionaries(st.tuples(accounts, times), balances, max_size=40).map(
    lambda levels: [(*account, time, balance) for (account, time), balance in levels.items()]
)
instants = st.integers(START - 2, START + 14)
