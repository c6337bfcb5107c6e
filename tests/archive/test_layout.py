"""Other engines read an archive's folder as it is; its files are sorted by account."""

import hashlib
import json
import shutil

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from tests.archive.exporting import node_of, run_export, state_of
from tests.archive.months import END, ROW_GROUP, ROWS, START
from tests.node.truth import lines_of_rows, lines_of_table, matching

FILE_ORDER = ["party_id", "asset_id", "account_type", "market_id", "timestamp"]


def test_files_without_rows_have_names_that_engines_ignore(months):
    files = {path.relative_to(months).parts[0] for path in months.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith(("_", "."))} == {"changes"}
    assert (months / "_checkpoints" / "2023-05-01.pq").exists()
    assert (months / "_limits.parquet").exists()


@pytest.mark.parametrize("place", ["", "changes"])
def test_arrow_reads_only_the_rows_from_any_folder_of_the_archive(months, place):
    assert ds.dataset(months / place, format="parquet").count_rows() == len(ROWS)


@pytest.mark.parametrize("place", ["changes/**/*.parquet", "changes", "**/*.parquet"])
def test_duckdb_reads_every_row_and_digit_and_no_checkpoint(months, tmp_path, place):
    copy = shutil.copytree(months, tmp_path / "copy")
    (copy / "_limits.parquet").unlink()  # or DuckDB refuses the pattern of all files
    balances = duckdb.sql(f"select balance from read_parquet('{copy}/{place}')").fetchall()
    assert sorted(balances) == sorted((int(row.balance),) for row in ROWS)


def test_duckdb_never_mixes_the_limits_into_the_rows_silently(months):
    with pytest.raises(duckdb.Error, match="schema mismatch"):
        duckdb.sql(f"from read_parquet('{months}/**/*.parquet')").to_arrow_table()


def test_a_file_states_and_keeps_its_order_and_a_row_group_has_only_its_own_ids(months):
    footers = {entry.footer for entry in state_of(months).files.values()}
    for path in months.glob("changes/*/changes.parquet"):
        content = path.read_bytes()
        footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
        assert hashlib.sha256(footer).hexdigest() in footers
        with pq.ParquetFile(path) as file:
            note = json.loads(file.metadata.metadata[b"balance_analysis"])
            assert note == {"format_version": 1, "kind": "balance changes"}
            order = file.metadata.row_group(0).sorting_columns
            assert [file.schema_arrow.names[each.column_index] for each in order] == FILE_ORDER
            rows = [tuple(row[name] for name in FILE_ORDER) for row in file.read().to_pylist()]
            assert rows == sorted(rows)
            for number in range(file.num_row_groups):
                group = file.read_row_group(number)
                for place, name in enumerate(ba.ACCOUNT_KEY):
                    stored = file.metadata.row_group(number).column(place).statistics
                    values = group[name].to_pylist()
                    assert (stored.min, stored.max) == (min(values), max(values))
                    assert {*group[name].chunk(0).dictionary.to_pylist()} == {*values}


def groups_of(archive):
    """Return the row groups that a read of an archive reads."""
    return [*archive.snapshot().scan(archive.filters).groups()]


@pytest.mark.parametrize("length", [1, 1500])  # of long ids no file has bounds
def test_a_party_is_read_from_few_row_groups_and_from_all_that_have_it(
    monkeypatch, tmp_path, length
):
    monkeypatch.setattr("balance_analysis.archive.datafile.ROW_GROUP", ROW_GROUP)
    rows = [row._replace(party_id=row.party_id[:4] * length) for row in ROWS]
    run_export(node_of(rows, head=END), tmp_path / "a", start=START, end=END, partition="month")
    archive = ba.Archive(tmp_path / "a")
    one = archive.select(asset_id=f"id:{rows[0].asset_id}")
    assert len(groups_of(one)) < len(groups_of(archive))
    for party in {row.party_id for row in rows}:
        own, chosen = matching(rows, party_ids=[party]), archive.select(party_ids=party)
        assert lines_of_table(chosen.read()) == lines_of_rows(own)
        assert length > 1 or len(groups_of(chosen)) <= len(own) // ROW_GROUP + 2 * 4
