"""Find accounts, and ranges of accounts, in a file's rows without sorting them.

A file keeps the rows of an account together, in time order, and sorts accounts by their ids. So an
account, or a range of accounts, is one stretch of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.rows import account_heads, account_numbers, canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    COLUMNS,
)

FILE_ORDER: Final = ("party_id", "asset_id", "account_type", "market_id", "timestamp")
FILE_KEY: Final = FILE_ORDER[: len(ACCOUNT_KEY)]

_WHOLE: Final = FILE_KEY[:2]
"""What a slice never splits: by these, results of slices are those of the whole."""

_ROUND: Final = 4
"""Round the number of slices up to a multiple of this, so that four workers finish together."""

Key = tuple[str, ...]
"""An account's ids in the order of files, or the first few of them."""

ACCOUNTS: Final = pa.schema(
    [
        *(field.with_nullable(True) for field in ARROW_SCHEMA),
        *((name, pa.int64()) for name in ("rows", "first")),
    ]
)
"""Schema of accounts: last row, number of rows, and time of the first row in microseconds."""

_WAITING: Final = 1 << 20
"""Maximum number of accounts that wait to be combined."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of accounts, in the order of an archive's files.

    Attributes
    ----------
    low
        The lower bound, inclusive.
    high
        The upper bound, exclusive; `None` for no bound.
    """

    low: Key = ()
    high: Key | None = None

    def __str__(self) -> str:
        bounds = {"from": self.low, "before": self.high}
        said = [f"{word} {' '.join(map(repr, key))}" for word, key in bounds.items() if key]
        return f"accounts {' '.join(said)}" if said else "all accounts"

    def overlaps(self, first: Key, last: Key) -> bool:
        """Return whether the accounts from `first` to `last` overlap this range."""
        return last >= self.low and (self.high is None or first < self.high)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows of these accounts, from rows in a file's order."""
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


def numbers_of(rows: pa.Table, names: Sequence[str] = FILE_KEY) -> NDArray[np.int64]:
    """Return for each canonical row a number that sorts as its account, by default as in files."""
    ids = [rows[name].chunk(0) for name in names]
    codes = [column.indices.to_numpy() for column in ids]
    return account_numbers(codes, [len(column.dictionary) for column in ids])


def times_of(rows: pa.Table) -> NDArray[np.int64]:
    """Return the timestamps of rows, microseconds."""
    times: NDArray[np.int64] = rows["timestamp"].cast(pa.int64()).to_numpy()
    return times


def find_accounts(rows: pa.Table) -> pa.Table:
    """Return the accounts of rows in a file's order.

    Parameters
    ----------
    rows
        At least the ids; a missing column is null in the accounts, a missing time is 0.
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


def combine_accounts(parts: Iterable[pa.Table]) -> pa.Table:
    """Combine the accounts of files in time order: each account once, in file order."""
    total, waiting, size = ACCOUNTS.empty_table(), [], 0
    for some in parts:
        waiting.append(some)
        size += some.num_rows
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


def cut(counts: pa.Table, *, rows: int, accounts: float) -> list[KeyRange]:
    """Cut all accounts into slices of about equal work, where the party or the asset changes.

    Parameters
    ----------
    counts
        What `combine_accounts` returns.
    rows, accounts
        Maximum of a slice. What a party has of one asset is never split; if it has more rows, it
        is a slice of its own.
    """
    if not counts.num_rows:
        return [ALL]
    heads = np.flatnonzero(np.diff(numbers_of(counts, _WHOLE), prepend=-1))
    sizes = np.add.reduceat(counts["rows"].to_numpy(), heads)
    work = np.cumsum(sizes / rows + np.diff(heads, append=counts.num_rows) / accounts)
    parts = int(np.ceil(work[-1]))
    parts += -parts % _ROUND if parts > _ROUND else 0
    ends = work[-1] / parts * np.arange(1, parts)
    hot = np.flatnonzero(sizes > rows)
    places = {*np.searchsorted(work, ends), *hot, *(hot + 1)} - {0, len(work)}
    keys = counts.select(_WHOLE).take(pa.array(heads[sorted(places)], pa.int64()))
    lows: list[Key] = [(), *zip(*keys.to_pydict().values(), strict=True)]
    return [KeyRange(low, high) for low, high in zip(lows, [*lows[1:], None], strict=True)]
