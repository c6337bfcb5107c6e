"""Since when movers are told."""

from __future__ import annotations

import pytest

from balance_analysis.report.report import write_report
from balance_analysis.schema import from_microseconds
from tests.analysis.tables import DAY, GENERAL, HOUR, START, table_of
from tests.report.reading import number, read_page

pytestmark = pytest.mark.usefixtures("words_only")

OTHER = ("VOTE", "ACCOUNT_TYPE_GENERAL", "b2", "")
ROWS = [(*GENERAL, START + day * DAY, 10 + day) for day in range(10)]
ROWS += [(*OTHER, START + day * DAY + HOUR, 100 - day * day) for day in range(10)]


def upto(day):
    return from_microseconds(START + day * DAY)


def write(path, day, **options):
    write_report(table_of(ROWS), path, end=upto(day), largest=0, **options)
    return read_page(path)


def movers(page):
    return {row["party"]: number(row["net"]) for row in page.table("Largest movers")}


def caption(page):
    (found,) = (caption for caption in page.tables if caption.startswith("Largest movers"))
    return found


def test_the_first_report_tells_of_the_last_24_hours(tmp_path):
    page = write(tmp_path / "report.html", 5)
    assert caption(page).startswith("Largest movers in the last 24 hours")
    assert movers(page) == {"a1": 1, "b2": -7}
    assert page.note["previous_end"] is None


def test_the_next_report_tells_of_what_moved_since_the_one_in_its_place(tmp_path):
    write(tmp_path / "report.html", 5)
    page = write(tmp_path / "report.html", 8)
    assert caption(page).startswith("Largest movers since the last report, which ended at")
    assert movers(page) == {"a1": 3, "b2": -33}
    assert page.note["previous_end"] == upto(5).isoformat()


@pytest.mark.parametrize("days", [[5], [5, 8]])
def test_a_report_that_is_written_again_is_the_same_file(tmp_path, days):
    path = tmp_path / "report.html"
    for day in days:
        write(path, day)
    first = path.read_bytes()
    write(path, days[-1])
    assert path.read_bytes() == first


def test_a_report_that_ends_earlier_is_not_told_of_one_that_ends_later(tmp_path):
    path = tmp_path / "report.html"
    write(path, 8)
    assert caption(write(path, 5)).startswith("Largest movers in the last 24 hours")


def test_a_last_report_elsewhere_can_be_named(tmp_path):
    write(tmp_path / "old.html", 5)
    page = write(tmp_path / "report.html", 8, previous=tmp_path / "old.html")
    assert movers(page) == {"a1": 3, "b2": -33}


def test_movers_are_told_from_the_beginning_of_a_report_that_begins_after_the_last(tmp_path):
    path = tmp_path / "report.html"
    write(path, 3)
    page = write(path, 8, start=upto(6))
    assert "since this report begins" in caption(page)
    assert movers(page) == {"a1": 2, "b2": 25 - 49}


def test_what_is_no_report_is_no_last_report(tmp_path):
    path = tmp_path / "report.html"
    path.write_bytes(b"\xff\xfe some other file")
    assert caption(write(path, 5)).startswith("Largest movers in the last 24 hours")
    other = tmp_path / "other.html"
    other.write_text("<html>", encoding="utf-8")
    with pytest.raises(ValueError, match="no report of this package"):
        write(path, 8, previous=other)
    with pytest.raises(FileNotFoundError):
        write(path, 8, previous=tmp_path / "none.html")


@pytest.mark.parametrize("days", [[8], [3, 8]])
def test_a_last_report_that_is_named_must_not_end_after_this_one(tmp_path, days):
    for day in days:
        write(tmp_path / "old.html", day)
    with pytest.raises(ValueError, match="which is after"):
        write(tmp_path / "report.html", 5, previous=tmp_path / "old.html")


def test_a_report_of_nothing_is_no_last_report(tmp_path):
    write_report(table_of([]), tmp_path / "old.html")
    with pytest.raises(ValueError, match="has no balance changes, so no end"):
        write(tmp_path / "report.html", 5, previous=tmp_path / "old.html")


def test_where_nothing_moved_the_page_says_since_when(tmp_path):
    path = tmp_path / "report.html"
    write_report(table_of([(*GENERAL, START - DAY, 5)]), path, end=upto(5), largest=0)
    said = f"At the end no account is known to hold more or less than at {upto(4):%Y-%m-%d %H:%M}"
    assert said in read_page(path).text("p")
