"""All that an archive holds is compared with another source, and each difference reported."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.archive.exporting import DAY, END, START, node_of
from tests.cli.running import run
from tests.moments import from_microseconds
from tests.proof.damages import (
    ROWS,
    SECOND,
    changed_node,
    name_of,
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


def test_where_nothing_is_compared_the_exit_code_is_3(folder, tmp_path):
    with node_of([]) as node:
        report = verify(folder, against=node.url)
        assert (report.is_whole, report.compared_nothing) == (True, True)
        said = run("verify", folder, "--against", node.url, code=3)
        assert f"compared with {node.url}: nothing" in said.stdout
        assert "there was nothing to compare" in said.stderr
    run("verify", folder)
