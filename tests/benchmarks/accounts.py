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


WORKS: Final[dict[str, Callable[[ba.Archive], object]]] = {
    "totals an hour": partial(ba.totals, freq="1h"),
    "totals at every change": ba.totals,
    "summaries of parties by market": partial(ba.summarize_parties, by="market_id"),
    "shares a day": partial(ba.totals, freq="1D", share=True),
    "flows a day by asset": partial(ba.flows, by="asset_id"),
    "flows a day to a folder": partial(to_folder, ba.flows),
    "series a day to a folder": partial(to_folder, ba.balance_series, freq="1D", layout="long"),
    "deltas to a folder": partial(to_folder, ba.deltas),
    "summaries of accounts": ba.summarize_accounts,
    "holders": ba.holders,
    "comparison": partial(ba.compare, at=("2023-05-01", WHEN)),
}


def main(folder: Path, work: str | None = None) -> int:
    """Measure all works, or do one of them."""
    archive = folder / "accounts"
    if work is not None:
        WORKS[work](ba.Archive(archive))
        return 0
    make_archive(archive, ROWS, ACCOUNTS)
    costs = {name: run(module("accounts", str(folder), name)) for name in WORKS}
    for name, cost in costs.items():
        sys.stdout.write(f"{name}: {cost.seconds:.0f} s, {cost.peak:,.0f} MB\n")
    return int(any(cost.peak > MOST for cost in costs.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
