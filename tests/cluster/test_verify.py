"""What is wrong with an archive is found wherever its files are looked at."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import balance_analysis as ba
from balance_analysis import cluster
from tests.analysis.tables import HOUR, START, many_rows, table_of
from tests.cluster.archives import write_archive


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def archive(tmp_path):
    rows = [(*row[:4], START + (row[4] - START) * HOUR // 4, abs(row[5])) for row in many_rows()]
    return write_archive(tmp_path / "archive", table_of(rows))


def test_a_whole_archive_is_whole(archive, pool):
    assert cluster.verify(archive, client=pool) == archive.verify()
    assert cluster.verify(archive) == archive.verify()
    assert archive.verify().is_whole


@pytest.mark.parametrize("harm", ["cut", "gone", "other"])
def test_what_is_wrong_is_told_in_the_same_words(archive, pool, harm):
    files = sorted((archive.store.folder / "changes").rglob("*.parquet"))
    if harm == "cut":
        files[3].write_bytes(files[3].read_bytes()[:-7])
    elif harm == "gone":
        files[3].unlink()
    else:
        files[3].write_bytes(files[4].read_bytes())
    report = cluster.verify(archive, client=pool)
    assert report == archive.verify()
    assert not report.is_whole


def test_workers_that_do_not_reach_the_archive_blame_no_file(archive, tmp_path):
    class Elsewhere(Executor):
        def submit(self, function, file):
            future = Future()
            try:
                # What a worker calls has the archive's files bound to it.
                future.set_result(function.func(ba.Archive(tmp_path / "elsewhere").store, file))
            except ba.BalanceAnalysisError as error:
                future.set_exception(error)
            return future

    with pytest.raises(ba.ArchiveError, match=r"does not find .*_archive\.json"):
        cluster.verify(archive, client=Elsewhere())
