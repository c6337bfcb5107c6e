"""Archives to measure, and who reads from them: `python archived.py WORK FOLDER [PARTY]`.

As a program it does one work and prints, as a line of JSON, its seconds without imports, the most
memory that it held, and what it found.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import balance_analysis as ba
from balance_analysis.archive import layout
from balance_analysis.frame import to_arrow, to_frame
from tests.archive.writing import answered, begin
from tests.benchmarks.levels import DAY, DAYS, SINCE, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHIVE, PLAIN = "archive", "plain"
WHEN: Final = "2023-06-15"
HEIGHT: Final = 12_345_678
BALANCE: Final = "balance"


def make_archive(folder: Path, rows: int, accounts: int) -> str:
    """Write an archive and plain day files sorted by time; return a party of middling activity."""
    table = to_arrow(make_table(rows, accounts))
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    order = np.argsort(times, kind="stable")
    bounds = np.searchsorted(times[order], SINCE + np.arange(DAYS + 1) * DAY)
    writer = begin(folder / ARCHIVE, "day")
    (folder / PLAIN).mkdir()
    for day in range(DAYS):
        start = SINCE + day * DAY
        own = table.take(pa.array(np.sort(order[bounds[day] : bounds[day + 1]])))
        made = answered((start, start + DAY), "made", "2023-07-01T00:00Z", height=HEIGHT)
        writer.commit(layout.period_of(start, "day"), own, made)
        plain = to_frame(own).sort_values("timestamp", kind="stable")
        plain.to_parquet(folder / PLAIN / f"{day:03}.parquet", index=False)
    writer.checkpoint()
    parties = table["party_id"].combine_chunks()
    counts = np.bincount(parties.indices.to_numpy(), minlength=len(parties.dictionary))
    return parties.dictionary[int(np.argsort(counts)[len(counts) // 2])].as_py()


def read_party(folder: Path, party: str) -> int:
    return len(ba.Archive(folder / ARCHIVE).select(party_ids=[party]).read())


def read_party_of_store(address: Path, party: str) -> int:
    return len(ba.Archive(address.read_text(encoding="ascii")).select(party_ids=[party]).read())


def read_party_with_dataset(folder: Path, party: str) -> int:
    wanted = pc.field("party_id") == party
    return ds.dataset(folder / ARCHIVE / "changes").to_table(filter=wanted).num_rows


def read_whole(folder: Path, _: str) -> int:
    return len(ba.Archive(folder / ARCHIVE).read())


def read_batches(folder: Path, _: str) -> int:
    return sum(batch.num_rows for batch in ba.Archive(folder / ARCHIVE).iter_batches())


def digest_whole(folder: Path, _: str) -> int:
    return ba.Archive(folder / ARCHIVE).digest().rows


def diff_whole(folder: Path, _: str) -> int:
    return ba.diff(folder / ARCHIVE, folder / ARCHIVE).compared[0]


def confirm_whole(folder: Path, _: str) -> int:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        own = shutil.copytree(folder / ARCHIVE, Path(scratch) / ARCHIVE, copy_function=os.link)
        return ba.confirm(own, folder / ARCHIVE).compared[0]


def explain_balance(folder: Path, party: str) -> int:
    archive = ba.Archive(folder / ARCHIVE)
    account = ba.balance_at(archive.select(party_ids=[party]), WHEN).iloc[0]
    return archive.explain(account, at=WHEN).balance


def read_whole_with_dataset(folder: Path, _: str) -> int:
    return ds.dataset(folder / ARCHIVE / "changes").to_table().num_rows


def read_table_with_dataset(folder: Path, _: str) -> int:
    return len(to_frame(ds.dataset(folder / ARCHIVE / "changes").to_table()))


def read_party_with_pandas(folder: Path, party: str) -> int:
    days = (pd.read_parquet(file) for file in sorted((folder / PLAIN).iterdir()))
    return len(pd.concat([day[day["party_id"] == party] for day in days]))


def read_party_with_pandas_filters(folder: Path, party: str) -> int:
    wanted = [("party_id", "==", party)]
    return len(pd.read_parquet(folder / PLAIN, filters=wanted, dtype_backend="pyarrow"))


def total_at(folder: Path, _: str) -> int:
    held = ba.balance_at(ba.Archive(folder / ARCHIVE), WHEN)
    return sum(map(int, held[BALANCE].dropna()))


def total_at_by_full_scan(folder: Path, _: str) -> int:
    table = ba.Archive(folder / ARCHIVE).read(
        end=pd.Timestamp(WHEN, tz="UTC") + pd.Timedelta("1us")
    )
    return sum(map(int, ba.balance_at(table, WHEN)[BALANCE].dropna()))


def list_accounts(folder: Path, _: str) -> int:
    return int(ba.summarize_accounts(ba.Archive(folder / ARCHIVE))["rows"].sum())


WORKS: Final[dict[str, Callable[[Path, str], int]]] = {
    work.__name__: work
    for work in (
        read_whole,
        read_batches,
        digest_whole,
        diff_whole,
        confirm_whole,
        explain_balance,
        read_whole_with_dataset,
        read_table_with_dataset,
        read_party,
        read_party_of_store,
        read_party_with_dataset,
        read_party_with_pandas,
        read_party_with_pandas_filters,
        total_at,
        total_at_by_full_scan,
        list_accounts,
    )
}


def main(work: str, folder: str, party: str) -> None:
    assert ba.Archive  # imports nothing below
    began = time.perf_counter()
    found = WORKS[work](Path(folder), party)
    seconds = time.perf_counter() - began
    peak = next(
        int(line.split()[1]) * 1024 / 1e6
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if line.startswith("VmHWM")
    )
    answer: dict[str, Any] = {"seconds": seconds, "peak": peak, "found": str(found)}
    print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
