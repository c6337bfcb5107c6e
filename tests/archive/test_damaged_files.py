"""Whatever is in a damaged file, reading it gives what it holds or an error of the package."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive.network import limits_row, read_limits, to_timeline
from balance_analysis.files.parquet import encode_parquet
from tests.analysis.tables import arrow_from, table_of
from tests.cli.running import invoke
from tests.damage import damaged

MOMENT = pd.Timestamp("2023-04-01", tz="UTC")
LIMITS = ba.NetworkLimits(
    can_propose_market=True,
    can_propose_asset=True,
    propose_market_enabled=False,
    propose_asset_enabled=True,
    genesis_loaded=True,
    propose_market_enabled_from=MOMENT,
    propose_asset_enabled_from=None,
    fetched_at=MOMENT,
    source="http://node",
    block_height=5,
    extra={"a": [1]},
)
START = 1_680_307_200_000_000
TABLE = table_of([("a" * 64, "TYPE", "b" * 64, "", START + at, at) for at in range(5)])
TABLE.attrs["balance_analysis"] = {"source": "http://node", "known": [["2023-04-01", "2023-04-02"]]}
CONFIG = b"""[export.main]
url = ["http://127.0.0.1:3008"]
archive = "somewhere"
since = 2023-04-01T00:00:00Z
lag = "1m"
page_size = 5000
max_requests_per_second = 2.5
fill_gaps = true
"""

every_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(write, value):
    """Return the bytes of a file that a function writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write(value, path)
        return path.read_bytes()


PARQUET = written(ba.write_parquet, TABLE)
JSON = written(ba.write_network_limits, LIMITS)


@every_file
@given(content=damaged(PARQUET) | damaged(PARQUET[-1500:]).map(lambda end: PARQUET[:-1500] + end))
@example(content=PARQUET.replace(b"balance_analysis", b"\xff" * 16))
@example(content=PARQUET.replace(b"known", b"k\xffown"))
def test_a_damaged_table_is_read_or_told(tmp_path, content):
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with contextlib.suppress(ba.ArchiveError):
        assert list(ba.read_parquet(path).columns) == list(TABLE.columns)


def test_a_note_nested_too_deep_is_told(tmp_path):
    rows = arrow_from(TABLE)
    note = {b"balance_analysis": "[" * 100_000}
    pq.write_table(rows.replace_schema_metadata(note), tmp_path / "x")
    with contextlib.suppress(ba.ArchiveError):
        assert len(ba.read_parquet(tmp_path / "x")) == len(TABLE)


@every_file
@given(content=damaged(JSON))
@example(content=b"[" * 100_000)
@example(content=b'"text"')
@example(content=JSON.replace(b'"2023-04-01', b'{"a": "2023-04-01').replace(b'Z"', b'Z"}'))
@example(content=JSON.replace(b'"2023-04-01T00:00:00.000000000Z"', b"9" * 30))
@example(content=JSON.replace(b'"2023-04-01T00:00:00.000000000Z"', b"1e999"))
@example(content=JSON.replace(b'"2023-04-01T00:00:00.000000000Z"', b"[]"))
def test_a_damaged_snapshot_is_read_or_told(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with contextlib.suppress(ba.ArchiveError):
        ba.read_network_limits(path)


@every_file
@given(data=st.data())
def test_the_damaged_limits_of_an_archive_are_read_or_told(tmp_path, data):
    whole = encode_parquet(to_timeline([limits_row(LIMITS)]))
    (tmp_path / "_limits.parquet").write_bytes(data.draw(damaged(whole)))
    with contextlib.suppress(ba.ArchiveError):
        read_limits(ba.Archive(tmp_path).store)


@every_file
@given(content=damaged(CONFIG))
@example(content=CONFIG.replace(b'"1m"', b"[" * 100_000))
@example(content=CONFIG.replace(b"5000", b"9" * 5000))
@example(content=CONFIG.replace(b"2.5", b"9" * 400))
@example(content=CONFIG.replace(b"2023-04-01", b"2023-99-99"))
@example(content=CONFIG.replace(b"5000", b'"' + b"9" * 5000 + b'"'))
def test_a_damaged_config_is_read_or_told(tmp_path, content):
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    result = invoke(["config", "show", "--config", str(path)])
    assert result.exit_code in {0, 2}, result.exception
    assert result.exit_code == 0 or result.stderr.count("\n") == 1
