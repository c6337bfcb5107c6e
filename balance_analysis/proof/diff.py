"""Compare two histories from any sources, and confirm an archive by another source.

A comparison covers what both sides prove: the accounts that both have, in the time in which both
are complete. If a side is unproven, a row that only the other side has is no difference. Everything
that isn't compared whole is listed, and the two then aren't the same. Rows are compared in parts,
in time order, so that any history fits into memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.int128 import to_balances, words_of
from balance_analysis.archive import datafile, layout
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.snapshot import Scan, Snapshot, interval_of, read_snapshot
from balance_analysis.archive.store import Store, Stored, to_store
from balance_analysis.errors import CheckError, NetworkMismatchError
from balance_analysis.files.atomic import PathLike
from balance_analysis.files.parquet import open_parquet, parquet_writer, read_parquet
from balance_analysis.load.nodes import NodeSource
from balance_analysis.node.client import Client
from balance_analysis.segments.rows import evidence_of, iter_rows, read_blocks
from balance_analysis.segments.segment import Stretch, are_segments, find_stretches
from balance_analysis.table import moments, schema, text
from balance_analysis.table.display import with_names
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import merge_duplicates, to_arrow, to_columns, to_frame
from balance_analysis.table.known import Notes, notes_of
from balance_analysis.table.names import Names, names_of

_PART: Final = 1 << 18
"""Minimum rows of a side to compare at once, except at the end."""

_KINDS: Final = ("removed", "added", "changed")

_ADVICE: Final = (
    "it doesn't state when its rows are complete, so none are compared; state it with "
    "`ba.to_table(frame, known=[(start, end)])`"
)

Comparable: TypeAlias = Stored | pd.DataFrame | Client | PathLike | Sequence[PathLike]
"""A source that can be compared: see `diff`."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes
    ----------
    name
        Its name in reports.
    evidence
        The evidence for its rows, openings included; rows without evidence aren't read.
    rows
        Yields tables with at least the rows of some stretches and accounts. No table has a row
        older than the previous table's newest one.
    note
        Why the side proves nothing, and what to do about it; else empty.
    names
        The names that a table carries.
    start
        Since when it has all changes: for a table, and for a node that is compared with one.
    oldest
        The time of a table's oldest row.
    asked
        The stretches that a node was asked for; other sides are asked for everything.
    """

    name: str
    evidence: Evidence
    rows: Callable[[Sequence[moments.Span], Filters], Iterable[pa.Table]]
    note: str = ""
    names: Names = field(default_factory=Names)
    start: int = moments.EVER[0]
    oldest: int = moments.EVER[1]
    asked: Sequence[moments.Span] = (moments.EVER,)

    @property
    def changes(self) -> Evidence:
        """The evidence for all rows but openings."""
        return self.evidence.within(self.start, moments.EVER[1])

    def chosen(self, spans: Sequence[moments.Span], filters: Filters) -> Iterator[pa.Table]:
        """Yield only the rows of some stretches and accounts, in the order of `rows`."""
        predicate = datafile.Predicate(filters.allowed(), tuple(spans))
        return map(predicate.select, self.rows(spans, filters))

    def known_since(self, moment: int, filters: Filters | None) -> int:
        """Return since when some accounts' rows are complete up to a moment, or the moment."""
        if filters is None or moment < self.start:
            return moment
        spans = self.evidence.narrow(filters).complete
        return next((start for start, end in spans if start < moment <= end), moment)

    def last_rows(self, span: moments.Span, filters: Filters) -> pa.Table:
        """Return each account's last row in a span."""
        # `last_rows` needs each account's rows together; a side's rows are in time order.
        parts = map(schema.canonical, self.chosen([span], filters))
        rows = datafile.merge_last_rows(map(datafile.last_rows, parts))
        return rows.select(schema.ARROW_SCHEMA.names).cast(schema.ARROW_SCHEMA)

    def state(self, span: moments.Span) -> str:
        """Return the state of a span, which must have the same state throughout."""
        if not moments.gaps_in(self.changes.complete, *span):
            return "complete"
        if moments.overlap(self.changes.answered, [span]):
            return "unproven"
        if self.oldest < span[1] <= self.start or moments.overlap(self.evidence.answered, [span]):
            return "openings"
        return "missing" if moments.overlap(self.asked, [span]) else "not asked"


@dataclass(frozen=True, slots=True)
class Difference(text.Record):
    """The differences between two histories. As text it is a list for the terminal.

    Attributes
    ----------
    one, other
        The names of the two sides.
    accounts
        The accounts of each side.
    filters
        The compared accounts: those that both sides have, or `None` if there are none.
    shared
        The intervals that were compared whole: both sides are complete there.
    compared
        Number of compared rows of each side.
    rows
        Each row that differs, in time order from part to part: `ACCOUNT_KEY`, `timestamp`,
        `balance` of the first side and `other_balance` (decimal128(38, 0); NA without a row), and
        `change` (category): "removed" if only the first side has a row of the account at that time,
        "added" if only the other has one, else "changed". If a compared table carries names,
        `symbol` and `label` come first.
    not_shared
        Intervals that were not compared whole, with their state in the first and in the other side:
        "complete", "unproven", "missing", "not asked" (a node, because the other side has nothing
        there), or "openings" if a table has only these. If both sides have rows there, they are
        compared, except rows that only one side has and the other, unproven, may lack.
    notes
        Why a side proves nothing, and what to do about it.
    confirmed
        The intervals that the other side's nodes confirmed by this `confirm`; empty from `diff`.
    """

    one: str
    other: str
    accounts: tuple[Filters, Filters]
    filters: Filters | None
    shared: tuple[moments.Interval, ...]
    compared: tuple[int, int]
    rows: pd.DataFrame
    not_shared: tuple[tuple[moments.Interval, str, str], ...]
    notes: tuple[str, ...]
    confirmed: tuple[moments.Interval, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether everything on both sides was compared, and no row differs.

        It is false if nothing was compared, if the accounts differ, or if a stretch is unproven, as
        rows may be missing there.
        """
        is_all = self.accounts[0] == self.accounts[1] and not self.not_shared
        return bool(self.shared) and is_all and self.rows.empty

    @property
    def common(self) -> int:
        """Number of rows that both sides have."""
        return self.compared[0] - int(self.rows["change"].isin(["removed", "changed"]).sum())

    _header = ("where", "what")
    _also = ("is_same",)

    def _title(self) -> str:
        result = "nothing was compared"
        if len(self.rows):
            result = text.count_text(len(self.rows), "difference")
        elif self.shared or any(self.compared):
            result = "the same" if self.is_same else "no difference in what both have"
        counts = " and ".join(f"{count:,}" for count in self.compared)
        return f"{self.one}, {self.other}: {result} ({counts} rows compared)"

    def _findings(self) -> Iterator[tuple[str, str]]:
        if self.shared:
            yield "compared", text.spans_text(self.shared)
        yield from self.left_out()
        for day, rows in self.rows.groupby(self.rows["timestamp"].dt.date):
            counts = rows["change"].value_counts(sort=False).items()
            yield str(day), ", ".join(f"{count:,} {kind}" for kind, count in counts if count)

    def left_out(self) -> Iterator[tuple[str, str]]:
        """Yield what was not compared, or only in part, and why."""
        if self.accounts[0] != self.accounts[1]:
            one, other = self.accounts
            both = "no account" if self.filters is None else str(self.filters)
            what = f"other accounts than {both}: the first has {one}, the other {other}"
            yield "not compared", what
        yield from (("not compared", note) for note in self.notes)
        for span, *states in self.not_shared:
            is_in_part = self.filters is not None and {*states} <= {"complete", "unproven"}
            what = f"{states[0]} in the first, {states[1]} in the other"
            how = "compared in part" if is_in_part else "not compared"
            yield how, f"{moments.range_text(*span)}: {what}"

    def _content(self) -> dict[str, Any]:
        counts = self.rows["change"].value_counts(sort=False).to_dict()
        return {**super(Difference, self)._content(), "rows": counts}


def diff(
    one: Comparable,
    other: Comparable,
    *,
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
) -> Difference:
    """Compare two histories, and return the differences and what was not compared.

    Parameters
    ----------
    one, other
        An Archive, a table, a Client, segments, or the path or address of one of these, or of a
        table's Parquet file. A node is asked for what the other side has, unproven or not.
    start, end
        The half-open interval; without a time zone UTC. By default everything on both sides.

    Returns
    -------
    Difference
        The rows that differ among the accounts that both sides have, in the time in which both are
        complete. A row that only one side has is no difference if the other side is unproven there.
        Also the time and accounts that only one side has, or has unproven; the two then aren't the
        same. A table's openings are compared with each account's last row before the table's start,
        as far back as both sides are complete, unless that start lies outside [`start`, `end`]. A
        frame that doesn't state when its rows are complete, such as a selection of a table's rows,
        has nothing to compare: see `to_table`.

    Raises
    ------
    ArchiveError
        If an archive or a file is damaged.
    CheckError
        If a side has two rows of one account and time.
    RequestError, DecodeError, IncompleteError, NetworkMismatchError, FileNotFoundError
        As `load_balance_changes` if a node is asked, or as `read_segments` for segments.
    ValueError
        If `start` is not before `end`.
    """
    begin, stop = interval_of(start, end)
    with _sides(one, other, begin, stop) as sides:
        return _compare(*sides, begin, stop)


def _compare(one: Side, other: Side, start: int, end: int) -> Difference:
    """Compare two sides in [start, end) (in microseconds): see `diff`."""
    sides = one, other
    ours, theirs = (side.changes.within(start, end) for side in sides)
    shared, filters = (ours & theirs).complete, ours.filters.intersection(theirs.filters)
    left, openings = [*_not_shared(sides, shared, start, end)], list[moments.Span]()
    for moment in {side.start for side in sides if start <= side.start <= end}:
        since = max(side.known_since(moment, filters) for side in sides)
        oldest = min(side.oldest for side in sides if side.start == moment)
        left += [(oldest, since)] if oldest < since else []
        openings += [(since, moment)] if since < moment else []
    accounts, answered = filters or Filters(), moments.overlap(ours.answered, theirs.answered)
    proven = [moments.joined([*x.narrow(accounts).complete, *openings]) for x in (theirs, ours)]
    edges = [np.array(spans, np.int64).ravel() for spans in proven]
    pairs = iter([[side.last_rows(span, accounts) for side in sides] for span in openings])
    if filters is not None and answered:
        streams = [schema.gathered(side.chosen(answered, filters), _PART) for side in sides]
        pairs = itertools.chain(pairs, _side_by_side(streams))
    parts, counts = [NO_DIFFERENCE], np.zeros(2, np.int64)
    for both in pairs:
        part = differing(*both)
        # A side lacks a row only if it is complete there.
        kinds, times = part["change"].combine_chunks().indices.to_numpy(), datafile.times_of(part)
        unproven = [
            (kinds == kind) & (np.searchsorted(ends, times, side="right") % 2 == 0)
            for kind, ends in enumerate(edges)
        ]
        counts += [rows.num_rows - mask.sum() for rows, mask in zip(both, unproven, strict=True)]
        parts.append(part.filter(pa.array(~np.logical_or(*unproven))))
    rows = to_columns(pa.concat_tables(parts))
    rows["change"] = rows["change"].cat.set_categories(_KINDS)
    names = one.names.updated(other.names)
    return Difference(
        one.name,
        other.name,
        (ours.filters.sorted(), theirs.filters.sorted()),
        filters,
        moments.to_intervals(shared),
        (int(counts[0]), int(counts[1])),
        with_names(rows, names) if names.assets or names.labels else rows,
        tuple((moments.to_intervals([x])[0], one.state(x), other.state(x)) for x in sorted(left)),
        tuple(f"{side.name}: {side.note}" for side in sides if side.note),
    )


def _not_shared(
    sides: tuple[Side, Side], shared: list[moments.Span], start: int, end: int
) -> Iterator[moments.Span]:
    """Yield the stretches that weren't compared whole, each with one state on each side.

    A stretch that both sides lack is included only if an interval was asked for, or if a node
    wasn't asked for it, and not before either side's first block.
    """
    ours, theirs = (side.changes.within(start, end) for side in sides)
    answered = [*ours.answered, *theirs.answered]
    oldest = min(end, *(side.oldest for side in sides))
    begin = start if start != moments.EVER[0] else min((a for a, _ in answered), default=oldest)
    stop = end if end != moments.EVER[1] else max((b for _, b in answered), default=start)
    absent = moments.overlap(ours.missing(begin, stop), theirs.missing(begin, stop))
    if (start, end) == moments.EVER:
        absent = moments.without(absent, moments.overlap(*(side.asked for side in sides)))
    left = moments.without([*answered, *absent], shared)
    cuts = [(begin, stop), *answered, *ours.complete, *theirs.complete, *shared]
    cuts += [span for side in sides for span in (*side.evidence.answered, *side.asked)]
    edges = sorted({edge for span in cuts for edge in span if begin <= edge <= stop})
    yield from (span for span in itertools.pairwise(edges) if moments.overlap(left, [span]))


def _side_by_side(streams: Sequence[Iterator[list[pa.Table]]]) -> Iterator[list[pa.Table]]:
    """Yield both streams' rows for one stretch of time after the other."""
    buffers, reached = [datafile.NO_ROWS, datafile.NO_ROWS], [moments.EVER[0], moments.EVER[0]]
    while min(reached) < moments.EVER[1]:
        at = reached.index(min(reached))
        parts, reached[at] = next(streams[at], []), moments.EVER[1]
        for part in parts[-1:]:  # the next part may have more rows of its last moment
            reached[at] = int(datafile.times_of(part).max(initial=moments.EVER[0]))
        buffers[at] = pa.concat_tables([buffers[at], *parts])
        is_due = [datafile.times_of(rows) < min(reached) for rows in buffers]
        yield [rows.filter(pa.array(mask)) for rows, mask in zip(buffers, is_due, strict=True)]
        buffers = [rows.filter(pa.array(~mask)) for rows, mask in zip(buffers, is_due, strict=True)]


def differing(one: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows that two tables of `ARROW_SCHEMA` don't share: see `Difference.rows`.

    Raises
    ------
    CheckError
        If one of them has two rows of one account and time.
    """
    both = schema.canonical(pa.concat_tables([one, other]), sort=False)
    numbers, times = datafile.numbers_of(both, schema.ACCOUNT_KEY), datafile.times_of(both)
    order = np.lexsort((times, numbers))
    numbers, times, words = numbers[order], times[order], words_of(both["balance"])[order]
    is_other, is_first = order >= one.num_rows, np.zeros(len(order), bool)
    is_first[:-1] = (numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1])
    if np.any(is_first & (is_other == np.roll(is_other, -1))):
        raise CheckError("a side has two rows of one account and time; `verify` names the file")
    is_same = is_first & (words == np.roll(words, -1, axis=0)).all(axis=1)
    heads = np.flatnonzero(~is_same & ~np.roll(is_first, 1))
    tails = heads + is_first[heads]
    kinds = pa.array(np.where(tails > heads, 2, is_other[heads]).astype(np.int8))
    columns = {
        "balance": pa.array(to_balances(words[heads], ~is_other[heads])),
        "other_balance": pa.array(to_balances(words[tails], is_other[tails])),
        "change": pa.DictionaryArray.from_arrays(kinds, pa.array(_KINDS)),
    }
    rows = both.take(pa.array(order[heads])).drop_columns("balance")
    return pa.table([*rows.columns, *columns.values()], [*rows.column_names, *columns])


NO_DIFFERENCE: Final = differing(datafile.NO_ROWS, datafile.NO_ROWS)


def rows_text(rows: pd.DataFrame, template: str) -> str:
    """Describe a frame's first rows, each by a template with its columns and `account`."""
    texts = []
    for row in rows.sort_values("timestamp").astype(object).to_dict("records"):
        account = ", ".join(f"{name} {row[name]!r}" for name in schema.ACCOUNT_KEY)
        cells = {str(name): "no row" if pd.isna(x) else str(x) for name, x in row.items()}
        cells |= {"timestamp": moments.moment_text(row["timestamp"]), "account": account}
        texts.append(template.format_map(cells))
    return text.list_text(texts, sep="; ")


@contextlib.contextmanager
def _sides(one: Any, other: Any, start: int, end: int) -> Iterator[tuple[Side, Side]]:  # noqa: ANN401 - of many kinds
    """Yield both sides of a comparison; nodes are asked for [start, end) (in microseconds)."""
    with contextlib.ExitStack() as stack:
        sides = [_opened(source, stack) for source in (one, other)]
        # Two nodes are asked one after the other, but for the same end.
        if not any(isinstance(side, Side) for side in sides):
            end = min(end, time.time_ns() // 1000)
        both = [
            side if isinstance(side, Side) else _node(side, mate, start, end, stack)
            for side, mate in (sides, sides[::-1])
        ]
        yield both[0], both[1]


def _opened(source: Any, stack: contextlib.ExitStack) -> Side | Client:  # noqa: ANN401 - likewise
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    if re.match("https?://", name, re.IGNORECASE):
        return stack.enter_context(Client(name))
    if "://" in name or (name and Path(name, layout.MANIFEST).exists()):
        return archive_side(read_snapshot(Store(name)))
    if name and Path(name).is_file() and not are_segments(name):
        source = read_parquet(name)
    if isinstance(source, pd.DataFrame):
        return _table_side(name or "table", source)
    if isinstance(source, Side | Client):
        return source
    if hasattr(source, "snapshot"):
        return archive_side(source.snapshot(), source.filters)
    if name and not are_segments(name):
        raise FileNotFoundError(
            f"there is no file, archive or segment {name!r}; name an archive, a file that `fetch` "
            "wrote, the address of a node (https://...), or network history segments"
        )
    return segments_side(find_stretches(source))


def archive_side(snapshot: Snapshot, chosen: Filters = Filters()) -> Side:
    """Return a snapshot as a side of a comparison, narrowed to some accounts."""

    def rows(spans: Sequence[moments.Span], filters: Filters) -> Iterator[pa.Table]:
        scan = Scan(snapshot.store, filters, (), Evidence())
        for file in snapshot.files():
            count = file.most_rows // (2 * _PART) + 1
            edges = np.linspace(file.begin, file.stop, count + 1).astype(np.int64).tolist()
            for cut in itertools.pairwise(edges):
                if wanted := moments.overlap(moments.overlap(file.spans, spans), [cut]):
                    # A file that replaces this one has the same rows where these are complete.
                    part = replace(file, spans=tuple(wanted), is_final=True)
                    yield pa.concat_tables([datafile.NO_ROWS, *scan.rows(part, use_threads=True)])

    name = text.without_credentials(snapshot.store.uri)
    return Side(name, snapshot.evidence.narrow(chosen), rows)


def _table_side(name: str, source: pd.DataFrame) -> Side:
    """Return a table as a side."""
    rows = to_arrow(source)
    table = to_frame(rows)
    if repeated := len(table) - len(merge_duplicates(table)):
        rows_twice = text.count_text(repeated, "row")
        raise CheckError(f"{name} repeats {rows_twice}; `ba.to_table(table)` drops equal rows")
    table.attrs = source.attrs
    notes = notes_of(table, is_sorted=True)
    notes = notes if notes.evidence is not None else Notes()
    rows = rows.take(pa.array(np.argsort(datafile.times_of(rows), kind="stable")))
    places = range(0, rows.num_rows, _PART)
    return Side(
        name,
        notes.evidence or Evidence(),
        lambda *_: (rows.slice(place, _PART) for place in places),
        "" if notes.evidence else _ADVICE,
        names_of(source),
        moments.EVER[0] if notes.start is None else notes.start,
        int(datafile.times_of(rows)[0]) if rows.num_rows else moments.EVER[1],
    )


def segments_side(stretches: Sequence[Stretch]) -> Side:
    """Return network history segments as a side of a comparison."""
    segments = [segment for stretch in stretches for segment in stretch.segments]

    def rows(_spans: Sequence[moments.Span], filters: Filters) -> Iterator[pa.Table]:
        for part in iter_rows(segments, filters, "raise"):
            yield pa.Table.from_batches([part.rows])

    source = ", ".join(stretch.source for stretch in stretches)
    return Side(source, evidence_of((read_blocks(each), ()) for each in segments), rows)


def _node(
    client: Client, mate: Side | Client, start: int, end: int, stack: contextlib.ExitStack
) -> Side:
    """Return a node as a side, after asking it for what the other side has.

    Its rows are buffered in a temporary file, because the evidence follows the last answer.
    """
    since, filters, spans = moments.EVER[0], Filters(), list[moments.Span]()
    if isinstance(mate, Side):
        since, filters = mate.start, mate.evidence.filters
        opened = mate.known_since(since, filters) if start <= since <= end else since
        spans = [*mate.changes.within(start, end).answered, (opened, since)]
        spans = moments.joined(moments.clipped(spans, *moments.EVER))  # without an empty one
    source = NodeSource(client, filters, on_bad_rows="quarantine")
    if not isinstance(mate, Side):
        spans = [source.interval(None if start == moments.EVER[0] else start, end)]
    path = Path(stack.enter_context(TemporaryDirectory(prefix="balance_analysis_")), "rows.parquet")
    with parquet_writer(path, schema.ARROW_SCHEMA) as writer:
        for step in itertools.chain(*(source.known_rows(*span) for span in spans)):
            writer.write_table(pa.Table.from_batches(step.batches, schema.ARROW_SCHEMA))
    file = stack.enter_context(open_parquet(path))
    groups = range(file.num_row_groups)
    return Side(
        ", ".join(client.base_urls),
        source.evidence(),
        lambda *_: (file.read_row_group(group).cast(schema.ARROW_SCHEMA) for group in groups),
        start=since,
        asked=spans,
    )


def confirm(
    archive: Stored | PathLike,
    other: Comparable,
    *,
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
) -> Difference:
    """Compare an archive with another source, and record in the archive where both agree.

    The time in which both are complete is confirmed, except the moments at which a row differs. It
    is confirmed by the nodes that the other source's rows came from, unless their origins are
    unknown, or share an address with those of the archive's own rows: the same node or file, or a
    copy of it, isn't a second source. A machine that answers at two addresses can't be recognised.
    Differences are written to `_disputes/` in the archive, and the archive's rows stay as they are.
    The moments of differences aren't confirmed until `confirm` asks the same node again and it
    agrees.

    Parameters
    ----------
    archive
        An Archive, or its path.
    other
        As for `diff`. It must have all accounts of the archive; else nothing is confirmed.
    start, end
        The half-open interval; without a time zone UTC. By default the whole archive.

    Returns
    -------
    Difference
        As from `diff`; `confirmed` has what this call confirmed, and `Archive.status` shows all
        that is confirmed.

    Raises
    ------
    ArchiveLockedError
        If another run is writing to the archive.
    NetworkMismatchError
        If both have rows but none in common, or are of two chains; nothing is written.
    ArchiveError, CheckError, RequestError, DecodeError, IncompleteError, ValueError
        As `diff`.
    """
    (begin, stop), store, now = interval_of(start, end), to_store(archive), time.time_ns() // 1000
    read_snapshot(store)  # raises before a folder that isn't an archive gets a lock
    with one_writer(store):
        writer = Writer(store)
        writer.recover()
        with _sides(archive_side(read_snapshot(store)), other, begin, stop) as sides:
            difference, theirs = _compare(*sides, begin, stop), sides[1].changes
        one, another, ours = difference.one, difference.other, writer.manifest.evidence
        if not difference.common and all(difference.compared):
            raise NetworkMismatchError(f"{one} and {another} have no common row: check the network")
        if ours.chains and theirs.chains and ours.chains != theirs.chains:
            raise NetworkMismatchError(
                f"{one} is from the chain {', '.join(ours.chains)}, but {another} from "
                f"{', '.join(theirs.chains)}"
            )
        evidence = _with_verdicts(ours, theirs, difference, now)
        if len(rows := difference.rows):
            texts = rows.astype("str").where(rows.notna(), None).to_dict("records")
            content = {"one": one, "other": another, "rows": texts, "disputed": evidence.disputed}
            encoded = msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=1)
            # Named by its content, so that the same dispute is kept only once.
            name = hashlib.sha256(encoded).hexdigest()
            store.write(f"{layout.DISPUTES}{name}.json", encoded + b"\n")
        writer.set_evidence(evidence)
    by_them = _with_verdicts(replace(ours, agreed=()), theirs, difference, now)
    return replace(difference, confirmed=moments.to_intervals(by_them.confirmed))


def _with_verdicts(ours: Evidence, theirs: Evidence, difference: Difference, now: int) -> Evidence:
    """Return an archive's evidence with the verdicts of the other source's nodes.

    Answers from before `now` don't settle disputes.
    """
    times = map(moments.to_microseconds, difference.rows["timestamp"].drop_duplicates())
    differing_at = moments.joined((time, time + 1) for time in times)
    shared = [*moments.to_spans(difference.shared), *differing_at]
    # A node that has fewer accounts, or no row in common, can't agree.
    if difference.filters != ours.filters.sorted() or not difference.common:
        shared = differing_at
    for answer in theirs.answers:
        verdict = (moments.overlap(spans, [answer.span]) for spans in (shared, differing_at))
        ours = ours.with_verdict(answer.node, *verdict, is_new=answer.asked[0] >= now)
    return ours
