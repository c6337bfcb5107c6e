"""Compare each change of a balance in an archive with the ledger of network history segments.

A change is the sum of what the ledger moved to the account less what it moved away. Of segments
about a period is in memory at a time, and of the ledger nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, from_microseconds
from balance_analysis.segments.rows import read_accounts, read_blocks, read_flows
from balance_analysis.segments.segment import Stretch, find_stretches, heights_text, missing_blocks
from balance_analysis.spans import Span
from balance_analysis.text import count_text, list_text, moment_text, range_text


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

    def skip(self, span: Span, why: str) -> None:
        """Note what could not be compared."""
        self.skipped.append(f"{range_text(*span)}: {why}")


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
        for span, flows in _periods(stretch, evidence.filters):
            if evidence.incomplete(*span):
                ledger.skip(span, "the archive is not complete there")
                is_whole = False
            else:
                _compare(store, ledger, span, flows, nothing_before=is_whole)
    return ledger


def _periods(stretch: Stretch, filters: Filters) -> Iterator[tuple[Span, pd.DataFrame]]:
    """Yield the segments of about a day together: their time, and the ledger's flows."""
    accounts, flows = read_accounts(stretch.segments[-1], filters), list[pa.RecordBatch]()
    start, end, day = 0, 0, ""
    for segment in stretch.segments:
        times = read_blocks(segment).times
        begins = layout.period_of(int(times[0]), "day")
        if flows and begins != day:
            yield (start, end), _frame(flows)
            flows = []
        if not flows:
            start, day = end or int(times[0]), begins
        end = int(times[-1]) + 1
        flows.append(read_flows(segment, accounts))
    yield (start, end), _frame(flows)


def _frame(flows: list[pa.RecordBatch]) -> pd.DataFrame:
    moved = to_frame(pa.Table.from_batches(flows), sort=False)
    return moved.rename(columns={"balance": "net"})


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
        ledger.wrong.append((span, _text(wrong)))
    if count := wrong.attrs[ATTRS_KEY]["not_compared"]:
        ledger.skip(
            span, f"{count_text(count, 'change')} of accounts whose balance before is not known"
        )
    ledger.changes += changes - count


def _text(wrong: pd.DataFrame) -> str:
    """Return the first changes that the ledger has otherwise, in words."""
    said = []
    for row in wrong.astype(dict.fromkeys(ACCOUNT_KEY, "str")).to_dict("records"):
        account = ", ".join(f"{name} {row[name]!r}" for name in ACCOUNT_KEY)
        said.append(
            f"at {moment_text(row['timestamp'])} the balance changes by {row['delta']}, but the "
            f"ledger moved {row['net']}, of {account}"
        )
    return list_text(said, sep="; ", rest="{} changes more differ")
