"""Random balance changes, few enough in accounts and moments that they meet in blocks."""

import hashlib
from itertools import product

from hypothesis import strategies as st

from tests.loopback import Row

BASE = 1_682_899_200_000_000
"""Where a month begins, and so a day and an hour; microseconds since 1970."""

HOUR = 3_600_000_000

ASSETS = ("a" * 64, 'An asset & no hex: "\\ä\u2028", "cursor":')
PARTIES = ("network", "0123456789abcdef" * 4, "f" * 64)
MARKETS = ("", "e" * 64, "00" * 32)
TYPES = (
    "ACCOUNT_TYPE_GENERAL",
    "ACCOUNT_TYPE_INSURANCE",
    "ACCOUNT_TYPE_UNSPECIFIED",
    "ACCOUNT_TYPE_VESTED_REWARDS",
    "ACCOUNT_TYPE_OF_TOMORROW",
)
MOMENTS = (-26 * HOUR, -2 * HOUR, -1, 0, 1, 2, 999_999, 1_000_000, 2 * HOUR)


ACCOUNTS = list(product(ASSETS, TYPES, PARTIES, MARKETS))
_BALANCES = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(0, 3)


@st.composite
def row_lists(draw, min_size=0, max_size=40, accounts=ACCOUNTS):
    """Rows in any order, no account twice at one moment; many of them in few blocks."""
    most = draw(st.sampled_from((1, 3, len(MOMENTS))))
    moments = draw(st.lists(st.sampled_from(MOMENTS), min_size=1, max_size=most, unique=True))
    spots = list(product(accounts, moments))
    largest = min(max_size, len(spots))
    # Lists are short if they may be, and short ones show little.
    size = draw(st.integers(min(max(min_size, draw(st.integers(0, largest))), largest), largest))
    chosen = draw(st.randoms()).sample(spots, size)
    balances = draw(st.lists(_BALANCES, min_size=size, max_size=size))
    return tuple(
        Row(*account, BASE + moment, balance)
        for (account, moment), balance in zip(chosen, balances, strict=True)
    )


def ordered(rows):
    """Return rows as a node lists them, the newest first."""
    return sorted(rows, key=lambda row: row.order, reverse=True)


def block_of(count, time=BASE):
    """Rows of some number of accounts at one moment."""
    parties = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(count))
    return [Row(ASSETS[0], TYPES[0], party, "", time, 10**30 + 7) for party in parties]
