"""An archive as a dask DataFrame."""

import dask
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis.tables import DAY, HOUR, START, books, records, table_of
from tests.columns import BALANCE_DTYPE, COLUMNS, TIMESTAMP_DTYPE
from tests.moments import from_microseconds
from tests.scale.archives import archive_of, assert_same

TIMES = st.integers(0, 14).map(lambda step: START + step * 5 * HOUR)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@given(books(times=TIMES, most=20, openings=False), st.sampled_from(["hour", "day", "month"]))
@settings(max_examples=8)
def test_all_partitions_together_are_the_table(book, partition):
    rows = table_of(book[0])
    with archive_of(rows, partition) as archive:
        frame = archive.to_dask()
        assert frame.known_divisions
        result = frame.compute()
    assert result.dtypes["balance"] == BALANCE_DTYPE
    assert result.dtypes["timestamp"] == TIMESTAMP_DTYPE
    assert_same(ba.to_table(result), rows)


def test_a_partition_is_what_dask_expects(archive):
    frame = archive.to_dask()
    for place in range(frame.npartitions):
        part = frame.get_partition(place).compute()
        assert part.dtypes.astype("str").to_dict() == frame.dtypes.astype("str").to_dict()
        assert part.index.dtype == frame.index.dtype == TIMESTAMP_DTYPE
        assert set(part.index) == {frame.divisions[place]}
        ba.check_table(part[part["balance"] >= 0])
    assert list(archive.read().columns) == list(frame.columns) == list(COLUMNS)


def test_a_stretch_of_days_reads_these_days_only(archive, table):
    day = pd.Timestamp(from_microseconds(START + 3 * DAY)).floor("D")
    frame = archive.to_dask().loc[day : day + pd.Timedelta("2D")]
    assert frame.optimize().npartitions == 3
    times = table["timestamp"]
    expected = table[(times >= day) & (times < day + pd.Timedelta("3D"))]
    assert_same(ba.to_table(frame.compute()), ba.to_table(expected))


def test_filters_bounds_and_columns_are_those_of_read(archive):
    bounds = {"start": from_microseconds(START + DAY), "end": from_microseconds(START + 4 * DAY)}
    how, chosen = {**bounds, "columns": ["balance", "asset_id"]}, archive.select(asset_id="VOTE")
    result = chosen.to_dask(**how).compute()
    assert list(result.columns) == ["balance", "asset_id"]
    assert records(result) == records(chosen.read(**how))


def test_invalid_arguments_are_refused_before_anything_is_read(archive):
    with pytest.raises(ValueError, match="no columns"):
        archive.to_dask(columns=["amount"])
    with pytest.raises(ba.IncompleteError, match="missing"):
        archive.to_dask(start="2020-01-01")
    assert archive.to_dask(start="2020-01-01", partial=True).npartitions > 1


def test_partitions_together_have_the_gap_that_a_read_has(tmp_path):
    first, _, third, *_ = sorted(demo.sample_data().joinpath("segments").glob("*.zip"))
    archive = ba.Archive(tmp_path / "archive")
    for segment in (first, third):
        ba.import_segments(archive, [segment], progress=False, partition="hour")
    joined, table = archive.to_dask(partial=True).compute(), archive.read(partial=True)
    held = [ba.balance_at(each, "2023-04-01T10:00Z") for each in (joined, table)]
    assert_same(held[0], held[1].drop(columns=["symbol", "label"], errors="ignore"))
    assert held[0]["balance"].isna().all()
