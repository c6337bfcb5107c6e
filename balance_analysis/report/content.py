"""What a report is made of: the rows of an archive or a table, and how complete they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.checks import check_table, to_table
from balance_analysis.analysis.cuts import settled
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.archives import Archive, to_archive
from balance_analysis.errors import CheckError
from balance_analysis.files.atomic import PathLike
from balance_analysis.known import known_of, note_known
from balance_analysis.schema import (
    ATTRS_KEY,
    Instant,
    from_microseconds,
    to_bounds,
    to_microseconds,
)
from balance_analysis.spans import between, clipped
from balance_analysis.text import moment_text, without_credentials

_MICROSECOND: Final = dt.timedelta(microseconds=1)

Bound = dt.datetime | None


@dataclass(frozen=True, slots=True)
class Source:
    """What a report is made of.

    Attributes
    ----------
    table, opening
        Its balance changes in [start, end), and what accounts held before, as `balance_at` takes
        it; `None` where no row is there.
    start, end
        The interval, half-open, UTC; `None` where there is neither a row nor a bound.
    facts
        What is known of where the rows come from: names and texts.
    is_proven
        Whether something tells which rows may be missing: an archive or a load does.
    checked, problems
        What was checked, in words, and what is wrong.
    notes
        Of an archive, what its methods `coverage` and `limits` return.
    """

    name: str
    table: pd.DataFrame
    opening: pd.DataFrame | None
    start: Bound
    end: Bound
    facts: tuple[tuple[str, str], ...]
    is_proven: bool
    checked: str
    problems: tuple[str, ...]
    notes: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def gaps(self) -> list[tuple[dt.datetime, dt.datetime]]:
        """The parts of the interval that are not known to be complete, in time order."""
        known = known_of(self.table)
        if known is None or self.start is None or self.end is None:
            return []
        spans = between(known, to_microseconds(self.start), to_microseconds(self.end))
        return [(from_microseconds(first), from_microseconds(last)) for first, last in spans]


def read_source(
    source: Archive | PathLike | pd.DataFrame, *, start: Instant | None, end: Instant | None
) -> Source:
    """Read what a report is made of: see `write_report`."""
    bounds = to_bounds(start, end)
    begin, stop = (None if bound is None else from_microseconds(bound) for bound in bounds)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, begin, stop)
    archive = to_archive(source)
    return with_snapshot(archive.store, lambda now: _of_archive(archive.at(now), begin, stop))


def _of_archive(archive: Archive, start: Bound, end: Bound) -> Source:
    coverage = archive.coverage()
    first, last = coverage["start"].min(), coverage["end"].max()
    is_filled = not coverage.empty
    start = start or (first.to_pydatetime() if is_filled else None)
    end = end or (last.to_pydatetime() if is_filled else None)
    start, end = _interval(start, end)
    opening = None
    if start is not None and is_filled and first < start:
        opening = archive.opening_balances(at=start, partial=True)
    verified = archive.verify()
    return Source(
        name=without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "an archive",
        table=archive.read(start=start, end=end, partial=True),
        opening=opening,
        start=start,
        end=end,
        facts=tuple(_facts_of(archive, coverage)),
        is_proven=start is not None,
        checked=(
            f"the whole archive was read and compared with what it says of itself: "
            f"{verified.files:,} files with {verified.rows:,} rows, and its checkpoints"
        ),
        problems=tuple(f"{found.where}: {found.what}; {found.mend}" for found in verified.problems),
        notes={"coverage": coverage, "limits": archive.limits()},
    )


def _interval(start: Bound, end: Bound) -> tuple[Bound, Bound]:
    """Return the interval of a report; none where one of its ends is not known."""
    if start is None or end is None:
        return None, None
    if start >= end:
        raise ValueError(
            f"a report must start before it ends, but it would be from {start} to {end}"
        )
    return start, end


def _facts_of(archive: Archive, coverage: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield "archive", without_credentials(archive.uri)
    yield "holds", archive.snapshot().about.describe()
    asked = coverage[coverage["asked_at"].notna()]
    if asked.empty:
        yield "filled", "never"
        return
    last = asked.iloc[asked["asked_at"].argmax()]
    yield "source", without_credentials(last["source"])
    yield "last asked", moment_text(last["asked_at"])
    if pd.notna(last["block_height"]):
        yield "last block", f"{last['block_height']:,}"


def _of_table(data: pd.DataFrame, start: Bound, end: Bound) -> Source:
    table, load = settled(data), _load_of(data)
    first, last = _extent(table, load)
    start, end = _interval(start or first, end or last)
    known, inside, opening = known_of(table), table, None
    if start is not None and end is not None:
        is_before = table["timestamp"] < start
        inside = to_table(table[~is_before & (table["timestamp"] < end)].reset_index(drop=True))
        if known is not None:
            note_known(inside, clipped(known, to_microseconds(start), to_microseconds(end)))
        if is_before.any():
            opening = held_at(table[is_before], start - _MICROSECOND)
    return Source(
        name="a table of balance changes",
        table=inside,
        opening=opening,
        start=start,
        end=end,
        facts=tuple(_facts_of_load(load)),
        is_proven=bool(known) and not load.get("quarantined"),
        checked="every rule of a table of balance changes was checked",
        problems=tuple(_broken_rules(table)),
    )


def _load_of(data: pd.DataFrame) -> dict[str, Any]:
    """Return how a table was loaded, if it is still the whole of that load."""
    load = data.attrs.get(ATTRS_KEY)
    return load if isinstance(load, dict) and load.get("rows") == len(data) else {}


def _extent(table: pd.DataFrame, load: dict[str, Any]) -> tuple[Bound, Bound]:
    if load.get("start") and load.get("end"):
        bounds = [to_microseconds(load["start"]), to_microseconds(load["end"])]
    else:
        bounds = [bound for span in known_of(table) or () for bound in span]
        if not table.empty:
            first, last = table["timestamp"].min(), table["timestamp"].max()
            bounds += [to_microseconds(first), to_microseconds(last) + 1]
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
