"""What accounts an archive has, and what they hold, without a table of all its rows.

In a file an account's rows stand together, in time order: to list accounts, only where they begin
and end is kept of each. Balances are read from the last checkpoint on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.grid import to_times
from balance_analysis.archive.accounts import merged
from balance_analysis.archive.coverage import check_complete, interval_asked
from balance_analysis.archive.datafile import times_of
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.scan import Scan, checkpoint_of, files_of
from balance_analysis.archive.slices import FILE_KEY
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.frame import frame_of
from balance_analysis.known import note_known
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    COLUMNS,
    NETWORK_PARTY,
    NO_MARKET,
    to_microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.manifest import About
    from balance_analysis.archive.scan import File
    from balance_analysis.archive.store import Store
    from balance_analysis.filters import Filters
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

_NEVER: Final = np.iinfo(np.int64).max


def read_balances(store: Store, filters: Filters, when: Instant, *, partial: bool) -> pd.DataFrame:
    """Return the balance of every account at an instant: see `Archive.balance_at`."""
    moment = to_microseconds(when)

    def read(about: About, state: Coverage) -> pd.DataFrame:
        if not partial:
            # A row at that very instant would count.
            check_complete(state, min(state.bounds()[0], moment), moment + 1, store.uri)
        begins = [begin for begin in state.checkpoints if begin <= moment]
        since = max(begins, default=min(state.bounds()[0], moment))
        files = [checkpoint_of(about, since, state.checkpoints[since])] if begins else []
        files += files_of(about, state, (since, moment + 1))
        scan = Scan(store, filters, tuple(files), state.known())
        seen = merged(scan.each(lambda some: some.accounts(COLUMNS)))
        # Of what an account held before, nothing is asked: its last row is enough.
        table = frame_of(canonical(seen.select(COLUMNS)))
        note_known(table, state.known(), nothing_before=state.begins_with_first_block)
        return held_at(table, when)

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
    later = [file for file in files if file.stop > since]
    held: list[File] = []
    if since in state.checkpoints:
        held.append(checkpoint_of(about, since, state.checkpoints[since]))

    def look(some: Sequence[File], columns: Sequence[str]) -> list[pa.Table]:
        scan = Scan(store, filters, tuple(some), ())
        return scan.each(lambda part: part.accounts(columns))

    # What accounts held before the checkpoint, that tells; its rows were counted where they stand.
    parts = look(files[: len(files) - len(later)], [*FILE_KEY, "timestamp"])
    for seen in look(held, COLUMNS):
        none, never = np.zeros(len(seen), np.int64), np.full(len(seen), _NEVER)
        columns = [*seen.select(COLUMNS).columns, pa.array(none), pa.array(never)]
        parts.append(pa.table(columns, schema=seen.schema))
    total = merged([*parts, *look(later, COLUMNS)])
    return total.filter(pc.greater(total["rows"], 0))


def _frame(seen: pa.Table, since: int) -> pd.DataFrame:
    frame = frame_of(canonical(seen.select(COLUMNS), sort=False))
    is_known = times_of(seen) >= since
    frame = frame.assign(
        first_seen=to_times(seen["first"].to_numpy()),
        rows=seen["rows"].to_numpy(),
        balance=frame["balance"].where(is_known),
    ).rename(columns={"timestamp": "last_seen"})
    names = [*ACCOUNT_KEY, "first_seen", "last_seen", "rows", "balance"]
    return frame[names].sort_values(list(ACCOUNT_KEY), ignore_index=True)
