"""Whatever is in a damaged file, reading it gives what it holds or an error of the package."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import table_of
from tests.damage import damaged

MOMENT = pd.Timestamp("2023-04-01", tz="UTC")
FLAGS = ("can_propose_market", "can_propose_asset", "propose_market_enabled")
LIMITS = ba.NetworkLimits(
    **dict.fromkeys([*FLAGS, "propose_asset_enabled", "genesis_loaded"], True),
    propose_market_enabled_from=MOMENT,
    propose_asset_enabled_from=None,
    fetched_at=MOMENT,
    source="http://node",
    block_height=5,
    extra={"a": [1]},
)
START = 1_680_307_200_000_000
TABLE = table_of([("a" * 64, "TYPE", "b" * 64, "", START + at, at) for at in range(5)])
TABLE.attrs["balance_analysis"] = {
    "source": "http://node",
    "known": [["2023-04-01T00:00:00Z", "2023-04-02T00:00:00Z"]],
}


def written(write, value):
    """Return the bytes of a file that a function writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write(value, path)
        return path.read_bytes()


PARQUET = written(ba.write_parquet, TABLE)
JSON = written(ba.write_network_limits, LIMITS)
DATE = b'"2023-04-01T00:00:00.000000000Z"'


def read_table(path):
    with contextlib.suppress(ba.ArchiveError):
        assert list(ba.read_parquet(path).columns) == list(TABLE.columns)


def read_limits(path):
    with contextlib.suppress(ba.ArchiveError):
        ba.read_network_limits(path)


@pytest.mark.parametrize(
    ("read", "contents"),
    [
        (read_table, damaged(PARQUET)),
        (read_table, damaged(PARQUET[-1500:]).map(lambda end: PARQUET[:-1500] + end)),
        (read_limits, damaged(JSON)),
    ],
    ids=["table", "footer", "limits"],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_named(tmp_path, read, contents, data):
    (tmp_path / "x").write_bytes(data.draw(contents))
    read(tmp_path / "x")


@pytest.mark.parametrize(
    ("read", "content"),
    [
        *((read_table, PARQUET.replace(b"balance_analysis", b"\xff" * 16)),),
        *((read_table, PARQUET.replace(b"known", b"k\xffown")),),
        *((read_limits, x) for x in (b"", b"[]", b"{}", b'"text"', b"\xff", b"[" * 100_000)),
        *((read_limits, JSON.replace(DATE, x)) for x in (b"9" * 30, b"1e999", b"[]", b'{"a": 1}')),
    ],
)
def test_damage_that_once_was_an_unexpected_error_is_named(tmp_path, read, content):
    (tmp_path / "x").write_bytes(content)
    read(tmp_path / "x")
