"""The page that tells what benchmarks measured: nothing lost on the way, and failures told."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks import page
from tests.benchmarks.contestants import LOOP, fetching
from tests.benchmarks.processes import Cost
from tests.benchmarks.races import DUCKDB, OURS, POLARS, title
from tests.benchmarks.report import WHOLE, Report
from tests.benchmarks.workers import Weight


@pytest.fixture
def report():
    sizes = {"archive": 8.0, "plain": 12.0}
    report = Report(rows_per_second=2e6, load_before=0.5, bytes_a_row=sizes)
    for seconds in (1.0, 1.25, 1.5):
        report.add(WHOLE, fetching(4), Cost(seconds, 1.0, 100.0))
        report.add(WHOLE, LOOP, Cost(4 * seconds, 5.0, 300.0))
    report.tell("the service", "first page", 30, 50, 70, unit="ms", most=40)
    for name in (OURS, DUCKDB, POLARS):
        report.add(title("deltas"), name, Cost(1.0, 1.0, 100.0))
    report.weights["deltas"] = Weight(50.0, 100.0, 80.0)
    report.growth["rows"] = {"summaries": [(10, 0.1), (100, 1.0), (1000, 10.0)]}
    report.fail("test_x.py::test_y", "ValueError: no")
    report.took["service"] = 60.0
    return report


def test_records_joined_tell_all_that_was_measured(report):
    other = Report(load_before=0.7)
    other.tell("the explorer", "longest", 12, unit="ms")
    joined = Report.joined([report.to_json(), other.to_json()])
    assert joined.figures == report.figures + other.figures
    assert {**vars(joined), "figures": 0, "growth": 0} == {
        **vars(report),
        "figures": 0,
        "growth": 0,
    }
    assert page.slope(joined.growth["rows"]["summaries"]) == pytest.approx(1)


def test_the_page_tells_ratios_goals_and_what_failed(report):
    lines = [re.sub(" +", " ", line) for line in page.lines(report)]
    assert (
        "500,000 rows load in 1.2 s, 4.0 times as fast as a plain loop. Reconstructions of "
        "5,000,000 rows take Polars 1.0 to 1.0 times as long, by the work and the order of the "
        "rows."
    ) in lines
    assert f"| {LOOP} | 5.00 | 4.00 | 6.00 | 5.00 | 300 | 3 | 4.00 |" in lines
    missed, held = lines.index("### Missed"), lines.index("### Held")
    assert held < lines.index("## Machine")
    assert missed < lines.index(
        "| the service: first page, ms | <= 40 | 50.00 | 30.00 | 70.00 | 3 |"
    )
    assert held < lines.index(
        "| decode_page, rows a second | >= 1,000,000 | 2,000,000 | 2,000,000 | 2,000,000 | 1 |"
    )
    assert "| archive, bytes a row | <= 10 | 8.00 | 8.00 | 8.00 | 1 |" in lines
    assert "| deltas | DuckDB | **1.00** | | | |" in lines
    assert "| test_x.py::test_y | ValueError: no |" in lines
    assert "| summaries | rows | 1.00 |" in lines


def test_the_picture_names_each_slope(report, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PICTURE", tmp_path / "growth.svg")
    page.draw(report)
    drawn = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    assert "summaries" in drawn
    assert "slope 1.00" in drawn
