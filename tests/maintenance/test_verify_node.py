"""A node is asked again for what an archive holds, and each difference told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    START,
    node_of,
    run_export,
    spread_history,
)
from tests.maintenance.damages import (
    ROWS,
    SECOND,
    changed_node,
    compare,
    name_of,
    pruned,
    prunes_meanwhile,
    truncate,
)


def test_windows_of_which_a_node_may_lack_rows_are_not_compared(folder):
    headers = {"X-Incomplete": f"{START * 1000}-{END * 1000}"}
    changed = [replace(row, balance=row.balance + 1) for row in ROWS]
    with node_of(changed, extra_headers=headers) as node:
        report = compare(node, folder, sample=5)
    assert report.is_whole
    assert report.windows == 0
    assert all("may lack rows" in why for why in report.not_compared)


def test_a_node_of_the_same_rows_agrees_with_the_archive(node, folder):
    report = compare(node, folder, sample=20, seed=1)
    assert (report.problems, report.windows, report.not_compared) == ((), 20, ())


def test_the_same_seed_asks_for_the_same_windows(node, folder):
    asked = []
    for seed in (1, 1, 2):
        before = len(node.requests)
        compare(node, folder, sample=5, seed=seed)
        asked.append([request.params for request in node.requests[before:]])
    assert asked[0] == asked[1] != asked[2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: replace(row, balance=77), "the node 77 of asset_id"),
        (lambda _: None, "the node no row of asset_id"),
    ],
)
def test_a_difference_from_a_node_is_a_problem_with_its_window_and_rows(folder, change, said):
    with changed_node(change) as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems
    problem = report.problems[0]
    assert problem.kind == "difference"
    assert problem.where.startswith("2023-04-29")
    assert problem.periods == (SECOND,)
    assert said in problem.what
    assert "the archive has" in problem.what
    assert "--repair --since 2023-04-29" in problem.mend


def test_a_damaged_file_is_a_difference_that_names_it(node, folder):
    truncate(folder)
    report = compare(node, folder, sample=20, seed=1)
    kinds = [problem.kind for problem in report.problems]
    assert set(kinds) == {"rows", "difference"}
    assert name_of(SECOND) in report.problems[-1].what


def test_what_a_node_has_forgotten_could_not_be_compared(folder):
    with pruned() as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems == ()
    assert report.windows == 20
    (said,) = report.not_compared
    assert said.startswith("2023-04-28T20:00Z to 2023-04-29")
    assert said.endswith("the node has forgotten rows of it")


def test_a_node_that_has_forgotten_everything_proves_nothing(folder):
    with node_of([]) as node:
        report = compare(node, folder, seed=1)
    assert (report.problems, report.windows, len(report.not_compared)) == ((), 0, 1)


def test_what_a_node_does_not_hold_yet_could_not_be_compared(folder):
    held = [row for row in ROWS if row.timestamp_ns < MONTH * 1000]
    with node_of(held, head=MONTH) as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems == ()
    assert 0 < report.windows < 20
    assert all("doesn't hold all of it yet" in said for said in report.not_compared)


def test_what_a_node_forgets_meanwhile_is_no_difference(folder):
    with node_of(ROWS) as node:
        report = compare(prunes_meanwhile(node, MONTH), folder, sample=20, seed=1)
    assert report.problems == ()
    assert 0 < report.windows < 20
    assert len(report.not_compared) == 20 - report.windows


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_compared_though_most_of_the_time_is_quiet(tmp_path, seed):
    rows = spread_history(5, rows=200, accounts=20, end=START + 3 * HOUR)
    with node_of(rows, head=START + 100 * DAY) as node:
        run_export(node, tmp_path / "x", start=START)
        node.edit_row = lambda row: {**row, "balance": "77"}
        assert compare(node, tmp_path / "x", sample=2, seed=seed).problems
