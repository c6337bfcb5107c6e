"""Explain an account's balance: its row, the evidence for it, or why it is unknown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.snapshot import Scan, Snapshot
from balance_analysis.table import text
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import (
    EVER,
    Moment,
    from_microseconds,
    moment_text,
    to_microseconds,
)
from balance_analysis.table.schema import ACCOUNT_KEY


@dataclass(frozen=True, slots=True)
class CitedRow:
    """A row of an archive.

    Attributes
    ----------
    timestamp
        When the balance changed, UTC.
    balance
        The balance from then on, in the asset's smallest unit.
    file
        The row's file in the archive.
    """

    timestamp: dt.datetime
    balance: int
    file: str

    def __str__(self) -> str:
        return f"{self.balance:,} since {moment_text(self.timestamp)}, in {self.file}"


@dataclass(frozen=True, slots=True)
class Explanation(text.Record):
    """Where an account's balance at a moment comes from, or why it is unknown.

    Attributes
    ----------
    account
        Its ids, by the names of `ACCOUNT_KEY`.
    at
        The moment, UTC.
    balance
        The balance, in the asset's smallest unit; `None` if unknown.
    why
        Why the balance is unknown, or is 0 without a row; else `None`.
    row, before, after
        The balance's row, the one before it, and the first one after the moment; `None` if the
        archive has no such row.
    carried
        How long the row's balance had been held at the moment; `None` if the balance is unknown.
    state
        The state of the row's time, as in `Archive.coverage`.
    source
        The node or segments that answered for the row's time; the last of several.
    asked, heights
        When the source was asked (UTC), and its last block then. Both are pairs, because answers of
        several runs are joined: first and last moment, lowest and highest block.
    confirmed_by
        Another source with the same rows; `None` unless the state is "confirmed".
    """

    account: dict[str, str]
    at: dt.datetime
    balance: int | None
    why: str | None
    row: CitedRow | None
    before: CitedRow | None
    after: CitedRow | None
    carried: dt.timedelta | None = None
    state: str | None = None
    source: str | None = None
    asked: tuple[dt.datetime, dt.datetime] | None = None
    heights: tuple[int, int] | None = None
    confirmed_by: str | None = None

    def _title(self) -> str:
        return "Where a balance comes from"

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield from self.account.items()
        yield "at", self.at
        yield "balance", "unknown" if self.balance is None else self.balance
        yield "unit of balances", "the asset's smallest"
        if self.why is not None:
            yield "why", self.why
        for name, row in (("row", self.row), ("before", self.before), ("after", self.after)):
            yield name, "none" if row is None else str(row)
        if self.carried is not None:
            yield "carried", text.duration_text(self.carried)
        if self.state is not None:
            yield "state of the row", self.state
            yield "source", self.source
            for name, ends in (("asked", self.asked), ("at block", self.heights)):
                if ends is not None:
                    yield name, " to ".join(dict.fromkeys(map(text.plain, ends)))
            if self.confirmed_by is not None:
                yield "confirmed by", self.confirmed_by

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        for part in (content, *filter(None, map(content.get, ("row", "before", "after")))):
            # Many readers take JSON's numbers as floats.
            part["balance"] = None if part["balance"] is None else str(part["balance"])
        carried = content.pop("carried")
        seconds = None if carried is None else carried.total_seconds()
        return {**content, "carried_seconds": seconds}


def explain(
    snapshot: Snapshot, account: Mapping[str, str] | Sequence[str] | pd.Series[Any], at: Moment
) -> Explanation:
    """Return where an account's balance at a moment comes from: see `Archive.explain`."""
    is_plain = isinstance(account, tuple | list)
    values = account if is_plain else [account[name] for name in ACCOUNT_KEY]  # type: ignore[call-overload]
    if len(values) != len(ACCOUNT_KEY):
        raise ValueError(f"pass an account's {', '.join(ACCOUNT_KEY)}, not {account!r}")
    ids = dict(zip(ACCOUNT_KEY, map(str, values), strict=True))
    moment = to_microseconds(at, down=True)
    asset, kind, party, market = (ids[name] for name in ACCOUNT_KEY)
    filters = Filters(asset, (party,), (market,), (kind,))
    evidence = snapshot.evidence.narrow(filters)
    # The moment itself must be complete too, unless a node's answer ends there.
    until = moment + (moment not in {end for _, end in snapshot.evidence.reached})
    row = _last(snapshot, filters, moment)
    since = to_microseconds(row.timestamp) if row else moment
    bare = Explanation(
        account=ids,
        at=from_microseconds(moment),
        balance=row.balance if row else None,
        why=None,
        row=row,
        before=_last(snapshot, filters, since - 1) if row else None,
        after=_first(snapshot, filters, moment + 1),
    )
    if row is None:
        first = evidence.bounds[0] if evidence.from_first_block else EVER[0]
        for name, known in snapshot.ids().items() if bare.after is None else ():
            if ids[name] not in known:
                return replace(bare, why=f"no row has the {name} {ids[name]!r}; pass whole ids")
        if evidence.incomplete(first, until):
            return replace(bare, why="the archive has no row of the account up to then")
        return replace(bare, balance=0, why="no row since the network's first block")
    # An unreadable bad row at the row's own time is another account's: an account has one row then.
    row_span = (since, since + 1)
    bad = tuple(x for x in evidence.set_aside if x.account is not None or x.span != row_span)
    if gaps := replace(evidence, set_aside=bad).incomplete(since, until):
        when = text.spans_text([(start, max(min(end, moment), start + 1)) for start, end in gaps])
        why = f"a change may be missing: the archive is not complete for {when}"
        bare = replace(bare, balance=None, why=why)
    [(_, state, answer, by)] = evidence.within(since, since + 1).stretches()
    carried = bare.at - row.timestamp if bare.balance is not None else None
    bare = replace(bare, carried=carried, state=state)
    if answer is None:
        return bare
    return replace(
        bare,
        source=text.without_credentials(answer.node.name),
        heights=answer.heights,
        asked=(from_microseconds(answer.asked[0]), from_microseconds(answer.asked[1])),
        confirmed_by=None if by is None else text.without_credentials(by.name),
    )


def _last(snapshot: Snapshot, filters: Filters, moment: int) -> CitedRow | None:
    """Return an account's last row up to a moment, or `None`."""
    return _cited(snapshot, snapshot.last_rows(filters, moment).to_batches())


def _first(snapshot: Snapshot, filters: Filters, moment: int) -> CitedRow | None:
    """Return an account's first row at a moment or later, or `None`."""
    files = tuple(snapshot.files(start=moment))
    return _cited(snapshot, Scan(snapshot.store, filters, files, Evidence()).iter_batches())


def _cited(snapshot: Snapshot, batches: Iterable[pa.RecordBatch]) -> CitedRow | None:
    """Return the first row of these batches, or `None`."""
    row = next((batch.slice(0, 1).to_pylist()[0] for batch in batches if batch.num_rows), None)
    if row is None:
        return None
    manifest, moment = snapshot.manifest, to_microseconds(row["timestamp"])
    file = manifest.changes_file(layout.period_of(moment, manifest.partition))
    return CitedRow(row["timestamp"], int(row["balance"]), file)
