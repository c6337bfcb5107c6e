"""The names of an archive's files, and the periods of its files of rows."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Iterator
from typing import Final, Literal

from balance_analysis.files import atomic
from balance_analysis.table.moments import from_microseconds, to_microseconds

Partition = Literal["day", "month", "hour"]

MANIFEST: Final = atomic.MANIFEST
LIMITS: Final = "_limits.parquet"
ASSETS: Final = "_assets.json"
LABELS: Final = "_labels.json"
CHANGES: Final = "changes/"
CHECKPOINTS: Final = "_checkpoints/"
QUARANTINE: Final = "_quarantine/"
DISPUTES: Final = "_disputes/"
RUNS: Final = "_runs/"
LOCK: Final = "_lock"
HOLDER: Final = "_lock.json"

_FORMATS: Final = {"day": "%Y-%m-%d", "month": "%Y-%m", "hour": "%Y-%m-%dT%H"}
_COLUMNS: Final = {"day": "date", "month": "month", "hour": "hour"}


def period_of(moment: int, partition: Partition) -> str:
    """Return the name of a moment's period; the moment is in microseconds."""
    return from_microseconds(moment).strftime(_FORMATS[partition])


@functools.lru_cache(1 << 16)
def period_bounds(period: str, partition: Partition) -> tuple[int, int]:
    """Return a period's start and end (in microseconds).

    Raises
    ------
    ValueError
        If this is not a period's name.
    """
    start = dt.datetime.strptime(period, _FORMATS[partition]).replace(tzinfo=dt.UTC)
    if partition == "month":
        end = (start + dt.timedelta(days=31)).replace(day=1)
    else:
        end = start + (dt.timedelta(days=1) if partition == "day" else dt.timedelta(hours=1))
    return to_microseconds(start), to_microseconds(end)


def periods_between(start: int, end: int, partition: Partition) -> Iterator[str]:
    """Yield the periods that overlap [start, end), in time order."""
    while start < end:
        period = period_of(start, partition)
        yield period
        start = period_bounds(period, partition)[1]


def changes_file(period: str, partition: Partition) -> str:
    """Return the name of a period's file of rows."""
    return f"{CHANGES}{_COLUMNS[partition]}={period}/changes.parquet"


def checkpoint_file(moment: int) -> str:
    """Return the name of the checkpoint of a month's start (in microseconds).

    It is Parquet, but engines that read every `.parquet` in a folder must not read it as changes.
    """
    return f"{CHECKPOINTS}{from_microseconds(moment):%Y-%m-%d}.pq"


def period_named(name: str, partition: Partition) -> str | None:
    """Return the period in the name of a file of rows, or `None` for another file."""
    period = name.removeprefix(f"{CHANGES}{_COLUMNS[partition]}=").removesuffix("/changes.parquet")
    with contextlib.suppress(ValueError):
        begin, _ = period_bounds(period, partition)
        if name == changes_file(period_of(begin, partition), partition):
            return period
    return None


def month_starts(start: int, end: int) -> Iterator[int]:
    """Yield the starts of months in (start, end] (in microseconds)."""
    for month in periods_between(start, end + 1, "month"):
        begin = period_bounds(month, "month")[0]
        if start < begin <= end:
            yield begin
