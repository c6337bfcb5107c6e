"""All that an archive holds is compared with another source, and each difference reported."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, HOUR, MONTH, START, node_of, run_export
from tests.cli.running import run
from tests.moments import from_microseconds
from tests.proof.damages import (
    ROWS,
    SECOND,
    changed_node,
    lacking,
    name_of,
    pruned,
    truncate,
    verify,
)

SPAN = (from_microseconds(START), from_microseconds(END))


def test_a_node_of_the_same_rows_agrees_and_it_is_said_what_was_compared(node, folder):
    report = verify(folder, against=node.url)
    (found,) = report.compared
    assert (report.is_whole, found.is_same) == (True, True)
    assert (found.compared, found.shared) == ((len(ROWS), len(ROWS)), (SPAN,))
    assert f"compared with {node.url}: 400 rows of 2023-04-28T20:00Z to" in str(report)
    content = json.loads(report.to_json())
    assert content["compared"][0]["compared"] == [400, 400]
    part = verify(folder, against=node.url, start=SPAN[0], end=from_microseconds(START + DAY))
    assert part.compared[0].shared == ((SPAN[0], from_microseconds(START + DAY)),)


def test_an_archive_or_a_file_is_compared_as_a_node_is(node, folder, undisturbed, tmp_path):
    ba.write_parquet(ba.Archive(undisturbed).read(), tmp_path / "x.parquet")
    for other in (undisturbed, tmp_path / "x.parquet", ba.Archive(undisturbed).read()):
        assert verify(folder, against=other).compared[0].is_same


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: replace(row, balance=77), " 77 of asset_id"),
        (lambda _: None, " no row of asset_id"),
    ],
)
def test_a_difference_from_a_node_is_a_problem_with_its_day_and_rows(folder, change, said):
    with changed_node(change) as node:
        report = verify(folder, against=node.url)
        run("verify", folder, "--against", node.url, code=5)
    (problem,) = report.problems
    assert problem.kind == "difference"
    assert problem.where.startswith("2023-04-29")
    assert f"{node.url}{said}" in problem.what
    assert "the archive has" in problem.what
    assert "--repair --since 2023-04-29" in problem.mend


def test_a_damaged_file_is_not_compared_and_the_others_are(node, folder):
    truncate(folder)
    report = verify(folder, against=node.url)
    assert [problem.where for problem in report.problems] == [name_of(SECOND)]
    (found,) = report.compared
    assert (len(found.shared), found.rows.empty) == (2, True)


def test_what_a_node_cannot_know_is_not_compared(folder):
    with pruned() as node:
        report = verify(folder, against=node.url)
    (found,) = report.compared
    assert (report.is_whole, found.is_same) == (True, False)
    assert found.shared[0][0] >= from_microseconds(START + DAY)
    assert "not compared: 2023-04-28T20:00Z to 2023-04-29" in str(report)
    with lacking(folder, ROWS, START + HOUR, START + DAY) as node:
        report = verify(folder, against=node.url)
    assert report.is_whole
    assert not report.compared[0].is_same
    held = [row for row in ROWS if row.timestamp_ns < MONTH * 1000]
    with node_of(held, head=MONTH) as node:
        report = verify(folder, against=node.url)
    assert report.is_whole
    assert report.compared[0].shared == ((SPAN[0], from_microseconds(MONTH)),)


def test_where_nothing_is_compared_the_exit_code_is_3(folder, tmp_path):
    with node_of([]) as node:
        report = verify(folder, against=node.url)
        assert (report.is_whole, report.compared_nothing) == (True, True)
        said = run("verify", folder, "--against", node.url, code=3)
        assert f"compared with {node.url}: nothing" in said.stdout
        assert "there was nothing to compare" in said.stderr
    run("verify", folder)


def test_an_unproven_stretch_is_not_compared(tmp_path, node):
    with pruned() as forgetful:
        run_export(forgetful, tmp_path / "a", start=START, end=END)
    report = verify(tmp_path / "a", against=node.url)
    assert report.is_whole
    assert "unproven in the first, missing in the other" in str(report)
    assert report.compared[0].rows.empty
