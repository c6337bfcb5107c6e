"""Rows of a node's history: one on the wire, random histories, and the recorded one."""

import csv
import hashlib
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

Account = tuple[str, str | int, str, str]

START = 1_680_307_200_000_000  # 2023-04-01
MOST_DIGITS = 38

PARTY_MARKET_TYPES = ("MARGIN", "MARGIN", "BOND", "ORDER_MARGIN")
PARTY_TYPES = ("GENERAL", "GENERAL", "GENERAL", "VESTED_REWARDS", "LOCKED_FOR_STAKING")
MARKET_TYPES = ("INSURANCE", "SETTLEMENT", "FEES_MAKER", "FEES_LIQUIDITY", "LP_LIQUIDITY_FEES")
NETWORK_TYPES = ("GLOBAL_REWARD", "FEES_INFRASTRUCTURE", "PENDING_TRANSFERS", "NETWORK_TREASURY")
EXTERNAL = "ACCOUNT_TYPE_EXTERNAL"


@cache
def account_id(asset_id: str, party_id: str, market_id: str, account_type: str | int) -> str:
    """Return the id by which a node orders the accounts inside a block."""
    text = f"{asset_id}{party_id}{market_id}{account_type}"
    return hashlib.sha256(text.encode()).hexdigest()


class Row(NamedTuple):
    """A balance of one account at the end of one block.

    Attributes
    ----------
    account_type
        A name of the enumeration; an integer where the node doesn't know the value.
    time
        That of the block, in microseconds since 1970 UTC.
    balance
        In the asset's smallest unit. Text is sent as it stands.
    """

    asset_id: str
    account_type: str | int
    party_id: str
    market_id: str
    time: int
    balance: int | str

    @property
    def account_id(self) -> str:
        """SHA-256 hex of assetId + partyId + marketId + accountType."""
        return account_id(self.asset_id, self.party_id, self.market_id, self.account_type)

    @property
    def account(self) -> Account:
        """The four ids, in the order of the table's account key."""
        return self[:4]

    @property
    def order(self) -> tuple[int, str]:
        """The key by which a node sorts its rows."""
        return self.time, self.account_id

    def to_json(self) -> dict[str, Any]:
        """Return the row as the `node` of an edge."""
        return {
            "timestamp": str(self.time * 1000),
            "balance": str(self.balance),
            "partyId": self.party_id,
            "assetId": self.asset_id,
            "marketId": self.market_id,
            "accountType": self.account_type,
        }


def row_from_json(node: dict[str, Any]) -> Row:
    """Return the row that an edge's `node` holds."""
    ids = (node[name] for name in ("assetId", "accountType", "partyId", "marketId"))
    return Row(*ids, int(node["timestamp"]) // 1000, int(node["balance"]))


def spoilt(is_bad: Callable[[dict[str, Any]], bool], **change: Any) -> Callable[..., Any]:
    """Return an edit of a node's rows that changes bad ones, by default to a balance of "x"."""
    change = change or {"balance": "x"}
    return lambda row: {**row, **change} if is_bad(row) else row


def read_recording(path: Path) -> list[Row]:
    """Return the rows of a `rows.csv`, ascending in the server's order."""
    return [
        Row(time=int(line.pop("timestamp")) // 1000, balance=int(line.pop("balance")), **line)
        for line in _lines(path)
    ]


def read_ledger(path: Path) -> list[tuple[Account, int, int]]:
    """Return the net flow of each account in each block, of a `ledger.csv`.

    An entry is the account, the block's time in microseconds, and the flow.
    """
    return [
        (
            (line["asset_id"], line["account_type"], line["party_id"], line["market_id"]),
            int(line["timestamp"]) // 1000,
            int(line["net"]),
        )
        for line in _lines(path)
    ]


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def histories(
    *, most_rows: int = 300, most_accounts: int = 120, largest_block: int = 120
) -> st.SearchStrategy[list[Row]]:
    """Return a strategy of random histories, the empty one included."""
    return st.builds(
        random_history,
        st.integers(0, 2**32 - 1),
        rows=st.integers(0, most_rows),
        accounts=st.integers(1, most_accounts),
        largest_block=st.integers(1, largest_block),
    )


def random_history(
    seed: int, *, rows: int = 552, accounts: int = 182, largest_block: int = 12
) -> list[Row]:
    """Return a history with the traits of real ones, ascending in the server's order.

    Several assets and account types, parties on markets, `network` accounts, empty markets; blocks
    of one row to `largest_block`, some of them 1 µs apart, some after hours; first rows of 0,
    repeated balances, SETTLEMENT rows of 0, EXTERNAL accounts with one row, balances of 1 to 38
    digits. (account, timestamp) is unique.

    Parameters
    ----------
    rows
        How many rows there are, exactly.
    accounts
        How many accounts may appear; a block holds each at most once.
    largest_block
        The most rows in one block. About one block in twelve is as large as can be.
    """
    rng = random.Random(seed)
    touchable = _accounts(rng, accounts)
    levels: dict[Account, int] = {}
    history: list[Row] = []
    time = START
    while len(history) < rows:
        size = min(_block_size(rng, largest_block), len(touchable), rows - len(history))
        touched = rng.sample(touchable, size)
        for account in touched:
            levels[account] = _next_level(rng, account, levels.get(account))
            history.append(Row(*account, time, levels[account]))
        # An EXTERNAL account has one row and never another; the first account is never one.
        touchable = [a for a in touchable if not (a[1] == EXTERNAL and a in levels)]
        time += _pause(rng)
    return sorted(history, key=lambda row: row.order)


def _accounts(rng: random.Random, count: int) -> list[Account]:
    assets = [_id(rng) for _ in range(3)]
    markets = [_id(rng) for _ in range(4)]
    parties = [_id(rng) for _ in range(max(2, count // 4))]
    accounts: dict[Account, None] = {(assets[0], "ACCOUNT_TYPE_GENERAL", parties[0], ""): None}
    while len(accounts) < count:
        asset, market, party = rng.choice(assets), rng.choice(markets), rng.choice(parties)
        draw = rng.random()
        if draw < 0.45:
            kind = rng.choice(PARTY_MARKET_TYPES)
        elif draw < 0.85:
            kind, market = rng.choice(PARTY_TYPES), ""
        elif draw < 0.92:
            kind, party = rng.choice(MARKET_TYPES), "network"
        elif draw < 0.98:
            kind, party, market = rng.choice(NETWORK_TYPES), "network", ""
        else:
            kind, party, market = "EXTERNAL", "network", ""
        accounts[asset, f"ACCOUNT_TYPE_{kind}", party, market] = None
    return list(accounts)


def _id(rng: random.Random) -> str:
    return hashlib.sha256(rng.randbytes(16)).hexdigest()


def _block_size(rng: random.Random, largest: int) -> int:
    draw = rng.random()
    if draw < 0.08:
        return largest
    return rng.randint(1, largest) if draw < 0.3 else min(largest, rng.randint(1, 6))


def _pause(rng: random.Random) -> int:
    draw = rng.random()
    if draw < 0.15:
        return 1
    if draw < 0.97:
        return rng.randrange(500_000, 1_500_000)
    return rng.randrange(3600, 50_000) * 10**6


def _next_level(rng: random.Random, account: Account, level: int | None) -> int:
    if account[1] in ("ACCOUNT_TYPE_SETTLEMENT", EXTERNAL):
        return 0
    draw = rng.random()
    if level is None and draw < 0.55:
        return 0
    if level is not None and draw < 0.06:
        return level
    return rng.randrange(10 ** rng.randint(1, MOST_DIGITS))
