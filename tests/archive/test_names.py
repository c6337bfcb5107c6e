"""Other engines may read an archive's folder as it stands, and archives made before keep names."""

from __future__ import annotations

import json
import shutil

import duckdb
import pyarrow.dataset as ds
import pytest

from balance_analysis import Archive, Client, repair
from tests.archive.exporting import (
    DAY,
    END,
    MONTH,
    START,
    content_of,
    node_of,
    run_export,
    spread_history,
)
from tests.node.truth import lines_of_rows, lines_of_table

ROWS = spread_history(5, rows=200, accounts=15)
OLD = {"_checkpoints": "checkpoints", "_limits.parquet": "limits.parquet"}


def made_before(folder):
    """Make an archive one of the first format, which has other names."""
    for name, old in OLD.items():
        (folder / name).rename(folder / old)
    for path in (folder / "checkpoints").iterdir():
        path.rename(path.with_suffix(".parquet"))
    about = folder / "_archive.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "format_version": 1}))


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
    (copy / "_limits.parquet").unlink()  # or it is told of that, where it looks at all files
    found = duckdb.sql(f"select balance from read_parquet('{copy}/{place}')").fetchall()
    assert sorted(found) == sorted((int(row.balance),) for row in ROWS)


def test_duckdb_does_not_mix_the_limits_in_without_a_word(folder):
    with pytest.raises(duckdb.Error, match="schema mismatch"):
        duckdb.sql(f"from read_parquet('{folder}/**/*.parquet')").to_arrow_table()


def test_an_archive_of_before_goes_on_under_its_names_as_one_that_never_stopped(
    node, folder, tmp_path
):
    old = tmp_path / "old"
    run_export(node, old, start=START, end=MONTH + DAY // 2)
    made_before(old)

    assert Archive(old).verify().is_whole
    run_export(node, old, end=END)

    assert Archive(old).verify().is_whole
    assert lines_of_table(Archive(old).read()) == lines_of_rows(ROWS)
    assert len(Archive(old).limits()) == 1
    assert (Archive(old).status().checkpoints, Archive(old).status().lost) == (1, ())
    held = Archive(old).balance_at("2023-05-02")
    assert held.equals(Archive(folder).balance_at("2023-05-02"))
    assert content_of(old, "changes/") == content_of(folder, "changes/")
    assert not [name for name in OLD if (old / name).exists()]


def test_an_archive_of_before_is_mended_under_its_names(node, folder, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    made_before(old)
    for path in (old / "checkpoints" / "2023-05-01.parquet", old / "limits.parquet"):
        path.write_bytes(b"PAR1")

    wrong = {problem.where for problem in Archive(old).verify().problems}
    assert wrong == {"checkpoints/2023-05-01.parquet", "limits.parquet"}
    with Client(node.url) as client:
        assert repair(client, Archive(old)).left.is_whole
    assert not [name for name in OLD if (old / name).exists()]
