"""Files keep every row and digit, appear whole or not at all, and damaged ones are named."""

import contextlib
import errno
import json
import os
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import LARGEST, START, arrow_from, rows, table_of
from tests.columns import known_of, note_known
from tests.damage import damaged
from tests.service.test_limits import SNAPSHOT

USDT = ("USDT", "ACCOUNT_TYPE_GENERAL")
ROWS = [(*USDT, "b2", "", START, LARGEST), (*USDT, "a1", "", START + 1, -5)]
TABLE = table_of([*ROWS, ("VEGA", "31", "network", "m1", START, 0)])
note_known(TABLE, [(START, START + 9)])
DATE = b'"2023-04-01T00:00:00.123456789+00:00"'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "changes.parquet"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("files") / "file"


@settings(max_examples=12)
@example([], None)
@given(rows, st.randoms(use_true_random=False))
def test_reading_a_written_table_gives_an_equal_one(scratch, rows, random):
    table = table_of(rows)
    state = random and random.randrange(2**32)
    ba.write_parquet(table.sample(frac=1, random_state=state), scratch)
    pd.testing.assert_frame_equal(ba.read_parquet(scratch), table)
    written = scratch.read_bytes()
    ba.write_parquet(table, scratch)
    assert scratch.read_bytes() == written


def test_a_part_of_an_archive_is_read_with_a_warning(tmp_path, caplog):
    ba.write_parquet(TABLE, tmp_path / "x.parquet")
    (tmp_path / "_archive.json").write_text("{}")
    assert ba.read_parquet(tmp_path / "x.parquet").equals(TABLE)
    assert f"ba.Archive({str(tmp_path)!r}).read(" in caplog.text


def test_plain_columns_in_another_order_whole_numbers_and_nanoseconds_are_a_table_too(path):
    small = TABLE[TABLE["balance"] < 10]
    kinds = dict.fromkeys(ba.ACCOUNT_KEY, pa.string()) | {"timestamp": pa.timestamp("ns", "UTC")}
    for table, amount in ((TABLE, pa.decimal128(38, 0)), (small, pa.int64())):
        rows = arrow_from(table)
        types = {**kinds, "balance": amount}
        schema = pa.schema([(name, types[name]) for name in rows.column_names])
        plain = rows.cast(schema)
        pq.write_table(plain.select(plain.column_names[::-1])[::-1], path)
        back, expected = ba.read_parquet(path), table.reset_index(drop=True)
        pd.testing.assert_frame_equal(back, expected, check_categorical=False)


def with_column(name, values):
    rows = arrow_from(TABLE)
    return rows.set_column(rows.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (arrow_from(TABLE).drop_columns(["balance", "party_id"]), "no column balance, party_id"),
        (with_column("balance", pa.array([1.0, 2.0, 3.0])), "column balance is double"),
        (with_column("balance", pa.array([1, 2, None], pa.decimal128(38, 0))), "missing values"),
        (with_column("balance", pa.array([1, 2, 10**38], pa.decimal256(40))), "fit in precision"),
        (with_column("timestamp", pa.array(["x", "y", "z"])), "or is damaged"),
        (with_column("timestamp", pa.array([1, 2, 1500], pa.timestamp("ns"))), "would lose data"),
    ],
)
def test_a_file_that_may_have_lost_digits_or_values_is_refused(rows, says, path):
    pq.write_table(rows, path)
    with pytest.raises(ba.ArchiveError, match=says) as raised:
        ba.read_parquet(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("frame", "error", "says"),
    [
        (TABLE.drop(columns="balance"), ValueError, "balance"),
        (TABLE.assign(balance=1.5), TypeError, "balance"),
        (TABLE.assign(balance=pd.array([1, None, 2], TABLE["balance"].dtype)), ValueError, "."),
        (TABLE.assign(name="Ada", **{"7": 7}), ValueError, "also has name, 7; write_table writes"),
    ],
)
def test_a_frame_that_is_not_a_table_is_not_written(frame, error, says, path):
    with pytest.raises(error, match=says):
        ba.write_parquet(frame, path)
    assert list(path.parent.iterdir()) == []


def test_a_missing_or_unwritable_file_is_an_os_error(path):
    with pytest.raises(FileNotFoundError):
        ba.read_parquet(path)
    with pytest.raises(FileNotFoundError):
        ba.write_parquet(TABLE, path.parent / "missing" / "changes.parquet")
    with pytest.raises(OSError, match="/proc"):  # where root may not write either
        ba.write_parquet(TABLE, "/proc/changes.parquet")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, "disk full")

    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="disk full"):
        ba.write_parquet(TABLE, path)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    ba.write_parquet(TABLE, path)
    (path.parent / "other").write_text("")
    assert path.stat().st_mode == (path.parent / "other").stat().st_mode


def test_limits_come_back_as_they_were_written_with_nanoseconds_and_null(path):
    ba.write_network_limits(SNAPSHOT, path)
    assert ba.read_network_limits(path) == SNAPSHOT
    content = json.loads(path.read_text())
    assert content["propose_market_enabled_from"] == "2023-04-01T00:00:00.123456789+00:00"
    assert content["propose_asset_enabled_from"] is None


def written(write, value):
    """Return the bytes of a file that a function writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write(value, path)
        return path.read_bytes()


PARQUET = written(ba.write_parquet, TABLE)
JSON = written(ba.write_network_limits, SNAPSHOT)


def read_table(path):
    assert list(ba.read_parquet(path).columns) == list(TABLE.columns)


@pytest.mark.parametrize(
    ("read", "contents"),
    [
        (read_table, damaged(PARQUET)),
        (read_table, damaged(PARQUET[-1500:]).map(lambda end: PARQUET[:-1500] + end)),
        (ba.read_network_limits, damaged(JSON)),
    ],
    ids=["table", "footer", "limits"],
)
@given(data=st.data())
def test_a_damaged_file_is_read_or_named(scratch, read, contents, data):
    scratch.write_bytes(data.draw(contents))
    with contextlib.suppress(ba.ArchiveError):
        read(scratch)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'"text"', b"\xff", b"[" * 100_000, b'{"can_propose_market": true}'),
        *(JSON.replace(DATE, x) for x in (b"9" * 30, b"1e999", b"[]", b'{"a": 1}')),
    ],
)
def test_a_file_that_is_not_a_snapshot_of_the_limits_is_refused(scratch, content):
    scratch.write_bytes(content)
    with pytest.raises(ba.ArchiveError, match=str(scratch)):
        ba.read_network_limits(scratch)


def test_a_table_whose_note_has_another_key_is_read_without_known_intervals(scratch):
    scratch.write_bytes(PARQUET.replace(b"balance_analysis", b"\xff" * 16))
    assert known_of(ba.read_parquet(scratch)) is None


@pytest.mark.parametrize("note", [b"7", b"[]", b"{", b'{"load": {}, "digest": "0"}'])
def test_a_note_that_this_package_did_not_write_is_refused(path, note):
    rows = arrow_from(TABLE).replace_schema_metadata({b"balance_analysis": note})
    pq.write_table(rows, path)
    with pytest.raises(ba.ArchiveError, match="or is damaged"):
        ba.read_parquet(path)


def test_a_flipped_bit_in_a_file_is_noticed_or_changes_nothing(path):
    ba.write_parquet(TABLE, path)
    written, content = ba.read_parquet(path), path.read_bytes()
    for place in range(4, len(content), 5):
        flipped = content[place] ^ 1 << place % 8
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        with contextlib.suppress(ba.ArchiveError):
            table = ba.read_parquet(path)
            assert table.equals(written), place
            # Where the footer's structure is hit, the note may be gone, but it isn't another one.
            assert table.attrs == written.attrs or known_of(table) is None, place
