"""What an archive knows: the intervals that are complete, and what its files must be.

It stands in one file, which is written last: what it doesn't tell of hasn't happened. As everything
else is checked against it, it has a digest of itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import pandas as pd

from balance_analysis.archive.layout import is_period
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.schema import to_microseconds
from balance_analysis.spans import joined
from balance_analysis.text import EPOCH, exact_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from balance_analysis.known import Known
    from balance_analysis.spans import Span

VERSION: Final = 2
"""What is written. Version 1, which is read as well, has digests of whole files of rows alone."""

_DIGEST: Final = "sha256"


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
    footer
        The SHA-256 of its Parquet footer, which tells readers of a part of it whether that is what
        was written; `None` where an older release wrote the note.
    """

    rows: int
    size: int
    sha256: str
    first: int
    last: int
    footer: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LimitsNote:
    """What the file of the network's limits must be.

    Attributes
    ----------
    snapshots
        How many distinct ones it holds.
    size, sha256
        Its bytes, and the digest of its content; `None` where an older release wrote the note:
        then the file has so many snapshots at least, and may be missing where these are 0.
    """

    snapshots: int
    size: int | None = None
    sha256: str | None = None


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
        What the file of the network's limits must be; `None` where there is none.
    pending
        The file that is being replaced.
    pending_limits
        What the file of the limits is being replaced with.
    """

    intervals: tuple[Interval, ...] = ()
    files: dict[str, FileNote] = field(default_factory=dict)
    checkpoints: dict[int, FileNote] = field(default_factory=dict)
    limits: LimitsNote | None = None
    pending: Pending | None = None
    pending_limits: LimitsNote | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the archive holds nothing yet."""
        return not (self.intervals or self.files or self.snapshots or self.pending)

    @property
    def snapshots(self) -> int:
        """How many distinct snapshots of the network's limits there are."""
        return 0 if self.limits is None else self.limits.snapshots

    def notes(self, period: str) -> tuple[FileNote, ...]:
        """Return what a period's file may be: as it was noted, or as it is being replaced."""
        noted = [self.files[period]] if period in self.files else []
        if self.pending is not None and self.pending.period == period:
            noted.append(self.pending.file)
        return tuple(noted)

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


class _Wire(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the file."""


_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Interval(_Wire):
    start: _Moment
    end: _Moment
    proven: bool
    source: str
    block_height: int | None
    asked_at: str


class _File(_Wire):
    rows: _Count
    size: _Count
    sha256: _Digest
    first: _Moment
    last: _Moment
    footer: _Digest | None = None


class _Pending(_Wire):
    period: str
    file: _File
    intervals: list[_Interval]


class _Limits(_Wire):
    snapshots: _Count
    size: _Count | None
    sha256: _Digest | None


class _State(_Wire):
    version: Literal[1, 2]
    intervals: list[_Interval]
    files: dict[str, _File]
    checkpoints: dict[str, _File]
    pending: _Pending | None
    limits: _Count | _Limits | None = 0
    pending_limits: _Limits | None = None


def to_json(coverage: Coverage) -> bytes:
    """Return a state as the content of its file."""
    pending = coverage.pending
    return sealed(
        {
            "version": VERSION,
            "intervals": [_interval_out(interval) for interval in coverage.intervals],
            "files": {period: _file_out(note) for period, note in coverage.files.items()},
            "checkpoints": {
                exact_text(moment): _file_out(note) for moment, note in coverage.checkpoints.items()
            },
            "limits": coverage.limits,
            "pending": None
            if pending is None
            else {
                "period": pending.period,
                "file": _file_out(pending.file),
                "intervals": [_interval_out(interval) for interval in pending.intervals],
            },
            "pending_limits": coverage.pending_limits,
        }
    )


def sealed(content: dict[str, Any]) -> bytes:
    """Return what stands in the file: content with its own digest."""
    told = {**content, _DIGEST: _digest(content)}
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


def _digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of content as JSON with sorted keys and without blanks."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def _opened(told: dict[str, Any]) -> dict[str, Any]:
    """Return what was sealed."""
    if told["version"] != 1 and told.pop(_DIGEST, None) != _digest(told):
        raise ValueError("its own digest is of another content")
    return told


def from_json(content: bytes, name: str) -> Coverage:
    """Return the state that a file tells.

    Raises
    ------
    ArchiveError
        If it is damaged, or of a newer version.
    """
    try:
        told = msgspec.json.decode(content)
        if type(told["version"]) is int and told["version"] > VERSION:
            raise ArchiveError(
                f"{name} is of version {told['version']}, newer than this package knows "
                f"({VERSION}): update balance-analysis"
            )
        state = msgspec.convert(_opened(told), _State)
        return Coverage(
            _intervals_in(state.intervals),
            {_period_in(period): _file_in(note) for period, note in state.files.items()},
            {to_microseconds(m): _file_in(note) for m, note in state.checkpoints.items()},
            _limits_in(state.limits),
            None
            if state.pending is None
            else Pending(
                _period_in(state.pending.period),
                _file_in(state.pending.file),
                _intervals_in(state.pending.intervals),
            ),
            _limits_in(state.pending_limits),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveDamagedError(
            f"{name} is damaged ({error!r}): put back a copy of it, or rebuild it from the files "
            "with `export --repair`"
        ) from error


def _microseconds(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def _interval_out(interval: Interval) -> dict[str, Any]:
    start, end = map(exact_text, interval.span)
    return {**asdict(interval), "start": start, "end": end}


def _intervals_in(told: list[_Interval]) -> tuple[Interval, ...]:
    for each in told:
        dt.datetime.fromisoformat(each.asked_at)
    return tuple(
        Interval(
            _microseconds(each.start),
            _microseconds(each.end),
            each.proven,
            each.source,
            each.block_height,
            each.asked_at,
        )
        for each in told
    )


def _file_out(note: FileNote) -> dict[str, Any]:
    return {**asdict(note), "first": exact_text(note.first), "last": exact_text(note.last)}


def _file_in(note: _File) -> FileNote:
    ends = _microseconds(note.first), _microseconds(note.last)
    return FileNote(note.rows, note.size, note.sha256, *ends, note.footer)


def _limits_in(told: _Limits | int | None) -> LimitsNote | None:
    if isinstance(told, _Limits):
        return LimitsNote(told.snapshots, told.size, told.sha256)
    return None if told is None else LimitsNote(told)


def _period_in(name: str) -> str:
    if not is_period(name):
        raise ValueError(f"it names a period {name!r}, which is none")
    return name
