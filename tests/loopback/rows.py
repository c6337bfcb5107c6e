"""One row of a node's history, and how it looks on the wire."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any


@cache
def account_id(asset_id: str, party_id: str, market_id: str, account_type: str | int) -> str:
    """Return the id by which a node orders the accounts inside a block."""
    text = f"{asset_id}{party_id}{market_id}{account_type}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """A balance of one account at the end of one block.

    Attributes
    ----------
    timestamp_ns
        Block time, nanoseconds since 1970 UTC. Real nodes hold whole microseconds only.
    account_type
        A name of the enumeration; an integer where the node doesn't know the value.
    balance
        In the asset's smallest unit. Text is sent as it stands.
    """

    timestamp_ns: int
    asset_id: str
    account_type: str | int
    party_id: str
    market_id: str
    balance: int | str

    @property
    def account_id(self) -> str:
        """SHA-256 hex of assetId + partyId + marketId + accountType."""
        return account_id(self.asset_id, self.party_id, self.market_id, self.account_type)

    @property
    def account(self) -> tuple[str, str | int, str, str]:
        """The four ids, in the order of the table's account key."""
        return self.asset_id, self.account_type, self.party_id, self.market_id

    @property
    def order(self) -> tuple[int, str]:
        """The key by which a node sorts its rows."""
        return self.timestamp_ns, self.account_id

    def to_json(self, nanoseconds_per_unit: int = 1) -> dict[str, Any]:
        """Return the row as the `node` of an edge."""
        return {
            "timestamp": str(self.timestamp_ns // nanoseconds_per_unit),
            "balance": str(self.balance),
            "partyId": self.party_id,
            "assetId": self.asset_id,
            "marketId": self.market_id,
            "accountType": self.account_type,
        }


def row_from_json(node: dict[str, Any]) -> Row:
    """Return the row that an edge's `node` holds."""
    return Row(
        timestamp_ns=int(node["timestamp"]),
        asset_id=node["assetId"],
        account_type=node["accountType"],
        party_id=node["partyId"],
        market_id=node["marketId"],
        balance=int(node["balance"]),
    )
