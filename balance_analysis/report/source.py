"""What a report is made of: the rows of an archive or a table, and how complete they are."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.checks import check_table, to_table
from balance_analysis.archive import layout
from balance_analysis.archive.archive import Archive
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.errors import CheckError
from balance_analysis.known import known_of
from balance_analysis.redact import without_credentials
from balance_analysis.report.tables import write_moment
from balance_analysis.schema import ATTRS_KEY, from_microseconds, to_microseconds
from balance_analysis.spans import between, clipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.schema import Instant

_MICROSECOND: Final = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Hole:
    """A part of the report's interval that is not known to be complete.

    Attributes
    ----------
    start, end
        Half-open, UTC.
    state
        "gap", nobody asked for it; "unproven", the node may have forgotten rows of it; or, of a
        table, "unknown".
    """

    start: dt.datetime
    end: dt.datetime
    state: str


@dataclass(frozen=True, slots=True)
class Digest:
    """What tells a file of an archive from any other.

    Attributes
    ----------
    name
        The file, inside the archive.
    rows
        How many it holds; `None` where it holds none.
    size
        Its bytes.
    sha256
        Of its content.
    """

    name: str
    rows: int | None
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """What a report is made of.

    Attributes
    ----------
    name
        What it is called.
    table
        Its balance changes in [start, end).
    opening
        What accounts held before `start`, as `balance_at` takes it; `None` where no row is there.
    start, end
        The interval, half-open, UTC; `None` where there is neither a row nor a bound.
    facts
        What is known of where the rows come from: names and texts.
    is_proven
        Whether something shows that no row of the interval is missing: an archive or a load does.
    holes
        Where it doesn't.
    checked
        What was checked, in words.
    problems
        What is wrong, in words; nothing where all checks held.
    coverage
        As of `Archive.coverage`; `None` of a table.
    limits
        As of `Archive.limits`; `None` of a table.
    digests
        Of the archive's files.
    """

    name: str
    table: pd.DataFrame
    opening: pd.DataFrame | None
    start: dt.datetime | None
    end: dt.datetime | None
    facts: tuple[tuple[str, str], ...]
    is_proven: bool
    checked: str
    problems: tuple[str, ...]
    holes: tuple[Hole, ...] = ()
    coverage: pd.DataFrame | None = None
    limits: pd.DataFrame | None = None
    digests: tuple[Digest, ...] = field(default=())

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the interval are known to be there, and no check failed."""
        return self.is_proven and not self.holes and not self.problems


def read_source(
    source: Archive | pd.DataFrame, *, start: Instant | None, end: Instant | None
) -> Source:
    """Read what a report is made of: see `write_report`."""
    begin = None if start is None else from_microseconds(to_microseconds(start))
    stop = None if end is None else from_microseconds(to_microseconds(end))
    if isinstance(source, Archive):
        return _of_archive(source, begin, stop)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, begin, stop)
    raise TypeError(f"a report is of an Archive or a table, not {type(source).__name__}")


def _of_archive(archive: Archive, start: dt.datetime | None, end: dt.datetime | None) -> Source:
    state, coverage = read_coverage(archive.store), archive.coverage()
    first = None if coverage.empty else coverage["start"].iloc[0].to_pydatetime()
    last = None if coverage.empty else coverage["end"].iloc[-1].to_pydatetime()
    begin, stop = _interval(start or first, end or last)
    table = archive.read(start=begin, end=stop, partial=True)
    opening = None
    if begin is not None and first is not None and first < begin:
        opening = archive.opening_balances(at=begin, partial=True)
    verified = archive.verify()
    problems = tuple(
        f"{problem.where}: {problem.what}; {problem.mend}" for problem in verified.problems
    )
    return Source(
        name=without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "an archive",
        table=table,
        opening=opening,
        start=begin,
        end=stop,
        facts=tuple(_facts_of(archive, state)),
        is_proven=begin is not None,
        checked=(
            f"the whole archive was read and compared with what it says of itself: "
            f"{verified.files:,} files with {verified.rows:,} rows, and its checkpoints"
        ),
        problems=problems,
        holes=() if begin is None or stop is None else tuple(_holes(state, begin, stop)),
        coverage=coverage,
        limits=archive.limits(),
        digests=tuple(_digests(archive)),
    )


def _interval(
    start: dt.datetime | None, end: dt.datetime | None
) -> tuple[dt.datetime, dt.datetime] | tuple[None, None]:
    """Return the interval of a report; none where one of its ends is not known.

    Raises
    ------
    ValueError
        If it is turned round.
    """
    if start is None or end is None:
        return None, None
    if start >= end:
        raise ValueError(
            f"a report must start before it ends, but it would be from {start} to {end}"
        )
    return start, end


def _facts_of(archive: Archive, state: Coverage) -> Iterator[tuple[str, str]]:
    yield "archive", without_credentials(archive.uri)
    yield "holds", read_about(archive.store).describe()
    if not state.intervals:
        yield "filled", "never"
        return
    last = max(state.intervals, key=lambda interval: interval.asked_at)
    yield "source", without_credentials(last.source)
    yield "last asked", f"{write_moment(last.asked_at)} UTC"
    if last.block_height is not None:
        yield "last block", f"{last.block_height:,}"


def _holes(state: Coverage, start: dt.datetime, end: dt.datetime) -> Iterator[Hole]:
    """Yield what is not known to be complete of an interval, in time order."""
    begin, stop = to_microseconds(start), to_microseconds(end)
    holes = [(*gap, "gap") for gap in state.missing(begin, stop, proven=False)]
    unproven = (interval.span for interval in state.intervals if not interval.proven)
    holes += [(*span, "unproven") for span in clipped(unproven, begin, stop)]
    for first, last, kind in sorted(holes):
        yield Hole(from_microseconds(first), from_microseconds(last), kind)


def _digests(archive: Archive) -> Iterator[Digest]:
    content = archive.store.read(layout.COVERAGE) or b""
    yield Digest(layout.COVERAGE, None, len(content), hashlib.sha256(content).hexdigest())
    state, about = read_coverage(archive.store), read_about(archive.store)
    for period, note in state.files.items():
        name = layout.changes_file(period, about.partition)
        yield Digest(name, note.rows, note.size, note.sha256)
    for moment, note in state.checkpoints.items():
        yield Digest(layout.checkpoint_file(moment), note.rows, note.size, note.sha256)


def _of_table(data: pd.DataFrame, start: dt.datetime | None, end: dt.datetime | None) -> Source:
    table = to_table(data)
    load = _load_of(data)
    first, last = _extent(table, load)
    begin, stop = _interval(start or first, end or last)
    inside, opening = table, None
    if begin is not None and stop is not None:
        is_before = table["timestamp"] < begin
        inside = table[~is_before & (table["timestamp"] < stop)].reset_index(drop=True)
        if is_before.any():
            opening = balance_at(table[is_before], begin - _MICROSECOND)
    known = known_of(table)
    holes: list[Hole] = []
    if known is not None and begin is not None and stop is not None:
        spans = between(known, to_microseconds(begin), to_microseconds(stop))
        holes = [Hole(from_microseconds(a), from_microseconds(b), "unknown") for a, b in spans]
    problems = tuple(_broken_rules(table))
    return Source(
        name="a table of balance changes",
        table=to_table(inside),
        opening=opening,
        start=begin,
        end=stop,
        facts=tuple(_facts_of_load(load)),
        is_proven=known is not None and not data.attrs[ATTRS_KEY].get("quarantined"),
        checked="every rule of a table of balance changes was checked",
        problems=problems,
        holes=tuple(holes),
    )


def _load_of(data: pd.DataFrame) -> dict[str, Any]:
    """Return how a table was loaded, if it is still the whole of that load."""
    load = data.attrs.get(ATTRS_KEY)
    if not isinstance(load, dict) or load.get("rows") != len(data):
        return {}
    return load


def _extent(
    table: pd.DataFrame, load: dict[str, Any]
) -> tuple[dt.datetime | None, dt.datetime | None]:
    if load.get("start") and load.get("end"):
        return tuple(from_microseconds(to_microseconds(load[name])) for name in ("start", "end"))  # type: ignore[return-value]
    bounds = [bound for span in known_of(table) or () for bound in span]
    if not table.empty:
        bounds += [to_microseconds(moment) for moment in table["timestamp"].agg(["min", "max"])]
        bounds[-1] += 1
    if not bounds:
        return None, None
    return from_microseconds(min(bounds)), from_microseconds(max(bounds))


def _broken_rules(table: pd.DataFrame) -> Iterator[str]:
    try:
        check_table(table)
    except CheckError as error:
        yield str(error)


def _facts_of_load(load: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not load:
        yield "source", "not known: the table doesn't tell how it was loaded"
        return
    yield "source", without_credentials(str(load.get("source")))
    if load.get("filters"):
        yield "holds", "; ".join(f"{name} {value}" for name, value in load["filters"])
    if load.get("block_height") is not None:
        yield "last block", f"{load['block_height']:,}"
    if load.get("quarantined"):
        yield "bad rows", f"{len(load['quarantined']):,} were put aside and are missing here"
