"""Where a number comes from: the rows behind it, their files, the runs and the nodes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.history import open_history
from balance_analysis.analysis.steps import ALWAYS, cut, step_deltas, take_ids
from balance_analysis.archive.datafile import NO_ROWS, Predicate
from balance_analysis.archive.network import ask
from balance_analysis.archive.runs import iter_reports
from balance_analysis.archive.scan import File, opened
from balance_analysis.archive.snapshot import Readable, Snapshot, with_snapshot
from balance_analysis.filters import FilterKeywords, Filters, takes_filters
from balance_analysis.naming import DataFrame
from balance_analysis.presentation import Record, plain
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    Instant,
    from_microseconds,
    to_microseconds,
)
from balance_analysis.spans import EVER
from balance_analysis.text import duration_text, moment_text, spans_text, without_credentials

_ROW_GROUP: Final = "row_group"
_CITED: Final = pa.schema(
    [
        *((name, pa.string()) for name in ACCOUNT_KEY),
        *((name, ARROW_SCHEMA.field(name).type) for name in ("timestamp", "balance")),
        (_ROW_GROUP, pa.int64()),
        ("file", pa.string()),
    ]
)
_WIDE: Final = pa.decimal256(38, 0)


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
    """

    timestamp: dt.datetime
    balance: int
    file: str
    row_group: int

    def __str__(self) -> str:
        where = f"{self.file}, row group {self.row_group}"
        return f"{self.balance:,} since {moment_text(self.timestamp)}, in {where}"


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
    row, until = cited.last(moment + 1), snapshot.until(moment)
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
        for name, held in snapshot.ids().items() if bare.after is None else ():
            if ids[name] not in held:
                return replace(bare, why=f"no row has the {name} {ids[name]!r}; ids are whole here")
        if state.missing(first, until):
            return replace(bare, why="the archive has no row of it up to then")
        return replace(bare, balance=0, why="it has no row since the network's first block")
    if gaps := state.missing(since, until):
        told = spans_text([(start, max(min(end, moment), start + 1)) for start, end in gaps])
        why = f"a change may be missing: {told} is not known to be complete"
        bare = replace(bare, balance=None, why=why)
    (place,), (run,) = _origins(snapshot, np.array([since]))
    asked = state.intervals[place]
    return replace(
        bare,
        carried=bare.at - row.timestamp,
        state=asked.state,
        source=without_credentials(asked.source),
        source_height=asked.block_height,
        asked_at=dt.datetime.fromisoformat(asked.asked_at),
        run=run,
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
        rows = _cited(self.snapshot, file, Predicate(self.ids, file.spans)).drop_columns(
            ACCOUNT_KEY
        )
        return [CitedRow(**{**row, "balance": int(row["balance"])}) for row in rows.to_pylist()]


def _cited(snapshot: Snapshot, file: File, predicate: Predicate) -> pa.Table:
    """Return rows of a file with where they stand."""
    parts = [NO_ROWS.append_column(_ROW_GROUP, pa.array([], pa.int64()))]
    with opened(snapshot.store, file) as data:
        for group in data.row_groups(predicate):
            rows = predicate.select(data.read([group]))
            parts.append(rows.append_column(_ROW_GROUP, pa.array(np.full(len(rows), group))))
    rows = pa.concat_tables(parts)
    files = pa.array([file.name] * len(rows), pa.string())
    return rows.append_column("file", files).cast(_CITED)


def _origins(
    snapshot: Snapshot, times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """Return of rows' times which interval of the coverage each is in, and which run committed it.

    The place is -1 and the run `None` where there is none; of several runs it is the last one.
    """
    starts = np.array([each.start for each in snapshot.coverage.intervals], np.int64)
    runs = np.full(len(times), None, object)
    for report in iter_reports(snapshot.store):
        for span in report.committed:
            first, last = map(to_microseconds, span)
            runs[(times >= first) & (times < last) & (runs == None)] = report.id  # noqa: E711
    return np.searchsorted(starts, times, side="right") - 1, runs


@takes_filters
def rows_behind(
    self: Readable,
    *,
    at: Instant | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    partial: bool = False,
    **filters: Unpack[FilterKeywords],
) -> pd.DataFrame:
    """Return the rows behind a total, a flow or an average, the sums of which give it again.

    Parameters
    ----------
    at
        The moment of a total; a row at exactly that time counts.
    start, end
        The interval of a flow or an average, half-open; by default as of `read`.
    asset_id, party_ids, market_ids, account_types, assets, labels, partial
        As for `read`.

    Returns
    -------
    pandas.DataFrame
        Of a moment a row for each account, of an interval one for each balance that an account
        held in it, sorted: `ACCOUNT_KEY` (category of str) and

        - of an interval, `start` (datetime64[us, UTC]), from when on it was held, and
          `held_for` (int64), for how many microseconds of the interval that is known
        - `balance`, NA where it is unknown; the sum of a group is its total
        - of an interval, `delta`, by how much the row changed the balance: 0 for what was held
          before, NA where it is not known. The sum of the positive ones is the inflow, that of
          all the net flow. Then `product` (decimal256), balance times `held_for`: an account's
          sum, divided by the interval's microseconds, is its average if all of these are known
        - `timestamp` of the row that the balance rests on, `file` and `row_group` (Int64, from 0
          on): where it stands; NA where there is no row
        - `state`, `source` and `asked_at` of its time, as of `coverage`, and `run`, the last
          one that asked for it

        Amounts are decimal128(38, 0), in the asset's smallest unit.

    Raises
    ------
    IncompleteError, ValueError
        As `read`; if both a moment and an interval are given.
    """
    how = {"at": at, "start": start, "end": end, "partial": partial}
    return ask(self._state, filters, _rows_behind, **how)


def _rows_behind(
    snapshot: Snapshot,
    filters: Filters,
    *,
    at: Instant | None,
    start: Instant | None,
    end: Instant | None,
    partial: bool,
) -> pd.DataFrame:
    if at is not None and (start is not None or end is not None):
        raise ValueError("give a moment, or an interval: at, or start and end")
    if at is None:
        found = _pieces(snapshot, filters, *snapshot.interval(start, end, partial=partial), partial)
    else:
        found = snapshot.balance_at(filters, at, partial=partial)
        found = found.rename(columns={"since": "timestamp"})
    times = microseconds(found)
    parts = [
        _cited(snapshot, file, Predicate(ids, ((int(own.min()), int(own.max()) + 1),)))
        for file in snapshot.files()
        if len(own := times[is_own := (times >= file.begin) & (times < file.stop)])
        for ids in [{name: [*found[name][is_own].unique()] for name in ACCOUNT_KEY}]
    ]
    keys = [*ACCOUNT_KEY, "timestamp"]
    stands = pa.concat_tables([_CITED.empty_table(), *parts]).to_pandas(
        types_mapper={pa.int64(): pd.Int64Dtype()}.get
    )
    stands = found[keys].astype(dict.fromkeys(ACCOUNT_KEY, "str")).merge(stands, "left", keys)
    places, runs = _origins(snapshot, times)
    attrs, found = found.attrs, DataFrame(found)
    found.attrs = attrs
    asked = snapshot.coverage.to_frame().query("state != 'gap'").reset_index(drop=True)
    asked = asked.reindex(places).reset_index(drop=True)
    return found.assign(
        **{name: stands[name] for name in ("file", _ROW_GROUP)},
        **{name: asked[name] for name in ("state", "source", "asked_at")},
        run=pd.Series(runs, dtype="str"),
    )


def _pieces(
    snapshot: Snapshot, filters: Filters, start: int, end: int, partial: bool
) -> pd.DataFrame:
    """Return what accounts held in [start, end), a row for each balance and the time it held."""
    first, last, before = map(from_microseconds, (start, end, start - 1))
    table = snapshot.read(filters, start=first, end=last, partial=partial)
    opening = snapshot.balance_at(filters, before, partial=True)
    steps = open_history(table, opening).known_steps(end)
    pieces = cut(steps, np.array([start, end]))
    rows, held = pieces.rows, pieces.known_for
    is_known = held > 0
    is_own = is_known & steps.is_row[rows]
    words = np.where(is_own[:, None], int128.take(step_deltas(steps), rows), 0)
    balance = int128.to_balances(pieces.words, is_known)
    product = pc.multiply(pa.array(balance).cast(_WIDE), pa.array(held).cast(pa.decimal256(19, 0)))
    found = pd.DataFrame(
        {
            **take_ids(steps.accounts, steps.numbers[rows]),
            "start": to_times(pieces.times),
            "held_for": held,
            "balance": balance,
            "delta": int128.to_balances(words, is_known & ~(is_own & steps.starts_known[rows])),
            "product": pd.arrays.ArrowExtensionArray(product),
            "timestamp": to_times(np.where(is_known, steps.times[rows], ALWAYS)),
        }
    )
    found.attrs = opening.attrs
    return found
