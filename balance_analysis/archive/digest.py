"""What can be compared of an archive's history: its rows in one canonical order, and digests.

The rows of each hour in UTC, in the order of files, have a SHA-256; all of these, with the covered
intervals, have that of the history. Whatever a file holds, it holds whole hours, so nothing goes by
how files are cut, when they were written, or how they are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.archive.accounts import times_of
from balance_analysis.archive.network import read_archive_names, read_limits, timeless
from balance_analysis.archive.scan import File, Scan
from balance_analysis.archive.snapshot import Readable, Snapshot, with_snapshot
from balance_analysis.evidence import Evidence
from balance_analysis.filters import Filters
from balance_analysis.presentation import Record
from balance_analysis.rows import stable_order, to_records
from balance_analysis.schema import Instant, from_microseconds, to_bounds
from balance_analysis.spans import EVER, Moments
from balance_analysis.text import spans_text, without_credentials

HOUR: Final = 3_600_000_000
"""Microseconds of which the rows have a digest together."""

_VERSION: Final = 1
"""Of what is digested, and how."""


@dataclass(frozen=True, slots=True)
class ArchiveDigest(Record):
    """What tells the history in an archive from any other: SHA-256 in hex digits.

    Attributes
    ----------
    uri
        The archive's address.
    complete, unproven
        The covered intervals that were asked for, [start, end) each in UTC.
    rows
        How many balance changes are in them.
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


@dataclass(frozen=True, slots=True)
class HourDigest:
    """The rows of an hour: its number since 1970, how many there are, and their SHA-256."""

    hour: int
    rows: int
    sha256: bytes


def digest(
    self: Readable, *, start: Instant | None = None, end: Instant | None = None
) -> ArchiveDigest:
    """Return digests of the history, which are the same for each archive of the same history.

    They don't depend on when and how often was exported, on the partition, or on how files are
    encoded. All rows of the interval are read, checked as they are.

    Parameters
    ----------
    start, end
        The interval, half-open; without a time zone UTC. By default all that is covered. Limits and
        names are not of an interval: they are digested whole.

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    ValueError
        If `start` is not before `end`.

    Notes
    -----
    `digest` is the SHA-256 of a line of JSON, ended by a line break, and then 40 bytes for each
    hour in UTC that has rows, in time order. The line has the sorted keys `complete`, `filters`,
    `unproven` and `version` (1) and no blanks. The intervals are pairs of microseconds since 1970,
    joined; `filters` has the sorted ids of each column by which the archive is bound. An hour's
    bytes are its number since 1970 in 8 bytes, the lowest first, and the SHA-256 of its rows.
    These stand by party, asset, account type, market (as UTF-8 sorts) and time. A row has 56
    bytes: the SHA-256 of its account, its microseconds in 8 bytes and its balance in 16, both the
    lowest first. An account's bytes are asset, account type, party and market, each in UTF-8 after
    its length in 4 bytes.
    """
    begin, stop = (EVER[n] if x is None else x for n, x in enumerate(to_bounds(start, end)))
    if begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    return with_snapshot(self._state, lambda snapshot: _digest_of(snapshot, begin, stop))


def _digest_of(snapshot: Snapshot, start: int, end: int) -> ArchiveDigest:
    evidence = snapshot.evidence.within(start, end)
    complete, unproven = evidence.complete, evidence.unproven
    hours = hour_digests(Scan(snapshot.store, Filters(), tuple(snapshot.files(start, end)), Evidence()))
    head = {
        "version": _VERSION,
        "filters": evidence.filters.allowed(),
        "complete": complete,
        "unproven": unproven,
    }
    whole = hashlib.sha256(_json(head) + b"\n")
    for each in hours:
        whole.update(each.hour.to_bytes(8, "little", signed=True) + each.sha256)
    names = read_archive_names(snapshot.store)
    return ArchiveDigest(
        uri=without_credentials(snapshot.store.uri),
        complete=tuple((from_microseconds(a), from_microseconds(b)) for a, b in complete),
        unproven=tuple((from_microseconds(a), from_microseconds(b)) for a, b in unproven),
        rows=sum(each.rows for each in hours),
        digest=whole.hexdigest(),
        limits=_hex(timeless(read_limits(snapshot.store))),
        assets=_hex(names.assets.to_json()),
        labels=_hex(names.labels.to_json()),
    )


def _json(content: object) -> bytes:
    return msgspec.json.encode(content, order="sorted")


def _hex(content: object) -> str:
    return hashlib.sha256(_json(content)).hexdigest()


def hour_digests(scan: Scan) -> list[HourDigest]:
    """Return the digests of what is asked for of an archive, in time order, files side by side."""
    found = scan.each(lambda some: [*itertools.chain(*(_of_file(some, f) for f in some.files))])
    return sorted(itertools.chain(*found), key=lambda each: each.hour)


def _of_file(scan: Scan, file: File) -> Iterator[HourDigest]:
    hashes: dict[int, Any] = {}
    counts: dict[int, int] = {}
    for rows in scan.rows(file):
        for hour, records in split_hours(rows):
            hashes.setdefault(hour, hashlib.sha256()).update(records)
            counts[hour] = counts.get(hour, 0) + len(records)
    return (HourDigest(hour, counts[hour], each.digest()) for hour, each in hashes.items())


def split_hours(rows: pa.Table) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Yield each hour of rows in the order of files, ascending, with its rows as `to_records`."""
    if not rows.num_rows:
        return
    hours, records = times_of(rows) // HOUR, to_records(rows)
    order = stable_order(hours)
    edges = [0, *(np.flatnonzero(np.diff(hours.take(order))) + 1), len(order)]
    for begin, stop in itertools.pairwise(edges):
        yield int(hours[order[begin]]), records(order[begin:stop])
