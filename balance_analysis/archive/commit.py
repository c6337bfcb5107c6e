"""Write to an archive so that a crash at any moment leaves it whole.

A commit replaces a period's file in three steps: announce the file in the manifest, replace the
file, drop the announcement. After a crash in between, the next writer compares the file with the
announcement: it finishes the commit if the new file is in place, and else drops the announcement.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from balance_analysis.archive import layout, sidecars
from balance_analysis.archive.datafile import NO_ROWS, decode_rows, encode_rows, entry_of
from balance_analysis.archive.manifest import (
    BoundQuery,
    FileEntry,
    Manifest,
    bound_manifest,
    export_command,
    read_manifest,
    to_bytes,
)
from balance_analysis.archive.snapshot import Snapshot
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError, logger
from balance_analysis.files.parquet import write_rows
from balance_analysis.table.evidence import Evidence, Verdicts
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import to_frame
from balance_analysis.table.moments import Span, joined, without
from balance_analysis.table.schema import ACCOUNT_KEY, NetworkLimits, canonical, within

_KEY: Final = [*ACCOUNT_KEY, "timestamp"]
_OLD, _NEW = 1, 2


class Writer:
    """The writer of an archive. The caller holds the lock.

    Parameters
    ----------
    store
        The archive's files.
    query
        The query that the archive must be bound to; by default its own. A new archive is written
        only with its first change.

    Attributes
    ----------
    store, manifest
        The archive's files, and its state.
    """

    def __init__(self, store: Store, query: BoundQuery | None = None) -> None:
        self.store: Store = store
        manifest = read_manifest(store) if query is None else bound_manifest(store, query)
        self.manifest: Manifest = manifest

    def recover(self) -> None:
        """Finish or undo an interrupted commit, and remove leftover files.

        Disputes in `_disputes` that the manifest lacks are added: it may come from an older backup.
        """
        self.store.sweep()
        pending = self.manifest.pending
        if pending is not None:
            is_done = not pending.file.mismatch(self.store.read(pending.name))
            state = self.manifest.settle() if is_done else replace(self.manifest, pending=None)
            self.write_manifest(state)
        evidence, disputes = self.manifest.evidence, _disputes_in(self.store)
        for node in dict.fromkeys(node for _, node in disputes):
            all_spans, known = (
                joined(span for span, other in verdicts if other == node)
                for verdicts in (disputes, (*evidence.agreed, *evidence.disputed))
            )
            unknown = without(all_spans, known)
            evidence = evidence.with_verdict(node, unknown, unknown)
        self.set_evidence(evidence)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        self.store.write(layout.MANIFEST, to_bytes(manifest))
        self.manifest = manifest

    def set_evidence(self, evidence: Evidence) -> None:
        """Replace the evidence; the rows stay."""
        if evidence != self.manifest.evidence:
            self.write_manifest(replace(self.manifest, evidence=evidence))

    def keep_limits(self, *changes: NetworkLimits, until: int | None = None) -> None:
        """Add limits as they were seen, or all of their changes up to a moment: see `with_limits`.

        Raises
        ------
        ArchiveDamagedError
            If their file is damaged.
        """
        old = self._old_limits()
        rows = sidecars.with_limits(old, changes, until)
        if not rows.equals(old):
            write_rows(rows, content := io.BytesIO())
            entry = entry_of(content.getvalue(), rows["first_seen"])
            self._replace(layout.LIMITS, content.getvalue(), entry, self.manifest.evidence)

    def _old_limits(self) -> pa.Table:
        if self.manifest.limits is not None and not self.store.has(layout.LIMITS):
            logger.warning(
                "%s/%s is missing: starting a new one; the older limits are lost",
                self.store.uri,
                layout.LIMITS,
            )
            self.write_manifest(replace(self.manifest, limits=None))
        return sidecars.read_limits(self.store)

    def _replace(self, name: str, content: bytes, entry: FileEntry, evidence: Evidence) -> None:
        """Replace a file and the evidence."""
        self.write_manifest(self.manifest.announce(name, entry, evidence))
        self.store.write(name, content)
        self.write_manifest(self.manifest.settle())

    def rows_of(self, period: str) -> pa.Table:
        """Return a period's rows; ArchiveDamagedError if its file differs from the manifest."""
        name, entry = self.manifest.changes_file(period), self.manifest.files.get(period)
        if entry is None:
            return NO_ROWS
        content = self.store.read(name)
        mismatch = entry.mismatch(content)
        if content is None or mismatch:
            raise ArchiveDamagedError(
                f"{self.store.uri}/{name} {mismatch}: restore a backup, or repair the archive with "
                f"`{export_command(self.store, '--repair')}`"
            )
        return decode_rows(content)

    def put(
        self,
        period: str,
        encoded: tuple[bytes, FileEntry],
        evidence: Evidence,
        *,
        is_losing: bool = False,
    ) -> None:
        """Replace a period's file, unless it is the same, and the evidence.

        Parameters
        ----------
        period
            The name of the period.
        encoded
            The file, as `encode_rows` returns it.
        evidence
            The archive's new evidence, for all of its rows.
        is_losing
            Whether the old file has rows that the new one lacks or has with another balance.
        """
        content, entry = encoded
        name, old = self.manifest.changes_file(period), self.manifest.files.get(period)
        if is_losing or old is None:
            self.keep_copy(period, content)
        if old != entry:
            # Other rows may change the balances at the start of each later month.
            begin, _ = layout.period_bounds(period, self.manifest.partition)
            earlier = {at: file for at, file in self.manifest.checkpoints.items() if at <= begin}
            self.manifest = replace(self.manifest, checkpoints=earlier)
            self._replace(name, content, entry, evidence)
        self.set_evidence(evidence)

    def keep_copy(self, period: str, content: bytes) -> None:
        """Copy a period's file to quarantine before other content replaces it."""
        name = self.manifest.changes_file(period)
        old = self.store.read(name)
        if old is not None and old != content:
            copy = f"{layout.QUARANTINE}{period}-{hashlib.sha256(old).hexdigest()[:16]}.parquet"
            self.store.write(copy, old)
            logger.warning("%s/%s is replaced; %s is a copy of it", self.store.uri, name, copy)

    def write_checkpoints(self) -> None:
        """Write a checkpoint for each month's start before the first gap; delete all others."""
        evidence = self.manifest.evidence
        start, end = evidence.bounds
        moments = [*layout.month_starts(start, end)]
        for moment in moments:
            if evidence.missing(start, moment):
                break
            if moment not in self.manifest.checkpoints:
                self._write_checkpoint(moment)
        for moment in moments:
            if moment not in self.manifest.checkpoints:
                self.store.delete(layout.checkpoint_file(moment))

    def _write_checkpoint(self, moment: int) -> None:
        """Write the balances at a month's start, computed from the previous sound checkpoint."""
        snapshot = Snapshot(self.store, self.manifest, "")
        try:
            rows = snapshot.last_rows(Filters(), moment - 1)
        except ArchiveDamagedError:
            bare = replace(self.manifest, checkpoints={})
            rows = replace(snapshot, manifest=bare).last_rows(Filters(), moment - 1)
        if not rows.num_rows:
            return
        content, entry = encode_rows(rows)
        self.store.write(layout.checkpoint_file(moment), content)
        checkpoints = dict(sorted({**self.manifest.checkpoints, moment: entry}.items()))
        self.write_manifest(replace(self.manifest, checkpoints=checkpoints))


@dataclass(frozen=True, slots=True)
class Merged:
    """Old rows of a period merged with new rows of a stretch of it.

    Attributes
    ----------
    rows
        Each account and timestamp once; if two rows differ, the new one.
    added
        New rows of an account and timestamp without an old one.
    changed
        Old rows that new ones with another balance replace.
    absent
        Old rows of the stretch without a new one of the account and timestamp.
    """

    rows: pa.Table
    added: pa.Table
    changed: pa.Table
    absent: pa.Table

    @property
    def conflicts(self) -> pa.Table:
        """The old rows that the new ones contradict."""
        return pa.concat_tables([self.changed, self.absent])


def merge_rows(old: pa.Table, new: pa.Table, start: int, end: int) -> Merged:
    """Merge the old rows of a period with all new rows of [start, end)."""
    if not old.num_rows:
        return Merged(new, new, old, old)
    # The sort is stable: if an account has two rows at one time, the new one comes second.
    both = canonical(pa.concat_tables([old, new]))
    table = to_frame(both, sort=False)
    is_older = table.duplicated(_KEY, keep="last").to_numpy()
    is_other = is_older & ~table.duplicated(keep="last").to_numpy()
    # With each new row twice, a key's number of rows shows its origin: 1 old, 2 new, 3 both.
    counted = canonical(pa.concat_tables([within(old, start, end), new, new]))
    heads = np.flatnonzero(~to_frame(counted, sort=False).duplicated(_KEY).to_numpy())
    counts = np.diff(heads, append=counted.num_rows)
    return Merged(
        both.filter(pa.array(~is_older)),
        counted.take(pa.array(heads[counts == _NEW])),
        both.filter(pa.array(is_other)),
        counted.take(pa.array(heads[counts == _OLD])),
    )


def moments_of(rows: pa.Table) -> list[Span]:
    """Return the rows' moments as spans of one microsecond, in time order."""
    times = np.unique(rows["timestamp"].cast(pa.int64()).to_numpy()).tolist()
    return [(time, time + 1) for time in times]


def _disputes_in(store: Store) -> Verdicts:
    """Return the disputes that `confirm` has written to files: stretches, and who disputes them."""
    verdicts: Verdicts = ()
    for name in store.names(layout.DISPUTES):
        try:
            content = msgspec.json.decode(store.read(name) or b"")
            verdicts += msgspec.convert(content["disputed"], Verdicts)
        except (ValueError, LookupError, TypeError) as error:
            logger.warning(
                "%s/%s can't be read, so its disputes are lost: %s", store.uri, name, error
            )
    return tuple(dict.fromkeys(verdicts))
