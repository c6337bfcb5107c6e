"""What an archive says of itself: its coverage and status, its digest, and a balance's source."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.datafile import NO_ROWS, in_file_order, times_of
from balance_analysis.archive.lock import writer_of
from balance_analysis.archive.manifest import BoundQuery
from balance_analysis.archive.runs import Run, iter_reports
from balance_analysis.archive.snapshot import Scan, Snapshot
from balance_analysis.evidence import STATES, Evidence
from balance_analysis.filters import Filters
from balance_analysis.presentation import Record, plain
from balance_analysis.rows import to_records
from balance_analysis.schema import (
    ACCOUNT_KEY,
    Instant,
    from_microseconds,
    to_bounds,
    to_microseconds,
    to_moments,
)
from balance_analysis.spans import EVER, Moments, joined
from balance_analysis.text import (
    Duration,
    count_text,
    duration_text,
    list_text,
    moment_text,
    spans_text,
    to_duration,
    to_utc,
    without_credentials,
)

_DAY: Final = 86_400_000_000
"""Microseconds of a day."""

_VERSION: Final = 2
"""The version of the definition of a digest."""

_MOMENT: Final = "datetime64[us, UTC]"
_COVERAGE: Final[dict[str, Any]] = {
    "start": _MOMENT,
    "end": _MOMENT,
    "state": pd.CategoricalDtype([*STATES]),
    "source": "str",
    "block_height": "Int64",
    "first_block_height": "Int64",
    "asked_at": _MOMENT,
    "first_asked_at": _MOMENT,
    "confirmed_by": "str",
}


@dataclass(frozen=True, slots=True)
class ArchiveStatus(Record):
    """The status of an archive. As text it is an overview for the terminal.

    Attributes
    ----------
    uri
        Its address.
    query
        The accounts that it is bound to, and the period of a file.
    complete, confirmed, gaps, unproven
        Intervals, [start, end) in UTC: those that are complete; the parts of them in which a source
        of another origin has the same rows; those that no node answered for; and those where a node
        may have forgotten rows or a bad row was set aside.
    confirmed_by
        The sources that `confirm` compared.
    disputed
        The moments at which a source has other rows.
    rows
        Number of balance changes.
    accounts
        Number of accounts with a row; `None` if not counted, or if files are lost.
    files, checkpoints, size
        Number of files of rows, of checkpoints, and the bytes of both.
    asked_at, source, block_height
        When it was last filled, from which node, and that node's last block; `None` if unknown.
    limits
        Number of distinct snapshots of the network's limits.
    lost
        Files that are missing or of another size than written.
    last_run
        The last run; `None` before the first.
    writing
        Who is writing to it now, as "process 12 on host, since ..."; `None` if nobody is, or where
        an object store has no lock.
    is_interrupted
        Whether the last run was cut off; the next one recovers what it left. Without a lock a run
        that is under way looks the same.
    now
        The moment for which `age` is computed, UTC.
    """

    uri: str
    query: BoundQuery
    complete: tuple[Moments, ...]
    confirmed: tuple[Moments, ...]
    confirmed_by: tuple[str, ...]
    disputed: tuple[Moments, ...]
    gaps: tuple[Moments, ...]
    unproven: tuple[Moments, ...]
    rows: int
    accounts: int | None
    files: int
    checkpoints: int
    size: int
    asked_at: dt.datetime | None
    source: str | None
    block_height: int | None
    limits: int
    lost: tuple[str, ...]
    last_run: Run | None
    writing: str | None
    is_interrupted: bool
    now: dt.datetime

    @property
    def age(self) -> dt.timedelta | None:
        """Time since the end of the last complete interval; `None` if nothing is complete."""
        return self.now - self.complete[-1][1] if self.complete else None

    def is_older_than(self, max_age: Duration) -> bool:
        """Return whether the age exceeds `max_age`, such as "2h", or nothing is complete."""
        age = self.age
        return age is None or age > to_duration(max_age)

    def _title(self) -> str:
        return "Status of an archive"

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        query, size = content.pop("query"), content.pop("size")
        age = None if self.age is None else self.age.total_seconds()
        bound = {"query": query["filters"], "partition": query["partition"]}
        return {**content, **bound, "bytes": size, "age_seconds": age}

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "archive", self.uri
        yield "holds", str(self.query)
        yield "complete", spans_text(self.complete) or "nothing"
        by = f" by {list_text(self.confirmed_by)}" if self.confirmed_by else ""
        yield "confirmed", (spans_text(self.confirmed) or "nothing") + by
        if self.age is not None:
            yield "age", f"{duration_text(self.age)} at {moment_text(self.now, 'seconds')}"
        if self.disputed:
            yield "disputed", spans_text(self.disputed)
        yield "gaps", spans_text(self.gaps) or "none"
        yield "unproven", spans_text(self.unproven) or "none"
        accounts = "" if self.accounts is None else f" of {count_text(self.accounts, 'account')}"
        yield "rows", f"{self.rows:,}{accounts}"
        checkpoints = count_text(self.checkpoints, "checkpoint")
        files = f"{count_text(self.files, 'file')} ({self.query.partition}s with rows)"
        yield "files", f"{files}, {checkpoints}, {self.size / 1000:,.1f} kB"
        yield "last asked", _last_asked(self)
        yield "limits", count_text(self.limits, "distinct snapshot")
        yield "last run", _last_run(self)
        if self.writing is not None:
            yield "writing", self.writing
        if self.is_interrupted:
            yield "interrupted", "the last run was cut off; the next one cleans up after it"
        if self.lost:
            yield "damaged", f"{list_text(self.lost)}: missing or truncated"


def read_status(
    snapshot: Snapshot, *, now: dt.datetime | None = None, count_accounts: bool = True
) -> ArchiveStatus:
    """Return the status of an archive: see `Archive.status`."""
    store, manifest, lost = snapshot.store, snapshot.manifest, snapshot.lost_files()
    evidence = manifest.evidence
    accounts = None if lost or not count_accounts else snapshot.count_accounts()
    last = max(evidence.answers, key=lambda answer: answer.asked[1], default=None)
    last_run, writing = next(iter_reports(store), None), writer_of(store)
    is_open = manifest.pending is not None
    is_open |= last_run is not None and last_run.outcome == "incomplete"
    notes = [*manifest.files.values(), *manifest.checkpoints.values()]
    return ArchiveStatus(
        uri=without_credentials(store.uri),
        query=manifest.query,
        complete=to_moments(evidence.complete),
        confirmed=to_moments(evidence.confirmed),
        confirmed_by=tuple(
            sorted({without_credentials(node.name) for _, node in evidence.confirmations()})
        ),
        disputed=to_moments(joined(span for span, _ in evidence.disputed)),
        gaps=to_moments(evidence.missing(*evidence.bounds)),
        unproven=to_moments(evidence.unproven),
        rows=sum(note.rows for note in manifest.files.values()),
        accounts=accounts,
        files=len(manifest.files),
        checkpoints=len(manifest.checkpoints),
        size=sum(note.size for note in notes),
        asked_at=None if last is None else from_microseconds(last.asked[1]),
        source=None if last is None else last.node.name,
        block_height=None if last is None or last.heights is None else last.heights[1],
        limits=sidecars.read_limits(store).num_rows,
        lost=tuple(lost),
        last_run=last_run,
        writing=writing,
        is_interrupted=is_open and writing is None,
        now=dt.datetime.now(dt.UTC) if now is None else to_utc(now),
    )


def coverage_frame(evidence: Evidence) -> pd.DataFrame:
    """Return a row for each stretch of time, gaps included: see `Archive.coverage`."""
    rows: list[tuple[object, ...]] = []
    for span, state, answer, by in evidence.stretches():
        details: tuple[object, ...] = (None,) * 6
        if answer is not None:
            (low, high), (first, last) = answer.heights or (None, None), answer.asked
            other = by and without_credentials(by.name)
            details = without_credentials(answer.node.name), high, low, last, first, other
        rows.append((*span, state, *details))
    numbers = {name: "Int64" for name, kind in _COVERAGE.items() if kind == _MOMENT}
    return pd.DataFrame(rows, columns=[*_COVERAGE]).astype(numbers).astype(_COVERAGE)


def _last_run(status: ArchiveStatus) -> str:
    run = status.last_run
    if run is None:
        return "none"
    began = moment_text(run.started, "seconds")
    if run.outcome == "incomplete":
        return f"{began}, {'cut off' if status.is_interrupted else 'under way'}"
    error = f" ({run.error})" if run.error else ""
    return f"{began}, {run.outcome}, {count_text(run.rows, 'new row')}{error}"


def _last_asked(status: ArchiveStatus) -> str:
    if status.asked_at is None:
        return "never"
    height = "" if status.block_height is None else f" at block {status.block_height:,}"
    return f"{moment_text(status.asked_at)}, {status.source}{height}"


@dataclass(frozen=True, slots=True)
class ArchiveDigest(Record):
    """Digests of an archive's history: SHA-256 in hex digits.

    Attributes
    ----------
    uri
        The archive's address.
    complete, unproven
        The covered intervals that were asked for, [start, end) each in UTC.
    rows
        Number of balance changes in them.
    digest
        Of these rows and intervals, and of the accounts that the archive is bound to.
    limits
        Of the network's limits, in the order in which they were seen, whenever that was.
    assets, labels
        Of what assets, and parties, markets and accounts, are called.
    """

    uri: str
    complete: tuple[Moments, ...]
    unproven: tuple[Moments, ...]
    rows: int
    digest: str
    limits: str
    assets: str
    labels: str

    def _title(self) -> str:
        return "Digest of an archive"

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield "archive", self.uri
        yield "complete", spans_text(self.complete) or "nothing"
        yield "unproven", spans_text(self.unproven) or "none"
        names = ("rows", "digest", "limits", "assets", "labels")
        yield from ((name, getattr(self, name)) for name in names)


def digest(snapshot: Snapshot, start: Instant | None, end: Instant | None) -> ArchiveDigest:
    """Return digests of the history: see `Archive.digest`."""
    first, last = to_bounds(start, end)
    begin, stop = EVER[0] if first is None else first, EVER[1] if last is None else last
    if begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    evidence = snapshot.evidence.within(begin, stop)
    complete, unproven = evidence.complete, evidence.unproven
    files = tuple(snapshot.files(begin, stop))
    days = _days(Scan(snapshot.store, Filters(), files, Evidence()))
    head = {
        "version": _VERSION,
        "filters": evidence.filters.allowed(),
        "complete": complete,
        "unproven": unproven,
    }
    whole = hashlib.sha256(_json(head) + b"\n")
    for _, _, sha256 in days:
        whole.update(sha256)
    names = sidecars.read_archive_names(snapshot.store)
    return ArchiveDigest(
        uri=without_credentials(snapshot.store.uri),
        complete=to_moments(complete),
        unproven=to_moments(unproven),
        rows=sum(rows for _, rows, _ in days),
        digest=whole.hexdigest(),
        limits=_hex(sidecars.limits_without_source(sidecars.read_limits(snapshot.store))),
        assets=_hex(names.to_json()["assets"]),
        labels=_hex(names.to_json()["labels"]),
    )


def _json(content: object) -> bytes:
    return msgspec.json.encode(content, order="sorted")


def _hex(content: object) -> str:
    return hashlib.sha256(_json(content)).hexdigest()


def _days(scan: Scan) -> list[tuple[int, int, bytes]]:
    """Return the number of each day with rows since 1970, its rows and their SHA-256, in order."""
    days = itertools.groupby(scan.files, lambda file: file.begin // _DAY)
    parts = [replace(scan, files=tuple(files)) for _, files in days]
    return sorted(itertools.chain(*scan.each(_days_of_files, parts)))


def _days_of_files(scan: Scan) -> list[tuple[int, int, bytes]]:
    """Return the days of one file, or of the files of one day."""
    hashes: dict[int, Any] = {}
    counts: Counter[int] = Counter()
    tables: Iterable[pa.Table] = itertools.chain(*map(scan.rows, scan.files))
    if len(scan.files) > 1:
        tables = [in_file_order(pa.concat_tables([NO_ROWS, *tables]))]
    for rows in tables:
        days, records = times_of(rows) // _DAY, to_records(rows)
        order = np.argsort(days, kind="stable")
        edges = np.flatnonzero(np.diff(days.take(order), prepend=-1, append=-1))
        for begin, stop in itertools.pairwise(edges):
            day = int(days[order[begin]])
            hashes.setdefault(day, hashlib.sha256()).update(records(order[begin:stop]))
            counts[day] += int(stop - begin)
    return [(day, counts[day], each.digest()) for day, each in hashes.items()]


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
        The name of its file in the archive.
    """

    timestamp: dt.datetime
    balance: int
    file: str

    def __str__(self) -> str:
        return f"{self.balance:,} since {moment_text(self.timestamp)}, in {self.file}"


@dataclass(frozen=True, slots=True)
class Explanation(Record):
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
        Why it is unknown, or 0 without a row; else `None`.
    row, before, after
        The row of the balance, the one before it, and the first one after the moment; `None` if
        the archive has none.
    carried
        How long the row's balance had been held at the moment; `None` where it is unknown.
    state
        The state of the row's time, as in `Archive.coverage`.
    source
        The node or segments that answered for the row's time; the last of several.
    asked, heights
        When it was asked, UTC, and its last block then. Answers of several runs are kept as one,
        with the first and the last moment, and the lowest and the highest block.
    confirmed_by
        Another source that has the same rows; `None` unless the state is "confirmed".
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
        if self.why is not None:
            yield "why", self.why
        for name, row in (("row", self.row), ("before", self.before), ("after", self.after)):
            yield name, "none" if row is None else str(row)
        if self.carried is not None:
            yield "carried", duration_text(self.carried)
        if self.state is not None:
            yield "state of the row", self.state
            yield "source", self.source
            for name, ends in (("asked", self.asked), ("at block", self.heights)):
                if ends is not None:
                    yield name, " to ".join(dict.fromkeys(map(plain, ends)))
            if self.confirmed_by is not None:
                yield "confirmed by", self.confirmed_by

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        for each in (content, *filter(None, map(content.get, ("row", "before", "after")))):
            # JSON's numbers are floats to many.
            each["balance"] = None if each["balance"] is None else str(each["balance"])
        carried = content.pop("carried")
        seconds = None if carried is None else carried.total_seconds()
        return {**content, "carried_seconds": seconds}


def explain(
    snapshot: Snapshot, account: Mapping[str, str] | Sequence[str] | pd.Series[Any], at: Instant
) -> Explanation:
    """Return where an account's balance at a moment comes from: see `Archive.explain`."""
    is_plain = isinstance(account, tuple | list)
    found = account if is_plain else [account[name] for name in ACCOUNT_KEY]  # type: ignore[call-overload]
    if len(found) != len(ACCOUNT_KEY):
        raise ValueError(f"an account has {', '.join(ACCOUNT_KEY)}, unlike {account!r}")
    ids = dict(zip(ACCOUNT_KEY, map(str, found), strict=True))
    moment = to_microseconds(at, down=True)
    asset, kind, party, market = (ids[name] for name in ACCOUNT_KEY)
    filters = Filters(asset, (party,), (market,), (kind,))
    evidence, until = snapshot.evidence.narrow(filters), snapshot.until(moment)
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
        for name, held in snapshot.ids().items() if bare.after is None else ():
            if ids[name] not in held:
                return replace(bare, why=f"no row has the {name} {ids[name]!r}; ids are whole here")
        if evidence.incomplete(first, until):
            return replace(bare, why="the archive has no row of it up to then")
        return replace(bare, balance=0, why="it has no row since the network's first block")
    if gaps := evidence.incomplete(since, until):
        when = spans_text([(start, max(min(end, moment), start + 1)) for start, end in gaps])
        why = f"a change may be missing: {when} is not known to be complete"
        bare = replace(bare, balance=None, why=why)
    [(_, state, answer, by)] = evidence.within(since, since + 1).stretches()
    carried = bare.at - row.timestamp if bare.balance is not None else None
    bare = replace(bare, carried=carried, state=state)
    if answer is None:
        return bare
    return replace(
        bare,
        source=without_credentials(answer.node.name),
        heights=answer.heights,
        asked=(from_microseconds(answer.asked[0]), from_microseconds(answer.asked[1])),
        confirmed_by=None if by is None else without_credentials(by.name),
    )


def _last(snapshot: Snapshot, filters: Filters, moment: int) -> CitedRow | None:
    """Return an account's last row up to a moment."""
    return _cited(snapshot, snapshot.last_rows(filters, moment).to_batches())


def _first(snapshot: Snapshot, filters: Filters, moment: int) -> CitedRow | None:
    """Return an account's first row since a moment."""
    files = tuple(snapshot.files(start=moment))
    return _cited(snapshot, Scan(snapshot.store, filters, files, Evidence()).iter_batches())


def _cited(snapshot: Snapshot, batches: Iterable[pa.RecordBatch]) -> CitedRow | None:
    """Return the first of some rows."""
    row = next((batch.slice(0, 1).to_pylist()[0] for batch in batches if batch.num_rows), None)
    if row is None:
        return None
    manifest, moment = snapshot.manifest, to_microseconds(row["timestamp"])
    file = manifest.changes_file(layout.period_of(moment, manifest.partition))
    return CitedRow(row["timestamp"], int(row["balance"]), file)
