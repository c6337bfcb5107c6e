from __future__ import annotations

import datetime as dt

import pytest

from balance_analysis.archive.verify_report import VerifyReport
from balance_analysis.text import count_text, list_text, moment_text, spans_text

NOON = 1_680_350_400_000_000


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 new rows"), (1, "1 new row"), (63_381, "63,381 new rows")],
)
def test_a_count_has_its_plural_at_the_last_word(number, said):
    assert count_text(number, "new row") == said


def test_a_report_of_a_check_counts_its_parts():
    said = str(VerifyReport("a", windows=2, gaps=1, unproven=2)).splitlines()
    assert said == [
        "a: whole (0 files, 0 rows, 0 checkpoints, 2 windows asked again)",
        "its coverage has 1 gap and 2 unproven parts: `status` tells which",
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
    assert moment_text(moment) == "2023-04-01 12:00:00 UTC"


def test_a_moment_has_the_digits_that_it_has_or_those_asked_for():
    assert moment_text(NOON + 1) == "2023-04-01 12:00:00.000001 UTC"
    assert moment_text(NOON + 1, "seconds") == "2023-04-01 12:00:00 UTC"


def test_of_many_texts_the_first_few_are_listed():
    assert list_text(["a", "b"], 2) == "a, b"
    assert list_text(["a", "b", "c"], 2, sep="; ") == "a; b; 1 more"
    whole = [(NOON, NOON + 1_000_000)] * 5
    first = "[2023-04-01 12:00:00+00:00, 2023-04-01 12:00:01+00:00)"
    assert spans_text(whole) == f"{first}, {first}, {first}, and 2 more"
