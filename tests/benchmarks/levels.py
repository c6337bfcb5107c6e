"""A table to reconstruct from: balances of many accounts that walk, made from a seed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.table.frame import to_frame
from balance_analysis.table.schema import ACCOUNT_KEY

DAYS = 90
SINCE = 1_680_393_600_000_000
"""2023-04-02 in microseconds: engines count days, and nine days, from 1970 on."""

HOUR = 3_600_000_000
DAY = 24 * HOUR
UNTIL = SINCE + DAYS * DAY

ROWS_A_BLOCK = 7
ASSETS, MARKETS = 8, 12
TYPES = {"GENERAL": 0.5, "MARGIN": 0.35, "BOND": 0.1, "INSURANCE": 0.03, "FEES_MAKER": 0.02}

OLD = 0.8
"""The part of the accounts that stand in the first block."""

DRAINED, TOUCHED = 0.04, 0.08
"""The parts of the rows at balance 0, and of those that repeat the account's level."""


def make_table(rows: int, accounts: int) -> pd.DataFrame:
    """Return a table with a number of rows and accounts.

    Four of five accounts stand in the first block, the others begin within the first half. They
    have very different numbers of rows, and several share a block. A balance has up to 27 digits,
    each account's its own size.
    """
    rng = np.random.default_rng(11)
    blocks = rows // ROWS_A_BLOCK
    owner, block = _places(rng, rows, accounts, blocks)
    keys = _keys(rng, accounts)
    ids = {name: pa.array(keys[name]).dictionary_encode() for name in ACCOUNT_KEY}
    columns = {name: each.take(pa.array(owner)) for name, each in ids.items()}
    columns["timestamp"] = pa.array(_moments(rng, blocks)[block], pa.timestamp("us", "UTC"))
    columns["balance"] = _balances(rng, owner, accounts)
    return to_frame(pa.table(columns))


def _moments(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """Return the blocks' times, the first of them the beginning of the first day."""
    span = DAYS * DAY // blocks
    moments = SINCE + np.arange(blocks) * span + rng.integers(0, span, blocks)
    moments[0] = SINCE
    return moments


def _places(
    rng: np.random.Generator, rows: int, accounts: int, blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the account and the block of each row, sorted; each account has a row."""
    born = np.where(rng.random(accounts) < OLD, 0, rng.integers(0, blocks // 2, accounts))
    weights = rng.lognormal(0, 1, accounts)
    tries = rows + rows // 4
    owner = np.repeat(np.arange(accounts), rng.multinomial(tries, weights / weights.sum()))
    block = born[owner] + (rng.random(tries) * (blocks - born[owner])).astype(np.int64)
    births = np.arange(accounts) * blocks + born
    places = np.unique(np.concatenate([births, owner * blocks + block]))
    is_spare = ~np.isin(places, births, kind="sort")
    surplus = rng.choice(np.flatnonzero(is_spare), len(places) - rows, replace=False)
    places = np.delete(places, surplus)
    return places // blocks, places % blocks


def _keys(rng: np.random.Generator, accounts: int) -> pd.DataFrame:
    """Return the four ids of each account."""
    assets, markets, parties = (
        np.array([rng.bytes(32).hex() for _ in range(count)])
        for count in (ASSETS, MARKETS, accounts // 2)
    )
    tries = 4 * accounts
    kinds = rng.choice(list(TYPES), tries, p=list(TYPES.values()))
    has_party = ~np.isin(kinds, ("INSURANCE", "FEES_MAKER"))
    keys = {
        "asset_id": rng.choice(assets, tries),
        "account_type": np.char.add("ACCOUNT_TYPE_", kinds),
        "party_id": np.where(has_party, rng.choice(parties, tries), "network"),
        "market_id": np.where(kinds == "GENERAL", "", rng.choice(markets, tries)),
    }
    return pd.DataFrame(keys).drop_duplicates().head(accounts)


def _balances(rng: np.random.Generator, owner: np.ndarray, accounts: int) -> pa.Array:
    """Return levels that walk, some of them 0 and some the level before."""
    rows = len(owner)
    heads = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    step = 10.0 ** rng.integers(1, 15, accounts)
    walk = np.cumsum((rng.normal(0, 1, rows) * step[owner]).astype(np.int64))
    levels = np.abs(walk - np.append(0, walk)[heads][owner])
    levels[rng.random(rows) < DRAINED] = 0
    source = np.where(rng.random(rows) < TOUCHED, 0, np.arange(rows))
    source[heads] = heads
    levels = levels[np.maximum.accumulate(source)]
    unit = rng.integers(1, 10 ** rng.integers(1, 11, accounts))
    large, small = pa.decimal128(19, 0), pa.decimal128(18, 0)
    product = pc.multiply(
        pa.array(levels).cast(large).cast(small), pa.array(unit[owner]).cast(large)
    )
    return product.cast(pa.decimal128(38, 0))
