"""Archives of given rows, and what must be equal."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd

from balance_analysis import Archive
from balance_analysis.table.evidence import SetAside
from tests.analysis.tables import DAY, START, rows_of
from tests.archive.writing import writer_of
from tests.loopback import Row
from tests.service.archives import Stretch
from tests.service.archives import write_archive as write_rows

Account = tuple[str, str, str, str]

SIZE = 90
"""Rows per slice: some seven slices of the archive that these tests share."""


def write_archive(
    folder: Path,
    table: pd.DataFrame,
    partition: str = "day",
    unproven: tuple[float, float] = (0, 0),
    bad: Sequence[tuple[tuple[int, int], Account | None]] = (),
    *,
    from_first_block: bool = False,
) -> Archive:
    """Write a table as an archive that covers it, and a little more than that, to a new folder.

    `unproven` is a stretch of it, as parts of the whole, that is not proven to be complete; `bad`
    are the intervals and the accounts of rows that were set aside.
    """
    rows = [Row(*row) for row in rows_of(table)]
    times = [row.time for row in rows] or [START]
    first, end = min(times), max(times) + DAY // 7
    edges = [first, *(first + round(part * (end - first)) for part in unproven), end]
    spans = zip(pairwise(edges), (True, False, True), strict=True)
    stretches = [Stretch(*span, is_proven) for span, is_proven in spans if span[0] < span[1]]
    archive = write_rows(folder, rows, partition=partition, stretches=stretches)
    writer = writer_of(archive)
    evidence = replace(
        writer.manifest.evidence,
        set_aside=tuple(SetAside(*each) for each in bad),
        from_first_block=from_first_block,
    )
    writer.set_evidence(evidence)
    return archive


@contextmanager
def archive_of(table: pd.DataFrame, *how: object, **also: bool) -> Iterator[Archive]:
    """Yield an archive of a table, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield write_archive(Path(folder), table, *how, **also)


def assert_same(actual: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Check that two results are equal: columns, dtypes, categories, index and each value."""
    pd.testing.assert_frame_equal(actual, expected, check_exact=True)
