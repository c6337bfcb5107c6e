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
from balance_analysis.archive.datafile import times_of
from balance_analysis.archive.scan import Scan
from balance_analysis.archive.slices import FILE_KEY
from balance_analysis.frame import frame_of
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    COLUMNS,
    NETWORK_PARTY,
    NO_MARKET,
    to_microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from balance_analysis.archive.scan import File
    from balance_analysis.archive.snapshot import Snapshot
    from balance_analysis.filters import Filters
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

_NEVER: Final = np.iinfo(np.int64).max


def read_balances(
    snapshot: Snapshot, filters: Filters, when: Instant, *, partial: bool
) -> pd.DataFrame:
    """Return the balance of every account at an instant: see `Archive.balance_at`."""
    snapshot.about.check_holds(filters)
    moment = to_microseconds(when)
    if not partial:
        # A row at that very instant would count.
        first = snapshot.coverage.bounds()[0]
        snapshot.check_complete(min(first, moment), moment + 1)
    files = tuple(snapshot.files_since(moment, moment + 1))
    seen = merged(
        Scan(snapshot.store, filters, files, ()).each(lambda some: some.accounts(COLUMNS))
    )
    # Of what an account held before, nothing is asked: its last row is enough.
    table = frame_of(canonical(seen.select(COLUMNS)))
    snapshot.note_known(table)
    return held_at(table, when)


def read_accounts(snapshot: Snapshot, filters: Filters, *, partial: bool) -> pd.DataFrame:
    """Return the accounts of an archive: see `Archive.accounts`."""
    snapshot.about.check_holds(filters)
    span = snapshot.interval(None, None, partial=partial)
    if not partial:
        snapshot.check_complete(*span)
    return _frame(_read(snapshot, filters, span), snapshot.known_since(span[1]))


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


def _read(snapshot: Snapshot, filters: Filters, span: Span) -> pa.Table:
    files, held = snapshot.files(*span), snapshot.checkpoint(span[1])
    since = held.stop if held else span[0]
    later = [file for file in files if file.stop > since]

    def look(some: Sequence[File], columns: Sequence[str]) -> list[pa.Table]:
        scan = Scan(snapshot.store, filters, tuple(some), ())
        return scan.each(lambda part: part.accounts(columns))

    # What accounts held before the checkpoint, that tells; its rows were counted where they stand.
    parts = look(files[: len(files) - len(later)], [*FILE_KEY, "timestamp"])
    for seen in look([held] if held else [], COLUMNS):
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
