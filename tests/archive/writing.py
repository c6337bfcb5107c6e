"""Archives of given rows, committed as an export does, without a node."""

from __future__ import annotations

import contextlib
import subprocess
import sys

from balance_analysis import Archive
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.manifest import BoundQuery, check_bound
from balance_analysis.evidence import Answer, Evidence, Node
from balance_analysis.filters import Filters
from tests.moments import to_microseconds

HOLDING = """
import sys
from balance_analysis.archive import lock
from balance_analysis import Archive
store, lock.SECONDS = Archive(sys.argv[1]).store, float(sys.argv[2])
with lock.one_writer(store):
    print("held", flush=True)
    for line in sys.stdin:
        store.write("late", b"")
"""


def begin(folder, partition="day", **query):
    """Make an archive of nothing yet, bound to a query, and return what writes to it."""
    store, bound = Archive(folder).store, BoundQuery(Filters(**query).sorted(), partition)
    check_bound(store, bound)
    writer = Writer(store, bound)
    writer.amend(writer.manifest)
    return writer


def writer_of(archive):
    """Return what writes to an archive, or to one in a folder."""
    return Writer((archive if isinstance(archive, Archive) else Archive(archive)).store)


def answered(span, source, asked_at, *, reached=True, height=None, **query):
    """Return the evidence of one answer: its span in microseconds, who was asked, and when."""
    asked = (to_microseconds(asked_at),) * 2
    heights = None if height is None else (height, height)
    answer = Answer(span, Node(source, frozenset({source})), asked, heights, reached)
    return Evidence(Filters(**query).sorted(), (answer,))


@contextlib.contextmanager
def holding(address, seconds=60):
    """Hold the lock of an archive in a process, which writes a file for each line it gets."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, address, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()
