"""Rebuild an archive's coverage from its files, where it is lost.

The rows are kept. That none are missing can't be known from them, so all is unproven until a node
that remembers it has been asked again: `export` does that where it fills gaps.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.archive import layout
from balance_analysis.archive.coverage import Coverage, FileNote, Interval, LimitsNote, to_json
from balance_analysis.archive.datafile import encode_rows, read_footer
from balance_analysis.archive.limits import note_limits, read_limits
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.verify_files import Reading
from balance_analysis.errors import ArchiveDamagedError, ArchiveError
from balance_analysis.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.layout import Partition
    from balance_analysis.archive.store import Store

logger = logging.getLogger("balance_analysis")

_UNKNOWN: Final = "unknown"
_KEPT: Final = f"{layout.QUARANTINE}{layout.COVERAGE}"


def rebuild_coverage(store: Store) -> bool:
    """Write the coverage anew where it can't be read, and return whether that was so.

    Files that are damaged are left out. What was there of the old coverage is kept aside.

    Raises
    ------
    ArchiveError
        If there is no archive, or the coverage is of a newer version.
    OSError
        If a file can't be read or written.
    """
    about = read_about(store)
    try:
        read_coverage(store)
    except ArchiveDamagedError as error:
        said = str(error).partition(": put back")[0]
        logger.warning("%s: rebuilding it from the files, all of it unproven", said)
    else:
        return False
    damaged = store.read(layout.COVERAGE)
    files = dict(sorted(_sound_files(store, about.partition)))
    intervals = _intervals(files, about.partition)
    if damaged is not None:
        store.write(_KEPT, damaged)
    store.write(layout.COVERAGE, to_json(Coverage(intervals, files, limits=_limits(store))))
    return True


def _sound_files(store: Store, partition: Partition) -> Iterator[tuple[str, FileNote]]:
    for name in store.names():
        period = name.removeprefix(layout.CHANGES).partition("=")[2].partition("/")[0]
        try:
            if name != layout.changes_file(period, partition):
                continue
            begin, stop = layout.bounds_of(period, partition)
        except ValueError:
            continue
        content = store.read(name) or b""
        note = _note(content)
        wrong = "can't be read" if note is None else None
        if note is not None:
            wrong = Reading(begin, stop, [(begin, stop)]).read(store, name, note)
        if note is None or wrong is not None:
            logger.warning("%s/%s is left out: it %s", store.uri, name, wrong)
        else:
            yield period, note


def _note(content: bytes) -> FileNote | None:
    """Return what a file is; `None` where it can't be read, or is not what was written."""
    try:
        rows = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        again, note = encode_rows(rows.cast(ARROW_SCHEMA))
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None
    if again == content:
        return note
    # The same rows give the same bytes, unless another release of pyarrow wrote them. Its
    # checksums alone don't tell all: they leave out headers and indexes.
    if not note.rows or _writer_of(again) == _writer_of(content):
        return None
    footer = read_footer(pa.BufferReader(content))
    return replace(
        note,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        footer=hashlib.sha256(footer).hexdigest(),
    )


def _writer_of(content: bytes) -> str:
    return str(pq.read_metadata(pa.BufferReader(content)).created_by)


def _intervals(files: dict[str, FileNote], partition: Partition) -> tuple[Interval, ...]:
    """Return what the files reach over, those of neighbouring periods as one."""
    asked_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    intervals: list[Interval] = []
    reached = None
    for period, note in files.items():
        begin, stop = layout.bounds_of(period, partition)
        start = intervals.pop().start if reached == begin else note.first
        intervals.append(Interval(start, note.last + 1, False, _UNKNOWN, None, asked_at))
        reached = stop
    return tuple(intervals)


def _limits(store: Store) -> LimitsNote | None:
    """Return what the file of the limits is; where it can't be read, only that there is one."""
    content, unknown = store.read(layout.LIMITS), LimitsNote(0)
    try:
        rows = read_limits(store, Coverage(limits=unknown))
    except ArchiveError:
        return unknown
    return None if content is None else note_limits(rows, content)
