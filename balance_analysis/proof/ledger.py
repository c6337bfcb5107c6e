"""Compare each change of a balance in an archive with the ledger of network history segments.

A change is the sum of what the ledger moved to the account less what it moved away. Of segments
about a period is in memory at a time, and of the ledger nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.checks import to_table
from balance_analysis.analysis.conservation import reconcile
from balance_analysis.archive import layout
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.evidence import Evidence
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import Filters
from balance_analysis.frame import to_frame
from balance_analysis.proof.compare import rows_text
from balance_analysis.schema import ATTRS_KEY, from_microseconds
from balance_analysis.segments.rows import read_accounts, read_blocks, read_flows
from balance_analysis.segments.segment import Stretch, find_stretches, heights_text, missing_blocks
from balance_analysis.spans import Span
from balance_analysis.text import count_text, range_text

_DIFFERS = "at {timestamp} the balance changes by {delta}, but the ledger moved {net}, of {account}"


@dataclass(slots=True)
class Ledger:
    """What a comparison with a ledger shows.

    Attributes
    ----------
    wrong
        Stretches of time in which changes differ, and which ones.
    skipped
        What could not be compared, and why.
    changes
        How many changes were compared.
    """

    wrong: list[tuple[Span, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    changes: int = 0


def check_ledger(store: Store, evidence: Evidence, paths: PathLike | Iterable[PathLike]) -> Ledger:
    """Compare the changes of an archive with what segments' ledger moved.

    Parameters
    ----------
    evidence
        What is proven of the archive's rows: what isn't complete is not compared.
    paths
        The segments, as for `read_segments`.

    Raises
    ------
    DecodeError, IncompleteError, NetworkMismatchError, CheckError, FileNotFoundError
        As `read_segments`.
    """
    stretches, ledger = find_stretches(paths), Ledger()
    for gap in missing_blocks(stretches):
        ledger.skipped.append(f"blocks {heights_text([gap])}: no segment has them")
    for stretch in stretches:
        is_whole = stretch.is_from_first
        for span, flows in _days(stretch, evidence.filters):
            if evidence.incomplete(*span):
                ledger.skipped.append(f"{range_text(*span)}: the archive is not complete there")
                is_whole = False
            else:
                _compare(store, ledger, span, flows, nothing_before=is_whole)
    return ledger


def _days(stretch: Stretch, filters: Filters) -> Iterator[tuple[Span, pd.DataFrame]]:
    """Yield the time of the segments that begin on a day, and their ledger's flows.

    The time of one begins where that of the one before ends.
    """
    accounts, start = read_accounts(stretch.segments[-1], filters), 0
    spans = ((segment, read_blocks(segment).span) for segment in stretch.segments)
    for _, some in groupby(spans, lambda x: layout.period_of(x[1][0], "day")):
        segments, times = zip(*some, strict=True)
        start, end = start or times[0][0], times[-1][1]
        flows = pa.Table.from_batches([read_flows(each, accounts) for each in segments])
        yield (start, end), to_frame(flows, sort=False).rename(columns={"balance": "net"})
        start = end


def _compare(
    store: Store, ledger: Ledger, span: Span, flows: pd.DataFrame, *, nothing_before: bool
) -> None:
    """Compare a stretch of time.

    `nothing_before` says that an account without an older row held nothing.
    """
    start, end = map(from_microseconds, span)
    held = with_snapshot(
        store, lambda x: x.read(Filters(), start=start, end=end, opening=True, partial=True)
    )
    if nothing_before:
        held = to_table(held, nothing_before=True)
    try:
        wrong = reconcile(held, flows)
    except OverflowError as error:
        ledger.wrong.append((span, str(error)))
        return
    changes = int((held["timestamp"] >= start).sum())
    if len(wrong):
        ledger.wrong.append((span, rows_text(wrong, _DIFFERS)))
    if count := wrong.attrs[ATTRS_KEY]["not_compared"]:
        what = f"{count_text(count, 'change')} of accounts whose balance before is not known"
        ledger.skipped.append(f"{range_text(*span)}: {what}")
    ledger.changes += changes - count
