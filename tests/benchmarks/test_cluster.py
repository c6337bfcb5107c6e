from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest

from tests.benchmarks.clustered import WORKS, make_archive
from tests.benchmarks.processes import Cost, kept_memory

ACCOUNTS = 5000
SIZES = (5_000_000, 20_000_000, 50_000_000)
WORKERS = (1, 2, 0)


@pytest.fixture(scope="module", params=SIZES)
def archive(request, tmp_path_factory):
    """An archive of 100 days, removed when it has been measured."""
    folder = tmp_path_factory.mktemp("cluster") / "archive"
    make_archive(folder, request.param, ACCOUNTS)
    yield folder, request.param
    shutil.rmtree(folder)


@pytest.mark.usefixtures("round_number")
@pytest.mark.parametrize("work", WORKS)
def test_workers_find_what_one_machine_finds(work, archive, report):
    folder, rows = archive
    found = {}
    for workers in WORKERS:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tests.benchmarks.clustered", work, folder, str(workers)],
            env=kept_memory(),
            check=True,
            capture_output=True,
            text=True,
        )
        said = json.loads(done.stdout.splitlines()[-1])
        cost = Cost(said["seconds"], time.perf_counter() - began, said["peak"])
        report.add(group_of(work, rows), name_of(workers), cost)
        found[workers] = said["found"]
    assert len(set(found.values())) == 1


def group_of(work: str, rows: int) -> str:
    return f"{work}, {rows:,} rows in an archive"


def name_of(workers: int) -> str:
    return {0: "the whole table", 1: "1 worker"}.get(workers, f"{workers} workers")
