"""What a report of an archive says of how complete it is."""

from __future__ import annotations

import shutil

import pytest

from balance_analysis.archive.archive import Archive
from balance_analysis.report.report import write_report
from balance_analysis.report.sections import GAPS_NOTE
from balance_analysis.schema import from_microseconds, to_microseconds
from tests.archive.exporting import DAY, HOUR, node_of, run_export, spread_history
from tests.report.reading import number, read_page

START = to_microseconds("2023-04-03")
END = START + 5 * DAY
SPREAD = spread_history(3, start=START, end=END)
ROWS = [row for row in SPREAD if row.asset_id == SPREAD[0].asset_id]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An archive with a gap of a day in it."""
    folder = tmp_path_factory.mktemp("archive") / "mainnet"
    with node_of(ROWS, head=END) as node:
        run_export(node, folder, start=START + 2 * DAY, end=END)
        run_export(node, folder, start=START, end=START + DAY)
    return folder


@pytest.fixture(scope="module")
def archived(folder):
    path = folder.parent / "report.html"
    write_report(Archive(folder), path, largest=0)
    return read_page(path)


def test_a_gap_stands_at_the_top(archived):
    gap = [from_microseconds(START + days * DAY) for days in (1, 2)]
    assert "not complete" in archived.text("p")
    (said,) = (
        text for tag, text in archived.texts if tag == "li" and "not known to be complete" in text
    )
    assert all(f"{moment:%Y-%m-%d %H:%M:%S}" in said for moment in gap)


@pytest.mark.usefixtures("words_only")
def test_what_flowed_is_unknown_where_a_part_of_a_period_is_a_gap(folder, tmp_path):
    start, end = (from_microseconds(START + hours * HOUR) for hours in (10, 60))
    write_report(Archive(folder), tmp_path / "r.html", start=start, end=end, largest=0)
    page = read_page(tmp_path / "r.html")
    (caption,) = (name for name in page.tables if name.startswith("Flows and activity by day"))
    rows = {row["from"]: row for row in page.tables[caption]}
    behind = f"{from_microseconds(START + 2 * DAY):%Y-%m-%d %H:%M:%S}"
    assert behind in rows
    assert set(rows) <= {f"{start:%Y-%m-%d %H:%M:%S}", behind}
    assert all(row["inflow"] != "unknown" for row in rows.values())
    assert number(rows[behind]["first rows"]) > 0
    totals = page.table("Totals by account type")
    assert {row["inflow"] for row in totals if row["type"]} == {"unknown"}
    assert GAPS_NOTE in page.text("p")


def test_pictures_of_a_time_with_a_gap_say_so(folder, archived, tmp_path):
    assert archived.text("text", "tspan").count("changes may be missing") >= 2
    assert GAPS_NOTE in archived.text("p")
    write_report(
        Archive(folder), tmp_path / "r.html", end=from_microseconds(START + DAY), largest=1
    )
    whole = read_page(tmp_path / "r.html")
    assert "Part of the time" not in whole.text("figcaption", "p")
    assert whole.text("text", "tspan").count("changes may be missing") == 0


@pytest.mark.usefixtures("words_only")
def test_what_moved_in_a_gap_before_the_interval_is_in_no_flow(folder, tmp_path):
    write_report(
        Archive(folder), tmp_path / "r.html", start=from_microseconds(START + 2 * DAY), largest=0
    )
    page = read_page(tmp_path / "r.html")
    first = page.table("Flows and activity by")[0]
    assert number(first["first rows"]) > 0
    assert {row["opening"] for row in page.tables.get("Largest movers", [])} <= {"unknown"}


def test_an_archive_s_coverage_and_limits_are_told(folder, archived):
    coverage = Archive(folder).coverage()
    shown = archived.table("Intervals of the archive")
    assert [row["state"] for row in shown] == list(coverage["state"])
    assert [row["state"] for row in shown][:2] == ["complete", "gap"]
    assert len(archived.table("Snapshots")) == len(Archive(folder).limits())


def test_an_archive_is_reported_on_from_first_to_last(folder, archived):
    said = " to ".join(f"{from_microseconds(bound):%Y-%m-%d %H:%M:%S}" for bound in (START, END))
    assert f"{said} UTC" in archived.text("p")
    rows = len(Archive(folder).read(partial=True))
    assert f"{rows:,}" in archived.text("dd")


@pytest.mark.usefixtures("words_only")
def test_a_part_of_an_archive_that_is_whole_is_complete(folder, tmp_path):
    path = tmp_path / "report.html"
    write_report(
        Archive(folder),
        path,
        start=from_microseconds(START + 3 * DAY),
        end=from_microseconds(END),
        largest=0,
    )
    page = read_page(path)
    assert "complete" in [text for tag, text in page.texts if tag == "p"]
    assert not [text for tag, text in page.texts if tag == "li" and "not known" in text]


@pytest.mark.usefixtures("words_only")
def test_what_lies_beyond_an_archive_is_a_gap(folder, tmp_path):
    path = tmp_path / "report.html"
    end = from_microseconds(END + HOUR)
    write_report(Archive(folder), path, start=from_microseconds(END - HOUR), end=end, largest=0)
    page = read_page(path)
    assert f"{end:%Y-%m-%d %H:%M:%S} UTC is not known to be complete" in page.text("li")


@pytest.mark.usefixtures("words_only")
def test_a_damaged_archive_says_so_at_the_top(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "stranger.txt").write_text("who?", encoding="utf-8")
    write_report(Archive(copy), tmp_path / "report.html", largest=0)
    page = read_page(tmp_path / "report.html")
    assert "checks failed" in page.text("p")
    assert "stranger.txt" in page.text("li")


def test_two_archives_of_the_same_content_give_the_same_bytes(folder, tmp_path, monkeypatch):
    pages = []
    for place in ("one", "two"):
        shutil.copytree(folder, tmp_path / place / "mainnet")
        monkeypatch.chdir(tmp_path / place)
        write_report(Archive("mainnet"), "report.html", largest=0)
        pages.append((tmp_path / place / "report.html").read_bytes())
    assert pages[0] == pages[1]
