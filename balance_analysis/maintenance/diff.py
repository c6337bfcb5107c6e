"""Tell in what two histories differ: archives, tables, files, nodes or segments, in any pair.

Each side is a stream of hours in time order, with the digest of each hour's rows. Where the digests
are equal, so are the rows; only those of other hours are looked at. An archive's digests are taken
before, and its rows read again where they are needed; of other sources rows come once, of which
little more than an hour is in memory.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.int128 import to_decimals, words_of
from balance_analysis.archive import layout
from balance_analysis.archive.accounts import numbers_of, times_of
from balance_analysis.archive.datafile import NO_ROWS, Predicate, in_file_order
from balance_analysis.archive.scan import File, Scan
from balance_analysis.archive.snapshot import read_snapshot
from balance_analysis.archive.store import Store, Stored
from balance_analysis.errors import ArchiveError, CheckError
from balance_analysis.files.atomic import PathLike
from balance_analysis.files.parquet import stream_parquet
from balance_analysis.filters import Filters
from balance_analysis.frame import to_arrow, to_columns
from balance_analysis.known import read_known
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, make_request
from balance_analysis.load.stream import Load
from balance_analysis.node.client import Client
from balance_analysis.presentation import Record
from balance_analysis.rows import PART, by_account_and_time, canonical, stable_order, to_records
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    Instant,
    from_microseconds,
    to_bounds,
)
from balance_analysis.segments.rows import iter_rows, span_of
from balance_analysis.segments.segment import are_segments, find_stretches
from balance_analysis.spans import EVER, Moments, Span, clipped, joined
from balance_analysis.text import count_text, range_text, without_credentials

HOUR: Final = 3_600_000_000
"""Microseconds of an hour."""

_KINDS: Final = ("removed", "added", "changed")
_UNTOLD: Final = "not told"


@dataclass(frozen=True, slots=True)
class HourDigest:
    """The rows of an hour: its number since 1970, how many there are, and their SHA-256."""

    hour: int
    rows: int
    sha256: bytes


Comparable = Stored | pd.DataFrame | Client | PathLike | Sequence[PathLike]
Hours = Iterator[tuple[HourDigest, Callable[[], pa.Table]]]


@dataclass(frozen=True, slots=True)
class Difference(Record):
    """In what two histories differ. As text it is a list for the terminal.

    Attributes
    ----------
    one, other
        What was compared.
    compared
        How many rows of each: those at times of which both tell.
    rows
        Each row that differs, hour by hour: `ACCOUNT_KEY`, `timestamp`, `balance` of the first side
        and `other_balance` (decimal128(38, 0); NA where there is no row), and `change` (category):
        "removed" where only the first has a row of the account at that time, "added" where only the
        other has one, "changed".
    days
        How many of each kind a day has: the index `date` (datetime64[us, UTC]), and `removed`,
        `added` and `changed` (int64).
    knowledge
        Where they don't know the same: an interval, and what the first and the other know of it:
        "complete", "unproven", or "unknown" where it doesn't tell.
    shared
        The intervals that both know to be complete.
    """

    one: str
    other: str
    compared: tuple[int, int]
    rows: pd.DataFrame
    days: pd.DataFrame
    knowledge: tuple[tuple[Moments, str, str], ...]
    shared: tuple[Moments, ...]

    @property
    def is_same(self) -> bool:
        """Whether both have the same rows, and know them of the same time."""
        return self.rows.empty and not self.knowledge

    _header = ("where", "what")

    def _title(self) -> str:
        said = "no difference" if self.rows.empty else count_text(len(self.rows), "difference")
        said += " in what both know" if self.knowledge else ""
        counts = " and ".join(f"{count:,}" for count in self.compared)
        return f"{self.one}, {self.other}: {said} ({counts} rows compared)"

    def _findings(self) -> Iterator[tuple[str, str]]:
        for span, *states in self.knowledge:
            yield range_text(*span), f"{states[0]} in the first, {states[1]} in the other"
        for row in self.days.reset_index().to_dict("records"):
            counts = (f"{row[kind]:,} {kind}" for kind in _KINDS if row[kind])
            yield f"{row['date']:%Y-%m-%d}", ", ".join(counts)

    def _content(self) -> dict[str, Any]:
        names = ("is_same", "one", "other", "compared", "knowledge", "shared")
        days = self.days.reset_index().to_dict("records")
        return {**{name: getattr(self, name) for name in names}, "days": days}


@dataclass(slots=True)
class _Side:
    """One of the two: of what it `tells` as what, and how its rows of that come by hours.

    A node learns what it tells while it is asked.
    """

    name: str
    tells: list[tuple[int, int, str]]
    hours: Callable[[Sequence[Span], Filters], Hours]
    filters: Filters = Filters()  # noqa: RUF009 - frozen
    client: Client | None = None

    def covers(self, start: int, end: int) -> list[Span]:
        return joined(clipped(((a, b) for a, b, _ in self.tells), start, end))

    def state(self, moment: int) -> str:
        return next((state for a, b, state in self.tells if a <= moment < b), "unknown")


def diff(
    one: Comparable,
    other: Comparable,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
) -> Difference:
    """Compare two histories by the digests of their hours, and return in what they differ.

    Parameters
    ----------
    one, other
        An Archive, a table, a Client, segments, or a path or an address of one of these, or of a
        file of a table. A node is asked for what the other side tells of. Where an archive is bound
        to accounts, only these are compared.
    start, end
        The interval, half-open; without a time zone UTC. By default all that the two tell of.

    Returns
    -------
    Difference
        The rows that differ, and where the two don't know the same. A table that doesn't tell what
        it knows is taken to have all rows of the interval.

    Raises
    ------
    ArchiveError
        If an archive or a file is damaged, or two archives are bound to different accounts.
    CheckError
        If a side has two rows of one account and time.
    RequestError, DecodeError, IncompleteError, NetworkMismatchError, FileNotFoundError
        As `load_balance_changes`, if a node is asked, or `read_segments`, if these are read.
    ValueError
        If `start` is not before `end`.
    """
    given = to_bounds(start, end)
    begin, stop = (EVER[at] if bound is None else bound for at, bound in enumerate(given))
    if begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    with ExitStack() as stack:
        sides = [_opened(source, stack) for source in (one, other)]
        bound = {side.filters for side in sides} - {Filters()}
        if len(bound) > 1:
            raise ArchiveError("the two archives are bound to different accounts")
        filters = next(iter(bound), Filters())
        request = make_request(start, end, filters=filters)
        for side, mate in (sides, sides[::-1]):
            if side.client is not None:
                _ask(side, side.client, mate.covers(begin, stop), request)
        parts, counts = _compare(sides, _both(sides, begin, stop), filters)
    rows = to_columns(pa.concat_tables([differing(NO_ROWS, NO_ROWS), *parts]))
    times = rows["timestamp"].dt.tz_localize(None).to_numpy("M8[us]").view(np.int64)
    edges = np.array(_both(sides, begin, stop), np.int64).ravel()  # a node may know less by now
    rows = rows[np.searchsorted(edges, times, side="right") % 2 == 1].reset_index(drop=True)
    rows["change"] = rows["change"].cat.set_categories(_KINDS)
    different, shared = _knowledge(sides, begin, stop)
    days = rows.groupby([rows["timestamp"].dt.floor("D").rename("date"), "change"], observed=False)
    return Difference(
        sides[0].name,
        sides[1].name,
        (counts[0], counts[1]),
        rows,
        days.size().unstack(fill_value=0).rename_axis(columns=None),
        tuple(different),
        tuple(shared),
    )


def _compare(
    sides: Sequence[_Side], spans: list[Span], filters: Filters
) -> tuple[list[pa.Table], list[int]]:
    """Return the rows that differ, hour by hour, and how many each side has."""
    parts, counts = [], [0, 0]
    streams = (
        zip(side.hours(spans, filters), itertools.repeat(at)) for at, side in enumerate(sides)
    )
    merged = heapq.merge(*streams, key=_hour)
    for _, group in itertools.groupby(merged, key=_hour):
        hours = [*group]
        for (digest, _), at in hours:
            counts[at] += digest.rows
        if len({digest for (digest, _), _ in hours}) == len(hours):
            found = [NO_ROWS, NO_ROWS]
            for (_, read), at in hours:
                found[at] = read()
            parts.append(differing(*found))
    return parts, counts


def _hour(each: tuple[tuple[HourDigest, Any], int]) -> int:
    return each[0][0].hour


def _both(sides: Sequence[_Side], begin: int, stop: int) -> list[Span]:
    """Return of which spans both tell."""
    one, other = (side.covers(begin, stop) for side in sides)
    return [part for span in one for part in clipped(other, *span)]


def _knowledge(
    sides: Sequence[_Side], begin: int, stop: int
) -> tuple[list[tuple[Moments, str, str]], list[Moments]]:
    """Return where two don't know the same, and what each knows, and where both know all."""
    told = [(start, end) for side in sides for start, end, _ in side.tells]
    edges = sorted({*itertools.chain(*clipped(told, begin, stop))})

    def states(span: Span) -> tuple[str, str]:
        return sides[0].state(span[0]), sides[1].state(span[0])

    different, shared = [], []
    for (one, other), group in itertools.groupby(itertools.pairwise(edges), key=states):
        spans = [*group]
        if one == other == "unknown" or _UNTOLD in (one, other):
            continue
        moments = from_microseconds(spans[0][0]), from_microseconds(spans[-1][1])
        if one != other:
            different.append((moments, one, other))
        elif one == "complete":
            shared.append(moments)
    return different, shared


def _opened(source: Any, stack: ExitStack) -> _Side:  # noqa: ANN401 - of many kinds
    """Return a side of what was given to compare."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if re.match("https?://", text, re.IGNORECASE):
            source = stack.enter_context(Client(text))
        elif "://" in text or Path(text, layout.ABOUT).exists():
            return _archive(Store(text))
        elif Path(text).is_file() and not are_segments(text):
            return _table(text, *stream_parquet(text))
    if isinstance(source, Client):
        return _Side(source.base_url, [], lambda *_: iter(()), client=source)
    if isinstance(source, pd.DataFrame):
        return _table("table", source.attrs.get(ATTRS_KEY, {}), iter([to_arrow(source)]))
    store = getattr(source, "store", None)
    return _segments(source) if store is None else _archive(store)


def _archive(store: Store) -> _Side:
    snapshot = read_snapshot(store)

    def hours(spans: Sequence[Span], filters: Filters) -> Hours:
        scan = _within(Scan(store, filters, tuple(snapshot.files()), ()), spans)

        @lru_cache(maxsize=1)
        def day(number: int) -> pa.Table:
            own = _within(scan, [(number * 24 * HOUR, (number + 1) * 24 * HOUR)])
            return pa.Table.from_batches(own.iter_batches(), ARROW_SCHEMA)

        for each in _hour_digests(scan):
            yield each, partial(lambda hour: _of_hour(day(hour // 24), hour), each.hour)

    tells = [(*x.span, "complete" if x.proven else "unproven") for x in snapshot.coverage.intervals]
    return _Side(without_credentials(store.uri), tells, hours, snapshot.about.filters.sorted())


def _within(scan: Scan, spans: Sequence[Span]) -> Scan:
    cut = (
        replace(file, spans=tuple(x for span in spans for x in clipped(file.spans, *span)))
        for file in scan.files
    )
    return replace(scan, files=tuple(file for file in cut if file.spans))


def _hour_digests(scan: Scan) -> list[HourDigest]:
    """Return the digests of the hours of a scan, in time order, files side by side."""
    found = scan.each(lambda some: [*itertools.chain(*(_of_file(some, f) for f in some.files))])
    return sorted(itertools.chain(*found), key=lambda each: each.hour)


def _of_file(scan: Scan, file: File) -> Iterator[HourDigest]:
    hashes: dict[int, Any] = {}
    counts: dict[int, int] = {}
    for rows in scan.rows(file):
        for hour, records in _split_hours(rows):
            hashes.setdefault(hour, hashlib.sha256()).update(records)
            counts[hour] = counts.get(hour, 0) + len(records)
    return (HourDigest(hour, counts[hour], each.digest()) for hour, each in hashes.items())


def _split_hours(rows: pa.Table) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Yield each hour of rows in the order of files, ascending, with its rows as `to_records`."""
    if not rows.num_rows:
        return
    hours, records = times_of(rows) // HOUR, to_records(rows)
    order = stable_order(hours)
    edges = [0, *(np.flatnonzero(np.diff(hours.take(order))) + 1), len(order)]
    for begin, stop in itertools.pairwise(edges):
        yield int(hours[order[begin]]), records(order[begin:stop])


def _table(name: str, told: object, tables: Iterator[pa.Table]) -> _Side:
    known = read_known(told)
    tells = [(*EVER, _UNTOLD)] if known is None else [(*span, "complete") for span in known]
    return _Side(name, tells, partial(_by_hour, tables))


def _segments(paths: PathLike | Iterable[PathLike]) -> _Side:
    stretches = find_stretches(paths)
    tells = [(*span_of(stretch.segments), "complete") for stretch in stretches]

    def hours(spans: Sequence[Span], filters: Filters) -> Hours:
        parts = (part for x in stretches for _, part in iter_rows(x.segments, filters, "raise"))
        return _by_hour((pa.Table.from_batches([part.rows]) for part in parts), spans, Filters())

    return _Side(", ".join(stretch.source for stretch in stretches), tells, hours)


def _ask(side: _Side, client: Client, spans: list[Span], request: LoadRequest) -> None:
    """Find out what a node tells of spans, or of the interval that is asked for where none are."""
    with NodePool(client, "raise") as pool:
        if not spans or spans == [EVER]:
            spans = [pool.interval(request)]
        start, end = max(spans[0][0], 0), min(spans[-1][1], request.end)
        side.tells = [(pool.best_retention_start(start, end), end, "complete")]

    def hours(spans: Sequence[Span], _: Filters) -> Hours:
        loads = [Load(replace(request, start=start, end=end)) for start, end in spans]
        steps = (x for load in loads for x in load.in_time_order(load.run(client, progress=False)))
        yield from _by_hour((pa.Table.from_batches(x.batches, ARROW_SCHEMA) for x in steps), spans)
        proven = [part for x in loads for part in clipped(x.evidence.proven(), *x.bounds())]
        side.tells = [(*span, "complete") for span in joined(proven)]

    side.hours = hours


def _by_hour(
    tables: Iterable[pa.Table],
    spans: Sequence[Span],
    filters: Filters = Filters(),  # noqa: B008
) -> Hours:
    """Yield the hours of rows of some tables, each of which goes on in time where the last ends."""
    predicate = Predicate(filters.allowed(), tuple(spans))
    waiting, size = [NO_ROWS], 0
    for rows in itertools.chain(tables, [None]):
        if rows is not None:
            waiting.append(predicate.select(rows))
            size += waiting[-1].num_rows
            if size < PART:
                continue
        whole = pa.concat_tables(waiting)
        numbers = times_of(whole) // HOUR
        # Rows of the last hour may still come.
        is_done = numbers < (numbers.max(initial=0) if rows is not None else np.inf)
        waiting, size = [whole.filter(pa.array(~is_done))], 0
        ready = in_file_order(whole.filter(pa.array(is_done)))
        for hour, records in _split_hours(ready):
            sha256 = hashlib.sha256(records.tobytes()).digest()
            yield HourDigest(hour, len(records), sha256), partial(_of_hour, ready, hour)


def _of_hour(rows: pa.Table, hour: int) -> pa.Table:
    return rows.filter(pa.array(times_of(rows) // HOUR == hour))


def differing(one: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows that two tables of `ARROW_SCHEMA` don't share: see `Difference.rows`.

    If one has two rows of an account and a time, that is a CheckError.
    """
    both = canonical(pa.concat_tables([one, other]), sort=False)
    numbers, times = numbers_of(both, ACCOUNT_KEY), times_of(both)
    order = by_account_and_time(numbers, times)
    numbers, times, words = numbers[order], times[order], words_of(both["balance"])[order]
    is_other, is_first = order >= one.num_rows, np.zeros(len(order), bool)
    is_first[:-1] = (numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1])
    if np.any(is_first & (is_other == np.roll(is_other, -1))):
        raise CheckError("a side has two rows of one account and time; `check_table` tells which")
    is_same = is_first & (words == np.roll(words, -1, axis=0)).all(axis=1)
    heads = np.flatnonzero(~is_same & ~np.roll(is_first, 1))
    tails = heads + is_first[heads]
    kinds = pa.array(np.where(tails > heads, 2, is_other[heads]).astype(np.int8))
    columns = {
        "balance": to_decimals(words[heads], ~is_other[heads]),
        "other_balance": to_decimals(words[tails], is_other[tails]),
        "change": pa.DictionaryArray.from_arrays(kinds, pa.array(_KINDS)),
    }
    rows = both.take(pa.array(order[heads])).drop_columns("balance")
    return pa.table([*rows.columns, *columns.values()], [*rows.column_names, *columns])
