"""Where a balance comes from: its row, the file, the run and the node, and the rows beside it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from balance_analysis.archive import layout
from balance_analysis.archive.accounts import times_of
from balance_analysis.archive.datafile import Predicate
from balance_analysis.archive.network import heights_at, read_blocks_file
from balance_analysis.archive.runs import iter_reports
from balance_analysis.archive.scan import File, opened
from balance_analysis.archive.snapshot import Readable, Snapshot, with_snapshot
from balance_analysis.presentation import Record, plain
from balance_analysis.schema import ACCOUNT_KEY, Instant, from_microseconds, to_microseconds
from balance_analysis.spans import EVER
from balance_analysis.text import duration_text, moment_text, spans_text, without_credentials

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class CitedRow:
    """A row of an archive, and where it stands.

    Attributes
    ----------
    timestamp
        When the balance changed, UTC.
    balance
        What the account held from then on, in the asset's smallest unit.
    file, row_group
        The file in the archive, and which of its row groups, from 0 on.
    block_height
        The height of its block, where imported segments tell it; else `None`.
    """

    timestamp: dt.datetime
    balance: int
    file: str
    row_group: int
    block_height: int | None

    def __str__(self) -> str:
        height = "" if self.block_height is None else f", block {self.block_height:,}"
        where = f"{self.file}, row group {self.row_group}"
        return f"{self.balance:,} since {moment_text(self.timestamp)}{height}, in {where}"


@dataclass(frozen=True, slots=True)
class Explanation(Record):
    """Why an account holds what it does at a moment, or why that is not known.

    Attributes
    ----------
    account
        Its ids, by the names of `ACCOUNT_KEY`.
    at
        The moment, UTC.
    balance
        What it holds, in the asset's smallest unit; `None` where that is not known.
    why
        Why it is not known, or why it is 0 without a row; else `None`.
    row, before, after
        The row that it rests on, the one before that, and the first one after the moment; `None`
        where the archive has none.
    carried
        How long the row's balance had been held at the moment.
    state
        What is known of the row's time, as of `Archive.coverage`.
    source, source_height, asked_at
        The node or the segments that the row is from, the last block that it held, and when it was
        asked, UTC. Where two runs asked for the same time, the newer one counts.
    run
        The run that asked for it last, by its report's name in `_runs`; `None` where that is gone.
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
    source_height: int | None = None
    asked_at: dt.datetime | None = None
    run: str | None = None

    def _title(self) -> str:
        return "Where a balance comes from"

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield from self.account.items()
        yield "at", self.at
        yield "balance", "unknown" if self.balance is None else self.balance
        if self.why is not None:
            yield "why", self.why
        for name, row in (("row", self.row), ("before", self.before), ("after", self.after)):
            yield name, "none" if row is None else str(row)
        if self.carried is not None:
            yield "carried", duration_text(self.carried)
            yield "state", self.state
            height = "" if self.source_height is None else f" at block {self.source_height:,}"
            yield "asked", f"{self.source}{height}, {plain(self.asked_at)}"
            yield "run", self.run or "its report is no longer kept"

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        for each in (content, *filter(None, map(content.get, ("row", "before", "after")))):
            # JSON's numbers are floats to many.
            each["balance"] = None if each["balance"] is None else str(each["balance"])
        carried = content.pop("carried")
        seconds = None if carried is None else carried.total_seconds()
        return {**content, "carried_seconds": seconds}


def explain(
    self: Readable,
    account: Mapping[str, str] | Sequence[str] | pd.Series[Any],
    *,
    at: Instant,
) -> Explanation:
    """Return where an account's balance at a moment comes from, or why it is not known.

    Parameters
    ----------
    account
        Its four ids: by the names of `ACCOUNT_KEY`, as a row of `accounts` has them, or in its
        order.
    at
        The moment; without a time zone UTC. A row at exactly that time counts.

    Raises
    ------
    ArchiveError
        If there is no archive, or a file that is read is damaged.
    ValueError
        If `account` doesn't have four ids.
    """
    is_plain = isinstance(account, tuple | list)
    found = account if is_plain else [account[name] for name in ACCOUNT_KEY]  # type: ignore[call-overload]
    if len(found) != len(ACCOUNT_KEY):
        raise ValueError(f"an account has {', '.join(ACCOUNT_KEY)}, unlike {account!r}")
    ids = dict(zip(ACCOUNT_KEY, map(str, found), strict=True))
    return with_snapshot(self._state, lambda x: _explain(x, ids, to_microseconds(at)))


def _explain(snapshot: Snapshot, ids: dict[str, str], moment: int) -> Explanation:
    cited, state = _Rows(snapshot, {name: (each,) for name, each in ids.items()}), snapshot.coverage
    row = cited.last(moment + 1)
    since = to_microseconds(row.timestamp) if row else moment
    bare = Explanation(
        account=ids,
        at=from_microseconds(moment),
        balance=row.balance if row else None,
        why=None,
        row=row,
        before=cited.last(since) if row else None,
        after=cited.first(moment + 1),
    )
    if row is None:
        first = state.intervals[0].start if state.begins_with_first_block else EVER[0]
        if state.missing(first, moment + 1):
            return replace(bare, why="the archive has no row of it up to then")
        return replace(bare, balance=0, why="it has no row since the network's first block")
    if gaps := state.missing(since, moment + 1):
        told = spans_text([(start, max(min(end, moment), start + 1)) for start, end in gaps])
        why = f"a change may be missing: {told} is not known to be complete"
        bare = replace(bare, balance=None, why=why)
    asked = next(each for each in state.intervals if each.start <= since < each.end)
    runs = (
        report.id
        for report in iter_reports(snapshot.store)
        if any(to_microseconds(a) <= since < to_microseconds(b) for a, b in report.committed)
    )
    return replace(
        bare,
        carried=bare.at - row.timestamp,
        state=asked.state,
        source=without_credentials(asked.source),
        source_height=asked.block_height,
        asked_at=dt.datetime.fromisoformat(asked.asked_at),
        run=next(runs, None),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of an account in a state of an archive, which are looked for file by file."""

    snapshot: Snapshot
    ids: dict[str, tuple[str, ...]]

    def first(self, since: int) -> CitedRow | None:
        """Return the first row since a moment."""
        found = (self._in(file) for file in self.snapshot.files(start=since))
        return next((rows[0] for rows in found if rows), None)

    def last(self, until: int) -> CitedRow | None:
        """Return the last row before a moment; a checkpoint tells when that was, if long ago."""
        held, since = self.snapshot.checkpoint(until - 1), EVER[0]
        if held is not None:
            since = held.stop
        found = (self._in(file) for file in reversed(self.snapshot.files(since, until)))
        row = next((rows[-1] for rows in found if rows), None)
        if row is not None or held is None:
            return row
        noted = self._in(held)
        return self.first(to_microseconds(noted[0].timestamp)) if noted else None

    def _in(self, file: File) -> list[CitedRow]:
        store, predicate = self.snapshot.store, Predicate(self.ids, file.spans)
        period = layout.period_of(file.begin, self.snapshot.about.partition)
        blocks, found = read_blocks_file(store, layout.blocks_file(period))[0], []
        with opened(store, file) as data:
            for group in data.row_groups(predicate):
                rows = predicate.select(data.read([group]))
                heights = heights_at(blocks, times_of(rows)).to_pylist()
                for row, height in zip(rows.to_pylist(), heights, strict=True):
                    balance = int(row["balance"])
                    found.append(CitedRow(row["timestamp"], balance, file.name, group, height))
        return found
