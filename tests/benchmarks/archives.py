"""An archive of 20,000,000 rows, and reads of it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import balance_analysis as ba
from balance_analysis.archive import layout
from balance_analysis.frame import to_arrow
from tests.archive.writing import answered, begin
from tests.benchmarks.figures import Figure, memory, module, run
from tests.benchmarks.levels import DAY, DAYS, SINCE, make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS, ACCOUNTS = 20_000_000, 5000
SMALL: Final = "small"
WHEN: Final = "2023-06-15"


def make_archive(folder: Path, rows: int, accounts: int) -> None:
    """Write an archive of 90 days unless the folder has one."""
    if (folder / "_archive.json").exists():
        return
    table = to_arrow(make_table(rows, accounts))
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    order = np.argsort(times, kind="stable")
    bounds = np.searchsorted(times[order], SINCE + np.arange(DAYS + 1) * DAY)
    scratch = folder.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    writer = begin(scratch, "day")
    for day in range(DAYS):
        start = SINCE + day * DAY
        own = table.take(pa.array(np.sort(order[bounds[day] : bounds[day + 1]])))
        made = answered((start, start + DAY), "made", "2023-07-01T00:00Z", height=12_345_678)
        writer.commit(layout.period_of(start, "day"), own, made)
    writer.checkpoint()
    scratch.rename(folder)


def large_archive(data: Path) -> Path:
    """Return the folder of an archive of 20,000,000 rows of 5,000 accounts, made once."""
    make_archive(data / "large", ROWS, ACCOUNTS)
    return data / "large"


def middling_party(archive: ba.Archive) -> str:
    """Return a party of middling activity."""
    rows = ba.summarize_accounts(archive, columns=["rows"]).groupby("party_id", observed=True)
    return str(rows["rows"].sum().sort_values().index[-len(rows) // 2])


def read_party(archive: ba.Archive, party: str) -> object:
    return archive.select(party_ids=[party]).read()


def read_party_with_dataset(archive: ba.Archive, party: str) -> object:
    return ds.dataset(Path(archive.uri) / "changes").to_table(filter=pc.field("party_id") == party)


def read_whole(archive: ba.Archive, _: str) -> object:
    return archive.read()


def read_whole_with_dataset(archive: ba.Archive, _: str) -> object:
    return ds.dataset(Path(archive.uri) / "changes").to_table()


def balances_at(archive: ba.Archive, _: str) -> object:
    return ba.balance_at(archive, WHEN)


def balances_by_full_scan(archive: ba.Archive, _: str) -> object:
    return ba.balance_at(archive.read(end=pd.Timestamp(WHEN, tz="UTC")), WHEN)


def compare_moments(archive: ba.Archive, _: str) -> object:
    return ba.compare(archive, at=("2023-05-01", WHEN))


def explain_balance(archive: ba.Archive, party: str) -> object:
    account = ba.balance_at(archive.select(party_ids=[party]), WHEN).iloc[0]
    return archive.explain(account, at=WHEN)


def digest(archive: ba.Archive, _: str) -> object:
    return archive.digest()


def diff_to_itself(archive: ba.Archive, _: str) -> object:
    return ba.diff(archive.uri, archive.uri)


def totals_an_hour(archive: ba.Archive, _: str) -> object:
    return ba.totals(archive, freq="1h")


def flows_a_day(archive: ba.Archive, _: str) -> object:
    return ba.flows(archive, freq="1D", by="asset_id")


def averages_a_day(archive: ba.Archive, _: str) -> object:
    return ba.time_weighted_average(archive, freq="1D")


def series_a_day(archive: ba.Archive, _: str) -> object:
    return ba.balance_series(archive, freq="1D", layout="long")


def summaries(archive: ba.Archive, _: str) -> object:
    return ba.summarize_accounts(archive)


def deltas_to_a_folder(archive: ba.Archive, _: str) -> object:
    with tempfile.TemporaryDirectory(dir=Path(archive.uri).parent) as scratch:
        return ba.over_accounts(ba.deltas, archive, to=Path(scratch) / "deltas")


WORKS: Final[dict[Callable[[ba.Archive, str], object], float | None]] = {
    read_party: 0.1,
    read_party_with_dataset: None,
    read_whole: None,
    read_whole_with_dataset: None,
    balances_at: 0.3,
    balances_by_full_scan: None,
    compare_moments: 1.0,
    explain_balance: 0.5,
    digest: None,
    diff_to_itself: None,
    totals_an_hour: None,
    flows_a_day: None,
    averages_a_day: None,
    series_a_day: None,
    summaries: None,
    deltas_to_a_folder: None,
}
"""Each read, with the seconds that it may take."""

BY_SLICES: Final = {
    *(totals_an_hour, flows_a_day, averages_a_day, series_a_day, summaries),
    *(deltas_to_a_folder, balances_at, compare_moments),
}


def measure(data: Path, rounds: int) -> Iterator[Figure]:
    """Yield how long reads take, imports left out, and the memory of their processes."""
    folder = large_archive(data)
    make_archive(data / SMALL, 50_000, 500)
    party = middling_party(ba.Archive(folder))
    for work, most in WORKS.items():
        name = f"{ROWS:,} rows, {work.__name__.replace('_', ' ')}"
        file = data / "seconds"
        costs, measured = [], []
        for _ in range(rounds):
            costs.append(run(module("archives", work.__name__, str(folder), party, str(file))))
            measured.append(float(file.read_text(encoding="ascii")))
        yield Figure(name, tuple(measured), "s", at_most=most)
        limit = 2000 if work in BY_SLICES else None
        yield Figure(name, tuple(cost.peak for cost in costs), "MB", at_most=limit)
    size = sum(file.stat().st_size for file in folder.rglob("changes.parquet"))
    yield Figure("the archive, a row", (size / ROWS,), "bytes", at_most=12)


def main(work: str, folder: str, party: str, file: str) -> None:
    """Do one work and write how many seconds it took, once all is imported."""
    archive = ba.Archive(folder)
    function = next(each for each in WORKS if each.__name__ == work)
    small = ba.Archive(Path(folder).with_name(SMALL))
    function(small, middling_party(small))
    began = time.perf_counter()
    function(archive, party)
    took = time.perf_counter() - began
    Path(file).write_text(str(took), encoding="ascii")
    sys.stdout.write(f"{took:.2f} s, {memory('VmHWM'):,.0f} MB\n")
    sys.stdout.flush()
    os._exit(0)  # freeing memory is no part of it


if __name__ == "__main__":
    main(*sys.argv[1:])
