"""Mend an archive: ask again for the periods whose files are damaged.

What a damaged file still holds is not trusted: its period is asked for anew, all of what the
coverage says was asked for, and its file is replaced whole. Where that gives the very bytes that
were written once, nothing else changes.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive import layout
from balance_analysis.archive.commit import Writer, uninterrupted
from balance_analysis.archive.coverage import covered_by
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import read_about
from balance_analysis.archive.runs import Run, iter_reports, reported
from balance_analysis.archive.verify import LOST, verify_archive
from balance_analysis.archive.verify_files import EMPTY
from balance_analysis.errors import ArchiveError, NetworkMismatchError
from balance_analysis.frame import to_frame
from balance_analysis.ingest.continuity import Witness
from balance_analysis.ingest.periods import Filling, make_part
from balance_analysis.ingest.rebuild import rebuild_coverage
from balance_analysis.load.request import make_request
from balance_analysis.load.stream import Load
from balance_analysis.schema import ARROW_SCHEMA, from_microseconds
from balance_analysis.spans import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.coverage import Interval
    from balance_analysis.archive.runs import RunReport
    from balance_analysis.archive.store import Store
    from balance_analysis.archive.verify_report import VerifyReport
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client
    from balance_analysis.node.decode import BadRow
    from balance_analysis.node.walk import Step
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

logger = logging.getLogger("balance_analysis")

_NEIGHBOURS: Final = 3
"""How many sound files are compared with a node, to see whether it is of the same network."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did.

    Attributes
    ----------
    periods
        Those that were asked for again and are whole now.
    rewritten
        Those of them whose file was put in its place anew.
    changed
        Those of these whose rows are others now than the coverage said.
    bad_rows
        Rows that the table can't hold, kept aside.
    is_rebuilt
        Whether the coverage was lost and is made anew from the files: unproven, all of it.
    left
        What is wrong with the archive still; strangers are never deleted.
    """

    periods: tuple[str, ...]
    rewritten: tuple[str, ...]
    changed: tuple[str, ...]
    bad_rows: tuple[BadRow, ...]
    is_rebuilt: bool
    left: VerifyReport


def repair(
    client: Client,
    archive: Archive,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    page_size: int = 5000,
    workers: int = 4,
    on_report: Callable[[RunReport], object] | None = None,
) -> Repaired:
    """Mend what `Archive.verify` finds wrong, with the help of a node.

    The periods of files that are damaged, missing or wrong are asked for again, and those whose
    coverage contradicts itself; checkpoints are made anew from sound files, a lost timeline of the
    limits from the reports of the runs, and a lost coverage from the files: then all is unproven,
    until `export` fills gaps. Files that are no part of the archive stay.

    Parameters
    ----------
    client
        The node, or several nodes of one network.
    archive
        The archive.
    start, end
        Ask again for the periods in this interval too, sound or not: for what differs from a node.
    page_size, workers
        As for `load_balance_changes`.
    on_report
        As for `export`.

    Returns
    -------
    Repaired
        What was mended, and what is left.

    Raises
    ------
    ArchiveError
        If there is no archive, or the node has forgotten, doesn't hold yet, or is of another
        network than (NetworkMismatchError), what would have to be asked for: then the period's file
        stays as it is. A node that has forgotten one of them is asked for none.
    ArchiveLockedError
        If another run is writing to the archive.
    RequestError, DecodeError, IncompleteError, CheckError
        As `load_balance_changes`. What was mended before stays.
    ValueError
        If `start` is not before `end`.
    OSError
        If a file can't be written.
    """
    store, run = archive.store, Run()
    request = make_request(
        start=start, end=end, page_size=page_size, workers=workers, on_bad_rows="quarantine"
    )
    request = replace(request, filters=read_about(store).filters)
    wanted = (0, 0) if start is None and end is None else (request.start or 0, request.end)
    with one_writer(store):
        is_rebuilt = rebuild_coverage(store)
        writer = Writer(store)
        with reported(store, writer, run, on_report, kind="repair"):
            writer.recover()
            look = partial(verify_archive, store, is_writer=True)
            found = look()
            if any(problem.kind == "limits" for problem in found.problems):
                _restore_limits(store, writer)
            with contextlib.closing(Witness(client, request, run)) as witness:
                mending = _Mending(store, writer, run, request, witness)
                periods = mending.mend_all(found, wanted)
            left = look() if periods or not found.is_whole else found
            if _make_checkpoints(writer, left):
                left = look()
    return Repaired(
        tuple(periods),
        tuple(mending.rewritten),
        tuple(mending.changed),
        tuple(run.bad_rows),
        is_rebuilt,
        left,
    )


def _restore_limits(store: Store, writer: Writer) -> None:
    """Make the timeline of the limits anew from what the runs have reported."""
    runs = sorted(iter_reports(store), key=lambda report: report.id)
    known = writer.state.snapshots
    writer.restore_limits([report.limits for report in runs if report.limits is not None])
    if writer.state.snapshots < known:
        logger.warning(
            "the reports of the runs tell %s of %s snapshots", writer.state.snapshots, known
        )


@dataclass(slots=True)
class _Mending:
    """Periods being asked for again.

    Attributes
    ----------
    store, writer, run
        The archive, and what is reported.
    request
        What to ask for.
    witness
        The node, and what tells whether it is of the archive's network.
    claims
        Its intervals, in order.
    damaged, doubted
        The periods whose files are wrong, and those whose coverage is.
    rewritten, changed
        The periods whose file was put in its place anew, and those that came out otherwise.
    """

    store: Store
    writer: Writer
    run: Run
    request: LoadRequest
    witness: Witness
    claims: tuple[Interval, ...] = ()
    damaged: set[str] = field(default_factory=set)
    doubted: set[str] = field(default_factory=set)
    rewritten: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def mend_all(self, found: VerifyReport, wanted: Span) -> list[str]:
        """Ask for all periods again that are wrong or wanted, and return them."""
        periods = self.periods(found, wanted)
        if periods:
            self.check_remembered(periods)
        self.doubt(found)
        for period in periods:
            self.mend(period)
        return periods

    def periods(self, found: VerifyReport, wanted: Span) -> list[str]:
        """Return the periods to ask for again, in time order."""
        for problem in found.problems:
            if problem.kind == "coverage" and problem.mend == LOST:
                raise ArchiveError(f"{self.store.uri}/{problem.where} {problem.what}: {LOST}")
            known = self.doubted if problem.kind == "coverage" else self.damaged
            known.update(problem.periods)
        self.claims = _in_order(self.writer.state.intervals)
        periods = self.damaged | self.doubted
        for span in clipped((claim.span for claim in self.claims), *wanted):
            periods |= set(layout.periods_between(*span, self.writer.about.partition))
        return [period for period in sorted(periods) if self._claims(period)]

    def check_remembered(self, periods: list[str]) -> None:
        """Raise if the node has forgotten what would have to be asked for.

        Raises
        ------
        ArchiveError
            With the first such period.
        """
        needs = {period: self._needs(period) for period in periods}
        since, until = min(start for start, _ in needs.values()), max(e for _, e in needs.values())
        remembered = self.witness.asking.remembered(since, until) if since < until else since
        forgotten = [period for period in periods if needs[period][0] < remembered]
        if forgotten:
            more = f" (and {len(forgotten) - 1} more)" if len(forgotten) > 1 else ""
            raise ArchiveError(
                f"{self.store.uri}: {forgotten[0]}{more} can't be asked for again: "
                f"{self.witness.asking.client.base_urls[0]} remembers only what is since "
                f"{from_microseconds(remembered).isoformat()}; ask a node that remembers "
                "more, or put back a copy of the file"
            )

    def doubt(self, found: VerifyReport) -> None:
        """Put a coverage that contradicts itself in order, unproven where it does."""
        if not any(problem.kind == "coverage" for problem in found.problems):
            return
        claims = [claim for period in self.doubted for claim in self._claims(period)]
        unproven = [replace(claim, proven=False) for claim in claims]
        state, intervals = self.writer.state, _in_order((*self.claims, *unproven))
        files = dict(sorted(state.files.items()))
        self.writer.amend(replace(state, intervals=intervals, files=files))

    def mend(self, period: str) -> None:
        """Ask for a period again and put its rows in place, as an export does."""
        claims, is_damaged = self._claims(period), period in self.damaged
        steps = [step for claim in claims for step in self._ask(period, claim)]
        rows = pa.Table.from_batches([b for step in steps for b in step.batches], ARROW_SCHEMA)
        # What a wrong file holds is not trusted: these are all of its rows, and none is new.
        part, content = make_part(EMPTY, rows, claims[0].start, claims[-1].end)
        note, part = self.writer.state.files.get(period), replace(part, added=0)
        if part.note != note:
            self._check_network(period, rows)
            # A node that prunes may have done so since it was asked what it remembers.
            self.check_remembered([period])
            self.changed.append(period)
            logger.warning("%s has other rows than were written", self._name(period))
        if part.note != note or is_damaged:
            self.rewritten.append(period)
        unproven = [claim.span for claim in claims if not claim.proven]
        filling = Filling(
            self.store, self.writer, self.run, self.witness, part.start, doubted=unproven
        )
        for step in steps:
            filling.note(step)
        self.run.source, self.run.block_height = steps[-1].address, steps[-1].block_height
        if part.note == note and is_damaged and content:
            with uninterrupted():
                self.store.write(self._name(period), content)
        if part.note != note or period in self.doubted:
            filling.take(part, lambda name: self.store.write(name, content))
            filling.finish()
        for claim in claims:
            self.run.commits(*claim.span)
        logger.info("%s is whole again", self._name(period))

    def _name(self, period: str) -> str:
        return layout.changes_file(period, self.writer.about.partition)

    def _refusal(
        self, period: str, why: str, kind: type[ArchiveError] = ArchiveError
    ) -> ArchiveError:
        node = self.witness.asking.client.base_urls[0]
        return kind(f"{self.store.uri}: {period} stays as it is: {node} {why}")

    def _claims(self, period: str) -> list[Interval]:
        """Return what the coverage says of a period, in time order."""
        begin, stop = layout.bounds_of(period, self.writer.about.partition)
        parts = [
            replace(claim, start=max(begin, claim.start), end=min(stop, claim.end))
            for claim in self.claims
        ]
        return [part for part in parts if part.start < part.end]

    def _needs(self, period: str) -> Span:
        """Return from when on a node must remember a period, and the end of what is covered."""
        claims = self._claims(period)
        starts = [claim.start for claim in claims if claim.proven]
        note = self.writer.state.files.get(period)
        if note is not None:
            starts += [note.first for claim in claims if claim.start <= note.first < claim.end]
        return min(starts, default=claims[-1].end), claims[-1].end

    def _ask(self, period: str, claim: Interval) -> list[Step]:
        """Return what a node says now of what is claimed, in time order."""
        load = Load(replace(self.request, start=claim.start, end=claim.end), is_part=True)
        try:
            steps = list(load.run_in_time_order(self.witness.asking.client, progress=False))
        finally:
            self.run.requests += int(load.cost.get("requests", 0))
        if load.head.lags(claim.end - 1):  # a finished last block ends what is covered
            raise self._refusal(period, "doesn't hold all of it yet")
        if load.incomplete and claim.proven:
            raise self._refusal(period, "says itself that it may lack rows of it")
        self.run.spans.append(claim.span)
        return steps

    def _check_network(self, period: str, rows: pa.Table) -> None:
        """Raise if the node that sent rows has none that the archive holds."""
        if not rows.num_rows and period in self.writer.state.files:
            noted = self.writer.state.files[period].rows
            why = f"sends none of its {noted} rows; it is of another network, or has lost them"
        elif any(map(self.witness.knows, self._sound_rows(period, rows))):
            return
        else:
            why = "sends no row that the archive holds; it may be of another network"
        raise self._refusal(period, why, NetworkMismatchError)

    def _sound_rows(self, period: str, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows that the archive holds, the nearest first: of the period those that came."""
        held = self._readable(period)
        is_again = to_frame(pa.concat_tables([held, rows]), sort=False).duplicated().to_numpy()
        yield rows.filter(pa.array(is_again[held.num_rows :]))
        begin = layout.bounds_of(period, self.writer.about.partition)[0]
        files = self.writer.state.files
        sound = set(files) - self.damaged - self.doubted - {period}
        nearest = sorted(sound, key=lambda each: abs(files[each].last - begin))
        yield from map(self.writer.rows_of, nearest[:_NEIGHBOURS])

    def _readable(self, period: str) -> pa.Table:
        """Return the rows that a file has as it stands; none where it can't be read."""
        try:
            with self.store.open(self._name(period)) as source:
                return pq.read_table(source).cast(ARROW_SCHEMA)
        except (pa.ArrowException, OSError, ValueError):
            return EMPTY


def _in_order(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return intervals ascending, without overlap; what one of two has unproven is so."""
    ordered: tuple[Interval, ...] = ()
    for interval in sorted(intervals, key=lambda each: (not each.proven, each.start)):
        if interval.start < interval.end:
            ordered = covered_by(ordered, interval)
    return ordered


def _make_checkpoints(writer: Writer, left: VerifyReport) -> bool:
    """Make the checkpoints that are wrong or missing anew, if all files are sound."""
    if any(problem.kind == "rows" for problem in left.problems):
        return False
    before = writer.state
    wrong = {problem.where for problem in left.problems if problem.kind == "checkpoint"}
    sound = {
        moment: note
        for moment, note in before.checkpoints.items()
        if layout.checkpoint_file(moment) not in wrong
    }
    if sound != before.checkpoints:
        writer.amend(replace(before, checkpoints=sound))
    writer.checkpoint()
    return writer.state != before or bool(wrong)
