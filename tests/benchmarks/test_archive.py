from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import balance_analysis as ba
from tests.benchmarks.archived import ARCHIVE, PLAIN
from tests.benchmarks.bucket import serve_bucket
from tests.benchmarks.contestants import Node, fetch_command, loaded, serve
from tests.benchmarks.processes import Cost, environment, run
from tests.benchmarks.report import ACCOUNTS_OF, EXPLAIN, EXPORT, PARTY, READ, SCAN, STORE, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 20_000_000
LOADED = 2_000_000


@pytest.fixture(scope="module")
def large_node() -> Iterator[Node]:
    with serve(LOADED) as node:
        yield node


def export_command(node: Node, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "balance_analysis", "export", node.url, str(folder), "-q"),
        *("--since", node.since, "--until", node.until),
    ]


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("name", ["fetch", "export"])
def test_an_export_brings_the_rows_that_a_fetch_brings(name, large_node, tmp_path, report):
    target = tmp_path / "changes"
    fetching = fetch_command(large_node, target, workers=4)
    cost = run(fetching if name == "fetch" else export_command(large_node, target))

    files = [target] if name == "fetch" else sorted(target.rglob("changes.parquet"))
    assert loaded(files) == (large_node.rows, large_node.total)
    report.add(EXPORT, name, cost)


@pytest.mark.usefixtures("round_number")
def test_an_export_that_finds_nothing_new_asks_little(large_node, tmp_path, report):
    run(export_command(large_node, tmp_path / "archive"))

    report.add(WAITING, "export", run(export_command(large_node, tmp_path / "archive")))


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize(
    ("group", "name", "work"),
    [
        (READ, "archive, as a sorted table", "read_whole"),
        (READ, "pyarrow.dataset, as a sorted table", "read_table_with_dataset"),
        (READ, "archive, as batches", "read_batches"),
        (READ, "archive, its digest", "digest_whole"),
        (READ, "archive, its difference to itself", "diff_whole"),
        (READ, "archive, confirmed by itself", "confirm_whole"),
        (READ, "pyarrow.dataset, unsorted", "read_whole_with_dataset"),
        (PARTY, "archive", "read_party"),
        (PARTY, "pyarrow.dataset", "read_party_with_dataset"),
        (PARTY, "pandas, day files sorted by time", "read_party_with_pandas"),
        (PARTY, "pandas with filters", "read_party_with_pandas_filters"),
        (SCAN, "archive", "total_at"),
        (SCAN, "full scan", "total_at_by_full_scan"),
        (EXPLAIN, "one balance", "explain_balance"),
        (ACCOUNTS_OF, "archive", "list_accounts"),
    ],
)
def test_a_reader_takes_some_time(group, name, work, large_archive, report):
    folder, party = large_archive
    found, cost = _ask(work, folder, party)

    if group in {ACCOUNTS_OF, READ}:
        assert found == str(ROWS)
    if group == PARTY:
        assert found == str(len(ba.Archive(folder / ARCHIVE).select(party_ids=[party]).read()))
    report.add(group, name, cost)


def test_one_party_is_read_from_an_object_store(large_archive, tmp_path, rounds, report):
    folder, party = large_archive
    with serve_bucket(folder) as bucket:
        (tmp_path / "address").write_text(bucket.address.format(ARCHIVE), encoding="ascii")
        costs = [_ask("read_party_of_store", tmp_path / "address", party) for _ in range(rounds)]

    assert {found for found, _ in costs} == {_ask("read_party", folder, party)[0]}
    report.tell(STORE, "requests", len(bucket.asked) / rounds, unit="requests", most=300)
    report.tell(STORE, "one party", *(cost.seconds for _, cost in costs), unit="s")


def test_the_ways_to_a_balance_agree(large_archive):
    folder, party = large_archive
    assert _ask("total_at", folder, party)[0] == _ask("total_at_by_full_scan", folder, party)[0]


def test_an_archive_takes_some_bytes_a_row(large_archive, report):
    folder, _ = large_archive
    report.bytes_a_row = {name: _size(folder / name) / ROWS for name in (ARCHIVE, PLAIN)}


def _ask(work: str, folder: Path, party: str) -> tuple[str, Cost]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.benchmarks.archived", work, str(folder), party],
        env=environment() | {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"},
        check=True,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout)
    return said["found"], Cost(said["seconds"], time.perf_counter() - began, said["peak"])


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))
