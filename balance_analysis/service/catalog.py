"""What the archive holds now, as its coverage tells, read again whenever that has changed."""

from __future__ import annotations

import bisect
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from balance_analysis.archive import layout
from balance_analysis.archive.coverage import from_json
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.errors import ArchiveError
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.spans import clipped, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.archive.coverage import Coverage, FileNote
    from balance_analysis.archive.manifest import About
    from balance_analysis.archive.store import Store
    from balance_analysis.spans import Span

logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class File:
    """The file of a period.

    Attributes
    ----------
    period
        Its name, for messages.
    name
        Where it is in the archive.
    start, end
        Of the period, half-open, microseconds.
    notes
        What the file is: as committed, and, while it is being replaced, as announced.
    """

    period: str
    name: str
    start: int
    end: int
    notes: tuple[FileNote, ...]

    def may_have(self, start: int, end: int) -> bool:
        """Whether rows of [start, end) may stand in it."""
        return any(note.first < end and note.last >= start for note in self.notes)


@dataclass(frozen=True, slots=True)
class Held:
    """An archive at one moment.

    Attributes
    ----------
    about
        What it is bound to.
    coverage
        What it knows.
    spans
        What it was asked to know: the intervals of the coverage, joined where they touch.
    files
        In time order.
    """

    about: About
    coverage: Coverage
    spans: tuple[Span, ...]
    files: tuple[File, ...]

    def parts(self, start: int, end: int, *, descending: bool) -> Iterator[tuple[File, Span]]:
        """Yield the files that may have rows in the covered parts of [start, end), in time order.

        Each comes with the part of it that is asked for.
        """
        for begin, stop in clipped(self.spans[:: -1 if descending else 1], start, end):
            low = bisect.bisect_right(self.files, begin, key=lambda file: file.end)
            high = bisect.bisect_left(self.files, stop, key=lambda file: file.start)
            for file in self.files[low:high][:: -1 if descending else 1]:
                span = max(begin, file.start), min(stop, file.end)
                if file.may_have(*span):
                    yield file, span

    def headers(self) -> dict[str, str]:
        """Return the headers that tell up to where the archive knows, where it does.

        `X-Block-Timestamp` is the end of the coverage in nanoseconds, and `X-Block-Height` the last
        block that the node held which was asked for its last part.
        """
        headers = {}
        for newest in self.coverage.intervals[-1:]:
            headers["X-Block-Timestamp"] = str(newest.end * 1000)
            if newest.block_height is not None:
                headers["X-Block-Height"] = str(newest.block_height)
        return headers


class Watch:
    """Tells what an archive holds, from any number of threads.

    Parameters
    ----------
    store
        The archive's files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._content: tuple[bytes | None, bytes | None] = (None, None)
        self._held: Held | None = None

    def now(self) -> Held:
        """Return what the archive holds now.

        Its two small files are read each time, which is quick, and understood only where they are
        others than before: unlike their times and sizes, their bytes can't be mistaken.

        Raises
        ------
        RefusedError
            If the archive is not there, or is damaged.
        """
        try:
            return self._read()
        except (ArchiveError, OSError, ValueError) as error:
            logger.warning("the archive can't be read: %s", error)
            raise away() from error

    def _read(self) -> Held:
        about, coverage = map(self._store.read, (layout.ABOUT, layout.COVERAGE))
        with self._lock:
            if self._held is None or (about, coverage) != self._content:
                state = read_coverage(self._store) if coverage is None else self._state(coverage)
                self._held = _hold(read_about(self._store), state)
                self._content = about, coverage
            return self._held

    def _state(self, content: bytes) -> Coverage:
        return from_json(content, f"{self._store.uri}/{layout.COVERAGE}")


def away() -> RefusedError:
    """Return the refusal of every request while the archive can't be read."""
    return RefusedError(
        "the archive that this service reads is not there or can't be read now: ask again later, "
        "or tell who runs the service; its log says more",
        code=Code.UNAVAILABLE,
    )


def _hold(about: About, coverage: Coverage) -> Held:
    files = (
        File(
            period,
            layout.changes_file(period, about.partition),
            *layout.bounds_of(period, about.partition),
            coverage.notes(period),
        )
        for period in coverage.files
    )
    return Held(
        about,
        coverage,
        tuple(joined(interval.span for interval in coverage.intervals)),
        tuple(sorted(files, key=lambda file: file.start)),
    )
