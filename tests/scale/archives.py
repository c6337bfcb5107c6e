"""Archives of given rows, and what must be equal."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis import Archive
from balance_analysis.archive import layout
from balance_analysis.archive.datafile import encode_rows
from balance_analysis.table.evidence import SetAside
from tests.analysis.tables import DAY, START, arrow_from, records
from tests.archive.writing import answered, begin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    Account = tuple[str, str, str, str]

ASKED_AT = "2023-07-01T00:00:00+00:00"

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
    writer = begin(folder, partition)
    rows = arrow_from(table)
    times = rows["timestamp"].cast(pa.int64())
    first, last = (pc.min(times).as_py(), pc.max(times).as_py()) if len(table) else (START, START)
    files = {}
    for period in sorted({layout.period_of(time, partition) for time in times.to_pylist()}):
        start, end = layout.period_bounds(period, partition)
        own = rows.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
        content, files[period] = encode_rows(own)
        path = folder / layout.changes_file(period, partition)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    end = last + DAY // 7
    edges = [first, *(first + round(part * (end - first)) for part in unproven), end]
    evidence = writer.manifest.evidence
    for span, is_proven in zip(pairwise(edges), (True, False, True), strict=True):
        if span[0] < span[1]:
            answer = answered(span, "made", ASKED_AT, reached=is_proven)
            evidence = evidence.updated(answer)
    evidence = replace(
        evidence,
        set_aside=tuple(SetAside(*each) for each in bad),
        from_first_block=from_first_block,
    )
    writer.write_manifest(replace(writer.manifest, evidence=evidence, files=files))
    return Archive(folder)


@contextmanager
def archive_of(table: pd.DataFrame, *how: object, **also: bool) -> Iterator[Archive]:
    """Give an archive of a table, which ends with the context."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield write_archive(folder, table, *how, **also)
    finally:
        shutil.rmtree(folder)


def assert_same(actual: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Check that two results are equal: columns, dtypes, categories, index and each value."""
    assert records(actual) == records(expected)
    assert actual.dtypes.to_dict() == expected.dtypes.to_dict()
    assert actual.index.equals(expected.index)
    for name in expected.select_dtypes("category"):
        assert actual[name].cat.categories.equals(expected[name].cat.categories)
