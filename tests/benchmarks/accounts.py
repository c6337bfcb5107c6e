"""Functions of an archive of 20,000,000 rows of 500,000 accounts: each takes at most 2 GB.

`python -m tests.benchmarks.accounts FOLDER` makes the archive, unless the folder has it, and prints
the seconds and the largest memory of each function, in a process of its own. It takes minutes, so
it is no part of `make bench`. On two processors that others used as well:

    totals an hour: 41 s, 671 MB
    totals at every change: 39 s, 1,815 MB
    summaries of parties by market: 49 s, 1,692 MB
    shares a day: 70 s, 843 MB
    flows a day by asset: 25 s, 1,033 MB
    flows a day to a folder: 46 s, 896 MB
    series a day to a folder: 61 s, 869 MB
    deltas to a folder: 59 s, 970 MB
    summaries of accounts: 50 s, 873 MB
    holders: 4 s, 475 MB
    comparison: 7 s, 837 MB
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import balance_analysis as ba
from tests.benchmarks.archives import ROWS, WHEN, make_archive
from tests.benchmarks.figures import module, run

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNTS, MOST = 500_000, 2000


def to_folder(function: Callable[..., Any], archive: ba.Archive, **options: object) -> None:
    """Write what a function makes of the archive to a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(dir=Path(archive.uri).parent) as scratch:
        ba.over_accounts(function, archive, to=Path(scratch) / "result", **options)


def one_asset(function: Callable[..., Any], archive: ba.Archive, **options: object) -> None:
    """Do a work that takes the accounts of one asset: 2,500,000 rows."""
    function(archive.select(asset_id=ba.holders(archive, WHEN, n=1)["asset_id"].iloc[0]), **options)


def compare_with_flows(archive: ba.Archive) -> None:
    """Compare the rows of one asset with their own deltas."""
    flows = ba.deltas(archive).rename(columns={"delta": "net"}).dropna()
    ba.reconcile(archive, flows)


def report(archive: ba.Archive) -> None:
    with tempfile.TemporaryDirectory(dir=Path(archive.uri).parent) as scratch:
        ba.write_report(archive, Path(scratch) / "report.html")


WORKS: Final[dict[str, Callable[[ba.Archive], object]]] = {
    "totals an hour": partial(ba.totals, freq="1h"),
    "totals at every change": ba.totals,
    "summaries of parties": ba.summarize_parties,
    "summaries of parties by market": partial(ba.summarize_parties, by="market_id"),
    "shares a day": partial(ba.totals, freq="1D", share=True),
    "flows a day by asset": partial(ba.flows, by="asset_id"),
    "flows a day to a folder": partial(to_folder, ba.flows),
    "series a day to a folder": partial(to_folder, ba.balance_series, freq="1D", layout="long"),
    "series by type, wide, at every change": partial(ba.balance_series, by="account_type"),
    "deltas to a folder": partial(to_folder, ba.deltas),
    "drawdowns to a folder": partial(to_folder, ba.drawdown),
    "bars a week to a folder": partial(to_folder, ba.ohlc, freq="W"),
    "averages": ba.time_weighted_average,
    "summaries of accounts": ba.summarize_accounts,
    "balances": partial(ba.balance_at, at=WHEN),
    "holders": ba.holders,
    "comparison": partial(ba.compare, at=("2023-05-01", WHEN)),
    "reconciliation of an asset": partial(one_asset, compare_with_flows),
    "plot_balances of an asset": partial(one_asset, ba.plot_balances),
    "plot_totals of an asset": partial(one_asset, ba.plot_totals),
    "plot_flows of an asset": partial(one_asset, ba.plot_flows),
    "plot_activity": ba.plot_activity,
    "report": report,
}


def main(folder: Path, *names: str) -> int:
    """Measure works, by default all, or with "-" before its name do one of them."""
    archive = folder / "accounts"
    if names[:1] == ("-",):
        WORKS[names[1]](ba.Archive(archive))
        return 0
    make_archive(archive, ROWS, ACCOUNTS)
    highest = 0.0
    for name in names or WORKS:
        cost = run(module("accounts", str(folder), "-", name))
        sys.stdout.write(f"{name}: {cost.seconds:.0f} s, {cost.peak:,.0f} MB\n")
        sys.stdout.flush()
        highest = max(highest, cost.peak)
    return int(highest > MOST)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
