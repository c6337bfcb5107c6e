"""Which files the service takes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import requests

from balance_analysis.errors import ArchiveError
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.service.app import create_app
from balance_analysis.service.embedded import serve
from tests.service.rows import block_of, write_rows


def _count(path):
    with serve(create_app(path)) as url:
        answer = requests.get(f"{url}/api/v2/balance/changes", timeout=10).json()
    return len(answer["balances"]["edges"])


@pytest.mark.parametrize("name", ["[ab].parquet", "*.parquet", "a?.parquet", "it's $1 {x}.parquet"])
def test_no_character_of_a_path_has_a_meaning(tmp_path, name):
    write_rows(tmp_path / name, block_of(2))
    write_rows(tmp_path / "a.parquet", block_of(3))
    write_rows(tmp_path / "ab.parquet", block_of(3))
    assert _count(tmp_path / name) == 2


def test_the_name_of_a_folder_is_not_taken_for_a_column(tmp_path):
    folder = tmp_path / "asset_id=1"
    folder.mkdir()
    path = folder / "changes.parquet"
    write_rows(path, block_of(1))
    with serve(create_app(path)) as url:
        answer = requests.get(f"{url}/api/v2/balance/changes", timeout=10).json()
    assert answer["balances"]["edges"][0]["node"] == block_of(1)[0].node


def test_a_relative_path_stands_when_the_working_folder_changes(tmp_path, monkeypatch):
    write_rows(tmp_path / "changes.parquet", block_of(2))
    monkeypatch.chdir(tmp_path)
    app = create_app(Path("changes.parquet"))
    monkeypatch.chdir("/")
    with serve(app) as url:
        assert requests.get(f"{url}/api/v2/balance/changes", timeout=10).status_code == 200


def test_ids_may_be_plain_strings(tmp_path):
    path = tmp_path / "changes.parquet"
    write_rows(path, block_of(4))
    table = pq.read_table(path)
    plain = [pa.string()] * 4 + [field.type for field in ARROW_SCHEMA][4:]
    pq.write_table(table.cast(pa.schema(zip(table.column_names, plain, strict=True))), path)
    assert _count(path) == 4


def test_a_missing_file_is_an_archive_error(tmp_path):
    with pytest.raises(ArchiveError, match=r"nothing\.parquet can't be read"):
        create_app(tmp_path / "nothing.parquet")


def test_a_file_that_is_not_parquet_is_an_archive_error(tmp_path):
    path = tmp_path / "changes.parquet"
    path.write_text("asset_id,balance\n")
    with pytest.raises(ArchiveError, match="can't be read as a Parquet file"):
        create_app(path)


@pytest.mark.parametrize("column", ARROW_SCHEMA.names)
def test_a_missing_column_is_an_archive_error(tmp_path, column):
    path = tmp_path / "changes.parquet"
    pq.write_table(ARROW_SCHEMA.empty_table().drop_columns(column), path)
    with pytest.raises(ArchiveError, match=f"no column '{column}'"):
        create_app(path)


def test_balances_that_are_floats_are_an_archive_error(tmp_path):
    path = tmp_path / "changes.parquet"
    table = ARROW_SCHEMA.empty_table()
    floats = pc.cast(table["balance"], pa.float64())
    pq.write_table(table.drop_columns("balance").append_column("balance", floats), path)
    with pytest.raises(ArchiveError, match="column 'balance' is double"):
        create_app(path)
