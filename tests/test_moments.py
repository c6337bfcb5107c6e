"""Moments as a caller writes them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.schema import from_microseconds, to_bounds, to_microseconds

NOW = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)


@given(st.integers(0, 50_000), st.sampled_from(["", "now-"]))
@pytest.mark.parametrize(
    ("letter", "unit"),
    [("s", "seconds"), ("m", "minutes"), ("h", "hours"), ("d", "days"), ("w", "weeks")],
)
def test_text_counts_back_from_now(letter, unit, count, prefix):
    ago = dt.timedelta(**{unit: count})
    assert from_microseconds(to_microseconds(f"{prefix}{count}{letter}", now=NOW)) == NOW - ago


def test_both_ends_of_an_interval_count_from_one_now():
    start, end = to_bounds("7d", "now")
    assert end - start == 7 * 86_400_000_000
    assert abs(from_microseconds(end) - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)


def test_a_week_until_now_has_seven_days():
    table = ba.read_parquet(demo.sample_data() / "changes.parquet").head(50)
    assert len(ba.balance_series(table, freq="1D", start="7d", end="now")) == 7


@pytest.mark.parametrize(
    "text", ["now-", "7 d", "tomorrow", "now+1h", "-7d", "7y", "9999999999999w", ""]
)
def test_text_that_is_no_moment_is_refused(text):
    with pytest.raises(ValueError, match=r"now-1h|too long"):
        to_microseconds(text)


@pytest.mark.parametrize("value", [7, 7.5, None, [], dt.timedelta(days=7)])
def test_what_is_no_moment_is_refused(value):
    with pytest.raises(TypeError, match="a moment is a datetime, a date or text"):
        to_microseconds(value)
