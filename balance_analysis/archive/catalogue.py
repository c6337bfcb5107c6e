"""What accounts an archive has, and what they hold, without a table of all its rows.

In a file an account's rows stand together, in time order: to list accounts, only where they begin
and end is kept of each. Balances are read from the last checkpoint on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.steps import map_parallel
from balance_analysis.archive.coverage import check_complete, interval_asked
from balance_analysis.archive.datafile import FILE_KEY, Predicate, account_heads, times_of
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.scan import Scan, checkpoint_of, files_of, opened, read_frame
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.known import note_known
from balance_analysis.rows import account_numbers
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    COLUMNS,
    NETWORK_PARTY,
    NO_MARKET,
    to_microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.manifest import About
    from balance_analysis.archive.scan import File
    from balance_analysis.archive.store import Store
    from balance_analysis.filters import Filters
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

_AMOUNT: Final = ARROW_SCHEMA.field("balance").type
_SEEN: Final = pa.schema(
    [
        *((name, ARROW_SCHEMA.field(name).type) for name in FILE_KEY),
        *((name, pa.int64()) for name in ("rows", "first", "last")),
        ("balance", _AMOUNT),
    ]
)
"""Accounts in the order of files: how many rows, the times of the first and last, the balance."""

_NEVER: Final = np.iinfo(np.int64).max
_FILES: Final = 64
"""So many files' accounts are in memory at once."""

_GROUPS: Final = 8
"""So many row groups of a file are read at once: more don't stay in a processor's cache."""


def read_balances(store: Store, filters: Filters, when: Instant, *, partial: bool) -> pd.DataFrame:
    """Return the balance of every account at an instant: see `Archive.balance_at`."""
    moment = to_microseconds(when)

    def read(about: About, state: Coverage) -> pd.DataFrame:
        if not partial:
            # A row at that very instant would count.
            check_complete(state, min(state.bounds()[0], moment), moment + 1, store.uri)
        begins = [begin for begin in state.checkpoints if begin <= moment]
        since = max(begins, default=min(state.bounds()[0], moment))
        # An account's rows stand in time order from file to file: the balances come first.
        files = [checkpoint_of(about, since, state.checkpoints[since])] if begins else []
        files += files_of(about, state, (since, moment + 1))
        table = read_frame(Scan(store, filters, tuple(files), state.known()), COLUMNS)
        note_known(table, state.known(), nothing_before=state.begins_with_first_block)
        return balance_at(table, when)

    return _read_at_once(store, filters, read)


def read_accounts(store: Store, filters: Filters, *, partial: bool) -> pd.DataFrame:
    """Return the accounts of an archive: see `Archive.accounts`."""

    def read(about: About, state: Coverage) -> pd.DataFrame:
        span = interval_asked(state, None, None, store.uri, partial=partial)
        if not partial:
            check_complete(state, *span, store.uri)
        return _frame(_read(store, about, state, filters, span), known_since(state, span[1]))

    return _read_at_once(store, filters, read)


def _read_at_once(
    store: Store, filters: Filters, read: Callable[[About, Coverage], pd.DataFrame]
) -> pd.DataFrame:
    """Return what is read by a state, whatever an export does away with of it meanwhile."""
    while True:
        about, state = read_about(store), read_coverage(store)
        about.check_holds(filters)
        try:
            return read(about, state)
        except ArchiveDamagedError:
            # Balances at a month's start go where rows come before it.
            if read_coverage(store) == state:
                raise


def known_since(state: Coverage, end: int) -> int:
    """Return since when every change up to `end` is known, in microseconds.

    What was seen last before that may have changed since.
    """
    return next((start for start, stop in state.known() if start < end <= stop), end - 1)


def count_by(accounts: pd.DataFrame, name: Literal["party_id", "market_id"]) -> pd.DataFrame:
    """Return accounts counted by party or by market: see `Archive.parties`, `Archive.markets`."""
    others, other, nobody = {
        "party_id": ("markets", "market_id", NO_MARKET),
        "market_id": ("parties", "party_id", NETWORK_PARTY),
    }[name]
    some = accounts[accounts[name] != NO_MARKET]
    some = some.assign(**{other: some[other].where(some[other] != nobody)})
    return (
        some.groupby(name, observed=True)
        .agg(
            accounts=("rows", "size"),
            assets=("asset_id", "nunique"),
            **{others: (other, "nunique")},
            rows=("rows", "sum"),
            first_seen=("first_seen", "min"),
            last_seen=("last_seen", "max"),
        )
        .reset_index()
    )


def _read(store: Store, about: About, state: Coverage, filters: Filters, span: Span) -> pa.Table:
    since = max((moment for moment in state.checkpoints if moment <= span[1]), default=span[0])
    files = list(files_of(about, state, span))
    before = sum(file.stop <= since for file in files)
    if since in state.checkpoints:
        files.insert(before, checkpoint_of(about, since, state.checkpoints[since]))

    def look(place: int) -> pa.Table:
        seen = _look(store, files[place], filters, has_balance=place >= before)
        if place == before and since in state.checkpoints:
            # These rows were counted where they stand.
            never, none = np.full(len(seen), _NEVER), np.zeros(len(seen), np.int64)
            seen = _with(seen, rows=none, first=never)
        return seen

    total = _SEEN.empty_table()
    for begin in range(0, len(files), _FILES):
        places = range(begin, min(begin + _FILES, len(files)))
        total = _merged([total, *map_parallel(look, places)])
    return total.filter(pc.greater(total["rows"], 0))


def _look(store: Store, file: File, filters: Filters, *, has_balance: bool) -> pa.Table:
    """Return the accounts of a file; balances are null where they are not asked for."""
    predicate = Predicate(filters.allowed(), file.bounds)
    columns = [*FILE_KEY, "timestamp", *["balance"] * has_balance]
    with opened(store, file.name, file.notes) as data:
        parts = data.rows(predicate, columns, at_once=_GROUPS, use_threads=False)
        return pa.concat_tables([_SEEN.empty_table(), *map(_ends, parts)])


def _ends(rows: pa.Table) -> pa.Table:
    """Return the accounts of rows in a file's order."""
    rows = rows.unify_dictionaries()
    heads = account_heads(rows)
    tails, times = np.append(heads[1:], rows.num_rows)[: len(heads)] - 1, times_of(rows)
    lasts = rows.take(pa.array(tails))
    seen = [np.diff(heads, append=rows.num_rows)[: len(heads)], times[heads], times[tails]]
    balances = lasts["balance"] if "balance" in rows.column_names else pa.nulls(len(tails), _AMOUNT)
    return pa.table([*lasts.select(FILE_KEY).columns, *seen, balances], schema=_SEEN)


def _merged(parts: Sequence[pa.Table]) -> pa.Table:
    """Return each account once, of parts in time order."""
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    if not rows.num_rows:
        return rows
    ids = [rows[name].chunk(0) for name in FILE_KEY]
    codes = [column.indices.to_numpy() for column in ids]
    numbers = account_numbers(codes, [len(column.dictionary) for column in ids])
    order = np.argsort(numbers, kind="stable")
    heads = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0))
    tails = np.append(heads[1:], len(order)) - 1
    return _with(
        rows.take(pa.array(order[tails])),
        rows=np.add.reduceat(rows["rows"].to_numpy()[order], heads),
        first=np.minimum.reduceat(rows["first"].to_numpy()[order], heads),
    )


def _with(seen: pa.Table, **columns: NDArray[Any]) -> pa.Table:
    for name, column in columns.items():
        seen = seen.set_column(_SEEN.get_field_index(name), name, pa.array(column))
    return seen


def _frame(seen: pa.Table, since: int) -> pd.DataFrame:
    is_known = pc.greater_equal(seen["last"], since)
    balances = pc.if_else(is_known, seen["balance"], pa.scalar(None, _AMOUNT))
    frame = pd.DataFrame(
        {
            **{
                name: pd.Categorical(seen[name].cast(pa.string()).to_pandas())
                for name in ACCOUNT_KEY
            },
            "first_seen": to_times(seen["first"].to_numpy()),
            "last_seen": to_times(seen["last"].to_numpy()),
            "rows": seen["rows"].to_numpy(),
            "balance": pd.arrays.ArrowExtensionArray(balances),
        }
    )
    return frame.sort_values(list(ACCOUNT_KEY), ignore_index=True)
