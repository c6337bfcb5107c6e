"""What an archive knows: the intervals that are complete, and what its files must be.

It stands in one file, which is written last: what it doesn't tell of hasn't happened.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.archive.layout import is_period
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.schema import from_microseconds, to_microseconds
from balance_analysis.spans import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from balance_analysis.known import Known
    from balance_analysis.spans import Span

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time that was asked for, all of it.

    Attributes
    ----------
    start, end
        Half-open, microseconds since 1970-01-01 UTC.
    proven
        Whether it is complete. If not, the node may have forgotten rows before it was asked.
    source
        The node that was asked.
    block_height
        The last block that it held; `None` where it didn't say.
    asked_at
        When it was asked, ISO 8601 in UTC.
    """

    start: int
    end: int
    proven: bool
    source: str
    block_height: int | None
    asked_at: str

    @property
    def span(self) -> Span:
        """Its bounds."""
        return self.start, self.end

    def joins(self, other: Interval) -> bool:
        """Whether another, later interval goes on where this one ends, in the same way."""
        same = (self.proven, self.source) == (other.proven, other.source)
        return self.end == other.start and same


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a file must be.

    Attributes
    ----------
    rows
        How many it holds.
    size
        Its bytes.
    sha256
        Of its content.
    first, last
        The timestamps of its first and last row, microseconds.
    """

    rows: int
    size: int
    sha256: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A file that is about to be replaced, with what will hold from then on.

    Attributes
    ----------
    period
        Whose file it is.
    file
        What it will be.
    intervals
        The coverage then.
    """

    period: str
    file: FileNote
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The state of an archive.

    Attributes
    ----------
    intervals
        What was asked for, ascending, without overlap.
    files
        For each period that has rows, what its file must be.
    checkpoints
        For each month's start, in microseconds, what the file of its balances must be.
    limits
        How many distinct snapshots of the network's limits there are at least.
    pending
        The file that is being replaced.
    """

    intervals: tuple[Interval, ...] = ()
    files: dict[str, FileNote] = field(default_factory=dict)
    checkpoints: dict[int, FileNote] = field(default_factory=dict)
    limits: int = 0
    pending: Pending | None = None

    def announce(self, period: str, file: FileNote, intervals: Sequence[Interval]) -> Coverage:
        """Return this state, about to hold a file and intervals."""
        return replace(self, pending=Pending(period, file, self.covers(intervals).intervals))

    def settle(self) -> Coverage:
        """Return the state after the pending file has been replaced."""
        if self.pending is None:
            return self
        files = {**self.files, self.pending.period: self.pending.file}
        return replace(
            self,
            intervals=self.pending.intervals,
            files=dict(sorted(files.items())),
            pending=None,
        )

    def covers(self, intervals: Sequence[Interval]) -> Coverage:
        """Return this state with intervals that take the place of what they overlap.

        What is proven stays so: an unproven interval only fills what isn't.
        """
        covered = self.intervals
        for interval in intervals:
            parts = [(interval.start, interval.end)]
            if not interval.proven:
                known = replace(self, intervals=covered)
                parts = known.missing(interval.start, interval.end)
            for start, end in parts:
                covered = covered_by(covered, replace(interval, start=start, end=end))
        return replace(self, intervals=covered)

    def missing(self, start: int, end: int, *, proven: bool = True) -> list[Span]:
        """Return the parts of [start, end) that are not covered, or not proven to be complete."""
        gaps = []
        for interval in self.intervals:
            if interval.end <= start or (proven and not interval.proven):
                continue
            if interval.start >= end:
                break
            if start < interval.start:
                gaps.append((start, interval.start))
            start = interval.end
        return [*gaps, (start, end)] if start < end else gaps

    def known(self) -> Known:
        """Return the intervals that are proven to be complete."""
        return tuple(joined(each.span for each in self.intervals if each.proven))

    def bounds(self, *, proven: bool = True) -> Span:
        """Return where the first interval, or proven one, begins and the last ends; else 0, 0."""
        known = [interval for interval in self.intervals if interval.proven or not proven]
        return (known[0].start, known[-1].end) if known else (0, 0)

    def to_frame(self) -> pd.DataFrame:
        """Return the intervals, gaps between them included: see `Archive.coverage`."""
        rows: list[dict[str, Any]] = []
        end: int | None = None
        for interval in self.intervals:
            if end is not None and end < interval.start:
                rows.append({"start": end, "end": interval.start, "state": "gap"})
            state = "complete" if interval.proven else "unproven"
            rows.append({**asdict(interval), "state": state})
            end = interval.end
        names = ["start", "end", "state", "source", "block_height", "asked_at"]
        frame = pd.DataFrame(rows, columns=names)
        moments = {
            name: pd.to_datetime(frame[name].astype("int64"), unit="us", utc=True).dt.as_unit("us")
            for name in ("start", "end")
        }
        asked = pd.to_datetime(frame["asked_at"].astype("str"), utc=True, format="ISO8601")
        return frame.assign(
            **moments,
            state=pd.Categorical(frame["state"], ["complete", "unproven", "gap"]),
            source=frame["source"].astype("str"),
            block_height=frame["block_height"].astype("Int64"),
            asked_at=asked.dt.as_unit("us"),
        )


def covered_by(intervals: tuple[Interval, ...], new: Interval) -> tuple[Interval, ...]:
    """Return intervals with a new one, which takes the place of what it overlaps."""
    kept: list[Interval] = []
    for old in intervals:
        if old.start < new.start:
            kept.append(replace(old, end=min(old.end, new.start)))
        if old.end > new.end:
            kept.append(replace(old, start=max(old.start, new.end)))
    joined: list[Interval] = []
    for interval in sorted([*kept, new], key=lambda each: each.start):
        if joined and joined[-1].joins(interval):
            joined.append(_join(joined.pop(), interval))
        elif interval.start < interval.end:
            joined.append(interval)
    return tuple(joined)


def _join(before: Interval, after: Interval) -> Interval:
    heights = [each.block_height for each in (before, after) if each.block_height is not None]
    return replace(
        after,
        start=before.start,
        block_height=max(heights, default=None),
        asked_at=max(before.asked_at, after.asked_at),
    )


def to_json(coverage: Coverage) -> bytes:
    """Return a state as the content of its file."""
    content = {
        "version": VERSION,
        "intervals": [_interval_out(interval) for interval in coverage.intervals],
        "files": {period: _file_out(note) for period, note in coverage.files.items()},
        "checkpoints": {
            _iso(moment): _file_out(note) for moment, note in coverage.checkpoints.items()
        },
        "limits": coverage.limits,
        "pending": None
        if coverage.pending is None
        else {
            "period": coverage.pending.period,
            "file": _file_out(coverage.pending.file),
            "intervals": [_interval_out(interval) for interval in coverage.pending.intervals],
        },
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def from_json(content: bytes, name: str) -> Coverage:
    """Return the state that a file tells.

    Raises
    ------
    ArchiveError
        If it is damaged, or of a newer version.
    """
    try:
        state = json.loads(content)
        if state["version"] > VERSION:
            raise ArchiveError(
                f"{name} is of version {state['version']}, newer than this package knows "
                f"({VERSION}): update balance-analysis"
            )
        pending = state["pending"]
        return Coverage(
            tuple(map(_interval_in, state["intervals"])),
            {_period_in(name): _file_in(note) for name, note in state["files"].items()},
            {to_microseconds(m): _file_in(note) for m, note in state["checkpoints"].items()},
            int(state.get("limits", 0)),
            pending
            and Pending(
                pending["period"],
                _file_in(pending["file"]),
                tuple(map(_interval_in, pending["intervals"])),
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveDamagedError(
            f"{name} is damaged ({error!r}): put back a copy of it, or rebuild it from the files "
            "with `export --repair`"
        ) from error


def _iso(moment: int) -> str:
    return from_microseconds(moment).isoformat(timespec="microseconds")


def _interval_out(interval: Interval) -> dict[str, Any]:
    return {**asdict(interval), "start": _iso(interval.start), "end": _iso(interval.end)}


def _interval_in(content: dict[str, Any]) -> Interval:
    moments = {name: to_microseconds(content[name]) for name in ("start", "end")}
    return Interval(**{**content, **moments})


def _file_out(note: FileNote) -> dict[str, Any]:
    return {**asdict(note), "first": _iso(note.first), "last": _iso(note.last)}


def _file_in(content: dict[str, Any]) -> FileNote:
    moments = {name: to_microseconds(content[name]) for name in ("first", "last")}
    return FileNote(**{**content, **moments})


def _period_in(name: str) -> str:
    if not is_period(name):
        raise ValueError(f"it names a period {name!r}, which is none")
    return name
