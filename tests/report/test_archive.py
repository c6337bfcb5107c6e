"""What a report of an archive says of how complete it is."""

from __future__ import annotations

import shutil

import pytest

from balance_analysis import Archive, write_report
from tests.archive.exporting import DAY, HOUR, node_of, run_export, spread_history
from tests.moments import from_microseconds, range_text, to_microseconds
from tests.report.reading import as_dicts, read_page, write_key
from tests.service.archives import Stretch, write_archive
from tests.service.rows import ASSETS, BASE, PARTIES, TYPES, Row

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
    write_report(Archive(folder), path)
    return read_page(path)


def test_a_gap_stands_at_the_top(archived):
    assert "not complete" in archived.text("p")
    (said,) = (
        text for tag, text in archived.texts if tag == "li" and "not known to be complete" in text
    )
    assert said.startswith(range_text(START + DAY, START + 2 * DAY))


def test_what_flowed_is_unknown_where_a_part_of_a_period_is_a_gap(folder, tmp_path):
    start, end = (from_microseconds(START + hours * HOUR) for hours in (10, 60))
    write_report(Archive(folder), tmp_path / "r.html", start=start, end=end)
    page = read_page(tmp_path / "r.html")
    found = page.view("flows", ROWS[0].asset_id, *page.bounds())["flows"]
    gap = START + DAY, START + 2 * DAY
    touching = [row for row in as_dicts(found) if row["start"] < gap[1] and row["end"] > gap[0]]
    others = [row for row in as_dicts(found) if row not in touching]
    assert {row["inflow"] for row in touching} <= {None}
    assert all((row["inflow"] is None) <= (row["unknown"] > 0) for row in others)
    assert any(row["inflow"] is not None for row in others)
    assert sum(row["unknown"] for row in others if row["start"] >= gap[1]) > 0


def test_an_archive_s_coverage_and_limits_are_told(folder, archived):
    coverage = Archive(folder).coverage()
    notes = archived.view("notes")
    states = [row["state"] for row in as_dicts(notes["coverage"])]
    assert states == list(coverage["state"])
    assert states[:2] == ["complete", "missing"]
    assert len(notes["limits"]["rows"]) == len(Archive(folder).limits())


def test_an_archive_is_reported_on_from_first_to_last(folder, archived):
    assert archived.bounds() == (START, END)
    rows = len(Archive(folder).read(partial=True))
    assert f"{rows:,}" in archived.text("dd")


def test_a_part_of_an_archive_that_is_whole_is_complete(folder, tmp_path):
    path = tmp_path / "report.html"
    write_report(
        Archive(folder),
        path,
        start=from_microseconds(START + 3 * DAY),
        end=from_microseconds(END),
    )
    page = read_page(path)
    assert "complete" in [text for tag, text in page.texts if tag == "p"]
    assert not [text for tag, text in page.texts if tag == "li" and "not known" in text]


def test_what_lies_beyond_an_archive_is_a_gap(folder, tmp_path):
    path = tmp_path / "report.html"
    end = from_microseconds(END + HOUR)
    write_report(Archive(folder), path, start=from_microseconds(END - HOUR), end=end)
    page = read_page(path)
    assert f"{range_text(END, END + HOUR)} is not known to be complete" in page.text("li")


def test_a_damaged_archive_says_so_at_the_top(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "stranger.txt").write_text("who?", encoding="utf-8")
    write_report(Archive(copy), tmp_path / "report.html")
    page = read_page(tmp_path / "report.html")
    assert "checks failed" in page.text("p")
    assert "stranger.txt" in page.text("li")


def test_two_archives_of_the_same_content_give_the_same_bytes(folder, tmp_path, monkeypatch):
    pages = []
    for place in ("one", "two"):
        shutil.copytree(folder, tmp_path / place / "mainnet")
        monkeypatch.chdir(tmp_path / place)
        write_report(Archive("mainnet"), "report.html")
        pages.append((tmp_path / place / "report.html").read_bytes())
    assert pages[0] == pages[1]


def test_a_frozen_line_ends_where_knowledge_does_before_the_end_of_the_archive(tmp_path):
    known, row = BASE + 3 * DAY, Row(ASSETS[0], TYPES[0], PARTIES[0], "", BASE + DAY, 7)
    stretches = [Stretch(BASE, known), Stretch(known, BASE + 9 * DAY, proven=False)]
    archive = write_archive(tmp_path / "archive", [row], stretches=stretches)
    write_report(archive, tmp_path / "r.html")
    page = read_page(tmp_path / "r.html")
    (line,) = page.view("series", write_key(row[:4]))["series"]
    drawn = list(zip(line["times"], line["balances"], strict=True))
    assert page.bounds() == (BASE, BASE + 9 * DAY)
    assert drawn == [(row.time, "7"), (known, None)]
    periods = as_dicts(page.view("account", write_key(row[:4]), *page.bounds())["periods"])
    flowed = {one["start"]: (one["inflow"], one["changes"]) for one in periods}
    assert (flowed[BASE + DAY + 4 * HOUR], flowed[BASE + 4 * DAY]) == (("0", 0), (None, None))
