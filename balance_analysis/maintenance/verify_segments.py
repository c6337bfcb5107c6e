"""Compare an archive with network history segments: its rows, and each change with the ledger.

A balance's change in a block is the sum of what the ledger moved to the account less what it moved
away. Of both a period is in memory at a time, and of the ledger nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.conservation import reconcile
from balance_analysis.archive import layout
from balance_analysis.archive.manifest import ArchiveSpec, read_about
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.archive.status import Kind, Problem, VerifyReport
from balance_analysis.archive.store import Store
from balance_analysis.errors import BalanceAnalysisError, IncompleteError
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import Filters
from balance_analysis.frame import empty_table, to_frame
from balance_analysis.known import NOTHING_BEFORE_KEY
from balance_analysis.load.request import Report, reporting
from balance_analysis.maintenance.verify_node import difference
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, FIRST_MOMENT, from_microseconds
from balance_analysis.segments.chain import Stretch, find_stretches, missing_blocks
from balance_analysis.segments.content import read_accounts, read_flows
from balance_analysis.segments.segment import heights_text
from balance_analysis.segments.table import iter_rows
from balance_analysis.spans import Span
from balance_analysis.text import (
    count_text,
    list_text,
    moment_text,
    range_text,
    without_credentials,
)

_AGAIN: Final = f"remove {layout.BLOCKS} from the archive and import the segments again"
_NOTHING: Final = "the segments contradict themselves or the archive: find out what is right"


def verify_segments(
    report: VerifyReport,
    store: Store,
    paths: PathLike | Iterable[PathLike],
    *,
    progress: bool | Report | None = False,
) -> VerifyReport:
    """Compare an archive with segments, exactly: its rows, and each change with the ledger.

    Parameters
    ----------
    report
        What was found out before.
    paths
        The segments, as for `read_segments`.
    progress
        As for `load_balance_changes`.

    Returns
    -------
    VerifyReport
        With a problem for each period that differs, with the first rows that do. What the archive
        doesn't hold, or of what the balance before isn't known, is told in `not_compared`.

    Raises
    ------
    DecodeError, IncompleteError, NetworkMismatchError, CheckError, FileNotFoundError
        As `read_segments`.
    """
    stretches, about = find_stretches(paths), read_about(store)
    skipped = [
        f"blocks {heights_text([gap])}: no segment has them" for gap in missing_blocks(stretches)
    ]
    comparison = _Comparison(store, [*report.problems], [*report.not_compared, *skipped])
    total, done = sum(len(stretch.segments) for stretch in stretches), 0
    with reporting(progress) as show:
        for stretch in stretches:
            comparison.begin(stretch)
            for count, span, rows, flows in _periods(stretch, about):
                comparison.compare(span, rows, flows)
                done += count
                show(done / total, comparison.rows)
    return replace(
        report,
        problems=tuple(comparison.problems),
        windows=report.windows + comparison.windows,
        not_compared=tuple(comparison.skipped),
    )


def _periods(
    stretch: Stretch, about: ArchiveSpec
) -> Iterator[tuple[int, Span, pd.DataFrame, pd.DataFrame]]:
    """Yield the segments of about a period together: how many, their time, rows and flows."""
    accounts = read_accounts(stretch.segments[-1], about.filters)
    rows, flows = list[pa.RecordBatch](), list[pa.RecordBatch]()
    start, period, end = 0, "", 0

    def whole() -> tuple[int, Span, pd.DataFrame, pd.DataFrame]:
        moved = to_frame(pa.Table.from_batches(flows), sort=False)
        table = to_frame(pa.Table.from_batches(rows))
        return len(rows), (start, end), table, moved.rename(columns={"balance": "net"})

    for segment, part in iter_rows(stretch.segments, about.filters):
        begins = layout.period_of(int(part.times[0]), about.partition)
        if rows and begins != period:
            yield whole()
            rows, flows = [], []
        if not rows:
            start, period = end or int(part.times[0]), begins
        end = int(part.times[-1]) + 1
        rows.append(part.rows)
        flows.append(read_flows(segment, accounts))
    yield whole()


class _Comparison:
    """What was found out so far, and what accounts held before what is compared next."""

    def __init__(self, store: Store, problems: list[Problem], skipped: list[str]) -> None:
        self.store, self.problems, self.skipped = store, problems, skipped
        self.opening: pd.DataFrame | None = None
        self.windows = self.rows = 0

    def begin(self, stretch: Stretch) -> None:
        """Go on with another stretch of segments."""
        self.opening = None
        if stretch.is_from_first:
            self.opening = held_at(empty_table(), from_microseconds(FIRST_MOMENT))
            self.opening.attrs[ATTRS_KEY] = {NOTHING_BEFORE_KEY: True}

    def compare(self, span: Span, rows: pd.DataFrame, flows: pd.DataFrame) -> None:
        """Compare a stretch of time, which begins where the one before ends."""
        start, end = map(from_microseconds, span)
        try:
            held = with_snapshot(self.store, lambda x: x.read(Filters(), start=start, end=end))
        except IncompleteError:
            self.skipped.append(f"{range_text(*span)}: the archive is not complete there")
            self.opening = None
            return
        except BalanceAnalysisError as error:
            self._add("difference", without_credentials(str(error)), span, _AGAIN)
            self.opening = None
            return
        self.windows += 1
        self.rows += len(held)
        if said := "" if held.equals(rows) else difference(held, rows, "the segments"):
            self._add("difference", said, span, _AGAIN)
        if self.opening is None:
            before = from_microseconds(span[0] - 1)
            self.opening = with_snapshot(
                self.store, lambda x: x.balance_at(Filters(), before, partial=True)
            )
        try:
            wrong = reconcile(held, flows, opening=self.opening)
        except OverflowError as error:
            self._add("ledger", str(error), span, _NOTHING)
            self.opening = None
            return
        if len(wrong):
            self._add("ledger", _ledger_text(wrong), span, _NOTHING)
        if count := wrong.attrs[ATTRS_KEY]["not_compared"]:
            said = f"{count_text(count, 'change')} of accounts whose balance before is not known"
            self.skipped.append(f"{range_text(*span)}: {said}")
        last = from_microseconds(span[1] - 1)
        self.opening = held_at(held, last, opening=self.opening)

    def _add(self, kind: Kind, said: str, span: Span, mend: str) -> None:
        self.problems.append(Problem(kind, said, range_text(*span), mend))


def _ledger_text(wrong: pd.DataFrame) -> str:
    """Return the first changes that the ledger has otherwise."""
    rows = wrong.astype(dict.fromkeys(ACCOUNT_KEY, "str")).to_dict("records")
    said = [
        f"at {moment_text(row['timestamp'])} the balance changes by {row['delta']}, and the ledger "
        f"moved {row['net']}, of " + ", ".join(f"{name} {row[name]!r}" for name in ACCOUNT_KEY)
        for row in rows
    ]
    return list_text(said, sep="; ", rest="{} changes more differ")
