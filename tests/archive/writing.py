"""Archives of given rows, committed as an export does, without a node."""

from __future__ import annotations

from balance_analysis import Archive
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Interval
from balance_analysis.archive.manifest import ArchiveSpec, write_about
from balance_analysis.filters import Filters


def begin(folder, partition="day", **query):
    """Make an archive of nothing yet, bound to a query, and return what writes to it."""
    archive = Archive(folder)
    write_about(archive.store, ArchiveSpec(Filters(**query).sorted(), partition))
    return writer_of(archive)


def writer_of(archive):
    """Return what writes to an archive, or to one in a folder."""
    return Writer((archive if isinstance(archive, Archive) else Archive(archive)).store)


def interval(span, source, asked_at, *, proven=True, block_height=None):
    """Return a covered interval, in microseconds: who was asked for it, and when."""
    return Interval(*span, proven, source, block_height, asked_at)
