"""Write to an archive, so that a crash at any moment leaves it whole.

A commit replaces a period's file in three steps: the manifest announces the file, the file is
replaced, the manifest says so. After a crash in between, the next writer either sees the old file
and forgets the announcement, or sees the new one and takes it as done.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

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
from balance_analysis.table.evidence import Evidence
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import to_frame
from balance_analysis.table.rows import canonical, within
from balance_analysis.table.schema import ACCOUNT_KEY, NetworkLimits
from balance_analysis.table.spans import Span

_KEY: Final = [*ACCOUNT_KEY, "timestamp"]
_KNOWN, _NEW = 1, 2


class Writer:
    """The writer of an archive. The caller holds the lock.

    Parameters
    ----------
    store
        The archive's files.
    query
        What the archive must be bound to; nothing is written before the first change of a new one.

    Attributes
    ----------
    store, manifest
        The archive's files, and its state.
    """

    def __init__(self, store: Store, query: BoundQuery | None = None) -> None:
        self.store = store
        self.manifest = read_manifest(store) if query is None else bound_manifest(store, query)

    def recover(self) -> None:
        """Finish or forget an interrupted commit, and remove leftover files."""
        self.store.sweep()
        pending = self.manifest.pending
        if pending is not None:
            content = self.store.read(pending.name)
            is_done = not pending.file.mismatch(content)
            self.amend(self.manifest.settle() if is_done else replace(self.manifest, pending=None))

    def amend(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        self.store.write(layout.MANIFEST, to_bytes(manifest))
        self.manifest = manifest

    def prove(self, evidence: Evidence) -> None:
        """Replace the evidence; the rows stay."""
        if evidence != self.manifest.evidence:
            self.amend(replace(self.manifest, evidence=evidence))

    def keep_limits(self, limits: NetworkLimits) -> None:
        """Add the network's current limits; ArchiveError if their file is damaged."""
        known = self._known_limits()
        self._put_limits(sidecars.to_timeline([*known.to_pylist(), sidecars.limits_row(limits)]))

    def keep_timeline(self, changes: Sequence[NetworkLimits], until: int) -> None:
        """Add all changes of the limits up to a moment; ArchiveError if their file is damaged."""
        known = self._known_limits()
        rows = sidecars.with_timeline(known, changes, until)
        if not rows.equals(known):
            self._put_limits(rows)

    def _known_limits(self) -> pa.Table:
        if self.manifest.limits is not None and not self.store.has(layout.LIMITS):
            logger.warning(
                "%s/%s is missing: a new one begins, without the older limits",
                self.store.uri,
                layout.LIMITS,
            )
            self.amend(replace(self.manifest, limits=None))
        return sidecars.read_limits(self.store)

    def _put_limits(self, rows: pa.Table) -> None:
        write_rows(rows, content := io.BytesIO())
        entry = entry_of(content.getvalue(), rows["first_seen"])
        if entry != self.manifest.limits:
            self._replace(layout.LIMITS, content.getvalue(), entry, self.manifest.evidence)

    def _replace(self, name: str, content: bytes, entry: FileEntry, evidence: Evidence) -> None:
        """Replace a file and the evidence."""
        self.amend(self.manifest.announce(name, entry, evidence))
        self.store.write(name, content)
        self.amend(self.manifest.settle())

    def rows_of(self, period: str) -> pa.Table:
        """Return the rows of a period; ArchiveError if its file differs from the manifest."""
        name, note = self.manifest.changes_file(period), self.manifest.files.get(period)
        if note is None:
            return NO_ROWS
        content = self.store.read(name)
        wrong = note.mismatch(content)
        if content is None or wrong:
            raise ArchiveDamagedError(
                f"{self.store.uri}/{name} {wrong}: put back a copy of it, or mend the archive with "
                f"`{export_command(self.store, '--repair')}`"
            )
        return decode_rows(content)

    def commit(self, period: str, rows: pa.Table, evidence: Evidence) -> None:
        """Replace a period's rows and add evidence; without rows only add evidence."""
        both = self.manifest.evidence.updated(evidence)
        if rows.num_rows:
            self.put(period, encode_rows(rows), both)
        else:
            self.prove(both)

    def put(self, period: str, encoded: tuple[bytes, FileEntry], evidence: Evidence) -> None:
        """Replace a period's file, unless it is the same already, and the evidence.

        Parameters
        ----------
        period
            The name of the period.
        encoded
            The file, as `encode_rows` returns it.
        evidence
            The evidence for all rows from then on.
        """
        content, note = encoded
        if self.manifest.files.get(period) != note:
            # Other rows may change the balances at all later months' starts.
            begin, _ = layout.period_bounds(period, self.manifest.partition)
            kept = {at: file for at, file in self.manifest.checkpoints.items() if at <= begin}
            self.manifest = replace(self.manifest, checkpoints=kept)
            self._replace(self.manifest.changes_file(period), content, note, evidence)
        self.prove(evidence)

    def checkpoint(self) -> None:
        """Keep the balances at each month's start before the first gap, and no others."""
        evidence = self.manifest.evidence
        start, end = evidence.bounds
        moments = [*layout.month_starts(start, end)]
        for moment in moments:
            if evidence.missing(start, moment):
                break
            if moment not in self.manifest.checkpoints:
                self._checkpoint(moment)
        for moment in moments:
            if moment not in self.manifest.checkpoints:
                self.store.delete(layout.checkpoint_file(moment))

    def _checkpoint(self, moment: int) -> None:
        """Keep the balances at a month's start, computed from the previous sound checkpoint."""
        snapshot = Snapshot(self.store, self.manifest, "")
        try:
            rows = snapshot.last_rows(Filters(), moment - 1)
        except ArchiveDamagedError:
            bare = replace(self.manifest, checkpoints={})
            rows = replace(snapshot, manifest=bare).last_rows(Filters(), moment - 1)
        if not rows.num_rows:
            return
        content, new = encode_rows(rows)
        self.store.write(layout.checkpoint_file(moment), content)
        checkpoints = dict(sorted({**self.manifest.checkpoints, moment: new}.items()))
        self.amend(replace(self.manifest, checkpoints=checkpoints))


@dataclass(frozen=True, slots=True)
class Merged:
    """Known rows of a period merged with newer rows of a stretch of it.

    Attributes
    ----------
    rows
        Each account and timestamp once; where two differ, the newer one.
    added
        Newer rows without a known one.
    changed
        Known rows that differ from a newer one.
    absent
        Known rows of the stretch without a newer one.
    """

    rows: pa.Table
    added: pa.Table
    changed: pa.Table
    absent: pa.Table

    @property
    def conflicts(self) -> pa.Table:
        """The known rows that newer ones contradict."""
        return pa.concat_tables([self.changed, self.absent])


def merge_rows(known: pa.Table, new: pa.Table, start: int, end: int) -> Merged:
    """Merge the known rows of a period with all new rows of [start, end)."""
    if not known.num_rows:
        return Merged(new, new, known, known)
    # The sort is stable: of two rows of an account at one time, the newer comes second.
    both = canonical(pa.concat_tables([known, new]))
    table = to_frame(both, sort=False)
    is_older = table.duplicated(_KEY, keep="last").to_numpy()
    is_other = is_older & ~table.duplicated(keep="last").to_numpy()
    # A known row counts 1, a new one 2: the number of equal keys says where a row is from.
    thrice = canonical(pa.concat_tables([within(known, start, end), new, new]))
    heads = np.flatnonzero(~to_frame(thrice, sort=False).duplicated(_KEY).to_numpy())
    counts = np.diff(heads, append=thrice.num_rows)
    return Merged(
        both.filter(pa.array(~is_older)),
        thrice.take(pa.array(heads[counts == _NEW])),
        both.filter(pa.array(is_other)),
        thrice.take(pa.array(heads[counts == _KNOWN])),
    )


def moments_of(rows: pa.Table) -> list[Span]:
    """Return the moments of rows as spans of one microsecond."""
    times = np.unique(rows["timestamp"].cast(pa.int64()).to_numpy()).tolist()
    return [(time, time + 1) for time in times]
