"""Other engines may read an archive's folder as it stands."""

from __future__ import annotations

import shutil

import duckdb
import pyarrow.dataset as ds
import pytest

from tests.archive.exporting import END, START, node_of, run_export, spread_history

ROWS = spread_history(5, rows=200, accounts=15)


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as running:
        yield running


@pytest.fixture(scope="module")
def folder(node, tmp_path_factory):
    """An archive; not to be changed."""
    made = tmp_path_factory.mktemp("names") / "archive"
    run_export(node, made, start=START, end=END)
    return made


def test_what_is_no_row_has_a_name_that_engines_leave_out(folder):
    files = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith(("_", "."))} == {"changes"}
    assert (folder / "_checkpoints" / "2023-05-01.pq").exists()
    assert (folder / "_limits.parquet").exists()


@pytest.mark.parametrize("place", ["", "changes"])
def test_arrow_reads_the_rows_and_nothing_else_wherever_it_is_pointed(folder, place):
    assert ds.dataset(folder / place, format="parquet").count_rows() == len(ROWS)


@pytest.mark.parametrize("place", ["changes/**/*.parquet", "changes", "**/*.parquet"])
def test_duckdb_reads_every_row_and_digit_and_no_checkpoint(folder, tmp_path, place):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "_limits.parquet").unlink()  # or DuckDB refuses the pattern of all files
    balances = duckdb.sql(f"select balance from read_parquet('{copy}/{place}')").fetchall()
    assert sorted(balances) == sorted((int(row.balance),) for row in ROWS)


def test_duckdb_does_not_mix_the_limits_in_without_a_word(folder):
    with pytest.raises(duckdb.Error, match="schema mismatch"):
        duckdb.sql(f"from read_parquet('{folder}/**/*.parquet')").to_arrow_table()
