from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.text import duration_text, moment_text, short_ids

NOON = 1_680_350_400_000_000
PARTY = "c2071f9874933829eb432b1af0d776b5d49d5d4a7feefffa7d1e9642d9d5ed19"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"

# Few letters and the ellipsis itself, so that ends collide.
ids = st.lists(st.text("ab…", max_size=20), max_size=30)


def test_a_report_of_a_check_counts_its_parts():
    said = str(ba.VerifyReport("a", files=1, rows=63_381, missing=1, unproven=2)).splitlines()
    assert said == [
        "a: no problem (1 file, 63,381 rows, 0 checkpoints checked)",
        "coverage: 1 missing and 2 unproven parts",
        "    `balance-analysis status a` shows which",
    ]


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        dt.datetime(2023, 4, 1, 12),  # noqa: DTZ001 - without a time zone it is UTC
        dt.datetime(2023, 4, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ],
)
def test_a_moment_is_written_in_utc(moment):
    assert moment_text(moment) == "2023-04-01T12:00Z"


def test_a_moment_has_the_digits_that_it_has_or_those_asked_for():
    assert moment_text(NOON + 1) == "2023-04-01T12:00:00.000001Z"
    assert moment_text(NOON + 1, "seconds") == "2023-04-01T12:00Z"


@given(ids)
def test_short_forms_differ_keep_both_ends_and_are_never_longer(ids):
    short = short_ids(ids)
    assert {*short} == {*ids}
    assert len({*short.values()}) == len({*ids})
    for full, form in short.items():
        assert len(form) <= len(full)
        assert form == full or (full.startswith(form[:6]) and full.endswith(form[-4:]))


def test_a_long_id_keeps_its_first_six_and_last_four_characters():
    assert short_ids([PARTY]) == {PARTY: "c2071f…ed19"}


@pytest.mark.parametrize("whole", ["network", "VOTE", "", "eleven char"])
def test_an_id_as_short_as_a_short_form_stays_whole(whole):
    assert short_ids([whole, PARTY])[whole] == whole


def test_ids_with_equal_ends_keep_as_much_as_they_need_to_differ():
    other = PARTY[:10] + "0" * 44 + PARTY[-10:]
    assert short_ids([PARTY, other]) == {
        full: f"{full[:12]}…{full[-10:]}" for full in (PARTY, other)
    }


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ("3D", "3 days"),
        ("1D 2h 5min", "1 day 2 hours"),
        ("61s", "1 minute 1 second"),
        ("5us", "less than a second"),
        ("1200D", "1,200 days"),
        ("29D 23h 59min 59.7s", "30 days"),
        ("29D 23h 31min", "30 days"),
        ("29D 23h 29min", "29 days 23 hours"),
        ("23h 59min 40s", "1 day"),
        ("59.9s", "1 minute"),
    ],
)
def test_lengths_are_written_in_two_units(length, words):
    assert duration_text(pd.Timedelta(length)) == words
