"""Compute digests of an archive's history: equal rows give equal digests."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from balance_analysis.archive import sidecars
from balance_analysis.archive.datafile import NO_ROWS, in_file_order, times_of
from balance_analysis.archive.manifest import digest_of
from balance_analysis.archive.snapshot import Scan, Snapshot, interval_of
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import DAY, Interval, Moment, to_intervals
from balance_analysis.table.schema import to_records
from balance_analysis.table.text import Record, spans_text, without_credentials

_VERSION: Final = 2
"""Version of the digest's definition."""


@dataclass(frozen=True, slots=True)
class ArchiveDigest(Record):
    """Digests of an archive's history: SHA-256 in hex digits.

    Attributes
    ----------
    uri
        The archive's address.
    complete, unproven
        The complete and the unproven intervals in the requested one: [start, end) in UTC.
    rows
        Number of balance changes in them.
    digest
        Digest of these rows and intervals, and of the accounts that the archive is bound to.
    limits
        Digest of the network's limits in the order in which they were seen, without sources and
        times.
    assets, labels
        Digests of the names of assets, and of parties and markets.
    """

    uri: str
    complete: tuple[Interval, ...]
    unproven: tuple[Interval, ...]
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


def digest(snapshot: Snapshot, start: Moment | None, end: Moment | None) -> ArchiveDigest:
    """Return the digests of an archive's history: see `Archive.digest`."""
    begin, stop = interval_of(start, end)
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
    whole = hashlib.sha256(msgspec.json.encode(head, order="sorted") + b"\n")
    for _, _, sha256 in days:
        whole.update(sha256)
    names = sidecars.read_archive_names(snapshot.store)
    return ArchiveDigest(
        uri=without_credentials(snapshot.store.uri),
        complete=to_intervals(complete),
        unproven=to_intervals(unproven),
        rows=sum(rows for _, rows, _ in days),
        digest=whole.hexdigest(),
        limits=digest_of(sidecars.limits_without_source(sidecars.read_limits(snapshot.store))),
        assets=digest_of(names.to_json()["assets"]),
        labels=digest_of(names.to_json()["labels"]),
    )


def _days(scan: Scan) -> list[tuple[int, int, bytes]]:
    """Return each day with rows: days since 1970, number of rows and their SHA-256, in order."""
    days = itertools.groupby(scan.files, lambda file: file.begin // DAY)
    parts = [replace(scan, files=tuple(files)) for _, files in days]
    return sorted(itertools.chain(*scan.map(_days_of_files, parts)))


def _days_of_files(scan: Scan) -> list[tuple[int, int, bytes]]:
    """Return the days of one file, or the day of several files: see `_days`."""
    hashes: dict[int, Any] = {}
    counts: Counter[int] = Counter()
    tables: Iterable[pa.Table] = itertools.chain(*map(scan.rows, scan.files))
    if len(scan.files) > 1:
        tables = [in_file_order(pa.concat_tables([NO_ROWS, *tables]))]
    for rows in tables:
        days, records = times_of(rows) // DAY, to_records(rows)
        order = np.argsort(days, kind="stable")
        edges = np.flatnonzero(np.diff(days.take(order), prepend=-1, append=-1))
        for begin, stop in itertools.pairwise(edges):
            day = int(days[order[begin]])
            hashes.setdefault(day, hashlib.sha256()).update(records(order[begin:stop]))
            counts[day] += int(stop - begin)
    return [(day, counts[day], sha256.digest()) for day, sha256 in hashes.items()]
