"""Random balance changes, few enough in accounts and moments that they meet in blocks."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from balance_analysis.schema import ARROW_SCHEMA

BASE = 1_680_000_000_000_000
"""A moment, microseconds since 1970."""

ASSETS = ("a" * 64, "A short asset & no hex")
PARTIES = ("network", "0123456789abcdef" * 4, "f" * 64)
MARKETS = ("", "e" * 64, "00" * 32)
TYPES = (
    "ACCOUNT_TYPE_GENERAL",
    "ACCOUNT_TYPE_MARGIN",
    "ACCOUNT_TYPE_UNSPECIFIED",
    "ACCOUNT_TYPE_VESTED_REWARDS",
    "ACCOUNT_TYPE_OF_TOMORROW",
)
MOMENTS = (0, 1, 2, 999_999, 1_000_000, 7_200_000_000)


class Row(NamedTuple):
    asset_id: str
    account_type: str
    party_id: str
    market_id: str
    time: int
    balance: int

    @property
    def place(self):
        account = self.asset_id + self.party_id + self.market_id + self.account_type
        return self.time, hashlib.sha256(account.encode()).hexdigest()

    @property
    def node(self):
        return {
            "assetId": self.asset_id,
            "accountType": self.account_type,
            "partyId": self.party_id,
            "marketId": self.market_id,
            "timestamp": f"{self.time}000",
            "balance": f"{self.balance}",
        }


_SPOTS = [
    (*account, BASE + moment)
    for *account, moment in product(ASSETS, TYPES, PARTIES, MARKETS, MOMENTS)
]
_BALANCES = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(0, 3)


def row_lists(min_size=0, max_size=40):
    """Rows in any order, no account twice at one moment."""
    spots = st.lists(st.sampled_from(_SPOTS), min_size=min_size, max_size=max_size, unique=True)
    return spots.flatmap(
        lambda found: st.tuples(*(_BALANCES.map(lambda b, s=spot: Row(*s, b)) for spot in found))
    )


def block_of(count, time=BASE):
    """Rows of so many accounts at one moment."""
    parties = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(count))
    return [Row(ASSETS[0], TYPES[0], party, "", time, 10**30 + 7) for party in parties]


def write_rows(path, rows):
    columns = list(zip(*rows, strict=True)) or [()] * 6
    arrays = [
        *(pa.array(ids, pa.string()).dictionary_encode() for ids in columns[:4]),
        pa.array(columns[4], pa.timestamp("us", "UTC")),
        pa.array([Decimal(balance) for balance in columns[5]], pa.decimal128(38, 0)),
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=ARROW_SCHEMA), path)
