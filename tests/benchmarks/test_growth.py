"""How cost grows with rows, accounts, days and the page size: what the picture shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import balance_analysis as ba
from balance_analysis.schema import from_microseconds
from tests.benchmarks.archived import ARCHIVE, make_archive
from tests.benchmarks.contestants import serve
from tests.benchmarks.levels import DAY, SINCE, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 3
WORKS = {
    "hourly series": lambda table: ba.balance_series(table, freq="1h"),
    "flows a day": lambda table: ba.flows(table, freq="1D"),
    "summaries": ba.summarize_accounts,
}
READS = {
    "rows of the archive": lambda archive, end: archive.read(end=end),
    "balances at an instant": ba.balance_at,
}


def least(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs."""
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def note(report, axis: str, work: str, size: int, seconds: float) -> None:
    report.growth.setdefault(axis, {}).setdefault(work, []).append((size, seconds))


@pytest.mark.parametrize("rows", [40_000, 200_000, 1_000_000, 5_000_000])
def test_cost_by_rows(rows, report):
    table = make_table(rows, 500)
    for name, work in WORKS.items():
        note(
            report,
            "rows, of 500 accounts over 90 days",
            name,
            rows,
            least(lambda work=work: work(table)),
        )


@pytest.mark.parametrize("accounts", [30, 300, 3000, 10_000])
def test_cost_by_accounts(accounts, report):
    table = make_table(1_000_000, accounts)
    for name, work in WORKS.items():
        note(
            report,
            "accounts, with 1,000,000 rows over 90 days",
            name,
            accounts,
            least(lambda work=work: work(table)),
        )


def test_cost_by_days(tmp_path, report):
    make_archive(tmp_path, 2_000_000, 2000)
    archive = ba.Archive(tmp_path / ARCHIVE)
    for days in (1, 3, 9, 27, 81):
        end = from_microseconds(SINCE + days * DAY)
        for name, read in READS.items():
            note(
                report,
                "days read of an archive of 2,000,000 rows",
                name,
                days,
                least(lambda read=read, end=end: read(archive, end)),
            )


def test_cost_by_page_size(report, tmp_path):
    with serve(50_000) as node, ba.Client(node.url) as client:
        for size in (100, 300, 1000, 5000):
            how = {"start": node.since, "end": node.until, "page_size": size, "progress": False}
            seconds = least(lambda how=how: ba.load_to_parquet(client, tmp_path / "x", **how))
            note(
                report,
                "rows a page, nothing between node and loader",
                "load of 50,000 rows",
                size,
                seconds,
            )
