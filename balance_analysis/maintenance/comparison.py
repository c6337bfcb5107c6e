"""Compare an archive with another source of the same rows: a node, or network history segments.

A node is asked again for some windows. Segments are compared whole, and each change of a balance
with the ledger as well: it is the sum of what the ledger moved to the account less what it moved
away. Of segments a period is in memory at a time, and of the ledger nothing is kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.conservation import reconcile
from balance_analysis.archive import layout
from balance_analysis.archive.manifest import ArchiveSpec, export_command, read_about
from balance_analysis.archive.snapshot import Snapshot, read_snapshot, with_snapshot
from balance_analysis.archive.status import Kind, Problem, VerifyReport
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError, IncompleteError
from balance_analysis.files.atomic import PathLike
from balance_analysis.filters import Filters
from balance_analysis.frame import empty_table, to_arrow, to_frame
from balance_analysis.known import NOTHING_BEFORE_KEY
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, Report, check_positive, reporting
from balance_analysis.load.stream import Load
from balance_analysis.maintenance.diff import differing
from balance_analysis.node.client import Client
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    ATTRS_KEY,
    FIRST_MOMENT,
    from_microseconds,
)
from balance_analysis.segments.rows import iter_rows, read_accounts, read_flows
from balance_analysis.segments.segment import (
    Stretch,
    find_stretches,
    heights_text,
    missing_blocks,
)
from balance_analysis.spans import Span, clipped
from balance_analysis.text import (
    count_text,
    list_text,
    moment_text,
    range_text,
    without_credentials,
)

_PAGE: Final = 5000
_FILL: Final = 0.5
"""How full of rows a window's one page should be: rows don't come evenly."""

_FORGOTTEN: Final = "the node has forgotten rows of it"
_AGAIN: Final = "import the segments into a new archive if they are right"
_CONTRADICTION: Final = "the segments contradict themselves or the archive: find out what is right"


@dataclass(slots=True)
class _Comparison:
    """What was found out so far.

    Attributes
    ----------
    problems, skipped
        What differs, and what could not be compared, with the reason.
    windows, rows
        How many were compared.
    """

    store: Store
    problems: list[Problem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    windows: int = 0
    rows: int = 0

    def difference(
        self, span: Span, others: pd.DataFrame, source: str
    ) -> tuple[pd.DataFrame | None, str]:
        """Return what the archive holds of a span, if it can be read, and what differs there.

        Raises
        ------
        IncompleteError
            If the archive is not complete there.
        """
        start, end = map(from_microseconds, span)
        try:
            held = with_snapshot(self.store, lambda x: x.read(Filters(), start=start, end=end))
        except ArchiveError as error:
            return None, str(error)
        return held, "" if held.equals(others) else _difference(held, others, source)

    def skip(self, span: Span, why: str) -> None:
        self.skipped.append(f"{range_text(*span)}: {why}")

    def add(
        self, kind: Kind, what: str, span: Span, mend: str, periods: Iterable[str] = ()
    ) -> None:
        said = without_credentials(what)
        self.problems.append(Problem(kind, said, range_text(*span), mend, tuple(periods)))

    def added_to(self, report: VerifyReport) -> VerifyReport:
        return replace(
            report,
            problems=(*report.problems, *self.problems),
            windows=report.windows + self.windows,
            not_compared=(*report.not_compared, *self.skipped),
        )


def compare_with_node(
    report: VerifyReport, store: Store, client: Client, *, sample: int, seed: int | None
) -> VerifyReport:
    """Ask a node again for some windows of what is known to be complete, and compare exactly.

    Parameters
    ----------
    report
        What was found out before.
    sample, seed
        As for `Archive.verify`. One half of the windows are where rows are, the others anywhere.

    Returns
    -------
    VerifyReport
        With a problem for each window that differs, with the first rows that do. What the node has
        forgotten, or doesn't hold yet, is told in `not_compared`.
    """
    check_positive("sample", sample)
    snapshot, comparison = read_snapshot(store), _Comparison(store)
    if not snapshot.known:
        comparison.skipped.append("nothing is known to be complete")
        return comparison.added_to(report)
    first, last = snapshot.coverage.bounds()
    retention_start = _retention_start(client, first, last)
    if retention_start > first:
        comparison.skip((first, min(retention_start, last)), _FORGOTTEN)
    spans = list(clipped(snapshot.known, retention_start, last))
    rng = random.Random(seed)  # noqa: S311 - nobody is to be kept from guessing
    for window in _windows(snapshot, spans, sample, rng):
        _compare_window(comparison, snapshot.about, client, window)
    return comparison.added_to(report)


def _compare_window(
    comparison: _Comparison, about: ArchiveSpec, client: Client, window: Span
) -> None:
    load = Load(LoadRequest(*window, about.filters, _PAGE, 1, "quarantine"))
    with NodePool(client, "quarantine") as pool:
        batches = [batch for step in load.steps(pool) for batch in step.batches]
    if load.evidence.latest_block.lags(window[1] - 1):  # a finished last block ends what is covered
        return comparison.skip(window, "the node doesn't hold all of it yet")
    if load.evidence.incomplete:
        return comparison.skip(window, "the node says that it may lack rows of it")
    loaded = to_frame(pa.Table.from_batches(batches, ARROW_SCHEMA))
    _, said = comparison.difference(window, loaded, "the node")
    if said and _retention_start(client, *window) > window[0]:
        return comparison.skip(window, _FORGOTTEN)
    comparison.windows += 1
    if said:
        since, until = map(moment_text, window)
        options = ("--repair", "--since", since, "--until", until)
        mend = export_command(comparison.store, *options, url=client.base_url)
        periods = layout.periods_between(*window, about.partition)
        comparison.add("difference", said, window, mend, periods)
    return None


def _retention_start(client: Client, start: int, end: int) -> int:
    return NodePool(client, "quarantine").best_retention_start(start, end)


def _windows(
    snapshot: Snapshot, spans: list[Span], sample: int, rng: random.Random
) -> Iterator[Span]:
    """Yield random windows inside spans, about half a page of rows each."""
    files, partition = snapshot.coverage.files, snapshot.about.partition
    inside = {
        period: found
        for period, note in files.items()
        if (found := list(clipped(spans, note.first, note.last + 1)))
    }
    weights = [files[period].rows for period in inside]
    for number in range(sample if spans else 0):
        chosen = spans
        if number % 2 == 0 and inside:
            chosen = inside[rng.choices(list(inside), weights)[0]]
        moment = rng.randrange(*rng.choices(chosen, [end - start for start, end in chosen])[0])
        period = layout.period_of(moment, partition)
        begin, stop = layout.period_bounds(period, partition)
        rows = files[period].rows if period in files else 0
        width = int((stop - begin) * min(1.0, _PAGE * _FILL / max(rows, 1)))
        yield next(clipped(spans, moment, min(moment + max(width, 1), stop)))


def compare_with_segments(
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
    stretches, about, comparison = find_stretches(paths), read_about(store), _Comparison(store)
    for gap in missing_blocks(stretches):
        comparison.skipped.append(f"blocks {heights_text([gap])}: no segment has them")
    total, done = sum(len(stretch.segments) for stretch in stretches), 0
    with reporting(progress) as show:
        for stretch in stretches:
            opening = _nothing_before() if stretch.is_from_first else None
            for count, span, rows, flows in _periods(stretch, about):
                opening = _compare_period(comparison, span, rows, flows, opening)
                done += count
                show(done / total, comparison.rows)
    return comparison.added_to(report)


def _nothing_before() -> pd.DataFrame:
    """Return the opening of what begins with the network's first block."""
    opening = held_at(empty_table(), from_microseconds(FIRST_MOMENT))
    opening.attrs[ATTRS_KEY] = {NOTHING_BEFORE_KEY: True}
    return opening


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

    for segment, found in iter_rows(stretch.segments, about.filters):
        begins = layout.period_of(int(found.times[0]), about.partition)
        if rows and begins != period:
            yield whole()
            rows, flows = [], []
        if not rows:
            start, period = end or int(found.times[0]), begins
        end = int(found.times[-1]) + 1
        rows.append(found.rows)
        flows.append(read_flows(segment, accounts))
    yield whole()


def _compare_period(
    comparison: _Comparison,
    span: Span,
    rows: pd.DataFrame,
    flows: pd.DataFrame,
    opening: pd.DataFrame | None,
) -> pd.DataFrame | None:
    """Compare a stretch of time that begins where the one before ends.

    Returns
    -------
    pandas.DataFrame or None
        What accounts hold at its end: the opening of the next one. `None` where that is not known.
    """
    try:
        held, said = comparison.difference(span, rows, "the segments")
    except IncompleteError:
        comparison.skip(span, "the archive is not complete there")
        return None
    if said:
        comparison.add("difference", said, span, _AGAIN)
    if held is None:
        return None
    comparison.windows += 1
    comparison.rows += len(held)
    if opening is None:
        before = from_microseconds(span[0] - 1)
        opening = with_snapshot(
            comparison.store, lambda x: x.balance_at(Filters(), before, partial=True)
        )
    try:
        wrong = reconcile(held, flows, opening=opening)
    except OverflowError as error:
        comparison.add("ledger", str(error), span, _CONTRADICTION)
        return None
    if len(wrong):
        comparison.add("ledger", _ledger_text(wrong), span, _CONTRADICTION)
    if count := wrong.attrs[ATTRS_KEY]["not_compared"]:
        changes = count_text(count, "change")
        comparison.skip(span, f"{changes} of accounts whose balance before is not known")
    return held_at(held, from_microseconds(span[1] - 1), opening=opening)


def _difference(held: pd.DataFrame, others: pd.DataFrame, source: str) -> str:
    """Return what differs between an archive's table and another; nothing where they are equal."""
    rows = differing(to_arrow(held), to_arrow(others)).sort_by("timestamp").to_pylist()
    said = [
        f"at {moment_text(row['timestamp'])} the archive has {ours}, {source} {theirs} of "
        f"{_account_text([row[name] for name in ACCOUNT_KEY])}"
        for row in rows
        for ours, theirs in [_balances_text(row)]
    ]
    return list_text(said, sep="; ", rest="{} rows more differ")


def _balances_text(row: dict[str, Any]) -> list[str]:
    balances = (row[name] for name in ("balance", "other_balance"))
    return ["no row" if each is None else str(each) for each in balances]


def _ledger_text(wrong: pd.DataFrame) -> str:
    """Return the first changes that the ledger has otherwise."""
    rows = wrong.astype(dict.fromkeys(ACCOUNT_KEY, "str")).to_dict("records")
    said = [
        f"at {moment_text(row['timestamp'])} the balance changes by {row['delta']}, but the ledger "
        f"moved {row['net']}, of {_account_text([row[name] for name in ACCOUNT_KEY])}"
        for row in rows
    ]
    return list_text(said, sep="; ", rest="{} changes more differ")


def _account_text(ids: Sequence[str]) -> str:
    return ", ".join(f"{name} {each!r}" for name, each in zip(ACCOUNT_KEY, ids, strict=True))
