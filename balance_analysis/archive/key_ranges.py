"""Slices of an archive's accounts, as these stand in its files, and cutting them alike."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import moment_text

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
FILE_KEY: Final = FILE_ORDER[: len(ACCOUNT_KEY)]

_ROUND: Final = 4
"""Of so many slices there is a multiple: two workers, or four, are all busy to the end."""

Key = tuple[str, ...]
"""An account's ids in the order of files, or the first few of them."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Accounts that stand side by side in an archive's files, or a part of one's time.

    Attributes
    ----------
    low
        The first of them, or what stands before it.
    high
        What stands behind the last of them; `None` where nothing does.
    since, until
        Of a single account: which time, half-open, microseconds; `None` leaves it open.
    """

    low: Key = ()
    high: Key | None = None
    since: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        bounds = {"from": self.low, "before": self.high}
        said = [f"{word} {' '.join(map(repr, key))}" for word, key in bounds.items() if key]
        times = {"since": self.since, "until": self.until}
        said += [f"{word} {moment_text(at)}" for word, at in times.items() if at is not None]
        return f"accounts {' '.join(said)}" if said else "all accounts"

    def holds(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which moments are in its time."""
        since, until = (np.iinfo(np.int64).min if self.since is None else self.since), self.until
        return (times >= since) & (True if until is None else times < until)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return those of rows in a file's order that are of these accounts."""
        if self == KeyRange():
            return rows
        columns = [rows[name] for name in FILE_KEY]

        def key(place: int) -> Key:
            return tuple(column[place].as_py() for column in columns)

        low, high = (
            rows.num_rows if bound is None else bisect_left(range(rows.num_rows), bound, key=key)
            for bound in (self.low, self.high)
        )
        return rows.slice(low, high - low)


ALL: Final = KeyRange()


def cut(counts: pa.Table, *, rows: int, accounts: float) -> list[KeyRange]:
    """Return slices of about equal work that are together all accounts.

    Parameters
    ----------
    counts
        What `combine_accounts` returns.
    rows, accounts
        How many a slice may have. An account is never split; one that has more rows stands alone.
    """
    work = np.cumsum(counts["rows"].to_numpy() / rows + 1 / accounts)
    parts = int(np.ceil(work[-1])) if len(work) else 1
    parts += -parts % _ROUND if parts > _ROUND else 0
    ends = work[-1] / parts * np.arange(1, parts) if parts > 1 else []
    hot = np.flatnonzero(counts["rows"].to_numpy() > rows)
    places = {*np.searchsorted(work, ends), *hot, *(hot + 1)} - {0, len(work)}
    keys = counts.select(FILE_KEY).take(pa.array(sorted(places), pa.int64()))
    lows: list[Key] = [(), *zip(*keys.to_pydict().values(), strict=True)]
    return [KeyRange(low, high) for low, high in zip(lows, [*lows[1:], None], strict=True)]


def cut_by_time(
    part: KeyRange, counts: NDArray[np.int64], moments: NDArray[np.int64], *, rows: int
) -> tuple[list[KeyRange], int]:
    """Return an account's slice cut at some moments, and how many rows the largest part has.

    Parameters
    ----------
    counts
        How many rows it has before, between and behind the moments, ascending.
    rows
        How many a part should have at most: it may have more where there are so many in between.
    """
    seen = np.cumsum(counts)
    parts = -(-int(seen[-1]) // rows)
    places = np.unique(np.searchsorted(seen, seen[-1] / parts * np.arange(1, parts)))
    places = places[seen[places] < seen[-1]]
    edges = [None, *moments[places].tolist(), None]
    sizes = np.diff(seen[places], prepend=0, append=seen[-1])
    return [replace(part, since=a, until=b) for a, b in itertools.pairwise(edges)], int(sizes.max())
