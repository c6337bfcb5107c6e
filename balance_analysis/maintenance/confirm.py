"""Confirm what an archive holds by another source: the same rows, digest for digest.

What both know, and no row of which differs in its period, is confirmed; the coverage keeps by whom.
A difference is kept beside the archive, whose rows stay as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import covered_by
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.store import Stored, to_store
from balance_analysis.errors import NetworkMismatchError
from balance_analysis.files.atomic import PathLike
from balance_analysis.maintenance.diff import Difference, diff
from balance_analysis.node.client import Client
from balance_analysis.schema import Instant, to_microseconds
from balance_analysis.spans import between, clipped


def confirm(
    archive: Stored | PathLike,
    other: Client | PathLike | Sequence[PathLike],
    *,
    start: Instant | None = None,
    end: Instant | None = None,
) -> Difference:
    """Compare an archive with another source of its rows, and note which time is confirmed.

    That is what both know to be complete, but for each period (a day, if the archive has files of
    days) in which a row differs. What differs is written to `_disputes/` in the archive; its rows
    stay. A node that the rows came from confirms them too, over a fresh connection and at another
    moment, and `confirmed_by` says that it was asked again; what another has confirmed stays so.

    Parameters
    ----------
    archive
        An Archive, or its path.
    other
        A Client of one node, or segments, or the path or address of these, of another archive or of
        a file of a table.
    start, end
        The interval, half-open; without a time zone UTC. By default all that the archive holds.

    Returns
    -------
    Difference
        As of `diff`; what is confirmed, `Archive.coverage` tells.

    Raises
    ------
    ArchiveLockedError
        If another run is writing to the archive.
    NetworkMismatchError
        If there are rows, but none that both have: then nothing is written.
    ArchiveError, CheckError, RequestError, DecodeError, IncompleteError, ValueError
        As `diff`.
    """
    store = to_store(archive)
    with one_writer(store):
        writer = Writer(store)
        writer.recover()
        found, partition = diff(store.uri, other, start=start, end=end), writer.about.partition
        lost = found.rows["change"].isin(["removed", "changed"]).sum()
        if len(found.rows) and lost == found.compared[0]:
            raise NetworkMismatchError(f"{store.uri} and {found.other} have no row in common")
        disputed = set()
        if len(found.rows):
            rows = found.rows.astype("str").where(found.rows.notna(), None).to_dict("records")
            told = {"one": found.one, "other": found.other, "rows": rows}
            content = (json.dumps(told, indent=1) + "\n").encode()
            # By its content, so that a dispute that is found each hour is kept once.
            store.write(f"{layout.DISPUTES}{hashlib.sha256(content).hexdigest()}.json", content)
            times = map(to_microseconds, found.rows["timestamp"].drop_duplicates())
            disputed = {layout.period_of(time, partition) for time in times}
        parts = [layout.period_bounds(period, partition) for period in disputed]
        # Where both have no row at all, the other may be of any network.
        shared = found.shared if found.compared[0] else ()
        intervals = writer.state.intervals
        for first, last in shared:
            for agreed in between(parts, to_microseconds(first), to_microseconds(last)):
                for held in writer.state.intervals:
                    is_own = held.source == found.other
                    # The same node's word again says less than what another one has confirmed.
                    counts = held.proven and not (is_own and held.confirmed_by)
                    by = f"{found.other}, asked again" if is_own else found.other
                    for begin, stop in clipped([held.span] if counts else [], *agreed):
                        new = replace(held, start=begin, end=stop, confirmed_by=by)
                        intervals = covered_by(intervals, new)
        writer.amend(replace(writer.state, intervals=intervals))
    return found
