"""Histories for a node to serve: random ones, and the recorded one."""

from __future__ import annotations

import csv
import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.loopback.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Account = tuple[str, str, str, str]

START_NS = 1_680_307_200 * 10**9  # 2023-04-01
MOST_DIGITS = 38

PARTY_MARKET_TYPES = ("MARGIN", "MARGIN", "BOND", "ORDER_MARGIN")
PARTY_TYPES = ("GENERAL", "GENERAL", "GENERAL", "VESTED_REWARDS", "LOCKED_FOR_STAKING")
MARKET_TYPES = ("INSURANCE", "SETTLEMENT", "FEES_MAKER", "FEES_LIQUIDITY", "LP_LIQUIDITY_FEES")
NETWORK_TYPES = ("GLOBAL_REWARD", "FEES_INFRASTRUCTURE", "PENDING_TRANSFERS", "NETWORK_TREASURY")


@dataclass(frozen=True)
class LedgerEntry:
    """The net flow of one account in one block, as the ledger recorded it."""

    timestamp_ns: int
    asset_id: str
    account_type: str
    party_id: str
    market_id: str
    net: int


def read_recording(path: Path) -> list[Row]:
    """Return the rows of a `rows.csv`, as they stand: ascending in the server's order."""
    return [
        Row(int(line.pop("timestamp")), balance=int(line.pop("balance")), **line)
        for line in _lines(path)
    ]


def read_ledger(path: Path) -> list[LedgerEntry]:
    """Return the entries of a `ledger.csv`."""
    return [
        LedgerEntry(int(line.pop("timestamp")), net=int(line.pop("net")), **line)
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
    time = START_NS
    while len(history) < rows:
        size = min(_block_size(rng, largest_block), len(touchable), rows - len(history))
        touched = rng.sample(touchable, size)
        for account in touched:
            levels[account] = _next_level(rng, account, levels.get(account))
            history.append(Row(time, *account, levels[account]))
        # An EXTERNAL account has one row and never another; the first account is never one.
        touchable = [a for a in touchable if not (_is_external(a) and a in levels)]
        time += _pause(rng)
    return sorted(history, key=lambda row: row.order)


def _accounts(rng: random.Random, count: int) -> list[Account]:
    assets = [_id(rng) for _ in range(3)]
    markets = [_id(rng) for _ in range(4)]
    parties = [_id(rng) for _ in range(max(2, count // 4))]
    accounts: dict[Account, None] = {(assets[0], "ACCOUNT_TYPE_GENERAL", parties[0], ""): None}
    candidates = _candidates(rng, assets, markets, parties)
    while len(accounts) < count:
        accounts[next(candidates)] = None
    return list(accounts)


def _candidates(
    rng: random.Random, assets: list[str], markets: list[str], parties: list[str]
) -> Iterator[Account]:
    while True:
        asset, market, party = rng.choice(assets), rng.choice(markets), rng.choice(parties)
        draw = rng.random()
        if draw < 0.45:
            account = asset, rng.choice(PARTY_MARKET_TYPES), party, market
        elif draw < 0.85:
            account = asset, rng.choice(PARTY_TYPES), party, ""
        elif draw < 0.92:
            account = asset, rng.choice(MARKET_TYPES), "network", market
        elif draw < 0.98:
            account = asset, rng.choice(NETWORK_TYPES), "network", ""
        else:
            account = asset, "EXTERNAL", "network", ""
        yield account[0], f"ACCOUNT_TYPE_{account[1]}", account[2], account[3]


def _id(rng: random.Random) -> str:
    return hashlib.sha256(rng.randbytes(16)).hexdigest()


def _is_external(account: Account) -> bool:
    return account[1] == "ACCOUNT_TYPE_EXTERNAL"


def _block_size(rng: random.Random, largest: int) -> int:
    draw = rng.random()
    if draw < 0.08:
        return largest
    if draw < 0.3:
        return rng.randint(1, largest)
    return min(largest, rng.randint(1, 6))


def _pause(rng: random.Random) -> int:
    draw = rng.random()
    if draw < 0.15:
        return 1000
    if draw < 0.97:
        return rng.randrange(500_000, 1_500_000) * 1000
    return rng.randrange(3600, 50_000) * 10**9


def _next_level(rng: random.Random, account: Account, level: int | None) -> int:
    if account[1] in ("ACCOUNT_TYPE_SETTLEMENT", "ACCOUNT_TYPE_EXTERNAL"):
        return 0
    draw = rng.random()
    if level is None and draw < 0.55:
        return 0
    if level is not None and draw < 0.06:
        return level
    return rng.randrange(10 ** rng.randint(1, MOST_DIGITS))
