"""What an archive knows: the intervals that are complete, and what its files must be.

It stands in one file, which is written last: what it doesn't tell of hasn't happened. As everything
else is checked against it, it has a digest of itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import msgspec
import pandas as pd

from balance_analysis.archive.layout import Partition, changes_file, is_period, period_named
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.known import Known
from balance_analysis.segments.segment import FIRST_BLOCK, blocks_of, source_text
from balance_analysis.spans import Span, between, joined
from balance_analysis.text import EPOCH, exact_text, range_text

VERSION: Final = 2
"""What is written. Version 1, which is read as well, has digests of whole files of rows alone."""

STATES: Final = ("confirmed", "complete", "unproven", "gap")
"""What can be said of a stretch of time, the best first."""

_DIGEST: Final = "sha256"
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MOMENTS: Final = {"start", "end", "first", "last"}
_IN_ALL_VERSIONS: Final = {"intervals", "files", "checkpoints", "pending"}


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time that was asked for, all of it: [start, end), microseconds.

    Where it is not `proven`, the node may have forgotten rows before it was asked, at `asked_at`
    (ISO 8601 in UTC). `block_height` is the last block that the node, `source`, held; `None` where
    it didn't say. `confirmed_by` is another source that has the same rows, if one was compared.
    """

    start: int
    end: int
    proven: bool
    source: str
    block_height: int | None
    asked_at: str
    confirmed_by: str | None = None

    @property
    def span(self) -> Span:
        """Its bounds."""
        return self.start, self.end

    @property
    def state(self) -> str:
        """What is known of it: one of `STATES`."""
        return ("confirmed" if self.confirmed_by else "complete") if self.proven else "unproven"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a file must be.

    `first` and `last` are the timestamps of its first and last row, microseconds; `footer` is the
    SHA-256 of its Parquet footer, which tells readers of a part of it whether that is what was
    written; `None` where an older release wrote the note.
    """

    rows: int
    size: int
    sha256: str
    first: int
    last: int
    footer: str | None = field(default=None, compare=False)

    def mismatch(self, content: bytes | None) -> str:
        """Return how a file's content is not what was written; nothing where it is."""
        if content is None:
            return "is missing"
        if len(content) != self.size:
            return f"is not what was written: it has {len(content)} bytes, not {self.size}"
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            return f"is not what was written: its SHA-256 is {digest}, not {self.sha256}"
        return ""


@dataclass(frozen=True, slots=True)
class LimitsNote:
    """What the file of the network's limits must be.

    Where an older release wrote the note, there are no size and digest: then the file has so many
    snapshots at least, and may be missing where these are 0.
    """

    snapshots: int
    size: int | None = None
    sha256: str | None = None

    def matches(self, content: bytes) -> bool:
        """Whether a file's content is what was written, as far as the note tells."""
        return self.sha256 in (hashlib.sha256(content).hexdigest(), None)


@dataclass(frozen=True, slots=True)
class Pending:
    """A period's file that is about to be replaced, and the coverage from then on."""

    period: str
    file: FileEntry
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The state of an archive.

    `intervals` ascend without overlap. Each period that has rows has a file, each month's start, in
    microseconds, one of its balances. What is `pending` is being replaced.
    """

    intervals: tuple[Interval, ...] = ()
    files: dict[str, FileEntry] = field(default_factory=dict)
    checkpoints: dict[int, FileEntry] = field(default_factory=dict)
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

    @property
    def limits_notes(self) -> tuple[LimitsNote, ...]:
        """What the file of the limits may be: as it was noted, or as it is being replaced."""
        return tuple(note for note in (self.limits, self.pending_limits) if note is not None)

    def notes(self, period: str) -> tuple[FileEntry, ...]:
        """Return what a period's file may be: as it was noted, or as it is being replaced."""
        noted = [self.files[period]] if period in self.files else []
        if self.pending is not None and self.pending.period == period:
            noted.append(self.pending.file)
        return tuple(noted)

    def announce(self, period: str, file: FileEntry, intervals: Sequence[Interval]) -> Coverage:
        """Return this state, about to hold a file and intervals."""
        return replace(self, pending=Pending(period, file, self.covers(intervals).intervals))

    def settle(self) -> Coverage:
        """Return the state after the pending file has been replaced."""
        if self.pending is None:
            return self
        files = dict(sorted({**self.files, self.pending.period: self.pending.file}.items()))
        return replace(self, intervals=self.pending.intervals, files=files, pending=None)

    def covers(self, intervals: Sequence[Interval]) -> Coverage:
        """Return this state with intervals that take the place of what they overlap.

        What is proven stays so: an unproven interval only fills what isn't.
        """
        covered = self.intervals
        for interval in intervals:
            spans = [interval.span]
            if not interval.proven:
                spans = between((each.span for each in covered if each.proven), *interval.span)
            for start, end in spans:
                covered = covered_by(covered, replace(interval, start=start, end=end))
        return replace(self, intervals=covered)

    @property
    def begins_with_first_block(self) -> bool:
        """Whether it begins with the network's first block, before which there was nothing."""
        first = blocks_of(self.intervals[0].source) if self.intervals else None
        return first is not None and self.intervals[0].proven and first[1] <= FIRST_BLOCK

    def missing(self, start: int, end: int, *, proven: bool = True) -> list[Span]:
        """Return the parts of [start, end) that are not covered, or not proven to be complete."""
        if self.begins_with_first_block:
            start = max(start, min(end, self.intervals[0].start))
        return between((i.span for i in self.intervals if i.proven or not proven), start, end)

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
        for interval in self.intervals:
            if rows and rows[-1]["end"] < interval.start:
                rows.append({"start": rows[-1]["end"], "end": interval.start, "state": "gap"})
            rows.append({**asdict(interval), "state": interval.state})
        names = ["start", "end", "state", "source", "block_height", "asked_at", "confirmed_by"]
        frame = pd.DataFrame(rows, columns=names)
        asked = pd.to_datetime(frame["asked_at"].astype("str"), utc=True, format="ISO8601")
        types = {
            "source": "str",
            "confirmed_by": "str",
            "block_height": "Int64",
            "start": "int64",
            "end": "int64",
        }
        moment = "datetime64[us, UTC]"
        return (
            frame.assign(
                state=pd.Categorical(frame["state"], STATES),
                asked_at=asked.dt.as_unit("us"),
            )
            .astype(types)
            .astype({"start": moment, "end": moment})
        )


def covered_by(intervals: tuple[Interval, ...], new: Interval) -> tuple[Interval, ...]:
    """Return intervals with a new one, which takes the place of what it overlaps."""
    kept: list[Interval] = []
    for old in intervals:
        if old.start < new.start:
            kept.append(replace(old, end=min(old.end, new.start)))
        if old.end > new.end:
            kept.append(replace(old, start=max(old.start, new.end)))
    ordered: list[Interval] = []
    for interval in sorted([*kept, new], key=lambda each: each.start):
        if ordered and (joint := _joint(ordered[-1], interval)):
            ordered[-1] = joint
        elif interval.start < interval.end:
            ordered.append(interval)
    return tuple(ordered)


def _joint(before: Interval, after: Interval) -> Interval | None:
    """Return two intervals as one where the second goes on in the same way as the first."""
    source = _joint_source(before.source, after.source)
    if before.end != after.start or before.proven != after.proven or source is None:
        return None
    if before.confirmed_by != after.confirmed_by:
        return None
    heights = [each.block_height for each in (before, after) if each.block_height is not None]
    return replace(
        after,
        start=before.start,
        source=source,
        block_height=max(heights, default=None),
        asked_at=max(before.asked_at, after.asked_at),
    )


def _joint_source(before: str, after: str) -> str | None:
    """Return the source of both: the same one, or segments that go on where others end.

    Segments overlap where a period ends within one.
    """
    one, other = blocks_of(before), blocks_of(after)
    if one is None or other is None:
        return after if before == after else None
    (chain, first, last), (other_chain, begin, end) = one, other
    if chain != other_chain or not first <= begin <= last + 1:
        return None
    return source_text(chain, first, max(last, end))


def contradictions(state: Coverage, partition: Partition) -> Iterator[str]:
    """Yield how intervals and periods are none, or don't stand in time order."""
    for interval in state.intervals:
        if interval.start >= interval.end:
            yield f"{range_text(*interval.span)} ends before it begins"
    for before, after in pairwise(state.intervals):
        if after.start < before.end:
            what = "overlaps" if after.end > before.start else "stands before"
            yield f"{range_text(*after.span)} {what} {range_text(*before.span)}"
    for period in state.files:
        if period_named(changes_file(period, partition), partition) is None:
            yield f"names {period!r} as a period, which it is not"
    if list(state.files) != sorted(state.files):
        yield "names files out of time order"


def to_json(coverage: Coverage) -> bytes:
    """Return a state as the content of its file."""
    content = _changed(msgspec.to_builtins(coverage), exact_text)
    content["checkpoints"] = {exact_text(m): note for m, note in content["checkpoints"].items()}
    return with_checksum({"version": VERSION, **content})


def _changed(value: Any, change: Callable[[Any], object]) -> Any:  # noqa: ANN401 - as in JSON
    """Return content in which a function has changed all moments."""
    if isinstance(value, dict):
        return {
            key: change(each) if key in _MOMENTS else _changed(each, change)
            for key, each in value.items()
        }
    return [_changed(e, change) for e in value] if isinstance(value, list | tuple) else value


def with_checksum(content: dict[str, Any]) -> bytes:
    """Return what stands in the file: content with its own digest."""
    signed = {**content, _DIGEST: _digest(content)}
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def _digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of content as JSON with sorted keys and without blanks."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def from_json(content: bytes, name: str) -> Coverage:
    """Return the state that a file tells.

    Raises
    ------
    ArchiveError
        If it is damaged, or of a newer version.
    """
    try:
        found = msgspec.json.decode(content)
        version = found["version"]
        if type(version) is int and version > VERSION:
            raise ArchiveError(
                f"{name} has version {version}, which is newer than this package reads "
                f"({VERSION}): update balance-analysis"
            )
        return _parsed(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveDamagedError(f"{name} is damaged ({error})") from error


def _parsed(found: dict[str, Any]) -> Coverage:
    """Return the state that content tells."""
    if found["version"] != 1 and found.pop(_DIGEST, None) != _digest(found):
        raise ValueError("its content doesn't match its digest")
    if not found.keys() >= _IN_ALL_VERSIONS:
        raise ValueError(f"it lacks {', '.join(_IN_ALL_VERSIONS - found.keys())}")
    content = _changed(found, _microseconds)
    checkpoints = {_microseconds(at): note for at, note in content["checkpoints"].items()}
    if isinstance(content.get("limits", 0), int):  # of version 1
        content["limits"] = {"snapshots": content.get("limits", 0)}
    state = msgspec.convert({**content, "checkpoints": checkpoints}, Coverage)
    for interval in state.intervals:
        dt.datetime.fromisoformat(interval.asked_at)
    pending = [] if state.pending is None else [state.pending.period]
    if not all(map(is_period, [*state.files, *pending])):
        raise ValueError("it names a period that is none")
    return state


def _microseconds(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - EPOCH) // _MICROSECOND
