"""Moments as a caller writes them."""

import datetime as dt

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.columns import ATTRS_KEY, empty_table
from tests.moments import EPOCH, from_microseconds


def moment_of(text):
    """Return the moment that a text stands for, and its age."""
    start = ba.to_table(empty_table(), start=text).attrs[ATTRS_KEY]["start"]
    moment = dt.datetime.fromisoformat(start)
    return moment, dt.datetime.now(dt.UTC) - moment


@settings(max_examples=5)
@given(st.integers(0, 2000), st.sampled_from(["", "now-"]))
@pytest.mark.parametrize(
    ("letter", "unit"),
    [("s", "seconds"), ("m", "minutes"), ("h", "hours"), ("d", "days"), ("w", "weeks")],
)
def test_text_counts_back_from_now(letter, unit, count, prefix):
    before = dt.datetime.now(dt.UTC)
    ago = dt.timedelta(**{unit: count})
    moment, age = moment_of(f"{prefix}{count}{letter}")
    assert moment > EPOCH
    assert before <= moment + ago
    assert ago <= age


def test_a_week_until_now_has_seven_days():
    table = ba.read_parquet(demo.sample_data() / "changes.parquet").head(50)
    assert len(ba.balance_series(table, freq="1D", start="7d", end="now")) == 7
    notes = table.balances.between("7d", "now").attrs[ATTRS_KEY]
    start, end = (dt.datetime.fromisoformat(notes[name]) for name in ("start", "end"))
    assert end - start == dt.timedelta(days=7)


FORMS = [pd.Timestamp, pd.Timestamp.to_numpy, pd.Timestamp.isoformat]
FORMS.append(lambda moment: moment.isoformat().replace(".", ","))


@pytest.mark.parametrize("written", FORMS)
@pytest.mark.parametrize(("nanoseconds", "least"), [(1000, 1), (1001, 2), (1999, 2)])
def test_a_bound_inside_a_microsecond_is_the_next_one(written, nanoseconds, least):
    moment, _ = moment_of(written(pd.Timestamp(nanoseconds)))
    assert moment == from_microseconds(least)


@pytest.mark.parametrize(
    "text",
    ["now-", "7 d", "tomorrow", "now+1h", "-7d", "7y", "9999999999999w", "", "9999-12-31T23:59-05"]
    + [f"2023-04-12{rest}" for rest in ("+02:00", "-05:00", "-05", "902:00", "x02 Z", "|02")],
)
def test_text_that_is_not_a_moment_is_refused(text):
    with pytest.raises(ValueError, match=r"now-1h|too long|1 to 9999 of UTC"):
        moment_of(text)


@pytest.mark.parametrize("value", [7, 7.5, [], dt.timedelta(days=7)])
def test_values_of_other_types_are_refused(value):
    with pytest.raises(TypeError, match="a moment is a datetime, a date or text"):
        moment_of(value)
