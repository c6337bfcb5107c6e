"""Files keep every row and digit, and appear whole or not at all."""

from __future__ import annotations

import json

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import (
    ArchiveError,
    NetworkLimits,
    read_network_limits,
    read_parquet,
    write_network_limits,
    write_parquet,
)
from balance_analysis.files.atomic import replacing
from tests.analysis.tables import LARGEST, START, arrow_from, rows, table_of
from tests.columns import ARROW_SCHEMA, empty_table

TABLE = table_of(
    [
        ("USDT", "ACCOUNT_TYPE_GENERAL", "b2", "", START, LARGEST),
        ("USDT", "ACCOUNT_TYPE_GENERAL", "a1", "", START + 1, -5),
        ("VEGA", "31", "network", "m1", START, 0),
    ]
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "changes.parquet"


@settings(max_examples=12)
@given(rows, st.randoms(use_true_random=False))
def test_reading_what_was_written_gives_an_equal_table(tmp_path_factory, rows, random):
    table = table_of(rows)
    shuffled = table.sample(frac=1, random_state=random.randrange(2**32))
    path = tmp_path_factory.mktemp("files") / "changes.parquet"
    write_parquet(shuffled, path)
    pd.testing.assert_frame_equal(read_parquet(path), table)
    written = path.read_bytes()
    write_parquet(table, path)
    assert path.read_bytes() == written


@pytest.mark.parametrize("table", [TABLE, empty_table()], ids=["rows", "empty"])
def test_a_table_keeps_its_dtypes_and_categories(table, path):
    write_parquet(table, path)
    again = read_parquet(path)
    pd.testing.assert_frame_equal(again, table)
    assert list(again.dtypes) == list(table.dtypes)


def test_how_a_table_was_loaded_is_kept_with_it(path):
    table = TABLE.copy()
    table.attrs["balance_analysis"] = {"source": "http://node", "rows": 3}
    write_parquet(table, path)
    note = read_parquet(path).attrs["balance_analysis"]
    assert table.attrs["balance_analysis"].items() < note.items()


def test_another_engine_reads_every_digit(path):
    write_parquet(TABLE, path)
    largest = duckdb.sql(f"SELECT max(balance)::VARCHAR FROM read_parquet('{path}')").fetchall()
    assert largest == [(str(LARGEST),)]


def test_a_file_of_plain_columns_in_another_order_is_a_table_too(path):
    plain = arrow_from(TABLE).cast(
        pa.schema(
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
            for f in ARROW_SCHEMA
        )
    )
    pq.write_table(plain.select(plain.column_names[::-1]).take([2, 0, 1]), path)
    pd.testing.assert_frame_equal(read_parquet(path), TABLE)


def test_whole_numbers_and_nanoseconds_are_read_exactly(path):
    rows = arrow_from(TABLE[TABLE["balance"] < 10])
    others = {"balance": pa.int64(), "timestamp": pa.timestamp("ns", "UTC")}
    pq.write_table(
        rows.cast(pa.schema(f.with_type(others.get(f.name, f.type)) for f in rows.schema)), path
    )
    assert read_parquet(path)["balance"].tolist() == [-5, 0]


def with_column(name, values):
    rows = arrow_from(TABLE)
    return rows.set_column(rows.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (arrow_from(TABLE).drop_columns(["balance", "party_id"]), "no column balance, party_id"),
        (with_column("balance", pa.array([1.0, 2.0, 3.0])), "column balance is double"),
        (with_column("balance", pa.array([1, 2, None], pa.decimal128(38, 0))), "missing values"),
        (
            with_column("balance", pa.array([1, 2, 10**38], pa.decimal256(40, 0))),
            "not fit in precision",
        ),
        (with_column("timestamp", pa.array(["x", "y", "z"])), "or is damaged"),
        (with_column("timestamp", pa.array([1, 2, 1500], pa.timestamp("ns"))), "would lose data"),
    ],
)
def test_a_file_that_may_have_lost_something_is_refused(rows, says, path):
    pq.write_table(rows, path)
    with pytest.raises(ArchiveError, match=says) as raised:
        read_parquet(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_an_os_error(path):
    with pytest.raises(FileNotFoundError):
        read_parquet(path)
    with pytest.raises(FileNotFoundError):
        write_parquet(TABLE, path.parent / "missing" / "changes.parquet")


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (TABLE.drop(columns="balance"), ValueError),
        (TABLE.assign(balance=1.5), TypeError),
        (TABLE.assign(balance=pd.array([1, None, 2], TABLE["balance"].dtype)), ValueError),
    ],
    ids=["a missing column", "a float", "a missing value"],
)
def test_what_is_no_table_is_not_written(frame, error, path):
    with pytest.raises(error):
        write_parquet(frame, path)
    assert list(path.parent.iterdir()) == []


def test_columns_that_a_file_of_a_table_would_not_have_are_named(path):
    with pytest.raises(ValueError, match=r"has name, 7 besides; write_table writes all"):
        write_parquet(TABLE.assign(name="Ada").assign(**{"7": 7}), path)
    assert list(path.parent.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path):
    path.write_text("old")

    def write():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
    (path.parent / "other").write_text("")
    assert path.stat().st_mode == (path.parent / "other").stat().st_mode


LIMITS = NetworkLimits(
    can_propose_market=True,
    can_propose_asset=False,
    propose_market_enabled=True,
    propose_asset_enabled=True,
    genesis_loaded=True,
    propose_market_enabled_from=pd.Timestamp(1_678_443_597_542_692_001, tz="UTC"),
    propose_asset_enabled_from=None,
    fetched_at=pd.Timestamp("2023-05-01T12:00:00.5Z"),
    source="http://127.0.0.1:3008",
    block_height=7,
    extra={"canUseAmm": True},
)


def test_limits_come_back_as_they_were_written(tmp_path):
    write_network_limits(LIMITS, tmp_path / "limits.json")
    assert read_network_limits(tmp_path / "limits.json") == LIMITS


def test_limits_are_written_with_nanoseconds_and_null():
    content = json.loads(LIMITS.to_json())
    assert content["propose_market_enabled_from"] == "2023-03-10T10:19:57.542692001Z"
    assert content["propose_asset_enabled_from"] is None


@pytest.mark.parametrize("content", ["[]", '{"can_propose_market": true}'])
def test_a_file_without_limits_is_refused(content, tmp_path):
    path = tmp_path / "limits.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ArchiveError, match=str(path)):
        read_network_limits(path)


def test_a_folder_that_takes_no_file_is_an_os_error():
    with pytest.raises(OSError, match="/proc"):  # where root may not write either
        write_parquet(TABLE, "/proc/changes.parquet")
