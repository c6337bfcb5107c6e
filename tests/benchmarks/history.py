"""The rows of the benchmarks' node as the bytes of its answers, in time order.

A cycle of rows is rendered once. A longer history repeats it later: then only the digits of the
timestamp and of the cursor are overwritten in place, so that five million rows cost no
more memory than half a million.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CYCLE: Final = 500_000
SINCE: Final = "2023-04-01T00:00:00Z"
FIRST: Final = 1_680_307_200_000_000_000
BLOCK: Final = 700_000_000
ROWS_A_BLOCK: Final = 7
CURSOR: Final = 400

PARTIES, ASSETS, MARKETS = 500, 5, 20
DIGITS_OF_TIME, DIGITS_OF_PLACE = 19, 10

# Where digits stand, counted from a row's end.
_ROW_END: Final = '"},'
_PLACE: Final = DIGITS_OF_PLACE + len(_ROW_END)
_TIME: Final = DIGITS_OF_TIME + len('"},"cursor":"') + CURSOR + len(_ROW_END)


class History:
    """Rows, sorted by time, with a place each: 0 for the oldest.

    Parameters
    ----------
    rows
        How many.

    Attributes
    ----------
    end
        Nanoseconds; all rows stand before.
    total
        The sum of all balances: who has loaded them all exactly knows it.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._times, blocks = _times(min(rows, CYCLE))
        self._blob, self._offsets, balances = _render(self._times)
        self._duration = blocks * BLOCK
        self.end = FIRST + -(-rows // len(self._times)) * self._duration
        cycles, rest = divmod(rows, len(self._times))
        self.total = cycles * sum(balances) + sum(balances[:rest])

    def place(self, moment: int) -> int:
        """Return how many rows stand before a moment in nanoseconds."""
        cycle = max(0, min(moment, self.end) - FIRST) // self._duration
        within = np.searchsorted(self._times, moment - cycle * self._duration)
        return min(self.rows, cycle * len(self._times) + int(within))

    def edges(self, start: int, end: int) -> list[memoryview]:
        """Return the JSON of the rows between two places, with commas, in pieces to be joined."""
        pieces = list(self._pieces(start, end))
        return [*pieces[:-1], pieces[-1][:-1]] if pieces else []

    def _pieces(self, start: int, end: int) -> Iterator[memoryview]:
        size = len(self._times)
        while start < end:
            cycle, first = divmod(start, size)
            last = min(size, first + end - start)
            yield self._piece(cycle, first, last)
            start += last - first

    def _piece(self, cycle: int, first: int, last: int) -> memoryview:
        begin, stop = self._offsets[first], self._offsets[last]
        if cycle == 0:
            return memoryview(self._blob)[begin:stop]
        piece = np.frombuffer(self._blob, np.uint8)[begin:stop].copy()
        ends = self._offsets[first + 1 : last + 1] - begin
        times = self._times[first:last] + cycle * self._duration
        places = np.arange(first, last) + cycle * len(self._times)
        _write_digits(piece, ends - _TIME, times, DIGITS_OF_TIME)
        _write_digits(piece, ends - _PLACE, places, DIGITS_OF_PLACE)
        return memoryview(piece)


def cursor(place: int) -> str:
    """Return the cursor of the row at a place."""
    return f"{_CURSOR_HEAD}{place:0{DIGITS_OF_PLACE}}"


def place_of(text: str) -> int:
    """Return the place of the row that a cursor stands for."""
    return int(text[-DIGITS_OF_PLACE:])


def _times(rows: int) -> tuple[NDArray[np.int64], int]:
    """Return the time of each row, and how many blocks that are."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 2 * ROWS_A_BLOCK, rows)
    blocks = int(np.searchsorted(np.cumsum(sizes), rows)) + 1
    jitter = rng.integers(0, 100_000, blocks) * 1000
    jitter[0] = 0  # at the interval's start, so that all of it is known
    moments = FIRST + np.arange(blocks) * BLOCK + jitter
    return np.repeat(moments, sizes[:blocks])[:rows], blocks


def _render(times: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64], list[int]]:
    """Return the rows, each with a comma behind it, where each begins, and the balances."""
    accounts = _accounts()
    rng = random.Random(3)
    chosen: set[int] = set()
    rows, balances, before = [], [], 0
    for place, time in enumerate(times.tolist()):
        if time != before:
            chosen, before = set(), time
        while (number := rng.randrange(len(accounts))) in chosen:
            pass
        chosen.add(number)
        head, middle = accounts[number]
        balances.append(balance := rng.randrange(10 ** rng.randint(1, 27)))
        rows.append(f'{head}{balance}{middle}{time}"}},"cursor":"{cursor(place)}{_ROW_END}')
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return "".join(rows).encode("ascii"), offsets, balances


def _accounts() -> list[tuple[str, str]]:
    """Return the JSON before and behind the balance, for each account."""
    rng = random.Random(5)
    parties, assets, markets = (
        [f"{rng.getrandbits(256):064x}" for _ in range(count)]
        for count in (PARTIES, ASSETS, MARKETS)
    )
    keys = [(asset, "FEES_INFRASTRUCTURE", "network", "") for asset in assets]
    keys += [(asset, "INSURANCE", "network", market) for asset in assets for market in markets]
    for party in parties:
        keys += [(asset, "GENERAL", party, "") for asset in assets]
        keys += [(rng.choice(assets), "MARGIN", party, market) for market in markets]
        keys += [(rng.choice(assets), "BOND", party, rng.choice(markets))]
    return [
        (
            f'{{"node":{{"accountType":"ACCOUNT_TYPE_{kind}","assetId":"{asset}","balance":"',
            f'","marketId":"{market}","partyId":"{party}","timestamp":"',
        )
        for asset, kind, party, market in keys
    ]


def _write_digits(
    target: NDArray[np.uint8], at: NDArray[np.int64], numbers: NDArray[np.int64], digits: int
) -> None:
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    text = numbers[:, None] // powers % 10 + ord("0")
    target[at[:, None] + np.arange(digits)] = text.astype(np.uint8)


_CURSOR_HEAD: Final = "".join(
    random.Random(7).choices(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=390
    )
)
