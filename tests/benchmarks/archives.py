"""An archive of 20,000,000 rows, and what reads it.

A part of `make bench` with 5,000 accounts. `python -m tests.benchmarks.archives FOLDER [NAME ...]`
makes one of 500,000 accounts, unless the folder has it, and prints the seconds and the largest
memory of functions, each in a process of its own. It fails if one takes more than 2 GB. All of them
take minutes. On two processors that others used as well:

    balances at: 6 s, 694 MB
    compare moments: 7 s, 837 MB
    totals an hour: 41 s, 671 MB
    flows a day: 25 s, 1,033 MB
    averages a day to a folder: 59 s, 1,336 MB
    series a day to a folder: 61 s, 869 MB
    summaries: 50 s, 873 MB
    deltas to a folder: 59 s, 970 MB
    holders: 2 s, 571 MB
    totals at every change: 39 s, 1,815 MB
    shares a day: 70 s, 843 MB
    series of types at every change: 19 s, 1,900 MB
    wide series a day: 52 s, 3,361 MB
    flows of accounts a day: 46 s, 896 MB
    candles a week: 50 s, 1,012 MB
    drawdowns: 55 s, 1,288 MB
    summaries of parties: 30 s, 1,043 MB
    summaries of markets: 49 s, 1,692 MB
    reconcile an asset: 40 s, 1,009 MB
    plot_balances of an asset: 18 s, 762 MB
    plot_totals of an asset: 64 s, 945 MB
    plot_flows of an asset: 20 s, 695 MB
    plot_activity: 23 s, 717 MB
    report: 342 s, 1,030 MB

Wide layouts alone take more: a column for each of 500,000 accounts.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import balance_analysis as ba
from balance_analysis.archive import layout
from balance_analysis.archive.datafile import encode_rows
from balance_analysis.table.frame import to_arrow
from tests.archive.writing import answered, begin
from tests.benchmarks.figures import Figure, module, run
from tests.benchmarks.levels import SINCE, UNTIL, make_table

ROWS, ACCOUNTS, MANY_ACCOUNTS = 20_000_000, 5000, 500_000
WHEN = "2023-06-15"
MOST = 2000
"""Maximum memory of a function, MB."""


def make_archive(folder: Path, rows: int, accounts: int, partition: str = "day") -> None:
    """Write an archive of 90 days unless the folder has one."""
    if (folder / "_archive.json").exists():
        return
    table = to_arrow(make_table(rows, accounts))
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    order = np.argsort(times, kind="stable")
    scratch = folder.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    writer = begin(scratch, partition)
    for period in layout.periods_between(SINCE, UNTIL, partition):
        start, end = layout.period_bounds(period, partition)
        span = max(start, SINCE), min(end, UNTIL)
        places = slice(*np.searchsorted(times[order], span))
        own = table.take(pa.array(np.sort(order[places])))
        made = answered(span, "made", "2023-07-01T00:00Z", height=12_345_678)
        writer.put(period, encode_rows(own), writer.manifest.evidence.updated(made))
    writer.write_checkpoints()
    scratch.rename(folder)


def large_archive(data: Path) -> Path:
    """Return the folder of an archive of 20,000,000 rows of 5,000 accounts, made once."""
    make_archive(data / "large", ROWS, ACCOUNTS)
    return data / "large"


def middling_party(archive: ba.Archive) -> str:
    """Return a party of middling activity."""
    rows = ba.summarize_accounts(archive, columns=["rows"]).groupby("party_id", observed=True)
    return str(rows["rows"].sum().sort_values().index[-len(rows) // 2])


def files_of(archive: ba.Archive) -> ds.Dataset:
    return ds.dataset(Path(archive.uri) / "changes")


def explain_balance(archive: ba.Archive, party: str) -> object:
    account = ba.balance_at(archive.select(party_ids=[party]), WHEN).iloc[0]
    return archive.explain(account, at=WHEN)


def to_folder(function: Callable[..., Any], archive: ba.Archive, **options: object) -> None:
    """Write a function's result for the archive to a temporary folder."""
    with tempfile.TemporaryDirectory(dir=Path(archive.uri).parent) as scratch:
        ba.over_accounts(function, archive, to=Path(scratch) / "result", **options)


def of_asset(function: Callable[..., object], archive: ba.Archive) -> object:
    """Run functions of the accounts of one asset of eight."""
    return function(archive.select(asset_id=min(archive.snapshot().ids()["asset_id"])))


def reconcile(archive: ba.Archive) -> object:
    """Compare rows with their own deltas."""
    return ba.reconcile(archive, ba.deltas(archive).rename(columns={"delta": "net"}).dropna())


READS: dict[str, Callable[[ba.Archive, str], object]] = {
    "read party": lambda archive, party: archive.select(party_ids=[party]).read(),
    "read party with dataset": lambda archive, party: files_of(archive).to_table(
        filter=pc.field("party_id") == party
    ),
    "read whole": lambda archive, _: archive.read(),
    "read whole with dataset": lambda archive, _: files_of(archive).to_table(),
    "balances by full scan": lambda archive, _: ba.balance_at(
        archive.read(end=pd.Timestamp(WHEN, tz="UTC")), WHEN
    ),
    "explain balance": explain_balance,
    "digest": lambda archive, _: archive.digest(),
    "diff to itself": lambda archive, _: ba.diff(archive.uri, archive.uri),
}

FUNCTIONS: dict[str, Callable[[ba.Archive], object]] = {
    "balances at": partial(ba.balance_at, at=WHEN),
    "compare moments": partial(ba.compare, at=("2023-05-01", WHEN)),
    "totals an hour": partial(ba.totals, freq="1h"),
    "flows a day": partial(ba.flows, freq="1D", by="asset_id"),
    "averages a day to a folder": partial(to_folder, ba.time_weighted_average, freq="1D"),
    "series a day to a folder": partial(to_folder, ba.balance_series, freq="1D", layout="long"),
    "summaries": ba.summarize_accounts,
    "deltas to a folder": partial(to_folder, ba.deltas),
}
"""Functions that `make bench` measures as well."""

MORE: dict[str, Callable[[ba.Archive], object]] = {
    "holders": ba.holders,
    "totals at every change": ba.totals,
    "shares a day": partial(ba.totals, freq="1D", share=True),
    "series of types at every change": partial(ba.balance_series, by="account_type", layout="long"),
    "flows of accounts a day": partial(to_folder, ba.flows),
    "wide series a day": partial(ba.balance_series, freq="1D"),
    "candles a week": partial(to_folder, ba.ohlc, freq="W"),
    "drawdowns": partial(to_folder, ba.drawdown),
    "summaries of parties": ba.summarize_parties,
    "summaries of markets": partial(ba.summarize_parties, by="market_id"),
    "reconcile an asset": partial(of_asset, reconcile),
    "plot_balances of an asset": partial(of_asset, ba.plot_balances),
    "plot_totals of an asset": partial(of_asset, ba.plot_totals),
    "plot_flows of an asset": partial(of_asset, ba.plot_flows),
    "plot_activity": ba.plot_activity,
    "report": lambda archive: ba.write_report(archive, Path(archive.uri).with_name("report.html")),
}

AT_MOST = {"read party": 0.1, "balances at": 0.3, "compare moments": 1.0, "explain balance": 0.5}
"""Goals in seconds."""


def cost_of(archive: Path, work: str, party: str) -> tuple[float, float]:
    """Return the seconds of a work, imports left out, and the memory of its process in MB."""
    file = archive.with_name("seconds")
    cost = run(module("archives", "-", work, str(archive), party, str(file)))
    return float(file.read_text(encoding="ascii")), cost.peak


def measure(data: Path, rounds: int) -> Iterator[Figure]:
    """Yield how long reads take, and the memory of their processes."""
    folder = large_archive(data)
    party = middling_party(ba.Archive(folder))
    for work in (*READS, *FUNCTIONS):
        name = f"{ROWS:,} rows, {work}"
        took, peaks = zip(*(cost_of(folder, work, party) for _ in range(rounds)), strict=True)
        yield Figure(name, took, "s", at_most=AT_MOST.get(work))
        yield Figure(name, peaks, "MB", at_most=MOST if work in FUNCTIONS else None)
    months, work = data / "months", "read party"
    make_archive(months, ROWS, ACCOUNTS, "month")
    took = [cost_of(months, work, party)[0] for _ in range(rounds)]
    yield Figure(f"{ROWS:,} rows in files of a month, {work}", took, "s", at_most=AT_MOST[work])
    size = sum(file.stat().st_size for file in folder.rglob("changes.parquet"))
    yield Figure("the archive, a row", (size / ROWS,), "bytes", at_most=12)


def do(work: str, folder: str, party: str, file: str) -> None:
    """Run one function and write its seconds, imports excluded."""
    archive, small = ba.Archive(folder), Path(folder).with_name("small")
    make_archive(small, 50_000, 500)
    function: Any = READS.get(work) or (lambda archive, _: (FUNCTIONS | MORE)[work](archive))
    function(ba.Archive(small), middling_party(ba.Archive(small)))
    began = time.perf_counter()
    function(archive, party)
    Path(file).write_text(str(time.perf_counter() - began), encoding="ascii")
    os._exit(0)  # don't measure the freeing of memory


def main(folder: Path, *works: str) -> int:
    """Print the costs of functions of an archive of many accounts, by default of all."""
    archive = folder / "accounts"
    make_archive(archive, ROWS, MANY_ACCOUNTS)
    highest = 0.0
    for work in works or (*FUNCTIONS, *MORE):
        took, peak = cost_of(archive, work, "")
        sys.stdout.write(f"{work}: {took:.0f} s, {peak:,.0f} MB\n")
        sys.stdout.flush()
        highest = max(highest, peak)
    return int(highest > MOST)


if __name__ == "__main__":
    if sys.argv[1] == "-":
        do(*sys.argv[2:])
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
